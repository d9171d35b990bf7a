"""All activation patterns of a network whose inputs are a line, found again in fractions.

At a point of the line the gates are known, and with these gates every neuron is affine: the pattern reaches as far as
no neuron that hears something changes its sign. What is left of the line on both sides is looked at in the same way.
"""

from __future__ import annotations

from fractions import Fraction

from lawful.errors import CertificateError
from lawful.verify.core.dag import HIDDEN, CheckedDag
from lawful.verify.core.schema import limit_cost, require

ZERO = Fraction(0)
Affine = tuple[Fraction, Fraction]
End = Fraction | None
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
    found: set[tuple[Fraction, ...]] = set()
    pieces = 0
    for line in lines:
        waiting: list[tuple[End, End]] = [(None, None)]
        while waiting:
            low, high = waiting.pop()
            piece = _inner_piece(dag, line, low, high)
            pieces += 1
            limit_cost(40.0 * dag.growth**2 * pieces * (len(dag.tails) + len(dag.roles)))
            require(pieces <= 4 * MOST_PATTERNS, "there are too many pieces")
            left, right = piece.reach()
            piece.check_ends(left, right)
            found.add(tuple(piece.gate[node] for node in dag.hidden))
            if left is not None and (low is None or low < left):
                waiting.append((low, left))
            if right is not None and (high is None or right < high):
                waiting.append((right, high))
    return found


def _inner_piece(dag: CheckedDag, line: dict[int, Affine], low: End, high: End) -> _Piece:
    """A piece inside an interval, around a point at which no neuron switches."""
    for number in range(MOST_POINTS):
        piece = _Piece(dag, line, _inside(low, high, Fraction(number % 7 + 1, number + 8)))
        if piece.clear:
            return piece
    raise CertificateError("no point was found at which no neuron switches")


def _inside(low: End, high: End, share: Fraction) -> Fraction:
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

    def reach(self) -> tuple[End, End]:
        """The nearest switches on both sides."""
        roots = [-base / rate for base, rate in self.before.values() if rate]
        return (
            max((root for root in roots if root < self.at), default=None),
            min((root for root in roots if root > self.at), default=None),
        )

    def check_ends(self, left: End, right: End) -> None:
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
