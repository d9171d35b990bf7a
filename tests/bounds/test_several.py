"""Specifications of several networks: the literal question of the file, against grids whose truth is known."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import in_process
from effort import trials

import lawful
from lawful import Mlp, write
from lawful.api.specifications import joint_question
from lawful.bounds.property import PropertyCheck
from lawful.formats.queries.joint_specification import join
from lawful.formats.queries.specification import specification_of
from lawful.formats.queries.vnnlib import Variable, normal_form, parse_vnnlib

DECLARED = """(vnnlib-version <2.0>)
(declare-network f (declare-input X_f real [1,{n}]) (declare-output Y_f real [{m}]))
(declare-network g {relation} (declare-input X_g real [1,{n}]) (declare-output Y_g real [{m}]))
"""
SAME = "(assert (and (<= X_f[0,0] 1) (>= X_f[0,0] -1)))(assert (== X_f[0,0] X_g[0,0]))"
ORDERED = "(assert (and (<= X_f[0,0] 1) (>= X_f[0,0] -1)))(assert (and (>= X_f[0,0] X_g[0,0]) (>= X_g[0,0] -1)))"
EITHER = "(or (> Y_g[0] (+ Y_f[0] {e})) (< Y_g[0] (- Y_f[0] {e})))"


def two(asserted: str, relation: str = "(isomorphic-to f)", n: int = 1, m: int = 1) -> str:
    return DECLARED.format(n=n, m=m, relation=relation) + asserted


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """|x|, |x| + 1/4 relu(x), relu(x) and relu(x) − relu(−x): as far apart as is written, and the last ones rise."""
    for name, (positive, negative) in {"a": (1, 1), "b": (1.25, 1), "rises": (1, 0), "odd": (1, -1)}.items():
        write(Mlp([[[1.0], [-1.0]], [[positive, negative]]]), tmp_path / f"{name}.json")
    return tmp_path


@pytest.mark.parametrize(
    ("asserted", "networks", "codes"),
    [
        (SAME + f"(assert {EITHER.format(e=0.3)})", "a b", {0}),  # b - a is between 0 and 1/4
        (SAME + f"(assert {EITHER.format(e=0.2)})", "a b", {1}),
        (SAME + f"(assert {EITHER.format(e=0.25)})", "a b", {0, 3}),  # strict: never more than 1/4
        (SAME + "(assert (>= Y_g[0] (+ Y_f[0] 0.25)))", "a b", {1, 3}),  # not strict: 1/4 occurs
        (SAME + "(assert (< Y_g[0] (- Y_f[0] 0.2)))", "a b", {0}),  # the other way they never differ by more
        (SAME + "(assert (< Y_g[0] (- Y_f[0] 0.2)))", "b a", {1}),
        (SAME + "(assert (and (<= Y_g[0] (+ Y_f[0] 0.2)) (>= Y_g[0] (- Y_f[0] 0.2))))", "a b", {1}),  # close somewhere
        (SAME + "(assert (and (> Y_g[0] (+ Y_f[0] 0.2)) (< Y_g[0] (- Y_f[0] 0.2))))", "a b", {0}),  # contradicts itself
        (SAME + "(assert (>= Y_g[0] (+ Y_f[0] 0.2)))(assert (<= X_g[0,0] 0.5))", "a b", {0}),  # bounds of either count
        (SAME + "(assert (>= Y_g[0] (+ Y_f[0] 0.2)))(assert (>= X_g[0,0] 0.5))", "a b", {1}),
        (SAME + "(assert (>= (+ Y_g[0] Y_f[0]) 2.25))", "a b", {1, 3}),
        (SAME + "(assert (>= (+ Y_g[0] Y_f[0]) 2.3))", "a b", {0}),
        (ORDERED + "(assert (Y_f[0] < Y_g[0]))", "rises", {0}),
        (ORDERED + "(assert (Y_f[0] < Y_g[0]))", "odd", {0}),
        (ORDERED + "(assert (Y_f[0] < Y_g[0]))", "a", {1}),
        (ORDERED + "(assert (Y_f[0] > Y_g[0]))", "rises", {1}),
        (ORDERED + "(assert (<= Y_f[0] Y_g[0]))", "odd", {1, 3}),  # at equal inputs
        (ORDERED + "(assert (<= (+ Y_f[0] 1.01) Y_g[0]))", "a", {0}),  # falls, but by at most 1
        (ORDERED + "(assert (<= (+ Y_f[0] 0.9) Y_g[0]))", "a", {1}),
        (ORDERED.replace(">= X_f[0,0] X_g", "<= X_f[0,0] X_g").replace(">= X_g[0,0] -1", "<= X_g[0,0] 1")
         + "(assert (Y_f[0] > Y_g[0]))", "rises", {0}),
    ],
)  # fmt: skip
def test_the_question_is_the_literal_one(
    lawful: Any, place: Path, asserted: str, networks: str, codes: set[int]
) -> None:
    files = [place / f"{name}.json" for name in networks.split()]
    relation = "(equal-to f)" if len(files) == 1 else "(isomorphic-to f)"
    spec, proof, result = place / "s.vnnlib", place / "proof.json", place / "r.txt"
    spec.write_text(two(asserted, relation))
    run = in_process("check", *files, spec, "--certificate", proof, "--result", result, "--seconds", 2)
    assert run.returncode in codes, run.stdout
    word = {0: "unsat", 1: "sat", 3: "timeout"}[run.returncode]
    assert result.read_text().split()[0] == word
    if proof.exists():
        assert f"it answers {spec}" in lawful("verify", proof, *files, spec).stdout
        wrong = place / ("b.json" if len(files) == 1 else "odd.json")
        lawful("verify", proof, *[wrong] * len(files), spec, code=1)
    elif run.returncode == 0:
        assert "vacuous" in run.stdout


def test_certificates_answer_only_what_they_imply(lawful: Any, place: Path) -> None:
    a, b, spec, proof = place / "a.json", place / "b.json", place / "s.vnnlib", place / "proof.json"
    spec.write_text(two(SAME + f"(assert {EITHER.format(e=0.3)})"))
    lawful("check", a, b, spec, "--certificate", proof)
    weak = json.loads(proof.read_text())
    weak["upper"] = "2/5"
    proof.write_text(json.dumps(weak))
    assert "it answers" not in lawful("verify", proof, a, b, spec).stdout
    weak["upper"] = "1/5"  # forged: they differ by 1/4
    proof.write_text(json.dumps(weak))
    lawful("verify", proof, a, b, spec, code=1)
    spec.write_text(two(ORDERED + "(assert (Y_f[0] < Y_g[0]))", "(equal-to f)"))
    rises = place / "rises.json"
    lawful("check", rises, spec, "--certificate", proof)
    for other in (ORDERED + "(assert (Y_f[0] > Y_g[0]))", ORDERED.replace("1", "2") + "(assert (Y_f[0] < Y_g[0]))"):
        spec.write_text(two(other, "(equal-to f)"))
        assert "not about" in lawful("verify", proof, rises, spec, code=1).stdout


def test_random_questions_against_a_grid(tmp_path: Path) -> None:
    """Definite answers agree with all pairs of a grid; what is shown is described by the file's own formula."""
    rng = np.random.default_rng(0)
    grid = np.arange(-8, 9) / 8  # weights are quarters: floats are exact
    for number in range(trials(20, 200)):
        networks = [
            Mlp([rng.integers(-4, 5, (3, 1)) / 4 + 0.0, rng.integers(1, 5, (1, 3)) / 4 * rng.choice([-1, 1], (1, 3))])
            for _ in range(2)
        ]
        equal = number % 3 == 0
        if equal:
            networks[1] = networks[0]
        inputs = SAME if number % 2 else ORDERED
        e, sign = Fraction(int(rng.integers(0, 9)), 8), rng.choice(["<", ">", "<=", ">="])
        choices = [EITHER.format(e=float(e)), f"({sign} Y_f[0] (+ Y_g[0] {float(e)}))",
                   f"(and ({sign} Y_f[0] Y_g[0]) (>= Y_f[0] {float(e)}))"]  # fmt: skip
        text = two(f"{inputs}(assert {rng.choice(choices)})", "(equal-to f)" if equal else "(isomorphic-to f)")
        file = tmp_path / "s.vnnlib"
        file.write_text(text)
        found = lawful.check(networks[0], file, others=[] if equal else [networks[1]], seconds=2.0)
        parsed = parse_vnnlib(text)
        formula = normal_form(parsed, parsed.asserted)

        def described(x: list[Any], y: list[Any], formula: Any = formula) -> bool:
            names = [Variable(name, 0) for name in ("X_f", "X_g", "Y_f", "Y_g")]
            values = dict(zip(names, map(Fraction, [*x, *y]), strict=True))
            return all(row.holds(values) for row in formula.shared) and any(
                all(row.holds(values) for row in case) for case in formula.cases
            )

        outputs = [network.evaluate(grid[:, None])[:, 0] for network in networks]
        occurs = any(
            described([grid[i], grid[j]], [outputs[0][i], outputs[1][j]])
            for i in range(len(grid)) for j in range(len(grid)) if i == j or inputs == ORDERED
        )  # fmt: skip
        assert not (found.status == "holds" and occurs), text
        if found.status == "violated":
            assert isinstance(found, PropertyCheck)
            assert found.exact_input is not None
            x = [found.exact_input[0], found.exact_input[-1]]
            assert described(x, list(found.outputs or ())), text
        else:
            assert not occurs or found.status == "undecided", text


def test_joint_variables() -> None:
    text = parse_vnnlib(two(
        "(assert (== X_f[0,0] X_g[0,0]))(assert (<= X_f[0,1] 1))(assert (>= X_g[0,1] 0))"
        "(assert (>= X_f[0,1] X_g[0,1]))(assert (and (<= X_g[0,0] 3) (>= X_f[0,0] 2)))(assert (> Y_f[0] Y_g[0]))", n=2,
    ))  # fmt: skip
    joint = join(specification_of(text))
    assert (joint.inputs, joint.outputs) == (3, 2)
    assert (joint.of("f", "input"), joint.of("g", "input")) == ([0, 1], [0, 2])
    ((box, rows),) = joint.specification.disjuncts
    assert [(box["X", k].low, box["X", k].high) for k in range(3)] == [(2, 3), (0, 1), (0, 1)]  # type: ignore[index]
    assert len(rows) == 2
    assert joint.tolerance() is None
    assert joint.growth() == ({1: False}, (0,))


def test_equal_inputs_of_one_network_stay_two(tmp_path: Path) -> None:
    file, network = tmp_path / "s.vnnlib", Mlp([[[1.0, 2.0]], [[1.0]]])
    bounds = "".join(f"(assert (and (<= X_{n}[0,{i}] 1) (>= X_{n}[0,{i}] -1)))" for n in "fg" for i in range(2))
    equal = "(assert (== X_f[0,0] X_g[0,1]))(assert (== X_f[0,1] X_g[0,1]))(assert (== X_f[0,0] X_g[0,0]))"
    for least, statuses in ((3.1, {"holds"}), (2.9, {"violated", "undecided"})):
        file.write_text(two(f"{bounds}{equal}(assert (>= Y_f[0] {least}))", "(equal-to f)", n=2))
        assert lawful.check(network, file, seconds=2.0).status in statuses


@pytest.mark.parametrize(
    ("arguments", "text", "words"),
    [
        (("f=a.json", "h=b.json"), two(SAME), "declares the networks f, g, not h"),
        (("f=a.json", "b.json"), two(SAME), "not one without a name"),
        (("a.json",), two(SAME), "is about f and g: give a file for each"),
        (("a.json", "b.json", "a.json"), two(SAME), "is about f and g"),
        (("a.json", "missing.json"), two(SAME), "missing.json"),
        (("a.json", "wide.json"), two(SAME), "declares g with 1 input, but its network has 2"),
        (("a.json", "b.json"), two(SAME, "(equal-to f)"), "declares g equal to f, but the files are other networks"),
        (("a.json", "b.json"), two(SAME, "(isomorphic-to h)"), "g is isomorphic-to h, which is not another one here"),
        (("a.json",), two(SAME, "(equal-to g)"), "g is equal-to g"),
        (("a.json", "b.json"), two(SAME).replace("X_g real [1,1]", "X_g real [1,2]"), "has 1"),
        (("a.json", "b.json"), two("(assert (<= X_f[0,0] 1))(assert (> Y_f[0] Y_g[0]))"), "no lower and upper bound"),
        (("a.json", "b.json"), two(SAME).replace("network g", "network f"), "declared twice"),
        (("a.json", "b.json"), "(declare-const X_0 Real)", "is about one network, and 2 were given"),
        (("a.json", "b.json"), "; nothing", "s.vnnlib: the specification is empty"),
        (("a.json",), "", "s.vnnlib: the specification is empty"),
        (("a.json", "b.json"), None, "s.vnnlib"),
        (("a.json", "b.json", "--box", "0,1"), two(SAME), "names its own box"),
    ],
)
def test_bad_input(lawful: Any, place: Path, arguments: tuple[str, ...], text: str | None, words: str) -> None:
    write(Mlp([[[1.0, 1.0]], [[1.0]]]), place / "wide.json")
    if text is not None:
        (place / "s.vnnlib").write_text(text)
    options = [each for each in arguments if each.startswith("--") or each == "0,1"]
    files = [each for each in arguments if each not in options]
    said = lawful("check", *files, "s.vnnlib", *options, code=2, cwd=place).stderr
    assert words in said
    assert len(said.strip().splitlines()) == 1


def test_instances_of_several_networks(lawful: Any, place: Path) -> None:
    (place / "near.vnnlib").write_text(two(SAME + f"(assert {EITHER.format(e=0.3)})"))
    (place / "far.vnnlib").write_text(two(SAME + f"(assert {EITHER.format(e=0.2)})"))
    (place / "up.vnnlib").write_text(two(ORDERED + "(assert (Y_f[0] < Y_g[0]))", "(equal-to f)"))
    pair = "\"[('f', 'a.json'), ('g', 'b.json')]\""
    lines = [f"{pair},near.vnnlib,9", f"{pair},far.vnnlib,9", "\"[('f', 'rises.json')]\",up.vnnlib,9",
             "\"[('f', 'a.json'), ('g', 'a.json')]\",up.vnnlib,9",
             "\"[('f', 'a.json'), 3]\",near.vnnlib,9"]  # fmt: skip
    (place / "instances.csv").write_text("\n".join(lines))
    said = lawful("vnncomp", place / "instances.csv", "--threads", 1, "--out", place / "o.csv", "--json", code=3).json
    assert [each["result"] for each in said["results"]] == ["unsat", "sat", "unsat", "sat", "error"]
    assert said["certified"] == 4


def test_sizes_are_those_of_the_networks(place: Path) -> None:
    (place / "s.vnnlib").write_text(two(SAME))
    networks = {name: Mlp([[[1.0, 1.0]], [[1.0]]]) for name in "fg"}
    with pytest.raises(lawful.LawfulError, match="declares f with 1 inputs"):
        joint_question(place / "s.vnnlib", networks)
