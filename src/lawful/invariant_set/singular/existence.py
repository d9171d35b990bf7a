"""Does the invariant set `H(c)` have singular points? An exact answer, with a witness or a proof (P0 Section 3.3).

A singular point exists iff some set W of hidden neurons meets its balances by its own inner edges alone, and the other
neurons meet theirs without W. Then `Σ_W c = 0` (P0 Proposition 6), and W may be taken connected. So: list the
zero-sum sets exactly, and decide each by two flows in integers. Only the listing is exponential, in the number of
neurons that can be in such a set at all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from math import lcm

import numpy as np
from numpy.typing import NDArray

from lawful.errors import LawfulError
from lawful.invariant_set.balance import Balance, root
from lawful.network import Dag, Role

Edge = tuple[str, str]
LARGEST_COMPONENT = 40  # neurons among which zero-sum sets are listed: 2^20 sums on each side
MOST_SETS = 5_000
PRIME = np.uint64(2**61 - 1)  # not a power of two: balances of scaled weights share those


@dataclass(frozen=True)
class SingularWitness:
    """A singular point of `H(c)`: the neurons it cuts off, and the exact squares of its weights."""

    cut_off: tuple[str, ...]
    squares: Mapping[Edge, Fraction]
    parameter: NDArray[np.float64] = field(repr=False)


@dataclass(frozen=True)
class Refutation:
    """Why a zero-sum set W cannot be cut off.

    On one side (`inside` W or outside) no edge leaves `blocked` if `forward`, so the sum of its balances cannot be
    negative, but it is; or no edge enters it, and the sum cannot be positive, but it is.
    """

    cut_off: tuple[str, ...]
    inside: bool
    blocked: tuple[str, ...]
    forward: bool


@dataclass(frozen=True)
class SingularPoints:
    """Whether `H(c)` has singular points: `exist` is None when the search was too large."""

    exist: bool | None
    reason: str
    witness: SingularWitness | None = None
    refutations: tuple[Refutation, ...] = ()
    candidates: tuple[tuple[str, ...], ...] = ()


def exact_balance(dag: Dag) -> dict[str, Fraction]:
    """`c = B̃θ²` as exact fractions: floats are dyadic rationals.

    >>> from lawful.network import Mlp
    >>> exact_balance(Mlp([[[0.5, 1.0]], [[2.0]]]).to_dag())
    {'h1.0': Fraction(-11, 4)}
    """
    names = (dag.names[node] for node in dag.hidden)
    return dict(zip(names, Balance.of(dag).fractions, strict=True))


def singular_points(
    dag: Dag, balance: Mapping[str, Fraction | int | float] | Sequence[Fraction | int | float]
) -> SingularPoints:
    """Decide whether `H(c)` has a singular point; `balance` is c, by name or in the order of the hidden neurons.

    >>> from lawful.network import Architecture
    >>> dag = Architecture.parse("2-2-2-1").to_dag()
    >>> singular_points(dag, [-1, 2, 1, 3]).witness.cut_off
    ('h1.0', 'h2.0')
    >>> singular_points(dag, [1, 2, 4, 8]).exist
    False
    """
    c = _balance(dag, balance)
    graph = _Graph(dag)
    parts = _candidates(graph, c)
    refutations: list[Refutation] = []
    for part in sorted(parts, key=len):
        if len(part) > LARGEST_COMPONENT:
            sets: list[tuple[str, ...]] | None = [(name,) for name in part if c[name] == 0]
            complete = False
        else:
            sets = zero_sums(part, c)
            complete = sets is not None
        for names in sorted(sets or (), key=len):
            if not graph.connected(names):
                continue
            decision = _decide(graph, dag, c, names)
            if isinstance(decision, SingularWitness):
                some = ", ".join(decision.cut_off[:6]) + (", ..." if len(decision.cut_off) > 6 else "")
                return SingularPoints(True, f"cutting off {some} leaves every balance in reach", decision)
            refutations.append(decision)
        if not complete:
            reason = f"{len(part)} neurons could take part (at most {LARGEST_COMPONENT} are searched)"
            if len(part) <= LARGEST_COMPONENT:
                reason = f"more than {MOST_SETS} sets of neurons have balances that sum to zero"
            return SingularPoints(None, reason, None, tuple(refutations), parts)
    reason = f"{len(refutations)} connected sets of neurons have balances that sum to zero, and none can be cut off"
    if not refutations:
        reason = "no connected set of neurons has balances that sum to zero (Proposition 6)"
    return SingularPoints(False, reason, None, tuple(refutations), parts)


def zero_sums(names: Sequence[str], c: Mapping[str, Fraction]) -> list[tuple[str, ...]] | None:
    """All nonempty subsets whose balances sum to zero, exactly; None if there are too many.

    Meet in the middle on sums modulo a prime: a true zero is a zero modulo anything, and every hit is checked exactly.
    """
    scale = lcm(*(c[name].denominator for name in names))
    values = [int(c[name] * scale) for name in names]
    half = len(values) // 2
    left, right = _sums(values[:half]), _sums(values[half:])
    order = np.argsort(left)
    target = (PRIME - right) % PRIME
    first = np.searchsorted(left, target, side="left", sorter=order)
    last = np.searchsorted(left, target, side="right", sorter=order)
    if int((last - first).sum()) > MOST_SETS:
        return None
    sets = []
    for high in np.flatnonzero(last > first):
        for place in range(first[high], last[high]):
            mask = int(order[place]) | int(high) << half
            chosen = [k for k in range(len(values)) if mask >> k & 1]
            if chosen and sum(values[k] for k in chosen) == 0:
                sets.append(tuple(names[k] for k in chosen))
    return sets


def _sums(values: Sequence[int]) -> NDArray[np.uint64]:
    """Sums of all subsets modulo the prime; subset number k has member j iff bit j of k is set."""
    sums = np.zeros(1, dtype=np.uint64)
    for value in values:
        sums = np.concatenate([sums, (sums + np.uint64(value % int(PRIME))) % PRIME])
    return sums


class _Graph:
    """Hidden neurons and the edges between them; which of them hear an input or speak to an output."""

    def __init__(self, dag: Dag) -> None:
        self.hidden = [dag.names[node] for node in dag.hidden]
        self.inner: list[Edge] = []
        self.fed: dict[str, Edge] = {}
        self.speaking: dict[str, Edge] = {}
        for edge in range(dag.parameters):
            tail, head = dag.edge_name(edge)
            from_hidden, to_hidden = (
                dag.roles[dag.tails[edge]] == Role.HIDDEN,
                dag.roles[dag.heads[edge]] == Role.HIDDEN,
            )
            if from_hidden and to_hidden:
                self.inner.append((tail, head))
            elif to_hidden:
                self.fed.setdefault(head, (tail, head))
            elif from_hidden:
                self.speaking.setdefault(tail, (tail, head))

    def connected(self, names: Iterable[str]) -> bool:
        return len(_components(set(names), self.inner)) == 1


def _components(names: set[str], edges: Sequence[Edge]) -> list[tuple[str, ...]]:
    near: dict[str, list[str]] = {name: [] for name in names}
    for tail, head in edges:
        if tail in names and head in names:
            near[tail].append(head)
            near[head].append(tail)
    parts, seen = [], set[str]()
    for start in sorted(names):
        if start not in seen:
            part, stack = [], [start]
            seen.add(start)
            while stack:
                part.append(stack.pop())
                fresh = [other for other in near[part[-1]] if other not in seen]
                seen.update(fresh)
                stack += dict.fromkeys(fresh)
            parts.append(tuple(part))
    return parts


def _candidates(graph: _Graph, c: Mapping[str, Fraction]) -> tuple[tuple[str, ...], ...]:
    """Neurons that a cut-off set can contain, by connected component.

    Inside the set a positive balance is fed by a negative one upstream, and a negative one feeds a positive one
    downstream. What fails this leaves, and again, until nothing changes.
    """
    left = set(graph.hidden)
    while True:
        edges = [(tail, head) for tail, head in graph.inner if tail in left and head in left]
        fed = _reach({name for name in left if c[name] < 0}, edges)
        heard = _reach({name for name in left if c[name] > 0}, [(head, tail) for tail, head in edges])
        stay = {name for name in left if c[name] == 0 or name in (fed if c[name] > 0 else heard)}
        if stay == left:
            return tuple(_components(left, edges))
        left = stay


def _reach(start: set[str], edges: Sequence[Edge]) -> set[str]:
    after: dict[str, list[str]] = {}
    for tail, head in edges:
        after.setdefault(tail, []).append(head)
    seen, stack = set(start), list(start)
    while stack:
        for head in after.get(stack.pop(), ()):
            if head not in seen:
                seen.add(head)
                stack.append(head)
    return seen


def _decide(graph: _Graph, dag: Dag, c: Mapping[str, Fraction], names: tuple[str, ...]) -> SingularWitness | Refutation:
    inside = set(names)
    outside = set(graph.hidden) - inside
    squares: dict[Edge, Fraction] = {}
    for members, is_inside in ((inside, True), (outside, False)):
        edges = [edge for edge in graph.inner if edge[0] in members and edge[1] in members]
        fed = {} if is_inside else {name: graph.fed[name] for name in members & graph.fed.keys()}
        speaking = {} if is_inside else {name: graph.speaking[name] for name in members & graph.speaking.keys()}
        flow = _flow(sorted(members), edges, fed, speaking, c)
        if isinstance(flow, tuple):
            return Refutation(names, is_inside, *flow)
        squares |= flow
    roots = [root(squares.get(dag.edge_name(edge), Fraction(0))) for edge in range(dag.parameters)]
    return SingularWitness(names, {edge: x for edge, x in squares.items() if x}, np.array(roots))


def _flow(
    names: Sequence[str],
    edges: Sequence[Edge],
    fed: Mapping[str, Edge],
    speaking: Mapping[str, Edge],
    c: Mapping[str, Fraction],
) -> dict[Edge, Fraction] | tuple[tuple[str, ...], bool]:
    """`x ≥ 0` on the edges with `in − out = c` at every name, or a set that shows there is none and its direction.

    A circulation with fixed flows at the neurons, found by shortest augmenting paths in integers.
    """
    scale = lcm(*(c[name].denominator for name in names)) if names else 1
    need = {name: int(c[name] * scale) for name in names}
    total = sum(abs(value) for value in need.values())
    unlimited = 2 * total + 1
    source, sink, start, end = "\0source", "\0sink", "\0inputs", "\0outputs"
    capacity: dict[str, dict[str, int]] = {name: {} for name in (*names, source, sink, start, end)}

    def join(tail: str, head: str, amount: int) -> None:
        capacity[tail][head] = capacity[tail].get(head, 0) + amount
        capacity[head].setdefault(tail, 0)

    for tail, head in edges:
        join(tail, head, unlimited)
    for name in fed:
        join(start, name, unlimited)
    for name in speaking:
        join(name, end, unlimited)
    join(end, start, unlimited)
    for name, value in need.items():
        if value < 0:
            join(source, name, -value)
        elif value > 0:
            join(name, sink, value)
    join(start, sink, sum(-value for value in need.values() if value < 0))
    join(source, end, sum(value for value in need.values() if value > 0))
    original = {tail: dict(row) for tail, row in capacity.items()}
    pushed, reached = _augment(capacity, source, sink)
    if pushed < total:
        inside = {name for name in names if name in reached}
        if start in reached:  # then everything inputs feed is reached: nothing enters the rest
            return tuple(name for name in names if name not in inside), False
        return tuple(sorted(inside)), True
    used = {(tail, head): original[tail][head] - capacity[tail][head] for tail in original for head in original[tail]}
    squares = {edge: Fraction(max(used[edge], 0), scale) for edge in edges}
    squares |= {edge: Fraction(max(used[start, name], 0), scale) for name, edge in fed.items()}
    return squares | {edge: Fraction(max(used[name, end], 0), scale) for name, edge in speaking.items()}


def _augment(capacity: dict[str, dict[str, int]], source: str, sink: str) -> tuple[int, set[str]]:
    """Maximum flow in place (Edmonds and Karp); its value and the source's side of a minimum cut."""
    value = 0
    while True:
        before: dict[str, str] = {source: source}
        queue = deque([source])
        while queue and sink not in before:
            node = queue.popleft()
            for head, room in capacity[node].items():
                if room > 0 and head not in before:
                    before[head] = node
                    queue.append(head)
        if sink not in before:
            return value, set(before)
        path = [sink]
        while path[-1] != source:
            path.append(before[path[-1]])
        amount = min(capacity[tail][head] for head, tail in pairwise(path))
        for head, tail in pairwise(path):
            capacity[tail][head] -= amount
            capacity[head][tail] += amount
        value += amount


def _balance(
    dag: Dag, balance: Mapping[str, Fraction | int | float] | Sequence[Fraction | int | float]
) -> dict[str, Fraction]:
    names = [dag.names[node] for node in dag.hidden]
    by_name = dict(balance) if isinstance(balance, Mapping) else dict(zip(names, balance, strict=False))
    if set(by_name) != set(names) or (not isinstance(balance, Mapping) and len(balance) != len(names)):
        raise LawfulError(f"a balance has one number for each of the {len(names)} hidden neurons, not {len(balance)}")
    try:
        return {name: Fraction(by_name[name]) for name in names}
    except (ValueError, OverflowError, TypeError):
        raise LawfulError("balances are finite numbers") from None
