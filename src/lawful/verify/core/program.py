"""A straight-line program on flat arrays, and the one loop and the one table of steps by which every kind runs it.

**Idea.** A value is a *jet*: a list of arrays, one for each set of infinitesimals (bit masks; None is 0), so that
derivatives come along with values. What its entries are is said by `Numbers`: balls for outputs of networks and
brackets of fields, residues modulo a prime for identities. A kind brings its leaves and, where its numbers differ, what
a function and a choice are; sums, products and movements are written once.

**Invariant.** An array is `(rows, entries)`. A row is a sample, and no step mixes rows.

**Cost.** An operation for each entry, and 3^k of them in a product of jets with k infinitesimals. Matrix products are
FLINT's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from flint import arb, arb_mat, arb_series

from lawful.verify.core.schema import check_clock, integer, integers, items, numbers, object_with_keys, require, word

PAIRS = ("add", "mul")
FUNCTIONS = ("exp", "erf", "reciprocal", "rsqrt", "log", "sin", "cos")
LEAVES = ("parameters", "input", "constant")
Table = Any  # a NumPy array of balls or residues, (rows, entries)
Jet = list[Any]  # tables by set of infinitesimals; None is 0


@dataclass(frozen=True)
class ReadStep:
    """One array of the program."""

    kind: str
    sources: tuple[int, ...]
    length: int
    extra: tuple[int, ...] = ()
    values: tuple[float, ...] = ()


def read_steps(value: object) -> list[ReadStep]:
    """The steps of a program: parameters, then the input, then steps that read earlier ones."""
    steps: list[ReadStep] = []
    for number, line in enumerate(items(value, "steps", most=20_000)):
        kind = line.get("kind") if isinstance(line, dict) else None
        require(
            (kind == "parameters") is (number == 0) and (kind == "input") is (number == 1), "steps in a wrong order"
        )
        steps.append(_step(kind, line, steps))
    require(len(steps) > 2, "the program has no steps")
    return steps


def _step(kind: Any, line: Any, before: Sequence[ReadStep]) -> ReadStep:
    if kind in ("parameters", "input"):
        return ReadStep(
            kind, (), integer(object_with_keys(line, "step", "kind length")["length"], "length", 0, 5_000_000)
        )
    if kind == "constant":
        values = numbers(object_with_keys(line, "step", "kind values")["values"], "values")
        return ReadStep(kind, (), len(values), values=tuple(values))
    keys = {"take": "kind sources indices", "matmul": "kind sources sizes", "sum": "kind sources sizes"}
    parts = object_with_keys(line, "step", keys.get(kind, "kind sources") if isinstance(kind, str) else "kind")
    sources = tuple(integers(parts["sources"], "sources", 0, len(before) - 1, most=1000))
    lengths = [before[source].length for source in sources]
    if kind == "take":
        indices = tuple(integers(parts["indices"], "indices", -1, sum(lengths) - 1))
        return ReadStep(kind, sources, len(indices), indices)
    if kind == "matmul":
        n, p, q, r = sizes = tuple(integers(parts["sizes"], "sizes", 1, 5_000_000, length=4))
        require(lengths == [n * p * q, n * q * r], "a matrix product does not fit")
        require(n * p * r <= 5_000_000, "a matrix product is too large")
        return ReadStep(kind, sources, n * p * r, sizes)
    if kind == "sum":
        (run,) = integers(parts["sizes"], "sizes", 1, length=1)
        require(len(lengths) == 1 and lengths[0] % run == 0, "a sum does not fit")
        return ReadStep(kind, sources, lengths[0] // run, (run,))
    word(kind, "step", *PAIRS, *FUNCTIONS, "choose")
    arity = 2 if kind in PAIRS else 3 if kind == "choose" else 1
    require(len(lengths) == arity and len(set(lengths)) == 1, "a step does not fit its sources")
    return ReadStep(kind, sources, lengths[0])


def work_of(step: ReadStep) -> int:
    """How many products of numbers a step takes."""
    return step.length * (step.extra[2] if step.kind == "matmul" else 1)


class Numbers:
    """What the entries of arrays are; balls unless a kind says otherwise."""

    matrix: Callable[..., Any] = arb_mat

    def number(self, value: float) -> Any:
        """A double, exactly."""
        return arb(value)

    def table(self, rows: Sequence[Sequence[float]]) -> Table:
        """Doubles as an array."""
        return np.array([[self.number(value) for value in row] for row in rows], dtype=object).reshape(len(rows), -1)

    def series(self, step: ReadStep, value: Table, order: int) -> list[Table]:
        """Taylor coefficients of a function at every entry, up to the order."""
        if not order:
            return [np.array([_function(step.kind, x) for x in value.ravel()], dtype=object).reshape(value.shape)]
        tables = [np.empty(value.shape, dtype=object) for _ in range(order + 1)]
        for place in np.ndindex(value.shape):
            at = _function(step.kind, arb_series([value[place], 1], order + 1))
            for k, table in enumerate(tables):
                table[place] = at[k]
        return tables

    def choose(self, place: int, step: ReadStep, sign: Jet, first: Jet, second: Jet) -> Jet:
        """The first where the sign is positive, the second elsewhere; where it is not sure, a ball that holds both.

        That is for values alone: a derivative of a choice needs a sign that is sure.
        """
        require(len(sign) == 1, "a choice has no derivative where its sign is not sure")
        three = zip(*(np.ravel(part[0]) for part in (sign, first, second)), strict=True)
        chosen = [a if s > 0 else b if s <= 0 else a.union(b) for s, a, b in three]
        return [np.array(chosen, dtype=object).reshape(np.shape(first[0]))]

    # Jets

    def apply(self, place: int, step: ReadStep, arguments: Sequence[Jet]) -> Jet:
        """The table of steps."""
        match step.kind:
            case "take":
                return self._take(step, arguments)
            case "add":
                return plus(*arguments)
            case "mul":
                return times(arguments[0], arguments[1], np.multiply)
            case "matmul":
                n, p, q, r = step.extra
                x, y = arguments
                return times(x, y, lambda x, y: self.product(x.reshape(-1, n, p, q), y.reshape(-1, n, q, r)))
            case "sum":
                return each(arguments[0], lambda x: x.reshape(len(x), step.length, step.extra[0]).sum(axis=2))
            case "choose":
                return self.choose(place, step, *arguments)
        return self.compose(step, arguments[0])

    def compose(self, step: ReadStep, a: Jet, derived: int = 0) -> Jet:
        """`f(a)` or `f'(a)`: the series at the value without infinitesimals, in powers of the rest."""
        order = (len(a) - 1).bit_length()
        series = self.series(step, a[0], order + derived)
        if derived:
            series = [k * table for k, table in enumerate(series)][1:]
        total: Jet = [series[0], *[None] * (len(a) - 1)]
        rest: Jet = [None, *a[1:]]
        power = rest
        for k in range(1, order + 1):
            power = rest if k == 1 else times(power, rest, np.multiply)
            total = plus(total, each(power, lambda x, table=series[k]: x * table))  # type: ignore[misc]
        return total

    def product(self, x: Table, y: Table) -> Table:
        """Stacks of matrix products, `(rows, n, p, q)` times `(rows, n, q, r)`."""
        (rows, n, p, q), r = x.shape, y.shape[3]
        stack = np.empty((rows * n, p * r), dtype=object)
        for k, (left, right) in enumerate(zip(x.reshape(rows * n, -1), y.reshape(rows * n, -1), strict=True)):
            stack[k] = (self.matrix(p, q, left.tolist()) * self.matrix(q, r, right.tolist())).entries()
        return stack.reshape(rows, -1)

    def _take(self, step: ReadStep, arguments: Sequence[Jet]) -> Jet:
        indices = np.array(step.extra, dtype=np.intp)
        widths = [np.shape(argument[0])[1] for argument in arguments]
        taken: Jet = []
        for parts in zip(*arguments, strict=True):
            rows = next((len(part) for part in parts if part is not None), 0)
            whole = [self._zeros(rows, w) if x is None else x for x, w in zip(parts, widths, strict=True)]
            there = any(part is not None for part in parts)
            taken.append(np.concatenate([*whole, self._zeros(rows, 1)], axis=1)[:, indices] if there else None)
        return taken

    def _zeros(self, rows: int, entries: int) -> Table:
        return np.full((rows, entries), self.number(0.0), dtype=object)


def _function(kind: str, x: Any) -> Any:
    """Of a ball, or of a power series of balls."""
    return 1 / x if kind == "reciprocal" else getattr(x, kind)()


def plus(a: Jet, b: Jet) -> Jet:
    """The sum of two jets."""
    return [y if x is None else x if y is None else x + y for x, y in zip(a, b, strict=True)]


def times(a: Jet, b: Jet, product: Callable[[Table, Table], Table]) -> Jet:
    """The product of two jets: an infinitesimal times itself is 0."""
    total: Jet = [None] * len(a)
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            if x is not None and y is not None and i & j == 0:
                before, term = total[i | j], product(x, y)
                total[i | j] = term if before is None else before + term
    return total


def each(a: Jet, change: Callable[[Table], Table]) -> Jet:
    """A linear map of every array of a jet."""
    return [None if x is None else change(x) for x in a]


def interpret(
    steps: Sequence[ReadStep], numbers: Numbers, leaf: Callable[[ReadStep], Jet], *, keep: bool = True
) -> list[Jet]:
    """The value of every step, of the last one alone unless all are kept: others are let go after their last use."""
    last = {source: place for place, step in enumerate(steps) for source in step.sources}
    values: dict[int, Jet] = {}
    for place, step in enumerate(steps):
        check_clock()
        operands = [values[source] for source in step.sources]
        values[place] = leaf(step) if step.kind in LEAVES else numbers.apply(place, step, operands)
        for source in () if keep else set(step.sources):
            if last[source] == place:
                del values[source]
    return list(values.values()) if keep else [values[len(steps) - 1]]
