"""`lawful laws` and `lawful verify`, as a user runs them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

KEYS = {"parameters", "dimensions", "laws", "arithmetic", "level", "flow", "loss", "known", "status", "gap"}


def test_json_has_the_documented_keys(lawful, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    proof = tmp_path / "proof.json"
    found = lawful("laws", "6-5-6-4-3-6 linear", "--certificate", proof, "--json").json
    assert set(found) >= KEYS
    assert (found["laws"], found["known"], found["status"], found["arithmetic"]) == (52, 52, "proved", "exact")
    assert (found["level"], found["flow"], found["loss"], found["gap"]) == ("phi", "gradient", "full", None)
    assert proof.stat().st_size < 5000
    assert "exactly 52 independent laws" in lawful("verify", proof).stdout
    broken = json.loads(proof.read_text()) | {"laws": 51}
    proof.write_text(json.dumps(broken))
    assert "REJECTED" in lawful("verify", proof, code=1).stdout


def test_people_read_one_table_and_the_laws(lawful) -> None:  # type: ignore[no-untyped-def]
    text = lawful("laws", "3-4-2 relu bias", "--degree", 2).stdout
    assert text.startswith("4 independent conservation laws\n")
    assert "‖U1[:,j]‖² + b1[j]² − ‖U2[j,:]‖²" in text
    assert "there are no others" in text
    assert max(map(len, text.splitlines())) <= 80


def test_weights_data_and_what_is_not_proved(lawful, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(1)
    np.savez(tmp_path / "two.npz", x=rng.normal(size=(2, 2)))
    few = lawful("laws", "2-3-1-4 relu bias", "--data", tmp_path / "two.npz").stdout
    assert "Not proved" in few
    assert "there are no others" not in few
    absent = tmp_path / "absent.json"
    run = lawful("laws", "2-3-1-4 relu bias", "--data", tmp_path / "two.npz", "--certificate", absent, code=3)
    assert "not proved" in run.stderr
    assert not absent.exists()
    near = lawful("laws", "3-4-2 relu bias", "--near", "--json").json
    assert (near["level"], near["laws"]) == ("near", 4)


def test_flows_losses_and_polynomials(lawful, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    momentum = lawful("laws", "3-3-2 linear", "--momentum", "--json").json
    assert (momentum["laws"], momentum["states"], momentum["dimensions"][:4]) == (3, 31, [7, 13, 25, 28])
    entropy = lawful("laws", "2-2-2 relu", "--loss", "cross-entropy", "--degree", 1, "--json").json
    assert entropy["polynomial"]["laws"] == ["Σ_k U2[0,k]", "Σ_k U2[1,k]"]
    np.savez(tmp_path / "metric.npz", metric=np.arange(1.0, 13.0))
    assert lawful("laws", "3-2-3 linear", "--metric", tmp_path / "metric.npz", "--json").json["laws"] == 2


BLOCK = [[2.0, 0.5, 0.25], [0.5, 1.0, 0.5], [0.25, 0.5, 3.0]]


def test_block_metrics_from_either_file_are_counted_proved_and_verified(lawful, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """A block over weights of two neurons breaks both balances but not their sum."""
    whole = np.eye(17)
    whole[:3, :3] = BLOCK
    files = [tmp_path / name for name in ("blocks.json", "blocks.npz", "whole.npz", "whole.json")]
    files[0].write_text(json.dumps({"blocks": [{"weights": [0, 1, 2], "matrix": BLOCK}]}))
    np.savez(files[1], weights0=np.arange(3), matrix0=np.array(BLOCK))
    np.savez(files[2], m=whole)
    files[3].write_text(json.dumps({"matrix": whole.tolist()}))
    for path in files:
        proof = tmp_path / f"{path.name}.proof.json"
        found = lawful("laws", "2-3-2 relu bias", "--metric", path, "--certificate", proof, "--json").json
        assert (found["laws"], found["status"], found["flow"]) == (2, "proved", "block metric")
        assert "exactly 2 independent laws under gradient flow in a constant metric" in lawful("verify", proof).stdout
    (tmp_path / "mine.py").write_text(MODULES)
    np.savez(tmp_path / "m.npz", m=np.arange(1.0, 16.0))
    module = lawful("laws", "mine:convolution", "--input", "1,10", "--metric", "m.npz", "--json", cwd=tmp_path).json
    assert (module["laws"], module["flow"]) == (2, "diagonal metric")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("m.npz", {"m": np.ones(3)}, "3 entries for 12 parameters"),
        ("m.npz", {"m": np.ones((3, 3))}, "3×3, for 12"),
        ("m.npz", {"m": -np.ones(12)}, "positive finite"),
        ("m.npz", {"m": np.full(12, np.nan)}, "positive finite"),
        ("m.npz", {"m": np.ones((2, 3, 2))}, "not a matrix"),
        ("m.npz", {"m": np.ones(12, dtype=complex)}, "not a list of numbers"),
        ("m.npz", {"a": np.ones(12), "b": np.ones(12)}, "weights0, matrix0"),
        ("m.npz", {"weights0": np.array([0.5]), "matrix0": np.eye(1)}, "counted from 0"),
        ("m.npz", {"weights0": np.array([12]), "matrix0": np.eye(1)}, "do not exist"),
        ("m.json", {"blocks": [{"weights": [0, 1], "matrix": [[1, 2], [2, 1]]}]}, "not positive definite"),
        ("m.json", {"blocks": [{"weights": [0, 1], "matrix": [[1, 0.5], [0, 1]]}]}, "symmetric"),
        ("m.json", {"blocks": [{"weights": [0, 1], "matrix": [[1, 2], [2]]}]}, "not a matrix"),
        ("m.json", {"blocks": [{"weights": [0, 0], "matrix": [[2, 1], [1, 2]]}]}, "twice"),
        ("m.json", {"blocks": [3]}, "needs `weights`"),
        ("m.json", {"blocks": 3}, "`diagonal`, `matrix`, or `blocks`"),
        ("m.json", {"diagonal": ["a"] * 12}, "not a list of numbers"),
        ("m.json", [1.0] * 12, "`diagonal`, `matrix`, or `blocks`"),
        ("m.csv", [1.0], ".npz or .json"),
    ],
)
def test_files_that_hold_no_metric(lawful, tmp_path: Path, name: str, content, words: str) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / name
    if path.suffix == ".npz":
        np.savez(path, **content)
    else:
        path.write_text(json.dumps(content))
    error = lawful("laws", "3-2-3 linear", "--metric", path, code=2).stderr
    assert words in error
    assert len(error.splitlines()) == 1


def test_the_reduction_of_a_network(lawful, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """P1 Examples 3.6 and 3.7: two-layer ReLU networks are involutive, linear ones are not."""
    found = lawful("laws", "3-2-2 relu bias", "--reduction", "--json").json["reduction"]
    assert (found["involutive"], found["dimension"], found["rank"], found["closed_form"]) == (True, 12, 12, True)
    assert (len(found["coordinates"]), np.shape(found["metric"])) == (18, (18, 18))
    assert found["closed_form_error"] < 1e-12
    stored = tmp_path / "net.json"
    lawful("convert", "3-2-2 relu bias", stored, "--seed", 0)
    again = lawful("laws", stored, "--reduction", "--json").json["reduction"]
    assert np.allclose(np.linalg.eigvalsh(again["metric"]), np.linalg.eigvalsh(found["metric"]))
    other = lawful("laws", "3-2-2 relu bias", "--reduction", "--seed", 1, "--json").json["reduction"]
    assert not np.allclose(other["metric"], found["metric"])
    linear = lawful("laws", "3-2-3 linear", "--reduction", "--json").json["reduction"]
    assert (linear["involutive"], linear["dimension"], linear["with_brackets"]) == (False, 8, 9)
    assert "with brackets 9" in lawful("laws", "3-2-3 linear", "--reduction").stdout
    assert "Closed form" in lawful("laws", "3-2-2 relu bias", "--reduction").stdout
    assert "more than 500 coordinates" in " ".join(lawful("laws", "9-9-9 relu", "--reduction").stdout.split())
    (tmp_path / "mine.py").write_text(MODULES)
    module = lawful("laws", "mine:convolution", "--input", "1,10", "--reduction", cwd=tmp_path).stdout
    assert "closed under brackets" in module


MODULES = """
import torch
from torch import nn
def convolution():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv1d(1, 2, 3), nn.ReLU(), nn.Conv1d(2, 1, 3))
def nothing():
    return nn.ReLU()
"""


def test_modules_by_name(lawful, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "mine.py").write_text(MODULES)
    found = lawful("laws", "mine:convolution", "--input", "1,10", "--json", cwd=tmp_path).json
    assert (found["laws"], found["parameters"], found["status"]) == (2, 15, "proved")
    assert found["gap"] > 1e6
    assert "no trainable" in lawful("laws", "mine:nothing", "--input", "2", code=2, cwd=tmp_path).stderr


def test_shared_weights_in_a_file_are_not_counted_as_free(lawful, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    weight = numpy_helper.from_array(np.ones((2, 1, 3)), "w")
    node = helper.make_node("Conv", ["x", "w"], ["y"], kernel_shape=[3])
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.DOUBLE, [1, 1, 8])],
        [helper.make_tensor_value_info("y", TensorProto.DOUBLE, [1, 2, 6])],
        [weight],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "convolution.onnx")
    answer = lawful("laws", tmp_path / "convolution.onnx", "--json").json
    assert (answer["parameters"], answer["laws"]) == (6, 0)  # the kernel's entries, not the 36 edges of its graph


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("3-0-2 relu",), "width 0"),
        (("3-2-2", "--near", "--data", "x.npz"), "leave out"),
        (("3-2-2", "--data", "absent.npz"), "absent.npz"),
        (("3-2-2", "--loss", "hinge"), "unknown loss"),
        (("3-2-2", "--degree", "0"), "at least 1"),
        (("300-300-300 relu", "--momentum"), "GB"),
        (("3-2-2", "--momentum", "--metric", "m.npz"), "choose one"),
        (("3-2-2", "--momentum", "--degree", "2"), "leave out"),
        (("3-2-2", "--momentum", "--reduction"), "leave out"),
        (("3-2-2", "--metric", "absent.npz"), "absent.npz"),
    ],
)
def test_mistakes_are_one_line(lawful, arguments: tuple[str, ...], words: str) -> None:  # type: ignore[no-untyped-def]
    error = lawful("laws", *arguments, code=2).stderr
    assert words in error
    assert len(error.splitlines()) == 1


def test_files_that_are_no_certificates(lawful, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "x.json"
    for text in ("[]", "{", '{"kind": "magic"}', '{"kind": "laws"}'):
        path.write_text(text)
        lawful("verify", path, code=2)
