"""Regression tasks whose bottleneck rank is known: compositions of random networks (P3 Appendix B)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from lawful.errors import LawfulError
from lawful.types import Floats


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
