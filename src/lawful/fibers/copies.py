"""Is one network a copy of another? Order, scale and hidden translations of neurons, then entry by entry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import flint
import numpy as np

from lawful.errors import CertificateError
from lawful.fibers.layers import Array, Stack, rational
from lawful.fibers.reduce import hidden_neuron
from lawful.fibers.reparametrisations import Reorder, Rescale, SymmetryStep, Translate
from lawful.fibers.row_matching import entry_gap, nearest_order, unit_rows
from lawful.types import Floats

SMALL = 1_000  # parameters up to which a copy is replayed in rationals
NEAR = 1e-13  # entries this close may be equal exactly, with better factors
ROUNDING = 2.0**-48  # more than what two products and a quotient in double precision lose
NORMAL = 2.0**-960  # below this, products may lose digits to underflow


@dataclass(frozen=True)
class Copy:
    """Steps on the second network that bring it beside the first, layer by layer from the input.

    The first `layers` hidden layers agree, every entry within `gap` times the smaller of the two; if `whole`, so does
    the output. A gap of 0 means that they are identical, as rationals.
    """

    steps: tuple[SymmetryStep, ...]
    layers: int
    whole: bool
    gap: float


def align(first: Stack, second: Stack, tolerance: float) -> Copy:
    """Find the order, the scales and the hidden translations that make `second` agree with `first`, if there are any.

    The steps keep the function exactly; agreement is decided without rounding, or with rounding on the safe side.

    >>> from lawful.network import Mlp
    >>> one = Stack.of(Mlp([[[1.0, 2.0], [3.0, -1.0]], [[1.0, -1.0]]], [[0.5, 0.0], [1.0]]))
    >>> two = Stack.of(Mlp([[[6.0, -2.0], [0.5, 1.0]], [[-0.5, 2.0]]], [[0.0, 0.25], [1.0]]))
    >>> found = align(one, two, 1e-10)
    >>> found.steps, found.whole, found.gap
    ((Reorder(layer=1, order=(1, 0)), Rescale(layer=1, factors=(2.0, 0.5))), True, 0.0)
    """
    guess = _Guess(first.floating(), second.floating(), max(tolerance, NEAR)).run()
    exact = _identical(first, second, guess) if guess.gap <= NEAR else None
    if exact and (exact.whole or tolerance == 0 or (exact.layers == guess.layers and not guess.whole)):
        return exact
    if tolerance == 0:
        return Copy((), 0, False, 0.0)
    return _judge(first, second, guess, tolerance)


@dataclass
class _Guess:
    """Floats only propose: steps, and how far the layers agree with them."""

    first: Stack
    second: Stack
    tolerance: float

    def run(self) -> Copy:
        """Layer by layer from the input, until one does not fit."""
        steps: list[SymmetryStep] = []
        worst, theirs = 0.0, self.second
        same_depth = self.first.hidden == theirs.hidden
        for layer in range(1, min(self.first.hidden, theirs.hidden) + 1):
            matching = self.layer(layer, theirs)
            if matching is None:
                return Copy(tuple(steps), layer - 1, False, worst)
            theirs, matching_steps, gap = matching
            worst = max(worst, gap)
            steps += matching_steps
        if not same_depth:
            return Copy(tuple(steps), min(self.first.hidden, theirs.hidden), False, worst)
        last = entry_gap(self.first.row(-1), theirs.row(-1))
        whole = last <= self.tolerance
        return Copy(tuple(steps), self.first.hidden, whole, max(worst, last) if whole else worst)

    def layer(self, layer: int, theirs: Stack) -> tuple[Stack, list[SymmetryStep], float] | None:
        """The steps for one hidden layer, or None if nothing makes it agree."""
        ours = self.first
        if ours.widths[layer] != theirs.widths[layer] or ours.slopes[layer - 1] != theirs.slopes[layer - 1]:
            return None
        if not ours.widths[layer]:
            return theirs, [], 0.0
        steps: list[SymmetryStep] = []
        if (moved := self.translation(layer, theirs)) is not None:
            steps.append(moved)
            theirs = moved.apply(theirs)
        mine, yours = ours.row(layer - 1), theirs.row(layer - 1)
        comparable = len(ours.weights[layer]) == len(theirs.weights[layer])  # signatures need as many neurons above
        for careful in (False, True) if comparable else (False,):
            order = nearest_order(mine, yours, _signatures(ours, theirs, layer) if careful else None)
            factors = _factors(mine, yours[order])
            if factors is None:
                continue
            gap = entry_gap(mine, yours[order] * factors[:, None])
            if gap <= self.tolerance:
                put = Reorder(layer, tuple(order.tolist())), Rescale(layer, tuple(factors.tolist()))
                return put[1].apply(put[0].apply(theirs)), [*steps, *put], gap
        return None

    def translation(self, layer: int, theirs: Stack) -> Translate | None:
        """Move a neuron that both networks hide to where the first has it."""
        mine, yours = hidden_neuron(self.first, layer), hidden_neuron(theirs, layer)
        if mine is None or yours is None:
            return None
        ours, other = self.first.row(layer - 1)[mine], theirs.row(layer - 1)[yours]
        scale = float(np.abs(ours[:-1]).sum() / np.abs(other[:-1]).sum())
        if not 0 < scale < np.inf or abs(ours[-1] - scale * other[-1]) <= NEAR * abs(ours[-1]):
            return None
        step = Translate(layer, yours, float(ours[-1] / scale - other[-1]))
        try:
            step.apply(theirs)
        except CertificateError:  # it would uncover the neuron
            return None
        return step


def _signatures(ours: Stack, theirs: Stack, layer: int) -> tuple[Floats, Floats]:
    """What the neurons above do with each neuron, in an order and a scale that theirs do not change."""
    signatures = []
    for stack in (ours, theirs):
        outs = stack.weights[layer] * np.abs(stack.row(layer - 1)).sum(axis=1)
        signatures.append(np.sort(unit_rows(outs), axis=0).T)
    return signatures[0], signatures[1]


def _factors(ours: Floats, theirs: Floats) -> Floats | None:
    """The median ratio of each two rows, or None if one is not positive."""
    both = (ours != 0) & (theirs != 0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratios = np.sort(np.where(both, ours / theirs, np.inf), axis=1)
    count = both.sum(axis=1)
    middle = np.take_along_axis(ratios, np.maximum(count - 1, 0)[:, None] // 2, axis=1)[:, 0]
    factors = np.where(count > 0, middle, 1.0)
    return factors if ((factors > 0) & np.isfinite(factors)).all() else None


def _judge(first: Stack, second: Stack, guess: Copy, tolerance: float) -> Copy:
    """Decide without trusting a rounding: in rationals where that is quick, else with room for the rounding."""
    size = sum(weight.size for weight in first.weights)
    if size <= SMALL or first.exact or second.exact:
        ours, theirs = first.rational(), second.rational()
        try:
            for step in guess.steps:
                theirs = step.apply(theirs)
        except CertificateError:  # rounding hid that a translation uncovers the neuron
            return Copy((), 0, False, 0.0)
        gaps = [entry_gap(ours.row(k), theirs.row(k)) for k in range(guess.layers)]
        last = entry_gap(ours.row(-1), theirs.row(-1)) if guess.whole else 0.0
    else:
        theirs = second
        moved = {step.layer for step in guess.steps if isinstance(step, Translate)}
        for step in guess.steps:
            theirs = step.apply(theirs)
        gaps = [_float_gap(first, theirs, k) for k in range(guess.layers)]
        last = _float_gap(first, theirs, first.hidden) if guess.whole else 0.0
        if moved:  # sums: only the biases, and those without rounding
            worst = _bias_gap(first, second, guess)
            gaps, last = [max(gap, worst) for gap in gaps], max(last, worst) if guess.whole else 0.0
    layers = next((k for k, gap in enumerate(gaps) if gap > tolerance), len(gaps))
    whole = guess.whole and layers == len(gaps) and last <= tolerance
    return Copy(guess.steps, layers, whole, max([0.0, *gaps[:layers], last if whole else 0.0]))


def _float_gap(first: Stack, moved: Stack, layer: int) -> float:
    """An upper bound of the entries' gap where the moved entries are rounded products."""
    ours, theirs = first.row(layer), moved.row(layer)
    sizes = np.abs(np.concatenate([ours[ours != 0], theirs[theirs != 0]]))
    if sizes.size and not (sizes.min() > NORMAL and sizes.max() < 1 / NORMAL):
        return float("inf")
    return entry_gap(ours, theirs) + ROUNDING


def _bias_gap(first: Stack, second: Stack, guess: Copy) -> float:
    """The gap of all biases, replayed in rationals on a network that keeps nothing else but what biases need."""
    biases = [list(rational(bias)) for bias in second.biases]
    columns: dict[int, Array] = {}
    weights = list(second.weights)
    for step in guess.steps:
        at = step.layer
        if isinstance(step, Translate):
            shift = flint.fmpq(*float(step.shift).as_integer_ratio())
            columns[at] = rational(weights[at][:, step.neuron])
            biases[at - 1][step.neuron] += shift
            biases[at] = [bias - shift * weight for bias, weight in zip(biases[at], columns[at], strict=True)]
            if any(bias > 0 for bias in biases[at]):
                return float("inf")
        elif isinstance(step, Reorder):
            biases[at - 1] = [biases[at - 1][k] for k in step.order]
        elif isinstance(step, Rescale):
            factors = rational(np.array(step.factors))
            biases[at - 1] = [bias * factor for bias, factor in zip(biases[at - 1], factors, strict=True)]
    gaps = [
        entry_gap(rational(ours), np.array(theirs, dtype=object))
        for ours, theirs in zip(first.biases[: guess.layers], biases, strict=False)
    ]
    if guess.whole:
        gaps.append(entry_gap(rational(first.biases[-1]), np.array(biases[-1], dtype=object)))
    return max(gaps, default=0.0)


def _identical(first: Stack, second: Stack, guess: Copy) -> Copy | None:
    """The same steps with exact factors, as far as they make the layers identical; None if not even the first."""
    if (quick := _powers_of_two(first, second, guess)) is not None:
        return quick
    orders = {step.layer: step.order for step in guess.steps if isinstance(step, Reorder)}
    hidden = {step.layer: step.neuron for step in guess.steps if isinstance(step, Translate)}
    steps: list[SymmetryStep] = []
    below = _Below([_ONE] * first.widths[0], list(range(first.widths[0])), [_ONE * 0] * first.widths[1])
    for layer in range(1, guess.layers + 1):
        order = list(orders.get(layer, range(first.widths[layer])))
        moved = hidden.get(layer)
        factors: list[Any] = []
        shift = _ONE * 0
        for k, source in enumerate(order):
            multiple = _multiple(first, second, layer - 1, k, source, below, free=True, translated=source == moved)
            if multiple is None:
                return Copy(tuple(steps), layer - 1, False, 0.0) if layer > 1 else None
            factors.append(multiple[0])
            shift = multiple[1] if source == moved else shift
        carried = [_ONE * 0] * first.widths[layer + 1]
        if moved is not None and shift != 0:
            carried = [-shift * _number(weight) for weight in second.weights[layer][:, moved]]
            if any(_number(bias) + extra > 0 for bias, extra in zip(second.biases[layer], carried, strict=True)):
                return Copy(tuple(steps), layer - 1, False, 0.0) if layer > 1 else None
            steps.append(Translate(layer, moved, shift))
        steps += [Reorder(layer, tuple(order)), Rescale(layer, tuple(factors))]
        below = _Below(factors, order, carried)
    whole = guess.whole and all(
        _multiple(first, second, first.hidden, k, k, below, free=False) for k in range(first.widths[-1])
    )
    return Copy(tuple(steps), guess.layers, whole, 0.0)


@dataclass(frozen=True)
class _Below:
    """Factors and order of the neurons below a layer, and what a translation there adds to its biases."""

    factors: list[Any]
    order: list[int]
    carried: list[Any]


def _multiple(
    first: Stack, second: Stack, at: int, k: int, source: int, below: _Below, *, free: bool, translated: bool = False
) -> tuple[Any, Any] | None:
    """The factor that makes row `source` of `second` the row k of `first`, and the shift of its bias; None if none."""
    ours = [_number(item) for item in first.weights[at][k]]
    row = second.weights[at][source]
    theirs = [_number(row[j]) / factor for j, factor in zip(below.order, below.factors, strict=True)]
    bias, other = _number(first.biases[at][k]), _number(second.biases[at][source]) + below.carried[source]
    pairs = [(a, b) for a, b in zip([*ours, bias], [*theirs, other], strict=True) if a != 0 and b != 0]
    factor = pairs[0][0] / pairs[0][1] if free and pairs else _ONE
    if factor <= 0 or any(a != factor * b for a, b in zip(ours, theirs, strict=True)):
        return None
    shift = bias / factor - other
    return (factor, shift) if shift == 0 or translated else None


def _powers_of_two(first: Stack, second: Stack, guess: Copy) -> Copy | None:
    """Whether the whole networks are identical after factors that floats multiply by without rounding."""
    numbers = [np.array(step.factors) for step in guess.steps if isinstance(step, Rescale)]
    moved = any(isinstance(step, Translate) for step in guess.steps)
    if not guess.whole or moved or first.exact or second.exact or any((np.frexp(f)[0] != 0.5).any() for f in numbers):
        return None
    theirs = second
    for step in guess.steps:
        theirs = step.apply(theirs)
    for layer in range(len(first.weights)):
        sizes = np.abs(second.row(layer)), np.abs(theirs.row(layer))
        if any(((size > 0) & ~((size > NORMAL) & (size < 1 / NORMAL))).any() for size in sizes):
            return None
        if (theirs.row(layer) != first.row(layer)).any():
            return None
    return Copy(guess.steps, guess.layers, True, 0.0)


_ONE = flint.fmpq(1)


def _number(value: Any) -> Any:
    return value if isinstance(value, flint.fmpq) else flint.fmpq(*float(value).as_integer_ratio())
