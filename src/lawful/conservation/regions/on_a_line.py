"""Every activation pattern of a network whose inputs are a line: one input, or two inputs without biases.

Along `x(t) = p + tq` every neuron is affine between finitely many breakpoints, which are rational. Without biases a
network is homogeneous, so that two inputs are seen completely on the lines x₁ = 1 and x₁ = −1.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from lawful.network import Dag, Role
from lawful.types import Floats

MOST_INTERVALS = 512
MOST_EDGES = 2000
ZERO = Fraction(0)
Affine = tuple[Fraction, Fraction]  # value at t = 0, and slope


@dataclass
class _Interval:
    """A piece of the line: its ends, each node's affine value, and which nodes are 0 at an end whatever the weights."""

    low: Fraction | None
    high: Fraction | None
    values: dict[int, Affine]
    zero_signal: set[int]
    varying: set[int]
    zero_low: set[int]
    zero_high: set[int]
    gates: dict[int, float] = field(default_factory=dict)

    def split(self, at: Fraction, node: int) -> tuple[_Interval, _Interval]:
        left = _Interval(
            self.low, at, dict(self.values), set(self.zero_signal), set(self.varying), set(self.zero_low), {node}
        )
        right = _Interval(
            at, self.high, dict(self.values), set(self.zero_signal), set(self.varying), {node}, set(self.zero_high)
        )
        left.gates, right.gates = dict(self.gates), dict(self.gates)
        return left, right

    def witness(self) -> float | None:
        """A double strictly inside, of few digits where there is room."""
        try:
            return self._inside()
        except OverflowError:  # an end is larger than doubles can be
            return None

    def _inside(self) -> float | None:
        if self.low is None:
            below = 1.0 if self.high is None else float(np.floor(float(self.high)) - 1)
            return below if self.high is None or below < self.high else None
        if self.high is None:
            above = float(np.ceil(float(self.low)) + 1)
            return above if above > self.low else None
        middle = float((self.low + self.high) / 2)
        width = float(self.high - self.low)
        if width > 0:
            unit = 2.0 ** np.floor(np.log2(width) - 3)
            short = float(np.round(middle / unit) * unit)
            if self.low < Fraction(short) < self.high:
                return short
        return middle if self.low < Fraction(middle) < self.high else None


def line_patterns(dag: Dag) -> tuple[Floats, Floats] | None:
    """All gates of the hidden neurons that occur near the weights (a row per pattern), and an input for each.

    None if the inputs are no line, if there is too much to do, or at weights where two breakpoints meet that other
    weights nearby would part.

    >>> from lawful.network import Mlp
    >>> patterns, inputs = line_patterns(Mlp([[[1.0], [1.0]], [[1.0, -1.0]]], [[0.5, -1.0], [0.0]]).to_dag())
    >>> patterns.tolist()
    [[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]]
    """
    if dag.parameters > MOST_EDGES:
        return None
    inputs = dag.inputs.tolist()
    if len(inputs) == 1:
        lines = [{inputs[0]: (ZERO, Fraction(1))}]
    elif len(inputs) == 2 and dag.constant is None:
        lines = [{inputs[0]: (Fraction(side), ZERO), inputs[1]: (ZERO, Fraction(1))} for side in (1, -1)]
    else:
        return None
    shown_by: dict[tuple[float, ...], list[float]] = {}
    for line in lines:
        pieces = _pieces(dag, line)
        if pieces is None:
            return None
        for piece in pieces:
            at = piece.witness()
            if at is None:
                return None
            shown = [float(base + slope * Fraction(at)) for base, slope in line.values()]
            shown_by.setdefault(tuple(piece.gates[node] for node in dag.hidden.tolist()), shown)
    patterns = sorted(shown_by)
    return np.array(patterns).reshape(len(patterns), -1), np.array([shown_by[pattern] for pattern in patterns])


def _pieces(dag: Dag, line: dict[int, Affine]) -> list[_Interval] | None:
    into: list[list[tuple[int, Fraction]]] = [[] for _ in dag.names]
    for tail, head, weight in zip(dag.tails.tolist(), dag.heads.tolist(), dag.theta.tolist(), strict=True):
        into[head].append((tail, Fraction(weight)))
    values = dict(line) | ({} if dag.constant is None else {int(dag.constant): (Fraction(1), ZERO)})
    moving = {node for node, (_, slope) in line.items() if slope}
    half = [
        _Interval(None, ZERO, dict(values), set(), set(moving), set(), set(moving))
    ]  # the moving input is 0 at t = 0
    pieces = [*half, _Interval(ZERO, None, dict(values), set(), set(moving), set(moving), set())]
    for node in np.concatenate(dag.layers).tolist():
        if dag.roles[node] != Role.HIDDEN:
            continue
        after: list[_Interval] = []
        for piece in pieces:
            parted = _through(piece, node, into[node], float(dag.slopes[node]))
            if parted is None:
                return None
            after += parted
        pieces = after
        if len(pieces) > MOST_INTERVALS:
            return None
    return pieces


def _through(piece: _Interval, node: int, into: list[tuple[int, Fraction]], slope: float) -> list[_Interval] | None:
    """The piece with a neuron's gate, cut in two where the neuron switches; None where other weights might cut more."""
    live = [(tail, weight) for tail, weight in into if tail not in piece.zero_signal]
    base = sum((weight * piece.values[tail][0] for tail, weight in live), ZERO)
    rate = sum((weight * piece.values[tail][1] for tail, weight in live), ZERO)
    varies = any(tail in piece.varying for tail, _ in live)
    if not live:
        piece.gates[node] = slope
        piece.zero_signal.add(node)
        return [piece]
    at_ends = ((piece.low, piece.zero_low), (piece.high, piece.zero_high))
    noughts = [zeros for _, zeros in at_ends if all(tail in zeros for tail, _ in live)]
    if slope == 1.0:
        piece.gates[node], piece.values[node] = 1.0, (base, rate)
        piece.varying |= {node} if varies else set()
        for zeros in noughts:
            zeros.add(node)
        return [piece]
    if (varies and not rate and None in (piece.low, piece.high)) or (not rate and not base):
        return None  # another slope would bring a switch in from infinity; or the neuron is on its boundary
    for end, zeros in at_ends:
        nought = any(zeros is other for other in noughts)
        if end is not None and not nought and base + rate * end == 0:
            return None  # two switches meet
    for zeros in noughts:
        zeros.add(node)
    parts = [piece]
    root = -base / rate if rate else None
    inside = root is not None and (piece.low is None or piece.low < root) and (piece.high is None or root < piece.high)
    if inside and root is not None:
        parts = list(piece.split(root, node))
    for part in parts:
        at = _between(part)
        open_ = base + rate * at > 0
        part.gates[node] = 1.0 if open_ else slope
        gate = Fraction(1) if open_ else Fraction(slope)
        part.values[node] = (gate * base, gate * rate)
        if not gate:
            part.zero_signal.add(node)
        elif varies:
            part.varying.add(node)
    return parts


def _between(piece: _Interval) -> Fraction:
    if piece.low is None:
        return ZERO if piece.high is None else piece.high - 1
    return piece.low + 1 if piece.high is None else (piece.low + piece.high) / 2
