"""Evidence that two checkpoints are different functions: steps to one output of each, carried out in balls."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from checkpoints.models import FAMILIES, make
from safetensors.torch import save_file
from torch import nn

from lawful.api.checkpoints.outputs_differ import outputs_certificate, retrace
from lawful.checkpoints.opening import ApartPair, CheckpointPair, open_both
from lawful.checkpoints.verdict import apart, decide
from lawful.errors import CertificateError, LawfulError, Unsupported
from lawful.program.table import ATEN, Entry
from lawful.verify import verify
from lawful.verify.core.checkpoint import tensors_digest

Files = list[dict[str, Any]]


@cache
def evidence(family: str) -> tuple[CheckpointPair, Any, dict[str, Any], Files]:
    one, two = make(family, 0), make(family, 1)
    given = open_both(one, two, input=FAMILIES[family][1])
    assert isinstance(given, CheckpointPair)
    pair, found = decide(given)
    assert found.verdict == "different"
    assert found.replay is not None
    certificate = outputs_certificate(*retrace(pair, found.replay))
    return pair, found.replay, certificate, [tensors(each.tensors) for each in (pair.first, pair.second)]


def tensors(held: Any) -> dict[str, Any]:
    return {name: tensor.double().numpy() for name, tensor in held.items() if tensor.is_floating_point()}


@pytest.mark.parametrize("family", ["resnet", "gpt", "llama"])
def test_the_modules_themselves_differ_by_what_is_verified(family: str) -> None:
    _, replay, certificate, files = evidence(family)
    stated = verify(json.dumps(certificate), *files).facts["apart"]
    with torch.no_grad():
        found = [make(family, seed).double()(*replay.inputs).reshape(-1)[replay.place] for seed in (0, 1)]
    assert abs(float(found[0] - found[1])) >= 1.999 * stated > 0


def forged(certificate: dict[str, Any], **changes: Any) -> str:
    return json.dumps(certificate | changes)


def test_forgeries_are_refused() -> None:
    _, _, certificate, (one, two) = evidence("gpt")
    name = certificate["tensors"][0][0]
    touched = two | {name: two[name] + 1.0}
    cases = [
        (forged(certificate, apart=2.01 * certificate["apart"]), one, two),
        (forged(certificate, apart=0.0), one, two),
        (forged(certificate, apart=-1.0), one, two),
        (forged(certificate, about=certificate["about"][::-1]), one, two),
        (json.dumps(certificate), two, one),
        (json.dumps(certificate), one, touched),
        (forged(certificate, about=[certificate["about"][0]] * 2), one, one),
        (forged(certificate, tensors=[certificate["tensors"][0][1:], certificate["tensors"][1]]), one, two),
        (forged(certificate, tensors=[["no tensor"], certificate["tensors"][1]]), one, two),
        (forged(certificate, steps=[]), one, two),
        (forged(certificate, steps=[certificate["steps"][0][:-1]]), one, two),
    ]
    for text, *files in cases:
        with pytest.raises(LawfulError):
            verify(text, *files)
    with pytest.raises(CertificateError, match="both files"):
        verify(json.dumps(certificate), one)


def test_a_number_that_is_none_is_refused() -> None:
    _, _, certificate, (one, two) = evidence("gpt")
    broken = two | {certificate["tensors"][1][0]: np.full_like(two[certificate["tensors"][1][0]], np.nan)}
    with pytest.raises(LawfulError):
        verify(json.dumps(certificate), one, broken)


def by_hand(middle: list[dict[str, Any]], apart: float, values: tuple[float, float]) -> tuple[str, Files]:
    """A certificate of steps on one number of each file."""
    files = [{"w": np.array([value])} for value in values]
    whole = [{"kind": "parameters", "length": 1}, {"kind": "input", "length": 0}, *middle]
    body = {"kind": "outputs-differ", "version": 2, "about": [], "steps": [whole], "tensors": [["w"]] * 2}
    about = [tensors_digest(file) for file in files]
    return json.dumps(body | {"apart": apart, "about": about}), files


ZERO = [  # exp(log w) − w: zero, but no ball will ever say so
    {"kind": "log", "sources": [0]},
    {"kind": "exp", "sources": [2]},
    {"kind": "constant", "values": [-1.0]},
    {"kind": "mul", "sources": [4, 0]},
    {"kind": "add", "sources": [3, 5]},
]
CHOICE = [  # w if that is positive, else −w
    *ZERO,
    {"kind": "choose", "sources": [6, 0, 5]},
]


def test_a_sign_that_cannot_be_told_decides_nothing() -> None:
    text, files = by_hand(CHOICE, 1.0, (2.0, 7.0))
    with pytest.raises(CertificateError, match="do not tell"):
        verify(text, *files)
    twice = [*ZERO, {"kind": "choose", "sources": [6, 0, 0]}]  # both sides are w
    text, files = by_hand(twice, 4.9, (2.0, 7.0))
    assert verify(text, *files).facts["apart"] == 4.9


def test_a_gap_below_float64_is_seen_in_balls() -> None:
    """Where 1 + w − 1 is nothing in float64."""
    steps = [
        {"kind": "constant", "values": [1.0]},
        {"kind": "add", "sources": [0, 2]},
        {"kind": "constant", "values": [-1.0]},
        {"kind": "add", "sources": [3, 4]},
    ]
    text, files = by_hand(steps, 1e-40, (1e-30, 1.1e-30))
    assert verify(text, *files).facts["apart"] == 1e-40
    text, files = by_hand(steps, 1e-30, (1e-30, 1.1e-30))
    with pytest.raises(CertificateError, match="not as far apart"):
        verify(text, *files)


def test_a_few_bytes_do_not_become_gigabytes_of_balls() -> None:
    """Outer products of one column: four million numbers for a line of JSON each; and tensors that are not used."""
    column = {"kind": "constant", "values": [1.0] * 2000}
    outer = [{"kind": "matmul", "sources": [2, 2], "sizes": [1, 2000, 1, 2000]} for _ in range(2)]
    total = [{"kind": "add", "sources": [3, 4]}, {"kind": "sum", "sources": [5], "sizes": [4_000_000]}]
    text, files = by_hand([column, *outer, *total], 1.0, (2.0, 7.0))
    with pytest.raises(Unsupported, match="more than 6,000,000 numbers"):
        verify(text, *files)


def test_tensors_that_do_not_fit_are_not_turned_into_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    """A certificate may name all tensors of a file that is too large for that: sizes are compared first."""
    text, files = by_hand([{"kind": "mul", "sources": [0, 0]}], 1.0, (2.0, 7.0))
    more = [file | {"large": np.zeros(10)} for file in files]
    about = [tensors_digest(file) for file in more]
    named = json.dumps(json.loads(text) | {"tensors": [["w", "large"]] * 2, "about": about})
    monkeypatch.setattr(
        "lawful.verify.checkpoints.outputs_differ.np.isfinite", lambda values: pytest.fail("it was read")
    )
    with pytest.raises(CertificateError, match="do not begin with"):
        verify(named, *more)


def test_two_modules_without_a_common_form_have_a_list_each() -> None:
    torch.manual_seed(0)
    one, two = (nn.Sequential(nn.Linear(3, width), nn.SiLU(), nn.Linear(width, 2)) for width in (4, 6))
    pair = open_both(one, two, input=(3,))
    assert isinstance(pair, ApartPair)
    found = apart(pair)
    certificate = outputs_certificate(*retrace(pair, found.replay))
    assert len(certificate["steps"]) == 2
    seen = verify(json.dumps(certificate), *(tensors(module.state_dict()) for module in (one, two)))
    assert seen.statement.startswith("two lists of")


def test_a_rewrite_that_forgot_a_step_is_retraced_in_both_modules() -> None:
    """Gate and up joined, up twice as large: each file is read by the steps of its own module."""

    class Split(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate, self.up, self.down = nn.Linear(3, 4), nn.Linear(3, 4), nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.down(nn.functional.silu(self.gate(x)) * self.up(x))

    class Joined(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.both, self.down = nn.Linear(3, 8), nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            gate, up = self.both(x).chunk(2, -1)
            return self.down(nn.functional.silu(gate) * up)

    torch.manual_seed(0)
    one, two = Split(), Joined()
    state = {"both.weight": torch.cat([one.gate.weight, 2 * one.up.weight]),
             "both.bias": torch.cat([one.gate.bias, one.up.bias]),
             "down.weight": one.down.weight, "down.bias": one.down.bias}  # fmt: skip
    two.load_state_dict(state)
    pair = open_both(one, two, input=(3,))
    assert isinstance(pair, CheckpointPair)
    assert pair.rewritten
    _, found = decide(pair)
    assert (found.verdict, found.replay is None) == ("different", False)
    assert found.replay is not None
    certificate = outputs_certificate(*retrace(pair, found.replay))
    assert len(certificate["steps"]) == 2
    assert verify(json.dumps(certificate), *(tensors(module.state_dict()) for module in (one, two))).facts["apart"] > 0


def test_steps_that_are_not_the_module_are_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """The list is carried out once in float64, and has to end where the replay did."""
    pair, replay, _, _ = evidence("llama")
    monkeypatch.setitem(ATEN, "silu", Entry(lambda b, x: x))
    with pytest.raises(Unsupported, match="another output"):
        retrace(pair, replay)


def test_on_the_command_line(lawful: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for seed, name in enumerate("ab"):
        state = make("gpt", seed).state_dict()
        save_file({key: value.contiguous() for key, value in state.items()}, f"{name}.safetensors")
    files = ("a.safetensors", "b.safetensors")
    options = ("--model", "checkpoints.models:gpt", "--input", "3:int")
    found = lawful("same", *files, *options, "--certificate", "c.json", "--json", code=1).json
    assert (found["verdict"], found["certified"]) == ("different", True)
    assert "Not checked" in lawful("verify", "c.json", *files, "--json").json["statement"]
    lawful("verify", "c.json", *files[::-1], code=1)
    Path("cut.json").write_text(Path("c.json").read_text()[:3000])
    assert "cut.json: not a certificate" in lawful("verify", "cut.json", *files, code=2).stderr
    Path("notes.py").write_text("no weights")
    assert "notes.py: unsupported file type" in lawful("verify", "c.json", "a.safetensors", "notes.py", code=2).stderr
