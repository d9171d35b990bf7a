"""`lawful.testing`: green for what is proved, red with the evidence for everything else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import lawful
from lawful import Mlp
from lawful.testing import (
    assert_conserves,
    assert_different,
    assert_holds,
    assert_laws,
    assert_same,
    assert_verified,
    assert_within,
)

ONE = Mlp([[[1.0, 0.5], [0.25, -1.0]], [[1.0, 2.0]]])
SCALED = Mlp([[[2.0, 1.0], [0.25, -1.0]], [[0.5, 2.0]]])
OTHER = Mlp([[[1.0, 0.5], [0.25, -1.0]], [[1.0, 2.5]]])
ROUNDED = Mlp([[[1.0, 0.5], [0.25, -1.0]], [[1.0 + 1e-9, 2.0]]])


def test_same_and_different() -> None:
    assert assert_same(ONE, SCALED, exactly=True)
    assert not assert_different(ONE, OTHER)
    with pytest.raises(AssertionError, match=r"not the same function\nDIFFERENT"):
        assert_same(ONE, OTHER)
    with pytest.raises(AssertionError, match=r"not proved different\nEQUAL"):
        assert_different(ONE, SCALED)
    assert_same(ONE, ROUNDED, tolerance=1e-6)
    with pytest.raises(AssertionError, match="up to rounding"):
        assert_same(ONE, ROUNDED, tolerance=1e-6, exactly=True)


def test_bounds_and_properties() -> None:
    assert assert_within(ONE, OTHER, 1.0, "-1,1")
    with pytest.raises(AssertionError, match="not proved to be within"):
        assert_within(ONE, OTHER, 0.01, "-1,1")
    assert assert_holds(Mlp([[[1.0, -1.0]]]), monotone="+0", box="-1,1")
    with pytest.raises(AssertionError, match="violated"):
        assert_holds(Mlp([[[1.0, -1.0]]]), monotone="+1", box="-1,1")


def test_an_open_question_is_red() -> None:
    with pytest.raises(AssertionError, match="not proved"):
        assert_within(
            "9-30-30-1 relu bias", lawful.open("9-30-30-1 relu bias").initialise(seed=1), 0.2, "-3,3", seconds=0
        )


def test_laws_and_training() -> None:
    assert_laws("3-4-2 relu", 4)
    with pytest.raises(AssertionError, match="not proved to be 5"):
        assert_laws("3-4-2 relu", 5)
    run = lawful.flow("2-3-1 relu", until=0.2)
    assert_conserves(run)
    with pytest.raises(AssertionError, match="drifted by"):
        assert_conserves(run, tolerance=0.0)


def test_certificates(tmp_path: Path) -> None:
    from lawful.invariant_set.certificate import certificate

    proof = certificate(lawful.components(ONE))
    assert_verified(proof, ONE)
    with pytest.raises(AssertionError, match="not verified"):
        assert_verified(proof, OTHER)
    (tmp_path / "forged.json").write_text(json.dumps({"kind": "components"}))
    with pytest.raises(AssertionError, match="not verified"):
        assert_verified(tmp_path / "forged.json")


def test_truth_is_the_answer_and_an_open_question_has_none() -> None:
    assert lawful.same(ONE, SCALED)
    assert not lawful.same(ONE, OTHER)
    assert lawful.check(Mlp([[[1.0]]]), monotone="+0")
    assert not lawful.check(Mlp([[[1.0]]]), monotone="-0")
    assert lawful.distance(ONE, OTHER, "-1,1", within=1)
    assert not lawful.distance(ONE, OTHER, "-1,1", within=0.01)
    for result in (lawful.laws("2-3-1 relu"), lawful.prune(ONE), lawful.distance(ONE, OTHER, "-1,1")):
        with pytest.raises(TypeError, match="no question of yes or no"):
            bool(result)
