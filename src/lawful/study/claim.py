"""A paper's statement as an object that runs: claim in, measurement and verdict out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from lawful.errors import LawfulError
from lawful.figure import Figure


class Verdict(StrEnum):
    """What a run says of a claim."""

    CONFIRMED = "confirmed"
    CORRECTED = "corrected"
    REFUTED = "refuted"


@dataclass(frozen=True)
class Erratum:
    """What a paper prints, what holds instead, and how that was checked."""

    printed: str
    correct: str
    checked: str


@dataclass(frozen=True)
class Outcome:
    """What one run measured.

    `holds` speaks of the statement we implement; `printed_holds` of the paper's own words where they differ (errata).
    """

    holds: bool
    measured: Mapping[str, Any]
    printed_holds: bool | None = None
    figure: Figure | None = None


@dataclass(frozen=True)
class Claim:
    """A checkable statement of a paper. `run(full)` measures it, at the paper's own size if `full`."""

    id: str
    reference: str
    statement: str
    run: Callable[[bool], Outcome] = field(repr=False)
    erratum: Erratum | None = None

    @property
    def paper(self) -> str:
        """`P0` to `P4`."""
        return self.id.split("-")[0].upper()

    def verdict(self, outcome: Outcome) -> Verdict:
        """Confirmed, corrected (the printed words fail, ours hold) or refuted."""
        if (self.erratum is None) != (outcome.printed_holds is None):
            raise LawfulError(f"claim {self.id}: an erratum and a measurement of the printed words go together")
        if not outcome.holds:
            return Verdict.REFUTED
        return Verdict.CORRECTED if outcome.printed_holds is False else Verdict.CONFIRMED


def claim(
    id: str, reference: str, statement: str, *, erratum: Erratum | None = None
) -> Callable[[Callable[[bool], Outcome]], Claim]:
    """Turn a measuring function into a `Claim`."""

    def made(run: Callable[[bool], Outcome]) -> Claim:
        return Claim(id, reference, statement, run, erratum)

    return made
