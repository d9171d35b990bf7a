"""What is said of runs of training: laws that are kept, ranks, signs, and runs that are lost."""

from __future__ import annotations

from lawful.outward import at_most
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
