"""A certificate's problem, read with suspicion: the graph, the flow, and the random numbers in plain integers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from flint import ctx, nmod_mat
from numpy.typing import NDArray

from lawful.verify.conservation.gates import Samples
from lawful.verify.core.balls import BITS, ball
from lawful.verify.core.dag import CheckedDag
from lawful.verify.core.schema import check_clock, integers, items, numbers, object_with_keys, require, spend
from lawful.verify.core.schema import matrix as table

Residues = NDArray[np.int64]

Block = tuple[list[int], list[list[Fraction]]]  # some weights, and their part of a metric
MASK = 2**64 - 1
MIXED, FIRST_PATTERN = 8, 16  # part of what the stored seed means


@dataclass(frozen=True, eq=False)
class Case:
    """What a certificate speaks of."""

    dag: CheckedDag
    gates: tuple[Fraction | None, ...]
    prime: int
    seed: int
    loss: str
    flow: Mapping[str, Any]
    patterns: tuple[tuple[Fraction, ...], ...]
    spans: tuple[list[list[int]], ...]
    point: Residues
    metric: tuple[Block, ...] = ()
    alike: tuple[object, ...] = ()
    samples: Samples | None = None

    @property
    def states(self) -> int:
        """Dimension of the state space."""
        return len(self.point)

    def residue(self, value: Fraction) -> int:
        """A fraction modulo the prime."""
        return value.numerator * pow(value.denominator, -1, self.prime) % self.prime

    @property
    def patterns_per_field(self) -> int:
        """How many activation patterns one field sums; 1 where gates are free."""
        return min(max(len(self.patterns), 1), MIXED)

    def multipliers(self, level: int, slot: int, rows: int) -> Residues:
        """One number per pattern, node and row, then one for the drift of momentum."""
        start = _stir(_stir(self.seed & MASK, level), slot)
        table = np.empty((self.patterns_per_field * len(self.dag.roles) + 1, rows), dtype=np.int64)
        for row in range(rows):
            column: list[int] = []
            for place in range(self.patterns_per_field):
                state = _stir(start, FIRST_PATTERN + place) if self.patterns else start
                column += self._line(state, place, row)
            table[:, row] = [*column, _stir(_stir(_stir(start, 2), row), 0) % self.prime]
        return table

    def _line(self, start: int, place: int, row: int) -> list[int]:
        state = _stir(start, row)
        line = [_stir(state, node) % self.prime for node in range(len(self.dag.roles))]
        which = place
        if len(self.patterns) > self.patterns_per_field:
            which = _stir(_stir(_stir(start, 1), row), 0) % self.prime % len(self.patterns)
        for number, node in enumerate(self.dag.hidden):
            if self.patterns:
                line[node] = self.residue(self.patterns[which][number])
            elif self.gates[node] is not None:
                line[node] = 1
        if self.spans:
            self._set_inputs(line, which)
        if self.loss == "cross-entropy":
            *others, last = self.dag.outputs
            line[last] = -sum(line[node] for node in others) % self.prime
        return line

    def _set_inputs(self, line: list[int], which: int) -> None:
        """A random combination of the data that show the pattern; what the first input was is its random number."""
        nodes = [*self.dag.inputs, *([] if self.dag.constant is None else [self.dag.constant])]
        state = _stir(_stir((self.seed + 1) & MASK, which), line[nodes[0]])
        factors = [_stir(state, number) % self.prime for number in range(len(self.spans[which]))]
        for place, node in enumerate(nodes):
            pairs = zip(factors, self.spans[which], strict=True)
            line[node] = sum(factor * vector[place] for factor, vector in pairs) % self.prime


def spans_of(points: list[list[int]], groups: list[int], prime: int) -> tuple[list[list[int]], ...]:
    """For each pattern its data, or as many random combinations of them as there are coordinates, if fewer."""
    spans = []
    for pattern in range(max(groups) + 1):
        members = [point for point, group in zip(points, groups, strict=True) if group == pattern]
        require(len(members) > 0, f"no input shows pattern {pattern}")
        width = len(members[0])
        if len(members) > width:
            mixed = []
            for row in range(width):
                state = _stir(_stir(0, 3), row)
                factors = [_stir(state, number) % prime for number in range(len(members))]
                pairs = list(zip(factors, members, strict=True))
                mixed.append([sum(factor * point[place] for factor, point in pairs) % prime for place in range(width)])
            members = mixed
        spans.append(members)
    return tuple(spans)


def states_of(parameters: int, flow: Mapping[str, Any]) -> int:
    """Weights; with momentum also velocities and, unless autonomous, time; with weight decay time."""
    if flow["name"] == "momentum":
        return 2 * parameters + (not flow["autonomous"])
    return parameters + int(flow["name"] == "decay")


def _stir(state: int, label: int) -> int:
    """SplitMix64's finaliser, in plain integers."""
    mixed = (state + 0x9E3779B97F4A7C15 * (label + 1)) & MASK
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & MASK
    return mixed ^ (mixed >> 31)


# A certificate's metric, block by block in fractions: what it does to fields, and which symmetries it spares.

Form = dict[tuple[int, int], Fraction]


def blocks_of(flow: Mapping[str, Any], size: int) -> tuple[Block, ...]:
    """The metric as blocks that cover every weight once; a diagonal is made of blocks of size 1."""
    if flow["name"] != "metric":
        return ()
    require(("diagonal" in flow) is not ("blocks" in flow), "a metric is a diagonal or made of blocks")
    stated: list[Block]
    if "diagonal" in flow:
        values = numbers(flow["diagonal"], "flow.diagonal", length=size)
        stated = [([edge], [[Fraction(value)]]) for edge, value in enumerate(values)]
    else:
        stated = []
        for item in items(flow["blocks"], "flow.blocks", most=size):
            block = object_with_keys(item, "flow.blocks", "weights matrix")
            where = integers(block["weights"], "flow.blocks.weights", 0, size - 1)
            rows = table(block["matrix"], "flow.blocks.matrix", rows=len(where), columns=len(where))
            spend(20.0 * len(where) ** 3)
            stated.append((where, [list(map(Fraction, row)) for row in rows]))
    named = [edge for where, _ in stated for edge in where]
    require(len(set(named)) == len(named), "the metric names a weight twice")
    for where, lines in stated:
        mirrored = all(lines[i][j] == lines[j][i] for i in range(len(where)) for j in range(i))
        require(mirrored and _positive(lines), "the metric is not symmetric and positive")
    rest = sorted(set(range(size)) - set(named))
    return (*stated, *(([edge], [[Fraction(1)]]) for edge in rest))


def _positive(matrix: list[list[Fraction]]) -> bool:
    """Whether all pivots of a symmetric matrix are surely positive: in balls, for rationals grow with every pivot."""
    with ctx.workprec(BITS):
        rows = [list(map(ball, row)) for row in matrix]
        for place, pivot in enumerate(rows):
            check_clock()
            if not pivot[place] > 0:
                return False
            for below in rows[place + 1 :]:
                factor = below[place] / pivot[place]
                if factor != 0:
                    pairs = zip(below[place:], pivot[place:], strict=True)
                    below[place:] = [entry - factor * top for entry, top in pairs]
    return True


def times_metric(case: Case, force: Residues) -> Residues:
    """`M ∇f` modulo the prime."""
    product = np.zeros_like(force)
    for where, matrix in case.metric:
        for row, line in zip(where, matrix, strict=True):
            for column, value in zip(where, line, strict=True):
                product[row] = (product[row] + case.residue(value) * force[column]) % case.prime
    return product


def check_spared(case: Case, form: Form) -> None:
    """Reject unless `M⁻¹G` is symmetric, which is to say `MG = GM`, exactly."""
    product: Form = {}
    home = {edge: (place, block) for block in case.metric for place, edge in enumerate(block[0])}
    for (middle, column), value in form.items():
        place, (where, matrix) = home[middle]
        for row, line in zip(where, matrix, strict=True):
            product[row, column] = product.get((row, column), Fraction(0)) + line[place] * value
    for (row, column), value in product.items():
        require(product.get((column, row), 0) == value, "the metric breaks the symmetry of a law")


def over_metric(case: Case, gradient: list[int]) -> list[int]:
    """`M⁻¹ v` modulo the prime, by FLINT."""
    solved = list(gradient)
    for where, matrix in case.metric:
        if any(gradient[edge] % case.prime for edge in where):
            entries = [case.residue(value) for line in matrix for value in line]
            right = nmod_mat(len(where), 1, [gradient[edge] % case.prime for edge in where], case.prime)
            solution = nmod_mat(len(where), len(where), entries, case.prime).solve(right)
            for place, edge in enumerate(where):
                solved[edge] = int(solution[place, 0])
    return solved


# What a heavy ball keeps: rotations, and impulse and resting place wherever no force acts.

Row = list[int]


def momentum_rows(
    case: Case, rotations: list[dict[tuple[int, int], Fraction]], forceless: list[dict[int, Fraction]]
) -> list[Row]:
    """Gradients in (θ, v, t) of the laws that pairs of linear neurons and forceless directions give.

    `Q = Σ θ_a v_b − θ_b v_a` and `⟨a, v⟩` decay as e^{−γt}: times e^{γt} they are conserved, without time their ratios
    are, without friction they are themselves. Along a forceless a, `⟨a, γθ + v⟩` is conserved; without friction
    `⟨a, θ⟩ − t⟨a, v⟩` is or, without time, `⟨a, θ⟩⟨b, v⟩ − ⟨b, θ⟩⟨a, v⟩`.
    """
    size, timed = len(case.dag.tails), not case.flow["autonomous"]
    friction = Fraction(float(case.flow["friction"]))
    point = [int(value) for value in case.point]
    theta, speed = point[:size], point[size : 2 * size]
    rate = case.residue(friction)

    def row(by_theta: Mapping[int, int], by_speed: Mapping[int, int], by_time: int) -> Row:
        gradient = [0] * case.states
        for edge, value in by_theta.items():
            gradient[edge] += value
        for edge, value in by_speed.items():
            gradient[size + edge] += value
        if timed:
            gradient[-1] += by_time
        return [entry % case.prime for entry in gradient]

    decaying: list[tuple[dict[int, int], dict[int, int], int]] = []  # gradients by θ and v, and the value
    for form in rotations:
        by_theta: dict[int, int] = {}
        by_speed: dict[int, int] = {}
        value = 0
        for first, second in form:
            for left, right, sign in ((first, second, 1), (second, first, -1)):
                by_theta[left] = by_theta.get(left, 0) + sign * speed[right]
                by_speed[right] = by_speed.get(right, 0) + sign * theta[left]
                value += sign * theta[left] * speed[right]
        decaying.append((by_theta, by_speed, value))
    along = [{edge: case.residue(factor) for edge, factor in form.items()} for form in forceless]
    decaying += [({}, a, sum(factor * speed[edge] for edge, factor in a.items())) for a in along]
    places = [sum(factor * theta[edge] for edge, factor in a.items()) for a in along]
    speeds = [sum(factor * speed[edge] for edge, factor in a.items()) for a in along]

    rows: list[Row] = []
    if timed or not friction:
        rows += [row(by_theta, by_speed, rate * value) for by_theta, by_speed, value in decaying]
    elif decaying:
        (start, size_of_start), *others = [(row(one, two, 0), value) for one, two, value in decaying]
        for gradient, value in others:
            pairs = zip(gradient, start, strict=True)
            rows.append([(mine * size_of_start - value * its) % case.prime for mine, its in pairs])
    if friction:
        rows += [row({edge: rate * factor for edge, factor in a.items()}, a, 0) for a in along]
    elif timed:
        for a, fast in zip(along, speeds, strict=True):
            rows.append(row(a, {edge: -point[-1] * factor for edge, factor in a.items()}, -fast))
    else:
        for number in range(1, len(along)):
            a, b = along[0], along[number]
            by_theta = {edge: factor * speeds[number] for edge, factor in a.items()}
            for edge, factor in b.items():
                by_theta[edge] = by_theta.get(edge, 0) - factor * speeds[0]
            by_speed = {edge: factor * places[0] for edge, factor in b.items()}
            for edge, factor in a.items():
                by_speed[edge] = by_speed.get(edge, 0) - factor * places[number]
            rows.append(row(by_theta, by_speed, 0))
    return rows
