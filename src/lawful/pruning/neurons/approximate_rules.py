"""Neurons that are nearly redundant on a box: what can stand in for each, and what that costs at the outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from lawful.network import Dag
from lawful.pruning.neurons.bounds import Box, ranges, sensitivity
from lawful.pruning.neurons.rules import BIAS, Change, EdgeTable, Sums
from lawful.types import Floats


@dataclass(frozen=True)
class Option:
    """A neuron that could go at a price: its stand-in is a constant, or `factor` times a partner's value."""

    name: str
    cost: float
    radius: float
    constant: float = 0.0
    partner: str | None = None
    factor: float = 0.0


def replacements(dag: Dag, region: Box) -> list[Option]:
    """For every hidden neuron the cheaper of two stand-ins, a constant or a near twin; cheapest first."""
    low, high = ranges(dag, region)
    strength = sensitivity(dag)
    per_output = np.zeros((len(dag.names), strength.shape[1]))
    np.add.at(per_output, dag.tails, np.abs(dag.theta)[:, None] * strength[dag.heads])
    felt = per_output.max(axis=1)  # how far outputs move per unit of a neuron's value
    options = []
    for node in dag.hidden:
        middle = 0.5 * (low[node] + high[node])
        if np.isfinite(middle):
            radius = float(np.nextafter(max(high[node] - middle, middle - low[node]), np.inf))
            options.append(Option(dag.names[node], radius * felt[node], radius, constant=float(middle)))
    cheapest = {option.name: option for option in options}
    for option in _near_twins(dag, low, high, felt):
        if option.name not in cheapest or option.cost < cheapest[option.name].cost:
            cheapest[option.name] = option
    return sorted(cheapest.values(), key=lambda option: option.cost)


def _near_twins(dag: Dag, low: Floats, high: Floats, felt: Floats) -> list[Option]:
    size = np.maximum(np.abs(low), np.abs(high))
    edges = EdgeTable(dag)
    families: dict[bytes, list[int]] = {}
    for node in dag.hidden:
        row = edges.into(node)
        families.setdefault(dag.slopes[node].tobytes() + np.sort(dag.tails[row]).tobytes(), []).append(int(node))
    options = []
    for family in families.values():
        rows = [edges.into(node)[np.argsort(dag.tails[edges.into(node)])] for node in family]
        matrix = dag.theta[np.array(rows)]
        norms = np.linalg.norm(matrix, axis=1)
        if len(family) < 2 or not norms.all():
            continue
        rays = matrix / norms[:, None]
        closeness = np.tril(rays @ rays.T, -1)  # a partner stands earlier, so no two stand in for each other
        for place in range(1, len(family)):
            twin = int(np.argmax(closeness[place]))
            factor = float(norms[place] / norms[twin])
            lipschitz = max(1.0, abs(float(dag.slopes[family[place]])))
            gap = np.abs(matrix[place] - factor * matrix[twin]) + 4e-16 * np.abs(matrix[place])
            radius = float(lipschitz * (gap @ size[dag.tails[rows[place]]]) * (1 + 1e-7))
            if closeness[place, twin] > 0 and np.isfinite(radius):
                name, partner = dag.names[family[place]], dag.names[family[twin]]
                options.append(Option(name, radius * felt[family[place]], radius, partner=partner, factor=factor))
    return options


def combined(dag: Dag, options: Sequence[Option]) -> tuple[Change, dict[str, float]]:
    """Take every option whose neuron and partner are still there; the defect this adds to each following sum."""
    edges, sums = EdgeTable(dag), Sums(dag)
    evidence: dict[str, object] = {}
    partners: set[str] = set()
    defects: dict[str, float] = {}
    for option in options:
        if option.name in evidence or option.name in partners or option.partner in evidence:
            continue
        if option.partner is not None:
            partners.add(option.partner)
        evidence[option.name] = (
            (option.partner, Fraction(option.factor)) if option.partner else Fraction(option.constant)
        )
        for edge in edges.out_of(dag.index[option.name]):
            head, weight = dag.names[dag.heads[edge]], Fraction(dag.theta[edge])
            defects[head] = defects.get(head, 0.0) + abs(float(weight)) * option.radius * (1 + 1e-9)
            if option.partner is not None:
                sums.add(option.partner, head, Fraction(option.factor) * weight)
            else:  # also a zero: the edge keeps a neuron that hears nothing else in the graph, and so in the bound
                sums.add(BIAS, head, Fraction(option.constant) * weight)
    weights = {ends: value for ends, value in sums.weights.items() if ends[1] not in evidence}
    return Change("near", evidence, weights), defects
