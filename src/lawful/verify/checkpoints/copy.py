"""That the numbers of one checkpoint are those of another, moved, scaled and mixed as listed.

The certificate lists folds (a gain into the layer that reads it, a BatchNorm into the layer before it, a bias of values
into the output of attention), then for every axis of every tensor of B a permutation, factors and matrices, then
constants that are added. All of it is carried out here on the tensors of the two files in float64, and each entry is
compared, one cluster of tensors that folds join after the other. What is left has to be no more than rounding of the
stored numbers explains. Every matrix has to be orthogonal or the inverse transposed of another one. That what is listed
leaves the function alone is a statement about the architecture, which is not in the files: it is not checked here, and
the statement says so.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from lawful.errors import CertificateError
from lawful.verify.checkpoints.element import (
    ListedFrame,
    RowFactors,
    act,
    acted_on,
    as_it_is,
    factors_of_rows,
    moves_only,
    need_partners,
    nonzero_after,
    own_numbers,
    read_frames,
    read_matrices,
    read_shifts,
    spread,
    terms_of,
)
from lawful.verify.checkpoints.files import FormTensors, check_settings, need_one_reading, read_sources
from lawful.verify.checkpoints.folds import NAMES, Fold, FoldedTensors, clusters, name_of, read_folds
from lawful.verify.core.checkpoint import Array, survey
from lawful.verify.core.finding import Finding
from lawful.verify.core.schema import extend_time_limit, items, object_with_keys, require
from lawful.verify.relational.prove import prove

ULP = 2.0**-53
CHAIN = 8  # roundings of one entry besides those of its sums
SECONDS = 2e-6  # that a number of the files may take; each axis is mixed once, so it is their size that counts
SLAB = 2**24  # numbers that are compared together
# What rounding may leave. A stored number is x (1 + δ) with |δ| <= u, so a line Σ c x is off by Σ c x δ. For
# independent roundings Hoeffding's bound gives P(|Σ c x δ| > t u ‖c x‖) <= 2 exp(−t²/2), below 3e-34 at t = 12.5:
# among 10^10 lines no honest one is refused. Larger differences are refused, smaller ones are *stated*: the
# sentence has the largest share that was found, and no threshold turns a difference into an equality.
EXPLAINED = 12.5
# All lines of a tensor together: matrices that keep lengths leave at most u ‖x‖ on each side for certain (t = 1); twice
# that where the writer rounded once more when it stored the result, and a half for the arithmetic of the alignment.
WHOLE = 2.5
# The least unit: an alignment is found and applied in float64, with up to 2^9 roundings for a number (a product with a
# matrix of up to 2^18 rows errs like the root of its length), so that 2^-53 itself is not reached.
WORKED = 2.0**-44
TINY = 2.0**-500  # of the largest number: the square of less is none
# Sizes of entries are known to 2^-53 of themselves down to 2^-1022, where doubles lose bits and vanish; the rest is
# for sums and products on the way.
LEAST_SIZE = 2.0**-1000
OTHER = "a tensor that is said to be moved only is another one"
# What two ways of adding up the same numbers may differ by: sums of n terms in float64 err by n 2^-53 of the sum of
# sizes, which is below this up to 9 million terms.
CONSISTENT = 1e-9


def check(body: Mapping[str, Any], files: Sequence[Mapping[str, Array]]) -> Finding:
    """Check the certificate against the tensors of two files, by their names there; each is asked for when needed."""
    parts = object_with_keys(
        dict(body), "certificate", "tensors folds matrices frames shifts moved", optional="settings program"
    )
    if len(files) != 2:
        raise CertificateError("it is about the numbers of two checkpoints: give both files, A and then B")
    settings = check_settings(parts.get("settings"), files)
    (digest_one, stored_one), (digest_two, stored_two) = (survey(file) for file in files)
    digests = digest_one, digest_two
    sources = read_sources(parts["tensors"])
    need_one_reading(sources, stored_one, stored_two)
    numbers = sum(math.prod(shape) for stored in (stored_one, stored_two) for shape in stored.values())
    extend_time_limit(SECONDS * numbers)
    first, second = (
        FormTensors(file, stored, {name: pair[place] for name, pair in sources.items()})
        for place, (file, stored) in enumerate(zip(files, (stored_one, stored_two), strict=True))
    )
    require(first.shapes == second.shapes, "tensors of A and B are of different sizes")
    shapes = second.shapes
    folds = read_folds(parts["folds"], shapes)
    matrices, partners, off, forms = read_matrices(parts["matrices"], numbers)
    frames = read_frames(parts["frames"], matrices, partners, shapes)
    shifts = read_shifts(parts["shifts"], shapes)
    moved_only = {name_of(item, shapes, "moved") for item in items(parts["moved"], "moved", most=1_000_000)}
    comparison = _Comparison(frames, shifts, moved_only)
    for names, joining in clusters(shapes, folds):
        one, two = ({name: item.make(name) for name in names} for item in (first, second))
        comparison.compare(one, two, joining)
    need_partners(frames, matrices, partners, comparison.mixed)
    alone = own_numbers(shifts, shapes, first.constants | second.constants, comparison.factors)
    told = comparison.left(alone)
    require(told > 0, "nothing that is listed is compared")
    proof = None
    if "program" in parts:

        def held(name: str) -> tuple[Array, Array]:
            return first.make(name), second.make(name)

        proof = prove(parts["program"], shapes, folds, frames, shifts, forms, held)
    sources_of = [source for _, *pair in parts["tensors"] for source in pair if isinstance(source, dict)]
    renamed = [(name, [one for one in pair if isinstance(one, str) and one != name]) for name, pair in sources.items()]
    facts = {
        "tensors": len(shapes), "numbers": comparison.total, "told": told, "moved_only": comparison.exact,
        "entry": comparison.worst, "tensor": comparison.where, "relative": comparison.furthest,
        "folds": len(folds), "fold_kinds": Counter(NAMES[type(fold)] for fold in folds),
        "matrices": len(matrices), "inverse": off,
        "constants": sum(piece.size for pieces in shifts.values() for piece in pieces), "shifted": len(shifts),
        "own": sum(alone.values()), "own_in": [name for name, count in alone.items() if count],
        "joined": sum("parts" in source for source in sources_of),
        "made": sum("constant" in source for source in sources_of),
        "renamed": [f"{name} = {' and '.join(dict.fromkeys(others))}" for name, others in renamed if others],
        "far": comparison.apart, "epsilon": comparison.epsilon, "means": comparison.means,
        "dropped": sum(comparison.dropped.values()),
        "dropped_in": [name for name, count in comparison.dropped.items() if count],
        "settings": settings, "whole": _whole_numbers_apart(files),
        "function": proof is not None and not proof.open,
        "program": None if proof is None else proof.digest, "proof": proof and proof._asdict(),
    }  # fmt: skip
    return Finding(facts, digests)


def _whole_numbers_apart(files: Sequence[Any]) -> list[str]:
    """Tensors that are no floating-point numbers, and are not the same in both files."""
    one, two = (getattr(file, "others", {}) for file in files)
    return [name for name in sorted({*one, *two}) if one.get(name) != two.get(name)]


class _Comparison:
    """What was found so far: how many numbers, how many of them merely moved, and the largest differences."""

    def __init__(
        self, frames: Mapping[str, list[ListedFrame]], shifts: Mapping[str, list[Array]], moved_only: set[str]
    ) -> None:
        self.frames, self.shifts, self.moved_only = frames, shifts, moved_only
        self.total, self.exact, self.worst, self.where, self.furthest = 0, 0, 0.0, "", 0.0
        self.dropped: dict[str, int] = {}
        self.means, self.epsilon, self.apart = 0, 0.0, 0
        self.mixed: dict[int, int] = {}  # on how many numbers other than zero each matrix acts
        self.factors: dict[str, RowFactors] = {}

    def left(self, own: Mapping[str, int]) -> int:
        """How many numbers are told: not those that were left out, nor means, nor what has a number of its own, nor
        entries that are off by half of their terms, however small these are beside others of their line."""
        return self.total - sum(self.dropped.values()) - self.means - sum(own.values()) - self.apart

    def compare(self, one: dict[str, Array], two: dict[str, Array], folds: list[Fold]) -> None:
        """The tensors of one cluster, as they are stored in A and B."""
        first, second = FoldedTensors(one, folds), FoldedTensors(two, folds)
        for name in {*first.dropped, *second.dropped}:
            self.dropped[name] = max(state.dropped.get(name, 0) for state in (first, second))
        self.means += max(first.means, second.means)
        self.epsilon = max(self.epsilon, first.epsilon)
        for name in list(one):
            terms = first.terms[name] + second.terms[name] + terms_of(self.frames.get(name, []))
            six = (one, two, first.state, second.state, first.sizes, second.sizes)
            self._entries(name, [state.pop(name) for state in six], terms)

    def _entries(self, name: str, six: list[Array], terms: int) -> None:
        """One tensor of both: as stored, after folds, and the sizes of its terms."""
        self.total += six[0].size
        by = self.frames.get(name, [])
        # Products are rounded, but for powers of two: only what keeps its digits is equal "exactly".
        plain = name in self.moved_only and name not in self.shifts
        require(not plain or moves_only(six[1], by), OTHER)
        share, off, length, vanishing = 0.0, 0.0, 0.0, False
        far = f"the numbers of {name} are too far apart to be compared"
        kinds = {(kind, side) for kind in range(len(STORED)) for side in (0, 1)} if plain else set()
        # near 1 no square is too large or too small
        exponent = max(int(np.frexp(size.max(initial=0.0))[1]) for size in six[4:])
        lines = _Lines(by, name in self.shifts, six[0], six[1], exponent)
        self.factors[name] = factors_of_rows(six[3], by)
        for number, count in acted_on(six[3], by):
            self.mixed[number] = self.mixed.get(number, 0) + count
        for along, where in _slabs(six[0].shape, by):
            raw_one, raw_two, *folded = (_cut(array, along, where) for array in six)
            one, two, size, mixed = (np.ldexp(array, -exponent) for array in folded)
            sizes, turned = np.maximum(act(mixed, by, absolute=True), size), act(two, by)
            for piece in self.shifts.get(name, ()):
                part = np.ldexp(_cut(piece, along, where), -exponent)
                turned, sizes = turned + part, sizes + np.abs(part)
            nonzero = (folded[2] != 0) | nonzero_after(folded[3], by)
            vanishing = vanishing or bool((sizes[nonzero] < LEAST_SIZE).any())
            gap = np.abs(turned - one)
            require(bool(np.isfinite(gap).all()), "an entry is not finite")
            require(not bool((gap[sizes == 0] > 0).any()), "an entry differs where nothing was added up")
            self.apart += int(np.count_nonzero(gap > sizes / 2))
            share = max(share, float((gap / np.where(sizes > 0, sizes, 1.0)).max(initial=0.0)))
            if not plain:
                require(not bool(((gap > 0) & (gap < TINY)).any()), far)
                lines.add(gap, size, spread(mixed**2, by), along)
            off, length = math.hypot(off, float(np.linalg.norm(gap))), math.hypot(length, float(np.linalg.norm(one)))
            if kinds:
                pair = raw_one, act(raw_two, by)
                kinds = {(kind, side) for kind, side in kinds if _stored_in(STORED[kind], pair[side], pair[1 - side])}
        require(not plain or bool(kinds), OTHER)
        require(not vanishing or (0, 0) in kinds, far)
        require(lines.is_explained(), f"{name} differs by more than rounding of its numbers explains")
        require(lines.tells(), f"{name} is mixed so that rounding of its numbers explains any others")
        share += 4 * (terms + CHAIN) * ULP
        if (0, 0) in kinds:
            require(share < CONSISTENT, "what is folded into a tensor was not moved with it")
            self.exact += six[0].size
            return
        self.furthest = max(self.furthest, off / length if length else 0.0)
        if share > self.worst:
            self.worst, self.where = share, name


class _Lines:
    """Squares of differences and of terms, added up along axes that are rotated (all axes if constants were added).

    Independent roundings of stored numbers make no more of a line than a few units times the root of its squared terms,
    and of all lines together fewer: a unit if every rounding is as large as can be. Where matrices that are no
    rotations make that more than there is, nothing is told. All numbers are taken times 2 to the power −`exponent`.
    """

    def __init__(self, by: list[ListedFrame], shifted: bool, one: Array, two: Array, exponent: int) -> None:
        self.together = (
            range(one.ndim) if shifted else sorted({d for frame in by if frame.rotations for d in frame.dims})
        )
        units = [_unit(stored) for stored in (one, two)]
        self.unit = max(WORKED, *(unit for unit, _ in units))
        self.least = math.ldexp(max(least for _, least in units), -exponent)
        self.stretched = any(len(frame.rotations) < len(frame.blocks) for frame in by)
        self.whole: list[list[Array]] = []
        self.apart = True

    def add(self, gap: Array, first: Array, second: Array, along: int) -> None:
        """A slab: differences, sizes of the terms of A, squares of those of B after they were moved."""
        axes = tuple(self.together)
        floor = self.least**2
        three = [np.sum(squares, axis=axes) for squares in (gap**2, first**2 + floor, second + floor)]
        self.whole.append(three)
        self.apart = self.apart and along not in axes

    def is_explained(self) -> bool:
        """Whether no line, nor the whole tensor, is further off than that."""
        if not self.whole:
            return True
        slabs = self.whole if self.apart else [[np.sum(sums, axis=0) for sums in zip(*self.whole, strict=True)]]
        return self._within(WHOLE, self._together()) and all(self._within(EXPLAINED, slab) for slab in slabs)

    def tells(self) -> bool:
        """Whether zeros would be told from the numbers of A."""
        gap, first, second = map(math.sqrt, self._together() if self.whole else (0.0, 0.0, 0.0))
        return not self.stretched or not gap or WHOLE * self.unit * second < first

    def _together(self) -> list[Array]:
        return [np.array(sum(float(np.sum(slab[number])) for slab in self.whole)) for number in range(3)]

    def _within(self, units: float, squares: list[Array]) -> bool:
        gap, first, second = map(np.sqrt, squares)
        room = units * self.unit * (first + second)
        return bool(((gap <= room) & np.isfinite(room)).all())  # squares beyond doubles leave room for anything


def _unit(values: Array) -> tuple[float, float]:
    """The rounding and the smallest normal number of the coarsest type that holds all of some numbers."""
    single = _single(values)
    if not np.array_equal(single, values):
        return 2.0**-53, 2.0**-1022
    if not bool((np.ascontiguousarray(single).view(np.uint32) & 0xFFFF).any()):
        return 2.0**-8, 2.0**-126
    return (2.0**-11, 2.0**-14) if np.array_equal(_half(values), values) else (2.0**-24, 2.0**-126)


def _slabs(shape: tuple[int, ...], by: list[ListedFrame]) -> Iterator[tuple[int, slice]]:
    """Parts of a large tensor along a dimension that nothing acts on."""
    still = set(range(len(shape))) - {d for frame in by for d in frame.dims}
    parts = -(-math.prod(shape) // SLAB)
    if parts < 2 or not still:
        yield 0, slice(None)
        return
    along = max(still, key=lambda d: shape[d])
    step = -(-shape[along] // parts)
    for start in range(0, shape[along], step):
        yield along, slice(start, start + step)


def _cut(array: Array, along: int, where: slice) -> Array:
    """A part along one dimension, unless it is of size 1 there."""
    if where == slice(None) or array.shape[along] == 1:
        return array
    places: list[Any] = [slice(None)] * array.ndim
    places[along] = where
    part: Array = array[tuple(places)]
    return part


def _single(values: Array) -> np.ndarray[Any, Any]:
    with np.errstate(over="ignore"):
        return values.astype(np.float32)


def _half(values: Array) -> np.ndarray[Any, Any]:
    with np.errstate(over="ignore"):
        return values.astype(np.float16)


def _bfloat16(values: Array) -> np.ndarray[Any, Any]:
    bits = np.ascontiguousarray(_single(values)).view(np.uint32).astype(np.uint64)
    return ((((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) << 16) & 0xFFFFFFFF).astype(np.uint32).view(np.float32)


STORED = (as_it_is, _single, _half, _bfloat16)  # in what numbers that were merely moved may be stored


def _stored_in(kind: Callable[[Array], np.ndarray[Any, Any]], coarse: Array, fine: Array) -> bool:
    """Whether numbers are others, rounded to a type that holds them."""
    return np.array_equal(kind(fine), coarse)
