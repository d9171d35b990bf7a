"""Fields and brackets of any PyTorch module in float64, by automatic differentiation that is checked by differences."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.func import grad, jvp, vmap

from lawful.conservation.fields.flows import Flow
from lawful.conservation.fields.normalisations import composite
from lawful.conservation.programs.module_function import Probe, first_line
from lawful.errors import Unsupported
from lawful.network.dynamics import GradientFlow, HeavyBall, Metric
from lawful.types import Floats

Field = Callable[..., torch.Tensor]
CHUNK = 64
STEPS = (1e-5, 1e-4, 1e-6, 1e-3)  # of differences, relative to the state; a kink may lie within one of them
AGREEMENT = 1e-3
CANCELLED = 1e-9  # a bracket so much smaller than its two terms may be nothing but their rounding


def _field(case: Probe, flow: Flow) -> Field:
    """The field of one sample, as a function of the state."""
    slope = grad(case.value)
    if isinstance(flow, Metric):
        flow.check(case.size)
        matrix = _metric(flow, case.size)
        return lambda state, inputs, weights, numbers, drift: matrix(slope(state, inputs, weights, numbers))
    if isinstance(flow, HeavyBall):
        size = case.size

        def moving(state: torch.Tensor, *sample: torch.Tensor) -> Any:
            *drawn, drift = sample
            velocity = state[size : 2 * size]
            force = slope(state[:size], *drawn)
            parts = [drift * velocity, force - drift * flow.constant_friction * velocity]
            return torch.cat(parts if flow.autonomous else [*parts, drift[None]])

        return moving
    if isinstance(flow, GradientFlow) and flow.decay:
        return lambda state, inputs, weights, numbers, drift: torch.cat(
            [slope(state[:-1], inputs, weights, numbers) - drift * flow.decay * state[:-1], drift[None]]
        )
    return lambda state, inputs, weights, numbers, drift: slope(state, inputs, weights, numbers)


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
    terms = _terms(field, level)

    def bracket(state: torch.Tensor, samples: Any) -> torch.Tensor:
        along_inner, along_outer = terms(state, samples)
        return along_inner - along_outer

    return bracket


def _terms(field: Field, level: int) -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
    """`JX_k·Z` and `JZ·X_k`."""
    inner = _bracket(field, level - 1)

    def terms(state: torch.Tensor, samples: Any) -> tuple[torch.Tensor, torch.Tensor]:
        outer = partial(_apply, field, samples[-1])
        before = partial(_swap, inner, samples[:-1])
        value, ahead = outer(state), before(state)
        return jvp(outer, (state,), (ahead,))[1], jvp(before, (state,), (value,))[1]

    return terms


def _with_size(field: Field, level: int) -> Field:
    """A bracket, and behind it the length of what it is the difference of."""
    if level == 0:
        plain = _bracket(field, 0)
        return lambda state, samples: _extend(plain(state, samples))
    terms = _terms(field, level)

    def sized(state: torch.Tensor, samples: Any) -> torch.Tensor:
        along_inner, along_outer = terms(state, samples)
        return torch.cat([along_inner - along_outer, (along_inner.norm() + along_outer.norm())[None]])

    return sized


def _extend(vector: torch.Tensor) -> torch.Tensor:
    return torch.cat([vector, vector.norm()[None]])


def _apply(field: Field, sample: Any, state: torch.Tensor) -> torch.Tensor:
    return field(state, *sample)


def _swap(field: Field, samples: Any, state: torch.Tensor) -> torch.Tensor:
    return field(state, samples)


def brackets(case: Probe, flow: Flow, state: torch.Tensor, level: int, count: int, seed: int) -> Floats:
    """Values of random brackets of a level at a state, one row each, of length 1 (or next to 0: one that vanishes)."""
    function = _with_size(_field(case, flow), level)
    samples = _samples(case, level, count, seed)
    try:
        with composite():
            rows = _map_brackets(function, state, samples, count).detach().numpy()
    except Exception as error:
        raise Unsupported(f"the module cannot be differentiated {level + 1} times: {first_line(error)}") from None
    if not np.isfinite(rows).all():
        raise Unsupported("a gradient of the module is not finite")
    rows, sizes = rows[:, :-1], rows[:, -1:]
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    typical = float(np.median(lengths))
    lengths = np.where(lengths > CANCELLED * sizes, lengths, sizes)
    return np.asarray(rows / np.maximum(lengths, 1e-12 * max(typical, 1e-300)))


def _map_brackets(function: Field, state: torch.Tensor, samples: Any, count: int) -> torch.Tensor:
    """All brackets at once, or one by one for modules that vmap does not cover."""
    try:
        return vmap(function, in_dims=(None, 0), chunk_size=CHUNK)(state, samples)
    except RuntimeError:
        rows = [function(state, [tuple(part[row] for part in sample) for sample in samples]) for row in range(count)]
        return torch.stack(rows)


def _samples(case: Probe, level: int, count: int, seed: int) -> list[tuple[torch.Tensor, ...]]:
    """Inputs, output weights, random numbers and drifts of `count` brackets, for each of their fields."""
    samples: list[tuple[torch.Tensor, ...]] = []
    for slot in range(level + 1):
        label = ((seed * 16 + level) * 16 + slot) * 2 + 1
        drift = torch.randn(count, generator=torch.Generator().manual_seed(label), dtype=torch.float64)
        samples.append((*case.draw(label, count), drift))
    return samples


def contradiction(case: Probe, flow: Flow, state: torch.Tensor, level: int, seed: int) -> float:
    """How far one bracket is from the same bracket by central differences, relative to its terms.

    Derivatives of the inner bracket and of the outer field are replaced by differences, so what is tested is the last
    differentiation; that of lower levels was tested before.
    """
    field = _field(case, flow)
    *inner, outer = [tuple(part[0] for part in sample) for sample in _samples(case, level, 1, seed)]
    with composite():
        first = partial(_apply, field, outer)
        second = partial(_swap, _bracket(field, level - 1), inner)
        ahead, value = second(state), first(state)
        exact = jvp(first, (state,), (ahead,))[1], jvp(second, (state,), (value,))[1]
        off = []
        for step in STEPS:
            parts = [_difference(first, state, ahead, step), _difference(second, state, value, step)]
            sizes = [
                float((bracket.norm() + other.norm()) + 1e-5 * at.norm() * along.norm() / state.norm())
                for bracket, other, at, along in zip(exact, parts, (value, ahead), (ahead, value), strict=True)
            ]
            off.append(
                max(
                    float((bracket - other).norm()) / size if size else 0.0
                    for bracket, other, size in zip(exact, parts, sizes, strict=True)
                )
            )
            if off[-1] < AGREEMENT:
                break
    return min(off)


def _difference(
    function: Callable[[torch.Tensor], torch.Tensor], state: torch.Tensor, direction: torch.Tensor, step: float
) -> torch.Tensor:
    length = float(direction.norm())
    if length == 0:
        return torch.zeros_like(state)
    move = direction * (step * float(state.norm()) / length)
    return (function(state + move) - function(state - move)) * (length / (2 * step * float(state.norm())))
