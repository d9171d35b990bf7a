"""Which gates neurons have near given weights, in fractions: only what small changes leave alone counts."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from lawful.errors import CertificateError
from lawful.verify.core.dag import HIDDEN, CheckedDag
from lawful.verify.core.schema import require

INFINITY = float("inf")
End = Fraction | float  # a fraction, or an infinity
Gates = tuple[Fraction | None, ...]


def realised_patterns(
    dag: CheckedDag, inputs: Sequence[Sequence[float]], *, on_data: bool
) -> tuple[tuple[Fraction, ...], ...]:
    """The gates of the hidden neurons at each input; a sum that is 0 must stay 0 whatever the weights nearby.

    `on_data` the inputs stay as well, so a coordinate that is 0 remains 0. Otherwise an input stands for an open set of
    inputs with these gates: beside a coordinate of 0 a chain of neurons has the gates of one sign or of the other, and
    the gates at 0 itself may be those of neither.
    """
    found = []
    for given in inputs:
        value = [Fraction(0)] * len(dag.roles)
        gate = [Fraction(1)] * len(dag.roles)
        silent = [False] * len(dag.roles)  # 0 for all weights nearby
        if dag.constant is not None:
            value[dag.constant] = Fraction(1)
        for node, coordinate in zip(dag.inputs, given, strict=True):
            value[node] = Fraction(coordinate)
            silent[node] = on_data and not coordinate
        for node in dag.order:
            if dag.roles[node] == HIDDEN:
                edges = dag.into[node]
                total = sum((dag.exact[edge] * value[tail] for tail, edge in edges), Fraction(0))
                unheard = all(silent[tail] for tail, _ in edges)
                if total == 0 and not unheard:
                    raise CertificateError(f"an input lies on the boundary of neuron {node}: it shows no pattern")
                gate[node] = Fraction(1) if total > 0 else dag.slope[node]
                value[node] = gate[node] * total
                silent[node] = unheard or (total < 0 and dag.slope[node] == 0)
        found.append(tuple(gate[node] for node in dag.hidden))
    require(bool(found), "no input shows any activation pattern")
    return tuple(found)


def check_gates(dag: CheckedDag, stated: Sequence[float | None]) -> Gates:
    """The stated gates, after showing that no input at all can give those neurons another one near the weights."""
    count = len(dag.roles)
    bounds: list[tuple[End, End]] = [(-INFINITY, INFINITY)] * count
    silent = [False] * count
    sign: list[int] = [0] * count  # 1: never negative, −1: never positive, at all weights nearby
    if dag.constant is not None:
        bounds[dag.constant], sign[dag.constant] = (Fraction(1), Fraction(1)), 1
    gates: list[Fraction | None] = [None] * count
    for node in dag.order:
        claimed = stated[node]
        if dag.roles[node] != HIDDEN:
            gates[node] = Fraction(1)
            require(claimed in (None, 1.0), f"node {node} has no gate but 1")
            continue
        slope = dag.slope[node]
        heard = [(dag.exact[edge], tail) for tail, edge in dag.into[node] if not silent[tail]]
        low, high = _bounds([(weight, bounds[tail]) for weight, tail in heard])
        pushes = {(1 if weight > 0 else -1 if weight < 0 else 0) * sign[tail] for weight, tail in heard}
        up, down = low > 0 or pushes == {1}, high < 0 or pushes == {-1}
        silent[node] = not heard or (slope == 0 and down)
        sign[node] = 1 if up or (slope == 0 and not down) or (slope < 0) else -1 if down and slope > 0 else 0
        proved = Fraction(1) if slope == 1 or (heard and up) else slope if down or not heard else None
        if claimed is not None:
            require(Fraction(claimed) == proved, f"nothing shows that neuron {node} always has its gate")
            gates[node] = proved
        ends = [end if end > 0 else (slope * end if slope else Fraction(0)) for end in (low, high)]
        if slope < 0 and low < 0 < high:
            ends.append(Fraction(0))
        bounds[node] = (min(ends), max(ends))
    return tuple(gates)


def gates_alike(dag: CheckedDag, gates: Gates) -> tuple[object, ...]:
    """What nodes must share to have the same gate always: one and the same signal through weights of one sign.

    None if nothing shows it of a node.
    """
    found: list[object] = [None] * len(dag.roles)
    for node in dag.hidden:
        heard = [(tail, dag.exact[edge]) for tail, edge in dag.into[node] if gates[tail] != 0]
        if len(heard) == 1 and heard[0][1] != 0 and gates[node] is None:
            found[node] = (dag.slope[node], heard[0][0], heard[0][1] > 0)
    return tuple(found)


def grouped_patterns(
    patterns: Sequence[tuple[Fraction, ...]], groups: Sequence[int]
) -> tuple[tuple[Fraction, ...], ...]:
    """The pattern of each group of data, after showing that all its members share it."""
    found: dict[int, tuple[Fraction, ...]] = {}
    for pattern, group in zip(patterns, groups, strict=True):
        require(found.setdefault(group, pattern) == pattern, f"two inputs of group {group} show different patterns")
    require(sorted(found) == list(range(len(found))), "a group is empty")
    return tuple(found[group] for group in range(len(found)))


def _bounds(terms: Sequence[tuple[Fraction, tuple[End, End]]]) -> tuple[End, End]:
    low: End = Fraction(0)
    high: End = Fraction(0)
    for weight, (smallest, largest) in terms:
        if smallest == largest == 0:
            continue
        if weight == 0:  # the slightest change lets an unbounded signal through
            if INFINITY in (largest, -smallest):
                return -INFINITY, INFINITY
            continue
        ends = [_times(weight, end) for end in (smallest, largest)]
        low, high = low + min(ends), high + max(ends)
    return low, high


def _times(weight: Fraction, end: End) -> End:
    if isinstance(end, Fraction):
        return weight * end
    return end if weight > 0 else -end
