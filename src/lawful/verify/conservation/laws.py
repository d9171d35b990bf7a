"""Laws of training, counted again: explicit laws from below, Lie brackets from above, modulo a prime.

Fields are computed edge by edge; derivatives by exact polynomial interpolation; ranks by FLINT; the random numbers in
plain integers; laws are rebuilt from the graph by their theorems. A rank modulo a prime at one point is at most the
rank at almost every point, so brackets bound the number of laws from above and independent laws from below.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from math import comb
from typing import Any

import numpy as np
from flint import nmod_mat

from lawful.errors import CertificateError, Unsupported
from lawful.verify.conservation.gates import (
    Gates,
    Samples,
    alike_on_data,
    all_inputs,
    check_gates,
    every_pattern,
    gates_alike,
    gates_on_data,
    grouped_patterns,
    realised_patterns,
    samples_of,
)
from lawful.verify.conservation.named import law_gradients
from lawful.verify.conservation.problem import MIXED, Case, Residues, blocks_of, spans_of, states_of, times_metric
from lawful.verify.core.dag import OUTPUT, CheckedDag, read_dag
from lawful.verify.core.finding import Finding, digest_of, short
from lawful.verify.core.schema import (
    integer,
    integers,
    items,
    limit_cost,
    matrix,
    number,
    object_with_keys,
    require,
    truth,
    word,
)

KEYS = "laws parameters states dimensions level loss flow network prime seed point brackets known"
MORE = {"phi": "", "near": " inputs fixed", "data": " inputs fixed groups"}
FLOWS = {"gradient": "name", "momentum": "name friction autonomous", "metric": "name", "decay": "name decay"}
MOST_ENTRIES = 40_000_000  # of the matrix of brackets


def check(body: dict[str, Any]) -> Finding:
    """Exactly how many independent laws training has."""
    level = word(body.get("level"), "level", *MORE)
    parts = object_with_keys(body, "certificate", KEYS + MORE[level], "every" if level == "near" else "")
    dag = read_dag(parts["network"])
    require((dag.weights is None) is (level == "phi"), "the weights do not go with the level")
    case = _read(parts, dag, level)
    parameters = len(dag.tails)
    require(integer(parts["parameters"], "parameters") == parameters, "the number of parameters is not the network's")
    require(integer(parts["states"], "states") == case.states, "the number of states is not that of the flow")
    brackets = integers(parts["brackets"], "brackets", 1, case.states + 100, most=16)
    dimensions = integers(parts["dimensions"], "dimensions", 0, case.states, length=len(brackets))
    require(len(brackets) > 0, "there are no brackets")
    _check_cost(case, brackets)
    count = integer(parts["laws"], "laws", 0, case.states)
    laws = law_gradients(case, parts["known"])
    lower = _rank(laws, case.prime)
    require(lower == count, f"{lower} of the explicit laws are independent, not {count}")
    values = np.zeros((0, case.states), dtype=np.int64)
    for depth, (stated, rows) in enumerate(zip(dimensions, brackets, strict=True)):
        samples = [case.multipliers(depth, slot, rows) for slot in range(depth + 1)]
        point = np.repeat(case.point[:, None], rows, axis=1)
        rows_here = _bracket(case, depth)(point, samples).T
        kept = _annihilate(rows_here, laws, case.prime)
        require(kept, f"a law is not conserved by the brackets of level {depth}")
        values = np.concatenate([values, rows_here])
        dimension = _rank(values, case.prime)
        require(dimension == stated, f"the brackets up to level {depth} span {dimension} dimensions, not {stated}")
    upper = case.states - dimensions[-1]
    require(upper == count, f"the brackets leave room for {upper} laws, not {count}")
    digest = dag.digest()
    facts: dict[str, Any] = {
        "laws": count,
        "parameters": parameters,
        "states": case.states,
        "level": level,
        "loss": case.loss,
        "flow": _flow_words(case, dag),
    }
    facts["claim"] = _claim(case, dag, level, parts["known"])
    if level == "data":
        facts |= {"samples": len(parts["inputs"]), "data": digest_of("data", matrix(parts["inputs"], "inputs"))}
    if facts["claim"] == "somewhere":
        facts["architecture"] = dag.digest(weights=False)
    # Laws that rest on no gate hold at every weight: a network of this architecture is one that the statement is about.
    others = tuple(facts[key] for key in ("data", "architecture") if key in facts)
    return Finding(facts, (digest,), others)


def _claim(case: Case, dag: CheckedDag, level: str, known: object) -> str:
    """What the laws are complete among: functions of φ, or all; near these weights, holding there or at all weights."""
    gated = any(slope != 1 for slope in dag.slope.values())
    if level == "phi":
        return "phi" if gated else "near"
    if level == "data" or not gated:
        return "near"
    free = tuple(gate if dag.slope.get(node, 1) == 1 else None for node, gate in enumerate(case.gates))
    try:
        law_gradients(
            replace(case, gates=free, alike=(), samples=None), known
        )  # do they rest on no gate of these weights?
    except CertificateError:
        return "near"
    return "somewhere"


def _flow_words(case: Case, dag: CheckedDag) -> str:
    flow = case.flow
    if flow["name"] == "momentum":
        kind = "that do not depend on time" if flow["autonomous"] else "that may depend on time"
        return f"a heavy ball with friction {flow['friction']!r}, laws {kind},"
    if flow["name"] == "decay":
        return f"gradient flow with weight decay {flow['decay']!r}, laws that may depend on time,"
    if flow["name"] == "metric":
        return f"gradient flow in a constant metric ({short(_metric_digest(case, dag))})"
    return "gradient flow"


def _metric_digest(case: Case, dag: CheckedDag) -> str:
    """The blocks of a metric that are not 1, each over weights in the order of the network's digest.

    By the numbers of the certificate, another order of edges would be another metric under one name.
    """
    order = {edge: place for place, (_, _, edge) in enumerate(dag.numbered_edges)}
    blocks = []
    for where, rows in case.metric:
        turned = sorted(range(len(where)), key=lambda k: order[where[k]])
        if rows != [[Fraction(1)]]:
            entries = [[float(rows[j][k]) for k in turned] for j in turned]
            blocks.append(([float(order[where[k]]) for k in turned], entries))
    return digest_of("metric", *(table for where, rows in sorted(blocks) for table in ([where], rows)))


def _read(given: dict[str, Any], dag: CheckedDag, level: str) -> Case:
    prime = integer(given["prime"], "prime", 1009, 2**23)
    require(all(prime % divisor for divisor in range(2, 2900)), f"{prime} is not a prime")
    loss = word(given["loss"], "loss", "full", "cross-entropy")
    name = word(given["flow"].get("name") if isinstance(given["flow"], dict) else None, "flow.name", *FLOWS)
    flow = object_with_keys(given["flow"], "flow", FLOWS[name], "diagonal blocks" if name == "metric" else "")
    if name == "momentum":
        require(number(flow["friction"], "flow.friction") >= 0, "the friction is negative")
        truth(flow["autonomous"], "flow.autonomous")
    if name == "decay":
        require(number(flow["decay"], "flow.decay") > 0, "the weight decay is not positive")
    states = states_of(len(dag.tails), flow)
    point = np.array(integers(given["point"], "point", 0, prime - 1, length=states), dtype=np.int64)
    gates: Gates = tuple(Fraction(1) if dag.slope.get(node, 1) == 1 else None for node in range(len(dag.roles)))
    patterns: tuple[tuple[Fraction, ...], ...] = ()
    alike: tuple[object, ...] = ()
    spans: tuple[list[list[int]], ...] = ()
    samples: Samples | None = None
    if level != "phi":
        inputs = matrix(given["inputs"], "inputs", columns=len(dag.inputs))
        limit_cost(30.0 * dag.growth * len(inputs) * (len(dag.tails) + len(dag.roles) + len(dag.inputs) ** 2))
        fixed = [
            None if gate is None else number(gate, "fixed")
            for gate in items(given["fixed"], "fixed", length=len(dag.roles))
        ]
        patterns = realised_patterns(dag, inputs, on_data=level == "data")
        if level == "near" and "every" in given:
            require(truth(given["every"], "every"), "every: expected true, or no such key")
            require(set(patterns) == every_pattern(dag), "the inputs do not show all patterns that occur")
            samples = all_inputs(dag, patterns)
            gates, alike = gates_on_data(dag, samples, fixed), alike_on_data(dag, samples)
        elif level == "near":
            gates = check_gates(dag, fixed)
            alike = gates_alike(dag, gates)
        else:
            groups = integers(given["groups"], "groups", 0, len(inputs) - 1, length=len(inputs))
            samples = samples_of(dag, inputs, patterns)
            patterns = grouped_patterns(patterns, groups)
            gates = gates_on_data(dag, samples, fixed)
            alike = alike_on_data(dag, samples)
            spans = spans_of(_extend(dag, inputs, prime), groups, prime)
    return Case(
        dag, gates, prime, integer(given["seed"], "seed", 0, 2**64 - 1), loss, flow, patterns, spans, point,
        blocks_of(flow, len(dag.tails)), alike, samples,
    )  # fmt: skip


def _extend(dag: CheckedDag, inputs: list[list[float]], prime: int) -> list[list[int]]:
    """The data as residues, with a 1 for the constant."""
    one = [] if dag.constant is None else [1]
    exact = [[Fraction(value) for value in point] for point in inputs]
    return [[value.numerator * pow(value.denominator, -1, prime) % prime for value in point] + one for point in exact]


def _check_cost(case: Case, brackets: list[int]) -> None:
    """Levels of brackets cost exponentially more: count the fields that they evaluate."""
    degree, evaluations, steps = _degree(case), 1.0, 0.0
    for level, rows in enumerate(brackets):
        if level:
            evaluations = (level * degree - level + 3) * evaluations + degree + 2
        work = case.patterns_per_field * (len(case.dag.tails) + len(case.dag.roles)) + sum(
            len(where) ** 2 for where, _ in case.metric
        )
        steps += evaluations * work * (50 + rows / 10) + 10.0 * rows * (level + 1) * MIXED * len(case.dag.roles)
        limit_cost(steps)
    if sum(brackets) * case.states > MOST_ENTRIES:
        raise Unsupported(f"{sum(brackets)} brackets of {case.states} states are more than a check can hold")


# Fields and brackets

Field = Callable[[Residues, list[Residues]], Residues]


def _gradient(case: Case, weights: Residues, multipliers: Residues) -> Residues:
    """The gradient of the output, one edge after the other; a column per sample."""
    dag, prime, count = case.dag, case.prime, weights.shape[1]
    value = [np.zeros(count, dtype=np.int64) for _ in dag.roles]
    for node in dag.order:
        total = np.zeros(count, dtype=np.int64) if dag.into[node] else np.ones(count, dtype=np.int64)
        for tail, edge in dag.into[node]:
            total = (total + weights[edge] * value[tail]) % prime
        value[node] = total * multipliers[node] % prime
    sensitivity = [np.zeros(count, dtype=np.int64) for _ in dag.roles]
    for node in reversed(dag.order):
        if dag.roles[node] == OUTPUT:
            sensitivity[node] = multipliers[node]
            continue
        total = np.zeros(count, dtype=np.int64)
        for head, edge in dag.out_of[node]:
            total = (total + weights[edge] * sensitivity[head]) % prime
        sensitivity[node] = total * multipliers[node] % prime
    pairs = zip(dag.tails, dag.heads, strict=True)
    return np.array([value[tail] * sensitivity[head] % prime for tail, head in pairs])


def _field(case: Case, state: Residues, multipliers: Residues) -> Residues:
    size, flow = len(case.dag.tails), case.flow
    force = np.zeros((size, state.shape[1]), dtype=np.int64)
    for part in np.split(multipliers[:-1], case.patterns_per_field):
        force = (force + _gradient(case, state[:size], part)) % case.prime
    if flow["name"] == "metric":
        return times_metric(case, force)
    if flow["name"] == "decay":
        rate = case.residue(Fraction(float(flow["decay"])))
        pull = rate * (state[:size] * multipliers[-1] % case.prime) % case.prime
        return np.concatenate([(force - pull) % case.prime, multipliers[-1:]])
    if flow["name"] == "momentum":
        velocity = state[size : 2 * size] * multipliers[-1] % case.prime
        friction = case.residue(Fraction(float(flow["friction"])))
        parts = [velocity, (force - friction * velocity) % case.prime]
        return np.concatenate(parts if flow["autonomous"] else [*parts, multipliers[-1:]])
    return force


def _degree(case: Case) -> int:
    """Of a field: the weights of a longest path but one; drift and friction are linear."""
    return max(max(case.dag.levels) - 1, 1)


def _bracket(case: Case, level: int) -> Field:
    """`[X_k, Z] = JX_k·Z − JZ·X_k`, with Z the bracket of one level less."""
    if level == 0:
        return lambda state, samples: _field(case, state, samples[0])
    inner = _bracket(case, level - 1)
    degree = _degree(case)  # a bracket of k + 1 fields has degree (k + 1) degree − k

    def bracket(state: Residues, samples: list[Residues]) -> Residues:
        def outer(at: Residues) -> Residues:
            return _field(case, at, samples[-1])

        def before(at: Residues) -> Residues:
            return inner(at, samples[:-1])

        along_inner = _derivative(outer, state, before(state), degree, case.prime)
        along_outer = _derivative(before, state, outer(state), level * degree - level + 1, case.prime)
        return (along_inner - along_outer) % case.prime

    return bracket


def _derivative(
    field: Callable[[Residues], Residues], state: Residues, direction: Residues, degree: int, prime: int
) -> Residues:
    """`d/dt field(state + t·direction)` at t = 0, from its values at t = 0, …, degree: exact for polynomials."""
    total = np.zeros_like(state)
    constant = 0
    for t in range(1, degree + 1):
        weight = (-1) ** (t + 1) * comb(degree, t) * pow(t, -1, prime) % prime
        total = (total + weight * field((state + t * direction) % prime)) % prime
        constant -= pow(t, -1, prime)
    return (total + constant % prime * field(state)) % prime


# Ranks


def _rank(rows: Residues, prime: int) -> int:
    return int(_matrix(rows, prime).rank()) if rows.size else 0


def _matrix(rows: Residues, prime: int) -> Any:
    return nmod_mat(*rows.shape, rows.ravel().tolist(), prime)


def _annihilate(brackets: Residues, laws: Residues, prime: int) -> bool:
    """Whether all inner products of laws and brackets are 0."""
    return not laws.size or (_matrix(laws, prime) * _matrix(brackets, prime).transpose()).rank() == 0
