"""`lawful verify`: three outcomes, the same in words, JSON and exit codes; and bytes that nobody meant."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from effort import trials
from forging import REFUSED
from hypothesis import given, settings
from hypothesis import strategies as st
from real import MAKERS, real, redundant

from lawful import verify
from lawful.sources.files import write


@pytest.fixture
def proof(tmp_path: Path) -> Path:
    path = tmp_path / "proof.json"
    path.write_text(json.dumps(real("pruning")), encoding="utf-8")
    return path


def test_verified(lawful: Any, proof: Path, tmp_path: Path) -> None:
    network = tmp_path / "net.safetensors"
    write(redundant(), network)
    said = lawful("verify", proof, network).stdout
    assert said.startswith(f"verified: {verify(real('pruning')).statement}\n")
    assert f"is {network}" in said
    assert "give the networks" in lawful("verify", proof).stdout
    found = lawful("verify", proof, network, "--json").json
    assert (found["valid"], found["kind"], found["reason"], found["given"]) == (True, "pruning", None, [0])
    assert found["statement"] == verify(real("pruning")).statement
    assert found["facts"]["neurons_before"] == 5


def test_rejected(lawful: Any, proof: Path) -> None:
    assert "REJECTED: the certificate is not about 2-5-2 relu" in lawful("verify", proof, "2-5-2 relu", code=1).stdout
    proof.write_text(json.dumps(real("pruning") | {"neurons_after": 1}), encoding="utf-8")
    assert "REJECTED" in lawful("verify", proof, code=1).stdout
    found = lawful("verify", proof, "--json", code=1).json
    assert (found["valid"], found["kind"], found["statement"]) == (False, "pruning", None)
    assert "not the stated numbers" in found["reason"]


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"kind": []}', '{"kind": "laws"}', "NaN", "\x00", "{" * 10_000])
def test_not_a_certificate(lawful: Any, proof: Path, text: str) -> None:
    proof.write_text(text, encoding="utf-8")
    run = lawful("verify", proof, code=2)
    assert run.stdout == ""
    assert run.stderr.startswith(f"lawful: {proof}: ")
    assert len(run.stderr.splitlines()) == 1


def test_what_is_no_file(lawful: Any, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "absent.json", tmp_path, tmp_path / "pipe", Path("/dev/zero")):
        lawful("verify", path, code=2)


def test_a_verb_says_how_its_certificate_is_checked(lawful: Any, tmp_path: Path) -> None:
    path = tmp_path / "a proof.json"
    for arguments in (("components", "2-3-1 relu"), ("singular", "2-3-1 relu", "--exist"), ("rebalance", "2-3-1 relu")):
        said = lawful(*arguments, "--certificate", path).stderr
        assert f"`lawful verify '{path}'` re-checks it" in said
        assert "verified: " in lawful("verify", path, "2-3-1 relu").stdout


@settings(max_examples=trials(100, 300), deadline=None, derandomize=True)
@given(st.sampled_from(sorted(MAKERS)), st.data())
def test_damaged_bytes_raise_nothing_else(name: str, data: st.DataObject) -> None:
    whole = bytearray(json.dumps(real(name)).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(whole) - 1))
        match data.draw(st.integers(0, 3)):
            case 0:
                del whole[place:]
            case 1:
                whole[place] = data.draw(st.integers(0, 255))
            case 2:
                whole[place:place] = data.draw(st.sampled_from([b"9", b"-", b"e9", b"[", b'"', b",", b"null", b"\xff"]))
            case _:
                del whole[place : place + data.draw(st.integers(1, 40))]
        if not whole:
            return
    with suppress(*REFUSED):
        verify(bytes(whole))
