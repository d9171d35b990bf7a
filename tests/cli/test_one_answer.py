"""One function, one answer: every verb that reads a network, for one network in many spellings and forms.

The network has a constant neuron and a duplicate one. It is a module in other spellings (`program/spellings.py`), two
ONNX files (PyTorch's two exporters), a state dict beside its module. Answers are compared field by field.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from command_line import in_process
from effort import trials

sys.path.insert(0, str(Path(__file__).parents[1] / "program"))
from spellings import NOTHING, WAYS, Spelled, Written, degenerate

# What names the source or measures time; everything else is an answer.
ABOUT_THE_SOURCE = {
    "reading",
    "readings",
    "network",
    "networks",
    "command",
    "file",
    "a",
    "b",
    "seconds",
    "written",
    "per_second",
}
SPELLINGS = Path(__file__).parents[1] / "program" / "spellings.py"
FACTORIES = """
from spellings import NOTHING, WAYS, Spelled, Written, degenerate

for number, name in enumerate(NOTHING):
    globals()[f"spelled{number}"] = lambda name=name: degenerate(Spelled(name))
for number, way in enumerate(WAYS):
    globals()[f"written{number}"] = lambda way=way: degenerate(Written(way))
"""
VERBS: dict[str, tuple[str, ...]] = {
    "show": ("show", "{}"),
    "program": ("show", "{}", "--program"),
    "audit": ("audit", "{}", "--quick"),
    "laws": ("laws", "{}"),
    "laws near": ("laws", "{}", "--near"),
    "symmetries": ("symmetries", "{}"),
    "components": ("components", "{}"),
    "singular": ("singular", "{}"),
    "prune": ("prune", "{}"),
    "identifiable": ("identifiable", "{}"),
    "fiber": ("fiber", "{}"),
    "regions": ("regions", "{}", "--box=-1,1"),
    "rebalance": ("rebalance", "{}"),
    "canonical": ("canonical", "{}"),
    "same": ("same", "{}", "other.onnx"),
    "distance": ("distance", "{}", "other.onnx", "--box=-1,1", "--within", "0.5"),
    "check": ("check", "{}", "--monotone", "0", "--box=-1,1"),
    "flow": ("flow", "{}", "--data", "data.npz", "--until", "0.05"),
    "truncate": ("truncate", "{}", "--data", "labels.npz"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The network in all its forms; `other.onnx` is another member of its fiber."""
    place = tmp_path_factory.mktemp("forms")
    (place / "spellings.py").write_text(SPELLINGS.read_text())
    (place / "nets.py").write_text(FACTORIES)
    for number, name in enumerate(NOTHING):
        if number in EXPORTED:
            module = degenerate(Spelled(name))
            torch.onnx.export(
                module, (torch.zeros(2, 5),), place / f"script{number}.onnx", dynamo=False,
                input_names=["x"], dynamic_axes={"x": {0: "n"}},
            )  # fmt: skip
            torch.onnx.export(
                module, (torch.zeros(2, 5),), place / f"dynamo{number}.onnx", dynamo=True, verbose=False,
                dynamic_shapes={"x": {0: torch.export.Dim("n")}},
            )  # fmt: skip
    module = degenerate(Written("matmul"))
    safetensors.torch.save_file(module.state_dict(), place / "state.safetensors")
    with torch.no_grad():
        order = torch.tensor([4, 1, 0, 5, 3, 2])
        module.a.weight.copy_(2 * module.a.weight[order])
        module.a.bias.copy_(2 * module.a.bias[order])
        module.b.weight.copy_(module.b.weight[:, order] / 2)
    torch.onnx.export(module, (torch.zeros(2, 5),), place / "other.onnx", dynamo=False)
    rng = np.random.default_rng(0)
    np.savez(place / "data.npz", x=rng.normal(size=(12, 5)), y=rng.normal(size=(12, 3)))
    np.savez(place / "labels.npz", x=rng.normal(size=(12, 5)), y=np.arange(12) % 3)
    return place


EXPORTED = (0, 11, 18)
FORMS = [
    *(f"nets:spelled{number}" for number in range(len(NOTHING))),
    *(f"nets:written{number}" for number in range(len(WAYS))),
    *(f"{exporter}{number}.onnx" for exporter in ("script", "dynamo") for number in EXPORTED),
    "state.safetensors --model nets:spelled0",
]


def chosen(verb: str) -> list[str]:
    """A few forms, others for each verb: every form is read by several. All of them in a full run."""
    number, most = list(VERBS).index(verb), trials(4, len(FORMS))
    step = len(FORMS) // most
    return [FORMS[(number + step * k) % len(FORMS)] for k in range(most)]


def answer(verb: str, form: str, folder: Path) -> Any:
    name, *options = form.split()
    arguments = [part.format(name) for part in VERBS[verb]]
    run = in_process(*arguments, *options, "--input", "5", "--json", cwd=folder)
    said = run.json
    if verb == "program":
        said.pop("notes", None)  # what was assumed of this spelling
    return {"exit": run.returncode, "error": run.stderr if run.returncode == 2 else "", "said": meaning(said)}


def meaning(found: Any) -> Any:
    if isinstance(found, dict):
        return {key: meaning(value) for key, value in found.items() if key not in ABOUT_THE_SOURCE}
    return [meaning(each) for each in found] if isinstance(found, list) else found


def differences(one: Any, other: Any, place: str = "") -> Iterator[str]:
    """Where two answers differ; reals by more than rounding in another order of summation."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in {**one, **other}:
            yield from differences(one.get(key, "missing"), other.get(key, "missing"), f"{place}.{key}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for number, (left, right) in enumerate(zip(one, other, strict=True)):
            yield from differences(left, right, f"{place}[{number}]")
    elif isinstance(one, float) and isinstance(other, float):
        if not math.isclose(one, other, rel_tol=1e-7, abs_tol=1e-12):
            yield f"{place}: {one} and {other}"
    elif one != other:
        yield f"{place}: {str(one)[:100]} and {str(other)[:100]}"


@pytest.mark.parametrize("verb", VERBS)
def test_every_form_has_one_answer(verb: str, folder: Path) -> None:
    first = answer(verb, FORMS[0], folder)
    assert first["exit"] in (0, 1, 3), first
    unlike = [
        f"{form} {line}" for form in chosen(verb) for line in [*differences(first, answer(verb, form, folder))][:5]
    ]
    assert not unlike, "\n".join(unlike)


def test_differences_are_seen() -> None:
    assert list(differences({"a": [1.0, 2]}, {"a": [1.0 + 1e-12, 2]})) == []
    assert list(differences({"a": [1.0, 2]}, {"a": [1.1, 3], "b": 1})) == [
        ".a[0]: 1.0 and 1.1",
        ".a[1]: 2 and 3",
        ".b: missing and 1",
    ]
