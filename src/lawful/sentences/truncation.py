"""What is said of truncations: clusters that can be parted, collapse, and runs that end early."""

from __future__ import annotations

from lawful.outward import at_least, at_most
from lawful.sentences import sentence


@sentence("truncation.separable", claims="every cluster can be parted from all others together")
def separable() -> str:
    """Each cluster has its witness."""
    return "Yes: cluster-separated truncations exist."


@sentence("truncation.not_separable", claims="some cluster cannot be parted from all others together")
def not_separable() -> str:
    """A cluster has a witness against it."""
    return "No: not every cluster can be parted."


@sentence(
    "truncation.one_by_one", claims="some cluster cannot be parted from all others, but in an order from the rest"
)
def one_by_one() -> str:
    """An order was found."""
    return "No: not every cluster can be parted from the rest, but one by one they can."


@sentence("truncation.collapsed", claims="at the last recorded time each point of these clusters has one image")
def collapsed(count: int, clusters: int, last: float | None) -> str:
    """How many clusters became points.

    >>> collapsed(2, 3, 0.5)
    '2 of 3 clusters collapsed to a point by s = 0.5'
    """
    return f"{count} of {clusters} clusters collapsed to a point" + ("" if last is None else f" by s = {at_most(last)}")


@sentence("truncation.cost_falls", claims="between recorded times the cost never rises by more than 1e-9 of its start")
def cost_falls() -> str:
    """Of the recorded costs."""
    return "rising between no two recorded times"


@sentence("truncation.cost_rises", claims="the cost rises between two recorded times by more than 1e-9 of its start")
def cost_rises() -> str:
    """Of the recorded costs."""
    return "RISING between recorded times"


@sentence("truncation.separated", claims="at recorded times all maps do to each cluster what its own does, to 1e-9")
def separated() -> str:
    """Of the composed maps, relative to the size of the data."""
    return "at every recorded time, to 1e-9 of the data's size"


@sentence("truncation.orthogonal", claims="no entry of RRᵀ − 1 is larger at any recorded time")
def orthogonal(error: float) -> str:
    """Of the rotations."""
    return f"|RR' - 1| <= {at_most(error, 2)}"


@sentence("truncation.predicted", claims="Proposition 4.2 bounds the time by which this cluster collapses")
def predicted(name: str, since: float, bound: float, seen: float | None) -> str:
    """Of a cluster whose hypotheses hold at a recorded time.

    >>> predicted("a", 0.25, 1.00004, None)
    'cluster a, from s = 0.25: before s = 1.001, not seen in this run'
    """
    known = "not seen in this run" if seen is None else f"seen at s = {seen:.4g}"
    return f"cluster {name}, from s = {at_least(since, 3)}: before s = {at_most(bound)}, {known}"


@sentence("truncation.blurred", claims="two rows of different clusters are the same numbers in single precision")
def blurred(first: int, second: int) -> str:
    """What no network in float32 can undo."""
    return f"in float32 rows {first} and {second} of two clusters are one point: no network can tell them apart there"
