"""Snapshots of training: the loss at each lies in a stated interval, and the balances drift by at most a stated amount.

Losses are enclosed in balls, balances are rational. That a flow joins the snapshots is not claimed.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

from flint import arb, ctx

from lawful.verify.core.balls import BITS, Ball, ball, interval, lies_in, surely_below
from lawful.verify.core.dag import OUTPUT, CheckedDag, read_dag
from lawful.verify.core.finding import Finding, digest_of
from lawful.verify.core.schema import (
    integers,
    items,
    limit_cost,
    matrix,
    number,
    numbers,
    object_with_keys,
    require,
    word,
)

KEYS = "network x y loss decay times theta losses drift"


def check(body: dict[str, Any]) -> Finding:
    """Where the loss stood at each snapshot, and how far the balances strayed from `e^{-2λt}` times the first."""
    parts = object_with_keys(body, "certificate", KEYS)
    dag = read_dag(parts["network"])
    require(dag.weights is None, "the weights of the network are those of the snapshots")
    times = numbers(parts["times"], "times")
    require(len(times) >= 2 and all(a < b for a, b in pairwise(times)), "the times do not increase")
    require(times[0] >= 0, "the times start before 0")
    theta = matrix(parts["theta"], "theta", rows=len(times), columns=len(dag.tails))
    losses = [interval(value, "losses") for value in items(parts["losses"], "losses", length=len(times))]
    decay, drift = number(parts["decay"], "decay"), number(parts["drift"], "drift")
    require(decay >= 0, "the decay is negative")
    x = matrix(parts["x"], "x", columns=len(dag.inputs))
    require(len(x) > 0, "there are no data")
    loss = word(parts["loss"], "loss", "mse", "bce", "ce")
    y = _targets(parts["y"], loss, len(x), len(dag.outputs))
    limit_cost(10.0 * len(times) * len(x) * (len(dag.tails) + len(dag.roles)))
    with ctx.workprec(BITS):
        for place, (weights, ends) in enumerate(zip(theta, losses, strict=True)):
            mean_loss = _loss(dag, [ball(weight) for weight in weights], x, y, loss)
            require(lies_in(mean_loss, ends), f"the loss at snapshot {place} is not in its interval")
        _check_drift(dag, theta, times, decay, drift)
    names = tuple(replace(dag, weights=tuple(weights)).digest() for weights in (theta[0], theta[-1]))
    data = digest_of("data", x, y)
    facts = {
        "losses": losses,
        "loss": loss,
        "drift": drift,
        "decay": decay,
        "snapshots": len(times),
        "samples": len(x),
        "data": data,
    }
    return Finding(facts, names, (data,))


def _targets(value: object, loss: str, samples: int, outputs: int) -> list[list[float]]:
    """A row per sample: numbers, or the place of the right class."""
    if loss == "ce":
        return [[float(label)] for label in integers(value, "y", 0, outputs - 1, length=samples)]
    rows = matrix(value, "y", rows=samples, columns=outputs)
    if loss == "bce":
        require(all(0 <= target <= 1 for row in rows for target in row), "a probability is not between 0 and 1")
    return rows


def _loss(dag: CheckedDag, weights: list[Ball], x: list[list[float]], y: list[list[float]], loss: str) -> Ball:
    """The mean loss, as PyTorch defines it, enclosed."""
    slopes = {node: ball(slope) for node, slope in dag.slope.items()}
    total = arb(0)
    for point, target in zip(x, y, strict=True):
        value: list[Ball] = [arb(1)] * len(dag.roles)
        for node, coordinate in zip(dag.inputs, point, strict=True):
            value[node] = ball(coordinate)
        for node in dag.order:
            if dag.into[node] or dag.roles[node] == OUTPUT:
                summed = sum((weights[edge] * value[tail] for tail, edge in dag.into[node]), arb(0))
                if node in slopes:
                    summed = summed.max(arb(0)) + slopes[node] * summed.min(arb(0))
                value[node] = summed
        outputs = [value[node] for node in dag.outputs]
        total += _one_loss(outputs, target, loss)
    return total / len(x)


def _one_loss(outputs: list[Ball], target: list[float], loss: str) -> Ball:
    if loss == "ce":
        return sum((out.exp() for out in outputs), arb(0)).log() - outputs[int(target[0])]
    wanted = [ball(value) for value in target]
    if loss == "mse":
        parts = [(out - want) * (out - want) for out, want in zip(outputs, wanted, strict=True)]
    else:  # log(1 + e^out) - want * out
        parts = [out.exp().log1p() - want * out for out, want in zip(outputs, wanted, strict=True)]
    return sum(parts, arb(0)) / len(outputs)


def _check_drift(dag: CheckedDag, theta: list[list[float]], times: list[float], decay: float, drift: float) -> None:
    require(drift >= 0, "the drift is negative")
    first = replace(dag, weights=tuple(theta[0])).balance
    for time, weights in zip(times, theta, strict=True):
        share = (ball(Fraction(decay) * Fraction(time) * -2)).exp()
        now = replace(dag, weights=tuple(weights)).balance
        for node, start in first.items():
            gap = arb(now[node]) - share * arb(start) if decay else arb(now[node] - start)
            require(surely_below(abs(gap), drift), f"the balance of node {node} drifts by more than stated")
