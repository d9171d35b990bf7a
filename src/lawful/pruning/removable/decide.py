"""Can one hidden neuron go? Decided in rationals, with evidence either way.

A neuron of a layered network is *removable* if an affine combination of the other neurons of its layer (a constant
among them) can take its place in every sum that reads it, and no output changes for any input. All other weights stay.

The question is one of linear algebra with a twist: where later layers mask the neuron its stand-in may be off. At an
input x the stand-in's error t must lie in the level set of the outputs (`level_set`), a union of intervals; {0} where
they see the neuron. Inputs with {0} give equations for the coefficients. If they contradict each other the neuron is
needed. If not, a solution is tried in a walk through all regions: it is the same function, or some input says no, and
its level set cuts the solutions further. Ends within a budget: else *undecided*.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import lcm
from typing import Any

import flint
import numpy as np
from scipy.optimize import linprog

from lawful.exact.feasibility import Farkas, Solution, feasible
from lawful.fibers.layers import Stack, floating, input_scales, rational
from lawful.fibers.regions.cell import OutOfTime
from lawful.fibers.regions.comparison_proof import Disagree, prove_by_regions
from lawful.fibers.regions.domain import Domain
from lawful.network import Mlp
from lawful.pruning.removable.level_set import Interval, Rational, level_set
from lawful.types import Floats

MOST_NEURONS = 64  # hidden neurons: the exact walk through regions goes two calls deeper for each
MOST_INPUTS = 64
MOST_CASES = 200  # nodes of one neuron's case distinction
SECONDS = 5.0  # for all neurons of a network together
FAIR = 4.0  # a neuron may take so many times its equal share of the time that is left
MOST_TRIES = 12  # solutions of the relaxed question that are tried before cases are told apart
ROOM = 1e6  # no stand-in with larger coefficients is guessed
REACHES = (1.0, 0.25, 4.0, 32.0)  # of random inputs, in the network's natural units
GRID = 64  # random inputs are multiples of 1/64 unit: few bits make exact sums quick
PRIME = 2**61 - 1  # ranks are taken modulo it: a rank there is a lower bound of the true one
ZERO, ONE = flint.fmpq(0), flint.fmpq(1)


@dataclass(frozen=True)
class StandIn:
    """Coefficients of the neurons of the layer (0 for the neuron itself), a constant, and the walk that proves it."""

    coefficients: tuple[Fraction, ...]
    constant: Fraction
    decisions: tuple[Any, ...]
    regions: int


@dataclass(frozen=True)
class Exclusion:
    """A contradiction (multipliers of the inputs on the way here), or an input whose level set is split."""

    multipliers: tuple[Fraction, ...] = ()
    point: tuple[Fraction, ...] = ()
    cases: tuple[Exclusion, ...] = ()


@dataclass(frozen=True)
class Need:
    """Why no stand-in exists: inputs, at each of which its error lies in the hull of the level set; then cases."""

    points: tuple[tuple[Fraction, ...], ...]
    case: (
        Exclusion | None
    )  # None: at the inputs every error is 0, and the values of the layer and 1 are independent there


@dataclass(frozen=True)
class NeuronDecision:
    """Whether one neuron (hidden layer from 1, number) can go: a stand-in, a proof that it is needed, or a reason."""

    layer: int
    neuron: int
    evidence: StandIn | Need | str

    @property
    def removable(self) -> bool | None:
        """Yes, no, or None for undecided."""
        return None if isinstance(self.evidence, str) else isinstance(self.evidence, StandIn)


def decide_neurons(network: Mlp, *, seconds: float = SECONDS) -> tuple[NeuronDecision, ...]:
    """For every hidden neuron, alone, whether it can go (see the module's head for what that means).

    >>> from lawful.network import Mlp
    >>> weights = [[[1.0], [1.0]], [[1.0, -1.0], [1.0, 1.0]], [[1.0, 1.0]]]
    >>> found = decide_neurons(Mlp(weights, [[0.0, -1.0], [-1.5, -0.5], [0.0]]))
    >>> [(each.layer, each.neuron, each.removable) for each in found]
    [(1, 0, False), (1, 1, False), (2, 0, True), (2, 1, False)]
    """
    places = [(layer, neuron) for layer, width in enumerate(network.widths[1:-1]) for neuron in range(width)]
    if (reason := beyond(network)) is not None:
        return tuple(NeuronDecision(layer + 1, neuron, reason) for layer, neuron in places)
    question = Question(network, time.perf_counter() + seconds)
    answers = {}
    for left, (layer, neuron) in zip(range(len(places), 0, -1), reversed(places), strict=True):  # last layers are easy
        answers[layer, neuron] = NeuronDecision(layer + 1, neuron, question.decide(layer, neuron, FAIR / left))
    return tuple(answers[place] for place in places)


def beyond(network: Mlp) -> str | None:
    """Why a network is too large to be decided, or None."""
    hidden = sum(network.widths[1:-1])
    if hidden > MOST_NEURONS:
        return f"{hidden} hidden neurons are more than the {MOST_NEURONS} decided exactly"
    if network.widths[0] > MOST_INPUTS:
        return f"{network.widths[0]} inputs are more than the {MOST_INPUTS} decided exactly"
    return None


class Question:
    """One network in rationals, inputs with the values of all its neurons, and a time to stop."""

    def __init__(self, network: Mlp, deadline: float) -> None:
        self.network, self.deadline = network, deadline
        self.stack = Stack.of(network, exact=True)
        self.domain = Domain.space(self.stack.widths[0])
        self._sums: dict[tuple[Rational, ...], list[list[Rational]]] = {}

    @cached_property
    def pool(self) -> list[tuple[Rational, ...]]:
        """Random inputs of several sizes, the same at every call."""
        scales, rng = input_scales(self.stack), np.random.default_rng(0)
        count = 12 + 3 * max(self.stack.widths)
        distinct: list[tuple[Rational, ...]] = []
        for reach in REACHES:
            whole = np.round(GRID * rng.normal(size=(count, len(scales)))) / GRID
            points = whole * (reach * scales)
            distinct += [tuple(rational(point)) for point in points if np.isfinite(point).all()]
        self._sums.update(zip(distinct, self.evaluate(distinct), strict=True))
        return distinct

    def sums(self, point: tuple[Rational, ...]) -> list[list[Rational]]:
        """The sums of every layer at an input, outputs last."""
        if point not in self._sums:
            self._sums[point] = self.evaluate([point])[0]
        return self._sums[point]

    def evaluate(self, points: Sequence[tuple[Rational, ...]]) -> list[list[list[Rational]]]:
        """The sums of every layer at several inputs."""
        values = flint.fmpq_mat([list(column) for column in zip(*points, strict=True)])
        by_point: list[list[list[Rational]]] = [[] for _ in points]
        for layer, (matrix, bias) in enumerate(self._matrices):
            product = (matrix * values).tolist()
            table = [[entry + shift for entry in row] for row, shift in zip(product, bias, strict=True)]
            for place, sums in enumerate(by_point):
                sums.append([row[place] for row in table])
            if layer < self.stack.hidden:
                slope = self._slopes[layer]
                values = flint.fmpq_mat([[entry if entry > 0 else slope * entry for entry in row] for row in table])
        return by_point

    @cached_property
    def _matrices(self) -> list[tuple[Any, list[Rational]]]:
        pairs = zip(self.stack.weights, self.stack.biases, strict=True)
        return [(flint.fmpq_mat([list(row) for row in weight]), list(bias)) for weight, bias in pairs]

    @cached_property
    def _slopes(self) -> list[Rational]:
        return list(rational(np.array(self.stack.slopes)))

    def values(self, point: tuple[Rational, ...], layer: int) -> list[Rational]:
        """The values of a hidden layer at an input."""
        return [total if total > 0 else self._slopes[layer] * total for total in self.sums(point)[layer]]

    def decide(self, layer: int, neuron: int, share: float = 1.0) -> StandIn | Need | str:
        """Decide one neuron in a share of the time that is left; layers count from 0 here."""
        now = time.perf_counter()
        search = _Search(self, layer, neuron, now + min(share, 0.5) * (self.deadline - now))
        try:
            return search.run()
        except OutOfTime:
            return "the time limit ended the search"
        except RecursionError:
            return "its regions are too many"

    def without(self, layer: int, neuron: int, coefficients: Sequence[Rational], constant: Rational) -> Stack:
        """The network after a stand-in has taken over, in rationals; `coefficients` are those of the other neurons."""
        stack = self.stack
        above = stack.weights[layer + 1]
        column, rest = above[:, neuron], np.delete(above, neuron, axis=1)
        weights, biases = list(stack.weights), list(stack.biases)
        weights[layer], biases[layer] = np.delete(weights[layer], neuron, axis=0), np.delete(biases[layer], neuron)
        if len(coefficients):
            rest = rest + np.outer(column, np.array(coefficients, dtype=object))
        weights[layer + 1], biases[layer + 1] = rest, biases[layer + 1] + column * constant
        return Stack(tuple(weights), tuple(biases), stack.slopes)


@dataclass(frozen=True)
class _Constraint:
    """At an input the stand-in's error lies in an interval: `value − row·(coefficients, constant)`."""

    point: tuple[Rational, ...]
    row: list[Rational]  # of the other neurons, then 1
    value: Rational
    allowed: Interval

    def error(self, solution: list[Rational]) -> Rational:
        """How far a stand-in is from the neuron's value here."""
        return self.value - sum((r * s for r, s in zip(self.row, solution, strict=True)), ZERO)


class _Search:
    """The search for a stand-in of one neuron."""

    def __init__(self, question: Question, layer: int, neuron: int, deadline: float) -> None:
        self.question, self.layer, self.neuron, self.deadline = question, layer, neuron, deadline
        self.cases = 0
        self.undecided: str | None = None

    def run(self) -> StandIn | Need | str:
        equations: list[_Constraint] = []
        elimination = _Elimination()
        hulls = []
        for point in self.question.pool:
            self.check_time()
            parts = self.parts(point)
            hulls.append(self.constraint(point, Interval(parts[0].low, parts[-1].high)))
            if len(parts) != 1 or not parts[0].is_point:
                continue
            equation = self.constraint(point, parts[0])
            verdict = elimination.add(equation)
            if verdict is not None:
                equations.append(equation)
            if verdict is False:
                if len(equations) == len(equation.row) + 1:
                    return Need(_points(equations), None)
                break
        if equations and isinstance(multipliers := _solve_equations(equations), tuple):
            return Need(_points(equations), Exclusion(multipliers))
        hinted = self.relax(hulls, equations)
        if hinted is not None:
            return hinted
        solution = self.search(equations)
        if isinstance(solution, StandIn):
            return solution
        return self.undecided or Need(_points(equations), solution)

    def relax(self, hulls: list[_Constraint], equations: list[_Constraint]) -> StandIn | Need | None:
        """Every level set replaced by its hull: a contradiction, or a solution well inside that is a stand-in."""
        for _ in range(MOST_TRIES):
            self.check_time()
            program = _Program(hulls)
            if (contradiction := program.contradiction()) is not None:
                return Need(_points(contradiction[0]), Exclusion(contradiction[1]))
            if (solution := program.inner_point(equations)) is None:
                return None
            tried = self.attempt(solution)
            if isinstance(tried, StandIn):
                return tried
            if not isinstance(tried, tuple):
                self.undecided = None
                return None
            parts = self.parts(tried)
            hulls.append(self.constraint(tried, Interval(parts[0].low, parts[-1].high)))
            if hulls[-1].allowed.contains(hulls[-1].error(solution)):
                return None  # a gap inside the hull excludes it: cases are needed
            if hulls[-1].allowed.is_point:
                equations.append(hulls[-1])
                if isinstance(multipliers := _solve_equations(equations), tuple):
                    return Need(_points(equations), Exclusion(multipliers))
        return None

    def search(self, constraints: list[_Constraint]) -> StandIn | Exclusion:
        """A stand-in that satisfies the constraints, or the cases that exclude all."""
        self.check_time()
        self.cases += 1
        if self.cases > MOST_CASES:
            self.undecided = f"more than {MOST_CASES} cases"
            return Exclusion()
        solution = _solve(constraints, self.question.stack.widths[self.layer + 1])
        if isinstance(solution, tuple):
            return Exclusion(solution)
        if solution is None:
            self.undecided = "a linear program did not end"
            return Exclusion()
        tried = self.attempt(solution)
        if not isinstance(tried, tuple):
            return tried
        children = []
        for part in self.parts(tried):
            child = self.search([*constraints, self.constraint(tried, part)])
            if isinstance(child, StandIn):
                return child
            children.append(child)
            if self.undecided is not None:
                return Exclusion()
        return Exclusion((), _fractions(tried), tuple(children))

    def attempt(self, solution: list[Rational]) -> StandIn | Exclusion | tuple[Rational, ...]:
        """The stand-in if it keeps the function; else an input that excludes it."""
        question, neuron = self.question, self.neuron
        other = question.without(self.layer, neuron, solution[:-1], solution[-1])
        try:
            proof = prove_by_regions(question.stack, other, question.domain, self.deadline)
        except Disagree as error:
            return tuple(error.point)  # in rationals; outputs differ there, so the error is in no part
        full = [*solution[:neuron], ZERO, *solution[neuron:-1]]
        return StandIn(_fractions(full), _fractions([solution[-1]])[0], tuple(proof.decisions), proof.regions)

    def parts(self, point: tuple[Rational, ...]) -> list[Interval]:
        """The level set of the outputs at an input."""
        return level_set(self.question.stack, self.layer, self.neuron, self.question.sums(point)[self.layer + 1])

    def constraint(self, point: tuple[Rational, ...], allowed: Interval) -> _Constraint:
        """What an interval of the level set at an input asks of the coefficients."""
        values = self.question.values(point, self.layer)
        others = [value for place, value in enumerate(values) if place != self.neuron]
        return _Constraint(point, [*others, ONE], values[self.neuron], allowed)

    def check_time(self) -> None:
        if time.perf_counter() > self.deadline:
            raise OutOfTime


class _Elimination:
    """Equations row by row modulo a prime: which of them add something, and when they contradict each other.

    Rows that are independent modulo a prime are so in rationals; nothing else is concluded here.
    """

    def __init__(self) -> None:
        self.rows: list[tuple[int, list[int]]] = []

    def add(self, equation: _Constraint) -> bool | None:
        """True if it is new, None if it follows from those before, False if it contradicts them."""
        entries = (*equation.row, equation.value)
        common = lcm(*(int(entry.q) for entry in entries))
        row = [int(entry.p) * (common // int(entry.q)) % PRIME for entry in entries]
        for pivot, basis in self.rows:
            if row[pivot]:
                factor = row[pivot]
                row = [(a - factor * b) % PRIME for a, b in zip(row, basis, strict=True)]
        first = next((place for place, entry in enumerate(row) if entry), None)
        if first is None:
            return None
        inverse = pow(row[first], -1, PRIME)
        self.rows.append((first, [entry * inverse % PRIME for entry in row]))
        return first < len(row) - 1


def _solve(constraints: list[_Constraint], width: int) -> list[Rational] | tuple[Fraction, ...] | None:
    """Coefficients that satisfy all constraints, or multipliers that contradict them; None if neither was found."""
    if not constraints:
        return [ZERO] * width
    if all(constraint.allowed.is_point for constraint in constraints):
        return _solve_equations(constraints)
    return _solve_program(constraints)


class _Program:
    """The constraints as a linear program in floats: minimise the largest violation, negative if there is room.

    It only guesses; what it guesses is decided in rationals.
    """

    def __init__(self, constraints: list[_Constraint]) -> None:
        self.constraints = constraints
        width = self.width = len(constraints[0].row)
        rows: dict[bool, list[Floats]] = {False: [], True: []}
        right: dict[bool, list[float]] = {False: [], True: []}
        whose: dict[bool, list[int]] = {False: [], True: []}
        for number, constraint in enumerate(constraints):
            line = floating(np.array([*constraint.row, constraint.value], dtype=object))
            size = float(np.abs(line).max())
            if not 0 < size < np.inf:
                continue
            fixed = constraint.allowed.is_point
            for sign, end in ((1.0, constraint.allowed.high), (-1.0, constraint.allowed.low)):
                if end is None or (fixed and sign < 0):
                    continue  # sign (value − row·s) ≤ sign end + violation
                number_of_end = float(Fraction(int(end.p), int(end.q)))
                rows[fixed].append(np.append(-sign * line[:width] / size, 0.0 if fixed else -1.0))
                right[fixed].append(sign * (number_of_end - line[width]) / size)
                whose[fixed].append(number)
        self.whose = whose
        self.answer = linprog(
            np.append(np.zeros(width), 1.0),
            A_ub=np.array(rows[False]) if rows[False] else None, b_ub=right[False] or None,
            A_eq=np.array(rows[True]) if rows[True] else None, b_eq=right[True] or None,
            bounds=[(-ROOM, ROOM)] * width + [(-1.0, None)],
        )  # fmt: skip

    def contradiction(self) -> tuple[list[_Constraint], tuple[Fraction, ...]] | None:
        """A few of the constraints that contradict each other, and multipliers that show it."""
        if self.answer.status != 0 or self.answer.x[-1] <= 0:
            return None
        duals = {False: self.answer.ineqlin.marginals, True: self.answer.eqlin.marginals}
        support = {
            number
            for fixed in (False, True)
            for number, dual in zip(self.whose[fixed], duals[fixed], strict=True)
            if abs(dual) > 1e-9
        }
        chosen = [self.constraints[number] for number in sorted(support)]
        solution = _solve(chosen, self.width) if chosen else None
        return (chosen, solution) if isinstance(solution, tuple) else None

    def inner_point(self, equations: list[_Constraint]) -> list[Rational] | None:
        """A solution with few digits that satisfies the equations exactly."""
        if self.answer.status != 0:
            return None
        short = [Fraction(float(entry)).limit_denominator(GRID) for entry in self.answer.x[:-1]]
        return _solve_equations(equations, short) if equations else [_rational(entry) for entry in short]  # type: ignore[return-value]


def _solve_equations(
    constraints: list[_Constraint], free: Sequence[Fraction] = ()
) -> list[Rational] | tuple[Fraction, ...]:
    """The solution whose free unknowns are as given (or 0), or multipliers that contradict the equations."""
    width = len(constraints[0].row)
    table = [[*constraint.row, constraint.value - constraint.allowed.low] for constraint in constraints]
    reduced, rank = flint.fmpq_mat(table).rref()
    pivots = [next(place for place in range(width + 1) if reduced[line, place] != 0) for line in range(rank)]
    if width in pivots:
        return _multipliers(constraints)
    solution = [_rational(entry) for entry in free] if free else [ZERO] * width
    for line, pivot in enumerate(pivots):
        others = (reduced[line, place] * solution[place] for place in range(width) if place not in pivots)
        solution[pivot] = reduced[line, width] - sum(others, ZERO)
    return solution


def _multipliers(constraints: list[_Constraint]) -> tuple[Fraction, ...]:
    """`μ` with `Σ μ row = 0` and `Σ μ (value − error) > 0` where all errors are fixed numbers."""
    rows = [constraint.row for constraint in constraints]
    values = [constraint.value - constraint.allowed.low for constraint in constraints]
    count = len(rows)
    table = [[row[k] for row in rows] for k in range(len(rows[0]))] + [values]
    wanted = [ZERO] * len(rows[0]) + [ONE]
    reduced, rank = flint.fmpq_mat([[*line, want] for line, want in zip(table, wanted, strict=True)]).rref()
    multipliers = [ZERO] * count
    for line in range(rank):
        pivot = next(place for place in range(count + 1) if reduced[line, place] != 0)
        multipliers[pivot] = reduced[line, count]  # the system is solvable: the equations contradict each other
    return _fractions(multipliers)


def _solve_program(constraints: list[_Constraint]) -> list[Rational] | tuple[Fraction, ...] | None:
    """`low ≤ value − row·(u − v) ≤ high` with `u, v ≥ 0` and slacks, as equations for the exact simplex method."""
    lines: list[tuple[int, list[Fraction], Fraction, int]] = []  # constraint, row, right side, sign of its slack
    for place, constraint in enumerate(constraints):
        row = list(_fractions(constraint.row))
        value = _fractions([constraint.value])[0]
        ends = {"low": constraint.allowed.low, "high": constraint.allowed.high}
        if constraint.allowed.is_point:
            lines.append((place, row, value - _fractions([ends["low"]])[0], 0))
            continue
        if ends["high"] is not None:  # row·s ≥ value − high
            lines.append((place, row, value - _fractions([ends["high"]])[0], -1))
        if ends["low"] is not None:
            lines.append((place, row, value - _fractions([ends["low"]])[0], 1))
    if not lines:
        return [ZERO] * len(constraints[0].row)
    width = len(lines[0][1])
    matrix = np.zeros((len(lines), 2 * width + len(lines)), dtype=object)
    wanted, scales = [], []
    for number, (_, row, right, slack) in enumerate(lines):
        scale = lcm(right.denominator, *(entry.denominator for entry in row))
        whole = [int(entry * scale) for entry in row]
        matrix[number, :width], matrix[number, width : 2 * width] = whole, [-entry for entry in whole]
        matrix[number, 2 * width + number] = slack
        wanted.append(int(right * scale))
        scales.append(scale)
    answer = feasible(matrix, wanted, most=500)
    if isinstance(answer, Solution):
        entries = [
            answer.entries.get(k, Fraction(0)) - answer.entries.get(width + k, Fraction(0)) for k in range(width)
        ]
        return [_rational(entry) for entry in entries]
    if isinstance(answer, Farkas):
        multipliers = [Fraction(0)] * len(constraints)
        for (place, *_), scale, multiplier in zip(lines, scales, answer.multipliers, strict=True):
            multipliers[place] -= multiplier * scale
        return tuple(multipliers)
    return None


def _rational(value: Fraction) -> Rational:
    return flint.fmpq(value.numerator, value.denominator)


def _fractions(values: Sequence[Rational]) -> tuple[Fraction, ...]:
    return tuple(Fraction(int(value.p), int(value.q)) for value in values)


def _points(constraints: list[_Constraint]) -> tuple[tuple[Fraction, ...], ...]:
    return tuple(_fractions(constraint.point) for constraint in constraints)
