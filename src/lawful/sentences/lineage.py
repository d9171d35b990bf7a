"""How two checkpoints are related. A relation is said by an exact test alone; likeness is stated as likeness."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from lawful.outward import at_least, at_most
from lawful.sentences import sentence

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
