"""The pages for contributors are followed to the letter, in a copy of the package."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = ("certificate", "law", "subcommand")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)


def insert(file: Path, code: str) -> None:
    """Put code behind the last of the lines that its first comments quote (`# after: ...`), one after the other."""
    lines, place = file.read_text(encoding="utf-8").split("\n"), -1
    wanted = code.split("\n")
    while wanted[0].startswith("# after: "):
        quoted = wanted.pop(0).removeprefix("# after: ")
        place = next(n for n in range(place + 1, len(lines)) if lines[n].startswith(quoted))
    file.write_text("\n".join([*lines[: place + 1], *wanted, *lines[place + 1 :]]), encoding="utf-8")


def run(root: Path, *command: str) -> str:
    environment = {"PYTHONPATH": str(root / "src"), "PATH": "/usr/bin:/bin", "COLUMNS": "100"}
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("page", PAGES)
def test_the_page_can_be_followed(page: str, tmp_path: Path) -> None:
    text = (ROOT / "docs" / "contributing" / f"{page}.md").read_text(encoding="utf-8")
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    printed = ""
    followed = 0
    for language, block in BLOCK.findall(text):
        first, _, rest = block.partition("\n")
        if language == "python" and first == "# run":
            printed = run(tmp_path, "-c", rest)
        elif language == "python" and (file := tmp_path / first.removeprefix("# ")).exists():
            insert(file, rest.rstrip("\n"))
        elif language == "python":
            file.write_text(rest, encoding="utf-8")
        elif language == "text":
            assert block.strip() == printed.strip()
            followed += 1
        elif language == "console":
            for line in block.splitlines():
                if line.startswith("$ lawful "):
                    printed = run(tmp_path, "-m", "lawful", *shlex.split(line)[2:])
                else:
                    assert line in printed
                    followed += 1
    assert followed


def test_other_blocks_are_no_instructions() -> None:
    """A page that names a file which is not in the package creates it; one that quotes a line must find it."""
    with pytest.raises(StopIteration):
        insert(ROOT / "src" / "lawful" / "version.py", "# after: no such line\nx = 1")
