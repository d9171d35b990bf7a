"""Every claim of P2 runs, and says what it should."""

from __future__ import annotations

import pytest

from lawful.study.claim import Claim, Verdict
from lawful.study.claims.truncation import CLAIMS
from lawful.study.claims.truncation_limits import CLAIMS as LIMITS


@pytest.mark.parametrize("claim", [*CLAIMS, *LIMITS], ids=lambda claim: claim.id)
def test_verdict(claim: Claim) -> None:
    expected = Verdict.CONFIRMED if claim.erratum is None else Verdict.CORRECTED
    assert claim.verdict(claim.run(False)) is expected
