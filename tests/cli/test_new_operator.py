"""A new operator is one entry: the page that says so is followed, and every verb is asked about a network with it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import in_process

from lawful.program.table import ATEN, OPERATORS

sys.path.insert(0, str(Path(__file__).parent))
from test_one_answer import VERBS, differences, meaning

PAGE = Path(__file__).parents[2] / "docs" / "contributing" / "operator.md"
NETS = """
import torch
from torch import nn


if not hasattr(torch.ops.mine, "two_slopes"):
    torch.library.define("mine::two_slopes", "(Tensor x) -> Tensor")
    torch.library.impl("mine::two_slopes", "CompositeImplicitAutograd", lambda x: torch.where(x > 0, 2 * x, x / 2))


class Net(nn.Module):
    def __init__(self, own):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.own = nn.Linear(5, 4), nn.Linear(4, 3), own
        with torch.no_grad():  # a unit that repeats another
            self.a.weight[3], self.a.bias[3] = self.a.weight[0], self.a.bias[0]

    def forward(self, x):
        x = self.a(x)
        return self.b(torch.ops.mine.two_slopes(x) if self.own else 2 * nn.functional.leaky_relu(x, 0.25))


def new():
    return Net(True)


def known():
    return Net(False)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("operator")
    (place / "bends.py").write_text(NETS)
    rng = np.random.default_rng(0)
    np.savez(place / "data.npz", x=rng.normal(size=(12, 5)), y=rng.normal(size=(12, 3)))
    np.savez(place / "labels.npz", x=rng.normal(size=(12, 5)), y=np.arange(12) % 3)
    return place


@pytest.fixture(scope="module")
def entry() -> Iterator[None]:
    """The page's own lines, and nothing else; the table as it was afterwards."""
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    (block,) = (each for each in blocks if "define(" in each)
    exec(compile(block, str(PAGE), "exec"), {})  # noqa: S102 - our own page
    yield
    del OPERATORS["two_slopes"], ATEN["two_slopes"]


def ask(verb: str, network: str, folder: Path) -> dict[str, Any]:
    arguments = [part.format(network).replace("other.onnx", "bends:known") for part in VERBS[verb]]
    run = in_process(*arguments, "--input", "5", "--json", cwd=folder)
    return {"exit": run.returncode, "said": spelled_alike(meaning(run.json))}


def spelled_alike(said: Any) -> Any:
    """Without what names or counts operators: one here, a product and others there."""
    if isinstance(said, dict):
        return {key: spelled_alike(value) for key, value in said.items() if key not in ("noted", "program")}
    if isinstance(said, list):
        return [spelled_alike(each) for each in said]
    return re.sub(r"bends:\w+|two_slopes|\bmul\b", "it", said) if isinstance(said, str) else said


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_knows_an_operator_by_its_entry_alone(verb: str, folder: Path, entry: None) -> None:
    found, expected = ask(verb, "bends:new", folder), ask(verb, "bends:known", folder)
    assert found["exit"] == expected["exit"] != 4
    if verb != "program":  # its text names the operator
        assert list(differences(expected, found)) == []
