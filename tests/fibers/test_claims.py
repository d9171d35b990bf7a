"""Every claim of P4 that this room registers is confirmed at its default size."""

from __future__ import annotations

import pytest

from lawful.study.claim import Claim, Verdict
from lawful.study.claims import fibers, fibers_composition

CLAIMS = (*fibers.CLAIMS, *fibers_composition.CLAIMS)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_the_claim_is_confirmed(claim: Claim) -> None:
    outcome = claim.run(False)
    assert claim.verdict(outcome) is Verdict.CONFIRMED
    assert outcome.measured
