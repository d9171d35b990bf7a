"""Are two networks the same function? (P4 Section 6 and E.3, and beyond the generic bottleneck.)"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from lawful.errors import LawfulError
from lawful.fibers import region_comparison
from lawful.fibers.domain import Domain
from lawful.fibers.reduce import Match, Reduced, head, match, quieten, row_residual, simplify, standardise
from lawful.fibers.search import Counterexample, Pair, quick_refutation, thorough_refutation
from lawful.fibers.shallow import difference_form
from lawful.fibers.skips_as_layers import layered
from lawful.fibers.stack import Stack, check_sizes
from lawful.fibers.verdict import Different, Equal, EqualityWitness, Undecided, Verdict
from lawful.network import Dag, Mlp

TOLERANCE = 1e-10  # for weights in double precision
SHARP = 0.01  # the share of the tolerance that is excused once no witness was found
SINGLE_TOLERANCE = 1e-6  # when both networks hold single-precision numbers


def same(
    first: Mlp | Dag,
    second: Mlp | Dag,
    *,
    box: tuple[float, float] | Domain | None = None,
    exact: bool = False,
    tolerance: float | None = None,
    seconds: float = 60.0,
    seed: int = 0,
) -> Verdict:
    """Decide whether two networks are the same function on all of R^d, or on a box.

    *Equal* rests on steps that keep the function, checked one by one; *different* on an input replayed in exact
    arithmetic; everything else is *undecided*. With `exact` weights are the rationals that floats are; otherwise
    `tolerance` is the relative rounding of weights that is excused (1e-10, or 1e-6 if both hold float32 numbers).

    >>> a = Mlp([[[1.0, 2.0], [3.0, -1.0]], [[1.0, -1.0]]], [[0.5, 0.0], [1.0]])
    >>> b = Mlp([[[6.0, -2.0], [0.5, 1.0]], [[-0.5, 2.0]]], [[0.0, 0.25], [1.0]])
    >>> same(a, b, exact=True).verdict
    'equal'
    >>> same(a, a.with_theta(a.theta + 0.1)).verdict
    'different'
    """
    start = time.perf_counter()
    stacks = stack_of(first), stack_of(second)
    if exact and tolerance:
        raise LawfulError("exact arithmetic has no tolerance: give --exact or --tolerance, not both")
    if tolerance is not None and not 0 <= tolerance < 1:
        raise LawfulError(f"the tolerance is a relative size between 0 and 1, not {tolerance}")
    slack = 0.0 if exact else default_tolerance(*stacks) if tolerance is None else float(tolerance)
    if (clash := check_sizes(stacks)) is not None:
        return Different("shape", clash, None, None, slack, time.perf_counter() - start)
    pair = Pair(*stacks, _domain(box, stacks[0].widths[0]), slack)
    with np.errstate(all="ignore"):  # what overflows is never taken for agreement
        verdict = _decide(pair, start + seconds, seed)
    return replace(verdict, seconds=time.perf_counter() - start)


def stack_of(network: Mlp | Dag) -> Stack:
    """Any network as layers; a graph with skips gets neurons that pass values on."""
    return Stack.of(network if isinstance(network, Mlp) else layered(network))


def default_tolerance(first: Stack, second: Stack) -> float:
    """Single precision is excused only if both networks hold nothing finer."""
    arrays = [array for stack in (first, second) for array in (*stack.weights, *stack.biases)]
    with np.errstate(over="ignore"):
        single = all((array == array.astype(np.float32)).all() for array in arrays)
    return SINGLE_TOLERANCE if single else TOLERANCE


def _domain(box: tuple[float, float] | Domain | None, inputs: int) -> Domain:
    if box is None:
        return Domain.space(inputs)
    return box if isinstance(box, Domain) else Domain.box(inputs, *box)


def _decide(pair: Pair, deadline: float, seed: int) -> Verdict:
    def different(found: Counterexample, method: str, asked: Pair) -> Different:
        return Different(method, region_comparison.REPLAYED, found, asked.domain, asked.tolerance)

    if found := quick_refutation(pair, seed):
        return different(found, "random search", pair)
    first, second = (_standard(stack, pair) for stack in (pair.first, pair.second))
    matched = match(first.stack, second, pair.tolerance)
    if proof := prove_equal(first, matched, pair):
        return proof
    sharp = replace(pair, tolerance=pair.tolerance * SHARP)  # no witness excuses a difference now, only rounding does
    if found := quick_refutation(sharp, seed):
        return different(found, "random search", sharp)
    left = max(deadline - time.perf_counter(), 0.0)
    if found := thorough_refutation(sharp, left / 3, seed):
        return different(found, "search along bent hyperplanes", sharp)
    searched = region_comparison.compare(pair, first, matched.second, deadline)
    if isinstance(searched, (Equal, Different)):
        return searched
    return Undecided("all", _reason(matched, first, searched), pair.domain, pair.tolerance)


def _standard(stack: Stack, pair: Pair) -> Reduced:
    """The network at its standard place, after all that the box silences has gone."""
    start = Reduced(stack.rational() if pair.tolerance == 0 else stack)
    simple = simplify(quieten(start, pair.domain, pair.tolerance), pair.tolerance)
    return standardise(simple, pair.tolerance)


def prove_equal(first: Reduced, matched: Match, pair: Pair) -> Equal | None:
    """Compare two networks that stand side by side: weight by weight, or by normal forms of the last hidden layer."""
    ours, theirs = first.stack, matched.second.stack
    if ours.hidden != theirs.hidden:
        return None
    if matched.layers == ours.hidden:
        residual = max([*matched.residuals, row_residual(ours.row(-1), theirs.row(-1))])
        if residual <= pair.tolerance:
            witness = EqualityWitness(first.steps, matched.second.steps, "weights", residual)
            return Equal("permutation, scaling and hidden symmetries", witness, pair.domain, pair.tolerance)
    below = max(ours.hidden - 1, 0)
    if matched.layers < below:
        return None
    seen = head_domain(ours, below, pair.domain)
    form = difference_form(head(ours, below), head(theirs, below), seen, pair.tolerance)
    if form.residual > pair.tolerance:
        return None
    width = ours.widths[ours.hidden] if ours.hidden else 0
    groups = tuple(tuple(divmod_member(neuron, width) for neuron in group.neurons) for group in form.groups)
    residual = max([*matched.residuals[:below], form.residual])
    witness = EqualityWitness(first.steps, matched.second.steps, "normal form", residual, groups)
    where = (
        "" if below == 0 else " on the orthant" if np.isinf(seen.high).all() else " on the image of the layers below"
    )
    return Equal(f"normal form{where}", witness, pair.domain, pair.tolerance)


def head_domain(stack: Stack, below: int, domain: Domain) -> Domain:
    """Intervals that hold all that the last hidden layer sees: the orthant, or less where layers below are bounded."""
    for layer in range(below):
        domain = domain.through(stack.row(layer), stack.slopes[layer])
    return domain


def divmod_member(neuron: int, width: int) -> tuple[int, int]:
    """Which network a neuron of the difference belongs to, and its number there."""
    return (0, neuron) if neuron < width else (1, neuron - width)


def _reason(matched: Match, first: Reduced, searched: str) -> str:
    if first.stack.hidden != matched.second.stack.hidden:
        seen = "the networks have different depths"
    elif matched.layers < first.stack.hidden - 1:
        seen = f"no order and scale of the neurons makes layer {matched.layers + 1} agree"
        if len(matched.residuals) > matched.layers and matched.residuals[-1] < 1e-2:
            seen += f" (the best differs by {matched.residuals[-1]:.1e})"
    else:
        seen = "all layers but the last agree"
    return f"{seen}; no input was found on which the outputs differ; {searched}"
