"""A paper's statement as an object that runs: claim in, measurement and verdict out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from lawful.errors import LawfulError
from lawful.figure import Figure


class Verdict(StrEnum):
    """What a run says of a claim; `MEANING` has the words."""

    CONFIRMED = "confirmed"
    CORRECTED = "corrected"
    REFUTED = "refuted"
    NOT_OBSERVED = "not observed"
    NOT_REPRODUCED = "not reproduced"


MEANING: Mapping[Verdict, str] = {
    Verdict.CONFIRMED: "the paper's statement holds in every case that was run, at the size that is given",
    Verdict.CORRECTED: "what is printed fails, and the corrected form beside it holds: an erratum",
    Verdict.REFUTED: "a mathematical statement fails in a case that was run",
    Verdict.NOT_OBSERVED: (
        "the paper reports an experiment, and ours does not show it at the size that is given; "
        "ours is not the paper's: what we had to guess is said"
    ),
    Verdict.NOT_REPRODUCED: (
        "the paper's own data or settings were not run (not public, not stated, or too long for a quick run); "
        "something else was run in their place, is named, and does show it"
    ),
}

# None of the five texts gives a version number or a date, so the erratum names the text that was read.
EDITIONS: Mapping[str, str] = {
    "P0": "the anonymous submission under double-blind review with appendices A.1 to A.10; no version or date in it",
    "P1": "the text by Marcotte, Gribonval and Peyré with 28 references, appendices A to I; no version or date in it",
    "P2": "the text by Chen with Sections 1 to 9 and 13 references; no version or date in it",
    "P3": "the text by Jacot and Kaiser with Propositions 1 to 10 and 32 references; no version or date in it",
    "P4": "the text with appendices A to G that cites arXiv:2605.03601; no version or date in it",
}

ITSELF = "the paper's: the statement itself, exactly or up to rounding"


@dataclass(frozen=True)
class Erratum:
    """What a paper prints, what holds instead, how that was checked, and which version of the paper is meant."""

    printed: str
    correct: str
    checked: str
    version: str = ""  # the edition of `EDITIONS` unless another was read


@dataclass(frozen=True)
class Size:
    """At what size a claim runs, quickly and in full, and at what size the paper states or runs it."""

    quick: str
    full: str
    paper: str = "every size"

    def run(self, full: bool) -> str:
        """The size of one run."""
        return self.full if full else self.quick


@dataclass(frozen=True)
class Outcome:
    """What one run measured.

    `holds` speaks of the statement we implement; `printed_holds` of the paper's own words where they differ (errata).
    `stand_in` names what replaced data or settings of the paper that are not at hand.
    """

    holds: bool
    measured: Mapping[str, Any]
    printed_holds: bool | None = None
    figure: Figure | None = None
    stand_in: str | None = None


@dataclass(frozen=True)
class Claim:
    """A checkable statement of a paper. `run(full)` measures it, at the paper's own size if `full`.

    `criterion` says what decides, and whether that is the paper's or ours. `experiment` marks a statement about what
    the authors saw: another run that does not show it refutes nothing.
    """

    id: str
    reference: str
    statement: str
    run: Callable[[bool], Outcome] = field(repr=False)
    erratum: Erratum | None = None
    size: Size = Size("as the function says", "as the function says")
    criterion: str = ITSELF
    experiment: bool = False

    @property
    def paper(self) -> str:
        """`P0` to `P4`."""
        return self.id.split("-")[0].upper()

    def verdict(self, outcome: Outcome) -> Verdict:
        """What this outcome says of the statement."""
        if (self.erratum is None) != (outcome.printed_holds is None):
            raise LawfulError(f"claim {self.id}: an erratum and a measurement of the printed words go together")
        if not outcome.holds:
            return Verdict.NOT_OBSERVED if self.experiment else Verdict.REFUTED
        if outcome.printed_holds is False:
            return Verdict.CORRECTED
        return Verdict.CONFIRMED if outcome.stand_in is None else Verdict.NOT_REPRODUCED


def claim(
    id: str,
    reference: str,
    statement: str,
    *,
    erratum: Erratum | None = None,
    size: Size | None = None,
    criterion: str = ITSELF,
    experiment: bool = False,
) -> Callable[[Callable[[bool], Outcome]], Claim]:
    """Turn a measuring function into a `Claim`."""

    def make(run: Callable[[bool], Outcome]) -> Claim:
        found = Claim(id, reference, statement, run, erratum, size or Claim.size, criterion, experiment)
        if erratum is None or erratum.version:
            return found
        return replace(found, erratum=replace(erratum, version=EDITIONS[found.paper]))

    return make
