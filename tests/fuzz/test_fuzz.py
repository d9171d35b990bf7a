"""Some damaged files, the same every time; `make fuzz` runs ten thousand."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from damage import damaged
from seeds import TARGETS, plant, run

HERE = Path(__file__).parent
COUNT = 150


def test_damaged_files_give_an_answer_or_one_line() -> None:
    command = [sys.executable, str(HERE), "--count", str(COUNT), "--seed", "7"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert done.stdout.startswith(f"{COUNT} inputs")
    assert "0 faults" in done.stdout


def test_the_undamaged_files_are_read(tmp_path: Path) -> None:
    plant(tmp_path)
    codes = {target.command: run(tmp_path, target.command)[0] for target in TARGETS}
    wrong = {command: code for command, code in codes.items() if code != (2 if command[1] == "plan.toml" else 0)}
    assert wrong == {}


FAULTS = """
import os, re, lawful.cli.output as output, lawful.sources.summary as summary
output.UNUSUAL = re.compile("(?!)")
TURN, well = Path(__file__).with_name("turn"), summary.summarise

def broken(network):
    turn = int(TURN.read_text())
    TURN.write_text(str(turn + 1))
    if turn == 0:
        raise TypeError
    if turn == 1:
        print("\\x1b[31m")
        return well(network)
    if turn == 3:
        os._exit(9)
    while True:
        pass

summary.summarise = broken
TARGETS = TARGETS[:1]

def plant(folder):
    write(Architecture.parse("2-3-2 relu bias").initialise(seed=0), folder / "net.json")
"""


def test_faults_are_found(tmp_path: Path) -> None:
    """The harness itself, with `show` broken in one way after another; it goes on behind a child that hangs or dies."""
    main = (HERE / "__main__.py").read_text().replace("SECONDS = 20", "SECONDS = 3")
    (tmp_path / "__main__.py").write_text(main)
    (tmp_path / "damage.py").write_text("def damaged(content, *_):\n    return content\n")
    (tmp_path / "seeds.py").write_text((HERE / "seeds.py").read_text() + FAULTS)
    (tmp_path / "turn").write_text("0")
    done = subprocess.run([sys.executable, str(tmp_path), "--count", "4"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 1, (done.stdout, done.stderr[-500:])
    assert (tmp_path / "turn").read_text() == "4"
    for word in ("EXIT 4", "ESCAPE", "HANG", "DIED"):
        assert done.stdout.count(word) == 2, done.stdout  # once in the counts, once as a fault


def test_damage_is_the_same_for_the_same_seed() -> None:
    content = (HERE / "seeds.py").read_bytes()
    for name in ("a.json", "a.toml", "a.npz", "a.sqlite", "a.pt"):
        one, two = (damaged(content, name, random.Random(f"3:{name}")) for _ in range(2))  # noqa: S311
        assert one == two
