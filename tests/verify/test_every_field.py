"""Every field of a certificate of every kind, one after another, in the hands of a forger with a list of bad values."""

from __future__ import annotations

import copy
import json
import math
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from effort import trials
from forging import REFUSED, Proof, signed
from oracles import is_true
from real import MAKERS, real
from test_mutations import Place, places, put

from lawful import verify
from lawful.verify import KINDS

HERE = "@@here@@"
TOKENS = (  # as they stand in a file
    "NaN", "Infinity", "-Infinity", "1e400", "-1e400", "1e-400", "-0.0", "0", "1", "-1", "2", "0.5", "1e300",
    "true", "false", "null", "[]", "{}", "[[]]", "[0]", '""', '"1"', '" 1"', '"1 "', '"+1"', '"1_000"', '"１２"',
    '"٣"', '"1/0"', '"-0"', '"00"', '"1e3"', '"NaN"', '"1/２"', "1" + "0" * 400, "1" + "0" * 5000, "9007199254740993",
)  # fmt: skip
CHECKS = trials(50, 150)  # of the thousands of forgeries of a certificate
SLOW = {"laws of a module": 30, "laws near": trials(30, 60)}  # whose re-check takes longest


def at(proof: Proof, place: Place) -> Any:
    inner: Any = proof
    for key in place:
        inner = inner[key]
    return inner


def near(value: Any) -> list[Any]:
    """Numbers, fractions and lists that differ a little."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, value - 1, -value, 2 * value, float(value), value + 2**64]
    if isinstance(value, float):
        return [
            math.nextafter(value, math.inf),
            math.nextafter(value, -math.inf),
            -value,
            2 * value,
            value / 2,
            1 + value,
        ]
    if isinstance(value, str):
        return [f"-{value}", f"{value}1", value.upper(), value[:-1], f"{value}/3", f"{value}\n"]
    if isinstance(value, list) and value:
        return [value[:-1], value[1:], [*value, value[-1]], value[::-1], value[:1], [value]]
    return []


Forgery = tuple[str, Callable[[], str]]  # what is done, and how the file's text is then made


def forgeries(proof: Proof) -> Iterator[Forgery]:
    """All single changes."""
    for place in places(proof):
        old = at(proof, place)
        yield from ((f"{place} = {token[:20]}", partial(_with_token, proof, place, token)) for token in TOKENS)
        for value in (*near(old), 0, -0.0, 1, -1, 2, 0.5, 1e300, [], None, True):
            for sign in (False, True):
                yield f"{place} ~ {str(value)[:40]}{', signed' * sign}", partial(_with, proof, place, value, sign)
        if isinstance(old, dict):
            yield from _keys(proof, place, old)
    yield from _keys(proof, (), proof)


def _with(proof: Proof, place: Place, value: Any, sign: bool = False) -> str:
    changed = put(proof, place, value) if place else value
    return json.dumps(signed(changed) if sign else changed)


def _with_token(proof: Proof, place: Place, token: str) -> str:
    return _with(proof, place, HERE).replace(f'"{HERE}"', token)


def _keys(proof: Proof, place: Place, old: Proof) -> Iterator[Forgery]:
    """Each key dropped, twice, and under another name."""
    for key, value in old.items():
        less = {name: each for name, each in old.items() if name != key}
        for what, new in (("dropped", less), ("renamed", {**less, f"{key} ": value}), ("more", {**old, f"{key}2": 0})):
            yield f"{place} {key} {what}", partial(_with, proof, place, new)
        for again in (json.dumps(value), "0"):
            for number, ordered in enumerate(({HERE: 0, **old}, {**old, HERE: 0})):
                yield f"{place} {key} twice {number} {again[:20]}", partial(_twice, proof, place, ordered, key, again)


def _twice(proof: Proof, place: Place, ordered: Proof, key: str, value: str) -> str:
    return _with(proof, place, ordered).replace(f'"{HERE}": 0', f"{json.dumps(key)}: {value}")


def accepted(text: str) -> str | None:
    """The statement, if it is accepted and not true."""
    try:
        found = verify(text)
    except REFUSED:
        return None
    proof = json.loads(text)
    return None if is_true(proof, found) else found.statement


@pytest.mark.parametrize("name", MAKERS)
def test_no_field_can_be_forged(name: str) -> None:
    """A fixed sample of all single changes; each is refused, or what is then stated is true."""
    every, most = list(forgeries(real(name))), SLOW.get(name, CHECKS)
    chosen = [each for each in every if zlib.crc32(each[0].encode()) % len(every) < most]
    assert len(chosen) > most / 3
    believed = {what: said for what, make in chosen if (said := accepted(make())) is not None}
    assert believed == {}


@pytest.mark.parametrize("name", MAKERS)
def test_no_key_is_missing_or_twice(name: str) -> None:
    """All keys at the top, each dropped, renamed, added and repeated."""
    for what, make in _keys(real(name), (), real(name)):
        if what.endswith("dropped"):  # a few may be left out, and less is then said
            assert accepted(make()) is None, what
            continue
        with pytest.raises(REFUSED):
            verify(make())


@pytest.mark.parametrize("name", MAKERS)
def test_a_certificate_is_of_one_kind(name: str) -> None:
    proof = real(name)
    for kind in KINDS.keys() - {proof["kind"]}:
        relabelled = copy.deepcopy(proof) | {"kind": kind}
        for forged in (relabelled, signed(relabelled)):
            with pytest.raises(REFUSED):
                verify(forged)
