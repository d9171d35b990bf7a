"""A certificate's problem, read with suspicion: the graph, the flow, and the random numbers in plain integers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lawful.errors import CertificateError
from lawful.network import Role

Residues = NDArray[np.int64]
MASK = 2**64 - 1
MIXED, FIRST_PATTERN = 8, 16  # part of what the stored seed means


def need(condition: bool, complaint: str) -> None:
    """Reject the certificate unless the condition holds."""
    if not condition:
        raise CertificateError(complaint)


@dataclass(frozen=True, eq=False)
class Case:
    """What a certificate speaks of."""

    names: tuple[str, ...]
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
    point: Residues

    @property
    def states(self) -> int:
        """Dimension of the state space."""
        return states_of(len(self.tails), self.flow)

    @property
    def outputs(self) -> list[int]:
        """The output nodes."""
        return [node for node, role in enumerate(self.roles) if role == Role.OUTPUT]

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
        table = np.empty((self.mixed * len(self.names) + 1, rows), dtype=np.int64)
        for row in range(rows):
            column: list[int] = []
            for place in range(self.mixed):
                own = _stirred(start, FIRST_PATTERN + place) if self.patterns else start
                column += self._line(own, place, row)
            table[:, row] = [*column, _stirred(_stirred(_stirred(start, 2), row), 0) % self.prime]
        return table

    def _line(self, start: int, place: int, row: int) -> list[int]:
        state = _stirred(start, row)
        line = [_stirred(state, node) % self.prime for node in range(len(self.names))]
        which = place
        if len(self.patterns) > self.mixed:
            which = _stirred(_stirred(_stirred(start, 1), row), 0) % self.prime % len(self.patterns)
        hidden = [node for node, role in enumerate(self.roles) if role == Role.HIDDEN]
        for number, node in enumerate(hidden):
            if self.patterns:
                line[node] = self.residue(self.patterns[which][number])
            elif self.gates[node] is not None:
                line[node] = 1
        if self.loss == "cross-entropy":
            *others, last = self.outputs
            line[last] = -sum(line[node] for node in others) % self.prime
        return line


def states_of(parameters: int, flow: Mapping[str, Any]) -> int:
    """Weights; with momentum also velocities and, unless autonomous, time."""
    return parameters if flow["name"] != "momentum" else 2 * parameters + (not flow["autonomous"])


def _stirred(state: int, label: int) -> int:
    """SplitMix64's finaliser, in plain integers."""
    mixed = (state + 0x9E3779B97F4A7C15 * (label + 1)) & MASK
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & MASK
    return mixed ^ (mixed >> 31)
