"""Every claim of this room holds at its default size."""

from __future__ import annotations

import pytest

from lawful.study.claim import Claim, Verdict
from lawful.study.claims import flow, flow_symmetries


@pytest.mark.parametrize("claim", [*flow.CLAIMS, *flow_symmetries.CLAIMS], ids=lambda claim: claim.id)
def test_claim(claim: Claim) -> None:
    outcome = claim.run(False)
    assert claim.verdict(outcome) is Verdict.CONFIRMED, outcome.measured
