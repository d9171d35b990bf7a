"""The walks of docs/architecture.md: the files that a command passes, in the order in which they are first called."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
PAGE = (
    (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").partition("\n## Walks\n")[2].partition("\n## ")[0]
)
WALKS = {
    command: re.findall(r"^\d+\. `([\w/]+\.py)`", walk, re.M)
    for command, walk in re.findall(r"^### `lawful ([^\n]+)`\n(.*?)(?=^### |\Z)", PAGE, re.M | re.S)
}
PLUMBING = {
    "",
    "cli",
    "report",
    "formats",
    "network",
    "exact",
    "sentences",
    "figure",
    "result",
    "outward",
}  # passed by all
TRACE = """
import json, sys
from pathlib import Path
import lawful
from lawful.cli import main

root, order, seen = str(Path(lawful.__file__).parent) + "/", [], set()

def watch(frame, event, argument):
    file = frame.f_code.co_filename
    if event != "call" or file in seen or not file.startswith(root) or frame.f_code.co_name == "<module>":
        return
    outer = frame.f_back
    while outer is not None:  # what a file does while it is imported is no step of the walk
        if outer.f_code.co_name == "<module>" and outer.f_code.co_filename.startswith(root):
            return
        outer = outer.f_back
    seen.add(file)
    order.append(file.removeprefix(root))

sys.setprofile(watch)
try:
    main()
except SystemExit as stop:
    code = stop.code
sys.setprofile(None)
Path("walk.json").write_text(json.dumps([code, order]))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the commands name: a network, its permuted twin, an ONNX file, a proof."""
    import lawful
    from lawful.conservation.certificate import certificate

    place = tmp_path_factory.mktemp("walks")
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(4, 3)), rng.normal(size=(2, 4))
    second[:, 1] = 0.0
    order = [2, 0, 3, 1]
    lawful.write(lawful.Mlp([first, second]), place / "a.safetensors")
    lawful.write(lawful.Mlp([2 * first[order], second[:, order] / 2]), place / "b.safetensors")
    lawful.write(lawful.Mlp([first, second]), place / "net.onnx")
    proof = certificate(lawful.laws("3-3-2 linear"))
    (place / "c.json").write_text(json.dumps(proof), encoding="utf-8")
    return place


def test_there_are_walks() -> None:
    assert len(WALKS) >= 5
    assert all(len(files) >= 4 for files in WALKS.values())


@pytest.mark.parametrize("command", WALKS)
def test_the_walk_is_the_one_on_the_page(command: str, folder: Path) -> None:
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    run = [sys.executable, "-c", TRACE, *shlex.split(command)]
    done = subprocess.run(run, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    code, passed = json.loads((folder / "walk.json").read_text(encoding="utf-8"))
    assert code == 0, done.stderr
    missing = [file for file in WALKS[command] if file not in passed]
    assert not missing, f"not passed: {missing}; the run passed {passed}"
    places = [passed.index(file) for file in WALKS[command]]
    assert places == sorted(places), f"another order: {sorted(WALKS[command], key=passed.index)}"
    packages = {file.partition("/")[0] if "/" in file else "" for file in passed}
    named = {file.partition("/")[0] for file in WALKS[command]} | PLUMBING
    assert packages <= named, f"not on the page: {packages - named}"
