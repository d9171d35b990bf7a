"""The core computes what the whole program computes; written-out norms are recognised, others are not."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from program.models import make
from torch import nn

from lawful.network import Architecture, Mlp
from lawful.program.domains.dependence import read_entries
from lawful.program.domains.evaluate import evaluate
from lawful.program.frontends.layers import read_layers
from lawful.program.frontends.torch_export import read_module
from lawful.program.passes.core import lower

TAKEN_APART = {"conv", "normalise", "softmax"}


class Transposed(nn.Module):
    def __init__(self, **settings) -> None:
        super().__init__()
        self.up = nn.ConvTranspose2d(4, 6, (3, 2), **settings)

    def forward(self, x):
        return self.up(x)


@pytest.mark.parametrize("name", ["lenet", "attention"])
def test_the_core_computes_the_same(name: str) -> None:
    module, x = make(name)
    program = read_module(module, [x])
    core = lower(program)
    assert not TAKEN_APART & {node.op for node in core.nodes}
    with torch.no_grad():
        torch.testing.assert_close(evaluate(core, x)[0], evaluate(program, x)[0], rtol=1e-12, atol=1e-13)
    assert lower(core).digest() == core.digest()


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"stride": 2, "padding": 1, "output_padding": 1},
        {"groups": 2, "dilation": (2, 1)},
        {"padding": 2, "stride": 3},
    ],
)
def test_transposed_convolutions_in_the_core(settings: dict) -> None:
    torch.manual_seed(0)
    module, x = Transposed(**settings).double(), torch.randn(2, 4, 5, 4, dtype=torch.float64)
    program = read_module(module, [x])
    for each in (program, lower(program)):
        np.testing.assert_allclose(evaluate(each, x.numpy())[0], module(x).detach().numpy(), atol=1e-12)


class Normalised(nn.Module):
    def __init__(self, way: str) -> None:
        super().__init__()
        self.way = way

    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        centred = x - mean
        variance = centred.pow(2).mean(-1, keepdim=True)
        return {
            "rsqrt": lambda: centred * torch.rsqrt(variance + 2**-10),
            "sqrt": lambda: centred / torch.sqrt(variance + 2**-10),
            "product": lambda: centred / ((centred * centred).sum(-1, keepdim=True) / 4 + 2**-10) ** 0.5,
            "layer norm": lambda: nn.functional.layer_norm(x, (4,), eps=2**-10),
            "root mean square": lambda: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True)),
            "another axis": lambda: centred * torch.rsqrt(centred.pow(2).mean(0, keepdim=True) + 2**-10),
            "wrong count": lambda: centred / (centred.pow(2).sum(-1, keepdim=True) / 3 + 2**-10).sqrt(),
            "another": lambda: x * torch.rsqrt(variance + 2**-10),
        }[self.way]()


def test_norms_however_they_are_written() -> None:
    x = torch.randn(2, 3, 4, dtype=torch.float64)
    texts = {}
    for way in ("rsqrt", "sqrt", "product", "layer norm", "root mean square", "another axis", "wrong count", "another"):
        program = read_module(Normalised(way), [x])
        torch.testing.assert_close(evaluate(program, x)[0], Normalised(way)(x))
        texts[way] = program.text()
    assert texts["rsqrt"] == texts["sqrt"] == texts["product"] == texts["layer norm"]
    assert "centre=False, epsilon=0.0" in texts["root mean square"]
    assert "axes=(0,), centre=False" in texts["another axis"]  # centred along one axis, scaled along another
    assert not any("normalise" in texts[way] for way in ("wrong count", "another"))


@pytest.mark.parametrize("text", ["3-4-2 relu bias", "2-3-3-1 leaky_relu(0.1) bias skip(1,2)", "1-1-1 relu"])
def test_layers_and_graphs_are_programs(text: str) -> None:
    network = Architecture.parse(text).initialise(seed=1)
    x = np.random.default_rng(0).normal(size=(5, network.to_dag().inputs.size))
    for each in (network, network.to_dag()):
        program = read_layers(each, 5)
        np.testing.assert_allclose(evaluate(program, x)[0], each.evaluate(x), atol=1e-14)
        assert all(entries.all() for entries in read_entries(program).values())


def test_a_perceptron_and_its_module_are_one_program() -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    weights = [layer.weight.detach().numpy() for layer in module if isinstance(layer, nn.Linear)]
    biases = [layer.bias.detach().numpy() for layer in module if isinstance(layer, nn.Linear)]
    assert read_layers(Mlp(weights, biases), 2).digest(False) == read_module(module, [(2, 3)]).digest(False)


def test_entries_that_nothing_reads() -> None:
    class Prefix(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.out = nn.Parameter(torch.randn(6, 3)), nn.Linear(3, 4)

        def forward(self, x):
            return self.out(x + self.table[:2])[:, 1:]

    read = read_entries(read_module(Prefix(), [(2, 3)]))
    assert read["table"].tolist() == [[True] * 3] * 2 + [[False] * 3] * 4
    assert read["out.weight"].tolist() == [[False] * 3] + [[True] * 3] * 3
    assert read["out.bias"].tolist() == [False, True, True, True]
