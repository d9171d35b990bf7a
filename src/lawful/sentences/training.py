"""What is said of runs of training: laws that are kept, ranks, signs, and runs that are lost."""

from __future__ import annotations

from lawful.outward import at_least, at_most
from lawful.sentences import sentence


@sentence("flow.laws_kept", claims="no law of the run drifts by more than this at any snapshot")
def laws_kept(laws: int, drift: float, metric: bool = False) -> str:
    """Of a gradient flow, with its decay subtracted.

    >>> laws_kept(8, 3.04e-11)
    '8 laws kept to 3.1e-11'
    """
    return f"{_count(laws, 'law')}{' under the metric' if metric else ''} kept to {at_most(drift, 2)}"


@sentence("flow.heavy_ball", claims="no law of the gradient flow drifts by more than this along the heavy ball")
def heavy_ball(laws: int, drift: float) -> str:
    """Of a flow with inertia, whose laws are others."""
    return f"{_count(laws, 'law')} of the gradient flow; a heavy ball need not keep them: {at_most(drift, 2)}"


@sentence("flow.rank", claims="so many singular values of J are above the given share of the largest, at each snapshot")
def rank(ranks: tuple[int, ...], tolerance: float) -> str:
    """The numerical rank along a run.

    >>> rank((3, 3), 1e-7)
    'rank of J: 3 at all 2 snapshots (σ above 1e-07 of the largest)'
    """
    least, most = min(ranks), max(ranks)
    where = f"at all {len(ranks)} snapshots" if least == most else f"at the end, {least} to {most} before"
    return f"rank of J: {ranks[-1]} {where} (σ above {tolerance:g} of the largest)"


@sentence("flow.signs_kept", claims="so many weights that are locked at the start have their sign at all snapshots")
def signs_kept(kept: int, locked: int) -> str:
    """Signs of locked weights."""
    return f"locked weights: {kept} of {locked} kept their sign at all snapshots"


@sentence("flow.none_locked", claims="every weight can reach zero on the invariant set of the start")
def none_locked() -> str:
    """No lock at the start."""
    return "no weight is locked at the start"


@sentence("flow.exact_law", claims="the formula for sgd differs from what was measured by at most this, for all laws")
def exact_law(error: float) -> str:
    """Of `c⁺ = c + η²c(g)` and its extensions."""
    return f"sgd's law c+ = c + step^2 c(g), with momentum and decay: off by at most {at_most(error, 1)}"


@sentence("flow.lost", claims="parameters of the model are NaN or infinite, the named one among them")
def lost(step: int, first: str, count: int) -> str:
    """Of a monitored model.

    >>> lost(3, "0.weight", 2)
    'the run is lost: at step 3 0.weight and 1 other have NaN or infinite entries, and so have the laws'
    """
    others = f" and {count - 1} other{'s' if count > 2 else ''} have" if count > 1 else " has"
    return f"the run is lost: at step {step} {first}{others} NaN or infinite entries, and so have the laws"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


@sentence("leaky.narrowest", claims="no other block that was measured has a smaller effective dimension")
def narrowest(block: str, dimension: float, width: int, samples: int) -> str:
    """Of the blocks of any network on data."""
    return f"narrowest after block {block}: dimension {dimension:.2f} of {width}, {samples} samples"


@sentence("leaky.no_rank", claims="the path is further from stationary than a rank needs")
def no_rank(depth: float, stationarity: float, needed: float) -> str:
    """Of the deepest network.

    >>> no_rank(5, 0.0123, 0.01)
    'no bottleneck rank: at depth 5 the path is stationary to 0.012 only, and its rank needs 0.01'
    """
    return (
        f"no bottleneck rank: at depth {depth:g} the path is stationary to {at_least(stationarity, 2)} only, "
        f"and its rank needs {needed:g}"
    )


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
