"""*What does training conserve?*: the question, and its answer with bounds and evidence."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from lawful.conservation.closure.lie_closure import Watch
from lawful.conservation.fields.flows import Flow
from lawful.conservation.known.law import LawFamily
from lawful.conservation.known.rank_one_subnetworks import SAMPLE, Part
from lawful.conservation.regions.near_weights import Region
from lawful.conservation.wording import Wording
from lawful.exact import PRIME
from lawful.network import Dag
from lawful.network.dynamics import GradientFlow, HeavyBall
from lawful.program.core.straight_line import StraightLineProgram
from lawful.result import Shown
from lawful.types import Floats, Indices, Residues


@dataclass(frozen=True, eq=False)
class LawQuestion:
    """What is asked about a network's training; `count_laws` says what each option means."""

    flow: Flow = field(default_factory=GradientFlow)
    level: str = "phi"
    data: ArrayLike | None = None
    loss: str = "full"
    mode: str = "train"
    classes_axis: int | None = None
    input_shape: tuple[int, ...] | None = None
    prime: int = PRIME
    seed: int = 0
    seconds: float = math.inf
    progress: Watch | None = None


@dataclass(frozen=True, eq=False)
class RankWitness:
    """What makes `dimensions` checkable: the prime, the seed of the fields, the point, the brackets of each level."""

    prime: int
    seed: int
    point: Residues
    rows: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class LawCount(Shown):
    """How many independent laws training has, and why.

    `dimensions` are those of V_0 ⊆ V_1 ⊆ … (P1 Lemma 3.2) in a state space of dimension `states` (the parameters;
    with momentum also velocities and time). `independent` counts the explicit laws in `known` that are independent.
    The status is "proved" if the two bounds meet, "numerical" if the closure stagnated above them, else "undecided".

    `parts` pass one number on: there all but one direction are bound, by laws not all of which are explicit. A count
    that is "numerical" in exact arithmetic is too large with probability at most `error`. `places` are the names and
    shapes of a module's parameters, laid end to end. `mode` is the one in which a module with two was read, and
    `assumed` what the count rests on besides its reading.

    `claim` says what is complete: "phi" (the laws hold at all weights, and no other function of φ is conserved), "near"
    (no other function is conserved near these weights; of a network without gates, near any weights) or "somewhere"
    (the laws hold at all weights, and near some weights no other function is conserved).
    """

    parameters: int
    states: int
    dimensions: tuple[int, ...]
    known: LawFamily
    independent: int
    status: str
    level: str
    flow: Flow
    loss: str
    arithmetic: str = "exact"
    gap: float | None = None
    dag: Dag | None = None
    architecture: str | None = None
    witness: RankWitness | None = None
    region: Region | None = None
    reason: str = ""
    words: tuple[str, ...] = ()
    mode: str | None = None
    claim: str = "phi"
    proof: RankProof | None = None
    parts: tuple[Part, ...] = ()
    error: float | None = None
    theorem: str = ""
    places: tuple[tuple[str, tuple[int, ...]], ...] = ()
    assumed: tuple[str, ...] = ()

    @property
    def laws(self) -> int:
        """Number of independent laws; an upper bound that no law escapes, exact when proved."""
        return self.states - self.dimensions[-1]

    @property
    def proved(self) -> bool:
        """Whether explicit independent laws meet the upper bound."""
        return self.status == "proved"

    def summary(self) -> list[str]:
        """The explicit laws in words, a line for each kind and layer."""
        if self.dag is None:
            decays = isinstance(self.flow, GradientFlow) and self.flow.decay and self.words
            return [*(["times e^(2λt), sums and entries times e^(λt):"] if decays else []), *self.words]
        if isinstance(self.flow, HeavyBall):
            return self._of_momentum(Wording(self.dag), self.flow)
        decay = self.flow.decay if isinstance(self.flow, GradientFlow) else 0.0
        wording = Wording(self.dag)
        lines = self._of_decay(wording) if decay else wording.summary(self.known)
        for part in self.parts:
            start = "one sample" if part.source == SAMPLE else self.dag.names[part.source]
            ends = f"{start} to {self.dag.names[part.sink]}"
            size = len(part.edges)
            scaled = "e^(λt) times the " if decay else "the "
            lines.append(f"{size - 1} functions of {scaled}{size} weights from {ends} (one field: flow box theorem)")
        return lines

    def _of_decay(self, wording: Wording) -> list[str]:
        """What weight decay λ makes of the laws, by their degree."""
        lines: list[str] = []
        for degree in sorted({law.degree or 0 for law in self.known}, reverse=True):
            power = "λt" if degree == 1 else f"{degree}λt"
            lines.append(f"e^({power}) times each of (so they decay as e^(−{power}))")
            lines += wording.summary([law for law in self.known if law.degree == degree])
        return lines

    def _of_momentum(self, wording: Wording, flow: HeavyBall) -> list[str]:
        """What decays with the friction, then where forceless sums come to rest."""
        if not self.independent:
            return []
        damped = wording.summary(law for law in self.known if law.kind != "rest")
        if flow.friction and damped:
            damped.insert(0, f"{'the ratios of' if flow.autonomous else 'e^(γt) times each of'} (v: velocities)")
        rest = wording.summary(law for law in self.known if law.kind == "rest")
        if rest:
            timed = "⟨a, θ⟩⟨b, v⟩ − ⟨b, θ⟩⟨a, v⟩" if flow.autonomous else "⟨a, θ⟩ − t⟨a, v⟩"
            rest.insert(0, f"{'⟨a, γθ + v⟩' if flow.friction else timed} for each of the sums ⟨a, θ⟩:")
        return damped + rest


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
