"""Which gates neurons have near given weights, in fractions: only what small changes leave alone counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from lawful.errors import CertificateError
from lawful.verify.core.dag import CONSTANT, HIDDEN, INPUT, CheckedDag
from lawful.verify.core.schema import integer, items, limit_cost, limit_sums, rational, require

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
    patterns = []
    for point in inputs:
        value = [Fraction(0)] * len(dag.roles)
        gate = [Fraction(1)] * len(dag.roles)
        silent = [False] * len(dag.roles)  # 0 for all weights nearby
        if dag.constant is not None:
            value[dag.constant] = Fraction(1)
        for node, coordinate in zip(dag.inputs, point, strict=True):
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
        patterns.append(tuple(gate[node] for node in dag.hidden))
    require(bool(patterns), "no input shows any activation pattern")
    return tuple(patterns)


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
    shared: list[object] = [None] * len(dag.roles)
    for node in dag.hidden:
        heard = [(tail, dag.exact[edge]) for tail, edge in dag.into[node] if gates[tail] != 0]
        if len(heard) == 1 and heard[0][1] != 0 and gates[node] is None:
            shared[node] = (dag.slope[node], heard[0][0], heard[0][1] > 0)
    return tuple(shared)


def grouped_patterns(
    patterns: Sequence[tuple[Fraction, ...]], groups: Sequence[int]
) -> tuple[tuple[Fraction, ...], ...]:
    """The pattern of each group of data, after showing that all its members share it."""
    by_group: dict[int, tuple[Fraction, ...]] = {}
    for pattern, group in zip(patterns, groups, strict=True):
        require(by_group.setdefault(group, pattern) == pattern, f"two inputs of group {group} show different patterns")
    require(sorted(by_group) == list(range(len(by_group))), "a group is empty")
    return tuple(by_group[group] for group in range(len(by_group)))


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


# All activation patterns of a network whose inputs are a line, found again in fractions.
#
# At a point of the line the gates are known, and with these gates every neuron is affine: the pattern reaches as far
# as no neuron that hears something changes its sign. What is left of the line on both sides is looked at in the same
# way.

ZERO = Fraction(0)
Affine = tuple[Fraction, Fraction]
Switch = Fraction | None
# Four times as many pieces are walked at most; the cost of each is counted besides.
MOST_PATTERNS = 1024
MOST_POINTS = 64  # tried in one interval


def every_pattern(dag: CheckedDag) -> set[tuple[Fraction, ...]]:
    """The gates of the hidden neurons on all open pieces of the line, which must be the same for all weights nearby."""
    inputs = dag.inputs
    single, plane = len(inputs) == 1, len(inputs) == 2 and dag.constant is None
    require(single or plane, "all patterns are known for one input, or two inputs without biases")
    lines: list[dict[int, Affine]] = [{inputs[0]: (ZERO, Fraction(1))}]
    if plane:  # homogeneous: two parallel lines meet every cone
        lines = [{inputs[0]: (Fraction(side), ZERO), inputs[1]: (ZERO, Fraction(1))} for side in (1, -1)]
    patterns: set[tuple[Fraction, ...]] = set()
    pieces = 0
    for line in lines:
        waiting: list[tuple[Switch, Switch]] = [(None, None)]
        while waiting:
            low, high = waiting.pop()
            piece = _inner_piece(dag, line, low, high)
            pieces += 1
            limit_cost(40.0 * dag.growth**2 * pieces * (len(dag.tails) + len(dag.roles)))
            require(pieces <= 4 * MOST_PATTERNS, "there are too many pieces")
            left, right = piece.reach()
            piece.check_ends(left, right)
            patterns.add(tuple(piece.gate[node] for node in dag.hidden))
            if left is not None and (low is None or low < left):
                waiting.append((low, left))
            if right is not None and (high is None or right < high):
                waiting.append((right, high))
    return patterns


def _inner_piece(dag: CheckedDag, line: dict[int, Affine], low: Switch, high: Switch) -> _Piece:
    """A piece inside an interval, around a point at which no neuron switches."""
    for number in range(MOST_POINTS):
        piece = _Piece(dag, line, _inside(low, high, Fraction(number % 7 + 1, number + 8)))
        if piece.clear:
            return piece
    raise CertificateError("no point was found at which no neuron switches")


def _inside(low: Switch, high: Switch, share: Fraction) -> Fraction:
    if low is not None and high is not None:
        return low + share * (high - low)
    return high - 1 / share if high is not None else 1 / share if low is None else low + 1 / share


class _Piece:
    """The part of the line around a point on which no gate changes."""

    def __init__(self, dag: CheckedDag, line: dict[int, Affine], at: Fraction) -> None:
        self.dag, self.at = dag, at
        self.value: dict[int, Affine] = dict(line)
        self.before: dict[int, Affine] = {}  # what each hidden neuron reads
        self.moving = {node for node, (_, slope) in line.items() if slope}
        self.varies = set(self.moving)
        self.mute: set[int] = set()
        self.clear = True
        self.gate: dict[int, Fraction] = {}
        if dag.constant is not None:
            self.value[dag.constant] = (Fraction(1), ZERO)
        for node in dag.order:
            if dag.roles[node] == HIDDEN:
                self._read(node)

    def heard(self, node: int) -> list[tuple[int, Fraction]]:
        return [(tail, self.dag.exact[edge]) for tail, edge in self.dag.into[node] if tail not in self.mute]

    def _read(self, node: int) -> None:
        slope, heard = self.dag.slope[node], self.heard(node)
        base = sum((weight * self.value[tail][0] for tail, weight in heard), ZERO)
        rate = sum((weight * self.value[tail][1] for tail, weight in heard), ZERO)
        here = base + rate * self.at
        linear = slope == 1
        if heard and not linear:
            require(base != 0 or rate != 0, f"neuron {node} lies on its boundary wherever it is looked at")
            self.clear = self.clear and here != 0
            self.before[node] = (base, rate)
        self.gate[node] = Fraction(1) if linear or (heard and here > 0) else slope
        self.value[node] = (self.gate[node] * base, self.gate[node] * rate)
        if not heard or not self.gate[node]:
            self.mute.add(node)
        elif any(tail in self.varies for tail, _ in heard):
            self.varies.add(node)

    def reach(self) -> tuple[Switch, Switch]:
        """The nearest switches on both sides."""
        roots = [-base / rate for base, rate in self.before.values() if rate]
        return (
            max((root for root in roots if root < self.at), default=None),
            min((root for root in roots if root > self.at), default=None),
        )

    def check_ends(self, left: Switch, right: Switch) -> None:
        """Other weights nearby must not bring further switches in, from infinity or where several meet."""
        for node, (_, rate) in self.before.items():
            steady = rate != 0 or not any(tail in self.varies for tail, _ in self.heard(node))
            far = left is None or right is None
            require(steady or not far, f"neuron {node} may switch far away for weights nearby")
        for end in (left, right):
            if end is not None:
                self._check_end(end)

    def _check_end(self, end: Fraction) -> None:
        """At most one neuron is 0 at an end for a reason of its own; others because all that they hear is 0 there."""
        nought = set(self.moving) if end == 0 else set()
        reasons = len(nought)
        for node in self.dag.order:
            if self.dag.roles[node] != HIDDEN or not self.heard(node):
                continue
            if all(tail in nought for tail, _ in self.heard(node)):
                nought.add(node)
            elif node in self.before and self.before[node][0] + self.before[node][1] * end == 0:
                reasons += 1
                nought.add(node)
                require(reasons == 1, "two switches meet that other weights nearby would part")


# What a data set leaves alone, in fractions: silent nodes, gates that do not matter, sums that no sample moves.


@dataclass(frozen=True, eq=False)
class Samples:
    """The data of a certificate: coordinates by node, and the nodes that each sample leaves mute or unheard.

    A signal is mute if it is 0 at all weights nearby (a coordinate 0, a gate 0, only mute ones before it); a node is
    unheard if its gate is 0 or only unheard ones listen. A gate is `free` where no signal arrives, or where nobody
    would listen even if all such gates were open: other gates there would change nothing.
    """

    signals: tuple[dict[int, Fraction], ...]
    mute: tuple[frozenset[int], ...]
    unheard: tuple[frozenset[int], ...]
    free: tuple[frozenset[int], ...]
    gates: tuple[dict[int, Fraction], ...]
    every: bool = False  # not data, but an open set of inputs for each pattern that can occur

    def rests(self, tail: int, head: int) -> bool:
        """Whether no sample moves a weight: its gradient is a signal times what is heard of it."""
        return all(tail in mute or head in unheard for mute, unheard in zip(self.mute, self.unheard, strict=True))

    def heard_at(self, node: int) -> list[dict[int, Fraction]]:
        """The samples that are heard through a node."""
        require(not self.every, "sums of weights into one neuron rest on data only")
        return [signal for signal, unheard in zip(self.signals, self.unheard, strict=True) if node not in unheard]


def all_inputs(dag: CheckedDag, patterns: Sequence[tuple[Fraction, ...]]) -> Samples:
    """An open set of inputs for each of the patterns, which are all that occur."""
    return replace(samples_of(dag, [[1.0] * len(dag.inputs)] * len(patterns), patterns), every=True)


def samples_of(dag: CheckedDag, inputs: Sequence[Sequence[float]], patterns: Sequence[tuple[Fraction, ...]]) -> Samples:
    """The samples, with the gates of the hidden nodes at each."""
    signals, mutes, unheards, frees, gates = [], [], [], [], []
    for point, pattern in zip(inputs, patterns, strict=True):
        gate = dict(zip(dag.hidden, pattern, strict=True))
        signal = {node: Fraction(value) for node, value in zip(dag.inputs, point, strict=True)}
        signal |= {} if dag.constant is None else {dag.constant: Fraction(1)}
        mute = {node for node, value in signal.items() if value == 0}
        no_signal = set()
        for node in dag.order:
            if dag.roles[node] == HIDDEN:
                if all(tail in mute for tail, _ in dag.into[node]):
                    no_signal.add(node)
                if node in no_signal or gate[node] == 0:
                    mute.add(node)
        unheard = _unheard(dag, {node for node, value in gate.items() if value == 0})
        deaf = _unheard(dag, {node for node, value in gate.items() if value == 0 and node not in no_signal})
        nobody = {node for node in dag.hidden if all(head in deaf for head, _ in dag.out_of[node])}
        signals.append(signal)
        mutes.append(frozenset(mute))
        unheards.append(frozenset(unheard))
        frees.append(frozenset(no_signal | nobody))
        gates.append(gate)
    return Samples(tuple(signals), tuple(mutes), tuple(unheards), tuple(frees), tuple(gates))


def _unheard(dag: CheckedDag, closed: set[int]) -> set[int]:
    unheard: set[int] = set()
    for node in reversed(dag.order):
        if dag.roles[node] == HIDDEN and (node in closed or all(head in unheard for head, _ in dag.out_of[node])):
            unheard.add(node)
    return unheard


def gates_on_data(dag: CheckedDag, samples: Samples, stated: Sequence[float | None]) -> Gates:
    """The stated gates, after showing that the data give those neurons no other where a gate matters."""
    gates: list[Fraction | None] = [Fraction(1)] * len(dag.roles)
    for node, claimed in enumerate(stated):
        if dag.roles[node] != HIDDEN:
            require(claimed in (None, 1.0), f"node {node} has no gate but 1")
            continue
        gates[node] = None if claimed is None else Fraction(claimed)
        for gate, free in zip(samples.gates, samples.free, strict=True):
            agreed = claimed is None or node in free or gate[node] == gates[node]
            require(agreed, f"neuron {node} does not always have its gate on the data")
    return tuple(gates)


def alike_on_data(dag: CheckedDag, samples: Samples) -> tuple[object, ...]:
    """What nodes must share to have the same gate at every sample where it matters."""
    shared: list[object] = [None] * len(dag.roles)
    for node in dag.hidden:
        shown = zip(samples.gates, samples.free, strict=True)
        shared[node] = (dag.slope[node], tuple(None if node in free else gate[node] for gate, free in shown))
    return tuple(shared)


def still_sum(
    samples: Samples, roles: Sequence[int], ends: Sequence[tuple[int, int]], node: int, value: object
) -> dict[int, Fraction]:
    """A sum of weights from inputs into one node, after showing that every sample heard there keeps it."""
    terms: dict[int, Fraction] = {}
    for item in items(value, "known"):
        edge, factor = items(item, "known", length=2)
        edge = integer(edge, "known", 0, len(ends) - 1)
        require(edge not in terms and ends[edge][1] == node, f"a sum does not name edges into node {node}")
        require(roles[ends[edge][0]] in (INPUT, CONSTANT), "a sum names an edge that comes from a neuron")
        terms[edge] = rational(factor, "known")
    limit_sums(terms.values(), 20.0 * len(terms) * len(samples.signals))
    for signal in samples.heard_at(node):
        total = sum((factor * signal[ends[edge][0]] for edge, factor in terms.items()), Fraction(0))
        require(total == 0, f"a sample moves a sum of weights into node {node}")
    return terms


def one_signal(samples: Samples, sink: int, nodes: Sequence[int]) -> dict[int, Fraction]:
    """The coordinates at some inputs of every sample that is heard through a node: they must be multiples of one."""
    rows = [[signal[node] for node in nodes] for signal in samples.heard_at(sink)]
    first = next((row for row in rows if any(row)), [Fraction(0)] * len(nodes))
    pivot = next((place for place, value in enumerate(first) if value), 0)
    for row in rows:
        same = all(row[place] * first[pivot] == row[pivot] * first[place] for place in range(len(nodes)))
        require(same, f"two samples reach node {sink}: the part passes more than one number on")
    return dict(zip(nodes, first, strict=True))
