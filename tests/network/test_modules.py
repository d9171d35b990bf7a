"""PyTorch modules and networks compute the same function, both ways, to round-off in float64."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
from network_instances import all_networks

from lawful.errors import InvalidNetwork, LawfulError, Unsupported
from lawful.network import Dag, Mlp
from lawful.sources.modules.convert import DagModule, from_module, to_module

NETWORKS = all_networks()


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.inner, self.last = nn.Linear(4, 6), nn.Linear(6, 6, bias=False), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = F.relu(self.first(x))
        h = h + F.leaky_relu(self.inner(h), 0.2)
        return self.last(h)


class Views(nn.Module):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.conv, self.last = how, nn.Conv2d(2, 3, 3), nn.Linear(27, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.conv(x))
        if self.how == "size":
            x = x.view(x.size(0), -1)
        elif self.how == "shape":
            x = x.reshape(x.shape[0], x.shape[1] * 9)
        elif self.how == "minus one":
            x = x.view(-1, 27)
        elif self.how == "permuted":
            x = x.permute(0, 2, 3, 1).flatten(1)
        else:
            x = torch.flatten(x, start_dim=1)
        return self.last(x)


class ResNet(nn.Module):
    """A convolutional network with everything: strides, normalisation, two kinds of skip, pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(1, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)
        self.one, self.norm1 = nn.Conv2d(4, 4, 3, padding="same", groups=2), nn.BatchNorm2d(4)
        self.two, self.short = nn.Conv2d(4, 6, 3, stride=2, padding=1), nn.Conv2d(4, 6, 1, stride=2, bias=False)
        self.pool, self.drop, self.head = nn.AdaptiveAvgPool2d(1), nn.Dropout(0.3), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.norm(self.stem(x)), inplace=True)
        x = F.relu(self.norm1(self.one(x)) + x)
        x = F.relu(self.two(x) + self.short(x))
        return self.head(self.drop(self.pool(x)).flatten(1))


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.register_buffer("shift", torch.randn(3))
        self.factor = nn.Parameter(torch.randn(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.relu(self.layer(x)) * self.factor - self.shift
        h += x
        return -torch.relu(2 * h) / 3 + 1 - F.linear(h, self.layer.weight)


class Asks(nn.Module):
    """Asks for the length of its input, which only `torch.export` can answer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.last = nn.Conv1d(2, 3, 2), nn.BatchNorm1d(3), nn.Linear(12, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if len(x) > 0:
            x = F.relu(self.norm(self.conv(x)))
        return self.last(F.dropout(x, training=self.training).view(x.size(0), -1) + 0.5)


class Overwrites(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * 1.0
        return F.relu(y, inplace=True) + y


class Pieces(nn.Module):
    """Everything else that is piecewise linear, and every way to regroup."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 6), nn.Linear(12, 3)
        self.token = nn.Parameter(torch.randn(1, 1, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu6(self.first(x)) - F.hardtanh(x, -0.5, 0.25) + torch.clamp(x, max=0.3) + F.hardsigmoid(x) + x.abs()
        a, b = x.view(-1, 2, 3).unbind(1)
        c = torch.maximum(a, b) - torch.minimum(a, torch.zeros(3, dtype=x.dtype)) + a.flip(1).roll(1, 1)
        x = torch.stack([a, b, c], 1)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1)
        x[:, 1, 0] = 0.5
        return self.last(F.pad(x, (0, 1, -1, 1), value=0.1)[:, :, 1:].transpose(1, 2).flatten(1))


MODULES: dict[str, tuple[nn.Module, tuple[int, ...] | None]] = {
    "mlp": (nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), None),
    "no activation": (nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)), None),
    "nested": (nn.Sequential(nn.Flatten(), nn.Sequential(nn.Linear(6, 4), nn.LeakyReLU(0.3)), nn.Linear(4, 2)), (2, 3)),
    "ends in relu": (nn.Sequential(nn.Linear(3, 4), nn.ReLU()), None),
    "normalised": (
        nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Dropout(), nn.Linear(5, 2)),
        None,
    ),
    "normalised between": (nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.BatchNorm1d(5), nn.Linear(5, 2)), None),
    "prelu": (nn.Sequential(nn.Linear(3, 4), nn.PReLU(4, 0.3), nn.Linear(4, 4), nn.PReLU(), nn.Linear(4, 1)), None),
    "residual": (Residual(), None),
    "resnet": (ResNet(), (1, 8, 6)),
    "scaled": (Scaled(), None),
    "exported": (Asks(), (2, 5)),
    "last axis": (nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2)), (2, 3)),
    "conv2d": (
        nn.Sequential(nn.Conv2d(4, 6, (3, 2), (2, 1), (1, 2), (1, 2), groups=2), nn.ReLU(), nn.Flatten()),
        (4, 7, 6),
    ),
    "conv1d": (nn.Sequential(nn.Conv1d(2, 4, 3, groups=2, dilation=2, padding="same"), nn.LeakyReLU()), (2, 9)),
    "conv conv": (nn.Sequential(nn.Conv1d(2, 3, 3), nn.Conv1d(3, 2, 2)), (2, 9)),
    "pool": (nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(2, 2, 2), nn.ReLU()), (1, 10, 8)),
    "pool padded": (nn.Sequential(nn.AvgPool2d(3, 2, 1, ceil_mode=True), nn.Flatten(), nn.Linear(40, 2)), (2, 8, 7)),
    "pool counted": (nn.Sequential(nn.AvgPool1d(4, 3, 2, True, False), nn.Flatten(), nn.Linear(12, 2)), (3, 9)),
    "pool divisor": (nn.Sequential(nn.AvgPool2d(2, divisor_override=3), nn.Flatten(), nn.Linear(4, 2)), (1, 4, 4)),
    "adaptive": (nn.Sequential(nn.Conv2d(1, 2, 2), nn.ReLU(), nn.AdaptiveAvgPool2d((3, None)), nn.ReLU()), (1, 8, 5)),
    "max pool": (
        nn.Sequential(nn.Conv2d(1, 2, 3), nn.MaxPool2d(3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(18, 2)),
        (1, 8, 7),
    ),
    "max pool ceil": (nn.Sequential(nn.Conv1d(1, 2, 2), nn.ReLU(), nn.MaxPool1d(2, ceil_mode=True)), (1, 6)),
    "reflecting": (nn.Sequential(nn.Conv2d(1, 2, 3, padding=1, padding_mode="reflect"), nn.ReLU()), (1, 4, 4)),
    "conv3d": (nn.Sequential(nn.Conv3d(1, 2, 2), nn.ReLU(), nn.AdaptiveAvgPool3d(1), nn.Flatten()), (1, 3, 3, 3)),
    "pieces": (Pieces(), None),
    **{f"view by {how}": (Views(how), (2, 5, 5)) for how in ("size", "shape", "minus one", "permuted", "flatten")},
}


def shake(module: nn.Module) -> None:
    """Statistics and scales that are not the defaults."""
    for part in module.modules():
        if isinstance(part, (nn.BatchNorm1d, nn.BatchNorm2d)):
            nn.init.normal_(part.running_mean)
            nn.init.uniform_(part.running_var, 0.5, 2.0)
            nn.init.normal_(part.weight)
            nn.init.normal_(part.bias)


@pytest.mark.parametrize("name", MODULES)
def test_modules_become_the_same_function(name: str) -> None:
    torch.manual_seed(1)
    module, shape = MODULES[name]
    shake(module)
    module.train()
    network = from_module(module, shape, drop_useless=name == "pieces")
    assert module.training  # nothing was changed
    inputs = len(network.to_dag().inputs)
    batch = torch.randn(32, *(shape or (inputs,)), dtype=torch.float64)
    expected = module.eval().double()(batch).detach().numpy().reshape(32, -1)
    found = network.evaluate(batch.numpy().reshape(32, -1))
    assert np.abs(found - expected).max() <= 1e-13 * max(1.0, np.abs(expected).max())


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_become_modules_and_return(name: str) -> None:
    network = NETWORKS[name]
    module = to_module(network)
    batch = np.random.default_rng(0).normal(size=(32, len(network.to_dag().inputs)))
    assert np.abs(module(torch.tensor(batch)).detach().numpy() - network.evaluate(batch)).max() < 1e-13
    again = from_module(module)
    assert type(again) is type(network)
    assert (again.theta == network.theta).all()
    assert (again.to_dag().slopes == network.to_dag().slopes).all()


def test_a_graph_module_can_be_trained() -> None:
    module = to_module(NETWORKS["sparse"])
    assert isinstance(module, DagModule)
    module(torch.ones(2, 5, dtype=torch.float64)).sum().backward()
    assert module.weight.grad is not None
    assert bool((module.weight.grad != 0).any())


def test_structure_is_what_the_layers_say() -> None:
    assert isinstance(from_module(MODULES["mlp"][0]), Mlp)
    two = from_module(MODULES["no activation"][0])  # a linear layer stays between two Linear layers
    assert isinstance(two, Mlp)
    assert (two.widths, two.slopes) == ((3, 4, 2), (1.0,))
    layer = nn.Linear(3, 2, bias=False)
    nn.init.zeros_(layer.weight)
    assert from_module(nn.Sequential(layer, nn.ReLU(), nn.Linear(2, 1))).to_dag().parameters == 6 + 3  # zeros are edges
    conv = from_module(nn.Sequential(nn.Conv1d(1, 1, 3, bias=False), nn.ReLU()), (1, 6))
    assert isinstance(conv, Dag)
    assert (len(conv.hidden), conv.parameters) == (4, 4 * 3 + 4)  # sparse: three weights per place
    residual = from_module(Residual())
    assert isinstance(residual, Dag)
    assert (residual.slopes[residual.hidden] == [0.0] * 6 + [0.2] * 6 + [1.0] * 6).all()


def test_a_sum_that_meets_two_weights_gets_its_linear_nodes_once() -> None:
    class Fork(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left, self.right = nn.Linear(2, 3), nn.Linear(2, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = torch.relu(x).view(x.size(0), 2, 2).mean(2)
            return torch.relu(self.left(x)) + self.right(x)

    network = from_module(Fork(), (4,)).to_dag()
    assert sorted(network.slopes[network.hidden]) == [0.0] * 7 + [1.0] * 2


class Swapped(nn.Module):
    """As many samples as entries: only their labels tell that they were swapped."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.t()


REFUSED: dict[str, tuple[nn.Module, tuple[int, ...] | None, str]] = {
    "sigmoid": (
        nn.Sequential(nn.Linear(3, 4), nn.Sigmoid(), nn.Linear(4, 2)),
        None,
        r"layer '1' \(Sigmoid\).*Linear, Conv",
    ),
    "layer norm": (nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4)), None, r"LayerNorm"),
    "no size": (nn.Sequential(nn.Conv2d(1, 1, 2), nn.ReLU()), None, "input size is unknown"),
    "wrong size": (nn.Sequential(nn.Linear(3, 4), nn.ReLU()), (5,), r"cannot read Sequential .*\[2, 5\] X \[3, 4\]"),
    "wrong channels": (nn.Sequential(nn.Conv2d(3, 4, 2)), (2, 6, 6), r"to have 3 channels"),
    "too small": (nn.Sequential(nn.Conv2d(1, 4, 7)), (1, 6, 6), r"Kernel size: \(7 x 7\)"),
    "batch statistics": (
        nn.Sequential(nn.BatchNorm1d(3, track_running_stats=False), nn.Linear(3, 1)),
        None,
        r"BatchNorm1d.*BatchNorm in eval mode",
    ),
    "flattens the batch": (nn.Sequential(nn.Flatten(0), nn.Linear(3, 1)), (3,), "cannot read Sequential"),
    "swaps the batch": (Swapped(), (2,), "mixes the samples|batch"),
    "not finite": (
        nn.Sequential(nn.Linear(2, 2)),
        None,
        r"layer '0' \(Linear\), linear: 0\.weight\[1, 0\] is not finite",
    ),
    "too large": (nn.Sequential(nn.Conv2d(1, 256, 9, padding=4)), (1, 100, 100), "edges are more than"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_layers_are_refused_by_name(name: str) -> None:
    module, shape, words = REFUSED[name]
    if name == "not finite":
        with torch.no_grad():
            module[0].weight[1, 0] = float("nan")  # type: ignore[index]
    with pytest.raises(LawfulError, match=words) as caught:
        from_module(module, shape)
    assert "\n" not in str(caught.value)


class Product(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * x


class Pair(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x, x


class TwoInputs(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y


class Remembers(nn.Module):
    """Does something else each time: tracing sees one of them."""

    calls: ClassVar[list[int]] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.append(1)
        return x * float(len(self.calls))


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (Product(), "multiplies two"),
        (Pair(), "one tensor"),
        (TwoInputs(), "missing a required argument"),
        (Remembers(), "gave another function"),
    ],
)
def test_modules_that_are_no_network_are_refused(module: nn.Module, words: str) -> None:
    with pytest.raises(Unsupported, match=words):
        from_module(module, (3,))


def test_hooks_and_changes_in_place_are_read_as_they_are() -> None:
    hooked = nn.Sequential(nn.Linear(3, 2))
    hooked[0].register_forward_hook(lambda layer, inputs, output: 2 * output)
    for module in (hooked, Overwrites()):
        batch = torch.randn(5, 3, dtype=torch.float64)
        network = from_module(module, (3,))
        expected = module.double()(batch.clone()).detach().numpy()
        assert np.abs(network.evaluate(batch.numpy()) - expected).max() < 1e-12


def test_places_that_pooling_skips_are_refused_or_dropped() -> None:
    module = nn.Sequential(nn.Conv2d(1, 1, 2), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(1, 1))
    with pytest.raises(InvalidNetwork, match="5 hidden nodes are on no path"):
        from_module(module, (1, 4, 4))
    assert len(from_module(module, (1, 4, 4), drop_useless=True).to_dag().hidden) == 4 + 1


def test_a_dead_branch_is_left_out_and_said() -> None:
    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused, self.last = nn.Linear(3, 2), nn.Linear(3, 2), nn.Linear(2, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            F.relu(self.unused(x))
            return self.last(F.relu(self.used(x)))

    found = from_module(Half())
    assert isinstance(found, Mlp)
    assert found.reading is not None
    assert found.reading.ignored == ("unused.weight (not used)", "unused.bias (not used)")
