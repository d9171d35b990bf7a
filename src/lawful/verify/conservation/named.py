"""Rebuild each law that a certificate names from the graph, by its theorem."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from lawful.errors import CertificateError
from lawful.verify.conservation.gates import one_signal, still_sum
from lawful.verify.conservation.problem import Case, Form, Residues, check_spared, momentum_rows, over_metric
from lawful.verify.core.dag import HIDDEN
from lawful.verify.core.schema import integer, integers, items, limit_sums, rational, require, spend

ONE = Fraction(1)
ROW_COST = 25.0  # steps for each entry of a gradient: memory for at most 40 million of them, 8 bytes each


def law_gradients(case: Case, value: object) -> Residues:
    """Gradients at the point (a row each) of the named laws, each rebuilt from the graph by its theorem."""
    dag = case.dag
    into: list[dict[int, int]] = [{} for _ in dag.roles]
    out_of: list[dict[int, int]] = [{} for _ in dag.roles]
    resting = _resting(case)
    pairs = list(zip(dag.tails, dag.heads, strict=True))
    for edge, (tail, head) in enumerate(pairs):
        if not resting[edge]:
            into[head][tail], out_of[tail][head] = edge, edge
    rows: list[list[int]] = []
    rotations: list[Form] = []
    forceless: list[dict[int, Fraction]] = []
    for item in items(value, "known", most=4 * case.states + 100):
        spend(ROW_COST * case.states)
        kind, *nodes = items(item, "known", most=4) or [None]
        if kind not in ("combination", "still", "part"):
            nodes = [integer(node, "known", 0, len(dag.roles) - 1) for node in nodes]
        matrix: dict[tuple[int, int], Fraction] = {}
        linear: dict[int, Fraction] = {}
        match kind, nodes:
            case "combination", [parts]:
                require(case.flow["name"] == "metric", "combinations are for metrics")
                parts = [items(part, "known", most=4) for part in items(parts, "known", most=case.states**2)]
                weights = [rational(weight, "known") for weight, *_ in parts]
                limit_sums(weights, float(len(parts) * case.states))
                for weight, (_, name, *ends_named) in zip(weights, parts, strict=True):
                    ends = [integer(node, "known", 0, len(dag.roles) - 1) for node in ends_named]
                    for place, entry in _quadratic(case, [name, *ends], into, out_of).items():
                        matrix[place] = matrix.get(place, Fraction(0)) + weight * entry
            case (("neuron" | "pair" | "rotation"), _):
                matrix = _quadratic(case, [kind, *nodes], into, out_of)
            case "detour", [node]:
                linear = dict.fromkeys(_detour(case, node, into, out_of), ONE)
            case "sum", [node]:
                require(case.loss == "cross-entropy", "sums of outgoing weights are conserved by cross-entropy only")
                linear = {out_of[node][output]: ONE for output in dag.outputs}
            case "weight", [tail, head]:
                linear = {e: ONE for e, ends in enumerate(pairs) if ends == (tail, head)}
                require(
                    len(linear) == 1 and resting[next(iter(linear))], f"nothing shows that edge {tail} -> {head} rests"
                )
            case "still", [node, terms] if case.samples is not None:
                node = integer(node, "known", 0, len(dag.roles) - 1)
                linear = still_sum(case.samples, dag.roles, pairs, node, terms)
            case "part", [source, sink, inner]:
                rows += _part(case, source, integer(sink, "known", 0, len(dag.roles) - 1), inner, resting)
                continue
            case _:
                raise CertificateError("a law of an unknown kind")
        if case.flow["name"] == "momentum":
            require(kind in ("rotation", "sum", "weight", "still"), f"{kind} is not a law of momentum")
            rotations += [matrix] if kind == "rotation" else []
            forceless += [linear] if kind != "rotation" else []
            continue
        require(kind != "rotation", "rotations are laws of momentum only")
        rows.append(_law_gradient(case, matrix, linear))
        if kind == "detour":  # of (p + q) e^{−s}, divided by e^{−s}
            require(case.flow["name"] == "gradient", "a detour is a law of plain gradient flow only")
            first, second = linear
            direct = out_of[dag.tails[first]][dag.heads[second]]
            rows[-1][direct] -= int(case.point[first] + case.point[second])
            rows[-1] = [entry % case.prime for entry in rows[-1]]
    if case.flow["name"] == "momentum":
        rows = momentum_rows(case, rotations, forceless)
    if case.flow["name"] == "decay":
        rows = [_decaying(case, row) for row in rows]
    return np.array(rows, dtype=np.int64).reshape(len(rows), case.states)


def _decaying(case: Case, row: list[int]) -> list[int]:
    """The gradient in (θ, t), divided by e^{dλt}, of `e^{dλt} h` for a law h of degree d: by time it is λ⟨∇h, θ⟩."""
    along = sum(entry * int(value) for entry, value in zip(row[:-1], case.point, strict=False))
    return [*row[:-1], case.residue(Fraction(float(case.flow["decay"]))) * along % case.prime]


def _part(case: Case, source: object, sink: int, stated: object, resting: list[bool]) -> list[list[int]]:
    """Directions of the weights between two nodes that are orthogonal to the gradient of what they pass on.

    If every node between the two is linear and has no moving edge to any other, the network sees these weights through
    the sum over paths T alone: by the flow box theorem there is a law for each direction but that of ∇T. Instead of a
    source there may be one sample, whose coordinates feed the part.
    """
    require(case.flow["name"] != "momentum", "parts are for gradient flow")
    speed = {where[0]: matrix[0][0] for where, matrix in case.metric if len(where) == 1}
    require(len(speed) == len(case.metric), "parts are for diagonal metrics")
    dag, count = case.dag, len(case.dag.roles)
    inner = set(integers(stated, "known", 0, count - 1, most=count))
    for node in inner:
        require(dag.roles[node] == HIDDEN and case.gates[node] is not None, f"node {node} of a part is not linear")
    require(sink not in inner, "a part contains its own end")
    outside = {*dag.inputs, *(() if dag.constant is None else (dag.constant,))}
    sources = outside if source is None else {integer(source, "known", 0, count - 1)} - inner - {sink}
    pairs = list(zip(dag.tails, dag.heads, strict=True))
    edges = []
    for edge, (tail, head) in enumerate(pairs):
        if resting[edge]:
            continue
        starts, ends = tail in inner | sources, head in inner | {sink}
        require(starts or head not in inner, "a part reads another node")
        require(ends or tail not in inner, "a part is read by another node")
        if starts and ends:
            edges.append(edge)
    spend(ROW_COST * len(edges) * case.states)
    moving = set(edges)
    if case.flow["name"] == "decay":
        _check_even(case, moving, inner, sink)
    signal = dict.fromkeys(sources, ONE)
    if source is None:
        require(case.samples is not None, "a part without a source needs data")
        if case.samples is not None:
            signal = one_signal(case.samples, sink, sorted({pairs[e][0] for e in edges} - inner))
    gate = [case.residue(case.gates[node] or Fraction(0)) if node in inner else 1 for node in range(count)]
    up, down = [0] * count, [0] * count
    for node, value in signal.items():
        up[node] = case.residue(value)
    down[sink] = 1
    for node in dag.order:
        if node in inner:
            up[node] = sum(int(case.point[e]) * up[tail] for tail, e in dag.into[node] if e in moving) * gate[node]
            up[node] %= case.prime
    for node in reversed(dag.order):
        if node in inner:
            down[node] = sum(int(case.point[e]) * down[head] for head, e in dag.out_of[node] if e in moving)
            down[node] = down[node] * gate[node] % case.prime
    slope = {e: up[pairs[e][0]] * down[pairs[e][1]] * case.residue(speed.get(e, ONE)) % case.prime for e in edges}
    pivot = next((e for e in edges if slope[e]), None)
    rows = []
    for edge in edges:
        if pivot is not None and edge != pivot:
            row = [0] * case.states
            row[edge], row[pivot] = slope[pivot], -slope[edge] % case.prime
            rows.append(row)
    return rows


def _check_even(case: Case, moving: set[int], inner: set[int], sink: int) -> None:
    """With weight decay a part has to pass on a homogeneous function: all its paths have one length.

    Only nodes that lead to the sink count; one of them with paths of two lengths decides, so no set grows with depth.
    """
    dag, leading = case.dag, {sink}
    for node in reversed(dag.order):
        if node in inner and any(head in leading for head, edge in dag.out_of[node] if edge in moving):
            leading.add(node)
    lengths: dict[int, set[int]] = {}
    for node in [*(node for node in dag.order if node in inner & leading), sink]:
        into = [tail for tail, edge in dag.into[node] if edge in moving]
        lengths[node] = {length + 1 for tail in into for length in (lengths[tail] if tail in inner else {0})}
        require(len(lengths[node]) <= 1, "a part has paths of different lengths")


def _quadratic(
    case: Case, named: list[Any], into: list[dict[int, int]], out_of: list[dict[int, int]]
) -> dict[tuple[int, int], Fraction]:
    """The terms θ_e θ_f of a law of one neuron or of two linear neurons with the same neighbours."""
    match named:
        case ["neuron", node]:
            require(case.dag.roles[node] == HIDDEN, f"node {node} is not a hidden neuron")
            signed = [(into[node], 1), (out_of[node], -1)]
            return {(edge, edge): Fraction(sign) for edges, sign in signed for edge in edges.values()}
        case ["pair" | "rotation", first, second]:
            require(first != second and case.dag.roles[first] == case.dag.roles[second] == HIDDEN, "not two neurons")
            same_gate = case.gates[first] is not None and case.gates[first] == case.gates[second]
            if case.alike and case.alike[first] is not None:
                same_gate |= case.alike[first] == case.alike[second]
            require(same_gate, f"neuron {first} and neuron {second} do not act linearly alike")
            same = set(into[first]) == set(into[second]) and set(out_of[first]) == set(out_of[second])
            require(same, f"neuron {first} and neuron {second} have different neighbours")
            matrix = {(edge, into[second][at]): Fraction(1) for at, edge in into[first].items()}
            return matrix | {(edge, out_of[second][at]): Fraction(-1) for at, edge in out_of[first].items()}
    raise CertificateError("a law of an unknown kind")


def _detour(case: Case, node: int, into: list[dict[int, int]], out_of: list[dict[int, int]]) -> list[int]:
    """The two weights of a linear neuron that bridges one edge."""
    require(case.dag.roles[node] == HIDDEN and case.gates[node] == 1, f"neuron {node} is not a linear neuron")
    require(len(into[node]) == len(out_of[node]) == 1, f"neuron {node} has more than one edge in or out")
    ((source, first),), ((target, second),) = into[node].items(), out_of[node].items()
    require(target in out_of[source], f"no edge runs beside neuron {node}")
    return [first, second]


def _law_gradient(case: Case, matrix: Form, linear: dict[int, Fraction]) -> list[int]:
    """The gradient at the point."""
    prime, point = case.prime, [int(value) for value in case.point]
    gradient = [0] * case.states
    form: dict[tuple[int, int], Fraction] = {}
    for (first, second), value in matrix.items():
        for place in ((first, second), (second, first)):
            form[place] = form.get(place, Fraction(0)) + value
    for (first, second), value in form.items():
        gradient[first] += case.residue(value) * point[second]
    for edge, factor in linear.items():
        gradient[edge] += case.residue(factor)
    if case.flow["name"] == "metric":
        check_spared(case, form)
        gradient = over_metric(case, gradient)
    return [entry % prime for entry in gradient]


def _resting(case: Case) -> list[bool]:
    """Edges whose gradient is always 0: no signal comes in, or nothing that it reaches is heard."""
    dag, ends = case.dag, list(zip(case.dag.tails, case.dag.heads, strict=True))
    if case.loss == "cross-entropy" and len(dag.outputs) == 1:
        return [True] * len(ends)
    if case.samples is not None:
        return [case.samples.rests(tail, head) for tail, head in ends]
    silent = [case.gates[node] == 0 and dag.roles[node] == HIDDEN for node in range(len(dag.roles))]
    mute, unheard = list(silent), list(silent)
    hidden = [node for node in dag.order if dag.roles[node] == HIDDEN]
    for node in hidden:
        mute[node] = mute[node] or all(mute[tail] for tail, _ in dag.into[node])
    for node in reversed(hidden):
        unheard[node] = unheard[node] or all(unheard[head] for head, _ in dag.out_of[node])
    return [mute[tail] or unheard[head] for tail, head in ends]
