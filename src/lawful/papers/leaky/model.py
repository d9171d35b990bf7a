"""Leaky ResNets: `∂_p A = -L̃ A + W_p σ(A)`, discretised by layer steps (P3 Sections 2 and 4)."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from lawful.errors import InvalidNetwork, LawfulError
from lawful.types import Floats

# Regression tasks whose bottleneck rank is known: compositions of random networks (P3 Appendix B).


@dataclass(frozen=True, eq=False)
class TeacherTask:
    """Inputs and targets, one sample per row."""

    inputs: Floats
    targets: Floats

    def __init__(self, inputs: ArrayLike, targets: ArrayLike) -> None:
        """Copy, check and freeze."""
        x, y = np.array(inputs, dtype=np.float64), np.array(targets, dtype=np.float64)
        if x.ndim != 2 or y.ndim != 2 or len(x) != len(y) or not len(x):
            raise LawfulError(f"a task needs as many rows of inputs as of targets, got {x.shape} and {y.shape}")
        if not (np.isfinite(x).all() and np.isfinite(y).all()):
            raise LawfulError("inputs and targets must be finite numbers")
        for name, value in (("inputs", x), ("targets", y)):
            value.setflags(write=False)
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        return len(self.inputs)


def parse_teacher(text: str) -> tuple[int, ...]:
    """Read `20-5-20`.

    >>> parse_teacher("30-6-3-30")
    (30, 6, 3, 30)
    """
    if not re.fullmatch(r"[1-9]\d{0,3}(-[1-9]\d{0,3})+", text):
        raise LawfulError(f"a teacher is written like 20-5-20, not {text[:40]!r}")
    return tuple(int(size) for size in text.split("-"))


def teacher(sizes: tuple[int, ...], samples: int, *, seed: int = 0) -> tuple[TeacherTask, TeacherTask]:
    """Training and test data of `f* = g_k ∘ … ∘ g_1`, each `g_i` a random network with one hidden ReLU layer.

    Every value of `f*` passes through `min(sizes)` numbers, which bounds its bottleneck rank. Both sets are shifted
    and scaled together so that each coordinate has mean 0 and variance 1.

    >>> train, test = teacher((6, 2, 6), 50)
    >>> train.targets.shape, len(test)
    ((50, 6), 50)
    """
    if len(sizes) < 2 or samples < 2:
        raise LawfulError(f"a teacher needs two sizes and two samples, got {sizes} and {samples}")
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(2 * samples, sizes[0]))
    values = inputs
    for before, after in pairwise(sizes):
        hidden = max(before, after)
        first = rng.normal(size=(before, hidden)) * np.sqrt(2 / before)
        second = rng.normal(size=(hidden, after)) / np.sqrt(hidden)
        values = np.maximum(values @ first, 0) @ second
    x, y = _standardise(inputs), _standardise(values)
    return TeacherTask(x[:samples], y[:samples]), TeacherTask(x[samples:], y[samples:])


def _standardise(values: Floats) -> Floats:
    spread = values.std(axis=0)
    return np.asarray((values - values.mean(axis=0)) / np.where(spread > 0, spread, 1.0))


# Layer steps `ρ_1, …, ρ_L`: how much of the path `p ∈ [0, 1]` each layer covers (P3 Section 4).

LARGEST_LEAK = 0.9  # a layer keeps 1 - ρ L̃ of its input; beyond 1 the skip connection would turn negative


def equidistant(layers: int) -> Floats:
    """`ρ_ℓ = 1/L`.

    >>> equidistant(4)
    array([0.25, 0.25, 0.25, 0.25])
    """
    _check_layers(layers)
    return np.full(layers, 1.0 / layers)


def irregular(layers: int, a: float = 0.9) -> Floats:
    """Short steps near input and output, long ones between: `ρ_ℓ ∝ 1 + a (1/4 - |ℓ/L - 1/2|)`, `a ∈ [0, 1)`.

    The printed rule divides by `L` and sums to 1 only for even `L`; here the steps are normalised.

    >>> irregular(4, 0.5).round(4)
    array([0.25  , 0.2812, 0.25  , 0.2188])
    >>> float(irregular(7, 0.9).sum().round(12))
    1.0
    """
    _check_layers(layers)
    if not 0 <= a < 1:
        raise LawfulError(f"irregular steps need 0 <= a < 1, got a = {a}")
    raw = 1 + a * (0.25 - np.abs(np.arange(1, layers + 1) / layers - 0.5))
    return np.asarray(raw / raw.sum())


def adapt_steps(steps: ArrayLike, path: ArrayLike, effective_depth: float) -> Floats:
    """Steps that move the representation by the same relative distance: `ρ_ℓ ∝ ρ_ℓ ‖A_ℓ‖ / ‖A_ℓ - A_{ℓ-1}‖`.

    `path` holds `A_0, …, A_L`. Steps keep their sum and are capped so that `ρ_ℓ L̃` stays below 1.

    >>> path = np.array([1.0, 2.0, 2.1, 2.2, 4.0])[:, None, None]  # fast, slow, slow, fast
    >>> adapt_steps([0.25] * 4, path, 1.0).round(2)
    array([0.04, 0.44, 0.47, 0.05])
    """
    old, nodes = np.asarray(steps, dtype=np.float64), np.asarray(path, dtype=np.float64)
    if len(nodes) != len(old) + 1:
        raise LawfulError(f"{len(old)} steps need {len(old) + 1} representations, got {len(nodes)}")
    sizes = np.array([np.linalg.norm(node) for node in nodes[1:]])
    moves = np.array([np.linalg.norm(after - before) for before, after in pairwise(nodes)])
    wanted = old * sizes / np.maximum(moves, 1e-12 * sizes.max() + np.finfo(float).tiny)
    return cap_steps(wanted, float(old.sum()), LARGEST_LEAK / effective_depth if effective_depth > 0 else np.inf)


def cap_steps(wanted: Floats, total: float, cap: float) -> Floats:
    """Scale to the given sum with no entry above `cap`: what is cut off is shared among the others.

    >>> cap_steps(np.array([1.0, 1.0, 8.0]), total=1.0, cap=0.5)
    array([0.25, 0.25, 0.5 ])
    """
    if cap * len(wanted) <= total:
        return np.full(len(wanted), total / len(wanted))
    steps = wanted * (total / wanted.sum())
    full = np.zeros(len(steps), dtype=bool)
    while (over := (steps > cap) & ~full).any():
        full |= over
        steps[full] = cap
        rest = ~full
        steps[rest] *= (total - cap * full.sum()) / steps[rest].sum()
    return np.asarray(steps)


def _check_layers(layers: int) -> None:
    if layers < 1:
        raise LawfulError(f"a network needs at least one layer, got {layers}")


def positions(steps: ArrayLike) -> Floats:
    """`p_0 = 0, p_1, …, p_L`, the ends of the layers."""
    return np.concatenate([[0.0], np.cumsum(np.asarray(steps, dtype=np.float64))])


def resample(weights: Floats, steps: Floats, new_steps: Floats) -> Floats:
    """`W_p` on another grid: each new layer takes the mean of `W_p` over its own stretch of p.

    >>> resample(np.array([[[1.0]], [[3.0]]]), equidistant(2), equidistant(4))[:, 0, 0]
    array([1., 1., 3., 3.])
    """
    old, new = positions(steps), positions(new_steps)
    overlap = np.minimum(old[None, 1:], new[1:, None]) - np.maximum(old[None, :-1], new[:-1, None])
    share = np.maximum(overlap, 0.0) / np.asarray(new_steps)[:, None]
    return np.asarray(np.tensordot(share, weights, axes=1))


def rectify(values: Tensor, softness: float = 0.0) -> Tensor:
    """ReLU, or with `softness` ε its C¹ version that is quadratic on [-ε, ε] and ReLU elsewhere.

    Geodesics of the ReLU network sit on kinks (activations that are exactly zero), where no gradient vanishes;
    the soft version picks the right subgradient there and differs from ReLU by at most ε/4.

    >>> rectify(torch.tensor([-2.0, 0.0, 2.0]), softness=1.0)
    tensor([0.0000, 0.2500, 2.0000])
    """
    if softness == 0:
        return values.clamp(min=0)
    slope = (values / (2 * softness) + 0.5).clamp(0, 1)
    return torch.where(slope < 1, softness * slope * slope, values)


class LeakyResNet(nn.Module):
    """`α_ℓ = (1 - ρ_ℓ L̃) α_{ℓ-1} + ρ_ℓ W_ℓ σ(α_{ℓ-1})`, where σ rectifies and appends a one (the bias).

    `into` and `out` are linear maps from the inputs to the width and from the width to the outputs, fixed unless
    `learn_maps`; without them inputs and outputs have the width of the path. Everything is float64.

    >>> network = LeakyResNet.random(width=8, layers=5, effective_depth=2.0, inputs=3, outputs=2, seed=0)
    >>> network(torch.zeros(4, 3, dtype=torch.float64)).shape
    torch.Size([4, 2])
    """

    steps: Tensor

    def __init__(
        self,
        weights: ArrayLike | Tensor,
        effective_depth: float,
        steps: ArrayLike | None = None,
        *,
        into: ArrayLike | None = None,
        out: ArrayLike | None = None,
        learn_maps: bool = False,
        softness: float = 0.0,
    ) -> None:
        """Copy and check. `weights` has shape (L, w, w + 1); the last column is the bias."""
        super().__init__()
        stack = _tensor(weights)
        if stack.ndim != 3 or stack.shape[2] != stack.shape[1] + 1 or not stack.shape[0]:
            raise InvalidNetwork(f"weights need shape (layers, width, width + 1), got {tuple(stack.shape)}")
        if not (math.isfinite(effective_depth) and effective_depth > 0 and math.isfinite(softness) and softness >= 0):
            raise LawfulError(
                f"effective depth must be positive and softness not negative: {effective_depth}, {softness}"
            )
        grid = _tensor(equidistant(len(stack)) if steps is None else steps)
        if grid.shape != stack.shape[:1] or not bool((grid > 0).all()):
            raise InvalidNetwork(f"{len(stack)} layers need as many positive steps, got shape {tuple(grid.shape)}")
        self.effective_depth: float = float(effective_depth)
        self.softness: float = float(softness)
        self.learns_maps = learn_maps
        self.weights: nn.Parameter = nn.Parameter(stack)
        self.register_buffer("steps", grid)
        width = stack.shape[1]
        self.into: nn.Parameter | None = _linear_map(into, (width, None), learn_maps)
        self.out: nn.Parameter | None = _linear_map(out, (None, width), learn_maps)

    @classmethod
    def random(
        cls,
        *,
        width: int,
        layers: int,
        effective_depth: float,
        inputs: int,
        outputs: int,
        steps: ArrayLike | None = None,
        learn_maps: bool = False,
        softness: float = 0.0,
        scale: float = 0.1,
        seed: int = 0,
    ) -> LeakyResNet:
        """Gaussian weights of standard deviation `scale`; maps with orthonormal columns (into) and rows (out)."""
        if min(width, layers, inputs, outputs) < 1 or width < max(inputs, outputs):
            raise LawfulError(
                f"the width must be at least the inputs and outputs: width {width}, inputs {inputs}, outputs {outputs}"
            )
        rng = np.random.default_rng(seed)
        into = np.linalg.qr(rng.normal(size=(width, inputs)))[0]
        out = np.linalg.qr(rng.normal(size=(width, outputs)))[0].T
        weights = rng.normal(size=(layers, width, width + 1)) * scale
        return cls(weights, effective_depth, steps, into=into, out=out, learn_maps=learn_maps, softness=softness)

    @property
    def width(self) -> int:
        """Number of neurons of each layer."""
        return int(self.weights.shape[1])

    @property
    def layers(self) -> int:
        """Number of layers L."""
        return int(self.weights.shape[0])

    def path(self, inputs: Tensor) -> list[Tensor]:
        """The representations `A_0, …, A_L`, each of shape (w, N), of a batch with one sample per row."""
        state = inputs.T if self.into is None else self.into @ inputs.T
        states = [state]
        one = state.new_ones(1, state.shape[1])
        for step, weight in zip(self.steps, self.weights, strict=True):
            lifted = torch.cat([rectify(state, self.softness), one])
            state = (1 - step * self.effective_depth) * state + step * (weight @ lifted)
            states.append(state)
        return states

    def forward(self, inputs: Tensor) -> Tensor:
        """The outputs, one row per sample."""
        last = self.path(inputs)[-1]
        result: Tensor = last if self.out is None else self.out @ last
        return result.T

    def parameter_cost(self) -> Tensor:
        """`∫ ‖W_p‖² dp = Σ ρ_ℓ ‖W_ℓ‖²`."""
        return (self.steps * self.weights.square().sum(dim=(1, 2))).sum()

    def cost(self, inputs: Tensor, targets: Tensor, ridge: float) -> Tensor:
        """`(1/N) Σ ‖f*(x_i) - α_1(x_i)‖² + λ/(2L̃) Σ ρ_ℓ ‖W_ℓ‖²` (P3 Section 4)."""
        error: Tensor = (self(inputs) - targets).square().sum() / len(inputs)
        return error + ridge / (2 * self.effective_depth) * self.parameter_cost()

    def replaced(
        self, weights: ArrayLike | Tensor, steps: ArrayLike | None = None, effective_depth: float | None = None
    ) -> LeakyResNet:
        """The same maps with other weights, steps or effective depth."""
        return LeakyResNet(
            weights,
            self.effective_depth if effective_depth is None else effective_depth,
            self.steps.numpy() if steps is None else steps,
            into=None if self.into is None else self.into.detach().numpy(),
            out=None if self.out is None else self.out.detach().numpy(),
            learn_maps=self.learns_maps,
            softness=self.softness,
        )


def _tensor(values: ArrayLike | Tensor) -> Tensor:
    array = values.detach().numpy() if isinstance(values, Tensor) else values
    tensor = torch.from_numpy(np.array(array, dtype=np.float64))
    if not bool(torch.isfinite(tensor).all()):
        raise InvalidNetwork("weights, steps and maps must be finite numbers")
    return tensor


def _linear_map(given: ArrayLike | None, shape: tuple[int | None, int | None], learn: bool) -> nn.Parameter | None:
    if given is None:
        return None
    matrix = _tensor(given)
    if matrix.ndim != 2 or any(want not in (None, got) for want, got in zip(shape, matrix.shape, strict=True)):
        raise InvalidNetwork(f"a linear map of shape {tuple(matrix.shape)} does not fit the width {shape}")
    return nn.Parameter(matrix, requires_grad=learn)
