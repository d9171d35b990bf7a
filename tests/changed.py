"""Print the tests of what changed since the last commit: `make quick` runs them.

A changed test runs itself; a changed file of the package runs its doctests, the tests that import it by name, and the
test of imports. Tests that reach it only through others are left to `make test`.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
MOST = 12  # test files: with more than that a change is no longer quick to test, and those of its own package go first


def changed_files() -> list[Path]:
    """Files that git sees as changed or new beside the last commit."""
    changed = git("diff", "--name-only", "HEAD") + git("ls-files", "--others", "--exclude-standard")
    return [ROOT / name for name in changed if (ROOT / name).is_file()]


def git(*arguments: str) -> list[str]:
    run = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return run.stdout.split("\n")[:-1]


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT / "src").with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def tests_of(changed: list[Path]) -> list[Path]:
    """Test files and files with doctests, those of the changed packages first."""
    sources = [path for path in changed if path.suffix == ".py" and path.is_relative_to(ROOT / "src")]
    tests = [path for path in changed if path.name.startswith("test_") and path.suffix == ".py"]
    texts = {path: path.read_text(encoding="utf-8") for path in sorted((ROOT / "tests").rglob("test_*.py"))}
    packages = {path.relative_to(ROOT / "src" / "lawful").parts[0] for path in sources}
    near, far = [], []
    for path, text in texts.items():
        if any(f"{module_name(source)} import" in text for source in sources) and path not in tests:
            (near if packages & {*path.relative_to(ROOT).parts} else far).append(path)
    layers = [ROOT / "tests" / "test_layers.py"] if sources else []
    return [*tests, *layers, *sources, *(near + far)[:MOST]]


if __name__ == "__main__":
    print(*[path.relative_to(ROOT) for path in tests_of(changed_files())])
