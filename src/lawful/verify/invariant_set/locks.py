"""Edges that no point of an invariant set has zero: a set of neurons that sends nothing out but by them, in rationals.

The set T has one edge out, e; summing `B̃x = c` over T gives `x_e ≥ −Σ_T c > 0`. Or the mirror image, with one edge in.
"""

from __future__ import annotations

from fractions import Fraction

from lawful.verify.core.dag import HIDDEN, CheckedDag
from lawful.verify.core.schema import integer, integers, items, limit_cost, object_with_keys, require, word


def check_locks(value: object, dag: CheckedDag, balance: dict[int, Fraction], slack: Fraction) -> dict[int, Fraction]:
    """The least value of `x_e` for each edge that is locked at every balance within `slack` of the stated one."""
    found: dict[int, Fraction] = {}
    steps = 0
    for item in items(value, "locked", most=len(dag.tails)):
        lock = object_with_keys(item, "locked", "edge side nodes")
        edge = integer(lock["edge"], "locked.edge", 0, len(dag.tails) - 1)
        nodes = set(integers(lock["nodes"], "locked.nodes", 0, len(dag.roles) - 1))
        require(edge not in found, f"edge {edge} is locked twice")
        require(all(dag.roles[node] == HIDDEN for node in nodes), f"edge {edge}: a node of its set is not hidden")
        out = word(lock["side"], "locked.side", "out", "in") == "out"
        near = dag.out_of if out else dag.into
        steps += sum(len(near[node]) for node in nodes)
        limit_cost(steps)
        crossing = {other for node in nodes for end, other in near[node] if end not in nodes}
        require(crossing == {edge}, f"edge {edge}: other edges cross its set, or none does")
        total = sum((balance[node] for node in nodes), Fraction(0))
        least = (-total if out else total) - slack
        require(least > 0, f"edge {edge}: the minimum is not above the tolerance")
        found[edge] = least
    return found
