"""Rebuild each law that a certificate names from the graph, by its theorem."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from lawful.errors import CertificateError
from lawful.verify.laws_case import Case, Residues
from lawful.verify.laws_metric import check_spared, over_metric
from lawful.verify.schema import listed, need, rational, whole
from lawful.verify.wiring import HIDDEN


def law_gradients(case: Case, value: object) -> Residues:
    """Gradients at the point (a row each) of the named laws, each rebuilt from the graph by its theorem."""
    into: list[dict[int, int]] = [{} for _ in case.roles]
    out_of: list[dict[int, int]] = [{} for _ in case.roles]
    resting = _resting(case)
    for edge, (tail, head) in enumerate(zip(case.tails, case.heads, strict=True)):
        if not resting[edge]:
            into[head][tail], out_of[tail][head] = edge, edge
    rows = []
    for item in listed(value, "known", most=4 * case.states + 100):
        kind, *nodes = listed(item, "known", most=3) or [None]
        if kind != "combination":
            nodes = [whole(node, "known", 0, len(case.roles) - 1) for node in nodes]
        matrix: dict[tuple[int, int], Fraction] = {}
        linear: list[int] = []
        match kind, nodes:
            case "combination", [parts]:
                need(case.flow["name"] == "metric", "combinations are for metrics")
                for part in listed(parts, "known"):
                    weight, name, *own = listed(part, "known", most=4)
                    ends = [whole(node, "known", 0, len(case.roles) - 1) for node in own]
                    for place, entry in _quadratic(case, [name, *ends], into, out_of).items():
                        matrix[place] = matrix.get(place, Fraction(0)) + rational(weight, "known") * entry
            case (("neuron" | "pair" | "rotation"), _):
                matrix = _quadratic(case, [kind, *nodes], into, out_of)
            case "detour", [node]:
                linear = _detour(case, node, into, out_of)
            case "sum", [node]:
                need(case.loss == "cross-entropy", "sums of outgoing weights are conserved by cross-entropy only")
                linear = [out_of[node][output] for output in case.outputs]
            case "weight", [tail, head]:
                linear = [e for e, ends in enumerate(zip(case.tails, case.heads, strict=True)) if ends == (tail, head)]
                need(len(linear) == 1 and resting[linear[0]], f"nothing shows that edge {tail} -> {head} rests")
            case "part", [source, sink]:
                rows += _part(case, source, sink)
                continue
            case _:
                raise CertificateError("a law of an unknown kind")
        rows.append(_law_gradient(case, kind, matrix, linear))
        if kind == "detour":  # of (p + q) e^{−s}, divided by e^{−s}
            need(case.flow["name"] == "gradient", "a detour is a law of plain gradient flow only")
            direct = out_of[case.tails[linear[0]]][case.heads[linear[1]]]
            rows[-1][direct] -= int(case.point[linear[0]] + case.point[linear[1]])
            rows[-1] = [entry % case.prime for entry in rows[-1]]
    if case.flow["name"] == "momentum" and case.flow["autonomous"] and case.flow["friction"] != 0:
        rows = _ratios(rows, case.prime)
    width = case.states + (0 if not rows else len(rows[0]) - case.states)
    return np.array(rows, dtype=np.int64).reshape(len(rows), width)[:, : case.states]


def _part(case: Case, source: int, sink: int) -> list[list[int]]:
    """Directions of the weights between two nodes that are orthogonal to the gradient of what they pass on.

    If every node between the two is linear and has no edge to any other, the network sees these weights through the sum
    over paths T alone: by the flow box theorem there is a law for each direction but that of ∇T.
    """
    need(case.flow["name"] == "gradient" and case.loss == "full", "parts are for gradient flow and full losses")
    count = len(case.roles)
    pairs = list(zip(case.tails, case.heads, strict=True))
    after, before = {source}, {sink}
    for node in case.order:
        after |= {head for tail, head in pairs if tail == node and node in after and node != sink}
    for node in reversed(case.order):
        before |= {tail for tail, head in pairs if head == node and node in before and node != source}
    inner = (after & before) - {source, sink}
    own = [e for e, (tail, head) in enumerate(pairs) if {tail, head} <= inner | {source, sink} and tail != sink]
    for edge, (tail, head) in enumerate(pairs):
        need(edge in own or (tail not in inner and head not in inner), "a part has an edge to another node")
    for node in inner:
        need(case.roles[node] == HIDDEN and case.gates[node] is not None, f"node {node} of a part is not linear")
    gate = [case.residue(case.gates[node] or Fraction(0)) if node in inner else 1 for node in range(count)]
    up, down = [0] * count, [0] * count
    up[source], down[sink] = 1, 1
    for node in case.order:
        if node in inner | {sink}:
            up[node] = sum(int(case.point[e]) * up[pairs[e][0]] for e in own if pairs[e][1] == node) * gate[node]
    for node in reversed(case.order):
        if node in inner | {source}:
            down[node] = sum(int(case.point[e]) * down[pairs[e][1]] for e in own if pairs[e][0] == node) * gate[node]
    slope = {e: up[pairs[e][0]] * down[pairs[e][1]] % case.prime for e in own}
    pivot = next((e for e in own if slope[e]), None)
    rows = []
    for edge in own:
        if pivot is not None and edge != pivot:
            row = [0] * case.states
            row[edge], row[pivot] = slope[pivot], -slope[edge] % case.prime
            rows.append(row)
    return rows


def _quadratic(
    case: Case, named: list[Any], into: list[dict[int, int]], out_of: list[dict[int, int]]
) -> dict[tuple[int, int], Fraction]:
    """The terms θ_e θ_f of a law of one neuron or of two linear neurons with the same neighbours."""
    match named:
        case ["neuron", node]:
            need(case.roles[node] == HIDDEN, f"node {node} is not a hidden neuron")
            signed = [(into[node], 1), (out_of[node], -1)]
            return {(edge, edge): Fraction(sign) for edges, sign in signed for edge in edges.values()}
        case ["pair" | "rotation", first, second]:
            need(first != second and case.roles[first] == case.roles[second] == HIDDEN, "not two neurons")
            same_gate = case.gates[first] is not None and case.gates[first] == case.gates[second]
            if case.alike and case.alike[first] is not None:
                same_gate |= case.alike[first] == case.alike[second]
            need(same_gate, f"neuron {first} and neuron {second} do not act linearly alike")
            same = set(into[first]) == set(into[second]) and set(out_of[first]) == set(out_of[second])
            need(same, f"neuron {first} and neuron {second} have different neighbours")
            matrix = {(edge, into[second][at]): Fraction(1) for at, edge in into[first].items()}
            return matrix | {(edge, out_of[second][at]): Fraction(-1) for at, edge in out_of[first].items()}
    raise CertificateError("a law of an unknown kind")


def _detour(case: Case, node: int, into: list[dict[int, int]], out_of: list[dict[int, int]]) -> list[int]:
    """The two weights of a linear neuron that bridges one edge."""
    need(case.roles[node] == HIDDEN and case.gates[node] == 1, f"neuron {node} is not a linear neuron")
    need(len(into[node]) == len(out_of[node]) == 1, f"neuron {node} has more than one edge in or out")
    ((source, first),), ((target, second),) = into[node].items(), out_of[node].items()
    need(target in out_of[source], f"no edge runs beside neuron {node}")
    return [first, second]


def _law_gradient(case: Case, kind: str, matrix: dict[tuple[int, int], Fraction], linear: list[int]) -> list[int]:
    """The gradient at the point; for a rotation without time, its value is appended."""
    prime, point, size = case.prime, [int(value) for value in case.point], len(case.tails)
    gradient = [0] * case.states
    if case.flow["name"] == "momentum":
        need(kind == "rotation", f"{kind} is not a law of momentum")
        turn = 0
        for first, second in matrix:
            for left, right, sign in ((first, second, 1), (second, first, -1)):
                gradient[left] += sign * point[size + right]
                gradient[size + right] += sign * point[left]
                turn += sign * point[left] * point[size + right]
        if not case.flow["autonomous"]:
            gradient[-1] = case.residue(Fraction(float(case.flow["friction"]))) * turn  # of e^{γt} Q, without e^{γt}
        return [entry % prime for entry in gradient] + [turn % prime]
    need(kind != "rotation", "rotations are laws of momentum only")
    form: dict[tuple[int, int], Fraction] = {}
    for (first, second), value in matrix.items():
        for place in ((first, second), (second, first)):
            form[place] = form.get(place, Fraction(0)) + value
    for (first, second), value in form.items():
        gradient[first] += case.residue(value) * point[second]
    for edge in linear:
        gradient[edge] += 1
    if case.flow["name"] == "metric":
        check_spared(case, form)
        gradient = over_metric(case, gradient)
    return [entry % prime for entry in gradient]


def _ratios(rows: list[list[int]], prime: int) -> list[list[int]]:
    """Gradients of `Q_i / Q_0`, up to a factor: friction damps all rotations alike, so their ratios are conserved."""
    if not rows:
        return []
    first, *others = rows
    pairs = ((row, row[-1]) for row in others)
    return [[(a * first[-1] - value * b) % prime for a, b in zip(row, first, strict=True)] for row, value in pairs]


def _resting(case: Case) -> list[bool]:
    """Edges whose gradient is always 0: no signal comes in, or nothing that it reaches is heard."""
    if case.loss == "cross-entropy" and len(case.outputs) == 1:
        return [True] * len(case.tails)
    silent = [case.roles[node] == HIDDEN and case.gates[node] == 0 for node in range(len(case.roles))]
    mute, unheard = list(silent), list(silent)
    for node in case.order:
        if case.roles[node] == HIDDEN:
            sources = (
                [mute[t] for t, h in zip(case.tails, case.heads, strict=True) if h == node] if any(silent) else [False]
            )
            mute[node] = mute[node] or all(sources)
    for node in reversed(case.order):
        if case.roles[node] == HIDDEN:
            sinks = (
                [unheard[h] for t, h in zip(case.tails, case.heads, strict=True) if t == node]
                if any(silent)
                else [False]
            )
            unheard[node] = unheard[node] or all(sinks)
    return [mute[tail] or unheard[head] for tail, head in zip(case.tails, case.heads, strict=True)]
