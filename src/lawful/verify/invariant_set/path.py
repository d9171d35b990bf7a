"""Two weight vectors of one graph that training could join without leaving an invariant set, or that it cannot.

Joined: between waypoints the squares move linearly and no sign changes; where signs change the weights are zero. The
balance is linear in the squares, so it is furthest from the start's at a waypoint. Apart: the balances differ, or an
edge that is locked at every balance between them has two signs.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from lawful.verify.core.dag import CheckedDag, read_squares
from lawful.verify.core.finding import Finding
from lawful.verify.core.numbers import ZERO, Rational, as_fraction, fraction
from lawful.verify.core.schema import integers, items, limit_sums, object_with_keys, require, spend, truth
from lawful.verify.invariant_set.balances import CheckedEntries, check_locks, read_graph


def check(body: dict[str, Any]) -> Finding:
    """Whether a path joins the two, and how far from the start's balance it strays; or why there is none."""
    parts = object_with_keys(body, "certificate", "start stop joined signs waypoints drift locked")
    start, stop = read_graph(parts["start"], "start"), read_graph(parts["stop"], "stop")
    require(start.weights is not None and stop.weights is not None, "a network has no weights")
    require(start.graph == stop.graph, "the two are not weights of one graph")
    facts: dict[str, Any] = {"entries": isinstance(start, CheckedEntries), "joined": truth(parts["joined"], "joined")}
    if facts["joined"]:
        require(parts["locked"] is None, "a path needs no locks")
        tensors: list[frozenset[Any]] = []  # beside those with edges
        for end in (start, stop):
            if isinstance(end, CheckedEntries):
                require(not end.other_laws, "other laws of the module are not looked at")
                tensors.append(end.rest)
        differ = {name for name, _ in tensors[0] ^ tensors[1]} if tensors else ()
        pieces, drift = _check_path(parts, start, stop)
        facts |= {"pieces": pieces, "drift": as_fraction(drift), "other_tensors": len(differ)}
    else:
        unused = parts["signs"] is None and parts["waypoints"] is None and parts["drift"] is None
        require(unused, "no path has no pieces")
        apart = _distance(start, stop.balance)
        facts["balances_differ_by"] = as_fraction(apart)
        if parts["locked"] is None:
            require(apart > 0, "the balances are equal, and no lock is named")
        else:
            locked = check_locks(parts["locked"], start, start.balance, apart)
            require(bool(locked), "no locked edge is named")
            for edge in locked:
                opposite = _sign(start, edge) * _sign(stop, edge) < 0
                require(opposite, f"edge {edge} has the same sign at both ends")
            facts["locked"] = sorted(locked)
    return Finding(facts, (start.digest(), stop.digest()))


def _check_path(given: dict[str, Any], start: CheckedDag, stop: CheckedDag) -> tuple[int, Rational]:
    """The number of pieces, and how far the balance strays."""
    edges = range(len(start.tails))
    signs = [integers(piece, "signs", -1, 1, length=len(edges)) for piece in items(given["signs"], "signs")]
    require(bool(signs) and all(all(piece) for piece in signs), "a sign is 1 or -1")
    between = items(given["waypoints"], "waypoints", length=len(signs) - 1)
    spend(20.0 * (len(signs) + 1) * len(edges))
    points = [read_squares(point, "waypoints", start, fraction) for point in between]
    limit_sums((square for point in points for square in point.values()), 4.0 * (len(points) + 2) * len(edges))
    for piece, dag in ((signs[0], start), (signs[-1], stop)):
        require(all(piece[edge] * _sign(dag, edge) >= 0 for edge in edges), "an end of the path has other signs")
    # Squares move on straight lines, signs change only at waypoints: weights are continuous if those are 0 there.
    for place, (before, after) in enumerate(pairwise(signs)):
        turned = [edge for edge in edges if before[edge] != after[edge]]
        require(not any(points[place].get(edge) for edge in turned), f"a weight jumps at waypoint {place}")
    drift = fraction(given["drift"], "drift")
    # The balance is linear in squares and its distance convex, so between two points it strays no further.
    for squares in (*points, stop.squares):
        require(_distance(start, start.balance_of(squares)) <= drift, "the balance strays further than stated")
    require(drift >= 0, "the drift is negative")
    return len(signs), drift


def _sign(dag: CheckedDag, edge: int) -> int:
    weight = (dag.weights or ())[edge]
    return (weight > 0) - (weight < 0)


def _distance(dag: CheckedDag, balance: dict[int, Rational]) -> Rational:
    """`Σ_v |c_v − d_v|`, c being the balance of the weights."""
    return sum((abs(value - balance.get(node, ZERO)) for node, value in dag.balance.items()), ZERO)
