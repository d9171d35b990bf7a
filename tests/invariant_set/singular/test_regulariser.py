"""The penalty against dense singular values and autodiff; rational approximation; proximal steps; training."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

from lawful.errors import LawfulError, Unsupported
from lawful.invariant_set.singular.laplacian import dag_edge_weights, inverse_root, layered_edge_weights
from lawful.invariant_set.singular.regulariser import (
    Layers,
    Mapped,
    NuclearPenalty,
    edges_of,
    group_penalty,
    l1_penalty,
    l2_penalty,
    nuclear_prox,
)
from lawful.network import Architecture, Mlp
from lawful.pruning.trainer import SingularTrainer


class Skipping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(4, 5), nn.Linear(5, 5), nn.Linear(5, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.first(x))
        return self.last(hidden + torch.relu(self.second(hidden)))


def chain(*widths: int, bias: bool = True, seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    parts: list[nn.Module] = []
    for below, above in pairwise(widths):
        parts += [nn.Linear(below, above, bias=bias), nn.ReLU()]
    return nn.Sequential(*parts[:-1]).double()


def convolutional() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(2 * 16, 3)).double()


MODULES = [
    (chain(4, 6, 2), None, Layers),
    (chain(4, 6, 5, 7, 2), None, Layers),
    (chain(3, 5, 4, 2, bias=False), None, Layers),
    (Skipping().double(), (4,), Mapped),
    (convolutional(), (1, 4, 4), Mapped),
]


def dense_norm(module: nn.Module, shape: tuple[int, ...] | None) -> torch.Tensor:
    """The nuclear norm as printed: singular values of the dense |V|×|E| matrix (oracle)."""
    mapped = Mapped(module, shape)
    flat = torch.cat([p.reshape(-1) for p in mapped.parameters])
    own = torch.as_tensor(mapped.source >= 0)
    theta = torch.where(own, flat[torch.as_tensor(np.maximum(mapped.source, 0))], torch.tensor(mapped.dag.theta))
    return torch.linalg.svdvals(2 * torch.tensor(mapped.dag.hidden_incidence.toarray()) * theta).sum()


@pytest.mark.parametrize(("module", "shape", "kind"), MODULES)
def test_value_and_gradient_against_the_dense_matrix(
    module: nn.Module, shape: tuple[int, ...] | None, kind: type
) -> None:
    expected = dense_norm(module, shape)
    gradients = torch.autograd.grad(expected, list(module.parameters()), allow_unused=True)
    penalty = NuclearPenalty(module, input_shape=shape)
    assert isinstance(penalty.edges, kind)
    value = penalty()
    assert value.item() == pytest.approx(expected.item(), rel=1e-12)
    found = torch.autograd.grad(value, list(module.parameters()))
    for ours, theirs in zip(found, gradients, strict=True):
        assert torch.allclose(ours, torch.zeros_like(ours) if theirs is None else theirs, atol=1e-12)


def test_block_solves_against_the_eigendecomposition() -> None:
    mlp = Architecture.parse("20-30-50-40-30-5 relu bias").initialise(seed=3)
    assert isinstance(mlp, Mlp)
    for floor, tolerance in ((0.0, 1e-8), (1e-2, 1e-8), (1e-2, 1e-3)):
        reference = layered_edge_weights(mlp.weights, mlp.biases, floor=floor, eigen=True)
        found = layered_edge_weights(mlp.weights, mlp.biases, floor=floor, eigen=False, tolerance=tolerance)
        assert found.error <= tolerance
        for ours, theirs in zip(found.weights, reference.weights, strict=True):
            assert np.abs(ours / theirs - 1).max() <= 2 * tolerance + 1e-6 * (floor == 0)
        assert found.norm == pytest.approx(reference.norm, rel=2 * tolerance + 1e-5 * (floor == 0))


def test_layered_and_graph_weights_agree() -> None:
    mlp = Architecture.parse("5-7-6-3 relu bias").initialise(seed=4)
    assert isinstance(mlp, Mlp)
    layered = layered_edge_weights(mlp.weights, mlp.biases)
    flat = np.concatenate([part.ravel() for pair in zip(layered.weights, layered.biases, strict=True) for part in pair])
    assert np.allclose(flat, dag_edge_weights(mlp.to_dag()).values, rtol=1e-10)


@pytest.mark.parametrize("ratio", [1e-2, 1e-6, 1e-10, 1e-14])
def test_the_rational_approximation_keeps_its_word(ratio: float) -> None:
    found = inverse_root(ratio, 1.0, 1e-7)
    points = np.exp(np.random.default_rng(0).uniform(np.log(ratio), 0, 5000))
    values = (found.factors / (points[:, None] + found.shifts)).sum(axis=1)
    assert np.abs(values * np.sqrt(points) - 1).max() <= 1.01 * found.error
    assert found.error <= 1e-7


@pytest.mark.parametrize("widths", [(4, 6, 2), (4, 6, 5, 2)])
def test_no_nan_at_singular_points(widths: tuple[int, ...]) -> None:
    model = chain(*widths)
    with torch.no_grad():
        model[0].weight[2], model[0].bias[2], model[2].weight[:, 2] = 0.0, 0.0, 0.0
    value = NuclearPenalty(model)()
    value.backward()
    assert value.item() == pytest.approx(dense_norm(model, None).item(), rel=1e-10)
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())
    assert not model[0].weight.grad[2].any()  # the subgradient of least norm
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    zero = NuclearPenalty(model)()
    zero.backward()
    assert zero.item() == 0.0


def test_at_a_group_that_holds_together_the_gradient_inside_is_right() -> None:
    model = chain(2, 2, 2, 1, bias=False)
    with torch.no_grad():
        model[0].weight[1], model[2].weight[0, 1], model[2].weight[1, 0], model[4].weight[0, 1] = 0.0, 0.0, 0.0, 0.0
    NuclearPenalty(model)().backward()
    # J has the column (-2w, 2w) there, of norm 2√2|w|
    assert model[2].weight.grad[1, 1].abs().item() == pytest.approx(2 * 2**0.5)


def test_lazy_mode_is_a_majoriser_that_touches() -> None:
    model = chain(4, 6, 5, 2)
    penalty = NuclearPenalty(model, every=1000, floor=0.0)
    first = penalty().item()
    assert first == pytest.approx(dense_norm(model, None).item())
    for seed in range(8):
        torch.manual_seed(seed)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(torch.randn_like(parameter) * 0.5)
        assert penalty().item() >= dense_norm(model, None).item()


def test_adding_to_the_gradient_is_adding_to_the_loss() -> None:
    gradients = []
    for after in (False, True):
        model = chain(4, 6, 5, 2)
        penalty = NuclearPenalty(model)
        loss = model(torch.ones(3, 4, dtype=torch.float64)).square().sum()
        (loss if after else loss + 0.3 * penalty()).backward()
        if after:
            penalty.add_gradient(0.3)
        gradients.append([p.grad for p in model.parameters()])
    assert all(torch.allclose(a, b, rtol=1e-12) for a, b in zip(*gradients, strict=True))


def test_the_other_penalties() -> None:
    model = chain(3, 4, 2)
    edges = edges_of(model)
    flat = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    assert l1_penalty(edges).item() == pytest.approx(flat.abs().sum().item())
    assert l2_penalty(edges).item() == pytest.approx(flat.square().sum().item())
    assert group_penalty(edges).item() == pytest.approx(NuclearPenalty(model)().item())  # shallow: the same
    deep = chain(3, 4, 4, 2)
    assert group_penalty(edges_of(deep)).item() > NuclearPenalty(deep)().item()
    assert group_penalty(Mapped(deep, None)).item() == pytest.approx(group_penalty(edges_of(deep)).item())


# Proximal steps


def prox_oracle(incidence: np.ndarray, target: np.ndarray, strength: float, steps: int = 3000) -> np.ndarray:
    """Accelerated projected ascent on the dual, with dense singular value decompositions."""
    matrix = np.zeros_like(incidence)
    ahead, k = matrix, 1.0
    for _ in range(steps):
        moved = ahead + 2 * incidence * (target - strength * 2 * (incidence * ahead).sum(axis=0)) / (8 * strength)
        left, values, right = np.linalg.svd(moved, full_matrices=False)
        new = (left * np.minimum(values, 1)) @ right
        after = (1 + np.sqrt(1 + 4 * k * k)) / 2
        ahead, matrix, k = new + (k - 1) / after * (new - matrix), new, after
    return target - strength * 2 * (incidence * matrix).sum(axis=0)


@pytest.mark.parametrize(("widths", "strength"), [((3, 5, 2), 0.2), ((3, 4, 4, 2), 0.1), ((3, 4, 4, 2), 0.5)])
def test_proximal_step_against_a_dense_solver(widths: tuple[int, ...], strength: float) -> None:
    edges = edges_of(chain(*widths))
    target = [p.detach().numpy().copy() for p in edges.parameters]
    found = nuclear_prox(edges, target, strength)
    dag = edges.to_dag(target)
    expected = prox_oracle(dag.hidden_incidence.toarray(), dag.theta, strength)
    flat = np.concatenate([value.ravel() for value in found.values])
    assert np.abs(flat - expected).max() <= found.distance + 1e-6
    assert found.distance < 1e-5
    assert ((np.abs(expected) < 1e-7) == (flat == 0)).all()


def test_a_shallow_proximal_step_zeroes_whole_neurons() -> None:
    model = chain(3, 8, 2)
    NuclearPenalty(model).proximal_step(0.3)
    rows = model[0].weight.detach().abs().sum(1) + model[2].weight.detach().abs().sum(0)
    assert 0 < (rows == 0).sum() < 8


def test_shrinking_is_stable_for_any_step() -> None:
    model = chain(3, 8, 8, 2)
    penalty = NuclearPenalty(model, every=2)
    before = [p.detach().clone() for p in model.parameters()]
    for _ in range(50):
        penalty.shrink(100.0)
    for old, new in zip(before, model.parameters(), strict=True):
        assert (new.abs() <= old.abs()).all()


# Training


@pytest.mark.parametrize(
    ("widths", "adam", "proximal"),
    [((4, 12, 1), False, True), ((4, 12, 1), True, False), ((4, 8, 8, 1), False, False), ((4, 8, 8, 1), True, True)],
)
def test_training_disconnects_neurons(widths: tuple[int, ...], adam: bool, proximal: bool) -> None:
    torch.manual_seed(0)
    inputs = torch.randn(128, 4).double()
    targets = inputs[:, :1].relu()
    model = chain(*widths)
    kind = torch.optim.Adam if adam else torch.optim.SGD
    optimiser = kind(model.parameters(), lr=0.01 if adam else 0.1)
    strength = 1.0 if adam and proximal else 0.02
    trainer = SingularTrainer(model, optimiser, nn.MSELoss(), strength=strength, every=10, proximal=proximal)
    losses = trainer.fit([(inputs, targets)], 300)
    assert losses[-1] < 0.25 * losses[0]
    found = trainer.cut(1e-2)
    assert len(found.cut_off) >= sum(widths[1:-1]) // 2
    pruning = trainer.pruned()
    assert pruning.bound == 0.0
    assert pruning.neurons_after <= pruning.neurons_before - len(found.cut_off)


def test_lazy_and_exact_training_end_alike() -> None:
    """The number of neurons that go differs between modes no more than between seeds."""
    counts: dict[int, list[int]] = {1: [], 10: []}
    for every in counts:
        for seed in range(2):
            torch.manual_seed(seed)
            inputs = torch.randn(128, 4).double()
            model = chain(4, 8, 8, 1, seed=seed)
            trainer = SingularTrainer(
                model, torch.optim.SGD(model.parameters(), lr=0.1), nn.MSELoss(), strength=0.02, every=every,
                proximal=False,
            )  # fmt: skip
            trainer.penalty.floor = 1e-2
            trainer.fit([(inputs, inputs[:, :1].relu())], 300)
            counts[every].append(len(trainer.cut(1e-2).cut_off))
    spread = max(max(values) - min(values) for values in counts.values())
    assert abs(np.mean(counts[1]) - np.mean(counts[10])) <= max(spread, 1.0)


def test_misuse_is_refused() -> None:
    with pytest.raises(LawfulError, match="every"):
        NuclearPenalty(chain(2, 3, 1), every=0)
    with pytest.raises(LawfulError, match="strength"):
        SingularTrainer(chain(2, 3, 1), torch.optim.SGD([torch.zeros(1)]), nn.MSELoss(), strength=-1.0)
    with pytest.raises(LawfulError, match="strength"):
        NuclearPenalty(chain(2, 3, 1)).proximal_step(-1.0)

    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(3, 3), nn.Linear(3, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.two(torch.relu(x + torch.relu(self.one(x))))

    penalty = NuclearPenalty(Residual().double(), input_shape=(3,))
    assert (penalty.edges.source < 0).sum() > 0
    assert torch.isfinite(penalty())
    with pytest.raises(Unsupported, match="fixed residual edges"):
        penalty.proximal_step(0.1)


def test_what_looks_like_a_chain_but_is_not() -> None:
    """A layer used twice, and an activation at the end: both differ from the plain chain's graph."""
    torch.manual_seed(0)
    tied = nn.Linear(3, 3)
    for module in (
        nn.Sequential(nn.Linear(2, 3), nn.ReLU(), tied, nn.ReLU(), tied).double(),
        nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2), nn.ReLU()).double(),
    ):
        penalty = NuclearPenalty(module)
        assert isinstance(penalty.edges, Mapped)
        expected = dense_norm(module, None)
        value = penalty()
        assert value.item() == pytest.approx(expected.item())
        pairs = zip(*(torch.autograd.grad(x, list(module.parameters())) for x in (value, expected)), strict=True)
        assert all(torch.allclose(ours, theirs, atol=1e-10) for ours, theirs in pairs)
