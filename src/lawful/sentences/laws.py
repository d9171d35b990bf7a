"""What is said of conservation laws: that they are complete, and among what.

Three statements that are never mixed: complete among functions of φ, complete near given weights, and laws that hold at
all weights and are complete near some.
"""

from __future__ import annotations

from lawful.sentences import sentence

FREE = "raining reaches every direction that these laws leave free"


@sentence("laws.complete", claims="near almost all weights training conserves nothing that is independent of these")
def complete() -> str:
    """Of networks without gates: what φ conserves is what training conserves."""
    return f"Proved: there are no others. T{FREE}."


@sentence("laws.complete-near", claims="near the given weights training conserves nothing independent of these")
def complete_near() -> str:
    """Near given weights, for any data or for those given."""
    return f"Proved: near these weights there are no others. T{FREE}."


@sentence("laws.complete-of-phi", claims="the laws hold at all weights, and no other function of φ is conserved")
def complete_of_phi() -> str:
    """At the level of φ, for networks with gates: near given weights there may be more."""
    return (
        "Proved: these hold at all weights, and no other function of φ (the products of weights along paths) is "
        "conserved. Near given weights fewer activation patterns occur, and training may have more laws."
    )


@sentence("laws.complete-somewhere", claims="the laws hold at all weights, and near the named ones there are no others")
def complete_somewhere() -> str:
    """With weights in the certificate."""
    return (
        "Proved: these hold at all weights, and near some weights (in the certificate, and so on an open set) "
        f"there are no others: t{FREE} there."
    )


@sentence("laws.complete-beside", claims="near weights next to the given ones, on their side of all kinks, the same")
def complete_beside() -> str:
    """On data, where the given weights themselves are special."""
    return (
        "Proved: these hold near these weights, and near others next to them (in the certificate), on the same "
        f"side of every kink at these inputs, there are no others: t{FREE} there."
    )


@sentence("laws.directions", claims="training never moves in so many directions: as many quantities are conserved")
def directions(laws: int, states: int) -> str:
    """The caption of a figure of the closure, where a proof shows that what is left over is conserved."""
    if laws == 1:
        return f"1 direction of {states} is never taken: 1 conserved quantity."
    return f"{laws} directions of {states} are never taken: {laws} conserved quantities."


def not_reached(laws: int, states: int, status: str) -> str:
    """The same caption without a proof: what brackets did not reach, training may."""
    return f"{laws} of {states} directions were not reached ({status}): whether training takes them is not proved."


@sentence("laws.by-theorem", claims="a theorem gives the number of laws: of functions of φ for networks with gates")
def by_theorem(theorem: str, of_phi: bool) -> str:
    """One hidden layer, fully connected."""
    where = "no other function of φ is conserved" if of_phi else "there are no others"
    return f"Proved by {theorem}, whose hypotheses hold: {where}."


@sentence("laws.at-least-everywhere", claims="near almost every weight vector there are at least so many laws")
def at_least_everywhere(least: int) -> str:
    """Where gates do not depend on the input."""
    return (
        f"Proved: near almost every weight vector training has at least {least} laws, more than those of "
        "φ, since some gates do not depend on the input."
    )
