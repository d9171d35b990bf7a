"""What is said of two checkpoints: the same function, a rounded copy, another function, one in the other's place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from lawful.outward import at_least, at_most
from lawful.sentences import sentence


@sentence("checkpoints.equal", claims="every number of B is one of A, and both compute the same in exact arithmetic")
def equal_exactly() -> str:
    """The same numbers."""
    return "EQUAL exactly"


@sentence("checkpoints.equal-within", claims="after a symmetry of the module no weight of B is further from that of A")
def equal_within(within: str, epsilon: float) -> str:
    """The same function up to the rounding of float32 or finer."""
    if within == "weight by weight":
        return f"EQUAL weight by weight within {at_most(epsilon)}"
    return f"EQUAL: a copy by weights within {at_most(epsilon)} of each entry's sum (outputs are not bounded)"


@sentence("checkpoints.rounded", claims="no weight is further off than that, and some output is another one")
def rounded(within: str, epsilon: float) -> str:
    """The same weights in fewer bits."""
    if within == "weight by weight":
        return f"ROUNDED COPY, another function: weight by weight within {at_most(epsilon)}"
    return f"ROUNDED COPY, another function: each entry within {at_most(epsilon)} of the sum of its terms"


@sentence("checkpoints.apart", claims="at that input the outputs differ by at least that share of the largest one")
def apart(outputs: tuple[float, float], gap: float) -> str:
    """An input that tells."""
    return (
        f"At a random input, in float64, A gives {outputs[0]:.9g} and B {outputs[1]:.9g}: {at_least(gap)} of the "
        "largest output apart."
    )


@sentence(
    "checkpoints.aligned", claims="what was written computes what B computes, but for the rounding of its numbers"
)
def aligned(out: str) -> str:
    """A file that was written."""
    return f"{out}: B in A's place, the same function as B up to the rounding of its numbers"


@sentence("checkpoints.identical", claims="the indexed file held the same numbers under the same names")
def identical() -> str:
    """A file that held what the given one holds when it was indexed; it may have changed since."""
    return "identical weights when indexed"


@sentence("checkpoints.representative", claims="what was written is the function it was made of, within what is said")
def representative(verdict: str, within: str | None, epsilon: float | None) -> str:
    """Another member of an orbit beside the checkpoint that it was made of."""
    if verdict not in ("equal", "rounded"):
        return f"function: {verdict}"
    how = {"exactly": " exactly", "weight by weight": " weight by weight", "copy by weights": " as a copy by weights"}
    words = {"equal": "equal", "rounded": "a rounded copy,"}[verdict] + how.get(within or "", "")
    return f"function: {words}" + (f" within {at_most(epsilon, 2)}" if epsilon else "")


Relation = Literal["copy", "copy of weights", "child", "relative", "sibling", "stranger", "undecided"]
RELATION_WORDS: Mapping[Relation, str] = {
    "copy": "symmetric copy",
    "copy of weights": "symmetric copy of the weights",
    "child": "fine-tuned",  # from the other, or both from a third
    "relative": "related",
    "sibling": "shared initialisation",
    "stranger": "no relation found",
    "undecided": "undecided",
}


@sentence("lineage.copy", claims="the two are one function, or as close to each other as is said")
def copy(within: Literal["exactly", "weights", "outputs"], size: float) -> str:
    """A symmetric copy, by what equality means here."""
    if within == "weights":
        return f"after a symmetry each weight of B is within {at_most(size)} of that of A, relatively"
    return "they are the same function" if within == "exactly" else f"no output differs by more than {at_most(size)}"


@sentence("lineage.related", claims="one of the two was trained from the other, or both from one start")
def related(in_place: int, units: int, p_value: float) -> str:
    """Units stand where those of the other stand, and the weights agree there."""
    return (
        f"{in_place} of {units} hidden units stand where the units of A stand that they are most like; of networks "
        f"trained apart the probability is at most {at_most(p_value, 2)} (unless the units of one file were put into "
        "the order of the other's)"
    )


@sentence("lineage.shared", claims="both have these tensors from one source")
def shared(tensors: Sequence[str], share: float) -> str:
    """Matrices are the same, up to a symmetry and the rounding of stored numbers."""
    named = ", ".join(tensors[:4]) + (f" and {len(tensors) - 4} more" if len(tensors) > 4 else "")
    return (
        f"A and B have the same {named}, number by number: {share:.0%} of the weights of hidden units, from one source"
    )


@sentence("lineage.places", claims="units of B stand in the places of those of A")
def places(in_place: int, units: int, p_value: float) -> str:
    """Units stand in place, but the weights do not agree enough to rule out that one file was aligned to the other."""
    return (
        f"{in_place} of {units} hidden units stand where the units of A stand that they are most like (by chance with "
        f"a probability of at most {at_most(p_value, 2)}), but their weights are far apart: they began alike, or the "
        "units of one were put into the order of the other's"
    )


@sentence("lineage.alike", claims="a symmetry of the architecture brings the weights of B near those of A")
def alike(apart: float, deviation: float | None) -> str:
    """Weights correspond up to a symmetry; of whose start nothing is known."""
    words = f"a symmetry brings B near A: the median weight matrix is {at_most(apart, 2)} of its size apart"
    if deviation is not None:
        words += (
            ", and what was left out of the alignment agrees in its weakest directions by "
            f"{at_least(deviation, 2)} standard deviations"
        )
    return f"{words}; a relative in other coordinates, or trained apart to the same weights: weights alone do not tell"


@sentence("lineage.no_relation", claims="B is not A after little training, stored in A's order of units")
def no_relation(in_place: int, units: int, p_value: float, apart: float) -> str:
    """Neither places nor weights show anything, and the test could have."""
    return (
        f"{in_place} of {units} hidden units stand in place (p = {p_value:.2g}), and after alignment the median weight "
        f"matrix is {apart:.2g} of its size apart, as of networks trained apart; a common start may have been trained "
        "away"
    )
