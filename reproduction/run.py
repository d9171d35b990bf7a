"""Run claims of the papers, one by one or all as a sweep, and keep what each measured."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lawful.api.sweeps import Plan, Store
from lawful.errors import LawfulError
from lawful.figure import Figure
from lawful.result import Shown
from reproduction.claim import Claim
from reproduction.claims import find
from reproduction.long_runs import keeping

SECONDS, FULL_SECONDS = 600.0, 7200.0  # what one claim may take


@dataclass(frozen=True)
class ClaimRun(Shown):
    """One claim, what a run of it measured, and the verdict (`failed: ...` if the run raised in a sweep)."""

    claim: Claim
    verdict: str
    measured: Mapping[str, Any]
    full: bool
    seconds: float
    figure: Figure | None = None
    stand_in: str | None = None

    @property
    def exit_code(self) -> int:
        """0 if the paper's statement, or the one that corrects it, holds; 1 if refuted; 3 if nothing is decided."""
        return {"confirmed": 0, "corrected": 0, "refuted": 1}.get(self.verdict, 3)


def run_claim(claim: Claim, full: bool = False, folder: Path | None = None) -> ClaimRun:
    """Measure one claim; runs of hours are kept in a folder, if one is given, and taken up again.

    >>> from reproduction.claims import find
    >>> run_claim(find("p0-incidence")).verdict
    'confirmed'
    """
    start = time.perf_counter()
    with keeping(folder):
        outcome = claim.run(full)
    seconds = round(time.perf_counter() - start, 3)
    verdict = claim.verdict(outcome).value
    return ClaimRun(claim, verdict, outcome.measured, full, seconds, outcome.figure, outcome.stand_in)


@dataclass(frozen=True)
class Reproduction(Shown):
    """Claims that were run, in order."""

    runs: tuple[ClaimRun, ...]


def reproduce(*ids: str, full: bool = False) -> Reproduction:
    """Run claims of the papers by their ids; `lawful reproduce --list` has them all.

    >>> reproduce("p0-incidence").runs[0].verdict
    'confirmed'
    """
    if not ids:
        raise LawfulError("name claims to run, such as p0-incidence")
    return Reproduction(tuple(run_claim(find(id), full) for id in ids))


def run_all(claims: Sequence[Claim], full: bool, out: Path, sweep: Callable[[Plan, Path], object]) -> list[ClaimRun]:
    """All claims as one sweep of the job `claim`, by the function that runs plans; figures go to `out/figures`."""
    if not claims:
        raise LawfulError("there are no claims to run")
    figures = (out / "figures").resolve()
    figures.mkdir(parents=True, exist_ok=True)
    values: dict[str, list[str | bool]] = {
        "id": [claim.id for claim in claims],
        "full": [full],
        "figures": [str(figures)],
    }
    sweep(Plan("claim", values, seconds=FULL_SECONDS if full else SECONDS), out)
    by_id = {claim.id: claim for claim in claims}
    runs = []
    for row in Store(out, write=False).rows():
        measured = {
            name.removeprefix("measured."): v for name, v in row.outputs.items() if name.startswith("measured.")
        }
        verdict = str(row.outputs.get("verdict", f"failed: {row.error}"))
        stand_in = str(row.outputs.get("stand_in", "")) or None
        runs.append(
            ClaimRun(by_id[str(row.inputs["id"])], verdict, measured, full, round(row.seconds, 3), stand_in=stand_in)
        )
    return runs
