"""What a function tells about the parameters that made it: decided in rationals, with a witness for each neuron.

Near a point where a first-layer hyperplane crosses the zero set of one second-layer neuron, and nothing else, the
function bends along four facets: the hyperplane goes straight through, the other two make an angle. Two bent
hyperplanes of the same layer would both go straight, so in every generic parameter of this function (P4 Definition 8)
the straight one is a first-layer hyperplane; and the other facets show its orientation, for only where the neuron is
active do they lean on its direction (P4 Lemma 18, E.1). One such ridge fixes the neuron.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import flint
import numpy as np
from numpy.typing import NDArray

from lawful.fibers.layers import Array, Stack, rational, zeros_like
from lawful.types import Floats

# Ranks, modulo a prime and exact, and all pairs of matrices with one product, near a given pair.

PRIME = 8_388_593
Integers = NDArray[np.int64]


def residues(values: Array) -> Integers:
    """Floats, which are integers over powers of two, modulo the prime."""
    ratios = [float(value).as_integer_ratio() for value in values.ravel()]
    images = [top * pow(bottom, -1, PRIME) % PRIME for top, bottom in ratios]
    return np.array(images, dtype=np.int64).reshape(values.shape)


def nearby_factorisations(outer: Array, inner: Array) -> int:
    """The dimension of `{(U, V) : U V = A}` near a given pair of rational matrices, at singular pairs too.

    Sort by `p = rank U`: U spans a p-dimensional space that holds the columns of A, V is then free in the kernel of U,
    so there are `(p − ρ)(m − p) + kp + (k − p)n` dimensions, ρ the rank of A. Nearby ranks p go from that of U to
    `k + ρ − rank V` (at most m): basis vectors that V does not reach and U does not send may be sent anywhere.

    >>> from lawful.fibers.layers import rational
    >>> one, none = rational(np.array([[1.0]])), rational(np.array([[0.0]]))
    >>> nearby_factorisations(one, one), nearby_factorisations(none, none)
    (1, 1)
    """
    (outputs, middle), inputs = outer.shape, inner.shape[1]
    product = outer @ inner if middle else zeros_like(outer, (outputs, inputs))
    least, reached, rank = rank_of(outer), rank_of(inner), rank_of(product)
    ranks = range(least, min(outputs, middle + rank - reached) + 1)
    largest: int = max((p - rank) * (outputs - p) + middle * p + (middle - p) * inputs for p in ranks)
    return largest


def modulo(rows: Array, fixed: Array) -> Array:
    """Rows modulo the span of others: their coordinates outside the pivots of the echelon form of `fixed`."""
    if not len(fixed):
        return rows
    echelon, rank = flint.fmpq_mat([list(row) for row in fixed]).rref()
    basis = np.array(echelon.tolist(), dtype=object).reshape(fixed.shape)[:rank]
    pivots = [next(k for k, item in enumerate(row) if item != 0) for row in basis]
    left = rows - (rows[:, pivots] @ basis if rank else 0)
    return np.delete(left, pivots, axis=1)


TRIES = 400  # points looked at for each neuron
MERSENNE = 2**61 - 1
MOST_SUBSETS = 40  # neurons among which all subsets are judged, by halves
MOST_LOOKED = 100_000  # sums that agree modulo the prime and are added up in rationals


@dataclass(frozen=True)
class RidgeWitness:
    """First-layer values at a point where hyperplane `first` and second-layer neuron `second` vanish and no other."""

    first: int
    second: int
    values: tuple[Any, ...]


def rank_of(matrix: Array) -> int:
    """The exact rank of a matrix of rationals."""
    if not matrix.size:
        return 0
    full: int = min(matrix.shape)
    image = _image(matrix)
    if image is not None and image.rank() == full:  # no rank falls from a prime to the rationals
        return full
    rank: int = flint.fmpq_mat([list(row) for row in matrix]).rank()
    return rank


def _image(matrix: Array) -> Any:
    """A matrix of rationals modulo the prime, or None if that divides a denominator.

    Elimination of floats as rationals doubles their digits from row to row: what is settled here need not be there.
    """
    try:
        rows = [[int(item.p) * pow(int(item.q), -1, MERSENNE) % MERSENNE for item in row] for row in matrix]
    except ValueError:
        return None
    return flint.nmod_mat(*matrix.shape, [item for row in rows for item in row], MERSENNE)


def ridge_witness(stack: Stack, neuron: int, seed: int = 0) -> RidgeWitness | None:
    """A ridge that fixes a first-layer neuron of a three-layer ReLU network whose first weights have full rank.

    Random points in floats propose; what they say is checked in rationals.
    """
    floats, exact = stack.floating(), stack.rational()
    rng = np.random.default_rng([seed, neuron])
    second, shift = floats.weights[1], floats.biases[1]
    count, others = second.shape[1], np.delete(np.arange(second.shape[1]), neuron)
    if not len(others):
        return None
    for attempt in range(TRIES):
        row = int(rng.integers(len(second))) if attempt >= len(second) else attempt
        if second[row, neuron] == 0:
            continue
        values = np.zeros(count)
        with np.errstate(divide="ignore", invalid="ignore"):
            units = np.abs(shift[row] / second[row, others])
        units = np.where(np.isfinite(units) & (units > 0), units, 1.0)
        chosen = rng.random(len(others)) < rng.choice([0.3, 0.6, 1.0])
        values[others] = np.where(chosen, units * np.exp(rng.normal(size=len(others))), -units)
        if (witness := _on_ridge(exact, neuron, row, values)) is not None:
            return witness
    return None


def _on_ridge(exact: Stack, neuron: int, row: int, values: Floats) -> RidgeWitness | None:
    """Move first-layer values onto the zero set of a second-layer neuron, and check that they prove it."""
    point = rational(values)
    above = np.array([item if item > 0 else flint.fmpq(0) for item in point], dtype=object)
    weights, shift, outs = exact.weights[1], exact.biases[1], exact.weights[2]
    terms = weights[row] * above
    target = -shift[row]
    helpful = [k for k, term in enumerate(terms) if term != 0 and (term > 0) == _wants_positive(target, terms)]
    rest = sum((terms[k] for k in range(len(terms)) if k not in helpful), flint.fmpq(0))
    gain = sum((terms[k] for k in helpful), flint.fmpq(0))
    if gain == 0 or (target - rest) / gain <= 0:
        return None
    for k in helpful:
        point[k] = point[k] * (target - rest) / gain
        above[k] = point[k]
    sums = weights @ above + shift
    if sums[row] != 0 or any(value == 0 for j, value in enumerate(sums) if j != row):
        return None
    active = [j for j, value in enumerate(sums) if value > 0]
    jump = sum((outs[:, j] * weights[j, neuron] for j in active), outs[:, 0] * 0)
    jumps = jump, jump + outs[:, row] * weights[row, neuron], outs[:, row]
    if not all(any(item != 0 for item in one) for one in jumps):
        return None
    return RidgeWitness(neuron, row, tuple(point))


def _wants_positive(target: Any, terms: Array) -> bool:
    """Whether growing the positive terms leads to the target."""
    return bool(target > 0) if target != 0 else any(term > 0 for term in terms)


def balanced_subset(terms: Sequence[Array]) -> tuple[int, ...] | None:
    """Terms (rational vectors) that add up to zero: their numbers, empty if there are none, None if not decided."""
    if not len(terms):
        return ()
    subsets = subsets_with_sum(terms, terms[0] * 0, 2)
    return None if subsets is None else next((some for some in subsets if some), ())


def subsets_with_sum(terms: Sequence[Array], goal: Array, most: int) -> list[tuple[int, ...]] | None:
    """The sets of terms (rational vectors) that add up to a goal, at most so many; None if they are not decided.

    Independent terms reach a goal in one way at most, which is solved for. Otherwise the sums of one half are looked up
    among those of the other, modulo a prime: what does not vanish there does not vanish.
    """
    if not len(terms):
        return [()] if not any(goal) else []
    table = np.array(list(terms), dtype=object)
    image = _image(np.vstack([table, goal]).T)
    only = None if image is None else _only_subset(image, table, goal)
    if only is not None:
        return only
    if len(terms) > MOST_SUBSETS:
        return None
    keys, wanted = _keys([*terms, goal])[:-1], _keys([*terms, goal])[-1]
    half = len(keys) // 2
    left, right = _subset_sums(keys[:half]), _subset_sums(keys[half:])
    order = np.argsort(left, kind="stable")
    needed = (wanted - right) % MERSENNE
    starts, ends = (np.searchsorted(left[order], needed, side=side) for side in ("left", "right"))
    subsets: list[tuple[int, ...]] = []
    looked = 0
    for hit in np.flatnonzero(ends > starts):
        for place in order[starts[hit] : ends[hit]]:
            chosen = [k for k in range(half) if place >> k & 1]
            chosen += [half + k for k in range(len(keys) - half) if hit >> k & 1]
            looked += 1
            if looked > MOST_LOOKED:
                return None
            if not any(sum((terms[k] for k in chosen), goal * 0) - goal):
                subsets.append(tuple(chosen))
                if len(subsets) >= most:
                    return subsets
    return subsets


def _only_subset(image: Any, table: Array, goal: Array) -> list[tuple[int, ...]] | None:
    """The one set of terms that makes the goal, or none, if terms are independent modulo the prime.

    They are independent rationals then, and a set that makes the goal makes it modulo the prime, where there is one
    solution at most: solved for there, and added up exactly. `image` holds terms and goal as columns.
    """
    count = len(table)
    solved, rank = image.rref()
    if rank < count or not all(int(solved[k, k]) for k in range(count)):
        return None
    factors = [int(solved[k, count]) for k in range(count)]
    if rank > count or any(factor not in (0, 1) for factor in factors):
        return []
    subset = tuple(k for k, factor in enumerate(factors) if factor)
    return [] if any(sum((table[k] for k in subset), goal * 0) - goal) else [subset]


def _keys(terms: Sequence[Array]) -> Any:
    """One residue for every term: a random combination of its entries modulo the prime."""
    rng = np.random.default_rng(len(terms))
    factors = [int(value) for value in rng.integers(1, MERSENNE, size=len(terms[0]))]
    keys = []
    for term in terms:
        total = sum(
            factor * int(item.p) * pow(int(item.q), -1, MERSENNE) for factor, item in zip(factors, term, strict=True)
        )
        keys.append(total % MERSENNE)
    return keys


def _subset_sums(keys: Sequence[int]) -> Any:
    """All sums of subsets, in the order of their bits."""
    sums = np.zeros(1, dtype=np.int64)
    for key in keys:
        sums = np.concatenate([sums, (sums + key) % MERSENNE])
    return sums
