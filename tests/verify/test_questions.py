"""A certificate is about one question: another specification, box, balance or network is refused by its name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lawful import Mlp, write

BOX = "".join(f"(declare-const X_{i} Real)(assert (<= X_{i} 1))(assert (>= X_{i} -1))\n" for i in range(2))
NEVER = "(assert (or (>= Y_1 2.001) (and (>= Y_0 0.75) (<= Y_1 0.5))))"


@pytest.fixture
def asked(tmp_path: Path) -> Path:
    """Outputs |x0| and |x0| + |x1|, and a question about them."""
    weights = [[[1, 0], [-1, 0], [0, 1], [0, -1]], [[1, 1, 0, 0], [1, 1, 1, 1]]]
    write(Mlp(weights), tmp_path / "net.json")
    (tmp_path / "spec.vnnlib").write_text(BOX + NEVER)
    return tmp_path


def test_a_property_answers_its_specification(lawful: Any, asked: Path) -> None:
    net, spec, proof = asked / "net.json", asked / "spec.vnnlib", asked / "proof.json"
    lawful("check", net, spec, "--certificate", proof)
    assert f"it answers {spec}" in lawful("verify", proof, net, spec).stdout
    other = asked / "other.vnnlib"
    same = [
        "(assert (or (and (<= Y_1 0.5) (>= Y_0 0.75)) (>= Y_1 2.001)))",  # in another order
        "(assert (or (>= (* 2.0 Y_1) 4.002) (and (>= Y_0 0.75) (<= Y_1 0.5))))",  # the same half-space
    ]
    for text in same:
        other.write_text(BOX + text)
        lawful("verify", proof, net, other)
    for text in (NEVER.replace("0.75", "0.5"), "(assert (>= Y_1 2.001))", NEVER.replace("<= Y_1", ">= Y_1")):
        other.write_text(BOX + text)
        said = lawful("verify", proof, net, other, code=1).stdout
        assert f"REJECTED: the certificate is not about {other}" in said
    for text in (BOX.replace("X_0 1)", "X_0 2)"), BOX + "(declare-const X_2 Real)(assert (<= X_2 1))"):
        other.write_text(text + NEVER)
        assert f"not about {other}" in lawful("verify", proof, net, other, code=1).stdout
    other.write_text(BOX.replace("X_0 1)", "X_0 0.5)") + NEVER)  # a smaller box is answered too
    lawful("verify", proof, net, other)


def test_one_box_does_not_answer_two(lawful: Any, asked: Path) -> None:
    net, spec, proof = asked / "net.json", asked / "spec.vnnlib", asked / "proof.json"
    lawful("check", net, spec, "--certificate", proof)
    far = "(and (<= X_0 1) (>= X_0 -1) (>= Y_1 9)) (and (<= X_0 7) (>= X_0 6) (>= Y_1 9))"
    two = asked / "two.vnnlib"
    free = "(declare-const X_0 Real)" + BOX.partition("\n")[2]
    two.write_text(f"{free}(assert (or {far}))")
    assert "2 boxes" in lawful("verify", proof, net, two, code=1).stdout


def test_a_violation_is_what_the_file_describes(lawful: Any, asked: Path) -> None:
    net, spec, proof = asked / "net.json", asked / "spec.vnnlib", asked / "proof.json"
    spec.write_text(BOX + "(assert (>= Y_1 1.5))")
    lawful("check", net, spec, "--certificate", proof, code=1)
    assert "it answers" in lawful("verify", proof, net, spec).stdout
    spec.write_text(BOX + "(assert (>= Y_1 1.9999999))" + "(assert (<= Y_0 0.5))")
    assert f"not about {spec}" in lawful("verify", proof, net, spec, code=1).stdout
    spec.write_text(BOX.replace(">= X_0 -1", ">= X_0 1") + "(assert (>= Y_1 1.5))")
    found = json.loads(proof.read_text())["input"]
    lawful("verify", proof, spec, code=0 if found[0] == 1 else 1)


def test_boxes_and_balances(lawful: Any, asked: Path) -> None:
    net, proof = asked / "net.json", asked / "proof.json"
    lawful("same", net, net, "--box", "-1,1", "--certificate", proof)
    lawful("verify", proof, net, net, "--box", "-1,1")
    assert "not about --box 0,1" in lawful("verify", proof, net, net, "--box", "0,1", code=1).stdout
    said = lawful("verify", proof, net, net, asked / "spec.vnnlib").stdout  # what it says of outputs is not answered
    assert "its box is that of" in said
    assert "it answers" not in said
    assert "not about --box" in lawful("verify", proof, net, net, "--box", "-1:1,-1:2", code=1).stdout
    lawful("same", net, net, "--certificate", proof)
    assert "about all inputs" in lawful("verify", proof, "--box", "-1,1", code=1).stdout
    balance, other = asked / "balance.json", asked / "other.json"
    balance.write_text('[-3, "1/2"]')
    other.write_text("[-3, 1]")
    lawful("components", "2-2-1", "--balance", balance, "--certificate", proof)
    lawful("verify", proof, "2-2-1", "--balance", balance)
    assert f"not about {other}" in lawful("verify", proof, "2-2-1", "--balance", other, code=1).stdout
    other.write_text('{"h0": -3, "h1": 0.5}')
    lawful("verify", proof, "--balance", other, code=1)  # whose nodes?


def test_the_sentence_repeats_the_whole_box(lawful: Any, tmp_path: Path) -> None:
    """Six sides: a box of four with dots for the rest was another question with the same sentence."""
    net, spec, proof = tmp_path / "net.json", tmp_path / "spec.vnnlib", tmp_path / "proof.json"
    write(Mlp([[[1.0] * 6], [[1.0]]]), net)
    sides = "".join(f"(declare-const X_{i} Real)(assert (<= X_{i} {i + 1}))(assert (>= X_{i} 0))\n" for i in range(6))
    spec.write_text(sides + "(declare-const Y_0 Real)(assert (>= Y_0 30))")
    lawful("check", net, spec, "--certificate", proof)
    said = lawful("verify", proof, net, spec).stdout
    assert all(f"[0, {i + 1}]" in said for i in range(6))
    assert "Y_0" in said
