"""A network whose neurons were rescaled: the same function up to stated rounding of weights, with a stated balance.

Neuron v times `f_v > 0`: edge i→j becomes `θ f_j / f_i`, which changes no output (inputs and outputs have factor 1).
"""

from __future__ import annotations

from typing import Any

from lawful.verify.core.dag import read_dag
from lawful.verify.core.finding import Finding
from lawful.verify.core.numbers import ONE, exact
from lawful.verify.core.schema import integers, number, numbers, object_with_keys, require


def check(body: dict[str, Any]) -> Finding:
    """How far the weights are from rescaled ones, and the balance from the one asked for."""
    parts = object_with_keys(body, "certificate", "before after factors rounding target except residual")
    before, after = read_dag(parts["before"], "before"), read_dag(parts["after"], "after")
    require(before.weights is not None and after.weights is not None, "a network has no weights")
    require(before.graph == after.graph, "the two are not weights of one graph")
    factors = numbers(parts["factors"], "factors", length=len(before.hidden))
    require(all(factor > 0 for factor in factors), "a factor is not positive")
    scale = dict(zip(before.hidden, map(exact, factors), strict=True))
    rounding, residual = number(parts["rounding"], "rounding"), number(parts["residual"], "residual")
    require(0 <= rounding < 1 and residual >= 0, "the rounding is no share of a weight, or the residual is negative")
    share, most = exact(rounding), exact(residual)
    weights = zip(before.weights or (), after.weights or (), strict=True)
    for edge, (tail, head, (old, new)) in enumerate(zip(before.tails, before.heads, weights, strict=True)):
        wanted = exact(old) * scale.get(head, ONE) / scale.get(tail, ONE)
        # Factors cancel along every path exactly, so only the storing of weights is left to compare.
        close = abs(exact(new) - wanted) <= share * abs(wanted)
        require(close, f"edge {edge} is not its weight rescaled, within the stated rounding")
    target = numbers(parts["target"], "target", length=len(before.hidden))
    left = set(integers(parts["except"], "except", 0, len(before.hidden) - 1))
    for place, (node, wanted) in enumerate(zip(before.hidden, map(exact, target), strict=True)):
        close = place in left or abs(after.balance[node] - wanted) <= most
        require(close, f"the balance of node {node} is further off than stated")
    facts = {"rounding": rounding, "residual": residual, "target": target, "except": sorted(left)}
    return Finding(facts, (before.digest(), after.digest()))
