"""Instruments for residual streams: effective dimension, cost of identity, speed and energy of every block.

What carries over from Leaky ResNets (P3): representations `A_ℓ` on a data set, their stable rank, γ-stable cost of
identity and Hamiltonian, how far each block moves them, and the layer steps that would even this out (P3 Section 4).
What does not: the rank estimate, which assumes layers `W σ(A)` trained with weight decay to a geodesic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import scipy.linalg
import torch
from scipy.sparse.linalg import eigsh
from torch import Tensor, nn

from lawful.errors import Unsupported
from lawful.papers.leaky.mechanics import lift
from lawful.papers.leaky.streams.stream import StreamStates, columns, stream_states
from lawful.result import Shown
from lawful.types import Floats

GAMMA = 1e-3  # representations that no weight decay has shaped need a larger one than `path.GAMMA`
MOST = 4096  # samples that are measured
GROUPS = 4  # parts of the samples that are left out in turn for the standard errors


@dataclass(frozen=True)
class BlockReading:
    """One block on one data set, in units where a block takes one unit of time.

    `dimension` is the stable rank `‖A‖_*² / ‖A‖_F²` after the block, `coi` the cost of identity `‖A‖²_{K+γ}`,
    `distance` `‖A − A'‖ / ‖A‖` for the stream A' that entered, `kinetic` `‖A − A'‖²_{K+γ}`, and `hamiltonian` half of
    `kinetic − coi`. For comparison: `similarity` is the linear CKA of A' and A, `alignment` the cosine of the update
    with the stream. `samples` are the pixels or tokens it was read on (few in a late stage: no dimension exceeds
    them). `errors` are jackknife standard errors of dimension, coi, distance and hamiltonian.
    """

    name: str
    width: int
    samples: int
    projected: bool
    dimension: float
    coi: float
    distance: float
    kinetic: float
    similarity: float
    alignment: float
    negative_share: float
    errors: tuple[float, float, float, float]

    @property
    def hamiltonian(self) -> float:
        """`½(‖∂A‖²_{K+γ} − ‖A‖²_{K+γ})`, the stable Hamiltonian of P3 Section 3."""
        return 0.5 * (self.kinetic - self.coi)


@dataclass(frozen=True, eq=False)
class BlockReadings(Shown):
    """The blocks of a network in order; `found_by` says how they were found."""

    blocks: tuple[BlockReading, ...]
    samples: int
    dimension_in: float
    found_by: str

    @property
    def names(self) -> tuple[str, ...]:
        """The blocks' names."""
        return tuple(block.name for block in self.blocks)

    @property
    def distances(self) -> Floats:
        """How far each block moves the stream, relative to its size."""
        return np.array([block.distance for block in self.blocks])

    @property
    def narrowest(self) -> BlockReading:
        """The block after which the effective dimension is smallest."""
        return min(self.blocks, key=lambda block: block.dimension)

    @property
    def fast(self) -> tuple[str, ...]:
        """Blocks that move the representation more than twice the median."""
        limit = 2 * float(np.median(self.distances))
        return tuple(block.name for block in self.blocks if block.distance > limit)

    @property
    def slow(self) -> tuple[str, ...]:
        """Blocks that move it less than half the median."""
        limit = 0.5 * float(np.median(self.distances))
        return tuple(block.name for block in self.blocks if block.distance < limit)

    @property
    def suggested_steps(self) -> Floats:
        """Layer steps inversely proportional to the speeds: they would even out the motion (P3 Section 4)."""
        largest = max(float(self.distances.max()), 1e-300)
        slowness = 1 / np.maximum(self.distances, 1e-12 * largest)
        return np.asarray(slowness / slowness.sum())


def read_blocks(
    module: nn.Module,
    inputs: Tensor,
    *,
    blocks: Sequence[str] | None = None,
    gamma_ratio: float = GAMMA,
    most: int = MOST,
    seed: int = 0,
) -> BlockReadings:
    """Run the module on `inputs` and measure its residual blocks.

    A block is a residual add of the exported graph (`stream`), its samples are pixels or tokens. Named blocks are
    submodules that keep the shape of their input; without names and without residual adds (or where `torch.export`
    cannot read the graph, which `found_by` then says), all those are taken.

    >>> class Block(nn.Module):
    ...     def __init__(self) -> None:
    ...         super().__init__()
    ...         self.inner = nn.Linear(4, 4)
    ...     def forward(self, x: Tensor) -> Tensor:
    ...         return x + self.inner(x.relu())
    >>> net = nn.Sequential(nn.Linear(2, 4), Block(), Block(), nn.Linear(4, 1))
    >>> read_blocks(net, torch.randn(10, 2)).names
    ('1', '2')
    """
    states: Sequence[StreamStates] = ()
    found_by = "residual adds"
    unread: Unsupported | None = None
    if blocks is None:
        try:
            states = stream_states(module, inputs, most=most, seed=seed)
        except Unsupported as error:
            unread = error
    if not states:
        why = "no residual adds" if unread is None else "torch.export cannot read it"
        found_by = "names" if blocks is not None else f"modules that keep the shape of their input: {why}"
        try:
            states = _by_hooks(module, inputs, blocks)
        except Exception:
            if unread is not None:  # it has no graph, and does not run either: the first reason is the better one
                raise unread from None
            raise
    readings = tuple(_reading(state, gamma_ratio) for state in states)
    return BlockReadings(readings, states[0].after.shape[1], _dimension(states[0].before.astype(np.float64)), found_by)


def _reading(states: StreamStates, gamma_ratio: float) -> BlockReading:
    before, after = states.before.astype(np.float64, copy=False), states.after.astype(np.float64, copy=False)
    size = max(float(np.linalg.norm(after)), 1e-300)
    whole, *parts = _energies(before, after, gamma_ratio)
    spread = np.std(parts, axis=0) * np.sqrt(len(parts) - 1) if parts else np.full(len(whole), np.nan)
    dimension, coi, distance, kinetic, _ = whole
    return BlockReading(
        states.name, len(after), after.shape[1], states.projected, dimension, coi, distance, kinetic,
        _similarity(states.before, states.after), _alignment(before, after),
        float(np.square(np.minimum(after, 0)).sum()) / size**2,
        (float(spread[0]), float(spread[1]), float(spread[2]), float(spread[4])),
    )  # fmt: skip


Values = tuple[float, float, float, float, float]


def _energies(before: Floats, after: Floats, gamma_ratio: float) -> list[Values]:
    """Dimension, cost of identity, distance, kinetic term and Hamiltonian: of all samples, then less each group.

    `‖M‖²_{K+γ} = Tr M (K + γ)⁻¹ Mᵀ` with `K = σᵀσ` is taken on the smaller side: samples, or, by Woodbury's identity,
    neurons; there everything follows from Gram matrices, and those of groups add up.
    """
    samples = after.shape[1]
    sigma, move = lift(after), after - before
    groups = [np.arange(samples) % GROUPS == group for group in range(GROUPS if samples >= 2 * GROUPS else 0)]
    if samples < len(sigma):
        subsets = [np.ones(samples, dtype=bool), *(~part for part in groups)]
        return [_by_samples(sigma[:, part], after[:, part], move[:, part], gamma_ratio) for part in subsets]
    parts = [_Grams.of(sigma[:, part], after[:, part], move[:, part]) for part in groups]
    whole = reduce(_Grams.plus, parts) if parts else _Grams.of(sigma, after, move)
    return [moments.values(gamma_ratio) for moments in (whole, *(whole.less(part) for part in parts))]


def _by_samples(sigma: Floats, after: Floats, move: Floats, gamma_ratio: float) -> Values:
    kernel, gram, moved = (matrix.T @ matrix for matrix in (sigma, after, move))
    gamma = gamma_ratio * _largest(kernel)
    factor = scipy.linalg.cho_factor(kernel + gamma * np.eye(len(kernel)))
    coi, kinetic = (float(np.trace(scipy.linalg.cho_solve(factor, matrix))) for matrix in (gram, moved))
    distance = float(np.sqrt(np.trace(moved) / max(float(np.trace(gram)), 1e-300)))
    return _stable_rank(gram), coi, distance, kinetic, 0.5 * (kinetic - coi)


@dataclass(frozen=True, eq=False)
class _Grams:
    """`σσᵀ`, `AAᵀ`, `σAᵀ`, `σDᵀ` and `‖D‖²` for the update D: sums over samples."""

    lifted: Floats
    own: Floats
    mixed: Floats
    mixed_move: Floats
    move: float

    @classmethod
    def of(cls, sigma: Floats, after: Floats, move: Floats) -> _Grams:
        return cls(sigma @ sigma.T, after @ after.T, sigma @ after.T, sigma @ move.T, float((move**2).sum()))

    def plus(self, other: _Grams, sign: int = 1) -> _Grams:
        return _Grams(
            self.lifted + sign * other.lifted, self.own + sign * other.own, self.mixed + sign * other.mixed,
            self.mixed_move + sign * other.mixed_move, self.move + sign * other.move,
        )  # fmt: skip

    def less(self, other: _Grams) -> _Grams:
        return self.plus(other, -1)

    def values(self, gamma_ratio: float) -> Values:
        gamma = gamma_ratio * _largest(self.lifted)
        root = scipy.linalg.cholesky(self.lifted + gamma * np.eye(len(self.lifted)), check_finite=False)
        norms = []
        for mixed, square in ((self.mixed, float(np.trace(self.own))), (self.mixed_move, self.move)):
            explained = scipy.linalg.solve_triangular(root, mixed, trans="T", check_finite=False)
            norms.append(max(square - float((explained**2).sum()), 0.0) / gamma)  # what is left, by Woodbury's identity
        coi, kinetic = norms
        distance = float(np.sqrt(max(self.move, 0.0) / max(float(np.trace(self.own)), 1e-300)))
        return _stable_rank(self.own), coi, distance, kinetic, 0.5 * (kinetic - coi)


def _largest(gram: Floats) -> float:
    """The largest eigenvalue, by Lanczos' method where that is quicker."""
    if len(gram) < 100 or not gram.any():
        return max(float(np.linalg.eigvalsh(gram)[-1]), 1e-300)
    largest = eigsh(gram, k=1, v0=np.ones(len(gram)), return_eigenvectors=False)
    return max(float(largest[0]), 1e-300)


def _stable_rank(gram: Floats) -> float:
    """`‖A‖_*² / ‖A‖_F²` from `AAᵀ` or `AᵀA`."""
    squares = np.maximum(np.linalg.eigvalsh(gram), 0.0)
    return float(np.sqrt(squares).sum() ** 2 / max(float(squares.sum()), 1e-300))


def _dimension(matrix: Floats) -> float:
    return _stable_rank(matrix @ matrix.T if len(matrix) <= matrix.shape[1] else matrix.T @ matrix)


def _similarity(first: Floats, second: Floats) -> float:
    """Linear CKA: `‖X Yᵀ‖² / (‖X Xᵀ‖ ‖Y Yᵀ‖)` for centred X and Y."""
    x, y = (matrix - matrix.mean(axis=1, keepdims=True) for matrix in (first, second))
    x, y = (matrix / max(float(np.linalg.norm(matrix)), 1e-300) for matrix in (x, y))  # no square of theirs overflows
    if x.shape[0] > x.shape[1]:
        first, second = x.T @ x, y.T @ y
        both, sizes = float((first * second).sum()), float(np.linalg.norm(first) * np.linalg.norm(second))
    else:
        both, sizes = float(np.square(x @ y.T).sum()), float(np.linalg.norm(x @ x.T) * np.linalg.norm(y @ y.T))
    return both / max(sizes, 1e-300)


def _alignment(before: Floats, after: Floats) -> float:
    update = after - before
    return float((update * before).sum() / max(float(np.linalg.norm(update) * np.linalg.norm(before)), 1e-300))


# Blocks that are submodules


def _by_hooks(module: nn.Module, inputs: Tensor, blocks: Sequence[str] | None) -> list[StreamStates]:
    named = dict(module.named_modules())
    unknown = [name for name in blocks or () if name not in named]
    if unknown:
        raise Unsupported(f"the module has no block called {unknown[0]!r}; it has {', '.join(list(named)[1:9])} …")
    seen: dict[str, tuple[Floats, Floats]] = {}
    handles = [
        part.register_forward_hook(_keeper(name, seen))
        for name, part in named.items()
        if (name in blocks if blocks is not None else name and _mixes(part))
    ]
    training = module.training
    module.eval()
    try:
        with torch.no_grad():
            module(inputs)
    finally:
        module.train(training)
        for handle in handles:
            handle.remove()
    return [StreamStates(name, before, after, False) for name, (before, after) in _chain(seen, blocks).items()]


def _mixes(part: nn.Module) -> bool:
    """Whether a submodule has a matrix: a normalisation, an activation or a dropout is no block."""
    return any(parameter.ndim > 1 for parameter in part.parameters())


def _keeper(
    name: str, seen: dict[str, tuple[Floats, Floats]]
) -> Callable[[nn.Module, tuple[object, ...], object], None]:
    def keep(_module: nn.Module, given: tuple[object, ...], got: object) -> None:
        first = given[0] if given else None
        last = got[0] if isinstance(got, tuple) else got
        if isinstance(first, Tensor) and isinstance(last, Tensor) and first.shape == last.shape and last.ndim > 1:
            channels = 1 if last.ndim == 4 else last.ndim - 1
            seen[name] = columns(first, channels).copy(), columns(last, channels).copy()

    return keep


def _chain(seen: dict[str, tuple[Floats, Floats]], blocks: Sequence[str] | None) -> dict[str, tuple[Floats, Floats]]:
    """Keep one width, and of nested modules the outermost that is not the whole network."""
    if blocks is not None:
        if not seen or len({pair[1].shape for pair in seen.values()}) > 1:
            raise Unsupported("the named blocks must keep the shape of their input, and all have the same")
        return {name: seen[name] for name in blocks if name in seen}
    outer = {
        name: pair
        for name, pair in seen.items()
        if not any(name.startswith(other + ".") for other in seen if other != name)
    }
    if not outer:
        raise Unsupported("no residual adds, and no submodule keeps the shape of its input: name the blocks to read")
    shapes = [pair[1].shape for pair in outer.values()]
    common = max(set(shapes), key=lambda shape: (shapes.count(shape), -shapes.index(shape)))
    return {name: pair for name, pair in outer.items() if pair[1].shape == common}
