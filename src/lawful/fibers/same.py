"""Are two networks the same function? (P4 Section 6 and E.3, and beyond the generic bottleneck.)"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike

from lawful.bounds.distance import distance
from lawful.errors import LawfulError
from lawful.fibers.copies import Copy, align
from lawful.fibers.counterexample import Counterexample, Pair, quick_refutation, thorough_refutation
from lawful.fibers.layers import Stack, as_layers, check_sizes, floating, quotient
from lawful.fibers.reduce import Reduced, head, orient, quieten, simplify
from lawful.fibers.regions import comparison_proof
from lawful.fibers.regions.cell import OutOfTime
from lawful.fibers.regions.domain import Domain
from lawful.fibers.shallow.normal_form import form_gap, normal_form
from lawful.fibers.verdict import Different, Equal, EqualityWitness, Undecided, Verdict, Within
from lawful.network import Dag, Mlp
from lawful.network.assemble import as_mlp
from lawful.outward import at_least, at_most
from lawful.sources.opening import Source, open_pair
from lawful.sources.provenance import with_provenance

METHOD = "certified bounds of the largest difference"


def within_outputs(
    networks: tuple[Mlp | Dag, Mlp | Dag],
    stacks: tuple[Stack, Stack],
    domain: Domain,
    most: float,
    seconds: float,
    seed: int,
) -> Verdict:
    """Whether no output differs by more than `most` on a box; an input that does so is replayed exactly."""
    if not domain.bounded:
        raise LawfulError("a bound on the outputs needs a box: give --box")
    if not 0 <= most < float("inf"):
        raise LawfulError(f"a bound on the outputs is a number that is not negative, not {most}")
    bounds = distance(*networks, (domain.low, domain.high), within=most, seconds=seconds, seed=seed)
    if bounds.status == "proved":
        witness = EqualityWitness((), (), "boxes", 0.0, distance=bounds)
        return Equal(METHOD, witness, domain, 0.0, within=Within("outputs", float(bounds.upper)))
    if bounds.status == "violated":
        outputs = stacks[0].exact_outputs(bounds.input), stacks[1].exact_outputs(bounds.input)
        gap = max(abs(one - other) for one, other in zip(*outputs, strict=True))
        shown = Counterexample(bounds.input, outputs, gap, Fraction(most))
        return Different(METHOD, "the outputs differ by more at this input", shown, domain, 0.0)
    known = f"the largest difference lies between {at_least(bounds.lower, 3)} and {at_most(bounds.upper, 3)}"
    return Undecided(METHOD, known, domain, 0.0)


REPLAYED = "the outputs differ at this input, replayed in exact arithmetic"


def compare_regions(pair: Pair, first: Reduced, second: Reduced, deadline: float) -> Equal | Different | str:
    """Walk all regions that the two networks cut together; or say why there is no answer."""
    try:
        proof = comparison_proof.prove_by_regions(first.stack, second.stack, pair.domain, deadline)
    except OutOfTime:
        return "not all regions were compared before the time limit"
    except comparison_proof.Disagree as error:
        if not pair.tolerance:
            counterexample = pair.replay_exactly(error.point)
            return Different("region search", REPLAYED, counterexample, pair.domain, pair.tolerance)
        near = floating(error.point)
        nudges = 1e-6 * np.random.default_rng(0).normal(size=(8, len(near))) * pair.scales
        for point in (near, *np.clip(near + nudges, pair.domain.low, pair.domain.high)):
            if shown := pair.replay(point):
                return Different("region search", REPLAYED, shown, pair.domain, pair.tolerance)
        return "the affine maps of a region differ, but no input in it shows more than rounding explains"
    witness = EqualityWitness(
        first.steps, second.steps, "regions", 0.0, regions=proof.regions, decisions=tuple(proof.decisions)
    )
    return Equal("region search in exact arithmetic", witness, pair.domain, pair.tolerance)


TOLERANCE = 1e-10  # for weights in double precision
SINGLE_TOLERANCE = 1e-6  # when both networks hold single-precision numbers
QUICK = 2_000  # parameters up to which reducing in rationals comes before a long search
LARGEST = 500_000  # parameters beyond which networks are not reduced in rationals


def same(
    first: Source,
    second: Source,
    *,
    box: tuple[ArrayLike, ArrayLike] | Domain | None = None,
    exact: bool = False,
    tolerance: float | None = None,
    within: float | None = None,
    seconds: float = 60.0,
    seed: int = 0,
) -> Verdict:
    """Decide whether two networks are the same function on all of R^d, or on a box.

    *Equal* says `within` what: exactly; weight by weight, each single entry within the relative `tolerance` (1e-10, or
    1e-6 if both hold float32 numbers) after steps that keep the function exactly; or within a bound on the outputs, on
    a box. *Different* rests on an input whose exact outputs differ by more than rounding all weights by the tolerance
    explains; everything else is *undecided*. With `exact` nothing is excused: floats are the rationals that they are.
    With `within` the question is whether no output differs by more than that, on a box.

    >>> a = Mlp([[[1.0, 2.0], [3.0, -1.0]], [[1.0, -1.0]]], [[0.5, 0.0], [1.0]])
    >>> b = Mlp([[[6.0, -2.0], [0.5, 1.0]], [[-0.5, 2.0]]], [[0.0, 0.25], [1.0]])
    >>> found = same(a, b)
    >>> found.verdict, found.within
    ('equal', Within(kind='exactly', value=0.0))
    >>> same(a, a.with_theta(a.theta + 0.1)).verdict
    'different'
    """
    start = time.perf_counter()
    networks = open_pair(first, second, seed=seed)
    verdict = _decide(networks, box, exact, tolerance, within, start + seconds, seed)
    return with_provenance(replace(verdict, seconds=time.perf_counter() - start), *networks)


def _decide(
    networks: tuple[Mlp | Dag, Mlp | Dag],
    box: tuple[ArrayLike, ArrayLike] | Domain | None,
    exact: bool,
    tolerance: float | None,
    within: float | None,
    deadline: float,
    seed: int,
) -> Verdict:
    stacks = stack_of(networks[0]), stack_of(networks[1])
    if exact and tolerance:
        raise LawfulError("exact arithmetic has no tolerance: give --exact or --tolerance, not both")
    if within is not None and (exact or tolerance is not None):
        raise LawfulError(
            "a bound on the outputs takes weights as they are: give --within without --exact or --tolerance"
        )
    if tolerance is not None and not 0 <= tolerance < 1:
        raise LawfulError(f"the tolerance is a relative size between 0 and 1, not {tolerance}")
    slack = 0.0 if exact else default_tolerance(*stacks) if tolerance is None else float(tolerance)
    if (clash := check_sizes(stacks)) is not None:
        return Different("shape", clash, None, None, slack)
    domain = _domain(box, stacks[0].widths[0])
    if within is not None:
        return within_outputs(networks, stacks, domain, within, deadline - time.perf_counter(), seed)
    pair = Pair(*stacks, domain, slack)
    with np.errstate(all="ignore"):  # what overflows is never taken for agreement
        return _Question(pair, deadline, seed).decide()


def stack_of(network: Mlp | Dag) -> Stack:
    """Any network as layers; a graph with skips gets neurons that pass values on."""
    mlp = network if isinstance(network, Mlp) else as_mlp(network)  # the answer does not depend on the form
    return as_layers(network) if mlp is None else Stack.of(mlp)  # type: ignore[arg-type]


def default_tolerance(first: Stack, second: Stack) -> float:
    """Single precision is excused only if both networks hold nothing finer."""
    arrays = [array for stack in (first.floating(), second.floating()) for array in (*stack.weights, *stack.biases)]
    with np.errstate(over="ignore"):
        single = all((array == array.astype(np.float32)).all() for array in arrays)
    return SINGLE_TOLERANCE if single else TOLERANCE


def _domain(box: tuple[ArrayLike, ArrayLike] | Domain | None, inputs: int) -> Domain:
    if box is None:
        return Domain.space(inputs)
    return box if isinstance(box, Domain) else Domain.box(inputs, *box)


@dataclass
class _Question:
    """The question, and how long and from which seed to look for an answer."""

    pair: Pair
    deadline: float
    seed: int

    def decide(self) -> Verdict:
        """Cheap tests first: a copy, an input that differs; then reduction, search, regions."""
        copy = align(self.pair.first, self.pair.second, self.pair.tolerance)
        if copy.whole:
            witness = EqualityWitness((), copy.steps, "weights", copy.gap)
            method = "order and scale of the neurons"
            return Equal(method, witness, self.pair.domain, self.pair.tolerance, within=_within(copy.gap))
        if counterexample := quick_refutation(self.pair, self.seed):
            return self.answer_different(counterexample, "random search")
        parameters = sum(weight.size for weight in (*self.pair.first.weights, *self.pair.second.weights))
        if parameters > QUICK and (answer := self.search()) is not None:
            return answer
        if parameters > LARGEST and self.pair.tolerance > 0:
            return self.answer_undecided("they are too large to be reduced in rationals: ask with --exact")
        first, second = (self.reduce(stack) for stack in (self.pair.first, self.pair.second))
        second, copy = self.beside(first, second)
        if (equal := self.equal_reduced(first, second, copy)) is not None:
            return equal
        if parameters <= QUICK and (answer := self.search()) is not None:
            return answer
        searched = compare_regions(self.pair, first, second, self.deadline)
        if isinstance(searched, str):
            return self.answer_undecided(f"{_seen(first, second, copy)}; {searched}")
        return searched

    def search(self) -> Different | None:
        """Look for an input where something happens."""
        left = max(self.deadline - time.perf_counter(), 0.0)
        counterexample = thorough_refutation(self.pair, left / 3, self.seed)
        return self.answer_different(counterexample, "search along bent hyperplanes") if counterexample else None

    def reduce(self, stack: Stack) -> Reduced:
        """The network in rationals without what the box silences, and without what is redundant."""
        return simplify(quieten(Reduced(stack.rational()), self.pair.domain, 0.0), 0.0)

    def beside(self, first: Reduced, second: Reduced) -> tuple[Reduced, Copy]:
        """The second network moved beside the first, by steps that keep its function exactly."""
        second = orient(first.stack, second)
        copy = align(first.stack, second.stack, self.pair.tolerance)
        for step in copy.steps:
            second = second.then(step, 0.0)
        return second, copy

    def equal_reduced(self, first: Reduced, second: Reduced, copy: Copy) -> Equal | None:
        """Compare two networks that stand side by side: weight by weight, or by normal forms of the last layer."""
        pair, ours, theirs = self.pair, first.stack, second.stack
        if copy.whole:
            witness = EqualityWitness(first.steps, second.steps, "weights", copy.gap)
            method = "permutation, scaling and hidden symmetries"
            return Equal(method, witness, pair.domain, pair.tolerance, within=_within(copy.gap))
        below = max(ours.hidden - 1, 0)
        if ours.hidden != theirs.hidden or copy.layers < below:
            return None
        forms = [normal_form(head(stack, below), self.seen(stack, below), tolerance=0.0) for stack in (ours, theirs)]
        gap, groups = form_gap(*forms)
        gap = max(gap, copy.gap)
        if gap > pair.tolerance:
            return None
        witness = EqualityWitness(first.steps, second.steps, "normal form", gap, groups)
        where = "" if below == 0 else " on the orthant" if np.isinf(forms[0].domain.high).all() else " on an image"
        return Equal(f"normal form{where}", witness, pair.domain, pair.tolerance, within=_within(gap))

    def seen(self, stack: Stack, below: int) -> Domain:
        """Intervals that hold all that the last hidden layer sees: the orthant, or less where layers are bounded."""
        domain = self.pair.domain
        for layer in range(below):
            domain = domain.through(stack.row(layer), stack.slopes[layer])
        return domain

    def answer_different(self, found: Counterexample, method: str) -> Different:
        """The answer that an input gives."""
        return Different(method, REPLAYED, found, self.pair.domain, self.pair.tolerance)

    def answer_undecided(self, reason: str) -> Undecided:
        """No answer, with what is known: whether the functions differ at all, in exact arithmetic."""
        point = self.pair.space.domain.sample(1, np.random.default_rng(self.seed))[0] * self.pair.scales
        counterexample = replace(self.pair, tolerance=0.0).replay(point) if np.isfinite(point).all() else None
        if counterexample:
            gap = quotient(counterexample.gap.numerator, counterexample.gap.denominator)
            known = f"they are not identical: exact outputs differ by {gap:.1e} at one input"
            known += f", which weights rounded by {self.pair.tolerance:g} explain" if self.pair.tolerance else ""
        else:
            known = "no input was found on which the outputs differ"
        return Undecided("all", f"{reason}; {known}", self.pair.domain, self.pair.tolerance)


def _within(gap: float) -> Within:
    return Within("exactly", 0.0) if gap == 0 else Within("weights", gap)


def _seen(first: Reduced, second: Reduced, copy: Copy) -> str:
    if first.stack.hidden != second.stack.hidden:
        return "the networks have different depths"
    if copy.layers < first.stack.hidden - 1:
        return f"no order and scale of the neurons makes layer {copy.layers + 1} agree"
    return "all layers but the last agree"
