"""Re-check a certificate of laws with none of the code that found it.

Fields are computed edge by edge; derivatives by exact polynomial interpolation instead of dual numbers; ranks by FLINT
instead of our elimination; the random numbers in plain integers; laws are rebuilt from the graph by their theorems.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lawful.errors import CertificateError, LawfulError
from lawful.laws.certificate import digest
from lawful.network import Architecture, Dag, Role

Residues = NDArray[np.int64]
MOST_STATES = 20_000
MASK = 2**64 - 1


def verify(claim: Mapping[str, Any]) -> None:
    """Raise `CertificateError` unless the certificate proves exactly as many laws as it states."""
    try:
        _verify(claim)
    except CertificateError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, LawfulError, OverflowError, ZeroDivisionError) as error:
        raise CertificateError(f"not a certificate of laws: {type(error).__name__} {error}") from None


def _verify(claim: Mapping[str, Any]) -> None:
    _need(claim["digest"] == digest(claim), "the file was edited: its checksum does not match")
    case = _read(claim)
    _need(claim["parameters"] == len(case.tails), "the number of parameters is not that of the network")
    _need(claim["states"] == case.states, "the number of states is not that of the flow")
    dimensions, brackets = list(claim["dimensions"]), list(claim["brackets"])
    _need(len(dimensions) == len(brackets) > 0, "dimensions and brackets differ in length")
    _need(all(0 <= rows <= case.states + 100 for rows in brackets), "more brackets than any proof needs")
    laws = _laws(case, claim["known"])
    lower = _rank(laws, case.prime)
    _need(lower == claim["laws"], f"{lower} of the explicit laws are independent, not {claim['laws']}")
    values = np.zeros((0, case.states), dtype=np.int64)
    for level, (stated, rows) in enumerate(zip(dimensions, brackets, strict=True)):
        samples = [case.multipliers(level, slot, rows) for slot in range(level + 1)]
        point = np.repeat(case.point[:, None], rows, axis=1)
        found = _bracket(case, level)(point, samples).T
        _need(
            not (_products(laws, found, case.prime)).any(), f"a law is not conserved by the brackets of level {level}"
        )
        values = np.concatenate([values, found])
        dimension = _rank(values, case.prime)
        _need(dimension == stated, f"the brackets up to level {level} span {dimension} dimensions, not {stated}")
    upper = case.states - dimensions[-1]
    _need(upper == claim["laws"], f"the brackets leave room for {upper} laws, not {claim['laws']}")


def _need(condition: bool, complaint: str) -> None:
    if not condition:
        raise CertificateError(complaint)


@dataclass(frozen=True, eq=False)
class _Case:
    """The certificate's problem, read with suspicion."""

    names: tuple[str, ...]
    roles: tuple[int, ...]
    tails: tuple[int, ...]
    heads: tuple[int, ...]
    gates: tuple[Fraction | None, ...]
    order: tuple[int, ...]
    longest: int
    prime: int
    seed: int
    loss: str
    flow: Mapping[str, Any]
    patterns: tuple[tuple[Fraction, ...], ...]
    point: Residues

    @property
    def states(self) -> int:
        return _states(len(self.tails), self.flow)

    @property
    def outputs(self) -> list[int]:
        return [node for node, role in enumerate(self.roles) if role == Role.OUTPUT]

    def residue(self, value: Fraction) -> int:
        return value.numerator * pow(value.denominator, -1, self.prime) % self.prime

    def multipliers(self, level: int, slot: int, rows: int) -> Residues:
        """One number per node and row, then one for the drift of momentum."""
        table = np.empty((len(self.names) + 1, rows), dtype=np.int64)
        start = _stirred(_stirred(self.seed & MASK, level), slot)
        for row in range(rows):
            state = _stirred(start, row)
            line = [_stirred(state, node) % self.prime for node in range(len(self.names))]
            self._set_gates(line, start, row)
            if self.loss == "cross-entropy":
                *others, last = self.outputs
                line[last] = -sum(line[node] for node in others) % self.prime
            table[:-1, row] = line
            table[-1, row] = _stirred(_stirred(_stirred(start, 2), row), 0) % self.prime
        return table

    def _set_gates(self, line: list[int], start: int, row: int) -> None:
        hidden = [node for node, role in enumerate(self.roles) if role == Role.HIDDEN]
        if self.patterns:
            which = _stirred(_stirred(_stirred(start, 1), row), 0) % self.prime % len(self.patterns)
            for node, gate in zip(hidden, self.patterns[which], strict=True):
                line[node] = self.residue(gate)
            return
        for node in hidden:
            if self.gates[node] is not None:
                line[node] = 1


def _states(parameters: int, flow: Mapping[str, Any]) -> int:
    return parameters if flow["name"] != "momentum" else 2 * parameters + (not flow["autonomous"])


def _stirred(state: int, label: int) -> int:
    """SplitMix64's finaliser, in plain integers."""
    mixed = (state + 0x9E3779B97F4A7C15 * (label + 1)) & MASK
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & MASK
    return mixed ^ (mixed >> 31)


def _read(claim: Mapping[str, Any]) -> _Case:
    from sympy import isprime

    network = claim["network"]
    if "architecture" in network:
        dag = Architecture.parse(network["architecture"]).to_dag()
    else:
        dag = Dag(*(network[key] for key in ("names", "roles", "tails", "heads")), None, network["slopes"])
    prime = claim["prime"]
    _need(isinstance(prime, int) and 1000 < prime < 2**23 and isprime(prime), f"{prime} is not a prime of this size")
    _need(claim["loss"] in ("full", "cross-entropy"), f"unknown loss {claim['loss']!r}")
    _need(claim["level"] in ("phi", "near"), f"unknown level {claim['level']!r}")
    _need(claim["flow"]["name"] in ("gradient", "momentum", "metric"), "unknown flow")
    states = _states(dag.parameters, claim["flow"])
    _need(states <= MOST_STATES, f"{states} states are more than a verification can hold")
    point = np.array(claim["point"], dtype=np.int64)
    _need(
        point.shape == (states,) and bool(((point >= 0) & (point < prime)).all()), "the point is not one residue each"
    )
    gates: tuple[Fraction | None, ...] = tuple(Fraction(1) if slope == 1.0 else None for slope in dag.slopes)
    patterns: tuple[tuple[Fraction, ...], ...] = ()
    order = tuple(np.concatenate(dag.layers).tolist())
    if claim["level"] == "near":
        from lawful.laws.verify_region import check_gates, realised_patterns

        weights = [Fraction(float(weight)) for weight in claim["weights"]]
        gates = check_gates(dag, order, weights, claim["fixed"])
        patterns = realised_patterns(dag, order, weights, claim["inputs"])
    return _Case(
        dag.names, tuple(dag.roles.tolist()), tuple(dag.tails.tolist()), tuple(dag.heads.tolist()), gates, order,
        int(dag.levels.max()), prime, claim["seed"], claim["loss"], claim["flow"], patterns, point,
    )  # fmt: skip


# Fields and brackets

Field = Callable[[Residues, list[Residues]], Residues]


def _gradient(case: _Case, weights: Residues, multipliers: Residues) -> Residues:
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


def _field(case: _Case, state: Residues, multipliers: Residues) -> Residues:
    size, flow = len(case.tails), case.flow
    force = _gradient(case, state[:size], multipliers)
    if flow["name"] == "metric":
        scale = np.array([case.residue(Fraction(float(value))) for value in flow["diagonal"]])
        return force * scale[:, None] % case.prime
    if flow["name"] == "momentum":
        velocity = state[size : 2 * size] * multipliers[-1] % case.prime
        friction = case.residue(Fraction(float(flow["friction"])))
        parts = [velocity, (force - friction * velocity) % case.prime]
        return np.concatenate(parts if flow["autonomous"] else [*parts, multipliers[-1:]])
    return force


def _bracket(case: _Case, level: int) -> Field:
    """`[X_k, Z] = JX_k·Z − JZ·X_k`, with Z the bracket of one level less."""
    if level == 0:
        return lambda state, samples: _field(case, state, samples[0])
    inner = _bracket(case, level - 1)
    degree = max(case.longest - 1, 1)  # of a field; a bracket of k + 1 fields has degree (k + 1) degree − k

    def bracket(state: Residues, samples: list[Residues]) -> Residues:
        outer = lambda at: _field(case, at, samples[-1])  # noqa: E731 - a field waiting for its state
        before = lambda at: inner(at, samples[:-1])  # noqa: E731
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


# Laws


def _laws(case: _Case, named: list[list[Any]]) -> Residues:
    """Gradients at the point (a row each) of the named laws, each rebuilt from the graph by its theorem."""
    into: list[dict[int, int]] = [{} for _ in case.names]
    out_of: list[dict[int, int]] = [{} for _ in case.names]
    resting = _resting(case)
    for edge, (tail, head) in enumerate(zip(case.tails, case.heads, strict=True)):
        if not resting[edge]:
            into[head][tail], out_of[tail][head] = edge, edge
    rows = []
    for kind, *nodes in named:
        matrix: dict[tuple[int, int], int] = {}
        linear: list[int] = []
        match kind, nodes:
            case "neuron", [node]:
                _need(case.roles[node] == Role.HIDDEN, f"node {node} is not a hidden neuron")
                matrix = {(e, e): 1 for e in into[node].values()} | {(e, e): -1 for e in out_of[node].values()}
            case (("pair" | "rotation"), [first, second]):
                _need(first != second and case.roles[first] == case.roles[second] == Role.HIDDEN, "not two neurons")
                same_gate = case.gates[first] is not None and case.gates[first] == case.gates[second]
                _need(same_gate, f"{case.names[first]} and {case.names[second]} do not act linearly alike")
                same = set(into[first]) == set(into[second]) and set(out_of[first]) == set(out_of[second])
                _need(same, f"{case.names[first]} and {case.names[second]} have different neighbours")
                matrix = {(edge, into[second][at]): 1 for at, edge in into[first].items()}
                matrix |= {(edge, out_of[second][at]): -1 for at, edge in out_of[first].items()}
            case "sum", [node]:
                _need(case.loss == "cross-entropy", "sums of outgoing weights are conserved by cross-entropy only")
                linear = [out_of[node][output] for output in case.outputs]
            case "weight", [tail, head]:
                linear = [e for e, ends in enumerate(zip(case.tails, case.heads, strict=True)) if ends == (tail, head)]
                _need(len(linear) == 1 and resting[linear[0]], f"nothing shows that edge {tail} -> {head} rests")
            case _:
                raise CertificateError(f"unknown law {kind!r}")
        rows.append(_law_gradient(case, kind, matrix, linear))
    if case.flow["name"] == "momentum" and case.flow["autonomous"] and case.flow["friction"] != 0:
        rows = _ratios(rows, case.prime)
    width = case.states + (0 if not rows else len(rows[0]) - case.states)
    return np.array(rows, dtype=np.int64).reshape(len(rows), width)[:, : case.states]


def _law_gradient(case: _Case, kind: str, matrix: dict[tuple[int, int], int], linear: list[int]) -> list[int]:
    """The gradient at the point; for a rotation without time, its value is appended."""
    prime, point, size = case.prime, [int(value) for value in case.point], len(case.tails)
    gradient = [0] * case.states
    if case.flow["name"] == "momentum":
        _need(kind == "rotation", f"{kind} is not a law of momentum")
        value = 0
        for first, second in matrix:
            for left, right, sign in ((first, second, 1), (second, first, -1)):
                gradient[left] += sign * point[size + right]
                gradient[size + right] += sign * point[left]
                value += sign * point[left] * point[size + right]
        if not case.flow["autonomous"]:
            gradient[-1] = case.residue(Fraction(float(case.flow["friction"]))) * value  # of e^{γt} Q, without e^{γt}
        return [entry % prime for entry in gradient] + [value % prime]
    _need(kind != "rotation", "rotations are laws of momentum only")
    inverse = [1] * size
    if case.flow["name"] == "metric":
        inverse = [pow(case.residue(Fraction(float(entry))), -1, prime) for entry in case.flow["diagonal"]]
        for first, second in matrix:
            _need(inverse[first] == inverse[second], "the metric breaks the symmetry of a pair")
        _need(not linear, "a linear law under a metric")
    for (first, second), sign in matrix.items():
        gradient[first] += sign * point[second] * inverse[first]
        gradient[second] += sign * point[first] * inverse[second]
    for edge in linear:
        gradient[edge] += 1
    return [entry % prime for entry in gradient]


def _ratios(rows: list[list[int]], prime: int) -> list[list[int]]:
    """Gradients of `Q_i / Q_0`, up to a factor: friction damps all rotations alike, so their ratios are conserved."""
    if not rows:
        return []
    first, *others = rows
    pairs = ((row, row[-1]) for row in others)
    return [[(a * first[-1] - value * b) % prime for a, b in zip(row, first, strict=True)] for row, value in pairs]


def _resting(case: _Case) -> list[bool]:
    """Edges whose gradient is always 0: no signal comes in, or nothing that it reaches is heard."""
    if case.loss == "cross-entropy" and len(case.outputs) == 1:
        return [True] * len(case.tails)
    silent = [case.roles[node] == Role.HIDDEN and case.gates[node] == 0 for node in range(len(case.names))]
    mute, unheard = list(silent), list(silent)
    for node in case.order:
        if case.roles[node] == Role.HIDDEN:
            sources = (
                [mute[t] for t, h in zip(case.tails, case.heads, strict=True) if h == node] if any(silent) else [False]
            )
            mute[node] = mute[node] or all(sources)
    for node in reversed(case.order):
        if case.roles[node] == Role.HIDDEN:
            sinks = (
                [unheard[h] for t, h in zip(case.tails, case.heads, strict=True) if t == node]
                if any(silent)
                else [False]
            )
            unheard[node] = unheard[node] or all(sinks)
    return [mute[tail] or unheard[head] for tail, head in zip(case.tails, case.heads, strict=True)]


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
