"""Splitting phases and halves: answers against a mixed-integer program, certificates against forgers."""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bounds.milp_oracle import Instance, nearest, random_instance, rescale

from lawful import write
from lawful.bounds.layers import Layer, exact_outputs
from lawful.bounds.split.certificate import certificate_of_specification, packed_network
from lawful.bounds.split.multipliers import gradient_of
from lawful.bounds.split.relaxation import bound_case, lines_of
from lawful.bounds.split.search import HalvingSearch, PhaseSearch, SearchOutcome
from lawful.errors import LawfulError
from lawful.formats.queries.specification import ForbiddenHalfSpace, ForbiddenRegion
from lawful.network import Dag, Mlp
from lawful.network.digest import digest
from lawful.network.validity import Role
from lawful.verify import verify
from lawful.verify.bounds.packed import read_packed

MOST_NODES = 250  # of one search: about half a second


def as_dag(layers: tuple[Layer, ...]) -> Dag:
    """Layers as a graph: neurons of slope 1 are hidden nodes like others."""
    widths = [layers[0].weight.shape[1], *(len(layer.bias) for layer in layers)]
    starts = np.cumsum([0, *widths])
    roles = [int(Role.INPUT)] * widths[0] + [int(Role.HIDDEN)] * sum(widths[1:-1]) + [int(Role.OUTPUT)] * widths[-1]
    names = [str(i) for i in range(len(roles))] + ["one"]
    tails, heads, theta = [], [], []
    for number, (weight, bias, _) in enumerate(layers):
        for i, j in np.ndindex(*weight.shape):
            tails.append(int(starts[number] + j))
            heads.append(int(starts[number + 1] + i))
            theta.append(float(weight[i, j]))
        for i, shift in enumerate(bias):
            tails.append(len(roles))
            heads.append(int(starts[number + 1] + i))
            theta.append(float(shift))
    slopes = np.concatenate([np.ones(widths[0]), *(layer.slopes for layer in layers), [1.0]])
    return Dag(names, [*roles, int(Role.CONSTANT)], tails, heads, theta, slopes.tolist())


def certificate(instance: Instance, found: SearchOutcome) -> dict[str, Any]:
    low, high = (tuple(Fraction(float(v)) for v in end) for end in (instance.low, instance.high))
    region = ForbiddenRegion(low, high, instance.forbidden)
    return certificate_of_specification(
        as_dag(instance.layers), [region], point=found.input, proofs=None if found.tree is None else [found.tree]
    )


def moved(instance: Instance, point: np.ndarray) -> Instance:
    """The question with its first case moved until it contains a point."""
    x = [Fraction(float(v)) for v in point]
    y = exact_outputs(instance.layers, point)
    case = []
    for space in instance.forbidden[0]:
        value = sum((a * v for a, v in zip(space.outputs, y, strict=True)), Fraction(0))
        value += sum((a * v for a, v in zip(space.inputs, x, strict=False)), Fraction(0))
        case.append(space._replace(bound=max(space.bound, value), strict=False))
    return replace(instance, forbidden=(tuple(case), *instance.forbidden[1:]))


def attempt(seed: int) -> str:
    """One random question, asked four times; what became of it."""
    rng = np.random.default_rng(seed)
    instance, points = random_instance(rng)
    truth = any(instance.reached(point) for point in points)
    asked = [(instance, None), (instance, bool(rng.random() < 0.5)), (rescale(instance, rng), None)]
    words = []
    searches = [(each, PhaseSearch(each.question, each.replay, 60.0, seed, full)) for each, full in asked]
    for each, search in (*searches, (instance, HalvingSearch(instance.question, instance.replay, 60.0, seed))):
        found = search.run(MOST_NODES)  # a limit of seconds would ask less of a busy machine
        words.append(found.status)
        assert not (truth and found.status == "holds"), f"{seed}: FALSE PROOF"
        if found.input is not None:
            assert each.reached(found.input)
        if found.status != "undecided":
            verify(json.dumps(certificate(each, found)), as_dag(each.layers))
        if found.tree is not None:
            other = moved(each, points[0] if each is instance else (each.low + each.high) / 2)
            forged = certificate(other, found)
            with pytest.raises(LawfulError):
                verify(forged)
    return " ".join(words[:3])  # halves alone need not decide: questions have many inputs


@pytest.mark.parametrize("start", range(0, 30, 10))
def test_random_questions_against_a_mixed_integer_program(start: int) -> None:
    outcomes = [attempt(seed) for seed in range(start, start + 10)]
    assert sum("undecided" not in words for words in outcomes) >= 6, outcomes


def cube(clauses: list[list[int]], variables: int) -> Instance:
    """A formula as a network on [0, 1]^n: output 0 counts clauses that fail, output 1 is how far x is from integral."""
    weight = np.zeros((len(clauses) + 2 * variables, variables))
    bias = np.zeros(len(weight))
    for row, clause in enumerate(clauses):  # relu(1 - sum of literals)
        for literal in clause:
            sign = 1.0 if literal > 0 else -1.0
            weight[row, abs(literal) - 1] -= sign
            bias[row] -= 0.0 if literal > 0 else 1.0
        bias[row] += 1.0
    for at in range(variables):  # relu(x) - 2 relu(x - 1/2) = min(x, 1 - x)
        weight[len(clauses) + 2 * at, at] = weight[len(clauses) + 2 * at + 1, at] = 1.0
        bias[len(clauses) + 2 * at + 1] = -0.5
    last = np.zeros((2, len(weight)))
    last[0, : len(clauses)] = 1.0
    last[1, len(clauses) :: 2], last[1, len(clauses) + 1 :: 2] = 1.0, -2.0
    layers = (Layer(weight, bias, np.zeros(len(bias))), Layer(last, np.zeros(2), np.ones(2)))
    rows = ((Fraction(1), Fraction(0)), (Fraction(0), Fraction(1)))
    case = tuple(ForbiddenHalfSpace(row, (), Fraction(0), strict=False) for row in rows)
    return Instance(layers, np.zeros(variables), np.ones(variables), (case,))


@pytest.mark.parametrize("seed", range(6))
def test_random_formulas_against_enumeration(seed: int) -> None:
    """3-SAT at the threshold of 4.3 clauses a variable, as sat_relu has it: all 2^9 assignments are tried."""
    rng, variables = np.random.default_rng(seed), 9
    clauses = [
        [int(v + 1) * int(rng.choice([-1, 1])) for v in rng.choice(variables, 3, replace=False)] for _ in range(40)
    ]
    values = (np.arange(2**variables)[:, None] >> np.arange(variables)) & 1
    held = np.ones(len(values), dtype=bool)
    for clause in clauses:
        held &= np.any([values[:, abs(each) - 1] == (each > 0) for each in clause], axis=0)
    instance = cube(clauses, variables)
    found = PhaseSearch(instance.question, instance.replay, 20.0, 0).run()
    assert found.status == ("violated" if held.any() else "holds")
    verify(certificate(instance, found))


def hard() -> tuple[Instance, SearchOutcome]:
    """A question with a tree of many nodes, phases and halves among them."""
    rng = np.random.default_rng(5)
    widths, layers = [3, 10, 10, 2], []
    for n, m in pairwise(widths):
        layers.append(Layer(rng.normal(size=(m, n)), rng.normal(size=m) / 2, np.zeros(m)))
    layers[-1] = layers[-1]._replace(slopes=np.ones(2))
    _, low = nearest(tuple(layers), -np.ones(3), np.ones(3), np.eye(2), np.zeros((2, 3)), np.zeros(2))
    rows = ((Fraction(1), Fraction(0)), (Fraction(0), Fraction(1)))  # both small: no row alone excludes it
    case = tuple(ForbiddenHalfSpace(row, (), Fraction(low) - Fraction(1, 20), strict=False) for row in rows)
    instance = Instance(tuple(layers), -np.ones(3), np.ones(3), (case,))
    return instance, PhaseSearch(instance.question, instance.replay, 30.0, 0).run()


def test_trees_are_refused_when_they_are_changed() -> None:
    instance, found = hard()
    assert found.tree is not None
    assert len(found.tree.splits) > 10
    proof = certificate(instance, found)
    verify(proof)
    body = proof["proofs"][0]
    leaves, neurons = found.tree.slopes.shape
    first = found.tree.splits[0]

    def packed(table: Any) -> str:
        return base64.b64encode(zlib.compress(table.tobytes())).decode()

    none = {
        "slopes": packed(np.zeros(0, "u1")),
        "pushes": packed(np.zeros(0, "<f4")),
        "weights": packed(np.zeros(0, "<f4")),
    }
    malformed = (
        {"splits": [0]},
        {"splits": body["splits"][:-1]},
        {"splits": [*body["splits"], 0]},
        {"pushes": packed(np.full((leaves, neurons), -1, "<f4"))},
        {"pushes": packed(np.full((leaves, neurons), np.inf, "<f4"))},
        {"weights": packed(np.full((leaves, 2), np.nan, "<f4"))},
        {"slopes": body["slopes"][:-4]},
        {"slopes": packed(np.zeros((leaves + 1, neurons), "u1"))},
        {"rounds": -1},
        {"rounds": 9},
    )
    for change in malformed:
        with pytest.raises(LawfulError):
            verify(proof | {"proofs": [body | change]})
    # A leaf that is open here is halved a few times: a shorter tree may show what is true, never what is false.
    wrong = moved(instance, np.zeros(3))
    shorter = (
        {},
        {"splits": [1 if code == 0 else code for code in body["splits"]], **none},
        {"splits": [first, 1, 1], "middles": body["middles"][: int(first < 0)], **none},
        {"weights": packed(np.zeros((leaves, 1), "<f4"))},
        {"middles": [each + 1e9 for each in body["middles"]]},
        {"rounds": 0},
    )
    for change in shorter:
        with pytest.raises(LawfulError):
            verify(certificate(wrong, found) | {"proofs": [body | change]})
    # Any slopes and multipliers are valid: they may prove less, but never what is false.
    rng = np.random.default_rng(0)
    for _ in range(5):
        body |= {
            "slopes": packed(rng.integers(0, 256, (leaves, neurons)).astype("u1")),
            "pushes": packed(rng.exponential(1, (leaves, neurons)).astype("<f4")),
        }
        with pytest.raises(LawfulError):
            verify(certificate(wrong, found) | {"proofs": [body]})


def test_layers_that_are_linear_are_merged_and_their_phases_prove_nothing() -> None:
    """The tree on both sides of a linear neuron's phase: what is true is still shown, what is false never."""
    instance, _ = hard()
    rng = np.random.default_rng(3)
    first, second, last = instance.layers
    turn = rng.normal(size=(10, 10))
    linear = Layer(np.linalg.inv(turn) @ second.weight, np.linalg.inv(turn) @ second.bias, np.ones(10))
    layers = (first, linear, Layer(turn, np.zeros(10), second.slopes), last)
    case = tuple(space._replace(bound=space.bound - Fraction(1, 10**6)) for space in instance.forbidden[0])
    instance = replace(instance, layers=layers, forbidden=(case,))
    found = PhaseSearch(instance.question, instance.replay, 30.0, 0).run(2000)
    assert found.tree is not None
    verify(certificate(instance, found))
    wrong = moved(instance, np.zeros(3))
    for neuron in (10, 15):  # the second layer's
        twice = found.tree._replace(
            splits=(2 + neuron, *found.tree.splits * 2),
            middles=found.tree.middles * 2,
            slopes=np.tile(found.tree.slopes, (2, 1)),
            pushes=np.tile(found.tree.pushes, (2, 1)),
            weights=np.tile(found.tree.weights, (2, 1)),
        )
        pushed = twice.pushes.copy()
        pushed[:, 10:20] = 1e6
        verify(certificate(instance, found._replace(tree=twice._replace(pushes=pushed))))
        for tree in (twice, twice._replace(pushes=pushed), twice._replace(splits=(2 + neuron, 1, 1))):
            with pytest.raises(LawfulError):
                verify(certificate(wrong, found._replace(tree=tree)))


def test_gradients_are_those_of_the_bound() -> None:
    """Against differences, at multipliers in general position."""
    instance, _ = hard()
    run = PhaseSearch(instance.question, instance.replay, 1.0, 0, True)
    nodes = run.bound_roots()
    rng = np.random.default_rng(1)
    nodes.phase = np.where(rng.random(nodes.phase.shape) < 0.3, rng.choice([-1, 1], nodes.phase.shape), 0).astype(
        np.int8
    )
    nodes.slope = rng.uniform(0.1, 0.9, nodes.slope.shape)
    nodes.push = rng.uniform(0.1, 0.2, nodes.push.shape)
    lines = [lines_of(run.layers, nodes, layer) for layer in range(run.layers.depth)]

    def value(slope: Any, push: Any, weight: Any) -> Any:
        return bound_case(run.layers, run.cases, nodes, lines, slope, push, weight)

    at = (nodes.slope, nodes.push, nodes.weight)
    gradient = gradient_of(run.layers, run.cases, nodes, value(*at))
    for which, own in enumerate((gradient.slope, gradient.push, gradient.weight)):
        for place in range(own.shape[1]):
            step = np.zeros_like(at[which])
            step[0, place] = 1e-6
            moves = [[each + sign * step if k == which else each for k, each in enumerate(at)] for sign in (1, -1)]
            ends = [value(*move) for move in moves]
            assert (ends[0].value[0] - ends[1].value[0]) / 2e-6 == pytest.approx(own[0, place], rel=1e-4, abs=1e-6)


def test_the_digest_of_packed_layers_is_that_of_the_graph() -> None:
    rng = np.random.default_rng(0)
    for biases in ([None, None, None], [np.ones(3), None, -np.zeros(2)], [np.ones(3), np.ones(4), np.ones(2)]):
        network = Mlp([rng.normal(size=(3, 2)), np.zeros((4, 3)), rng.normal(size=(2, 4))], biases, slopes=[0.0, 0.25])
        assert read_packed(json.loads(json.dumps(packed_network(network)))).digest == digest(network)


SPEC = "(declare-const X_0 Real)(declare-const X_1 Real)(declare-const Y_0 Real)\n"
INSIDE = "(assert (<= X_0 1))(assert (>= X_0 -1))(assert (<= X_1 1))(assert (>= X_1 -1))"


@pytest.mark.parametrize(
    ("text", "options", "code", "words"),
    [
        (INSIDE + "(assert (>= Y_1 0))", (), 2, "output 1"),
        (INSIDE.replace("(assert (<= X_1 1))", "") + "(assert (>= Y_0 0))", (), 2, "input 1 has no lower"),
        (INSIDE + "(assert (>= X_0 2))(assert (>= Y_0 0))", (), 0, "vacuous"),
        (INSIDE + "(assert (>= Y_0 0))", ("--time", "0"), 2, "positive number of seconds"),
        (INSIDE + "(assert (>= Y_0 0))", ("--threads", "0"), 2, "at least 1"),
        (INSIDE.replace("<= X_1 1", "<= X_1 1e400") + "(assert (>= Y_0 0))", (), 2, ""),
        (INSIDE + "(assert (>= Y_0 (+ 5 X_1)))", (), 0, "HOLDS"),
        (INSIDE + "(assert (>= Y_0 (+ 0.5 X_1)))", (), 1, "VIOLATED"),
        ("(assert (or (and (>= X_0 0) (<= X_0 1) (>= X_1 0) (<= X_1 1) (>= Y_0 3)) (and (>= X_0 2) (<= X_0 3)"
         " (>= X_1 0) (<= X_1 1) (>= Y_0 5))))", (), 0, "HOLDS"),
    ],
)  # fmt: skip
def test_specifications_on_the_command_line(
    lawful: Any, tmp_path: Path, text: str, options: tuple[str, ...], code: int, words: str
) -> None:
    net, spec, result, proof = (tmp_path / name for name in ("net.json", "s.vnnlib", "result.txt", "proof.json"))
    write(Mlp([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0]]]), net)
    spec.write_text(SPEC + text)
    said = lawful("check", net, spec, "--result", result, "--certificate", proof, *options, code=code)
    assert words in said.stdout + said.stderr
    if code != 2:
        lines = result.read_text().splitlines()
        assert lines[0] == {0: "unsat", 1: "sat"}[code]
        assert len(lines) == (1 if code == 0 else 4)
    if code != 2 and words != "vacuous":
        assert f"it answers {spec}" in lawful("verify", proof, net, spec).stdout


def test_instances_files_go_on_where_they_stopped(lawful: Any, tmp_path: Path) -> None:
    write(Mlp([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0]]]), tmp_path / "net.json")
    (tmp_path / "holds.vnnlib").write_text(SPEC + INSIDE + "(assert (>= Y_0 3))")
    (tmp_path / "fails.vnnlib").write_text(SPEC + INSIDE + "(assert (>= Y_0 1))")
    file, out = tmp_path / "instances.csv", tmp_path / "out.csv"
    file.write_text("net.json,holds.vnnlib,20\nnet.json,missing.vnnlib,20\n")
    lawful("vnncomp", file, "--out", out, "--threads", 1, code=3)
    before = out.read_text()
    assert "missing.vnnlib,error" in before
    file.write_text("net.json,holds.vnnlib,20\nnet.json,fails.vnnlib,20\n")
    said = lawful("vnncomp", file, "--out", out, "--threads", 1, "--json").json
    assert (said["unsat"], said["sat"], said["certified"], said["open"]) == (1, 1, 2, 0)
    assert out.read_text().splitlines()[1] == before.splitlines()[1]  # kept, not run again
    file.write_text("net.json,holds.vnnlib\n")
    assert "2 columns" in lawful("vnncomp", file, code=2).stderr
