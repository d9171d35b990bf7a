"""Is a module's count proved? Explicit laws that are identities bound it from below, brackets from above."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import comb

import numpy as np

from lawful.conservation.closure.error_probability import directions
from lawful.conservation.known.law import Law, LawFamily
from lawful.conservation.known.linear_on_data import still_laws
from lawful.conservation.known.module_polynomial import MOST_MONOMIALS, identities, independent_laws, search
from lawful.conservation.law_count import LawCount, RankProof
from lawful.conservation.programs.module_function import Probe
from lawful.conservation.rank_proof import ProofBudget, program_of, prove_rank, round_point
from lawful.conservation.regions.module_data import SeenData, seen_data, sides
from lawful.conservation.wording import ModuleWording
from lawful.errors import Unsupported
from lawful.program.core.straight_line import StraightLineProgram
from lawful.types import Floats

ATTEMPTS = 2  # random points at which a proof is tried
# Near the weights the sides that choices take must stay, so that points come nearer until they do.
SPREADS = (0.05, 0.01, 1e-3, 1e-4)  # how far points next to the weights may be, relative to them
BOUNDARY = "at a sample the weights lie on a boundary between pieces of the module, or too near to one to tell"


class ProofSearch:
    """A module as a program, and what a data set sees of it; `why` says what is in the way of a proof."""

    def __init__(self, case: Probe, seconds: float = math.inf) -> None:
        self.budget = ProofBudget(seconds)
        self.case, self.why, self.rough = case, "", ""
        self.program: StraightLineProgram | None = None
        self.seen: SeenData | None = None
        try:
            self.program = program_of(case)
        except Unsupported as error:
            self.why = str(error)
            return
        if case.data is not None:
            self.seen = seen_data(case, self.program, case.own_theta().numpy())
            self.why = BOUNDARY if self.seen is None else ""

    @property
    def on_boundary(self) -> bool:
        """Whether the sides that choices take at the samples are not determined near the weights."""
        return self.program is not None and self.case.data is not None and self.seen is None

    def spread(self, seeds: list[int]) -> float:
        """How far points may be from the weights without changing a side that a choice takes at a sample."""
        for spread in SPREADS:
            if all(self._same_sides(self.case.theta(seed, spread).numpy()) for seed in seeds):
                return spread
        return SPREADS[0]

    def _same_sides(self, theta: Floats) -> bool:
        if self.program is None or self.seen is None or not self.seen.gates:
            return True
        now = sides(self.program, theta, self.seen.inputs)
        return now is not None and all((now[step] == gates).all() for step, gates in self.seen.gates.items())

    def with_proof(self, count: LawCount, seeds: list[int], spread: float) -> LawCount:
        """The same count with a proof, if as many laws are identities and one is found; else with the reason."""
        if self.why or self.program is None:
            return _with_reason(count, self.why)
        explicit = self.explicit(self.program, count)
        if explicit != count.known.laws:
            words = tuple(ModuleWording(count.places).grouped(explicit))
            count = replace(count, known=LawFamily(explicit, count.parameters), independent=len(explicit), words=words)
        if len(explicit) < count.laws:
            return self._test_modulo_primes(self.program, count, seeds, spread)
        proved = self._proof(self.program, count, seeds, spread)
        if proved is None and self.budget.refused:
            return _with_reason(
                count,
                f"a proof in ball arithmetic would take about {self.budget.refused:.0f} s of a processor, more than "
                f"the {self.budget.seconds:g} s that it is granted (--seconds)",
            )
        if proved is None:
            return _with_reason(count, "balls of up to 512 bits do not prove the rank")
        proof, claim = proved
        arithmetic = "exact" if proof.exact else "balls"
        return replace(
            count, status="proved", arithmetic=arithmetic, reason="", proof=proof, dimensions=proof.dimensions,
            claim=claim,
        )  # fmt: skip

    def _test_modulo_primes(
        self, program: StraightLineProgram, count: LawCount, seeds: list[int], spread: float
    ) -> LawCount:
        """A count of more laws than are known: modulo random primes too, if the module is a polynomial."""
        case, known = self.case, len(count.known)
        why = f"{count.laws - known} of the laws have no explicit form here" + self.rough
        plain = case.data is None and case.vocabulary is None and not case.random and not count.reason
        closed = directions(program, case.size - known, case.classes, seeds[0]) if plain else None
        if closed is None:
            return _with_reason(count, why)
        dimensions, error = closed
        if dimensions[-1] > count.dimensions[-1]:
            return self.with_proof(replace(count, dimensions=dimensions), seeds, spread)
        if dimensions[-1] < count.dimensions[-1]:
            return replace(count, status="undecided", reason="residues and float64 disagree")
        return replace(_with_reason(count, why), error=error, arithmetic="exact", gap=None, dimensions=dimensions)

    def are_identities(self, laws: Sequence[Law]) -> bool:
        """Whether laws are identities."""
        return self.program is not None and len(self._identical(self.program, laws)) == len(laws)

    def _identical(self, program: StraightLineProgram, laws: Iterable[Law]) -> tuple[Law, ...]:
        case = self.case
        return identities(program, laws, classes=case.classes, tokens=case.vocabulary or 0, seen=self.seen)

    def explicit(self, program: StraightLineProgram, count: LawCount) -> tuple[Law, ...]:
        """Independent laws that hold identically: those that were proposed, sums that no sample moves, polynomials."""
        case, seen = self.case, self.seen
        laws = self._identical(program, count.known)
        if rough := len(count.known) - len(laws):
            self.rough = f"; {rough} hold to rounding, but not as identities of the module's steps"
        if seen is not None and len(laws) < count.laws:
            laws = independent_laws([*still_laws(program, seen), *laws], case.size)
        if len(laws) < count.laws:
            more = self._polynomials(program)
            more = independent_laws([*laws, *more], case.size) if seen is not None and more else more
            laws = more if len(more) == count.laws else laws
        return laws

    def _polynomials(self, program: StraightLineProgram) -> tuple[Law, ...]:
        """Independent polynomial laws of degree 2 (1 for large modules)."""
        case = self.case
        degree = 2 if comb(case.size + 2, 2) <= MOST_MONOMIALS else 1
        try:
            laws, *_ = search(program, degree, classes=case.classes, tokens=case.vocabulary or 0, seen=self.seen)
        except (Unsupported, ZeroDivisionError):
            return ()
        return independent_laws(laws, case.size)

    def _proof(
        self, program: StraightLineProgram, count: LawCount, seeds: list[int], spread: float
    ) -> tuple[RankProof, str] | None:
        """At the weights themselves, if it is asked what holds near them, or else at random points."""
        case, wanted = self.case, count.parameters - len(count.known)
        if count.level != "phi":
            weights = case.own_theta().numpy()
            if _look_independent(count.known, weights) and (proof := self._prove_rank(program, wanted, weights, 0)):
                return proof, "near"
        for seed in seeds[:ATTEMPTS]:
            if self.budget.refused:
                break
            theta = case.theta(seed, spread).numpy()
            theta = round_point(theta) if count.level == "phi" else theta
            if self._same_sides(theta) and (proof := self._prove_rank(program, wanted, theta, seed)):
                return proof, "somewhere"
        return None

    def _prove_rank(self, program: StraightLineProgram, wanted: int, theta: Floats, seed: int) -> RankProof | None:
        return prove_rank(self.case, program, wanted, theta, seed, self.seen, self.budget)


def _look_independent(laws: LawFamily, theta: Floats) -> bool:
    """Whether the gradients of laws look independent at a point."""
    slopes = laws.gradients(theta)
    sizes = np.linalg.norm(slopes, axis=1, keepdims=True)
    return not len(laws) or bool(sizes.all() and np.linalg.matrix_rank(slopes / sizes, tol=1e-9) == len(laws))


def _with_reason(count: LawCount, why: str) -> LawCount:
    return count if count.reason else replace(count, reason=why)
