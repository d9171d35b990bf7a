"""Re-check a certificate of laws with none of the code that found it.

Fields are computed edge by edge; derivatives by exact polynomial interpolation instead of dual numbers; ranks by FLINT
instead of our elimination; the random numbers in plain integers; laws are rebuilt from the graph by their theorems.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from math import comb
from typing import Any

import numpy as np

from lawful.errors import CertificateError, LawfulError
from lawful.laws.certificate import digest
from lawful.laws.verify_case import Case, need, spans_of, states_of
from lawful.laws.verify_laws import law_gradients
from lawful.laws.verify_metric import blocks_of, times_metric
from lawful.laws.verify_region import check_gates, gates_on_data, grouped_patterns, realised_patterns
from lawful.network import Architecture, Dag, Role
from lawful.types import Residues

MOST_STATES = 20_000


def verify(claim: Mapping[str, Any]) -> None:
    """Raise `CertificateError` unless the certificate proves exactly as many laws as it states."""
    try:
        _verify(claim)
    except CertificateError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, LawfulError, OverflowError, ZeroDivisionError) as error:
        raise CertificateError(f"not a certificate of laws: {type(error).__name__} {error}") from None


def _verify(claim: Mapping[str, Any]) -> None:
    need(claim["digest"] == digest(claim), "the file was edited: its checksum does not match")
    case = _read(claim)
    need(claim["parameters"] == len(case.tails), "the number of parameters is not that of the network")
    need(claim["states"] == case.states, "the number of states is not that of the flow")
    dimensions, brackets = list(claim["dimensions"]), list(claim["brackets"])
    need(len(dimensions) == len(brackets) > 0, "dimensions and brackets differ in length")
    need(all(0 <= rows <= case.states + 100 for rows in brackets), "more brackets than any proof needs")
    laws = law_gradients(case, claim["known"])
    lower = _rank(laws, case.prime)
    need(lower == claim["laws"], f"{lower} of the explicit laws are independent, not {claim['laws']}")
    values = np.zeros((0, case.states), dtype=np.int64)
    for level, (stated, rows) in enumerate(zip(dimensions, brackets, strict=True)):
        samples = [case.multipliers(level, slot, rows) for slot in range(level + 1)]
        point = np.repeat(case.point[:, None], rows, axis=1)
        found = _bracket(case, level)(point, samples).T
        need(not (_products(laws, found, case.prime)).any(), f"a law is not conserved by the brackets of level {level}")
        values = np.concatenate([values, found])
        dimension = _rank(values, case.prime)
        need(dimension == stated, f"the brackets up to level {level} span {dimension} dimensions, not {stated}")
    upper = case.states - dimensions[-1]
    need(upper == claim["laws"], f"the brackets leave room for {upper} laws, not {claim['laws']}")


def _read(claim: Mapping[str, Any]) -> Case:
    from sympy import isprime

    network = claim["network"]
    if "architecture" in network:
        dag = Architecture.parse(network["architecture"]).to_dag()
    else:
        names, roles, tails, heads = (network[key] for key in ("names", "roles", "tails", "heads"))
        dag = Dag(names, roles, tails, heads, None, network["slopes"])
    prime = claim["prime"]
    need(isinstance(prime, int) and 1000 < prime < 2**23 and isprime(prime), f"{prime} is not a prime of this size")
    need(claim["loss"] in ("full", "cross-entropy"), f"unknown loss {claim['loss']!r}")
    need(claim["level"] in ("phi", "near", "data"), f"unknown level {claim['level']!r}")
    need(claim["flow"]["name"] in ("gradient", "momentum", "metric"), "unknown flow")
    states = states_of(dag.parameters, claim["flow"])
    need(states <= MOST_STATES, f"{states} states are more than a verification can hold")
    point = np.array(claim["point"], dtype=np.int64)
    need(point.shape == (states,) and bool(((point >= 0) & (point < prime)).all()), "the point is not one residue each")
    gates: tuple[Fraction | None, ...] = tuple(Fraction(1) if slope == 1.0 else None for slope in dag.slopes)
    patterns: tuple[tuple[Fraction, ...], ...] = ()
    order = tuple(np.concatenate(dag.layers).tolist())
    spans: tuple[list[list[int]], ...] = ()
    if claim["level"] != "phi":
        weights = [Fraction(float(weight)) for weight in claim["weights"]]
        patterns = realised_patterns(dag, order, weights, claim["inputs"])
        if claim["level"] == "near":
            gates = check_gates(dag, order, weights, claim["fixed"])
        else:
            patterns = grouped_patterns(patterns, claim["groups"])
            gates = gates_on_data(dag, patterns, claim["fixed"])
            spans = spans_of(_extended(dag, claim["inputs"], prime), claim["groups"], prime)
    return Case(
        dag.names, tuple(dag.roles.tolist()), tuple(dag.tails.tolist()), tuple(dag.heads.tolist()), gates, order,
        int(dag.levels.max()), prime, claim["seed"], claim["loss"], claim["flow"], patterns, spans,
        point, blocks_of(claim["flow"], dag.parameters),
    )  # fmt: skip


def _extended(dag: Dag, inputs: Sequence[Sequence[float]], prime: int) -> list[list[int]]:
    """The data as residues, with a 1 for the constant."""
    exact = [[Fraction(float(value)) for value in given] for given in inputs]
    one = [] if dag.constant is None else [1]
    return [[value.numerator * pow(value.denominator, -1, prime) % prime for value in given] + one for given in exact]


# Fields and brackets

Field = Callable[[Residues, list[Residues]], Residues]


def _gradient(case: Case, weights: Residues, multipliers: Residues) -> Residues:
    """The gradient of the output, one edge after the other; a column per sample."""
    prime, count = case.prime, weights.shape[1]
    into: list[list[int]] = [[] for _ in case.names]
    out_of: list[list[int]] = [[] for _ in case.names]
    for edge, (tail, head) in enumerate(zip(case.tails, case.heads, strict=True)):
        into[head].append(edge)
        out_of[tail].append(edge)
    value = [np.zeros(count, dtype=np.int64) for _ in case.names]
    for node in case.order:
        total = np.zeros(count, dtype=np.int64) if into[node] else np.ones(count, dtype=np.int64)
        for edge in into[node]:
            total = (total + weights[edge] * value[case.tails[edge]]) % prime
        value[node] = total * multipliers[node] % prime
    sensitivity = [np.zeros(count, dtype=np.int64) for _ in case.names]
    for node in reversed(case.order):
        if case.roles[node] == Role.OUTPUT:
            sensitivity[node] = multipliers[node]
            continue
        total = np.zeros(count, dtype=np.int64)
        for edge in out_of[node]:
            total = (total + weights[edge] * sensitivity[case.heads[edge]]) % prime
        sensitivity[node] = total * multipliers[node] % prime
    pairs = zip(case.tails, case.heads, strict=True)
    return np.array([value[tail] * sensitivity[head] % prime for tail, head in pairs])


def _field(case: Case, state: Residues, multipliers: Residues) -> Residues:
    size, flow = len(case.tails), case.flow
    force = np.zeros((size, state.shape[1]), dtype=np.int64)
    for part in np.split(multipliers[:-1], case.mixed):
        force = (force + _gradient(case, state[:size], part)) % case.prime
    if flow["name"] == "metric":
        return times_metric(case, force)
    if flow["name"] == "momentum":
        velocity = state[size : 2 * size] * multipliers[-1] % case.prime
        friction = case.residue(Fraction(float(flow["friction"])))
        parts = [velocity, (force - friction * velocity) % case.prime]
        return np.concatenate(parts if flow["autonomous"] else [*parts, multipliers[-1:]])
    return force


def _bracket(case: Case, level: int) -> Field:
    """`[X_k, Z] = JX_k·Z − JZ·X_k`, with Z the bracket of one level less."""
    if level == 0:
        return lambda state, samples: _field(case, state, samples[0])
    inner = _bracket(case, level - 1)
    degree = max(case.longest - 1, 1)  # of a field; a bracket of k + 1 fields has degree (k + 1) degree − k

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
    from flint import nmod_mat

    if not rows.size:
        return 0
    return int(nmod_mat(rows.shape[0], rows.shape[1], rows.ravel().tolist(), prime).rank())


def _products(laws: Residues, brackets: Residues, prime: int) -> Residues:
    """Inner products of laws and brackets, one state at a time to stay below 2⁶³."""
    total = np.zeros((len(laws), len(brackets)), dtype=np.int64)
    for first in range(0, laws.shape[1], 4096):
        part = slice(first, first + 4096)
        total = (total + laws[:, part] @ brackets[:, part].T) % prime
    return total
