"""Modules counted in float64: oracles, agreement with the exact count, and refusals."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

from lawful import InvalidNetwork, LawfulError, Unsupported
from lawful.conservation import GradientFlow, HeavyBall, Metric, count_laws
from lawful.conservation.closure.float_rank import rank_with_gap
from lawful.conservation.fields.normalisations import composite
from lawful.conservation.law_count import LawQuestion
from lawful.conservation.module_count import count_module, module_laws
from reproduction.claims.example_modules import EXAMPLES, Attention

PLAIN = GradientFlow()


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("name", ["two convolutions", "attention, inner width 2", "layer norm", "tanh"])
def test_modules_with_known_numbers_of_laws(name: str) -> None:
    """The claim `p1-modules` counts the others too."""
    make, shape, laws = EXAMPLES[name]
    count = count_laws(make(), input_shape=shape)
    assert (count.laws, count.status) == (laws, "proved")
    assert count.arithmetic in ("balls", "exact")
    assert count.independent == laws
    assert count.gap is not None
    assert count.gap > 1e6


@pytest.mark.parametrize("layers", [(3, 4, 2), (4, 3, 3, 2)])
@pytest.mark.parametrize("activation", [nn.ReLU, nn.Identity])
def test_float64_agrees_with_the_exact_count(layers: tuple[int, ...], activation: type[nn.Module]) -> None:
    parts: list[nn.Module] = []
    for below, above in pairwise(layers):
        parts += [nn.Linear(below, above), activation()]
    module = nn.Sequential(*parts[:-1])
    exact, numeric = count_laws(module), count_module(module, LawQuestion(PLAIN, input_shape=(layers[0],)))
    assert exact.proof is None
    assert numeric.proof is not None
    assert exact.laws == numeric.laws == numeric.independent


def test_momentum_keeps_fewer_laws() -> None:
    module = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    assert count_module(module, LawQuestion(HeavyBall(), input_shape=(2,))).laws == 1


def test_multihead_attention_has_the_laws_of_its_heads() -> None:
    """Per head k(k+1)/2 for queries and keys, as many for values and outputs; a softmax never sees the key bias."""

    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(4, 2, batch_first=True)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.attention(tokens, tokens, tokens, need_weights=False)[0]
            return found

    count = count_laws(Wrapped(), input_shape=(3, 4))
    assert count.laws == 2 * (3 + 3) + 4 == count.independent
    assert any("never move" in line for line in count.words)


def test_frozen_parameters_and_buffers_do_not_move() -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    module[0].weight.requires_grad = False
    count = count_laws(module, input_shape=(3,))
    assert (count.parameters, count.laws) == (14, 0)
    assert "batch norm" in EXAMPLES  # its running statistics are buffers: 8 laws, not counted as parameters


def test_tied_weights_are_one_parameter() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.shared, self.last = nn.Linear(3, 3, bias=False), nn.Linear(3, 2, bias=False)

        def forward(self, batch: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.last(self.shared(self.shared(batch)))
            return found

    count = count_laws(Tied(), input_shape=(3,))
    assert (count.parameters, count.dag) == (15, None)
    assert count.laws < count_laws("3-3-3-2 linear").laws


def test_cross_entropy_data_and_metric_reach_modules() -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Conv1d(1, 1, 1))
    assert count_laws(Attention(3, 2), input_shape=(4, 3), loss="cross-entropy", classes_axis=2).laws > 6
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    few = count_laws(module, level="data", data=np.random.default_rng(0).normal(size=(2, 3)))
    assert few.laws > 0 == count_laws(module, level="near", input_shape=(3,)).laws
    block = Metric(blocks=((np.arange(2), np.array([[2.0, 0.5], [0.5, 1.0]])),))
    assert (
        count_module(
            nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1)), LawQuestion(block, input_shape=(2,))
        ).laws
        <= 2
    )
    assert (
        count_module(
            nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1)),
            LawQuestion(Metric(np.ones(9)), input_shape=(2,)),
        ).laws
        == 2
    )


class Broken(nn.Module):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.layer = how, nn.Linear(2, 2)

    def forward(self, batch: torch.Tensor) -> object:
        value = self.layer(batch)
        match self.how:
            case "random":
                return value[:, torch.randperm(2)]
            case "argmax":
                return value.argmax(-1)
            case "detached":
                return value.detach()
            case "infinite":
                return value / 0.0
            case "raises":
                raise ValueError("first line\nsecond line")
        return torch.sign(value)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("random", "draws from randperm"), ("argmax", "cannot be differentiated"),
        ("detached", "cannot be differentiated"), ("infinite", "not finite"), ("raises", "first line$"),
    ],
)  # fmt: skip
def test_modules_that_cannot_be_counted(how: str, words: str) -> None:
    with pytest.raises(Unsupported, match=words):
        count_module(Broken(how), LawQuestion(PLAIN, input_shape=(2,)))


def test_modules_without_parameters_or_input_size() -> None:
    with pytest.raises(InvalidNetwork, match="no trainable parameters"):
        count_laws(nn.ReLU(), input_shape=(2,))
    with pytest.raises(LawfulError, match="--input"):
        count_laws(nn.Sequential(nn.Conv1d(1, 1, 2)))
    with pytest.raises(Unsupported, match="input of size"):
        count_module(nn.Linear(3, 2), LawQuestion(PLAIN, input_shape=(5,)))


def test_a_step_function_conserves_everything() -> None:
    count = count_module(Broken("sign"), LawQuestion(PLAIN, input_shape=(2,)))
    assert count.laws == count.parameters == 6


def test_a_small_gap_is_undecided() -> None:
    """Tanh fed with almost nothing is almost linear: the singular values have no clear end."""

    class Nearly(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(3, 3, bias=False), nn.Linear(3, 2, bias=False)

        def forward(self, batch: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.last(torch.tanh(3e-5 * self.first(batch)) / 3e-5)
            return found

    count = count_module(Nearly(), LawQuestion(PLAIN, input_shape=(3,)))
    assert count.status == "undecided"
    assert "gap" in count.reason or "disagree" in count.reason


def test_rank_with_gap() -> None:
    rng = np.random.default_rng(0)
    low = rng.normal(size=(30, 5)) @ rng.normal(size=(5, 20))
    found = rank_with_gap(low)
    assert (found.rank, len(found.basis)) == (5, 5)
    assert found.gap > 1e10
    assert rank_with_gap(np.zeros((3, 4))).rank == 0
    assert rank_with_gap(rng.normal(size=(9, 4))).rank == 4
    assert rank_with_gap(rng.normal(size=(3, 8))).rank == 3
    assert rank_with_gap(np.diag([1.0, 0.5, 1e-9, 3e-10, 1e-10])).gap == 1.0  # neither large nor rounding


def test_the_known_laws_of_a_module_stay_constant_in_training() -> None:
    """Small steps of gradient descent: the values move by the square of the step, the weights by the step."""
    module = Attention(3, 2).double()
    laws = module_laws(module, (4, 3))
    assert len(laws) == 6
    generator = torch.Generator().manual_seed(0)
    tokens, target = torch.randn((2, 5, 4, 3), generator=generator, dtype=torch.float64)

    def flat() -> np.ndarray:
        return torch.cat([value.detach().flatten() for value in module.parameters()]).numpy()

    start, before = flat(), laws.values(flat())
    optimizer = torch.optim.SGD(module.parameters(), lr=1e-4)
    for _ in range(100):
        optimizer.zero_grad()
        ((module(tokens) - target) ** 2).sum().backward()
        optimizer.step()
    assert np.abs(flat() - start).max() > 1e-2
    assert np.abs(laws.values(flat()) - before).max() < 1e-4
    step = 1e-6
    moved = [(laws.values(start + step * e) - laws.values(start - step * e)) / (2 * step) for e in np.eye(len(start))]
    assert np.allclose(np.transpose(moved), laws.gradients(start), atol=1e-8)


def test_a_small_transformer_reads_tokens() -> None:
    class Transformer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.attention = nn.Embedding(5, 3), Attention(3, 2)
            self.norm, self.last = nn.LayerNorm(3), nn.Linear(3, 2, bias=False)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            stream = self.embedding(tokens)
            found: torch.Tensor = self.last(self.norm(stream + self.attention(stream)).mean(dim=1))
            return found

    count = count_laws(Transformer(), input_shape=(6,))
    assert count.status == "proved"
    assert count.independent >= 6 + 3  # the two matrices of the head, and the norm's gain against what reads it
    without_the_last = np.array([[0, 1, 2, 3, 3, 0], [1, 1, 0, 2, 3, 2]])
    assert count_laws(Transformer(), level="data", data=without_the_last).laws >= count.laws + 3


def test_layer_norms_are_differentiated_rightly() -> None:
    """PyTorch's nested forward derivatives of layer and batch norm are wrong (2.13): 4 laws were found here."""
    count = count_laws(nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2)), input_shape=(3,))
    assert (count.laws, count.independent, count.dimensions) == (8, 8, (17, 25, 26))


@pytest.mark.parametrize(
    ("norm", "shape"),
    [
        (lambda: nn.LayerNorm(4), (6, 4)), (lambda: nn.BatchNorm1d(4, track_running_stats=False), (6, 4)),
        (lambda: nn.GroupNorm(2, 4), (6, 4)), (lambda: nn.InstanceNorm1d(4, affine=True), (3, 4, 5)),
        (lambda: nn.BatchNorm1d(4).eval(), (6, 4)), (lambda: nn.RMSNorm(4, eps=1e-3), (6, 4)),
    ],
)  # fmt: skip
def test_normalisations_step_by_step(norm: Callable[[], nn.Module], shape: tuple[int, ...]) -> None:
    """The same values as PyTorch's, and second derivatives that agree with differences."""
    module, batch = norm().double().requires_grad_(False), torch.randn(shape, dtype=torch.float64)
    direction, weights = torch.randn(2, *shape, dtype=torch.float64)

    def slope(x: torch.Tensor) -> torch.Tensor:
        return torch.func.grad(lambda y: (module(y) * weights).sum())(x)

    def second(x: torch.Tensor) -> torch.Tensor:
        return torch.func.jvp(lambda y: torch.func.jvp(slope, (y,), (direction,))[1], (x,), (direction,))[1]

    step = 1e-4
    plain = module(batch)
    with composite():
        assert torch.allclose(module(batch), plain, atol=1e-12)
        found = second(batch)
        differences = (slope(batch + step * direction) - 2 * slope(batch) + slope(batch - step * direction)) / step**2
    assert torch.allclose(found, differences, atol=1e-4 * float(1 + found.abs().max()))


def test_derivatives_that_are_wrong_upstream_leave_the_count_undecided() -> None:
    """`slogdet` is differentiated wrongly by nested `jvp` (PyTorch 2.13); differences tell."""

    class Volume(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 4)

        def forward(self, batch: torch.Tensor) -> torch.Tensor:
            matrix = self.layer(batch).view(-1, 2, 2) + 3 * torch.eye(2, dtype=torch.float64)
            return torch.linalg.slogdet(matrix)[1][:, None]

    count = count_laws(Volume(), input_shape=(2,))
    assert count.status == "undecided"
    assert "differences" in count.reason


def test_batch_norm_has_other_laws_in_train_mode() -> None:
    """Eval: a diagonal layer, 4 laws on each side. Train: 4 dead biases, and (γ, β) against the next layer."""
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))
    for mode, words in (("eval", "bias"), ("train", "never move")):
        count = count_laws(module, input_shape=(3,), mode=mode)
        assert (count.laws, count.independent, count.mode) == (8, 8, mode)
        assert any(words in line for line in count.words)
    assert not any("never move" in line for line in count_laws(module, input_shape=(3,), mode="eval").words)
    assert module[1].running_mean is not None
    with pytest.raises(LawfulError, match="unknown mode"):
        count_laws(module, input_shape=(3,), mode="test")
    bare = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, affine=False), nn.ReLU(), nn.Linear(4, 2))
    assert count_laws(bare, mode="train", input_shape=(3,)).arithmetic != "exact"


def test_a_channel_that_is_dead_at_some_points_is_no_law() -> None:
    """A group norm's output is bounded, so some offsets kill a channel for all inputs: other points decide."""
    for seed in range(4):
        torch.manual_seed(seed)
        module = nn.Sequential(nn.Linear(2, 3), nn.GroupNorm(1, 3), nn.ReLU(), nn.Linear(3, 1))
        count = count_laws(module, input_shape=(2,), seed=seed)
        assert (count.laws, count.independent) == (6, 6)


def test_a_decomposition_that_does_not_converge_is_tried_another_way(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*arguments: object, **options: object) -> None:
        raise np.linalg.LinAlgError("SVD did not converge")

    monkeypatch.setattr(np.linalg, "svd", fails)
    assert rank_with_gap(np.diag([1.0, 0.5, 1e-15])).rank == 2
