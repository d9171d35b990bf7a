"""Certificates that were forged with the source at hand: each was accepted once, and none is now."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import numpy as np
import pytest
import torch
from forging import REFUSED, Proof, saved, signed
from hypothesis import given
from hypothesis import strategies as st
from real import real
from torch import nn

from lawful.errors import CertificateError, NotACertificate, Unsupported
from lawful.pruning.channels import prune_channels
from lawful.pruning.channels.certificate import certificate as channels_certificate
from lawful.verify import verify
from lawful.verify.bounds.packed import read_packed
from lawful.verify.core.checkpoint import tensors_digest
from lawful.verify.core.tensors import weights_digest


def refuse(proof: Proof, *files: Any, match: str) -> None:
    with pytest.raises(REFUSED, match=match):
        verify(json.dumps(signed(proof)), *files)


def test_live_weights_are_not_rounded_to_zero() -> None:
    """A stage that stores weights sets live ones to 0 and states a bound for it: that is no rounding."""
    proof = saved(real("pruning"))
    last = proof["stages"][-1]
    network = json.loads(json.dumps(last["after"]))
    network["weights"] = [0.0] * len(network["weights"])
    lie = {"evidence": [], "carriers": [], "after": network, "labels": last["labels"]}
    proof |= {"stages": [*proof["stages"], lie], "rounding_bound": 1e4}
    refuse(proof, match="another, not rounded")


@pytest.mark.parametrize("results", [[], [0]])
def test_channels_of_a_program_without_its_outputs(results: list[int]) -> None:
    refuse(saved(real("channel pruning"), results=results), match="lead to none of the results")


def test_regions_of_a_graph_with_a_skip() -> None:
    """y = x + relu(x - 1) has two regions; the pair that carries x past the layer would make a third."""
    network = {
        "roles": [0, 1, 2, 3], "edges": [[0, 1], [1, 2], [0, 2], [3, 1]], "slopes": [0.0],
        "weights": [1.0, 1.0, 1.0, -1.0],
    }  # fmt: skip
    decisions = ["both", "both", ["off", [1, 2]], "both"]
    proof = {"kind": "regions", "version": 1, "about": [], "network": network, "box": None, "regions": 3,
             "decisions": decisions, "points": [["2"], ["1/2"], ["-1"]]}  # fmt: skip
    with pytest.raises(CertificateError, match="skips are not checked"):
        verify(json.dumps(proof))


def test_a_specification_says_what_is_forbidden() -> None:
    proof = saved(real("specification holds by halves"))
    statement = verify(proof).statement
    assert "Y_0" in statement
    region = proof["regions"][0]
    case = json.loads(json.dumps(region["forbidden"][0][0]))
    easier = saved(proof, regions=[region | {"forbidden": [[case | {"bound": "-1000000"}]]}])
    assert verify(easier).statement != statement, "another question gets another sentence"
    refuse(saved(proof, regions=[region | {"forbidden": []}]), match="nothing is forbidden")
    refuse(saved(proof, regions=[region | {"forbidden": [[]]}]), match="every input")


def copy_of(first: dict[str, Any], second: dict[str, Any], **parts: Any) -> str:
    body = {
        "kind": "checkpoint-copy", "version": 2, "about": [tensors_digest(first), tensors_digest(second)],
        "tensors": [[name, name, name] for name in first], "folds": [], "matrices": [], "frames": [], "shifts": [],
        "moved": [],
    }  # fmt: skip
    return json.dumps(body | parts)


def packed(values: Any) -> str:
    return base64.b64encode(np.ascontiguousarray(values, dtype="<f8").tobytes()).decode()


def test_a_constant_tensor_does_not_make_factors_known() -> None:
    """Every number gets a factor of its own, and a dummy tensor has the same factors: two unrelated files agree."""
    rng = np.random.default_rng(0)
    first, second = ({"w": rng.normal(size=(6, 6))} for _ in range(2))
    factors = packed((first["w"] / second["w"]).ravel())
    frame = {"tensor": "w", "dims": [0, 1], "source": list(range(36)), "factor": factors, "blocks": []}
    dummy = {"tensor": "dummy", "dims": [0], "source": list(range(36)), "factor": factors, "blocks": []}
    constant = {"constant": 0.0, "shape": [36, 2]}
    tensors = [["w", "w", "w"], ["dummy", constant, constant]]
    with pytest.raises(CertificateError, match="nothing that is listed is compared"):
        verify(copy_of(first, second, tensors=tensors, frames=[frame, dummy]), first, second)


def test_matrices_larger_than_the_files_are_not_unpacked() -> None:
    files = {"w": np.ones((2, 2))}
    bomb = [{"size": 14_000, "values": "z:", "partner": 0}]
    with pytest.raises(CertificateError, match="more numbers than the files"):
        verify(copy_of(files, files, matrices=bomb), files, files)


def test_a_name_with_a_newline_makes_no_second_line() -> None:
    rng = np.random.default_rng(0)
    name = "b\nverified: THE SAME FUNCTION"
    first = {"w": rng.normal(size=(4, 4)), name: rng.normal(size=3)}
    second = first | {name: rng.normal(size=3)}
    shift = {"tensor": name, "shape": [3], "values": packed(first[name] - second[name])}
    statement = verify(copy_of(first, second, shifts=[shift], moved=["w"]), first, second).statement
    assert "THE SAME FUNCTION" in statement
    assert "\n" not in statement
    with pytest.raises(CertificateError, match="differs by more than rounding") as refused:
        verify(copy_of(first, second), first, second)
    assert str(refused.value).isprintable()


def test_a_small_certificate_cannot_ask_for_hours() -> None:
    steps = [
        {"kind": "parameters", "length": 2_000_000}, {"kind": "input", "length": 1},
        {"kind": "sum", "sources": [0], "sizes": [2_000_000]},
        *({"kind": "mul", "sources": [0, 0]} for _ in range(40)),
        {"kind": "sum", "sources": [42], "sizes": [2_000_000]},
    ]  # fmt: skip
    proof = {
        "kind": "laws-of-module", "version": 1, "about": [], "laws": 2_000_000, "parameters": 2_000_000, "steps": steps,
        "theta_bits": 0, "theta": [0] * 2_000_000, "sample_bits": 0, "inputs": [], "weights": [], "words": [],
        "columns": [], "known": [], "classes": 0, "precision": 64,
    }  # fmt: skip
    with pytest.raises(Unsupported, match=r"numbers, more than|would take about"):
        verify(json.dumps(proof))


def differ(first: dict[str, Any], second: dict[str, Any], orders: list[list[str]]) -> str:
    steps = [{"kind": "parameters", "length": 2}, {"kind": "input", "length": 0},
             {"kind": "take", "sources": [0], "indices": [0]}]  # fmt: skip
    about = [tensors_digest(first), tensors_digest(second)]
    return json.dumps({"kind": "outputs-differ", "version": 2, "about": about, "steps": [steps], "tensors": orders,
                       "apart": 0.5})  # fmt: skip


def test_a_file_does_not_differ_from_itself() -> None:
    """Read in another order, the tensors of one file, or of a file with one more change, would seem to be apart."""
    file = {"a": np.array([1.0]), "b": np.array([2.0])}
    other = {"a": np.array([1.0]), "b": np.array([2.25])}
    with pytest.raises(CertificateError, match="the same numbers"):
        verify(differ(file, file, [["a", "b"], ["b", "a"]]), file, file)
    with pytest.raises(CertificateError, match="different orders"):
        verify(differ(file, other, [["a", "b"], ["b", "a"]]), file, other)
    assert verify(differ(file, other, [["b", "a"], ["b", "a"]]).replace("0.5", "0.125"), file, other).facts["apart"] > 0


def test_one_list_of_steps_reads_what_belongs_together() -> None:
    """A tensor that only one file has must not hide that the others were read in another order."""
    file = {"a": np.array([1.0]), "b": np.array([2.0])}
    more = file | {"c": np.array([0.0])}
    with pytest.raises(CertificateError, match="different orders"):
        verify(differ(file, more, [["a", "b"], ["b", "a"]]), file, more)
    wide = {"a": np.array([1.0, 2.0]), "d": np.array([])}
    with pytest.raises(CertificateError, match="different shapes"):
        verify(differ(file, wide, [["a", "b"], ["a", "d"]]), file, wide)
    named = {"x": np.array([2.0]), "y": np.array([2.0])}
    assert verify(differ(file, named, [["a", "b"], ["x", "y"]]), file, named).facts["lists"] == 1


def test_an_output_of_no_number_of_the_files_tells_nothing() -> None:
    file = {"a": np.array([1.0])}
    steps = [[{"kind": "parameters", "length": 1}, {"kind": "input", "length": 0}, {"kind": "constant", "values": [c]},
              {"kind": "take", "sources": [2], "indices": [0]}] for c in (0.0, 1.0)]  # fmt: skip
    body = {"kind": "outputs-differ", "version": 2, "about": [tensors_digest(file)] * 2, "steps": steps,
            "tensors": [["a"], ["a"]], "apart": 0.5}  # fmt: skip
    with pytest.raises(CertificateError, match="depends on no number"):
        verify(json.dumps(body), file, file)
    for c, own in zip((0.0, 1.0), steps, strict=True):
        own[2:] = [{"kind": "constant", "values": [c]}, {"kind": "add", "sources": [0, 2]}]
    statement = verify(json.dumps(body), file, file).statement
    assert "the steps that differ, not the files" in statement


def smooth_file(rng: np.random.Generator, layers: int) -> dict[str, Any]:
    return {f"{name}{k}": rng.normal(size=(3, 3) if name == "w" else 3) for k in range(layers) for name in "wb"}


@given(orders=st.permutations(range(3)), axes=st.lists(st.integers(0, 1), min_size=3, max_size=3), deep=st.booleans(),
       activation=st.sampled_from(["tanh", "sigmoid", "gelu"]))  # fmt: skip
def test_a_smooth_network_does_not_differ_from_itself(
    orders: list[int], axes: list[int], deep: bool, activation: str
) -> None:
    """Square weights can be read in any order and along either axis: each reading is another function."""
    file = smooth_file(np.random.default_rng(0), 3 if deep else 2)
    order = [k for k in orders if deep or k < 2]
    reading = [[{"weight": f"w{k}", "axis": axis, "bias": f"b{k}"} for k, axis in zip(places, axes, strict=False)]
               for places, axes in ((range(len(order)), [1] * 3), (order, axes))]  # fmt: skip
    body = {"kind": "smooth-pair", "version": 2, "about": [tensors_digest(file)] * 2, "activation": activation,
            "layers": reading, "verdict": "different"}  # fmt: skip
    with pytest.raises(CertificateError):
        verify(json.dumps(body), file, file)


@pytest.mark.parametrize("source", ["b", {"parts": ["a"], "axis": 0, "transposed": False, "rows": [1, 0, 2]},
                                    {"parts": ["a"], "axis": 0, "transposed": True, "rows": None}])  # fmt: skip
def test_a_tensor_that_both_files_have_is_not_read_as_another(source: Any) -> None:
    """Files in which two tensors or two rows are exchanged are no copies because a certificate exchanges them back."""
    rng = np.random.default_rng(0)
    first = {"a": rng.normal(size=(3, 3)), "b": rng.normal(size=(3, 3))}
    second = first | ({"a": first["b"], "b": first["a"]} if source == "b" else
                      {"a": first["a"].T if source["transposed"] else first["a"][[1, 0, 2]]})  # fmt: skip
    other = "a" if source == "b" else "b"
    tensors = [["a", "a", source], ["b", "b", other]]
    with pytest.raises(CertificateError, match="plays different parts"):
        verify(copy_of(first, second, tensors=tensors, moved=["a", "b"]), first, second)
    unread = [["c", "a", "a"], ["d", "b", "b"], *tensors]
    with pytest.raises(CertificateError, match="plays different parts"):
        verify(copy_of(first, second, tensors=unread, moved=["a", "b"]), first, second)


def test_a_tied_tensor_that_one_file_lacks_is_the_other() -> None:
    table = np.random.default_rng(0).normal(size=(3, 3))
    first, second = {"table": table, "head": table}, {"table": table}
    tensors = [["table", "table", "table"], ["head", "head", "table"]]
    assert verify(copy_of(first, second, tensors=tensors, moved=["table", "head"]), first, second).facts["tensors"] == 2


def test_digests_keep_names_apart_and_whole() -> None:
    """Without delimiters the numbers of one tensor can be the name of the next; 128 bits can be made to collide."""
    eight = np.frombuffer(b"\n[1]\nABC", dtype="<f8")
    one, two = {"a": np.array([1.0])}, {"a\n[1]": np.array([1.0])}
    assert len({tensors_digest(each) for each in (one, two, {"a": eight})}) == 3
    assert weights_digest({"w": "x\nv y"}) != weights_digest({"w": "x", "v": "y"})
    assert weights_digest({"w x": "y"}) != weights_digest({"w": "x y"})
    assert len(tensors_digest(one)) == len("checkpoint:") + 64
    assert len(weights_digest({})) == len("weights:") + 64


def chain(length: int) -> dict[str, Any]:
    """Neurons one behind the other, each of which an output reads: every level carries all before it."""
    edges = [[0, 1], *([k, k + 1] for k in range(1, length)), *([k, length + 1] for k in range(1, length + 1))]
    return {"roles": [0, *[1] * length, 2], "edges": edges, "slopes": [0.0] * length, "weights": [1.0] * len(edges)}


def packed_graph(graph: dict[str, Any]) -> dict[str, Any]:
    """A graph as certificates of specifications hold it."""
    table = lambda values, kind: base64.b64encode(zlib.compress(np.array(values).astype(kind).tobytes())).decode()  # noqa: E731
    ends = np.array(graph["edges"]).T
    return {
        "nodes": len(graph["roles"]), "edges": ends.shape[1], "roles": table(graph["roles"], "u1"),
        "ends": table(ends, "<i4"), "slopes": table(graph["slopes"], "<f8"), "weights": table(graph["weights"], "<f8"),
    }  # fmt: skip


def test_skips_past_many_levels_are_not_unrolled() -> None:
    """33 kB that make 500 million entries."""
    pair = {
        "kind": "same", "version": 2, "about": [], "networks": [chain(600)] * 2, "box": None, "verdict": "equal",
        "within": {"kind": "exactly", "value": 0}, "counterexample": None,
        "witness": {"first": [], "second": [], "ending": "weights"},
    }  # fmt: skip
    condition = {"outputs": [[0, "1"]], "inputs": [], "bound": "-1", "strict": False}
    box = {
        "kind": "specification", "version": 2, "about": [], "network": packed_graph(chain(600)),
        "regions": [{"box": [["0", "1"]], "forbidden": [[condition]]}], "input": None, "proofs": [{}],
    }  # fmt: skip
    with pytest.raises(Unsupported, match=r"would take about|entries|numbers"):
        verify(json.dumps(pair))
    with pytest.raises(NotACertificate, match="missing"):  # layers that are nearly all zeros are stored without them
        verify(json.dumps(box))


def test_channels_are_counted_before_they_are_made() -> None:
    step = {"kind": "input", "sources": [], "channels": 10**7, "tensors": {}, "padded": False, "width": 1,
            "function": "", "arguments": []}  # fmt: skip
    proof = {
        "kind": "channel-pruning", "version": 3, "about": [], "program": [step] * 100, "results": [0], "before": {},
        "after": {}, "others": {}, "lost": [], "added": [], "folded": [], "dropped": [], "gone": [], "moves": [],
    }  # fmt: skip
    with pytest.raises(Unsupported, match="more than 200,000 channels"):
        verify(json.dumps(proof))


def test_nodes_without_edges_are_not_made() -> None:
    entries = {"nodes": 5_000_000, "tensors": [], "others": {}, "other_laws": False}
    proof = {"kind": "path", "version": 2, "about": [], "start": entries, "stop": entries, "joined": False,
             "signs": None, "waypoints": None, "drift": None, "locked": None}  # fmt: skip
    with pytest.raises(CertificateError, match="more nodes than ends"):
        verify(json.dumps(proof))


def _table(values: Any, kind: str) -> str:
    return base64.b64encode(zlib.compress(np.array(values, dtype=kind).tobytes())).decode()


def test_a_huge_box_under_tiny_weights_does_not_underflow() -> None:
    """y = 1e-70 relu(1e-260 x) is 1e-30 at x = 1e300, but the product of the weights is 0 in float64."""
    layers = [{"shape": [1, 1], "weights": _table([weight], "<f8"), "bias": None} for weight in (1e-260, 1e-70)]
    network = {"layers": layers, "slopes": [0.0]}
    condition = {"outputs": [[0, "-1"]], "inputs": [], "bound": f"-1/{10**31}", "strict": False}
    tree = {"splits": [0], "middles": [], "slopes": _table([0], "u1"), "pushes": _table([0], "<f4"),
            "weights": _table([1], "<f4"), "rounds": 0, "tuned": []}  # fmt: skip
    proof = {"kind": "specification", "version": 2, "about": [read_packed(network).digest], "network": network,
             "regions": [{"box": [["0", str(10**300)]], "forbidden": [[condition]]}], "input": None,
             "proofs": [tree]}  # fmt: skip
    with pytest.raises(CertificateError, match="the box is too large"):
        verify(json.dumps(proof))
    assert "an input leads" in verify(json.dumps(proof | {"input": [9e299], "proofs": None})).statement


def test_layers_of_zeros_are_counted_together() -> None:
    """A table of 9 million zeros takes 93 kB in a file; ten of them would be 3 GB."""
    zeros = _table(np.zeros((3000, 3000)), "<f8")
    layers = [{"shape": [3000, 3000], "weights": zeros, "bias": None}] * 10
    with pytest.raises(Unsupported, match="more than 40,000,000 numbers"):
        read_packed({"layers": layers, "slopes": [0.0] * 9})


def test_a_case_without_conditions_allows_any_outputs_and_says_so() -> None:
    network = {"layers": [{"shape": [1, 1], "weights": _table([1.0], "<f8"), "bias": None}], "slopes": []}
    proof = {"kind": "specification", "version": 2, "about": [read_packed(network).digest], "network": network,
             "regions": [{"box": [["0", "1"]], "forbidden": [[]]}], "input": [0.5], "proofs": None}  # fmt: skip
    assert "into any outputs (exact)" in verify(json.dumps(proof)).statement
    with pytest.raises(CertificateError):
        verify(json.dumps(proof | {"input": None, "proofs": [None]}))


@torch.no_grad()
def test_terms_that_cancel_make_no_room_for_a_bias() -> None:
    """Two constant channels of 2^20 that cancel: with room for their sizes, 0.75 was 0.5 but for a rounding."""
    model = nn.Sequential(nn.Linear(1, 3), nn.ReLU(), nn.Linear(3, 1))
    for parameter, values in zip(model.parameters(), ([1, 0, 0], [0, 2**20, 2**20], [1, 1, -1], [0.5]), strict=True):
        parameter.copy_(torch.tensor(values, dtype=torch.float32).reshape(parameter.shape))
    proof = saved(channels_certificate(prune_channels(model, [(2, 1)])))
    verify(json.dumps(proof))
    bias = next(held for name, held in proof["after"].items() if name == "2.bias")
    bias |= {"data": base64.b64encode(np.array([0.75], dtype="<f4").tobytes()).decode()}
    refuse(proof, match="is not what follows")


def test_bounding_the_whole_box_of_a_deep_network_is_counted() -> None:
    """Thousands of layers without any rounds: the passes for the root alone were not counted."""
    row = _table(np.tile([0.02, -0.02], (50, 25)), "<f8")
    one, last = ({"shape": [n, 50], "weights": row if n == 50 else _table(np.ones((1, 50)), "<f8"), "bias": None}
                 for n in (50, 1))  # fmt: skip
    network = {"layers": [one] * 2400 + [last], "slopes": [0.5] * 2400}
    condition = {"outputs": [[0, "1"]], "inputs": [], "bound": "-100", "strict": False}
    tree = {"splits": [0], "middles": [], "slopes": _table(np.zeros(120_000), "u1"),
            "pushes": _table(np.zeros(120_000), "<f4"), "weights": _table([1], "<f4"), "rounds": 0,
            "tuned": []}  # fmt: skip
    region = {"box": [["-1", "1"]] * 50, "forbidden": [[condition]]}
    proof = {"kind": "specification", "version": 2, "about": [read_packed(network).digest], "network": network,
             "regions": [region], "input": None, "proofs": [tree]}  # fmt: skip
    with pytest.raises(Unsupported, match="would take about"):
        verify(json.dumps(proof))
