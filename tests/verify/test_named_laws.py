"""Every law that can be named and is not refused is conserved along random fields, for every flow, loss and level.

Naming laws is cheap for a forger, and brackets test them at a point of the certificate alone. Here each law that is
rebuilt is held against fields with random multipliers at a random point: none is conserved there by chance alone.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from effort import trials

from lawful.errors import LawfulError
from lawful.verify.conservation import laws
from lawful.verify.conservation.named import law_gradients
from lawful.verify.conservation.problem import Case
from lawful.verify.core.dag import CheckedDag, read_dag

PRIME, ROWS = 8388593, 6
REFUSED = (LawfulError, KeyError, IndexError, TypeError, ValueError, ZeroDivisionError)


def random_graph(rng: random.Random, weights: bool) -> dict[str, Any]:
    """A few nodes with any edges; half of the neurons are linear, so that all kinds of laws occur."""
    inputs, hidden, outputs, constant = rng.randint(1, 2), rng.randint(1, 4), rng.randint(1, 2), rng.random() < 0.4
    roles = [0] * inputs + [1] * hidden + [2] * outputs + [3] * constant
    tails = [*range(inputs + hidden), *range(len(roles) - constant, len(roles))]
    heads = range(inputs, inputs + hidden + outputs)
    edges = [[t, h] for h in heads for t in tails if (t < h or roles[t] == 3) and rng.random() < 0.6]
    slopes = [rng.choice([1.0, 1.0, 0.0, 0.0, 0.25, -0.5]) for _ in range(hidden)]
    values = [rng.choice([1.0, -1.0, 0.5, -2.0, 0.0, 1.5]) for _ in edges]
    return {"roles": roles, "edges": edges, "slopes": slopes, "weights": values if weights else None}


def random_flow(rng: random.Random, edges: int) -> dict[str, Any]:
    match rng.choice(["gradient", "momentum", "metric", "decay"]):
        case "momentum":
            return {"name": "momentum", "friction": rng.choice([0.0, 0.5]), "autonomous": rng.random() < 0.5}
        case "decay":
            return {"name": "decay", "decay": 0.5}
        case "metric" if rng.random() < 0.5 or edges < 2:
            return {"name": "metric", "diagonal": [rng.choice([1.0, 1.0, 2.0]) for _ in range(edges)]}
        case "metric":
            block = {"weights": rng.sample(range(edges), 2), "matrix": [[2.0, 1.0], [1.0, 2.0]]}
            return {"name": "metric", "blocks": [block]}
    return {"name": "gradient"}


def random_case(rng: random.Random) -> tuple[CheckedDag, str, bool, Case] | None:
    """A problem as a certificate would state it; None where it is none."""
    level = rng.choice(["phi", "near", "data"])
    graph = random_graph(rng, level != "phi")
    try:
        dag = read_dag(graph)
    except LawfulError:
        return None
    flow = random_flow(rng, len(dag.tails))
    states = laws.states_of(len(dag.tails), flow)
    stated: dict[str, Any] = {"prime": PRIME, "seed": rng.getrandbits(60), "flow": flow,
                              "loss": rng.choice(["full", "cross-entropy"]),
                              "point": [rng.randrange(PRIME) for _ in range(states)]}  # fmt: skip
    every = level == "near" and rng.random() < 0.3
    if level != "phi":
        count = rng.randint(1, 3)
        stated["inputs"] = [[rng.choice([0.0, 1.0, -1.0, 2.0]) for _ in dag.inputs] for _ in range(count)]
        stated["fixed"] = [
            rng.choice([None, None, float(dag.slope.get(node, 1)), 1.0]) for node in range(len(dag.roles))
        ]
        stated |= {"every": True} if every else {"groups": list(range(count))} if level == "data" else {}
    for _ in range(3):
        try:
            return dag, level, every, laws._read(stated, dag, level)
        except LawfulError:  # gates that nothing shows: fewer are claimed
            stated["fixed"] = [None if rng.random() < 0.7 else gate for gate in stated.get("fixed", ())]
    return None


def all_names(rng: random.Random, dag: CheckedDag, case: Case) -> list[list[Any]]:
    """Whatever a forger may name."""
    nodes = range(len(dag.roles))
    pairs = [[kind, *ends] for kind in ("pair", "rotation") for ends in itertools.combinations(nodes, 2)]
    named = [[kind, node] for kind in ("neuron", "detour", "sum") for node in nodes] + pairs
    named += [["weight", tail, head] for tail, head in zip(dag.tails, dag.heads, strict=True)]
    for node in nodes if case.samples is not None else ():
        into = [edge for _, edge in dag.into[node]]
        sums = [some for size in (1, 2) for some in itertools.combinations(into, size)]
        named += [["still", node, [[edge, rng.choice(["1", "-1", "2"])] for edge in some]] for some in sums]
    for source, sink in itertools.product([None, *nodes], nodes):
        named += [["part", source, sink, rng.sample(dag.hidden, rng.randint(0, min(2, len(dag.hidden))))]]
    quadratic = [law for law in named if law[0] in ("neuron", "pair")]
    return [*named, *(["combination", [["1", *law], ["-2", *rng.choice(quadratic)]]] for law in quadratic)]


def all_gates(rng: random.Random, dag: CheckedDag, case: Case) -> Case:
    """The problem with other gates that may occur near the weights: fixed and equal ones stay so."""
    chosen: dict[object, Fraction] = {}
    gates: list[Fraction] = []
    for node in dag.hidden:
        key = case.alike[node] if case.alike and case.alike[node] is not None else node
        gate = case.gates[node]
        gates.append(chosen.setdefault(key, rng.choice([Fraction(1), dag.slope[node]])) if gate is None else gate)
    return replace(case, patterns=(tuple(gates),), spans=())


@pytest.mark.parametrize("seed", range(4))
def test_every_law_that_is_rebuilt_is_conserved(seed: int) -> None:
    rng, rebuilt = random.Random(seed), 0  # noqa: S311
    for _ in range(trials(60, 600)):
        made = random_case(rng)
        if made is None:
            continue
        dag, level, every, case = made
        cases = [case] if level != "near" or every else [all_gates(rng, dag, case) for _ in range(3)]
        for law in all_names(rng, dag, case):
            try:
                gradients = law_gradients(case, [law])
            except REFUSED:
                continue
            rebuilt += 1
            for here in cases:
                drawn = replace(here, seed=rng.getrandbits(60))
                fields = laws._bracket(drawn, 0)(
                    np.repeat(case.point[:, None], ROWS, axis=1), [drawn.multipliers(0, 0, ROWS)]
                ).T
                assert laws._annihilate(fields, gradients, PRIME), (law, level, case.flow, case.loss, dag.graph)
    assert rebuilt > 100
