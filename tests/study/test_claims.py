"""Every registered claim runs, measures and reaches the verdict it should."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lawful import LawfulError
from lawful.study.claim import Claim, Erratum, Outcome, Verdict
from lawful.study.claims import all_claims, find
from lawful.study.figure_file import save

CLAIMS = all_claims()


def test_ids_are_unique_and_name_their_paper() -> None:
    assert len({claim.id for claim in CLAIMS}) == len(CLAIMS)
    assert {claim.paper for claim in CLAIMS} <= {"P0", "P1", "P2", "P3", "P4"}
    assert all(claim.reference and claim.statement for claim in CLAIMS)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_claim_runs_and_is_not_refuted(claim: Claim, tmp_path: Path) -> None:
    outcome = claim.run(False)
    assert outcome.measured, "a claim says what it measured"
    expected = Verdict.CONFIRMED if claim.erratum is None else Verdict.CORRECTED
    assert claim.verdict(outcome) == expected, dict(outcome.measured)
    if outcome.figure is not None:
        assert outcome.figure.caption
        assert save(outcome.figure, tmp_path / "figure.svg").stat().st_size > 1000


def test_verdicts_follow_from_what_was_measured() -> None:
    erratum = Erratum("1 + 1 = 3", "1 + 1 = 2", "counting")
    plain = Claim("p0-x", "here", "holds", lambda full: Outcome(True, {}))
    wrong = Claim("p0-y", "here", "printed wrong", lambda full: Outcome(True, {}, False), erratum)
    assert plain.verdict(Outcome(True, {})) == Verdict.CONFIRMED
    assert plain.verdict(Outcome(False, {})) == Verdict.REFUTED
    assert wrong.verdict(Outcome(True, {}, printed_holds=False)) == Verdict.CORRECTED
    assert wrong.verdict(Outcome(True, {}, printed_holds=True)) == Verdict.CONFIRMED
    assert wrong.verdict(Outcome(False, {}, printed_holds=False)) == Verdict.REFUTED
    with pytest.raises(LawfulError, match="go together"):
        wrong.verdict(Outcome(True, {}))


def test_an_unknown_claim_is_named() -> None:
    with pytest.raises(LawfulError, match="p9-nothing"):
        find("p9-nothing")


def test_figures_are_reproducible(tmp_path: Path) -> None:
    from lawful.figure import Figure, Panel, Series

    panel = Panel([Series([1, 2, 4], label="a"), Series([1, 1, 1], style="band", upper=[2, 2, 2])], log_y=True)
    figure = Figure("see", [panel, Panel([Series([[1, 2], [3, 4]], style="heat")])])
    first, second = save(figure, tmp_path / "a.svg").read_bytes(), save(figure, tmp_path / "b.svg").read_bytes()
    assert first == second
    assert save(figure, tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"


def test_reproduce_writes_what_it_measured(tmp_path: Path, lawful) -> None:  # type: ignore[no-untyped-def]
    run = lawful("reproduce", "p0-rescaling", "--out", tmp_path / "new" / "folder", "--json")
    (claim,) = run.json["claims"]
    assert claim["verdict"] == "confirmed"
    assert claim["measured"]["relative_change"] < 1e-12
    assert json.loads((tmp_path / "new" / "folder" / "p0-rescaling.json").read_text()) == claim
    assert lawful("reproduce", "nothing", code=2).stderr.startswith("lawful: no claim")
    assert lawful("reproduce", "--full", code=2).stderr.startswith("lawful: name claims")


def test_all_claims_run_as_a_resumable_sweep(tmp_path: Path, lawful) -> None:  # type: ignore[no-untyped-def]
    """The engine is tested in test_sweep; here the table of claims comes out of it."""
    from lawful.study.sweep import Plan, Store, run_sweep

    ids = ["p0-incidence", "p0-rescaling"]
    run_sweep(Plan("claim", {"id": ids, "full": [False]}), tmp_path / "out", workers=1)
    rows = {row.inputs["id"]: row for row in Store(tmp_path / "out", write=False).rows()}
    assert [rows[id].outputs["verdict"] for id in ids] == ["confirmed", "confirmed"]
    assert rows["p0-rescaling"].outputs["measured.relative_change"] < 1e-12
    assert "--out" in lawful("reproduce", "--all", code=2).stderr
