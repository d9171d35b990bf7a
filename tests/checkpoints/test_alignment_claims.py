"""The claim about matching by permutations alone can fail."""

from __future__ import annotations

import pytest

from reproduction.claims import checkpoints


def test_a_matching_that_knows_scales_is_not_one_by_permutations_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "_permutations", lambda group: group)
    outcome = checkpoints.scaled_disguises.run(False)
    assert not outcome.holds
    assert outcome.measured["permutations, scaled"] == 20
