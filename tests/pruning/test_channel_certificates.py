"""Certificates of channel prunings: true ones are verified, forged ones are not."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from lawful.errors import CertificateError, NotACertificate
from lawful.pruning.channels import prune_channels
from lawful.pruning.channels.certificate import certificate
from lawful.verify import verify

Proof = dict[str, Any]


class Gated(nn.Module):
    """A residual stage with a gate, depthwise layers, normalisation and smooth activations."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(2, 6, 3, bias=False), nn.BatchNorm2d(6)
        self.depth, self.mix = nn.Conv2d(6, 6, 3, padding=1, groups=6), nn.Conv2d(6, 6, 1, bias=False)
        self.squeeze, self.gate, self.head = nn.Conv2d(6, 3, 1), nn.Conv2d(3, 6, 1), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.stem(x)))
        inner = nn.functional.gelu(self.depth(x))
        gate = torch.sigmoid(self.gate(torch.relu(self.squeeze(inner.mean((2, 3), keepdim=True)))))
        return self.head((x + self.mix(inner * gate)).mean((2, 3)))


@torch.no_grad()
def model() -> Any:
    torch.manual_seed(0)
    found = Gated().eval()
    found.norm.running_mean.normal_()
    found.norm.running_var.uniform_(0.5, 2.0)
    found.norm.weight[1], found.norm.bias[1] = 0.0, -1.0  # 0 after the ReLU
    found.depth.bias[1] = 0.25  # so that the gated channel is gelu(0.25) times its gate
    found.gate.weight[1] = 0.0
    for part in (found.norm, found.depth, found.gate):
        part.weight[3], part.bias[3] = part.weight[2], part.bias[2]
    for tensor in (found.stem.weight, found.norm.running_mean, found.norm.running_var):
        tensor[3] = tensor[2]
    found.mix.weight[1], found.mix.weight[3] = 0.0, found.mix.weight[2]
    found.squeeze.weight[2] = 0.0
    return found


def proof() -> Proof:
    return dict(json.loads(json.dumps(certificate(prune_channels(model(), [(2, 2, 6, 6)])))))


def test_a_stage_with_everything_is_verified() -> None:
    pruned = prune_channels(model(), [(2, 2, 6, 6)])
    assert {gone.kind for gone in pruned.removed} == {"constant", "duplicate"}
    found = verify(certificate(pruned), model(), pruned.module)
    assert found.facts["channels_before"] - found.facts["channels_after"] == len(pruned.removed)
    assert found.given == (0, 1)


def edited(name: str, place: int, factor: float, which: str = "after") -> Callable[[Proof], None]:
    """Another number in a tensor."""

    def edit(given: Proof) -> None:
        tensor = given[which][name]
        kind = np.float32 if tensor["dtype"] == "float32" else np.float64
        values = np.frombuffer(base64.b64decode(tensor["data"]), kind).copy()
        values[place] = values[place] * factor + (1 - factor)
        tensor["data"] = base64.b64encode(values.tobytes()).decode()

    return edit


def put(*where: Any) -> Callable[[Proof], None]:
    *path, last, value = where

    def edit(given: Proof) -> None:
        inner: Any = given
        for key in path:
            inner = inner[key]
        inner[last] = value

    return edit


def kind_of(given: Proof, kind: str) -> int:
    return next(place for place, step in enumerate(given["program"]) if step["kind"] == kind)


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (edited("head.weight", 0, 1.001), "not what follows|has changed"),
        (edited("head.bias", 0, 1.001), "not what follows|has changed"),
        (edited("stem.weight", 0, 1.001), "has changed"),
        (edited("norm.weight", 1, 1.5, "before"), "not constant|another function|has changed"),
        (edited("norm.bias", 1, -1.5, "before"), "not constant|another function|has changed"),
        (edited("stem.weight", 60, 1.001, "before"), "another function|has changed"),
        (edited("norm.running_var", 3, 1.001, "before"), "another function|has changed"),
        (edited("depth.weight", 27, 1.001, "before"), "another function|has changed"),
        (edited("gate.weight", 9, 1.001, "before"), "another function|has changed"),
        (put("gone", []), "a channel that stays"),
        (put("gone", 0, [0, 0]), "must stay"),
        (put("moves", []), "another function"),
        (put("moves", 0, 1, 99), "out of range"),
        (put("moves", 0, 2, 0), "a channel that stays"),
        (put("results", [1]), "lead to none of the results"),
        (put("others", {"x": "y"}), "digests"),
        (put("added", []), "lacks the bias"),
        (put("before", "head.weight", "dtype", "float64"), "other sizes"),
        (put("program", 1, "padded", "yes"), "expected true or false"),
        (put("program", 1, "kind", "magic"), "expected one of"),
        (put("program", 1, "sources", [5]), "out of range"),
    ],
)
def test_forgeries(edit: Callable[[Proof], None], words: str) -> None:
    given = proof()
    edit(given)
    with pytest.raises((CertificateError, NotACertificate), match=words):
        verify(given)


def test_operations_that_change_the_meaning() -> None:
    """Another function, a border of zeros, a sum that is a product: each breaks a step."""
    for where, words in (
        (("relu", "function", "neg"), "constant|another function|follows"),
        (("add", "kind", "sub"), "."),
    ):
        given = proof()
        name, key, value = where
        place = next(p for p, step in enumerate(given["program"]) if name in (step["function"], step["kind"]))
        given["program"][place][key] = value
        if key == "kind":
            given["program"][place]["kind"] = value
            verify(given)  # the other program is true as well: its sum keeps what was proved
            continue
        with pytest.raises(CertificateError, match=words):
            verify(given)


MODULE = """
import torch
from torch import nn


def small():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(54, 3)
    )
    with torch.no_grad():
        model[1].weight[:2] = 0.0
    return model
"""


def test_the_command_line(lawful: Any, tmp_path: Path) -> None:
    (tmp_path / "certified_modules.py").write_text(MODULE)
    saved = tmp_path / "proof.json"
    options = ("prune", "certified_modules:small", "--input", "1,8,8")
    got = lawful(*options, "--certificate", saved, "--verify", "--json", cwd=tmp_path).json
    assert got["verified"] is True
    assert "2 of 6 hidden channels of weights" in lawful("verify", saved).stdout
    assert "re-checked" in lawful(*options, "--verify", cwd=tmp_path).stdout
    assert "not re-checked" in lawful(*options, cwd=tmp_path).stdout
