"""Small files that ask for hours or gigabytes are refused before that is spent."""

from __future__ import annotations

import base64
import json
import random
import time
import zlib
from collections.abc import Callable

import numpy as np
import pytest
from forging import Proof, signed

from lawful import CertificateError, NotACertificate, Unsupported, verify
from lawful.verify.core.checkpoint import tensors_digest

RNG = random.Random(0)  # noqa: S311


def long_fraction(digits: int = 3900) -> str:
    """A fraction whose denominator shares hardly a factor with any other."""
    return f"{RNG.randrange(1, 99)}/{RNG.randrange(10 ** (digits - 1), 10**digits) | 1}"


def waypoints() -> Proof:
    """The balance of one neuron adds up fractions of 3,900 digits: hours with 600 of them in 2 MB."""
    count = 40
    graph = {
        "roles": [0] * count + [1, 2], "edges": [*([k, count] for k in range(count)), [count, count + 1]],
        "slopes": [0.0], "weights": [1.0] * (count + 1),
    }  # fmt: skip
    way = [[edge, long_fraction()] for edge in range(count)]
    signs = [[1] * (count + 1)] * 2
    return {"kind": "path", "version": 2, "start": graph, "stop": graph, "joined": True, "signs": signs,
            "waypoints": [way], "drift": "1000000", "locked": None}  # fmt: skip


def zero_sums() -> Proof:
    """2^20 sums of 160,000 digits each: 70 GB in 160 kB."""
    half = 20
    first, second = range(1, half + 1), range(half + 1, 2 * half + 1)
    edges = [[0, i] for i in first] + [[i, j] for i in first for j in second] + [[j, 2 * half + 1] for j in second]
    network = {"roles": [0, *[1] * (2 * half), 2], "edges": edges, "slopes": [0.0] * (2 * half), "weights": None}
    balance = [f"-{long_fraction()}" for _ in first] + [long_fraction() for _ in second]
    return {"kind": "singular", "version": 1, "network": network, "balance": balance, "exist": False, "cut_off": None,
            "squares": None, "refutations": []}  # fmt: skip


def squares() -> Proof:
    """A witness whose squares add up to millions of digits."""
    count = 40
    graph = {
        "roles": [0] * count + [1, 2], "edges": [*([k, count] for k in range(count)), [count, count + 1]],
        "slopes": [0.0], "weights": [1.0] * (count + 1),
    }  # fmt: skip
    return {"kind": "singular", "version": 1, "network": graph, "balance": None, "exist": True, "cut_off": [count],
            "squares": [[edge, long_fraction()] for edge in range(count)], "refutations": None}  # fmt: skip


def shares() -> Proof:
    """Coefficients of a convex combination."""
    points, labels = [[float(k)] for k in range(80)], [0] * 40 + [1] * 40
    common = {key: [long_fraction() for _ in range(40)] for key in ("inside", "outside")}
    return {"kind": "truncation-separation", "version": 1, "about": [], "points": points, "labels": labels,
            "answers": [{"answer": "common point"} | common, {"answer": "undecided"}]}  # fmt: skip


def counterexample() -> Proof:
    """An input that 50 neurons add up."""
    network = {"weights": [[[1.0] * 40] * 50, [[1.0] * 50]], "biases": [None, None], "slopes": [0.0]}
    return {"kind": "same", "version": 2, "networks": [network, network | {"biases": [None, [1.0]]}], "box": None,
            "verdict": "different", "within": None, "witness": None,
            "counterexample": {"input": [long_fraction() for _ in range(40)]}}  # fmt: skip


def laws_of_four(level: str, known: list[object], **more: object) -> Proof:
    """Two linear neurons between two inputs and an output."""
    graph = {"roles": [0, 0, 1, 1, 2], "edges": [[0, 2], [1, 2], [0, 3], [1, 3], [2, 4], [3, 4]], "slopes": [1.0, 1.0],
             "weights": None if level == "phi" else [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]}  # fmt: skip
    return {"kind": "laws", "version": 1, "about": [], "network": graph, "level": level, "laws": 0, "parameters": 6,
            "states": 6, "loss": "full", "flow": {"name": "gradient"}, "prime": 8_388_593, "seed": 1,
            "point": [1, 2, 3, 4, 5, 6], "brackets": [4], "dimensions": [0], "known": known} | more  # fmt: skip


def combined_laws() -> Proof:
    """A law that adds up others with weights of 3,900 digits: hours of common denominators for 1,000 of them."""
    parts = [[long_fraction(), "neuron", 2] for _ in range(30)]
    return laws_of_four("phi", [["combination", parts]], flow={"name": "metric", "diagonal": [1.0] * 6})


def still_sums() -> Proof:
    """A sum of the weights of 40 inputs, each times a long fraction."""
    count = 40
    graph = {"roles": [0] * count + [1, 2], "edges": [*([k, count] for k in range(count)), [count, count + 1]],
             "slopes": [1.0], "weights": [1.0] * (count + 1)}  # fmt: skip
    known = [["still", count, [[edge, long_fraction()] for edge in range(count)]]]
    sizes = {"parameters": count + 1, "states": count + 1, "point": [1] * (count + 1)}
    data = {"inputs": [[1.0] * count], "fixed": [None] * (count + 2), "groups": [0]}
    return laws_of_four("data", known, **sizes, **data) | {"network": graph}


def deep_chain() -> Proof:
    """Exact ranges through 5,000 neurons with weights near 1e-290: 2.3 GB in 340 kB."""
    count = 5000
    graph = {"roles": [0, *[1] * count, 2], "edges": [[k, k + 1] for k in range(count + 1)], "slopes": [0.0] * count,
             "weights": [1.1e-290] * (count + 1)}  # fmt: skip
    stage = {"after": graph, "labels": list(range(count + 2)), "evidence": [], "carriers": []}
    return {"kind": "pruning", "version": 2, "original": graph, "box": [[-1.0], [1.0]], "neurons_before": count,
            "neurons_after": count, "max_output_change_bound": 0.0, "rounding_bound": 0.0,
            "stages": [stage]}  # fmt: skip


def waiting_sides() -> Proof:
    """8,000 sides that wait, each with its half-spaces."""
    count = 8000
    network = {"weights": [[[1.0]] * count, [[1.0] * count]], "biases": [[float(k) for k in range(count)], None],
               "slopes": [0.0]}  # fmt: skip
    return {"kind": "regions", "version": 1, "network": network, "box": None, "regions": 1,
            "decisions": ["both"] * count, "points": [["0"]]}  # fmt: skip


def chain(count: int) -> Proof:
    """Neurons one after the other with weights near 1e-290: each adds a thousand bits to exact values."""
    return {"weights": [[[1.1e-290]]] * count, "biases": [None] * count, "slopes": [0.0] * (count - 1)}


def equality(network: Proof, **witness: object) -> Proof:
    return {"kind": "same", "version": 2, "networks": [network, network], "box": [[0.5], [1.0]], "verdict": "equal",
            "within": {"kind": "exactly", "value": 0.0}, "counterexample": None,
            "witness": {"first": [], "second": [], "ending": "weights"} | witness}  # fmt: skip


def ranges_of_a_chain() -> Proof:
    """Every step asks for the ranges of all neurons below: 2.6 s each, and a file of 200 kB has a thousand."""
    step = {"do": "lift", "layer": 2999, "neuron": 0, "shift": 0.0}
    return equality(chain(3000), first=[step] * 1000)


def regions_of_a_chain() -> Proof:
    """A walk through both networks, whose affine maps have millions of bits."""
    decisions = [["on", [0, 2]]] * (2 * 5000 - 2)
    return equality(chain(5000), ending="regions", decisions=decisions)


def input_of_a_chain() -> Proof:
    """Outputs with millions of bits: two minutes were not enough for 250 kB."""
    other = chain(5000)
    other["weights"] = [*other["weights"][:-1], [[1.0]]]
    return equality(chain(5000)) | {"networks": [chain(5000), other], "box": None, "verdict": "different",
                                    "within": None, "witness": None, "counterexample": {"input": [1.0]}}  # fmt: skip


def errors_of_a_chain() -> Proof:
    """All values are 0, but the error of one neuron is carried on through 5,000 others: 2.3 GB."""
    count = 5000
    edges, weights = [[k, k + 1] for k in range(count + 1)], [1.1e-290] * (count + 1)
    original = {"roles": [0, *[1] * count, 2], "edges": edges, "slopes": [0.0] * count, "weights": weights}
    after = {"roles": [0, *[1] * (count - 1), 2, 3], "edges": [*edges[1:-1], [count + 1, 1]],
             "slopes": [0.0] * (count - 1), "weights": weights[1:]}  # fmt: skip
    stage = {"after": after, "labels": [0, *range(2, count + 2), count + 7], "evidence": [[1, "1"]], "carriers": []}
    return {"kind": "pruning", "version": 2, "original": original, "box": [[0.0], [0.0]], "neurons_before": count,
            "neurons_after": count - 1, "max_output_change_bound": 1.0, "rounding_bound": 0.0,
            "stages": [stage]}  # fmt: skip


def long_frame() -> Proof:
    """A frame is made orthogonal in rationals that grow with every vector: hours in 800 kB."""
    width = 200
    rows = [[RNG.gauss(0, 1) for _ in range(width)] for _ in range(width)]
    points = [[0.0] * width, rows[0]]  # parted by the first vector
    for row in rows[1:]:
        row[:] = [a + 3 * b for a, b in zip(row, rows[0], strict=True)]
    return {"kind": "truncation-separation", "version": 1, "about": [], "points": points, "labels": [0, 1],
            "answers": [{"answer": "frame", "rotation": rows}, {"answer": "undecided"}]}  # fmt: skip


def sawtooth() -> Proof:
    """Two neurons a layer fold the line: 2^layers stretches for every input, in 2 kB."""
    fold = [[2.0, -4.0], [2.0, -4.0]]
    network = {"weights": [[[1.0], [1.0]], *[fold] * 10, [[2.0, -4.0]]], "biases": [*[[0.0, -0.5]] * 11, [0.0]],
               "slopes": [0.0] * 11}  # fmt: skip
    points = [[f"{k}/1000"] for k in range(1, 100)]
    need = {"layer": 1, "neuron": 0, "answer": "needed", "points": points, "cases": None}
    return {"kind": "removable", "version": 1, "network": network, "neurons": [need]}


def linear_chain(count: int) -> Proof:
    """Linear neurons one after the other, without weights."""
    return {"roles": [0, *[1] * count, 2], "edges": [[k, k + 1] for k in range(count + 1)], "slopes": [1.0] * count,
            "weights": None}  # fmt: skip


def laws_of_a_chain(count: int, known: list[object]) -> Proof:
    edges = count + 1
    return {"kind": "laws", "version": 1, "network": linear_chain(count), "level": "phi", "laws": count,
            "parameters": edges, "states": edges, "loss": "full", "flow": {"name": "gradient"}, "prime": 8388593,
            "seed": 1, "point": [3] * edges, "brackets": [1], "dimensions": [1], "known": known}  # fmt: skip


def deep_graph() -> Proof:
    """200,000 levels of one neuron: every level passed over all nodes, hours in 5 MB."""
    count = 200_000
    network = linear_chain(count) | {"weights": [1.0] * (count + 1)}
    return {"kind": "monotone", "version": 1, "network": network, "box": [["0", "1"]], "rising": [0], "falling": [],
            "outputs": [0], "inputs": None, "tree": [0], "regions": []}  # fmt: skip


def rows_of_parts() -> Proof:
    """A part of a chain has a law for each weight, and each law a number for each weight: 2 GB in 400 kB."""
    count = 15_000
    return laws_of_a_chain(count, [["part", 0, count + 1, list(range(1, count + 1))]])


def rows_of_neurons() -> Proof:
    """One law for each neuron of a chain, or the same one again and again: 7 GB for three times as many."""
    return laws_of_a_chain(10_000, [["neuron", 1]] * 10_000)


def samples_of_a_long_law() -> Proof:
    """Each of 5,000 samples differentiated a law of 200,000 terms once more."""
    steps = [{"kind": "parameters", "length": 1}, {"kind": "input", "length": 1},
             {"kind": "add", "sources": [1, 1]}]  # fmt: skip
    return {"kind": "laws-of-module", "version": 1, "about": [], "laws": 1, "parameters": 1, "steps": steps,
            "theta_bits": 1, "theta": [3], "sample_bits": 1, "inputs": [], "weights": [], "words": [], "columns": [],
            "known": [[[[0], "1"]] * 200_000], "classes": 0, "precision": 64, "data": [[1.0]] * 5_000}  # fmt: skip


@pytest.mark.parametrize(
    "bomb",
    [
        deep_graph,
        rows_of_parts,
        rows_of_neurons,
        samples_of_a_long_law,
        waypoints,
        zero_sums,
        squares,
        shares,
        counterexample,
        deep_chain,
        waiting_sides,
        ranges_of_a_chain,
        regions_of_a_chain,
        input_of_a_chain,
        errors_of_a_chain,
        combined_laws,
        still_sums,
    ],
    ids=lambda made: made.__name__,
)
def test_a_bomb_is_refused_as_too_large(bomb: Callable[[], Proof]) -> None:
    with pytest.raises(Unsupported, match=r"steps|common denominator"):
        verify(json.dumps(signed(bomb())))


def test_products_of_linear_layers_do_not_fill_the_memory() -> None:
    """One linear neuron between two layers of 7,000: 28,000 numbers whose products are 49 million."""

    def packed(numbers: np.ndarray) -> str:
        return base64.b64encode(zlib.compress(numbers.tobytes())).decode()

    shapes = [(7000, 1), (1, 7000), (7000, 1), (1, 7000)]
    layers = [{"shape": list(shape), "weights": packed(np.ones(shape)), "bias": None} for shape in shapes]
    condition = {"outputs": [[0, "1"]], "inputs": [], "bound": "-1", "strict": False}
    empty = packed(np.zeros(0))
    tables = dict.fromkeys(("slopes", "pushes", "weights"), empty)
    proof = tables | {"splits": [1], "middles": [], "rounds": 1, "tuned": []}
    body = {"kind": "specification", "version": 2, "network": {"layers": layers, "slopes": [0.0, 1.0, 0.0]},
            "regions": [{"box": [["0", "1"]], "forbidden": [[condition]]}], "input": None,
            "proofs": [proof]}  # fmt: skip
    with pytest.raises(Unsupported, match="products"):
        verify(json.dumps(signed(body)))


def seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def test_what_is_asked_often_is_made_quick() -> None:
    """Sums of long fractions looked for common factors each time: 2,000 refutations in 330 kB took 25 s."""
    half = 10
    first, second = range(1, half + 1), range(half + 1, 2 * half + 1)
    edges = [[0, i] for i in first] + [[i, j] for i in first for j in second] + [[j, 2 * half + 1] for j in second]
    network = {"roles": [0, *[1] * (2 * half), 2], "edges": edges, "slopes": [0.0] * (2 * half), "weights": None}
    refutation = {"cut_off": list(first), "inside": True, "blocked": list(first), "forward": True}
    proof = {"kind": "singular", "version": 1, "network": network, "exist": False, "cut_off": None, "squares": None,
             "balance": [f"-{long_fraction()}" for _ in first] + [long_fraction() for _ in second],
             "refutations": [refutation] * 2000}  # fmt: skip
    assert seconds(lambda: verify(json.dumps(signed(proof)))) < 5


def test_two_layers_are_collapsed_by_one_product() -> None:
    """Layers of 200: entry by entry it took 20 times as long."""
    layer = [[RNG.choice((1.5, 2.5, 0.75)) for _ in range(200)] for _ in range(200)]
    network = {"weights": [layer] * 3, "biases": [None] * 3, "slopes": [1.0, 1.0]}
    steps = [{"do": "collapse", "layer": 1}] * 2
    proof = equality(network, first=steps, second=steps) | {"box": None}
    assert seconds(lambda: verify(json.dumps(signed(proof)))) < 10


@pytest.mark.parametrize("text", ["[" + "[]," * 5_000_000 + "[]]", '{"roles": [' + "{}," * 5_000_000 + "{}]}"])
def test_millions_of_lists_are_not_made(text: str) -> None:
    with pytest.raises(NotACertificate, match="lists and objects"):
        verify('{"kind": "components", "version": 2, "about": [], "network": ' + text + "}")


def test_millions_of_inputs_that_nothing_reads_are_not_made() -> None:
    graph = {"roles": [0] * 1_000_001 + [1, 2], "edges": [[0, 1_000_001], [1_000_001, 1_000_002]], "slopes": [0.0],
             "weights": [1.0, 1.0]}  # fmt: skip
    proof = {"kind": "rebalance", "version": 1, "about": [], "before": graph, "after": graph, "factors": [1.0],
             "rounding": 0.0, "target": [0.0], "except": [], "residual": 0.0}  # fmt: skip
    with pytest.raises(NotACertificate, match="more than 1000000"):
        verify(json.dumps(proof))


def test_a_frame_of_long_numbers_is_refused() -> None:
    with pytest.raises((Unsupported, CertificateError)):
        verify(json.dumps(long_frame()))


def test_every_stretch_is_counted() -> None:
    """With fewer steps for each line, 500 inputs took 14 s before they were refused."""
    wide = sawtooth()
    wide["network"]["weights"][-1:] = [[[2.0, -4.0]] * 100, [[1.0] * 100]]
    wide["network"]["biases"][-1:] = [[0.0] * 100, [0.0]]
    wide["network"]["slopes"].append(0.0)
    for proof in (sawtooth(), wide):
        proof["neurons"][0]["points"] *= 5

        def refuse(proof: Proof = proof) -> None:
            with pytest.raises(Unsupported, match="steps"):
                verify(json.dumps(signed(proof)))

        assert seconds(refuse) < 10


def test_states_of_many_layers_and_samples_are_counted() -> None:
    """Three numbers of 320 bits for each layer and sample were kept: 4 GB in 300 kB."""
    count = 3000
    proof = {"kind": "geodesic", "version": 1, "about": [], "effective_depth": 1.0, "softness": 0.0, "ridge": 0.5,
             "steps": [0.001] * count, "weights": [[[0.3, 0.1]]] * count, "into": None, "out": None,
             "inputs": [[0.5]] * count, "targets": [[0.5]] * count, "stationarity": [0, 1e9],
             "ranks": [[-1e9, 1e9]] * count}  # fmt: skip
    with pytest.raises(Unsupported, match="states of this network"):
        verify(json.dumps(signed(proof)))


def test_zeros_are_counted_before_they_are_joined() -> None:
    """64 runs of a million zeros, of which one number is taken: 8 GB in a line."""
    file = {"w": np.arange(6.0)}
    zeros = {"parts": [1_000_000] * 64, "axis": 0, "transposed": False, "rows": [0]}
    proof = {"kind": "checkpoint-copy", "version": 2, "tensors": [["w", "w", "w"], ["z", zeros, zeros]],
             "folds": [], "matrices": [], "frames": [], "shifts": [], "moved": []}  # fmt: skip
    with pytest.raises(CertificateError, match="used too often"):
        verify(json.dumps({"about": []} | proof), file, file)


def test_folds_of_one_tensor_are_gathered_once() -> None:
    """All folds before were put in order again for each: 100,000 in 3 MB took five minutes."""
    file = {"w": np.ones(2), "v": np.ones(2)}
    digest = tensors_digest(file)
    proof = {"kind": "checkpoint-copy", "version": 2, "about": [digest, digest], "matrices": [], "frames": [],
             "tensors": [["w", "w", "w"], ["v", "v", "v"]], "folds": [{"fold": "drop", "tensor": "w"}] * 20_000,
             "shifts": [], "moved": []}  # fmt: skip
    assert seconds(lambda: verify(json.dumps(proof), file, file)) < 5


def test_edges_that_rest_are_looked_up_node_by_node() -> None:
    """All edges were asked for every neuron: 10,000 neurons took minutes."""

    def refuse() -> None:
        with pytest.raises(CertificateError, match="explicit laws"):
            verify(json.dumps(signed(laws_of_a_chain(3_000, [["neuron", 1]]))))

    assert seconds(refuse) < 10


def test_whether_a_metric_is_positive_is_told_in_balls() -> None:
    """In fractions, numbers grew with every pivot: a block of 120 weights took a minute, one of 300 an hour."""
    count = 120
    graph = {"roles": [0] * count + [2], "edges": [[k, count] for k in range(count)], "slopes": [], "weights": None}
    rows = [[RNG.gauss(0, 1) / count for _ in range(count)] for _ in range(count)]
    block = [[rows[j][k] + rows[k][j] + 5.0 * (j == k) for k in range(count)] for j in range(count)]
    flow = {"name": "metric", "blocks": [{"weights": list(range(count)), "matrix": block}]}
    proof = laws_of_four("phi", [], flow=flow, parameters=count, states=count, point=[1] * count) | {"network": graph}

    def refuse() -> None:
        with pytest.raises(CertificateError, match="span"):
            verify(json.dumps(signed(proof)))

    assert seconds(refuse) < 10
    block[0][0] = -5.0
    with pytest.raises(CertificateError, match="not symmetric and positive"):
        verify(json.dumps(signed(proof)))
