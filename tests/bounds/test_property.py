"""`lawful check` and the reading of VNN-LIB conditions on outputs: verdicts replayed, polarity told, misuse refused."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from effort import trials

from lawful import Architecture, CertificateError, Dag, LawfulError, Mlp, write
from lawful.api.specifications import certificate_of_check
from lawful.bounds.layers import exact_outputs, layers_of
from lawful.bounds.property import check_regions
from lawful.formats.queries.joint_specification import equivalence
from lawful.formats.queries.specification import ForbiddenHalfSpace, ForbiddenRegion, read_specification
from lawful.formats.queries.vnnlib import Condition
from lawful.sources.opening import open_graph
from lawful.types import Floats
from lawful.verify import verify

BOX = "".join(f"(declare-const X_{i} Real)(assert (<= X_{i} 1))(assert (>= X_{i} -1))\n" for i in range(2))
TWO = """(vnnlib-version <2.0>)
(declare-network f (declare-input X_f real [2]) (declare-output Y_f real [2]))
(declare-network g (isomorphic-to f) (declare-input X_g real [2]) (declare-output Y_g real [2]))
(assert (and (<= X_f[0] 1) (>= X_f[0] -1) (<= X_f[1] 1) (>= X_f[1] -1)))
(assert (== X_f[0] X_g[0])) (assert (== X_f[1] X_g[1]))
"""


@pytest.fixture
def absolute(tmp_path: Path) -> Path:
    """Outputs |x0| and |x0| + |x1|."""
    weights = [[[1, 0], [-1, 0], [0, 1], [0, -1]], [[1, 1, 0, 0], [1, 1, 1, 1]]]
    write(Mlp(weights), tmp_path / "absolute.json")
    return tmp_path / "absolute.json"


@pytest.mark.parametrize(
    ("condition", "status"),
    [
        ("(assert (<= Y_0 -0.001))", "holds"),
        ("(assert (< Y_1 Y_0))", "undecided"),  # true, but by equality: no strict margin to see
        ("(assert (<= Y_1 (- Y_0 0.01)))", "holds"),
        ("(assert (>= Y_1 1.99))", "violated"),
        ("(assert (>= Y_1 2.001))", "holds"),
        ("(assert (or (>= Y_1 2.001) (and (>= Y_0 0.5) (<= Y_1 0.5))))", "violated"),
        ("(assert (or (>= Y_1 2.001) (and (>= Y_0 0.75) (<= Y_1 0.5))))", "holds"),
        ("(assert (>= (+ Y_0 (* 2.0 Y_1)) 5.5))", "holds"),
        ("(assert (>= (+ Y_0 (* 2.0 Y_1)) 4.9))", "violated"),
    ],
)
def test_verdicts(lawful: Callable[..., Any], absolute: Path, condition: str, status: str) -> None:
    file = absolute.with_name("property.vnnlib")
    file.write_text(BOX + condition)
    code = {"holds": 0, "violated": 1, "undecided": 3}[status]
    said = lawful("check", absolute, file, "--seconds", 3, "--json", code=code).json
    assert said["status"] == status
    if status == "violated":
        x = np.array(said["input"])
        assert (np.abs(x) <= 1).all()
        assert said["outputs"] == pytest.approx([abs(x[0]), abs(x).sum()])
        assert "VIOLATED" in lawful("check", absolute, file, code=1).stdout
    if status == "holds":
        assert "HOLDS" in lawful("check", absolute, file).stdout


def test_certificates(lawful: Callable[..., Any], absolute: Path) -> None:
    file, proof = absolute.with_name("property.vnnlib"), absolute.with_name("proof.json")
    for condition, code, words in (
        ("(assert (or (>= Y_1 2.001) (and (>= Y_0 0.75) (<= Y_1 0.5))))", 0, "no input leads"),
        ("(assert (>= (+ Y_0 (* 0.1 Y_1)) 0.9))", 1, "an input leads"),
        ("(assert (< (+ Y_0 Y_1) (- 1)))", 0, "no input leads"),
    ):
        file.write_text(BOX + condition)
        lawful("check", absolute, file, "--certificate", proof, code=code)
        assert words in lawful("verify", proof, absolute).stdout
        body = json.loads(proof.read_text())
        region = body["regions"][0]
        side = region["forbidden"][0][0]
        forged = str(Fraction(side["bound"]) + 10) if code == 0 else str(Fraction(side["bound"]) - 10)
        proof.write_text(json.dumps(body | {"regions": [region | {"forbidden": [[side | {"bound": forged}]]}]}))
        assert "VERIFIED" not in lawful("verify", proof, code=1).stdout
    file.write_text(BOX + "(assert (< Y_1 Y_0))")
    said = lawful("check", absolute, file, "--seconds", 1, "--certificate", absolute.with_name("none.json"), code=3)
    assert "no certificate" in said.stderr
    assert not absolute.with_name("none.json").exists()


def ask(
    network: Mlp | Dag, box: tuple[Floats, Floats], forbidden: list[list[ForbiddenHalfSpace]], seconds: float = 20.0
) -> Any:
    """One box of doubles, and what is forbidden on it."""
    low, high = (tuple(Fraction(float(end)) for end in ends) for ends in box)
    return check_regions(network, [ForbiddenRegion(low, high, tuple(map(tuple, forbidden)))], seconds=seconds)


@pytest.mark.parametrize("slope", [0.0, 0.25])
def test_trees_of_boxes_are_checked_node_by_node(slope: float) -> None:
    rng = np.random.default_rng(3)
    network = Mlp([rng.normal(size=(8, 2)), rng.normal(size=(8, 8)) / 2, rng.normal(size=(1, 8))], slopes=slope)
    points = rng.uniform(-1, 1, (20_000, 2))
    below = Fraction(float(network.evaluate(points).min())) - Fraction(1, 50)
    found = ask(network, (-np.ones(2), np.ones(2)), [[ForbiddenHalfSpace((Fraction(1),), (), below, strict=False)]])
    assert found.status == "holds"
    proof = certificate_of_check(found, network)
    splits, middles = proof["proofs"][0]["splits"], proof["proofs"][0]["middles"]
    assert verify(proof, network).facts["nodes"] >= len(splits) > 4
    for changed in ({"splits": [*splits, 1]}, {"splits": splits[:-1]}, {"middles": middles[:-1]}):
        with pytest.raises(LawfulError):
            verify(proof | {"proofs": [proof["proofs"][0] | changed]})
    region = proof["regions"][0]
    reached = region["forbidden"][0][0] | {"bound": str(below + Fraction(1, 25))}  # an output that was seen
    with pytest.raises(CertificateError, match="may lead to what is forbidden"):
        verify(proof | {"regions": [region | {"forbidden": [[reached]]}]})


@pytest.mark.parametrize("seed", range(trials(3, 6)))
def test_random_networks_against_samples(seed: int) -> None:
    rng = np.random.default_rng(seed)
    network = Mlp([rng.normal(size=(8, 3)), rng.normal(size=(8, 8)) / 2, rng.normal(size=(2, 8))])
    points = rng.uniform(-1, 1, (20_000, 3))
    gaps = network.evaluate(points) @ [1.0, -1.0]
    box = -np.ones(3), np.ones(3)
    row = (Fraction(1), Fraction(-1))
    low = Fraction(float(gaps.min()))
    holds = ask(network, box, [[ForbiddenHalfSpace(row, (), low - abs(low), strict=False)]])
    assert holds.status != "violated"
    violated = ask(network, box, [[ForbiddenHalfSpace(row, (), low, strict=False)]])
    if violated.status == "violated":
        assert violated.input is not None
        outputs = exact_outputs(layers_of(network), violated.input)
        assert outputs[0] - outputs[1] <= low
    assert violated.status != "holds"


def test_overflow_holds_nothing() -> None:
    """True outputs are negative, but a float sum that overflows on its way is +∞."""
    big = 1.7e308
    network = Mlp([[[big, 0], [0, big], [0, big]], [[1.0, -1.0, -1.0]]])
    box = np.array([1.1, 1.0]), np.array([1.1, 1.0])
    negative = ForbiddenHalfSpace((Fraction(1),), (), Fraction(0), strict=False)
    assert exact_outputs(layers_of(network), box[0])[0] < 0
    assert ask(network, box, [[negative]], seconds=1.0).status != "holds"


def test_nothing_forbidden_and_everything_forbidden() -> None:
    network, box = Mlp([[[1.0]]]), (np.zeros(1), np.ones(1))
    nothing = check_regions(network, [])
    assert (nothing.status, "vacuous" in nothing.why) == ("holds", True)
    assert ask(network, box, [[]]).status == "violated"
    with pytest.raises(LawfulError, match="not about 1 outputs"):
        ask(network, box, [[ForbiddenHalfSpace((Fraction(1), Fraction(0)), (), Fraction(0), strict=False)]])


def test_a_side_without_a_double_has_a_rational_witness(lawful: Callable[..., Any], absolute: Path) -> None:
    """`X_0 = 0.1` is no double: the input of the certificate is the fraction itself."""
    file, proof = absolute.with_name("point.vnnlib"), absolute.with_name("proof.json")
    file.write_text("(assert (= X_0 0.1)) (assert (>= X_1 -1)) (assert (<= X_1 1)) (assert (>= Y_1 0.9))")
    lawful("check", absolute, file, "--certificate", proof, code=1)
    body = json.loads(proof.read_text())
    assert body["input"][0] == "1/10"
    assert "an input leads" in lawful("verify", proof, absolute, file).stdout
    for forged, code in (("1/9", 1), (0.1, 1), ("0.1", 2), (None, 2)):
        proof.write_text(json.dumps(body | {"input": [forged, body["input"][1]]}))
        lawful("verify", proof, code=code)


def test_a_single_point_is_decided_by_its_outputs() -> None:
    """No rounding is in the way: the outputs at a point are rationals, for the maker and for the checker."""
    network, tenth = Mlp([[[3.0], [-1.0]], [[1.0, 1.0]]]), Fraction(1, 10)  # 0.3 at 0.1, which is no double

    def check_point(bound: Fraction, strict: bool) -> Any:
        case = (ForbiddenHalfSpace((Fraction(1),), (), bound, strict),)
        return check_regions(network, [ForbiddenRegion((tenth,), (tenth,), (case,))])

    value = Fraction(3, 10)
    assert check_point(value, strict=False).status == "violated"
    assert check_point(value - Fraction(1, 10**40), strict=False).status == "holds"
    held = check_point(value, strict=True)
    assert held.status == "holds"
    proof = certificate_of_check(held, network)
    assert proof["proofs"] == [None]
    assert verify(proof, network).facts["nodes"] == 1
    region = proof["regions"][0]
    for forged in (
        region | {"box": [["1/10", "1/5"]]},
        region | {"forbidden": [[region["forbidden"][0][0] | {"strict": False}]]},
        region | {"forbidden": [[]]},
    ):
        with pytest.raises(CertificateError):
            verify(proof | {"regions": [forged]})


def test_a_case_without_conditions_is_every_input() -> None:
    """An input shows that it occurs, and nothing can show that it does not."""
    network, box = Mlp([[[1.0]], [[1.0]]]), (np.zeros(1), np.ones(1))
    everything = certificate_of_check(ask(network, box, [[]]), network)
    assert "into any outputs" in verify(everything, network).statement
    never = [[ForbiddenHalfSpace((Fraction(1),), (), Fraction(-1), strict=False)]]
    proof = certificate_of_check(ask(network, box, never), network)
    for forged in ([[]], [[], *proof["regions"][0]["forbidden"]]):
        with pytest.raises(CertificateError):
            verify(proof | {"regions": [proof["regions"][0] | {"forbidden": forged}]})


def test_graphs_in_certificates_are_read_strictly() -> None:
    """A network with a skip is held by its edges; every defect of a graph is refused."""
    network = Architecture.parse("2-3-3-1 relu bias skip(0,2)").initialise(seed=0)
    low, high = (Fraction(-1),) * 2, (Fraction(1),) * 2
    far = ForbiddenRegion(low, high, ((ForbiddenHalfSpace((Fraction(1),), (), Fraction(-1000), strict=False),),))
    proof = certificate_of_check(check_regions(network, [far]), network)
    assert verify(proof, network).facts["nodes"] >= 1
    graph = proof["network"]

    def packed(values: Any, kind: str) -> str:
        return base64.b64encode(zlib.compress(np.asarray(values).astype(kind).tobytes())).decode()

    dag = network.to_dag()
    ends = np.stack([dag.tails, dag.heads])
    twice, back, nowhere = ends.copy(), ends.copy(), ends.copy()
    twice[:, 1], nowhere[0, 0] = twice[:, 0], 10_000
    back[:, 0] = back[::-1, 0]
    weights = np.array(dag.theta)
    changes: list[dict[str, Any]] = [
        *({"ends": packed(each, "<i4")} for each in (twice, back, nowhere, ends[:, :-1])),
        *({"weights": packed(each, "<f8")} for each in (np.full(len(weights), np.nan), weights[:-1], weights + 1)),
        {"roles": packed(np.zeros(len(dag.roles)), "u1")},
        {"roles": packed(np.full(len(dag.roles), 7), "u1")},
        {"slopes": packed(np.full(6, 2.0), "<f8")},
        {"nodes": 10**12},
    ]
    for change in changes:
        with pytest.raises(LawfulError):
            verify(proof | {"network": graph | change}, network)


def test_convolutions_pooling_and_skips(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sparse matrices give the same answers as dense ones, against samples; every proof is re-checked."""
    torch.manual_seed(0)
    layers = [torch.nn.Conv2d(1, 3, 3), torch.nn.LeakyReLU(0.1), torch.nn.AvgPool2d(2), torch.nn.Flatten()]
    module = torch.nn.Sequential(*layers, torch.nn.Linear(12, 6), torch.nn.ReLU(), torch.nn.Linear(6, 2)).double()
    network = open_graph(module, input_shape=(1, 6, 6))
    points = np.random.default_rng(0).uniform(-1, 1, (2000, 36))
    with torch.no_grad():
        outputs = module(torch.tensor(points).reshape(-1, 1, 6, 6)).numpy()
    assert np.allclose(network.evaluate(points), outputs)
    least = Fraction(float(outputs[:, 0].min()))
    for density in (0.08, 1.0):  # the usual bound, and every matrix sparse
        for place in ("lawful.bounds.layers", "lawful.verify.bounds.network"):
            monkeypatch.setattr(f"{place}.SPARSE", density)
            monkeypatch.setattr(f"{place}.LEAST_ENTRIES", 1)
        box = -np.ones(36), np.ones(36)
        for bound, statuses in ((least - 10, {"holds"}), (least, {"violated"}), (least - Fraction(1, 10), None)):
            space = ForbiddenHalfSpace((Fraction(1), Fraction(0)), (), bound, strict=False)
            found = ask(network, box, [[space]], seconds=3.0)
            assert statuses is None or found.status in statuses
            if found.status != "undecided":
                verify(certificate_of_check(found, network), network)


def test_conditions_are_linear_and_exact(tmp_path: Path) -> None:
    file = tmp_path / "a.vnnlib"
    file.write_text(BOX + "(assert (> (- Y_0 (* 0.1 Y_2) 3) (+ Y_1 0.2)))")
    ((_, (found,)),) = read_specification(file).disjuncts
    terms = {("Y", 0): Fraction(-1), ("Y", 1): Fraction(1), ("Y", 2): Fraction(1, 10)}
    assert found == Condition(terms, Fraction(-16, 5), True)


@pytest.mark.parametrize(
    ("asserted", "literally"),
    [
        ("(and (<= Y_g[{i}] (+ Y_f[{i}] 0.05)) (>= Y_g[{i}] (- Y_f[{i}] 0.05)))", "at most that"),
        ("(or (> Y_g[{i}] (+ Y_f[{i}] 0.05)) (< Y_g[{i}] (- Y_f[{i}] 0.05)))", "differ by more"),
        ("(and (> Y_g[{i}] (+ Y_f[{i}] 0.05)) (< Y_g[{i}] (- Y_f[{i}] 0.05)))", "contradict"),
    ],
)
def test_polarity_of_equivalence(lawful: Callable[..., Any], tmp_path: Path, asserted: str, literally: str) -> None:
    file = tmp_path / "pair.vnnlib"
    file.write_text(TWO + "".join(f"(assert {asserted.format(i=i)})\n" for i in range(2)))
    found = equivalence(file)
    assert found is not None
    assert (found.within, literally in found.literally) == (Fraction(1, 20), True)
    first = Mlp([[[1.0, 0.5], [0.25, -1.0]], np.eye(2)])
    write(first, tmp_path / "a.json")
    write(first.with_theta(first.theta + 0.01), tmp_path / "b.json")
    said = lawful("distance", tmp_path / "a.json", tmp_path / "b.json", "--box", file, "--json", code=0).json
    assert said["status"] == "proved"
    assert literally in said["understood"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("(assert (>= Y_7 0))", "output 7"),
        ("(assert (>= (* Y_0 Y_1) 0))", "linear"),
        ("(assert (=> Y_0 0))", "understood"),
        ("(assert (>= Y_0 zero))", "neither an output nor a number"),
        ("(assert (and " + "(or (>= Y_0 0) (>= Y_1 0)) " * 11 + "))", "more than 1000 cases"),
    ],
)
def test_refusals(lawful: Callable[..., Any], absolute: Path, text: str, words: str) -> None:
    file = absolute.with_name("bad.vnnlib")
    file.write_text(BOX + text)
    assert words in lawful("check", absolute, file, code=2).stderr


def test_two_networks_are_not_one(lawful: Callable[..., Any], absolute: Path) -> None:
    file = absolute.with_name("two.vnnlib")
    file.write_text(TWO + "(assert (<= Y_f[0] Y_g[0]))")
    assert "is about f and g" in lawful("check", absolute, file, code=2).stderr
    assert "a specification is a .vnnlib file" in lawful("check", absolute, absolute, code=2).stderr
