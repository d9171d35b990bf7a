"""Two checkers that share no line agree on true certificates and on damaged ones."""

from __future__ import annotations

import copy
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from effort import trials
from forging import REFUSED, Proof, signed
from real import MAKERS, real
from second_opinion import PATH, load_second_checker

from lawful import verify

second = load_second_checker()
COVERED = [name for name in MAKERS if real(name)["kind"] in second.KINDS]
NUMBERS = [
    0,
    1,
    -1,
    2,
    7,
    10**30,
    0.5,
    -0.0,
    1e-300,
    1e300,
    2**63,
    True,
    None,
    "",
    "1",
    "-1/2",
    "1/0",
    [],
    {},
    [0],
    "out",
]


def accepted(proof: Proof) -> bool:
    try:
        verify(json.dumps(proof))
    except REFUSED:
        return False
    return True


def accepted_by_second(proof: Proof) -> bool | None:
    try:
        second.check(json.dumps(proof))
    except (second.Rejected, second.Malformed):
        return False
    except second.NotCovered:
        return None
    return True


def places(value: Any, where: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [where] * bool(where) + [place for key, item in inner for place in places(item, (*where, key))]


def damage(proof: Proof, rng: random.Random) -> Proof:
    """One place changed: a number nearby or of another kind, an entry less or twice, a key less."""
    changed = copy.deepcopy(proof)
    place = rng.choice(places(changed))
    inner: Any = changed
    for key in place[:-1]:
        inner = inner[key]
    old = inner[place[-1]]
    if isinstance(old, list) and old and rng.random() < 0.7:
        number = rng.randrange(len(old))
        choices = [old[:number] + old[number + 1 :], [*old, old[number]], old[::-1]]
        inner[place[-1]] = rng.choice(choices)
    elif type(old) in (int, float) and rng.random() < 0.7:
        inner[place[-1]] = rng.choice([old + 1, old - 1, -old, old * 2, old * (1 + 1e-9)])
    elif isinstance(old, dict) and old and rng.random() < 0.7:
        inner[place[-1]] = {k: v for k, v in old.items() if k != rng.choice(list(old))}
    else:
        inner[place[-1]] = rng.choice(NUMBERS)
    return changed


def test_the_second_checker_covers_the_first_tier() -> None:
    assert {real(name)["kind"] for name in COVERED} == set(second.KINDS)


@pytest.mark.parametrize("name", COVERED)
def test_both_accept_what_is_true(name: str) -> None:
    assert accepted(real(name))
    assert accepted_by_second(real(name)) in (True, None)


@pytest.mark.parametrize("name", COVERED)
def test_both_agree_on_damaged_certificates(name: str) -> None:
    """Digests are made again after a change, or else they would refuse all of them."""
    rng = random.Random(name)  # noqa: S311
    for number in range(trials(25, 600)):
        damaged = damage(real(name), rng)
        if number % 2:
            try:
                damaged = signed(damaged)
            except Exception:  # what is left has no digest  # noqa: S112
                continue
        other = accepted_by_second(damaged)
        assert other is None or other == accepted(damaged), json.dumps(damaged)[:2000]


def test_it_runs_alone(tmp_path: Path) -> None:
    file = tmp_path / "c.json"
    file.write_text(json.dumps(real(COVERED[0])))
    run = subprocess.run(
        [sys.executable, "-I", "-S", str(PATH), str(file)], capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stdout) == (0, "verified\n")
    file.write_text(json.dumps(real(COVERED[0]) | {"version": 99}))
    run = subprocess.run(
        [sys.executable, "-I", "-S", str(PATH), str(file)], capture_output=True, text=True, check=False
    )
    assert run.returncode == 2


def test_what_the_first_accepts_wrongly_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hook that checks every certificate of the tests twice fails where the two disagree."""
    kernel = sys.modules["lawful.verify.pruning.neurons"]
    monkeypatch.setattr(kernel, "_is_rounded", lambda *_: True)
    monkeypatch.setattr(kernel, "_propagate", lambda *_: kernel.ZERO)
    proof = copy.deepcopy(real("pruning"))
    weights = proof["stages"][-1]["after"]["weights"]
    weights[0] += 1.0
    with pytest.raises(AssertionError, match="another weight"):
        verify(json.dumps(signed(proof)))


@pytest.mark.parametrize("name", ["components", "no path for a lock"])
def test_both_refuse_a_lock_that_is_listed_twice(name: str) -> None:
    proof = copy.deepcopy(real(name))
    proof["locked"] *= 2
    assert proof["locked"]
    assert not accepted(proof)
    assert not accepted_by_second(proof)
