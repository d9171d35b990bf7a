"""What proves that brackets of a module's fields reach so many directions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lawful.program.core.straight_line import StraightLineProgram
from lawful.types import Floats, Indices


@dataclass(frozen=True, eq=False)
class RankProof:
    """What a checker needs: the program, the point, the fields and the brackets whose values are independent.

    Numbers are whole multiples of `2^−bits`. `words` are brackets, numbers of fields from the outermost inwards;
    `columns` the coordinates in which their values form an invertible matrix. `dimensions` are those of V_0, V_1, …
    as float64 saw them; `bound` is the norm that was proved smaller than 1, with `precision` bits. Under
    cross-entropy the output weights of each run of `classes` sum to 0; each run of `tokens` inputs is a unit vector.
    `exact` says that residues modulo a prime were used instead of balls. On data the fields' inputs are rows of `data`,
    whose numbers are in `samples`, and `inputs` is empty.
    """

    program: StraightLineProgram
    theta: Indices
    theta_bits: int
    inputs: Indices
    weights: Indices
    sample_bits: int
    words: tuple[tuple[int, ...], ...]
    columns: tuple[int, ...]
    dimensions: tuple[int, ...]
    bound: float
    precision: int
    classes: int = 0
    tokens: int = 0
    exact: bool = False
    data: Floats | None = None
    samples: tuple[int, ...] = ()

    @property
    def point(self) -> Floats:
        """θ*."""
        return np.asarray(self.theta / 2.0**self.theta_bits)
