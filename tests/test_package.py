"""As a stranger gets it: the core alone, the built packages, and the README's commands."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

from core_only import END

ROOT = Path(__file__).parents[1]
CORE = Path(__file__).parent / "core_only.py"


def core(*commands: str, cwd: Path, code: int = 0) -> list[str]:
    """What the command line says with every extra hidden, command by command; each ends with this exit code."""
    words = json.dumps([shlex.split(command) for command in commands])
    run = subprocess.run(
        [sys.executable, str(CORE), words], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    *said, rest = re.split(f"^{END}(?={code}$)", run.stdout, flags=re.M)
    assert len(said) == len(commands), run.stdout
    assert rest == f"{code}\n", run.stdout
    return said


def test_the_core_answers_without_any_extra(tmp_path: Path) -> None:
    laws, verified, *_ = core(
        "laws '3-4-2 relu' --certificate laws.json",
        "verify laws.json",
        "audit '3-4-1 relu bias' --html page.html",
        "prune '3-4-1 relu bias' --out small.safetensors",
        "same small.safetensors small.safetensors --json",
        "flow '2-3-1 relu' --until 0.2 --out run",
        "drift run --html run.html",
        cwd=tmp_path,
    )
    assert "proved" in laws
    assert "verified" in verified


def test_what_needs_more_names_the_extra(tmp_path: Path) -> None:
    needs = {
        "symmetries '2-3-1 relu'": "torch",
        "convert '2-3-1 relu' x.onnx": "onnx",
        "convert '2-3-1 relu' x.pt": "torch",
        "compare '2-3-1 relu' --optimizers flow --until 0.1 --plot x.svg": "plot",
        "demo": "data",
    }
    for said, extra in zip(core(*needs, cwd=tmp_path, code=2), needs.values(), strict=True):
        assert f"pip install 'lawful[{extra}]'" in said


def test_results_show_themselves_without_any_extra(tmp_path: Path) -> None:
    lines = (
        f"import sys; sys.path.insert(0, {str(CORE.parent)!r}); import core_only; core_only.hide(); import lawful",
        "found = lawful.laws('3-4-2 relu')",
        "assert '<svg' in found._repr_html_() and found.to_dict()['laws'] == 4",
        "try: lawful.components('3-4-1 relu bias').to_dataframe()",
        "except ImportError as error: assert 'lawful[data]' in str(error)",
        "else: raise SystemExit('pandas is hidden')",
        "try: lawful.Monitor",
        "except ImportError as error: assert 'lawful[torch]' in str(error)",
        "else: raise SystemExit('torch is hidden')",
    )
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True, cwd=tmp_path)


def commands() -> list[str]:
    """The commands of the README's console blocks that need no file of the reader's."""
    blocks = re.findall(r"```console\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.S)
    lines = [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ lawful")]
    return [line.partition("#")[0].strip() for line in lines]


def test_the_wheel_is_what_the_readme_says(tmp_path: Path) -> None:
    """Built, checked, installed beside the dependencies, and used."""
    source = tmp_path / "source"
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff"):
        shutil.copy(ROOT / name, source)
    dist = tmp_path / "dist"
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(dist), str(source)]
    subprocess.run(build, check=True, capture_output=True)
    made = sorted(dist.iterdir())
    assert [path.suffix for path in made] == [".whl", ".gz"]
    checked = subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", *map(str, made)], capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    home = tmp_path / "venv"
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index", "--quiet"]
    subprocess.run([*install, str(made[0])], check=True)
    site = next((home / "lib").glob("python*/site-packages"))
    (site / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")  # found after the wheel's own
    ask = [str(python), "-c", "import lawful; print(lawful.__file__)"]
    where = subprocess.run(ask, cwd=tmp_path, capture_output=True, text=True, env={})
    assert str(home) in where.stdout, where.stderr
    found = commands()
    assert len(found) >= 2
    for line in found:
        words = [str(home / "bin" / "lawful"), *shlex.split(line)[1:]]
        run = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, env={"PATH": "/usr/bin:/bin"})
        assert run.returncode in (0, 1, 3), (line, run.stderr)
        assert run.stdout
    said = subprocess.run([str(python), "-c", block("python")], cwd=tmp_path, capture_output=True, text=True, env={})
    assert shape(said.stdout) == shape(block("text")), said.stderr


def block(kind: str) -> str:
    """The README's block of this kind."""
    found = re.findall(rf"```{kind}\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.S)
    assert len(found) == 1
    return str(found[0])


def shape(text: str) -> list[str]:
    """The first words of each line, without numbers: weights trained elsewhere differ in their last digits."""
    lines = [
        re.sub(r"[-\d.,]+(e-?\d+)?", "#", line).split("[")[0].split(": #")[0].strip() for line in text.splitlines()
    ]
    return [line for line in lines if line]


def test_the_picture_of_the_readme_is_what_it_says() -> None:
    """Drawn again from its weights, with the regions that `lawful` counts and the verdict that it gives."""
    import numpy as np

    import lawful

    sys.path.insert(0, str(ROOT / "docs"))
    try:
        import hero
    finally:
        sys.path.remove(str(ROOT / "docs"))
    stored = json.loads((ROOT / "docs" / "hero.json").read_text(encoding="utf-8"))
    drawn = (ROOT / "docs" / "hero.svg").read_text(encoding="utf-8")
    one = hero.network(np.array(stored["theta"]))
    verdict = lawful.same(one, hero.twin(one))
    assert (verdict.verdict, verdict.to_dict()["within"]["kind"]) == ("equal", "exactly")
    low, high = hero.BOX[:2], hero.BOX[2:]
    counted = lawful.regions(one, (low, high)).regions
    assert counted == len(hero.pieces(one))
    said = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"cut into {counted:,} regions" in said.replace("the plane cut", "cut").replace("plane cut", "cut")
    assert f"{counted} regions" in drawn
    assert hero.draw(stored) == drawn
