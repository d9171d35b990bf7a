"""Equal within a bound on the outputs, over a box: what is asked of roundings that no symmetry explains."""

from __future__ import annotations

from fractions import Fraction

from lawful.bounds.distance import distance
from lawful.errors import LawfulError
from lawful.fibers.counterexample import Counterexample
from lawful.fibers.layers import Stack
from lawful.fibers.regions.domain import Domain
from lawful.fibers.verdict import Different, Equal, EqualityWitness, Undecided, Verdict, Within
from lawful.network import Dag, Mlp
from lawful.outward import at_least, at_most

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
    found = distance(*networks, (domain.low, domain.high), within=most, seconds=seconds, seed=seed)
    if found.status == "proved":
        witness = EqualityWitness((), (), "boxes", 0.0, distance=found)
        return Equal(METHOD, witness, domain, 0.0, within=Within("outputs", float(found.upper)))
    if found.status == "violated":
        outputs = stacks[0].exact_outputs(found.input), stacks[1].exact_outputs(found.input)
        gap = max(abs(one - other) for one, other in zip(*outputs, strict=True))
        shown = Counterexample(found.input, outputs, gap, Fraction(most))
        return Different(METHOD, "the outputs differ by more at this input", shown, domain, 0.0)
    known = f"the largest difference lies between {at_least(found.lower, 3)} and {at_most(found.upper, 3)}"
    return Undecided(METHOD, known, domain, 0.0)
