"""A network whose neurons were rescaled: the same function up to stated rounding of weights, with a stated balance.

Neuron v times `f_v > 0`: edge i→j becomes `θ f_j / f_i`, which changes no output (inputs and outputs have factor 1).
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from lawful.verify.core.dag import read_dag
from lawful.verify.core.finding import Finding
from lawful.verify.core.schema import integers, number, numbers, object_with_keys, require
from lawful.verify.sentences import say_rebalance


def check(body: dict[str, Any]) -> Finding:
    """How far the weights are from rescaled ones, and the balance from the one asked for."""
    given = object_with_keys(body, "certificate", "before after factors rounding target except residual")
    before, after = read_dag(given["before"], "before"), read_dag(given["after"], "after")
    require(before.weights is not None and after.weights is not None, "a network has no weights")
    require(before.same_graph(after), "the two are not weights of one graph")
    scales = [Fraction(1)] * len(before.roles)
    for node, value in zip(before.hidden, numbers(given["factors"], "factors", length=len(before.hidden)), strict=True):
        require(value > 0, "a factor is not positive")
        scales[node] = Fraction(value)
    rounding = number(given["rounding"], "rounding")
    require(0 <= rounding < 1, "the rounding is no share of a weight")
    for edge, (tail, head) in enumerate(zip(before.tails, before.heads, strict=True)):
        wanted = before.exact[edge] * scales[head] / scales[tail]
        close = abs(after.exact[edge] - wanted) <= Fraction(rounding) * abs(wanted)
        require(close, f"edge {edge} is not its weight rescaled, within the stated rounding")
    target = numbers(given["target"], "target", length=len(before.hidden))
    left = set(integers(given["except"], "except", 0, len(before.hidden) - 1))
    residual = number(given["residual"], "residual")
    require(residual >= 0, "the residual is negative")
    for place, (node, wanted_balance) in enumerate(zip(before.hidden, target, strict=True)):
        gap = abs(after.balance[node] - Fraction(wanted_balance))
        require(place in left or gap <= Fraction(residual), f"the balance of node {node} is further off than stated")
    digests = before.digest(), after.digest()
    facts = {"rounding": rounding, "residual": residual, "target": target, "except": sorted(left)}
    return Finding(say_rebalance(facts, digests), facts, digests)
