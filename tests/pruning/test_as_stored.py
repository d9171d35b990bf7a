"""Prunings that are stored in float32: the certificate is about the numbers in the file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lawful.errors import LawfulError
from lawful.network import Mlp
from lawful.pruning.neurons.certificate import certificate, round_to_file
from lawful.pruning.neurons.prune import prune
from lawful.sources.files import read, write
from lawful.verify import verify


def network() -> Mlp:
    """Numbers of float32; two neurons are multiples of each other, and one is constant."""
    rng = np.random.default_rng(0)
    shapes = [((6, 3), 6), ((5, 6), 5), ((2, 5), 2)]
    weights = [rng.normal(size=shape).astype(np.float32).astype(np.float64) for shape, _ in shapes]
    biases = [rng.normal(size=size).astype(np.float32).astype(np.float64) for _, size in shapes]
    weights[0][4], biases[0][4] = 0.5 * weights[0][1], 0.5 * biases[0][1]
    weights[0][2], biases[0][2] = 0.0, 0.3125
    return Mlp(weights, biases)


@pytest.mark.parametrize("ending", ["safetensors", "pt", "onnx", "npz"])
def test_what_is_written_is_what_is_certified(lawful: Callable[..., Any], tmp_path: Path, ending: str) -> None:
    a, b, proof = (str(tmp_path / name) for name in (f"a.{ending}", f"b.{ending}", "proof.json"))
    write(network(), a, dtype="float32")
    found = lawful("prune", a, "--out", b, "--certificate", proof, "--json").json
    assert found["neurons_after"] == 9
    seen = lawful("verify", proof, a, b, "--json").json
    assert "but for the rounding of weights" in seen["statement"]
    assert np.array_equal(read(b).theta, read(b).theta.astype(np.float32))


def test_the_bound_of_what_is_stored_holds_and_cannot_be_lowered() -> None:
    found = round_to_file(prune(network()), "float16")
    change = found.measured(2000)
    assert 0 < change <= found.rounding
    proof = json.loads(json.dumps(certificate(found)))
    assert verify(proof).facts["neurons_after"] == 9
    assert proof["stages"][-1]["evidence"] == []
    with pytest.raises(LawfulError, match="rounding_bound"):
        verify(proof | {"rounding_bound": proof["rounding_bound"] / 2})
    for reason in (None, "on", "off", "0"):
        forged = json.loads(json.dumps(proof))
        forged["stages"][-1]["evidence"] = [[3, reason]]
        with pytest.raises(LawfulError):
            verify(forged)


def test_numbers_that_fit_need_no_stage() -> None:
    found = prune(Mlp([[[1.0], [2.0]], [[1.0, 0.5]]], [[0.0, 0.0], [0.0]]))
    assert round_to_file(found, "float32") is found
    assert round_to_file(found, None) is found
