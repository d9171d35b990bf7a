"""Every registered claim runs, measures and reaches the verdict it should."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lawful import LawfulError
from lawful.api.figure_file import save
from reproduction.claim import EDITIONS, Claim, Erratum, Outcome, Size, Verdict
from reproduction.claims import all_claims, find

CLAIMS = all_claims()

# Every checkable row of the five papers, by id; the registry may hold more
ROWS = [
    "p0-rescaling",
    "p0-network-flow",
    "p0-conservation",
    "p0-orbit-once",
    "p0-nonempty",
    "p0-edge-criterion",
    "p0-theorem-1",
    "p0-components",
    "p0-corollary-1",
    "p0-corollary-2",
    "p0-toy-dag",
    "p0-figure-8",
    "p0-figure-9",
    "p0-rank",
    "p0-singular-invariant",
    "p0-singular-balance",
    "p0-hessian",
    "p0-rank-constant",
    "p0-figure-3c",
    "p0-figure-3d",
    "p0-figure-5",
    "p0-figure-6-7",
    "p0-figure-10-11",
    "p0-figure-12",
    "p0-figure-13",
    "p0-skips",
    "p0-figure-9b",
    "p1-orthogonality",
    "p1-loss-span",
    "p1-example-2-3",
    "p1-frobenius-relu",
    "p1-linear-two-steps",
    "p1-homogeneous",
    "p1-riemannian",
    "p1-riemannian-polar",
    "p1-known-laws",
    "p1-independent",
    "p1-lie-dimension",
    "p1-lie-algebra",
    "p1-no-more",
    "p1-appendix-i-count",
    "p1-appendix-i-polynomial",
    "p1-deep-formula",
    "p1-momentum",
    "p1-modules",
    "p1-finite-step",
    "p2-chain",
    "p2-fixed-points",
    "p2-aligned",
    "p2-theorem-3-2",
    "p2-moments",
    "p2-equilibria",
    "p2-finite-time-collapse",
    "p2-truncation-times",
    "p2-theorem-5-1",
    "p2-integral-of-motion",
    "p2-spectral-gap",
    "p2-clustered",
    "p2-zero-loss",
    "p2-lemmas",
    "p2-duhamel",
    "p2-domains",
    "p3-integration-range",
    "p3-output-scaling",
    "p3-minimal-weights",
    "p3-stable-rank",
    "p3-stable-minima",
    "p3-caratheodory",
    "p3-hamilton",
    "p3-energy",
    "p3-theorem-4",
    "p3-nonnegative",
    "p3-balancedness",
    "p3-figure-1",
    "p3-figure-2",
    "p3-figure-3",
    "p3-adaptive-cost",
    "p4-weights-determine",
    "p4-normal-form",
    "p4-fiber-generic",
    "p4-fiber-dimension",
    "p4-nonnegative-rank",
    "p4-visible",
    "p4-all-patterns",
    "p4-translation",
    "p4-flips",
    "p4-complete",
    "p4-identifiable",
    "p4-width-one",
    "p4-facing",
    "p4-volume",
    "p4-equivalence",
    "p4-not-localisable",
    "p4-linear-neurons",
    "p4-hiding-no-law",
]

# Quick runs that do not show what the paper saw, or show it on something else than the paper's data
UNDECIDED = {
    "p0-figure-5": Verdict.NOT_OBSERVED,
    "p0-skips": Verdict.NOT_OBSERVED,
    "p0-figure-10-11": Verdict.NOT_OBSERVED,
    "p3-figure-2": Verdict.NOT_OBSERVED,
    "p3-figure-3": Verdict.NOT_OBSERVED,
    "p3-step-rules": Verdict.NOT_OBSERVED,
    "p0-figure-9": Verdict.NOT_REPRODUCED,
    "p0-figure-9b": Verdict.NOT_REPRODUCED,
    "p0-figure-6-drift": Verdict.NOT_REPRODUCED,
    "p0-figure-3d": Verdict.NOT_REPRODUCED,
    "p0-figure-6-7": Verdict.NOT_REPRODUCED,
    "p0-figure-12": Verdict.NOT_REPRODUCED,
    "p0-figure-13": Verdict.NOT_REPRODUCED,
}


def test_ids_are_unique_and_name_their_paper() -> None:
    assert len({claim.id for claim in CLAIMS}) == len(CLAIMS)
    assert {claim.paper for claim in CLAIMS} <= {"P0", "P1", "P2", "P3", "P4"}
    assert all(claim.reference and claim.statement for claim in CLAIMS)


def test_every_row_of_the_papers_is_a_claim() -> None:
    assert len(set(ROWS)) == len(ROWS)
    assert set(ROWS) - {claim.id for claim in CLAIMS} == set()


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_a_claim_says_at_what_size_it_runs_and_what_decides_it(claim: Claim) -> None:
    assert claim.criterion.startswith(("the paper's: ", "ours: ", "ours where the paper is silent: "))
    assert claim.size != Claim.size
    assert claim.size.quick
    assert claim.size.full
    assert claim.size.paper
    if claim.experiment:
        assert claim.criterion.startswith("ours"), "no experiment comes with a test of its own"
    if claim.erratum is not None:
        assert claim.erratum.version == EDITIONS[claim.paper]


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_claim_runs_and_is_not_refuted(claim: Claim, tmp_path: Path) -> None:
    outcome = claim.run(False)
    assert outcome.measured, "a claim says what it measured"
    expected = Verdict.CONFIRMED if claim.erratum is None else Verdict.CORRECTED
    assert claim.verdict(outcome) == UNDECIDED.get(claim.id, expected), dict(outcome.measured)
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
    seen = Claim("p0-z", "there", "was seen", lambda full: Outcome(True, {}), experiment=True)
    assert seen.verdict(Outcome(True, {})) == Verdict.CONFIRMED
    assert seen.verdict(Outcome(True, {}, stand_in="other data")) == Verdict.NOT_REPRODUCED
    assert seen.verdict(Outcome(False, {})) == Verdict.NOT_OBSERVED
    assert seen.verdict(Outcome(False, {}, stand_in="other data")) == Verdict.NOT_OBSERVED
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
    from distributed import LocalCluster

    from lawful.api.sweeps import Plan, Store, run_sweep

    ids = ["p0-incidence", "p0-rescaling"]
    with LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as cluster:
        plan = Plan("claim", {"id": ids, "full": [False]})
        run_sweep(plan, tmp_path / "out", scheduler=cluster.scheduler_address)
    rows = {row.inputs["id"]: row for row in Store(tmp_path / "out", write=False).rows()}
    assert [rows[id].outputs["verdict"] for id in ids] == ["confirmed", "confirmed"]
    assert rows["p0-rescaling"].outputs["measured.relative_change"] < 1e-12
    assert "--out" in lawful("reproduce", "--all", code=2).stderr


def test_what_is_not_observed_is_no_failure_and_no_success(lawful, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    """Exit 3, with the size, the criterion and the meaning of the verdict; a refuted claim beside it gives 1."""
    from reproduction import claims

    size = Size("two coins", "ten coins", "a hundred coins")
    seen = Claim(
        "p0-seen", "Figure 0", "heads", lambda full: Outcome(False, {"heads": 0}), None, size, "ours: any", True
    )
    wrong = Claim("p0-wrong", "Theorem 0", "1 = 2", lambda full: Outcome(False, {"gap": 1}), None, size)
    monkeypatch.setattr(claims, "all_claims", lambda: (seen, wrong))
    said = lawful("reproduce", "p0-seen", code=3).stdout
    assert "not observed" in said.splitlines()[0]
    assert "run at: two coins (the paper: a hundred coins)" in said
    assert "decided by ours: any" in said
    assert "not the paper's" in said
    assert lawful("reproduce", "p0-seen", "--full", "--json", code=3).json["claims"][0]["run_at"] == "ten coins"
    assert lawful("reproduce", "p0-seen", "p0-wrong", code=1).stdout.count("refuted") == 1


def test_an_erratum_says_which_text_it_is_about(lawful) -> None:  # type: ignore[no-untyped-def]
    run = lawful("reproduce", "p2-sign")
    assert "printed: ∂R = −ΩR" in run.stdout
    assert EDITIONS["P2"] in run.stdout
    assert lawful("reproduce", "p2-sign", "--json").json["claims"][0]["erratum"]["version"] == EDITIONS["P2"]
