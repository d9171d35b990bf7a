"""Modules with several inputs or outputs, tokens, dropout by function, and too many parameters for elimination."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from lawful import laws
from lawful.conservation import count_laws
from lawful.conservation.certificate import why_uncertified
from lawful.errors import LawfulError


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(3, 4, bias=False), nn.Linear(2, 4, bias=False), nn.Linear(4, 2, bias=False)

    def forward(self, x, y):
        return self.c(torch.relu(self.a(x) + self.b(y)))


class TwoOutputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(3, 4), nn.Linear(4, 2), nn.Linear(4, 1)

    def forward(self, x):
        hidden = torch.relu(self.a(x))
        return {"first": self.b(hidden), "rest": [self.c(hidden), torch.arange(2)]}


class Dropping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x):
        return self.b(nn.functional.dropout(torch.relu(self.a(x)), 0.5, self.training))


def test_several_inputs_are_one_vector():
    """Two matrices side by side: the network of 5 inputs, a law for each hidden neuron (P1 Proposition 4.1)."""
    torch.manual_seed(0)
    count = count_laws(TwoInputs(), input_shape=((3,), (2,)))
    assert (count.laws, count.status) == (count_laws("5-4-2 relu").laws, "proved")


def test_several_outputs_are_one_vector():
    torch.manual_seed(0)
    count = count_laws(TwoOutputs(), input_shape=(3,))
    assert (count.laws, count.status) == (count_laws("3-4-3 relu bias").laws, "proved")


def test_dropout_by_function_is_left_out():
    torch.manual_seed(0)
    assert count_laws(Dropping(), input_shape=(3,)).laws == count_laws("3-4-2 relu bias").laws


@pytest.mark.parametrize("sizes", [((3,), 2), ((3,), (0,)), ((3,), ("2",))])
def test_sizes_of_several_inputs_are_checked(sizes):
    with pytest.raises(LawfulError, match="sizes of several inputs"):
        count_laws(TwoInputs(), input_shape=sizes)
    with pytest.raises(LawfulError, match="for modules"):
        count_laws("3-4-2 relu", input_shape=((3,), (2,)))


def test_a_large_module_has_at_least_the_laws_of_its_graph():
    """Attention of width 40 and a GELU layer: 10,360 parameters; k(k+1) laws of each head's two pairs at k = 20."""
    torch.manual_seed(0)
    module = nn.TransformerEncoderLayer(40, 2, 48, activation="gelu", batch_first=True, bias=False)
    count = count_laws(module, input_shape=(5, 40))
    assert count.status == "at least"
    assert count.parameters > 6000
    assert count.laws >= 2 * 20 * 21
    assert "too many" in count.reason
    assert why_uncertified(count).startswith("not proved, but at least")


def test_command_line(lawful, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "several.py").write_text(
        "import torch\nfrom torch import nn\n\n\nclass Two(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n"
        "        self.a, self.b, self.c = nn.Linear(3, 2), nn.Linear(1, 2, bias=False), nn.Linear(2, 1)\n\n"
        "    def forward(self, x, y):\n        return self.c(torch.relu(self.a(x) + self.b(y)))\n"
    )
    for option in ("--input", "--inputs"):
        found = lawful("laws", "several:Two", option, "3;1", "--json").json
        assert (found["laws"], found["status"]) == (2, "proved")
    assert laws("several:Two", input="3;1").laws == 2
    with pytest.raises(LawfulError, match="sizes of numbers like"):
        laws("several:Two", input="3;1:int")
    assert "sizes of numbers like" in lawful("laws", "several:Two", "--input", "3;1:int", code=2).stderr
    assert "token ids" in lawful("laws", "several:Two", "--input", "3:float", code=2).stderr


@pytest.mark.parametrize("bend", [nn.Tanh, nn.ReLU])
def test_a_layer_that_is_used_twice_is_counted_and_left_alone(bend):
    """functional_call of PyTorch 2.13 leaves the tensors of a call behind in a layer with two names."""
    torch.manual_seed(0)
    layer = nn.Linear(3, 3)
    module = nn.Sequential(layer, bend(), layer, bend(), nn.Linear(3, 2))
    before = [value.detach().clone() for value in module.parameters()]
    count = count_laws(module, input_shape=(3,))
    assert (count.laws, count.status) == (0, "proved")
    assert all(torch.equal(one, two) for one, two in zip(before, module.parameters(), strict=True))
