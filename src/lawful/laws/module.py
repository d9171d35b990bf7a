"""Count the laws of any PyTorch module in float64: brackets by automatic differentiation, ranks with their gap."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch.func import grad, jvp, vmap

from lawful.errors import Unsupported
from lawful.laws.float_rank import rank_with_gap
from lawful.laws.law import Law, LawFamily
from lawful.laws.law_count import LawCount
from lawful.laws.lie_closure import SPARE, refuse_if_too_large
from lawful.laws.module_known import conserved_laws
from lawful.laws.other_flows import Flow
from lawful.laws.probe import Probe, first_line, probe
from lawful.network.dynamics import GradientFlow, HeavyBall, Metric
from lawful.types import Floats

Field = Callable[..., torch.Tensor]
SEEDS = 2  # points that have to agree
MOST_SEEDS = 5
GAP = 1e3  # a smaller ratio between neighbouring singular values decides nothing
CHUNK = 64
DEEPEST = 5


# Fields and brackets


def _field(case: Probe, flow: Flow) -> Field:
    """The field of one sample, as a function of the state."""
    slope = grad(case.value)
    if isinstance(flow, Metric):
        flow.check(case.size)
        matrix = _metric(flow, case.size)
        return lambda state, inputs, weights, drift: matrix(slope(state, inputs, weights))
    if isinstance(flow, HeavyBall):
        size = case.size

        def moving(state: torch.Tensor, inputs: torch.Tensor, weights: torch.Tensor, drift: torch.Tensor) -> Any:
            velocity = state[size : 2 * size]
            force = slope(state[:size], inputs, weights)
            parts = [drift * velocity, force - drift * flow.constant_friction * velocity]
            return torch.cat(parts if flow.autonomous else [*parts, drift[None]])

        return moving
    return lambda state, inputs, weights, drift: slope(state, inputs, weights)


def _metric(flow: Metric, size: int) -> Callable[[torch.Tensor], torch.Tensor]:
    if flow.diagonal is not None:
        scale = torch.as_tensor(flow.diagonal, dtype=torch.float64)
        return lambda vector: scale * vector
    dense = torch.eye(size, dtype=torch.float64)
    for where, block in flow.blocks:
        dense[np.ix_(where, where)] = torch.as_tensor(block, dtype=torch.float64)
    return lambda vector: dense @ vector


def _bracket(field: Field, level: int) -> Field:
    """`[X_k, Z] = JX_k·Z − JZ·X_k` with Z the bracket of one level less; samples are tuples of tensors."""
    if level == 0:
        return lambda state, samples: field(state, *samples[0])
    inner = _bracket(field, level - 1)

    def bracket(state: torch.Tensor, samples: Any) -> torch.Tensor:
        outer = partial(_apply, field, samples[-1])
        before = partial(_swapped, inner, samples[:-1])
        value, ahead = outer(state), before(state)
        along_inner: torch.Tensor = jvp(outer, (state,), (ahead,))[1]
        along_outer: torch.Tensor = jvp(before, (state,), (value,))[1]
        return along_inner - along_outer

    return bracket


def _apply(field: Field, sample: Any, state: torch.Tensor) -> torch.Tensor:
    return field(state, *sample)


def _swapped(field: Field, samples: Any, state: torch.Tensor) -> torch.Tensor:
    return field(state, samples)


def brackets(case: Probe, flow: Flow, state: torch.Tensor, level: int, count: int, seed: int) -> Floats:
    """Values of random brackets of a level at a state, one row each, of length 1 (or 0 where a bracket vanishes)."""
    function = _bracket(_field(case, flow), level)
    samples = []
    for slot in range(level + 1):
        label = ((seed * 16 + level) * 16 + slot) * 2 + 1
        drift = torch.randn(count, generator=torch.Generator().manual_seed(label), dtype=torch.float64)
        samples.append((*case.draw(label, count), drift))
    try:
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            rows = _mapped(function, state, samples, count).detach().numpy()
    except Exception as error:
        raise Unsupported(f"the module cannot be differentiated {level + 1} times: {first_line(error)}") from None
    if not np.isfinite(rows).all():
        raise Unsupported("a gradient of the module is not finite")
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    typical = float(np.median(lengths))
    return np.asarray(rows / np.maximum(lengths, 1e-12 * max(typical, 1e-300)))


def _mapped(function: Field, state: torch.Tensor, samples: Any, count: int) -> torch.Tensor:
    """All brackets at once, or one by one for modules that vmap does not cover."""
    try:
        return vmap(function, in_dims=(None, 0), chunk_size=CHUNK)(state, samples)
    except RuntimeError:
        rows = [function(state, [tuple(part[row] for part in sample) for sample in samples]) for row in range(count)]
        return torch.stack(rows)


# Rank and count


def count_module(
    module: torch.nn.Module,
    input_shape: tuple[int, ...] | None = None,
    *,
    level: str = "phi",
    data: ArrayLike | None = None,
    loss: str = "full",
    flow: Flow,
    seed: int = 0,
) -> LawCount:
    """The count for any module: several random points must agree, each with a clear gap, or it stays undecided.

    Level "phi" moves every parameter by about its own size, "near" and "data" by a twentieth of it.
    """
    case = probe(module, input_shape, data, loss)
    refuse_if_too_large(case.size)
    spread, most = (1.0, MOST_SEEDS) if level == "phi" else (0.05, SEEDS)
    runs: list[BracketRun] = []
    while (
        len(_largest(runs)) < SEEDS and len(runs) < most
    ):  # at special points, such as dead neurons, more is conserved
        runs.append(_run(case, flow, seed + len(runs), spread))
    best = _largest(runs)
    dimensions, gap, words, laws = min(best, key=lambda run: run.gap)
    reason = "" if len(best) == SEEDS else f"seeds disagree: {', '.join(str(run.dimensions) for run in runs)}"
    if not reason and gap < GAP:
        reason = f"the smallest gap between singular values is {gap:.2g}, less than {GAP:g}"
    states = _states(case.size, flow)
    return LawCount(
        case.size, states, dimensions, LawFamily(tuple(laws), case.size), len(laws),
        "undecided" if reason else "numerical", level, flow, loss, arithmetic="float64", gap=gap, reason=reason,
        words=tuple(words),
    )  # fmt: skip


class BracketRun(NamedTuple):
    """Dimensions, the smallest gap, and the known laws in words and as polynomials."""

    dimensions: tuple[int, ...]
    gap: float
    words: list[str]
    laws: list[Law]


def _largest(runs: list[BracketRun]) -> list[BracketRun]:
    """The runs that reached the largest dimension."""
    most = max((run.dimensions[-1] for run in runs), default=0)
    return [run for run in runs if run.dimensions[-1] == most]


def _states(size: int, flow: Flow) -> int:
    return 2 * size + (not flow.autonomous) if isinstance(flow, HeavyBall) else size


def _run(case: Probe, flow: Flow, seed: int, spread: float) -> BracketRun:
    """One random point: close the fields under brackets until the dimension stagnates or meets the known laws."""
    theta = case.theta(seed, spread)
    states = _states(case.size, flow)
    generator = torch.Generator().manual_seed(seed)
    extra = torch.randn(states - case.size, generator=generator, dtype=torch.float64)
    state = torch.cat([theta, extra])
    basis = np.zeros((0, states))
    dimensions: list[int] = []
    gaps: list[float] = []
    words: list[str] = []
    laws: list[Law] = []
    while len(dimensions) <= DEEPEST:
        before = dimensions[-1] if dimensions else 0
        rows = brackets(case, flow, state, len(dimensions), states - before + SPARE, seed)
        if not dimensions and states == case.size and not isinstance(flow, Metric):
            known = conserved_laws(case.module, case.unflatten(theta), rows)
            words, laws = known.words, known.laws
        found = rank_with_gap(np.concatenate([basis, rows]))
        basis = found.basis
        dimensions.append(found.rank)
        gaps.append(found.gap)
        if found.rank == before or found.rank >= states - len(laws):
            return BracketRun(tuple(dimensions), min(gaps), words, laws)
    return BracketRun(tuple(dimensions), 0.0, words, laws)


def module_laws(module: torch.nn.Module, input_shape: tuple[int, ...] | None = None, *, seed: int = 0) -> LawFamily:
    """The known laws of a module, in its trainable parameters laid end to end: values, gradients, number.

    >>> _ = torch.manual_seed(0)
    >>> module = torch.nn.Sequential(torch.nn.Conv1d(1, 2, 3), torch.nn.ReLU(), torch.nn.Conv1d(2, 1, 3))
    >>> laws = module_laws(module, (1, 8))
    >>> theta = torch.cat([value.detach().flatten() for value in module.parameters()])
    >>> len(laws), laws.values(theta).shape, laws.gradients(theta).shape
    (2, (2,), (2, 15))
    """
    case = probe(module, input_shape)
    theta = case.theta(seed, 1.0)
    rows = brackets(case, GradientFlow(), theta, 0, case.size + SPARE, seed)
    return LawFamily(tuple(conserved_laws(case.module, case.unflatten(theta), rows).laws), case.size)
