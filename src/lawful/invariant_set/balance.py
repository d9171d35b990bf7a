"""The balance `c = B̃θ²` that training conserves, as floats and as exact rationals, and points that have it.

Points of `H(c)` with few nonzero weights, all weights nonzero, or zero on chosen edges come from maximum flows and
maximum-weight closures in exact integers of any size, on top of a 64-bit solver.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from lawful.errors import LawfulError
from lawful.invariant_set.module_graph import Balanced, Edges, edges_of
from lawful.network import Dag, Mlp, Role
from lawful.network.topology import peel
from lawful.types import Floats, Indices, Residues

Number = int | float | Fraction | str
Tolerance = float | Fraction
MAX_DIGITS = 4000


def divergence(dag: Balanced, edge_values: ArrayLike) -> Floats:
    """`B̃x`: what enters each hidden node less what leaves it, in the order of `dag.hidden`."""
    values = np.asarray(edge_values, dtype=np.float64)
    count = len(dag.names)
    return np.asarray((np.bincount(dag.heads, values, count) - np.bincount(dag.tails, values, count))[dag.hidden])


def balance(network: Mlp | Balanced) -> Floats:
    """`c = B̃θ²`: squares of the incoming less squares of the outgoing weights of each hidden node (P0 Definition 1).

    >>> from lawful.network import Dag
    >>> balance(Dag(("x", "h", "y"), [0, 1, 2], [0, 1], [1, 2], [3.0, 2.0]))
    array([5.])
    """
    dag = network.to_dag()
    entering, leaving = sums_of_squares(dag)
    return entering - leaving


def sums_of_squares(dag: Balanced, scale: float = 1.0) -> tuple[Floats, Floats]:
    """The squares of `θ / scale` that enter each hidden node, and those that leave it."""
    count = len(dag.names)
    entering, leaving = np.zeros(count), np.zeros(count)
    for part in edges_of(dag):
        squares = (part.weights / scale) ** 2
        entering += np.bincount(part.heads, squares, count)
        leaving += np.bincount(part.tails, squares, count)
    return entering[dag.hidden], leaving[dag.hidden]


def flow_residual(dag: Balanced, gradient: ArrayLike) -> Floats:
    """`B̃(θ ⊙ g)` for the gradient g of a loss at θ: zero, because θ ⊙ g is a network flow (P0 Proposition 1)."""
    return divergence(dag, dag.theta * np.asarray(gradient, dtype=np.float64))


@dataclass(frozen=True)
class Balance:
    """A balance as exact rationals: `c_v = units_v / denominator`, in the order of `dag.hidden`.

    Every finite float is a rational, so nothing is rounded, at any scale. Who knows the numbers only to within some
    error states its total, `Σ_v |error of c_v| ≤ slack / denominator`; nothing is assumed otherwise.
    """

    units: tuple[int, ...]
    denominator: int = 1
    slack: int = 0

    @classmethod
    def of(cls, network: Mlp | Balanced, *, tolerance: Tolerance = 0.0) -> Balance:
        """The balance of a network's weights, each taken as the rational number that it is.

        >>> from lawful.network import Architecture
        >>> Balance.of(Architecture.parse("2-2-1").to_dag().with_theta([1, 2, 3, 4, 5, 6])).units
        (-20, -11)
        """
        dag = network.to_dag()
        units, denominator = _exact_balance(dag)
        return cls(tuple(units), denominator, _slack(tolerance, denominator))

    @classmethod
    def given(
        cls, dag: Balanced, values: Mapping[str, Number] | Sequence[Number] | Floats, *, tolerance: Tolerance = 0.0
    ) -> Balance:
        """A prescribed balance, by node name or in the order of `dag.hidden`: numbers, fractions, or text ("1/3")."""
        numbers = _in_order(dag, values)
        if isinstance(numbers, np.ndarray):
            units, denominator = _integers(numbers)
        else:
            exact = [_fraction(dag, node, number) for node, number in enumerate(numbers)]
            denominator = math.lcm(*(number.denominator for number in exact))
            units = [number.numerator * (denominator // number.denominator) for number in exact]
        return cls(tuple(units), denominator, _slack(tolerance, denominator))

    @cached_property
    def values(self) -> Floats:
        """The balance as floats, infinite where they cannot hold it."""
        return np.array([_float(unit, self.denominator) for unit in self.units], dtype=np.float64)

    @property
    def fractions(self) -> list[Fraction]:
        """The balance as fractions."""
        return [Fraction(unit, self.denominator) for unit in self.units]

    @property
    def tolerance(self) -> Fraction:
        """How far, in total, the true balance may be from this one."""
        return Fraction(self.slack, self.denominator)

    def distance(self, other: Balance) -> list[Fraction]:
        """`|c_v − c'_v|` of every hidden node, exactly."""
        common = math.lcm(self.denominator, other.denominator)
        mine, theirs = common // self.denominator, common // other.denominator
        pairs = zip(self.units, other.units, strict=True)
        return [Fraction(abs(one * mine - two * theirs), common) for one, two in pairs]


def rounding(network: Mlp | Balanced) -> Fraction:
    """How far, in total, a balance moves when every weight moves by half a unit in its last place (float64).

    `Σ_v |Δc_v| ≤ 2 Σ_e |Δθ_e²|` and `|Δθ²| ≤ ε θ²`, up to a term of higher order: four times that is returned.

    >>> from lawful.network import Mlp
    >>> rounding(Mlp([[[1.0, 2.0]], [[2.0]]])) * 2**52
    Fraction(36, 1)
    """
    total, denominator = _sum_squares(network.to_dag(), 1, lambda part, edges, values: np.array([values.sum()], float))
    return Fraction(4 * total[0], denominator << 52)


def root(square: Fraction) -> float:
    """`√x` for a fraction of any size, to float64 (0 or infinite only where a float is).

    >>> root(Fraction(1, 10**330)), root(Fraction(4 * 10**400)), root(Fraction(2)) == math.sqrt(2)
    (1e-165, 2e+200, True)
    """
    if not square:
        return 0.0
    shift = (square.numerator.bit_length() - square.denominator.bit_length()) // 2
    near = square / Fraction(4) ** shift
    try:
        return math.ldexp(math.sqrt(near), shift)
    except OverflowError:
        return math.inf


def _float(numerator: int, denominator: int) -> float:
    try:
        return numerator / denominator
    except OverflowError:
        return math.inf if numerator > 0 else -math.inf


def _slack(tolerance: Tolerance, denominator: int) -> int:
    if not (isinstance(tolerance, Fraction) or math.isfinite(tolerance)) or tolerance < 0:
        raise LawfulError(f"a tolerance is a number that is not negative, not {tolerance}")
    return math.floor(Fraction(tolerance) * denominator)


def _in_order(dag: Balanced, values: Any) -> Any:
    if not isinstance(values, Mapping):
        if len(values) != len(dag.hidden):
            raise LawfulError(f"a balance has one number per hidden node, {len(dag.hidden)} here, not {len(values)}")
        if not isinstance(values, np.ndarray) or not np.issubdtype(values.dtype, np.floating):
            return list(values.tolist() if isinstance(values, np.ndarray) else values)
        numbers = values.astype(np.float64)
        if not np.isfinite(numbers).all():
            raise LawfulError(f"balance of {dag.names[dag.hidden[np.argmin(np.isfinite(numbers))]]} is not finite")
        return numbers
    names = [dag.names[node] for node in dag.hidden]
    unknown = sorted(set(values) - set(names))
    missing = [name for name in names if name not in values]
    for wrong, words in ((unknown, "names nodes that are not hidden nodes of this network"), (missing, "lacks nodes")):
        if wrong:
            raise LawfulError(f"the balance {words}: {', '.join(map(str, wrong[:5]))}{', ...' * (len(wrong) > 5)}")
    return [values[name] for name in names]


def _fraction(dag: Balanced, node: int, number: Any) -> Fraction:
    try:
        if isinstance(number, bool) or (isinstance(number, str) and not _short(number)):
            raise TypeError
        return Fraction(number)
    except (ValueError, TypeError, OverflowError, ZeroDivisionError):
        name = dag.names[dag.hidden[node]]
        raise LawfulError(f"balance of {name} is {str(number)[:40]!r}, not a finite number") from None


def _short(text: str) -> bool:
    """Whether a number's text stays a number of reasonable length: an exponent can fill the memory."""
    exponent = re.search(r"[eE]([-+]?\d+)\s*$", text)
    return len(text) <= MAX_DIGITS and (exponent is None or abs(int(exponent[1])) <= MAX_DIGITS)


def _integers(values: Floats) -> tuple[list[int], int]:
    """Floats as integers over one power of two.

    >>> _integers(np.array([0.5, 3.0, 0.0]))
    ([1, 6, 0], 2)
    """
    mantissa, exponent = np.frexp(values)
    whole = np.ldexp(mantissa, 53).astype(np.int64)
    nonzero = whole != 0
    trailing = np.zeros(len(values), dtype=np.int64)
    trailing[nonzero] = _trailing(whole[nonzero])
    exponent = np.where(nonzero, exponent - 53 + trailing, 0).astype(np.int64)
    lowest = min(int(exponent.min(initial=0)), 0)
    shift = (exponent - lowest).tolist()
    return [odd << up for odd, up in zip((whole >> trailing).tolist(), shift, strict=True)], 1 << -lowest


def _exact_balance(dag: Balanced) -> tuple[list[int], int]:
    """`B̃θ²` of each hidden node as integers over one power of four."""
    count = len(dag.names)

    def net(part: Edges, edges: Indices, values: Residues) -> Floats:
        entering = np.bincount(part.heads[edges], values, count)
        return np.asarray(entering - np.bincount(part.tails[edges], values, count))

    total, denominator = _sum_squares(dag, count, net)
    return [total[node] for node in dag.hidden.tolist()], denominator


def _sum_squares(dag: Balanced, count: int, add: Callable[[Edges, Indices, Residues], Floats]) -> tuple[list[int], int]:
    """Sums of squares of weights at each of `count` places, as integers over one power of four.

    A weight is `m 2^(e−53)`; `m²` is written in words of 27 bits, whose sums over fewer than 2²⁶ edges floats hold
    exactly. `add` adds up such words of edges of one exponent e at their places; portions of at most 2²⁵ edges become
    Python's integers together.
    """
    smallest, lowest = 1 << 20, 0
    for part in edges_of(dag):
        _, whole, exponent = _mantissas(part.weights)
        if len(whole):
            smallest = min(smallest, int(exponent.min()))
            lowest = min(lowest, int((exponent - 53 + _trailing(whole)).min()))
    total = [0] * count
    words: dict[int, list[Floats]] = {}
    pending = 0

    def collect() -> None:
        for exponent, sums in words.items():
            shift = 2 * (exponent - smallest)
            for place in np.flatnonzero(np.any(sums, axis=0)).tolist():
                a, b, c, d, e, f = (int(word[place]) for word in sums)
                total[place] += ((a << 81) + ((b + c) << 54) + ((d + e) << 27) + f) << shift
        words.clear()

    for part in edges_of(dag):
        pending += len(part.weights)
        if pending > 1 << 25 or len(words) > 256:  # so that sums stay exact, and memory small
            collect()
            pending = len(part.weights)
        nonzero, whole, exponent = _mantissas(part.weights)
        order = np.argsort(exponent, kind="stable")
        for edges in np.split(order, np.flatnonzero(np.diff(exponent[order])) + 1):
            if not len(edges):
                continue
            high, low = np.divmod(whole[edges], 1 << 27)
            squares = [digit for product in (high * high, 2 * high * low, low * low)
                       for digit in np.divmod(product, 1 << 27)]  # fmt: skip
            sums = [add(part, nonzero[edges], word) for word in squares]
            now = words.setdefault(int(exponent[edges[0]]), sums)
            if now is not sums:
                for old, new in zip(now, sums, strict=True):
                    old += new
    collect()
    up = 2 * (smallest - 53 - lowest)
    return [unit << up if up >= 0 else unit >> -up for unit in total], 1 << -2 * lowest


def _mantissas(weights: Floats) -> tuple[Indices, Residues, Residues]:
    """The nonzero weights, their sizes as whole numbers `m < 2^53`, and the exponents e of `m 2^(e−53)`."""
    nonzero = np.flatnonzero(weights)
    mantissa, exponent = np.frexp(np.abs(weights[nonzero]))
    return nonzero, np.ldexp(mantissa, 53).astype(np.int64), exponent.astype(np.int64)


def _trailing(whole: Residues) -> Residues:
    """How many zeros end each number in base two."""
    return np.log2((whole & -whole).astype(np.float64)).astype(np.int64)


Prescribed = Balance | Mapping[str, Number] | Sequence[Number] | Floats


def sparse_point(dag: Dag, balance: Prescribed, *, seed: int = 0) -> Dag:
    """The graph with weights of balance c, at most `2|Ṽ|` of them nonzero, signs at random (P0 Proposition 3).

    What a neuron has too much flows on to an output, what it lacks comes from an input, each by one path.

    >>> from lawful.invariant_set.balance import balance
    >>> from lawful.network import Architecture
    >>> dag = sparse_point(Architecture.parse("2-3-3-1").to_dag(), [1, -2, 0, 3, -4, 5])
    >>> balance(dag).round(12), int(np.count_nonzero(dag.theta))
    (array([ 1., -2.,  0.,  3., -4.,  5.]), 5)
    """
    exact = balance if isinstance(balance, Balance) else Balance.given(dag, balance)
    squares = np.zeros(dag.parameters)
    for edge, amount in complete(dag, list(exact.units)).items():
        squares[edge] = amount / exact.denominator
    return dag.with_theta(_signs(dag, seed) * np.sqrt(squares))


def generic_point(dag: Dag, balance: Prescribed, *, scale: float = 1.0, seed: int = 0) -> Dag:
    """The graph with weights of balance c, none zero: random squares near `scale`, then corrected along paths.

    >>> from lawful.invariant_set.balance import balance
    >>> from lawful.network import Architecture
    >>> dag = generic_point(Architecture.parse("2-3-3-1").to_dag(), [1, -2, 0, 3, -4, 5])
    >>> balance(dag).round(12), int(np.count_nonzero(dag.theta))
    (array([ 1., -2.,  0.,  3., -4.,  5.]), 18)
    """
    if not (np.isfinite(scale) and scale > 0):
        raise LawfulError(f"the scale of the squares must be positive, not {scale}")
    exact = balance if isinstance(balance, Balance) else Balance.given(dag, balance)
    squares = scale * np.random.default_rng((seed, 1)).uniform(0.5, 1.5, dag.parameters)
    for edge, amount in complete(dag, (exact.values - divergence(dag, squares)).tolist()).items():
        squares[edge] += amount
    return dag.with_theta(_signs(dag, seed) * np.sqrt(squares))


def complete(dag: Dag, lacking: list[Any]) -> dict[int, Any]:
    """Non-negative amounts on edges whose divergence is `lacking`, one number per hidden node (any number type).

    Surplus leaves each node by one edge, and what is then still lacking comes by one; `lacking` holds what remains.
    """
    numbers = np.full(len(dag.names), -1, dtype=np.intp)
    numbers[dag.hidden] = np.arange(len(dag.hidden))
    order = np.argsort(dag.levels[dag.hidden], kind="stable").tolist()
    amounts: dict[int, Any] = {}
    for near, far, nodes, sign in ((dag.tails, dag.heads, order, -1), (dag.heads, dag.tails, order[::-1], 1)):
        chosen = _nearest(dag, near, far)[dag.hidden].tolist()
        leads = numbers[far].tolist()
        for node in nodes:
            missing, edge = lacking[node], chosen[node]
            if edge >= 0 and missing * sign > 0:
                amounts[edge] = amounts.get(edge, 0) + missing * sign
                lacking[node] = 0
                if leads[edge] >= 0:
                    lacking[leads[edge]] += missing
    return amounts


def _nearest(dag: Dag, near: Indices, far: Indices) -> Indices:
    """For each node an edge that leads to a non-hidden node by as few steps as any other; −1 if none."""
    edges = np.flatnonzero(dag.roles[near] == Role.HIDDEN)
    height, _ = peel(len(dag.names), far[edges], near[edges])  # longest way to the end: short enough, and acyclic
    ordered = edges[np.lexsort((height[far[edges]], near[edges]))]
    nodes, first = np.unique(near[ordered], return_index=True)
    chosen = np.full(len(dag.names), -1, dtype=np.intp)
    chosen[nodes] = ordered[first]
    return chosen


def _signs(dag: Dag, seed: int) -> Floats:
    return np.random.default_rng(seed).choice([-1.0, 1.0], dag.parameters)


WORD = 62  # sums of capacities must stay below 2**63


def maximum_flow(
    count: int, tails: Sequence[int], heads: Sequence[int], capacities: Sequence[int], source: int, sink: int
) -> tuple[list[int], set[int]]:
    """An exact maximum flow, arc by arc, and the nodes that its residual graph reaches from the source.

    Capacities of more than 64 bits are solved from the leading bits down: each round leaves at most one unit of the
    last bit per arc, which the next round finds in the residual graph. Nothing is rounded.

    >>> maximum_flow(3, [0, 0, 1], [1, 2, 2], [10**30, 7, 10**25], 0, 2)
    ([10000000000000000000000000, 7, 10000000000000000000000000], {0, 1})
    """
    arcs = len(tails)
    flow = [0] * arcs
    remaining = min(_leaving(tails, capacities, source), _leaving(heads, capacities, sink))
    bits = WORD - (2 * arcs).bit_length()
    while True:
        shift = max((remaining + 1).bit_length() - bits, 0)
        back = [arc for arc in range(arcs) if flow[arc]]
        # One more than can still flow, so that what is not a bottleneck never looks like one.
        room = [min(capacity - sent, remaining + 1) >> shift for capacity, sent in zip(capacities, flow, strict=True)]
        undo = [min(flow[arc], remaining + 1) >> shift for arc in back]
        sent, reached = _solve(
            np.concatenate([tails, [heads[arc] for arc in back]]),
            np.concatenate([heads, [tails[arc] for arc in back]]),
            room + undo,
            source,
            sink,
        )
        for arc, amount in enumerate(sent[:arcs]):
            flow[arc] += amount << shift
        for arc, amount in zip(back, sent[arcs:], strict=True):
            flow[arc] -= amount << shift
        if not shift:
            return flow, reached
        remaining = (2 * arcs) << shift


def maximum_closure(weights: Sequence[int], arcs: Sequence[tuple[int, int]]) -> tuple[int, list[int]]:
    """The heaviest set that no arc leaves, and its weight (the empty set weighs 0): one minimum cut (Picard 1976).

    >>> maximum_closure([5, -3, -4], [(0, 1)])
    (2, [0, 1])
    """
    count = len(weights)
    source, sink = count, count + 1
    total = sum(weight for weight in weights if weight > 0)
    if not total:
        return 0, []
    gains = [(source, node, weight) for node, weight in enumerate(weights) if weight > 0]
    costs = [(node, sink, -weight) for node, weight in enumerate(weights) if weight < 0]
    tails, heads, capacities = zip(*gains, *costs, *((tail, head, total + 1) for tail, head in arcs), strict=True)
    _, reached = maximum_flow(count + 2, tails, heads, capacities, source, sink)
    chosen = sorted(reached - {source})
    return sum(weights[node] for node in chosen), chosen


def _leaving(ends: Sequence[int], capacities: Sequence[int], node: int) -> int:
    return sum(capacity for end, capacity in zip(ends, capacities, strict=True) if end == node)


def _solve(tails: object, heads: object, room: list[int], source: int, sink: int) -> tuple[list[int], set[int]]:
    from ortools.graph.python import max_flow

    solver = max_flow.SimpleMaxFlow()
    solver.add_arc_with_capacity(source, sink, 0)  # the solver refuses a source or sink without arcs
    arcs = solver.add_arcs_with_capacity(
        np.asarray(tails, dtype=np.int64), np.asarray(heads, dtype=np.int64), np.array(room, dtype=np.int64)
    )
    status = solver.solve(source, sink)
    if status != solver.OPTIMAL:
        raise LawfulError(f"the maximum-flow solver stopped with {status}")
    return solver.flows(arcs).tolist(), {int(node) for node in solver.get_source_side_min_cut()}
