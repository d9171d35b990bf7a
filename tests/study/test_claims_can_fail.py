"""A deliberately wrong variant of what a claim measures makes the claim fail."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lawful.leaky import FlatPath
from lawful.study.claims import checkpoints, leaky_identity, leaky_training, truncation_limits
from lawful.types import Floats


def test_a_path_that_keeps_one_kernel_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Proposition 3 needs both kernels: scaling rows at random keeps neither, and the cost moves."""

    def careless(A: Floats) -> FlatPath:
        factors = np.random.default_rng(0).uniform(0.5, 1.5, size=len(A))
        factors[:8] = 0.0
        return FlatPath(A, factors)

    assert leaky_identity.caratheodory.run(False).holds
    monkeypatch.setattr(leaky_identity, "flat_path", careless)
    assert not leaky_identity.caratheodory.run(False).holds


def test_a_gap_five_percent_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    flow = truncation_limits.collapsed_flow
    monkeypatch.setattr(
        truncation_limits, "collapsed_flow", lambda *given: replace(flow(*given), gap=1.05 * flow(*given).gap)
    )
    assert not truncation_limits.spectral_gap.run(False).holds


@pytest.mark.parametrize("wrong", ["rank", "order", "spectrum", "momenta"])
def test_figure_one(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rank, found = leaky_training._depths(False)
    variants: dict[str, tuple[int, Any]] = {
        "rank": (rank + 1, found),
        "order": (rank, found[::-1]),
        "spectrum": (rank, tuple(replace(e, singular_values=np.ones_like(e.singular_values)) for e in found)),
        "momenta": (rank, tuple(replace(e, rank=1.3 * e.rank) for e in found)),
    }
    assert leaky_training.figure_one.run(False).holds
    monkeypatch.setattr(leaky_training, "_depths", lambda full: variants[wrong])
    assert not leaky_training.figure_one.run(False).holds


@pytest.mark.parametrize("wrong", ["momentum_norms", "product_norms", "speeds"])
def test_figure_three(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What grows like the root of the effective depth is not bounded."""
    rank, found = leaky_training._depths(False)
    grown = tuple(replace(e, **{wrong: getattr(e, wrong) * np.sqrt(e.effective_depth)}) for e in found)
    assert leaky_training.figure_three.run(False).holds
    monkeypatch.setattr(leaky_training, "_depths", lambda full: (rank, grown))
    assert not leaky_training.figure_three.run(False).holds


def test_a_matching_that_knows_scales_is_not_one_by_permutations_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "_permutations", lambda group: group)
    outcome = checkpoints.scaled_disguises.run(False)
    assert not outcome.holds
    assert outcome.measured["permutations, scaled"] == 20
