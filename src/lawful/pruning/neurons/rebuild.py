"""The network after a change, its folded weights rounded once, and what that rounding does."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import numpy as np

from lawful.network import Dag, Role, useful_dag
from lawful.pruning.neurons import rules
from lawful.pruning.neurons.bounds import Box, ranges
from lawful.pruning.neurons.rules import Change
from lawful.types import Floats


def rebuilt(dag: Dag, change: Change) -> tuple[Dag, dict[tuple[str, str], Fraction]]:
    """The network after a change, its new weights rounded to float64, and the exact error of each rounding."""
    names, roles, slopes = list(dag.names), list(dag.roles), list(dag.slopes)
    if rules.BIAS in {tail for tail, _ in change.weights} and dag.constant is None:
        names.append(rules.free_name(dag))
        roles.append(Role.CONSTANT)
        slopes.append(1.0)
    bias = next((name for name, role in zip(names, roles, strict=True) if role == Role.CONSTANT), "")
    number = {name: place for place, name in enumerate(names)}
    weights = {(bias if tail == rules.BIAS else tail, head): value for (tail, head), value in change.weights.items()}
    rounded = {ends: float(value) for ends, value in weights.items()}
    errors = {ends: Fraction(rounded[ends]) - value for ends, value in weights.items() if rounded[ends] != value}
    theta = dag.theta.copy()
    added = dict(rounded)
    touched = {number[tail] for tail, _ in rounded}
    for edge in np.flatnonzero(np.isin(dag.tails, list(touched))):
        ends = dag.edge_name(int(edge))
        if ends in rounded:
            theta[edge] = added.pop(ends)
    keep = np.ones(len(names), dtype=bool)
    keep[[dag.index[name] for name in change.removed]] = False
    tails = np.concatenate([dag.tails, np.array([number[tail] for tail, _ in added], dtype=np.intp)])
    heads = np.concatenate([dag.heads, np.array([number[head] for _, head in added], dtype=np.intp)])
    theta = np.concatenate([theta, np.array(list(added.values()))])
    edges = keep[tails] & keep[heads]
    place = np.cumsum(keep) - 1
    after = useful_dag(
        [name for name, kept in zip(names, keep, strict=True) if kept], np.array(roles)[keep],
        place[tails[edges]], place[heads[edges]], theta[edges], np.array(slopes)[keep],
    )  # fmt: skip
    return after, errors


def rounding_defects(before: Dag, after: Dag, errors: Mapping[tuple[str, str], Fraction], region: Box) -> Floats:
    """Per node of `after`, the error of its sum when every new weight is off by its rounding error."""
    defects = np.zeros(len(after.names))
    if errors:
        low, high = ranges(before, region)
        size = np.maximum(np.abs(low), np.abs(high))
        for (tail, head), error in errors.items():
            if tail in after.index and head in after.index:
                value = size[before.index[tail]] if tail in before.index else 1.0
                defects[after.index[head]] += np.nextafter(float(abs(error)), np.inf) * value
    return defects
