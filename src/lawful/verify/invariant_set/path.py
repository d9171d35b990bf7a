"""Two weight vectors of one graph that training could join without leaving an invariant set, or that it cannot.

Joined: between waypoints the squares move linearly and no sign changes; where signs change the weights are zero. The
balance is linear in the squares, so it is furthest from the start's at a waypoint. Apart: the balances differ, or an
edge that is locked at every balance between them has two signs.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import Any

from lawful.errors import CertificateError
from lawful.verify.core.dag import CheckedDag
from lawful.verify.core.finding import Finding
from lawful.verify.core.schema import (
    integer,
    integers,
    items,
    limit_cost,
    limit_sums,
    object_with_keys,
    rational,
    require,
)
from lawful.verify.invariant_set.entries import CheckedEntries, read_graph
from lawful.verify.invariant_set.locks import check_locks
from lawful.verify.sentences import say_path

Squares = dict[int, Fraction]


def check(body: dict[str, Any]) -> Finding:
    """Whether a path joins the two, and how far from the start's balance it strays; or why there is none."""
    given = object_with_keys(body, "certificate", "start stop joined signs waypoints drift locked")
    start, stop = read_graph(given["start"], "start"), read_graph(given["stop"], "stop")
    require(start.weights is not None and stop.weights is not None, "a network has no weights")
    require(start.same_graph(stop), "the two are not weights of one graph")
    digests = start.digest(), stop.digest()
    facts: dict[str, Any] = {"entries": isinstance(start, CheckedEntries)}
    if given["joined"] is True:
        require(given["locked"] is None, "a path needs no locks")
        more = any(isinstance(each, CheckedEntries) and each.others for each in (start, stop))
        require(not more, "other laws of the module are not looked at")
        pieces, drift = _joined(given, start, stop)
        facts |= {"joined": True, "pieces": pieces, "drift": drift, "other_tensors": start.besides(stop)}
        return Finding(say_path(facts, digests), facts, digests)
    if given["joined"] is not False:
        raise CertificateError("a certificate of a path says that it exists, or that none does")
    require(given["signs"] is None and given["waypoints"] is None and given["drift"] is None, "no path has no pieces")
    apart = sum((abs(value - stop.balance[node]) for node, value in start.balance.items()), Fraction(0))
    facts |= {"joined": False, "balances_differ_by": apart}
    if given["locked"] is None:
        require(apart > 0, "the balances are equal, and no lock is named")
        return Finding(say_path(facts, digests), facts, digests)
    locked = check_locks(given["locked"], start, start.balance, apart)
    require(bool(locked), "no locked edge is named")
    for edge in locked:
        require(start.exact[edge] * stop.exact[edge] < 0, f"edge {edge} has the same sign at both ends")
    facts["locked"] = sorted(locked)
    return Finding(say_path(facts, digests), facts, digests)


def _joined(given: dict[str, Any], start: CheckedDag, stop: CheckedDag) -> tuple[int, Fraction]:
    """The number of pieces, and how far the balance strays."""
    edges = range(len(start.tails))
    signs = [integers(piece, "signs", -1, 1, length=len(edges)) for piece in items(given["signs"], "signs")]
    require(bool(signs) and all(all(piece) for piece in signs), "a sign is 1 or -1")
    between = items(given["waypoints"], "waypoints", length=len(signs) - 1)
    limit_cost(20.0 * (len(signs) + 1) * len(edges))
    points = [_squares(start), *(_waypoint(point, len(edges)) for point in between), _squares(stop)]
    limit_sums((square for point in points[1:-1] for square in point.values()), 4.0 * len(points) * len(edges))
    for piece, dag in ((signs[0], start), (signs[-1], stop)):
        require(all(piece[edge] * dag.exact[edge] >= 0 for edge in edges), "an end of the path has other signs")
    for place, (before, after) in enumerate(pairwise(signs)):
        turned = [edge for edge in edges if before[edge] != after[edge]]
        require(not any(points[place + 1].get(edge) for edge in turned), f"a weight jumps at waypoint {place}")
    drift = rational(given["drift"], "drift")
    for point in points:
        require(_distance(start, point) <= drift, "the balance strays further than stated")
    return len(signs), drift


def _squares(dag: CheckedDag) -> Squares:
    return {edge: weight * weight for edge, weight in enumerate(dag.exact)}


def _waypoint(value: object, edges: int) -> Squares:
    found: Squares = {}
    for item in items(value, "waypoints", most=edges):
        number, amount = items(item, "waypoints", length=2)
        edge = integer(number, "waypoints", 0, edges - 1)
        require(edge not in found, f"edge {edge} appears twice")
        found[edge] = rational(amount, "waypoints")
        require(found[edge] >= 0, f"edge {edge} has a negative square")
    return found


def _distance(dag: CheckedDag, squares: Squares) -> Fraction:
    """`Σ_v |(B̃x)_v − c_v|`."""
    missing = dict(dag.balance)
    for edge, amount in squares.items():
        head, tail = dag.heads[edge], dag.tails[edge]
        if head in missing:
            missing[head] -= amount
        if tail in missing:
            missing[tail] += amount
    return sum(map(abs, missing.values()), Fraction(0))
