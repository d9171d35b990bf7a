"""Re-check, in exact fractions, which gates a network's neurons have near given weights."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from lawful.errors import CertificateError
from lawful.network import Dag, Role

INFINITY = float("inf")
End = Fraction | float  # a fraction, or an infinity


def realised_patterns(
    dag: Dag, order: Sequence[int], weights: Sequence[Fraction], inputs: Sequence[Sequence[float]]
) -> tuple[tuple[Fraction, ...], ...]:
    """The gates of the hidden neurons at each input, in exact arithmetic."""
    found = []
    into = _into(dag)
    for given in inputs:
        if len(given) != len(dag.inputs):
            raise CertificateError("an input of the certificate has the wrong size")
        value = [Fraction(0)] * len(dag.names)
        gate = [Fraction(1)] * len(dag.names)
        if dag.constant is not None:
            value[dag.constant] = Fraction(1)
        for node, coordinate in zip(dag.inputs.tolist(), given, strict=True):
            value[node] = Fraction(float(coordinate))
        for node in order:
            if dag.roles[node] == Role.HIDDEN:
                signals = [weights[edge] * value[tail] for tail, edge in into[node]]
                total = sum(signals, Fraction(0))
                if total == 0 and any(signals):
                    raise CertificateError(f"an input lies on the boundary of {dag.names[node]}: it shows no pattern")
                gate[node] = Fraction(1) if total > 0 else Fraction(float(dag.slopes[node]))
                value[node] = gate[node] * total
        found.append(tuple(gate[node] for node in dag.hidden))
    if not found:
        raise CertificateError("no input shows any activation pattern")
    return tuple(found)


def check_gates(
    dag: Dag, order: Sequence[int], weights: Sequence[Fraction], stated: Sequence[float | None]
) -> tuple[Fraction | None, ...]:
    """The stated gates, after showing that no input at all can give those neurons another one."""
    bounds: list[tuple[End, End]] = [(-INFINITY, INFINITY)] * len(dag.names)
    if dag.constant is not None:
        bounds[dag.constant] = (Fraction(1), Fraction(1))
    into = _into(dag)
    gates: list[Fraction | None] = [None] * len(dag.names)
    for node in order:
        if dag.roles[node] != Role.HIDDEN:
            continue
        slope = Fraction(float(dag.slopes[node]))
        low, high = _bounds([(weights[edge], bounds[tail]) for tail, edge in into[node]])
        proved = None
        if slope == 1 or low > 0:
            proved = Fraction(1)
        elif high < 0 or low == high == 0:
            proved = slope
        claimed = stated[node]
        if claimed is not None and Fraction(float(claimed)) != proved:
            raise CertificateError(f"nothing shows that {dag.names[node]} always has the gate {claimed}")
        gates[node] = None if claimed is None else proved
        ends = [end if end > 0 else (slope * end if slope else Fraction(0)) for end in (low, high)]
        bounds[node] = (min(ends), max(ends))
    return tuple(gates)


def grouped_patterns(
    patterns: Sequence[tuple[Fraction, ...]], groups: Sequence[int]
) -> tuple[tuple[Fraction, ...], ...]:
    """The pattern of each group of data, after showing that all its members share it."""
    found: dict[int, tuple[Fraction, ...]] = {}
    for pattern, group in zip(patterns, groups, strict=True):
        if found.setdefault(group, pattern) != pattern:
            raise CertificateError(f"two inputs of group {group} have different activation patterns")
    return tuple(found[group] for group in range(len(found)))


def gates_on_data(
    dag: Dag, patterns: Sequence[tuple[Fraction, ...]], stated: Sequence[float | None]
) -> tuple[Fraction | None, ...]:
    """The stated gates, after showing that the data give those neurons no other."""
    gates: list[Fraction | None] = [None] * len(dag.names)
    for place, node in enumerate(dag.hidden.tolist()):
        claimed = stated[node]
        if claimed is not None:
            gates[node] = Fraction(float(claimed))
            if any(pattern[place] != gates[node] for pattern in patterns):
                raise CertificateError(f"{dag.names[node]} does not always have the gate {claimed} on the data")
    return tuple(gates)


def _into(dag: Dag) -> list[list[tuple[int, int]]]:
    into: list[list[tuple[int, int]]] = [[] for _ in dag.names]
    for edge, (tail, head) in enumerate(zip(dag.tails.tolist(), dag.heads.tolist(), strict=True)):
        into[head].append((tail, edge))
    return into


def _bounds(terms: Sequence[tuple[Fraction, tuple[End, End]]]) -> tuple[End, End]:
    low: End = Fraction(0)
    high: End = Fraction(0)
    for weight, (least, most) in terms:
        if least == most == 0:
            continue
        if weight == 0:
            if INFINITY in (most, -least):
                return -INFINITY, INFINITY
            continue
        ends = [_times(weight, end) for end in (least, most)]
        low, high = low + min(ends), high + max(ends)
    return low, high


def _times(weight: Fraction, end: End) -> End:
    if isinstance(end, Fraction):
        return weight * end
    return end if weight > 0 else -end
