"""`lawful.same` and `lawful.diff` in Python answer what the command line answers, for every kind of network."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from command_line import Run
from torch import nn

import lawful as package
from lawful.api.checkpoints.diff import Diff
from lawful.checkpoints.compare.decide import CheckpointVerdict
from lawful.checkpoints.relations.kinship import Kinship
from lawful.errors import LawfulError

FACTORY = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(6), nn.Linear(6, 20), nn.Linear(20, 6)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))

def make():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), Block(), nn.Linear(6, 3))
"""


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[nn.Module, Path, Path, Path]:
    """A module with a norm and GELU, its checkpoint, a permuted copy, and one with another weight."""
    (tmp_path / "gelu_block.py").write_text(FACTORY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    from gelu_block import make  # type: ignore[import-not-found]  # written above

    module = make()
    state = module.state_dict()
    order = torch.randperm(20)
    copy = state | {"1.up.weight": state["1.up.weight"][order], "1.up.bias": state["1.up.bias"][order]}
    copy["1.down.weight"] = state["1.down.weight"][:, order]
    other = {**copy, "2.bias": copy["2.bias"] + 0.25}
    paths = tmp_path / "a.pt", tmp_path / "copy.pt", tmp_path / "other.pt"
    for weights, path in zip((state, copy, other), paths, strict=True):
        torch.save(weights, path)
    return module, *paths


def test_modules_are_compared_from_python(
    files: tuple[nn.Module, Path, Path, Path], lawful: Callable[..., Run]
) -> None:
    module, first, copy, other = files
    read = {"model": "gelu_block:make", "input": (4,)}
    for second, verdict, relation in ((copy, "equal", "copy"), (other, "different", "child")):
        found = package.same(first, second, **read)
        assert isinstance(found, CheckpointVerdict)
        assert found.verdict == verdict
        asked = ("same", first, second, "--model", "gelu_block:make", "--input", 4, "--json")
        shown = json.loads(lawful(*asked, code=int(verdict != "equal")).stdout)
        told = found.to_dict()
        assert {key: told[key] for key in ("verdict", "within", "reason", "tensors")} == {
            key: shown[key] for key in ("verdict", "within", "reason", "tensors")
        }
        assert [each["source"] for each in told["readings"]] == [str(first), str(second)]
        kin = package.diff(first, second, **read)
        assert isinstance(kin, Kinship)
        assert kin.relation == relation
        assert repr(kin) == f"<Kinship: {kin.word.upper()}>"
    loaded = nn.Sequential(*module)
    assert package.same(module, loaded, input=(4,)).verdict == "equal"


def test_layers_stay_functions() -> None:
    """Modules that are graphs of scalar weights are decided as functions, and `diff` speaks of their balances."""
    module = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))
    found = package.same(module, module, box="0:1,-1:1,2:3")
    assert (found.verdict, str(found.domain)) == ("equal", "box in R^3")  # type: ignore[union-attr]
    assert isinstance(package.diff(module, module), Diff)


def test_two_modules_that_take_other_inputs_are_refused() -> None:
    one = nn.Sequential(nn.Linear(3, 5), nn.GELU(), nn.LayerNorm(5), nn.Linear(5, 2))
    two = nn.Sequential(nn.Linear(4, 5), nn.GELU(), nn.LayerNorm(5), nn.Linear(5, 2))
    with pytest.raises(LawfulError):
        package.diff(one, two, input=(3,))


@pytest.mark.parametrize("activation", [nn.ReLU, nn.Tanh])
def test_a_module_given_as_model_keeps_its_weights(activation: type[nn.Module]) -> None:
    """The module that says how to read a state dict may itself be one of the two that are compared."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 4), activation(), nn.Linear(4, 2)).train()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    stranger = {name: torch.randn(tensor.shape, dtype=torch.float64) for name, tensor in before.items()}
    assert package.same(module, stranger, model=module, input=(3,)).verdict == "different"
    assert package.same(stranger, module, model=module, input=(3,)).verdict == "different"
    assert module.training
    assert all(torch.equal(before[name], tensor) for name, tensor in module.state_dict().items())
    assert {tensor.dtype for tensor in module.parameters()} == {torch.float32}


def test_exact_answers_say_where_weights_were_computed_by_reading() -> None:
    """Batch normalisation is folded in floating point: what is exact is exact about the folded weights."""
    torch.manual_seed(0)
    normed = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Linear(3, 1)).eval()
    plain = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    assert any("weights that reading computes" in each for each in package.same(normed, normed).reading.assumed)
    assert package.same(plain, plain).reading.assumed == ()
    assert package.open(normed).reading.assumed == ()
