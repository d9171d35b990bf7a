"""A certificate's problem, read with suspicion: the graph, the flow, and the random numbers in plain integers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lawful.verify.conservation.data import Samples
from lawful.verify.core.dag import CONSTANT, HIDDEN, INPUT, OUTPUT
from lawful.verify.core.schema import require

Residues = NDArray[np.int64]

Block = tuple[list[int], list[list[Fraction]]]  # some weights, and their part of a metric
MASK = 2**64 - 1
MIXED, FIRST_PATTERN = 8, 16  # part of what the stored seed means


@dataclass(frozen=True, eq=False)
class Case:
    """What a certificate speaks of."""

    roles: tuple[int, ...]
    tails: tuple[int, ...]
    heads: tuple[int, ...]
    gates: tuple[Fraction | None, ...]
    order: tuple[int, ...]
    longest: int
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
        return states_of(len(self.tails), self.flow)

    @cached_property
    def into(self) -> list[list[int]]:
        """The edges into each node."""
        return self._collect(self.heads)

    @cached_property
    def out_of(self) -> list[list[int]]:
        """The edges out of each node."""
        return self._collect(self.tails)

    def _collect(self, ends: tuple[int, ...]) -> list[list[int]]:
        edges: list[list[int]] = [[] for _ in self.roles]
        for edge, node in enumerate(ends):
            edges[node].append(edge)
        return edges

    @property
    def outputs(self) -> list[int]:
        """The output nodes."""
        return [node for node, role in enumerate(self.roles) if role == OUTPUT]

    def residue(self, value: Fraction) -> int:
        """A fraction modulo the prime."""
        return value.numerator * pow(value.denominator, -1, self.prime) % self.prime

    @property
    def mixed(self) -> int:
        """How many activation patterns one field sums; 1 where gates are free."""
        return min(max(len(self.patterns), 1), MIXED)

    def multipliers(self, level: int, slot: int, rows: int) -> Residues:
        """One number per pattern, node and row, then one for the drift of momentum."""
        start = _stirred(_stirred(self.seed & MASK, level), slot)
        table = np.empty((self.mixed * len(self.roles) + 1, rows), dtype=np.int64)
        for row in range(rows):
            column: list[int] = []
            for place in range(self.mixed):
                own = _stirred(start, FIRST_PATTERN + place) if self.patterns else start
                column += self._line(own, place, row)
            table[:, row] = [*column, _stirred(_stirred(_stirred(start, 2), row), 0) % self.prime]
        return table

    def _line(self, start: int, place: int, row: int) -> list[int]:
        state = _stirred(start, row)
        line = [_stirred(state, node) % self.prime for node in range(len(self.roles))]
        which = place
        if len(self.patterns) > self.mixed:
            which = _stirred(_stirred(_stirred(start, 1), row), 0) % self.prime % len(self.patterns)
        hidden = [node for node, role in enumerate(self.roles) if role == HIDDEN]
        for number, node in enumerate(hidden):
            if self.patterns:
                line[node] = self.residue(self.patterns[which][number])
            elif self.gates[node] is not None:
                line[node] = 1
        if self.spans:
            self._set_inputs(line, which)
        if self.loss == "cross-entropy":
            *others, last = self.outputs
            line[last] = -sum(line[node] for node in others) % self.prime
        return line

    def _set_inputs(self, line: list[int], which: int) -> None:
        """A random combination of the data that show the pattern; what the first input was is its random number."""
        nodes = [node for node, role in enumerate(self.roles) if role == INPUT]
        nodes += [node for node, role in enumerate(self.roles) if role == CONSTANT]
        state = _stirred(_stirred((self.seed + 1) & MASK, which), line[nodes[0]])
        factors = [_stirred(state, number) % self.prime for number in range(len(self.spans[which]))]
        for place, node in enumerate(nodes):
            pairs = zip(factors, self.spans[which], strict=True)
            line[node] = sum(factor * vector[place] for factor, vector in pairs) % self.prime


def spans_of(points: list[list[int]], groups: list[int], prime: int) -> tuple[list[list[int]], ...]:
    """For each pattern its data, or as many random combinations of them as there are coordinates, if fewer."""
    found = []
    for pattern in range(max(groups) + 1):
        own = [point for point, group in zip(points, groups, strict=True) if group == pattern]
        require(len(own) > 0, f"no input shows pattern {pattern}")
        width = len(own[0])
        if len(own) > width:
            mixed = []
            for row in range(width):
                state = _stirred(_stirred(0, 3), row)
                factors = [_stirred(state, number) % prime for number in range(len(own))]
                pairs = list(zip(factors, own, strict=True))
                mixed.append([sum(factor * point[place] for factor, point in pairs) % prime for place in range(width)])
            own = mixed
        found.append(own)
    return tuple(found)


def states_of(parameters: int, flow: Mapping[str, Any]) -> int:
    """Weights; with momentum also velocities and, unless autonomous, time; with weight decay time."""
    if flow["name"] == "momentum":
        return 2 * parameters + (not flow["autonomous"])
    return parameters + int(flow["name"] == "decay")


def _stirred(state: int, label: int) -> int:
    """SplitMix64's finaliser, in plain integers."""
    mixed = (state + 0x9E3779B97F4A7C15 * (label + 1)) & MASK
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & MASK
    return mixed ^ (mixed >> 31)
