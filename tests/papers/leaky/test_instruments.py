"""The instruments on other people's networks."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import lawful
from lawful.errors import LawfulError, Unsupported
from lawful.papers.leaky import read_blocks
from reproduction.mechanics import identity_cost, stable_rank


class Residual(nn.Module):
    def __init__(self, width: int, size: float) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.ReLU(), nn.Linear(width, width, bias=False))
        with torch.no_grad():
            self.inner[1].weight.copy_(size * torch.eye(width))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inner(x)


class Projection(nn.Module):
    """Keeps two coordinates: a bottleneck of known dimension."""

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.tensor([1.0, 1.0] + [0.0] * (x.shape[1] - 2), dtype=x.dtype)


def network() -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(3, 6), Residual(6, 0.1), Residual(6, 1.0), Projection(), Residual(6, 0.1), nn.Linear(6, 2)
    ).double()


def test_blocks_are_found_and_measured() -> None:
    torch.manual_seed(0)
    net, x = network(), torch.randn(40, 3, dtype=torch.float64)
    found = read_blocks(net, x)
    assert found.names == ("1", "2", "4")  # a projection adds nothing
    assert found.narrowest.name == "4"
    assert found.narrowest.dimension <= 2 + 1e-6
    with torch.no_grad():
        states = [net[: k + 1](x).T.numpy() for k in range(5)]
    dimensions = [block.dimension for block in found.blocks]
    np.testing.assert_allclose(dimensions, [stable_rank(states[k]) for k in (1, 2, 4)], rtol=1e-6)
    moves = [np.linalg.norm(b - a) / np.linalg.norm(b) for a, b in pairwise(states)]
    np.testing.assert_allclose(found.distances, [moves[k] for k in (0, 1, 3)], rtol=1e-9)
    assert found.suggested_steps.sum() == pytest.approx(1.0)
    assert np.argmax(found.suggested_steps) == np.argmin(found.distances)


def test_named_blocks_tuples_and_convolutions() -> None:
    net = nn.Sequential(nn.Conv2d(1, 3, 3, padding=1), nn.Conv2d(3, 3, 3, padding=1), nn.Flatten())
    found = read_blocks(net, torch.randn(5, 1, 4, 4), blocks=["1"])
    assert found.names == ("1",)
    assert (found.blocks[0].width, found.samples, found.found_by) == (3, 5 * 16, "names")
    with pytest.raises(Unsupported, match="no block"):
        read_blocks(net, torch.randn(5, 1, 4, 4), blocks=["7"])
    with pytest.raises(Unsupported, match="name the blocks"):
        read_blocks(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), torch.randn(5, 3))


def test_reading_leaves_the_network_as_it_was() -> None:
    net = network().train()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    read_blocks(net, torch.randn(10, 3, dtype=torch.float64))
    assert net.training
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())
    assert not any(part._forward_hooks for part in net.modules())


def test_stable_cost_approaches_the_exact_one() -> None:
    net = nn.Sequential(nn.Identity(), Residual(6, 0.5)).double()
    x = torch.rand(4, 6, dtype=torch.float64)
    found = read_blocks(net, x, blocks=["1"], gamma_ratio=1e-12)
    with torch.no_grad():
        exact = identity_cost(net(x).T.numpy()).value
    assert found.blocks[0].coi == pytest.approx(exact, rel=1e-4)


class Stage(nn.Module):
    """A residual block of images that may change its width, as in a ResNet."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.skip = nn.Identity() if inputs == outputs else nn.Conv2d(inputs, outputs, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.second(torch.relu(self.norm(self.first(x)))) + self.skip(x))


def test_images_have_pixels_for_samples_and_stages_of_their_own_width() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), Stage(4, 4), Stage(4, 6), nn.Flatten(), nn.Linear(150, 2))
    images = torch.randn(20, 1, 5, 5)
    found = read_blocks(net, images)
    assert [(block.name, block.width, block.projected) for block in found.blocks] == [("1", 4, False), ("2", 6, True)]
    assert found.samples == 20 * 25
    with torch.no_grad():
        stream = net.eval()[0](images)
        after = stream + net[1].second(torch.relu(net[1].norm(net[1].first(stream))))
    columns = after.double().movedim(1, 0).reshape(4, -1).numpy()
    assert found.blocks[0].dimension == pytest.approx(float(stable_rank(columns)), rel=1e-4)
    assert all(error > 0 for error in found.blocks[0].errors)


def test_tokens_are_samples_and_each_half_of_a_transformer_block_is_one() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True)
    net = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    found = read_blocks(net, torch.randn(6, 5, 8))
    assert [block.width for block in found.blocks] == [8] * 4
    assert found.samples == 30
    assert len(set(found.names)) == 4


def test_both_sides_of_the_stable_norm_agree() -> None:
    """More samples than neurons, or fewer: Woodbury's identity."""
    torch.manual_seed(1)
    net = nn.Sequential(nn.Identity(), Residual(6, 0.5)).double()
    for samples in (4, 40):
        x = torch.randn(samples, 6, dtype=torch.float64)
        block = read_blocks(net, x, gamma_ratio=1e-3).blocks[0]
        with torch.no_grad():
            states = net(x).T.numpy()
        sigma = np.vstack([np.maximum(states, 0), np.ones(samples)])
        kernel = sigma.T @ sigma
        inverse = np.linalg.inv(kernel + 1e-3 * np.linalg.eigvalsh(kernel)[-1] * np.eye(samples))
        assert block.coi == pytest.approx(np.trace(states @ inverse @ states.T), rel=1e-9)
        move = states - x.T.numpy()
        assert block.kinetic == pytest.approx(np.trace(move @ inverse @ move.T), rel=1e-9)
        assert block.hamiltonian == pytest.approx((block.kinetic - block.coi) / 2)


def test_images_keep_the_axes_they_came_in() -> None:
    """From Python no size is asked for: samples of several axes say it themselves."""
    from lawful import bottleneck

    torch.manual_seed(0)
    inner = nn.Sequential(nn.Conv2d(2, 2, 3, padding=1), nn.ReLU())
    module = nn.Sequential(inner, nn.Flatten(), nn.Linear(32, 1))
    found = bottleneck(module, torch.randn(6, 2, 4, 4).numpy(), blocks=["0"])
    assert [block.width for block in found.blocks] == [2]


def test_token_ids_in_python() -> None:
    """Ids are whole numbers to a module that begins with an embedding, which stays in its mode."""

    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.inner, self.norm = nn.Embedding(7, 4), nn.Linear(4, 4), nn.BatchNorm1d(4)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            x = self.table(ids)
            return self.norm((x + torch.relu(self.inner(x))).flatten(0, 1))

    module, ids = Words(), np.random.default_rng(0).integers(7, size=(20, 3))
    found = lawful.bottleneck(module, ids)
    assert [len(found.blocks), found.blocks[0].width] == [1, 4]
    assert module.training
    assert int(module.norm.num_batches_tracked) == 0
    with pytest.raises(LawfulError, match="whole numbers"):
        lawful.bottleneck(module, ids + 0.5)
    with pytest.raises(LawfulError, match="does not run"):
        lawful.bottleneck(module, ids + 7)
