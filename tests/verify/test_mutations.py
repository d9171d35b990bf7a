"""Every change of one place in a true certificate is refused, or leaves a statement that is true."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from effort import trials
from forging import REFUSED, Proof, signed
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from oracles import ORACLES, is_true
from real import MAKERS, real

from lawful import verify

Place = tuple[str | int, ...]


def places(value: Any, where: Place = ()) -> list[Place]:
    """The way to every value inside, lists and objects included."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [where] * bool(where) + [place for key, item in inner for place in places(item, (*where, key))]


NUMBERS = st.sampled_from([0, 1, -1, 2, 7, 10**30, -(10**30), 0.5, -0.0, 1e-300, 1e300, -1e300, 2**63, True, False])
OTHERS = st.sampled_from([None, "", "1", "0", "-1/2", "nan", "both", [], {}, [[]], [0], "equal", "out", "full"])


@st.composite
def changes(draw: st.DrawFn, old: Any) -> Any:
    """Another value for a place, near the old one or of another kind."""
    kind = draw(st.integers(0, 5))
    if kind == 0:
        return draw(OTHERS)
    if isinstance(old, (int, float)):
        near = [old + 1, old - 1, -old, old * (1 + 1e-9), old * 2, old / 2]
        return draw(st.one_of(st.sampled_from(near), NUMBERS))
    if isinstance(old, list) and old:
        number = draw(st.integers(0, len(old) - 1))
        less = old[:number] + old[number + 1 :]
        return draw(st.sampled_from([less, [*old, old[number]], old[::-1], [old[number]], []]))
    if isinstance(old, dict) and old:
        key = draw(st.sampled_from(sorted(old)))
        return draw(st.sampled_from([{k: v for k, v in old.items() if k != key}, old | {"statement": "true"}, {}]))
    return draw(st.one_of(OTHERS, NUMBERS))


def put(proof: Proof, place: Place, value: Any) -> Proof:
    changed = copy.deepcopy(proof)
    inner: Any = changed
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    return changed


SLOW = {"laws of a module": 20}  # changes tried where each takes longest; test_every_field walks through all fields


def test_there_is_an_oracle_for_every_kind() -> None:
    assert set(ORACLES) == {real(name)["kind"] for name in MAKERS}


@pytest.mark.parametrize("name", MAKERS)
def test_oracles_agree_with_the_truth(name: str) -> None:
    assert is_true(real(name), verify(real(name)))


@pytest.mark.parametrize("name", MAKERS)
def test_one_change_is_refused_or_harmless(name: str) -> None:
    examples = trials(10, SLOW.get(name, 40))

    @settings(max_examples=examples, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(data=st.data())
    def change(data: st.DataObject) -> None:
        proof = real(name)
        top = data.draw(st.sampled_from([key for key in proof if key != "kind"]))
        place = data.draw(st.sampled_from(places(proof[top], (top,))))
        old: Any = proof
        for key in place:
            old = old[key]
        value = data.draw(changes(old))
        assume(value != old or type(value) is not type(old))
        changed = put(proof, place, value)
        for forged in (changed, signed(changed)):
            try:
                found = verify(forged)
            except REFUSED:
                continue
            assert is_true(forged, found), (place, value, found.statement)

    change()


@pytest.mark.parametrize("name", MAKERS)
def test_evidence_of_another_certificate_does_not_help(name: str) -> None:
    """Parts swapped between certificates of one kind."""
    proof = real(name)
    for other in (real(each) for each in MAKERS if each != name and real(each)["kind"] == proof["kind"]):
        for key in proof.keys() & other.keys() - {"kind", "version"}:
            forged = signed(copy.deepcopy(proof) | {key: copy.deepcopy(other[key])})
            try:
                found = verify(forged)
            except REFUSED:
                continue
            assert is_true(forged, found), (key, found.statement)
