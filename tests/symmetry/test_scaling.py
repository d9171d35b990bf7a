"""The scaling graph: balances that hold in training of the real module, where unrolled graphs were wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from effort import trials
from models import Function, plain, residual
from test_random_modules import random_module
from torch import nn
from torch.nn import functional

from lawful import Architecture, Unsupported
from lawful.invariant_set import EntryGraph, components, entry_graph
from lawful.invariant_set.balance import balance
from lawful.sources.modules.convert import to_module
from lawful.symmetry import symmetries
from lawful.symmetry.scaling import scaling_graph


def trained(module: nn.Module, x: torch.Tensor, y: torch.Tensor, steps: int, rate: float) -> list[dict[str, Any]]:
    """Parameters along plain gradient descent."""
    found = []
    for _ in range(steps):
        loss = ((module(x) - y) ** 2).mean()
        module.zero_grad()
        loss.backward()
        with torch.no_grad():
            for tensor in module.parameters():
                if tensor.grad is not None:
                    tensor -= rate * tensor.grad
        found.append({name: tensor.detach().clone() for name, tensor in module.named_parameters()})
    return found


@pytest.mark.parametrize("text", ["3-4-2 relu", "3-4-4-2 relu bias", "4-3-5-1 leaky_relu(0.1) bias", "6-5-6 linear"])
def test_of_a_layered_network_it_is_the_network_itself(text: str) -> None:
    network = Architecture.parse(text).initialise(seed=1)
    module = to_module(network)
    graph = scaling_graph(network)
    assert graph.is_graph
    found = graph.balance(dict(module.named_parameters()))
    np.testing.assert_allclose(sorted(found), sorted(balance(network)), atol=1e-12)
    inside = network.to_dag()
    assert len(graph.owners) == int(((inside.roles[inside.tails] == 1) | (inside.roles[inside.heads] == 1)).sum())


def test_a_shared_kernel_has_one_balance_and_its_readers_cross_zero() -> None:
    """Conv1d(1,1,1)-ReLU-Flatten-Linear(2,1), f = 1, w = (2, −2): unrolled, w₂ would be locked above 1.732."""
    module = nn.Sequential(
        nn.Conv1d(1, 1, 1, bias=False), nn.ReLU(), nn.Flatten(), nn.Linear(2, 1, bias=False)
    ).double()
    with torch.no_grad():
        module[0].weight.fill_(1.0)
        module[3].weight.copy_(torch.tensor([[2.0, -2.0]]))
    graph = scaling_graph(module, (1, 2))
    assert len(graph.nodes) == 1
    start = graph.balance(dict(module.named_parameters()))
    assert start == pytest.approx([1 - 8])
    x = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]], dtype=torch.float64)
    path = trained(module, x, torch.tensor([[2.0], [1.0]], dtype=torch.float64), 4000, 1e-3)
    assert min(float(point["3.weight"][0, 1]) for point in path) < -1.9
    assert float(path[-1]["3.weight"][0, 1]) > 0
    assert graph.balance(path[-1]) == pytest.approx(start, abs=0.02)


def test_a_residual_stream_is_one_node_for_each_channel() -> None:
    torch.manual_seed(0)
    module = residual().double()
    graph = scaling_graph(module, (3,))
    assert graph.is_graph
    assert len(graph.nodes) == 3 + 4
    start = graph.balance(dict(module.named_parameters()))
    x, y = torch.randn(16, 3, dtype=torch.float64), torch.randn(16, 2, dtype=torch.float64)
    path = trained(module, x, y, 500, 1e-3)
    np.testing.assert_allclose(graph.balance(path[-1]), start, atol=2e-3)
    cyclic = set(zip(graph.tails.tolist(), graph.heads.tolist(), strict=True))
    assert any((b, a) in cyclic for a, b in cyclic if a >= 0 and b >= 0)  # stream to hidden and back


def test_frozen_layers_have_no_edges_and_free_no_node() -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2))
    module[0].requires_grad_(False)
    graph = scaling_graph(module, (3,))
    assert len(graph.nodes) == 5
    assert {graph.parameters[owner] for owner in graph.owners} == {"2.weight", "2.bias", "4.weight"}


def test_tied_weights_take_part_once() -> None:
    module = nn.Sequential(plain(3, 3), nn.ReLU(), plain(3, 3), nn.ReLU(), plain(3, 3))
    module[4].weight = module[2].weight
    assert scaling_graph(module, (3,)).nodes == ()


def test_degrees_and_junctions_are_not_called_graphs() -> None:
    squared = Function(lambda s, x: s.b(functional.relu(s.a(x)) ** 2), a=plain(3, 4), b=plain(4, 2))
    gated = Function(lambda s, x: s.c(functional.relu(s.a(x)) * s.b(x)), a=plain(3, 4), b=plain(3, 4), c=plain(4, 2))
    for module, nodes in ((squared, 4), (gated, 8)):
        graph = scaling_graph(module, (3,))
        assert len(graph.nodes) == nodes
        assert not graph.is_graph
        with pytest.raises(Unsupported, match="no graph"):
            _ = graph.tails


def test_balances_are_laws() -> None:
    """Every balance is a combination of the structural laws' gradients."""
    torch.manual_seed(0)
    module = residual().double()
    graph, found = scaling_graph(module, (3,)), symmetries(module, (3,))
    theta = {name: tensor.detach().double() for name, tensor in module.named_parameters()}
    rows = np.zeros((len(graph.nodes), sum(tensor.numel() for tensor in theta.values())))
    starts = np.cumsum([0, *(theta[name].numel() for name in found.shapes)])
    offset = dict(zip(found.shapes, starts.tolist(), strict=False))
    places = np.array([offset[graph.parameters[owner]] for owner in graph.owners]) + graph.positions
    rows[:, places] = (graph.incidence * (2 * graph.edge_values(theta))).toarray()
    laws = found.laws.gradients(theta)
    assert np.linalg.matrix_rank(np.concatenate([laws, rows])) == np.linalg.matrix_rank(laws) == 7


def test_scales_about_a_centre_are_left_out() -> None:
    """y(1 + g): the balance would be of (1 + g)²."""
    module = Function(lambda s, x: s.o(functional.relu(s.a(x)) * (1 + s.g)), a=plain(3, 4), g=(4,), o=plain(4, 2))
    assert len(symmetries(module, (3,)).laws) == 8
    graph = scaling_graph(module, (3,))
    assert all(graph.parameters[owner] != "g" for owner in graph.owners)


def test_locks_of_random_modules_survive_training() -> None:
    """Stacks of embeddings, norms, gated units and heads, heavy somewhere: no locked weight comes below its barrier."""
    stated = 0
    for seed in range(trials(12, 30)):
        module, given = random_module(seed)
        module = module.double()
        torch.manual_seed(seed)
        trainable = [tensor for tensor in module.parameters() if tensor.requires_grad]
        with torch.no_grad():
            for tensor in trainable:
                tensor *= 0.2 + 3 * float(torch.rand(()))
        found = components(entry_graph(module, given))
        if not found.locked:
            continue
        x = torch.randint(4, (8, 3)) if isinstance(given, str) else torch.randn(8, *given, dtype=torch.float64)
        y = 5 * torch.randn_like(module(x))
        graph = found.dag
        assert isinstance(graph, EntryGraph)
        least = np.full(len(found.locked), np.inf)
        for _ in range(60):
            slopes = torch.autograd.grad(((module(x) - y) ** 2).mean(), trainable, allow_unused=True)
            steepest = max(float(slope.abs().max()) for slope in slopes if slope is not None)
            with torch.no_grad():
                for tensor, slope in zip(trainable, slopes, strict=True):
                    if slope is not None:
                        tensor -= min(1e-3, 4e-3 / max(steepest, 1e-9)) * slope
            values = graph.scaling.edge_values(dict(module.named_parameters()))
            least = np.minimum(least, [lock.sign * values[lock.edge] for lock in found.locked])
        assert (least > [0.95 * lock.barrier for lock in found.locked]).all(), seed
        stated += len(found.locked)
    assert stated > 3
