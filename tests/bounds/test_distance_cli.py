"""`lawful distance` on the command line: exit codes, keys, boxes, misuse."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from lawful import Mlp, read, write
from lawful.bounds.branch_and_bound import Splitting

KEYS = {"status", "lower", "upper", "input", "per_output", "boxes"}


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    rng = np.random.default_rng(0)
    widths = [3, 10, 10, 2]
    weights = [rng.normal(size=(m, n)) * np.sqrt(2 / n) for n, m in pairwise(widths)]
    first = Mlp(weights, [0.1 * rng.normal(size=m) for m in widths[1:]])
    second = first.with_theta(first.theta + 0.02 * rng.normal(size=first.parameters))
    paths = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    for path, network in zip(paths, (first, second), strict=True):
        write(network, path)
    return paths


def test_proved_violated_and_bounded(lawful: Callable[..., Any], files: tuple[Path, Path]) -> None:
    said = lawful("distance", *files, "--box=-1,1", "--within", "2", "--json").json
    assert set(said) >= KEYS
    assert (said["status"], said["within"], len(said["per_output"])) == ("proved", 2.0, 2)
    assert 0 < said["lower"] <= said["upper"] <= 2
    said = lawful("distance", *files, "--box=-1,1", "--within", "1/100", "--json", code=1).json
    assert said["status"] == "violated"
    assert said["lower"] > 0.01
    assert len(said["input"]) == 3
    said = lawful("distance", *files, "--box=-1:1,0:0.5,0.25", "--json").json
    assert said["status"] == "bounded"
    assert said["upper"] <= said["lower"] * 1.01
    assert said["input"][2] == 0.25
    one = lawful("distance", *files, "--box=-1:1,0:0.5,0.25", "--output", 1, "--json").json
    assert [each["output"] for each in one["per_output"]] == [1]
    assert one["upper"] <= said["upper"] * (1 + 1e-3)


def test_norms_are_ordered(lawful: Callable[..., Any], files: tuple[Path, Path]) -> None:
    found = [lawful("distance", *files, "--box=-1,1", "--norm", norm, "--json").json for norm in ("inf", "2", "1")]
    for smaller, larger in pairwise(found):
        assert smaller["lower"] <= larger["upper"] * (1 + 1e-6)
    assert found[2]["lower"] <= 2 * found[0]["upper"]


def test_neither_is_three(lawful: Callable[..., Any], files: tuple[Path, Path]) -> None:
    bounds = lawful("distance", *files, "--box=-1,1", "--json").json
    question = (bounds["lower"] + bounds["upper"]) / 2
    said = lawful("distance", *files, "--box=-1,1", "--within", question, "--seconds", 0, code=3)
    assert said.stdout.startswith("UNDECIDED")
    assert "output 1" in said.stdout


def test_words(lawful: Callable[..., Any], files: tuple[Path, Path]) -> None:
    assert (
        "PROVED: max |g − f| <= 2 on the box (float64, rounded outwards)"
        in lawful("distance", *files, "--box=-1,1", "--within", "2").stdout
    )
    assert "exact rationals" in lawful("distance", *files, "--box=-1,1", "--within", "0.01", code=1).stdout


def test_certificates_verify(lawful: Callable[..., Any], files: tuple[Path, Path], tmp_path: Path) -> None:
    file = tmp_path / "distance.json"
    lawful("distance", *files, "--box=-1,1", "--within", "2", "--certificate", file)
    said = lawful("verify", file, *files).stdout
    assert " is at most 2 on " in said
    lawful("distance", *files, "--box=-1,1", "--within", "0.01", "--certificate", file, code=1)
    assert " at one input" in lawful("verify", file, *files).stdout
    lawful("verify", file, files[0], files[0], code=1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--box=1,-1"], "finite lo <= hi"),
        (["--box=-1:1,0:1"], "2 coordinates"),
        (["--box=-inf,inf"], "finite lo <= hi"),
        (["--box=-1,1", "--within", "nan"], "--within takes"),
        (["--box=-1,1", "--within", "-1"], "at least 0"),
        (["--box=-1,1", "--norm", "3"], "--norm is"),
        (["--box=-1,1", "--output", "9"], "outputs 0 to 1"),
        (["--box=-1,1", "--seconds", "-1"], "time limit"),
        (["--box=-1,1", "--scheduler", "tcp://127.0.0.1:1"], "scheduler"),
    ],
)
def test_misuse(lawful: Callable[..., Any], files: tuple[Path, Path], options: list[str], words: str) -> None:
    assert words in lawful("distance", *files, *options, code=2).stderr


def test_ctrl_c_keeps_the_bounds(
    lawful: Callable[..., Any], files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, steps = Splitting._bound_boxes, iter(range(100))

    def interrupted(self: Splitting, *arguments: Any) -> Any:
        if next(steps) == 2:
            raise KeyboardInterrupt
        return whole(self, *arguments)

    finished = lawful("distance", *files, "--box=-1,1", "--json").json
    monkeypatch.setattr(Splitting, "_bound_boxes", interrupted)
    said = lawful("distance", *files, "--box=-1,1", "--json", code=130).json
    assert said["interrupted"] is True
    assert said["boxes"] < finished["boxes"]
    assert 0 < said["lower"] <= finished["upper"] <= said["upper"]


def test_rebalancing_is_bounded_on_a_box(lawful: Callable[..., Any], tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    network = Mlp([rng.normal(size=(4, 2)), rng.normal(size=(3, 4)), rng.normal(size=(1, 3))])
    write(network, tmp_path / "a.json")
    out = tmp_path / "b.json"
    said = lawful("rebalance", tmp_path / "a.json", "--out", out, "--box", "-1,1", "--json").json
    points = rng.uniform(-1, 1, (500, 2))
    change = np.abs(read(out).evaluate(points) - network.evaluate(points)).max()
    assert 0 < said["output_change_bound"] < 1e-11
    assert change <= said["output_change_bound"] + 1e-14
    assert "certified" in lawful("rebalance", tmp_path / "a.json", "--box", "-1,1").stdout


def pooled(path: Path, noise: float) -> Path:
    """A convolution with max pooling as ONNX."""
    rng, shift = np.random.default_rng(0), np.random.default_rng(1)
    shapes = {"kernel": (2, 1, 3, 3), "bias": (2,), "matrix": (8, 3), "offset": (3,)}
    values = {name: rng.normal(size=shape) + noise * shift.normal(size=shape) for name, shape in shapes.items()}
    nodes = [
        helper.make_node("Conv", ["x", "kernel", "bias"], ["sums"], pads=[1, 1, 1, 1]),
        helper.make_node("LeakyRelu", ["sums"], ["bent"], alpha=0.125),
        helper.make_node("MaxPool", ["bent"], ["pooled"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["pooled"], ["flat"]),
        helper.make_node("Gemm", ["flat", "matrix", "offset"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "pooled",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 4, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3])],
        [numpy_helper.from_array(value.astype(np.float32), name) for name, value in values.items()],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return path


def test_max_pooling_with_evidence(lawful: Callable[..., Any], tmp_path: Path) -> None:
    first, second = pooled(tmp_path / "a.onnx", 0.0), pooled(tmp_path / "b.onnx", 1e-3)
    proof = tmp_path / "proof.json"
    asked = ("distance", first, second, "--box=-0.25,0.25", "--certificate", proof, "--json")
    found = lawful(*asked, "--within", "0.05").json
    assert found["status"] == "proved"
    assert "is at most 0.05 on" in lawful("verify", proof, first, second).stdout
    runs = [ReferenceEvaluator(str(path)) for path in (first, second)]
    for point in np.random.default_rng(2).uniform(-0.25, 0.25, (50, 1, 1, 4, 4)).astype(np.float32):
        before, after = (run.run(None, {"x": point})[0] for run in runs)
        assert np.abs(after - before).max() <= found["upper"] + 1e-6
    lawful(*asked, "--within", "1e-4", code=1)
    lawful("verify", proof, first, second)
