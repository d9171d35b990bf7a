"""A network as a straight-line program: copies, sums, products and a few smooth functions of flat arrays.

It is what a core program (`passes.core`) is written as in a certificate, so that a checker needs to know as little
as possible: flat arrays of real numbers, and the steps (`core.steps` says how to compute with each)

    take      entries of earlier arrays laid end to end, by index (−1: zero): views, slices, transposes, patches, tokens
    add, mul  of two arrays of one length
    matmul    a stack of matrix products, (n, p, q) times (n, q, r)
    sum       of consecutive runs of equal length
    exp, erf, reciprocal, rsqrt, log, sin, cos
    choose    the entries of the second array where the first is positive, else of the third

Constants are float64 numbers, taken as the exact rationals that they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from lawful.errors import Unsupported
from lawful.types import Floats, Indices

Kind = Literal["gate", "unit", "real"]  # of random numbers
MOST_ENTRIES = 5_000_000


@dataclass(frozen=True, eq=False)
class ProgramStep:
    """One array: how it is made (`kind`), of which earlier arrays, and with which numbers.

    "parameters", "input" and "constant" are made of nothing. `indices` belong to "take", `sizes` to "matmul" (n, p, q,
    r) and to "sum" (the length of a run), `values` to "constant".
    """

    kind: str
    sources: tuple[int, ...]
    length: int
    indices: Indices | None = None
    sizes: tuple[int, ...] = ()
    values: Floats | None = None


@dataclass(frozen=True, eq=False)
class StraightLineProgram:
    """Steps in order; step 0 are the parameters, step 1 the input, the last step is the output.

    The last entries of the input are `draws`, random numbers in runs of a kind: gates of 0 and 1, numbers between 0 and
    1 ("unit"), or any ("real").
    """

    steps: tuple[ProgramStep, ...]
    draws: tuple[tuple[Kind, int], ...] = ()

    @property
    def given(self) -> int:
        """Number of input coordinates that are no random numbers."""
        return self.inputs - sum(count for _, count in self.draws)

    @property
    def parameters(self) -> int:
        """Number of parameters."""
        return self.steps[0].length

    @property
    def inputs(self) -> int:
        """Number of input coordinates."""
        return self.steps[1].length

    @property
    def outputs(self) -> int:
        """Number of output coordinates."""
        return self.steps[-1].length


class Writer:
    """Appends steps: each once, and copies of copies as one.

    A step of more than MOST_ENTRIES numbers, or more than `most` in all steps together, are refused.
    """

    def __init__(self, parameters: int, inputs: int, most: int | None = None) -> None:
        self.steps = [ProgramStep("parameters", (), parameters), ProgramStep("input", (), inputs)]
        self._known: dict[tuple[object, ...], int] = {}
        self._most, self._total = most, parameters + inputs

    def add(self, step: ProgramStep) -> int:
        """Append a step, unless there is the same one; its number."""
        arrays = (None if part is None else part.tobytes() for part in (step.indices, step.values))
        key = step.kind, step.sources, step.length, step.sizes, *arrays
        if key in self._known:
            return self._known[key]
        self._total += step.length
        if step.length > MOST_ENTRIES or (self._most is not None and self._total > self._most):
            raise Unsupported("the module's arrays are too large for a proof")
        self.steps.append(step)
        self._known[key] = len(self.steps) - 1
        return self._known[key]

    def length(self, number: int) -> int:
        """The length of an array."""
        return self.steps[number].length

    def constant(self, values: Floats) -> int:
        """An array of fixed numbers."""
        flat = np.asarray(values, dtype=np.float64).ravel()
        return self.add(ProgramStep("constant", (), len(flat), values=flat))

    def take(self, sources: tuple[int, ...], indices: Indices) -> int:
        """Entries of the sources laid end to end; copying a whole array is no step."""
        flat = np.asarray(indices, dtype=np.intp).ravel()
        if len(sources) == 1:
            inner = self.steps[sources[0]]
            if inner.indices is not None:
                flat, sources = np.append(inner.indices, -1)[flat], inner.sources
            if len(sources) == 1 and len(flat) == self.length(sources[0]) and (flat == np.arange(len(flat))).all():
                return sources[0]
        return self.add(ProgramStep("take", sources, len(flat), indices=flat))

    def pair(self, kind: str, first: int, second: int) -> int:
        """A sum or a product."""
        return self.add(ProgramStep(kind, (first, second), self.length(first)))

    def function(self, kind: str, source: int) -> int:
        """A function of every entry."""
        return self.add(ProgramStep(kind, (source,), self.length(source)))

    def total(self, source: int, run: int) -> int:
        """Sums of consecutive runs."""
        return self.add(ProgramStep("sum", (source,), self.length(source) // run, sizes=(run,)))

    def matmul(self, first: int, second: int, sizes: tuple[int, int, int, int]) -> int:
        """A stack of matrix products."""
        n, p, _, r = sizes
        return self.add(ProgramStep("matmul", (first, second), n * p * r, sizes=sizes))

    def choose(self, sign: int, positive: int, other: int) -> int:
        """By the sign of the first array."""
        return self.add(ProgramStep("choose", (sign, positive, other), self.length(sign)))

    def finish(self, output: int) -> StraightLineProgram:
        """The program up to its output, without steps that nothing reads."""
        used, stack = {0, 1}, [output]
        while stack:
            number = stack.pop()
            if number not in used or number == output:
                used.add(number)
                stack += [source for source in self.steps[number].sources if source not in used]
        order = [number for number in sorted(used) if number != output] + [output]
        place = {number: position for position, number in enumerate(order)}
        steps = [self.steps[number] for number in order]
        return StraightLineProgram(
            tuple(
                ProgramStep(
                    step.kind,
                    tuple(place[source] for source in step.sources),
                    step.length,
                    step.indices,
                    step.sizes,
                    step.values,
                )
                for step in steps
            )
        )
