"""How many directions a family of fields reaches with its iterated Lie brackets (P1 Lemma 3.2).

Idea: training moves along the fields X of a family, and a law is constant along all of them, so also along their
brackets [X, Y]. At a generic point the dimension of what brackets span is D less the number of independent laws.
P1 multiplies symbolic vector fields; here each bracket is *evaluated*, at one random point modulo a prime p, by
nested dual numbers, and only its value enters a matrix whose rank is found exactly.

What is proved: a rank modulo p at one point is never larger than the rank over the rationals at a generic point, so
that the number of laws is at most D − rank. The other side comes from explicit laws; where both meet, the count is
complete. A rank that is too small by bad luck therefore costs a proof and never makes a false one.

Cost: level k evaluates 4^k nested derivatives of a network for every bracket, and the rank of an n × D matrix is
O(n D²) products in BLAS (`exact/elimination.py`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from lawful.conservation.fields.gradient import Family
from lawful.errors import Unsupported
from lawful.exact import Dual, rank, residues
from lawful.types import Residues

POINT = 2**32  # label of the random point; levels of brackets are labelled 0, 1, 2, ...
# Samples beyond the directions that are missing. If the span has r more dimensions, r + 4 random elements of it miss
# one of them only if all lie in a common hyperplane of that quotient: there are about p^r / p such hyperplanes, each
# holding r + 4 random elements with probability p^-(r + 4), so about p^-5 in all; p is near 2^23.
SPARE = 4
CHUNK = 1_000_000  # numbers of a batch of brackets: a few tens of megabytes with their derivatives
MOST_WORK = 4e9  # numbers in the nested derivatives of one level: beyond it the search ends without an answer
Watch = Callable[[str, int, int], None]


@dataclass(frozen=True, eq=False)
class Closure:
    """Dimensions `dim V_0 ≤ dim V_1 ≤ …` at a point, and how many brackets were sampled at each level."""

    dimensions: tuple[int, ...]
    rows: tuple[int, ...]
    point: Residues
    stagnated: bool


def close(family: Family, at_most: int, progress: Watch | None = None, max_level: int = 12) -> Closure:
    """`V_0 = V`, `V_k = V_{k−1} + [V_0, V_{k−1}]` at a random point, until the dimension stagnates or is `at_most`.

    `at_most` is a dimension that no closure can exceed, for example D less the number of known independent laws:
    reaching it ends the work at once.
    """
    refuse_if_too_large(family.size)
    point = residues(family.seed, (POINT,), [0], family.size, family.prime)[0]
    basis = np.zeros((0, family.size), dtype=np.int64)
    dimensions: list[int] = []
    rows: list[int] = []
    while len(dimensions) <= max_level:
        before = dimensions[-1] if dimensions else 0
        count = at_most - before + SPARE
        if dimensions and float(count) * family.size * 4.0 ** len(dimensions) > MOST_WORK:
            break
        fresh = brackets(family, point, len(dimensions), count, progress)
        basis = np.concatenate([basis, fresh])
        dimensions.append(rank(basis, family.prime))
        rows.append(count)
        if dimensions[-1] == before or dimensions[-1] >= at_most:
            return Closure(tuple(dimensions), tuple(rows), point, dimensions[-1] == before)
    return Closure(tuple(dimensions), tuple(rows), point, False)


def brackets(family: Family, point: Residues, level: int, count: int, progress: Watch | None = None) -> Residues:
    """Values at the point (a row each) of `count` random brackets `[X_k, [X_{k−1}, … [X_1, X_0]]]`, k = level."""
    wide = max(1, CHUNK // (family.size * 4**level))
    values = np.empty((count, family.size), dtype=np.int64)
    for start in range(0, count, wide):
        rows = np.arange(start, min(start + wide, count))
        samples = [family.draw((level, slot), rows) for slot in range(level + 1)]
        state = Dual.constant(np.repeat(point[:, None], len(rows), axis=1), family.prime)
        values[rows] = _bracket(family, state, samples).real.T
        if progress is not None:
            progress(f"brackets of level {level}", len(rows) + start, count)
    return values


def _bracket(family: Family, state: Dual, samples: list[Residues]) -> Dual:
    """`[X, Z] = JX·Z − JZ·X` with X the last sample and Z the bracket of the ones before it."""
    if len(samples) == 1:
        return family.field(state, samples[0])
    inner = _bracket(family, state, samples[:-1])
    outer = family.field(state.moved_along(inner), samples[-1])
    moved = _bracket(family, state.moved_along(outer.base()), samples[:-1])
    return outer.derivative() - moved.derivative()


def _memory() -> int:
    """Bytes of this machine; Windows does not say, and is taken to have 8 GB."""
    if not hasattr(os, "sysconf"):
        return 8 * 2**30
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def fits(size: int) -> bool:
    """Whether the matrix of brackets and its copy fit in half of the memory."""
    return _rows_needed(size) <= _memory() // 2


def refuse_if_too_large(size: int) -> None:
    """Raise before allocating when the matrix of brackets and its copy cannot fit in memory."""
    if not fits(size):
        raise Unsupported(
            f"{size:,} state variables need about {_rows_needed(size) / 1e9:.3g} GB for the rank, "
            f"more than half of the {_memory() / 1e9:.3g} GB of this machine"
        )


def _rows_needed(size: int) -> int:
    return 40 * size**2  # the brackets as int64, a float64 copy to eliminate, temporaries
