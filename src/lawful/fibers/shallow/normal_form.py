"""The unique normal form of one hidden layer: affine map plus one ReLU for every hyperplane (P4 Section 4.1).

Idea: neurons whose rows `(w, b)` are proportional bend at one hyperplane; `σ(-z) = σ(z) - z` turns all of them to one
side and leaves an affine part, so that a hyperplane has one jump, which is a sum. Invariant: the function stays the
same, and on a domain that every hyperplane meets it determines all that is left (P4 Lemma 2). Cost: one grouping of
the rows and one sum a neuron; in rationals nothing is rounded, in floats entries are equal within a tolerance.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import flint
import numpy as np

from lawful.errors import Unsupported
from lawful.fibers.layers import Array, Stack, floating, rational, zeros_like
from lawful.fibers.regions.domain import Domain
from lawful.fibers.row_matching import entry_gap, nearest_order
from lawful.network import Mlp
from lawful.types import Floats

SIGN_FLOOR = 1e-9  # entries below this share of the largest one do not choose the sign of a hyperplane
CLEAR_OF_A_CORNER = 1 + 2.0**-10  # a linear neuron on a box stays positive there, also after rounding


class Kind(StrEnum):
    """What a hidden neuron does on the domain (P4 Definition 21 and C.2)."""

    DEAD = "dead"
    LINEAR = "linear"
    VISIBLE = "visible"
    CANCELLING = "cancelling"


@dataclass(frozen=True)
class HyperplaneGroup:
    """Neurons on one hyperplane; neuron i has the row `factors[i] · hyperplane`."""

    hyperplane: Array
    neurons: tuple[int, ...]
    factors: tuple[Any, ...]
    jump: Array
    scale: Floats


@dataclass(frozen=True)
class NormalForm:
    """`f(x) = matrix x + offset + Σ_H jump_H relu(H·(x, 1))`, one term per hyperplane (P4 Lemma 2).

    Two networks with one hidden layer are the same function on the domain exactly if their normal forms agree.
    A cancelling group has jump 0. The weights of a row H have absolute values that sum to 1, the first is positive.
    """

    domain: Domain
    groups: tuple[HyperplaneGroup, ...]
    matrix: Array
    offset: Array
    matrix_scale: Floats
    offset_scale: Floats
    kinds: tuple[Kind, ...]
    tolerance: float

    @property
    def visible(self) -> tuple[HyperplaneGroup, ...]:
        """The hyperplanes where the function bends."""
        return tuple(group for group in self.groups if not _negligible(group.jump, group.scale, self.tolerance))

    @property
    def residual(self) -> float:
        """The largest jump or affine coefficient, relative to the terms it sums: 0 for the zero function."""
        parts = [(group.jump, group.scale) for group in self.groups]
        parts += [(self.matrix, self.matrix_scale), (self.offset, self.offset_scale)]
        return max((_relative(value, scale) for value, scale in parts), default=0.0)


def normal_form(network: Mlp | Stack, domain: Domain | None = None, *, tolerance: float = 1e-10) -> NormalForm:
    """The normal form of a network with one hidden layer, for any parameters, generic or not.

    `tolerance = 0` means exact rational arithmetic. Without a domain: all of R^d.

    >>> form = normal_form(Mlp([[[1.0], [-2.0], [1.0]], [[1.0, 1.0, -1.0]]], [[0.0, 0.0, 5.0], None]), tolerance=0)
    >>> [str(kind) for kind in form.kinds], len(form.visible)
    (['visible', 'visible', 'visible'], 2)
    >>> form.matrix, form.visible[0].jump
    (array([[-2]], dtype=object), array([3], dtype=object))
    """
    stack = network if isinstance(network, Stack) else Stack.of(network)
    stack = stack.rational() if tolerance == 0 else stack
    return form_of_rows(*shallow_parts(stack), domain, tolerance)


def difference_form(first: Stack, second: Stack, domain: Domain | None, tolerance: float) -> NormalForm:
    """The normal form of `first − second`: zero exactly if they are the same function on the domain."""
    exact = tolerance == 0
    first, second = (stack.rational() if exact else stack.floating() for stack in (first, second))
    ours, theirs = shallow_parts(first), shallow_parts(second)
    rows, slopes = np.concatenate([ours[0], theirs[0]]), np.concatenate([ours[3], theirs[3]])
    outs = np.concatenate([ours[1], -theirs[1]], axis=1)
    return form_of_rows(rows, outs, ours[2] - theirs[2], slopes, domain, tolerance)


def form_gap(first: NormalForm, second: NormalForm) -> tuple[float, tuple[tuple[tuple[int, int], ...], ...]]:
    """How far two exact normal forms differ, entry by entry relative to the smaller; and the neurons on one hyperplane.

    A group lists (0 or 1 for the form, neuron); a hyperplane that only one form has must cancel. Infinite if one does
    not, or if an entry is zero in one form alone.
    """
    groups: list[tuple[tuple[int, int], ...]] = []
    for side, form in enumerate((first, second)):
        groups += [
            tuple((side, neuron) for neuron in group.neurons)
            for group in form.groups
            if all(item == 0 for item in group.jump)
        ]
    ours, theirs = first.visible, second.visible
    if len(ours) != len(theirs):
        return np.inf, ()
    gap = max(entry_gap(first.matrix, second.matrix), entry_gap(first.offset, second.offset))
    if ours:
        mine, yours = (floating(np.array([group.hyperplane for group in part])) for part in (ours, theirs))
        for group, place in zip(ours, nearest_order(mine, yours), strict=True):
            other = theirs[place]
            gap = max(gap, entry_gap(group.hyperplane, other.hyperplane), entry_gap(group.jump, other.jump))
            groups.append((*((0, neuron) for neuron in group.neurons), *((1, neuron) for neuron in other.neurons)))
    return gap, tuple(groups)


def shallow_parts(stack: Stack) -> tuple[Array, Array, Array, Floats]:
    """Hidden rows `[w | b]`, output weights, affine part `[W | b]` and slopes of a network with at most one layer."""
    if stack.hidden > 1:
        raise Unsupported(f"the normal form needs one hidden layer, this network has {stack.hidden}")
    outputs, inputs = len(stack.biases[-1]), stack.widths[0]
    base = zeros_like(stack.weights[0], (outputs, inputs + 1))
    if stack.hidden == 0:
        nothing = zeros_like(stack.weights[0], (0, inputs + 1))
        return nothing, nothing[:, :0].reshape(outputs, 0), stack.row(0), np.zeros(0)
    base[:, -1] = stack.biases[1]
    return stack.row(0), stack.weights[1], base, np.full(stack.widths[1], stack.slopes[0])


def form_of_rows(
    rows: Array, outs: Array, base: Array, slopes: Floats, domain: Domain | None, tolerance: float
) -> NormalForm:
    """`Σ_i outs[:, i] σ_i(rows[i]·(x, 1)) + base·(x, 1)` in normal form; leaky σ is `slope z + (1 − slope) relu(z)`."""
    domain = Domain.space(rows.shape[1] - 1) if domain is None else domain
    slope = rational(slopes) if rows.dtype == object else slopes
    _refuse_overflow(rows)
    kinds = [_kind(row, domain) for row in rows]
    affine_gain = np.where(np.array([kind is Kind.LINEAR for kind in kinds], dtype=bool), 1 - slope + slope, slope)
    affine = base + outs * affine_gain @ rows if len(rows) else base
    scale = np.abs(floating(base)) + np.abs(floating(outs * affine_gain)) @ np.abs(floating(rows))
    bending = [number for number, kind in enumerate(kinds) if kind is Kind.VISIBLE]
    groups = []
    for members in group_rows(rows[bending], tolerance):
        neurons = tuple(bending[place] for place, _ in members)
        factors = tuple(factor for _, factor in members)
        hyperplane = rows[neurons[0]] / factors[0]
        weighed = outs[:, neurons] * (1 - slope[list(neurons)]) * np.abs(np.array(factors, dtype=rows.dtype))
        jump, size = weighed.sum(axis=1), np.abs(floating(weighed)).sum(axis=1)
        turned = weighed[:, [place for place, factor in enumerate(factors) if factor < 0]]
        if turned.shape[1]:  # relu(−z) = relu(z) − z
            affine = affine - np.outer(turned.sum(axis=1), hyperplane)
            scale = scale + np.outer(np.abs(floating(turned)).sum(axis=1), np.abs(floating(hyperplane)))
        groups.append(HyperplaneGroup(hyperplane, neurons, factors, jump, size))
        if _negligible(jump, size, tolerance):
            for neuron in neurons:
                kinds[neuron] = Kind.CANCELLING
    return NormalForm(
        domain, tuple(groups), affine[:, :-1], affine[:, -1], scale[:, :-1], scale[:, -1], tuple(kinds), tolerance
    )


def group_rows(rows: Array, tolerance: float) -> list[list[tuple[int, Any]]]:
    """Rows that are multiples of each other, positive or negative: lists of (row, factor), `row = factor · unit`.

    >>> group_rows(np.array([[1.0, 1.0], [0.0, 2.0], [-3.0, -3.0]]), 1e-12)
    [[(0, 1.0), (2, -3.0)], [(1, 2.0)]]
    """
    if not len(rows):
        return []
    factors = _lengths(rows)
    with np.errstate(invalid="ignore"):  # a row of zeros is no multiple of any other
        units = rows / factors[:, None]
    if rows.dtype == object:
        by_unit: dict[tuple[Any, ...], list[tuple[int, Any]]] = {}
        for number, unit in enumerate(units):
            by_unit.setdefault(tuple((int(item.p), int(item.q)) for item in unit), []).append((number, factors[number]))
        return list(by_unit.values())
    near = _near_rows(units, factors, max(tolerance, 1e-12))
    if tolerance:
        return near
    groups = []  # floats only propose who may share a hyperplane
    for group in near:
        exact = group_rows(rational(rows[[number for number, _ in group]]), 0.0) if len(group) > 1 else [[(0, 1)]]
        groups += [[group[place] for place, _ in part] for part in exact]
    return sorted(groups)


def _near_rows(units: Floats, factors: Floats, tolerance: float) -> list[list[tuple[int, Any]]]:
    """Group float rows that agree within the tolerance, up to sign; a sorted projection finds the candidates."""
    probe = np.random.default_rng(units.shape[1]).uniform(0.5, 1.5, size=units.shape[1])
    shadow = np.abs(units @ probe)
    order = np.argsort(shadow, kind="stable")
    reach = 3.0 * tolerance * (1.0 + np.abs(units[:, -1])) * units.shape[1]
    leader = np.full(len(units), -1)
    for place, number in enumerate(order):
        if leader[number] >= 0:
            continue
        leader[number] = number
        stop = np.searchsorted(shadow[order], shadow[number] + reach[number], side="right")
        for other in order[place + 1 : stop]:
            if (
                leader[other] < 0
                and min(entry_gap(units[number], sign * units[other]) for sign in (1, -1)) <= tolerance
            ):
                leader[other] = number
    groups: dict[int, list[tuple[int, Any]]] = {}
    for number, head in enumerate(leader):
        sign = 1.0 if units[number] @ units[head] > 0 else -1.0
        groups.setdefault(int(head), []).append((number, float(sign * factors[number])))
    return [sorted(group) for _, group in sorted(groups.items())]


def _lengths(rows: Array) -> Array:
    """Sum of absolute weights (of the bias if there are none), signed as the first entry that is not negligible."""
    sizes = np.abs(rows[:, :-1]).sum(axis=1)
    sizes = np.where(sizes == 0, np.abs(rows[:, -1]), sizes)
    signs = []
    for row in rows:
        floor = 0 if rows.dtype == object else SIGN_FLOOR * np.abs(row).max()
        signs.append(next((1 if item > 0 else -1 for item in row if abs(item) > floor), 1))
    return np.asarray(sizes * np.array(signs, dtype=rows.dtype))


def _kind(row: Array, domain: Domain) -> Kind:
    low, high = domain.range(row)
    if high <= 0:
        return Kind.DEAD
    return Kind.LINEAR if low >= 0 else Kind.VISIBLE


def _negligible(value: Array, scale: Floats, tolerance: float) -> bool:
    return all(item == 0 for item in value) if value.dtype == object else _relative(value, scale) <= tolerance


def _relative(value: Array, scale: Floats) -> float:
    """Largest entry, each relative to the terms that it sums."""
    if not value.size or (value.dtype == object and all(item == 0 for item in value.ravel())):
        return 0.0
    sizes = np.abs(floating(value))
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.where(sizes > 0, sizes / scale, 0.0)
    return float(np.where(np.isfinite(shares), shares, np.inf).max())  # overflow is never agreement


def minimal_network(form: NormalForm, *, oriented: bool = True, turned: Collection[int] | None = None) -> Stack:
    """A network with one neuron per visible hyperplane, and few more for what stays linear.

    If `oriented`, every hyperplane keeps the orientation of its strongest neuron; otherwise all look to the positive
    side of the normal form, but those whose numbers are `turned`, so that the result depends on the function alone. A
    remaining linear part of rank r
    takes r pairs `relu(v), relu(−v)` on R^d, at most r + 1 neurons on the orthant (P4 Proposition 28) and r on a box.
    """
    exact = form.matrix.dtype == object
    matrix, offset = form.matrix.copy(), form.offset.copy()
    rows, outs = [], []
    for number, group in enumerate(form.visible):
        against = oriented and _strongest_is_turned(group) if turned is None else number in turned
        if against:  # jump relu(z) = jump relu(−z) + jump z
            matrix = matrix + np.outer(group.jump, group.hyperplane[:-1])
            offset = offset + group.jump * group.hyperplane[-1]
            rows.append(-group.hyperplane)
        else:
            rows.append(group.hyperplane)
        outs.append(group.jump)
    left, right, shift = _linear_neurons(matrix, form)
    offset = offset - left @ shift if len(shift) else offset
    below = np.concatenate([right, shift[:, None]], axis=1)
    hidden = np.concatenate([np.array(rows, dtype=matrix.dtype).reshape(len(rows), matrix.shape[1] + 1), below])
    above = np.concatenate([np.array(outs, dtype=matrix.dtype).reshape(len(outs), len(offset)).T, left], axis=1)
    stack = Stack((hidden[:, :-1], above), (hidden[:, -1], offset), (0.0,))
    return stack.rational() if exact else stack


def _strongest_is_turned(group: HyperplaneGroup) -> bool:
    """Whether the neuron that bends most looks against the hyperplane's own orientation."""
    return bool(group.factors[int(np.argmax([abs(float(floating(np.array([f]))[0])) for f in group.factors]))] < 0)


def _linear_neurons(matrix: Array, form: NormalForm) -> tuple[Array, Array, Array]:
    """`matrix = left right` with rows of `right` that are neurons acting linearly once `shift` is their bias."""
    left, right = factorise(matrix, form.matrix_scale, form.tolerance)
    none = zeros_like(matrix, len(right))
    if not len(right):
        return left, right, none
    if form.domain.bounded:
        lows = [form.domain.range(np.append(row, row[0] * 0))[0] for row in right]
        room = 1 if matrix.dtype == object else CLEAR_OF_A_CORNER
        return left, right, np.array([max(-low, low * 0) * room for low in lows], dtype=matrix.dtype)
    if (form.domain.low == 0).all():
        return (*nonnegative(left, right), zeros_like(matrix, len(right) + 1))
    pairs = np.concatenate([right, -right])
    return np.concatenate([left, -left], axis=1), pairs, zeros_like(matrix, len(pairs))


def _refuse_overflow(numbers: Array) -> None:
    if numbers.dtype != object and not np.isfinite(numbers).all():
        raise Unsupported("products of its weights are larger than doubles can be: rescale the network")


def factorise(matrix: Array, scale: Floats, tolerance: float) -> tuple[Array, Array]:
    """`matrix = left right` with as many columns and rows as the rank (relative to `scale` for floats)."""
    if matrix.dtype == object:
        entries = [flint.fmpq(item.p, item.q) for item in matrix.ravel()]
        reduced, rank = flint.fmpq_mat(*matrix.shape, entries).rref()
        right = np.array(reduced.tolist(), dtype=object).reshape(matrix.shape)[:rank]
        pivots = [next(k for k, item in enumerate(row) if item != 0) for row in right]
        return matrix[:, pivots], right
    _refuse_overflow(matrix)
    basis, values, right = np.linalg.svd(matrix, full_matrices=False)
    signs = np.where(right.sum(axis=1) < 0, -1.0, 1.0)
    basis, right = basis * signs, right * signs[:, None]
    rank = int((values > 10 * tolerance * max(float(scale.max(initial=0.0)), 1e-300)).sum())
    if rank == len(matrix):
        return np.eye(rank), matrix  # needs no choice of a basis
    row_space = np.where(
        matrix.any(axis=0), right[:rank], 0.0
    )  # what is zero stays so: rounding there would be a neuron
    return basis[:, :rank] * values[:rank], row_space


def nonnegative(left: Array, right: Array) -> tuple[Array, Array]:
    """`left right` again as a product whose second factor is nonnegative, with one more row (P4 Proposition 28)."""
    lift = np.array([max(max(-item for item in column), column[0] * 0) for column in right.T], dtype=right.dtype)
    grown = np.concatenate([right + lift, lift[None, :]])
    return np.concatenate([left, -left.sum(axis=1, keepdims=True)], axis=1), grown


def kinds_text(kinds: Sequence[Kind]) -> str:
    """Counts of each kind, in words.

    >>> kinds_text([Kind.DEAD, Kind.VISIBLE, Kind.VISIBLE])
    '1 dead, 2 visible'
    """
    return ", ".join(f"{list(kinds).count(kind)} {kind}" for kind in Kind if kind in kinds) or "no neurons"
