"""`show` of convolutional files: parameters as the file has them, no balances of the unrolled graph."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch
from command_line import in_process
from torch import nn

pytest.importorskip("onnx")


@pytest.mark.parametrize("normed", [False, True])
def test_a_convolution_counts_its_weights_once(tmp_path: Path, normed: bool) -> None:
    """The truth is PyTorch's own count of what it exported."""
    middle = [nn.BatchNorm2d(3)] if normed else []
    net = nn.Sequential(nn.Conv2d(1, 3, 3), *middle, nn.ReLU(), nn.Flatten(), nn.Linear(3 * 16, 2)).eval()
    file = tmp_path / "net.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(net, (torch.zeros(1, 1, 6, 6),), file, dynamo=False, do_constant_folding=False)
    found = in_process("show", file, "--json").json
    assert found["parameters"] == sum(tensor.numel() for tensor in net.parameters())
    assert found["edges"] > found["parameters"]
    assert found["balance"] is None
    assert {layer["parameters"] for layer in found["layers"]} == {None}
    shown = in_process("show", file).stdout
    assert "Balances of such neurons are not conserved" in " ".join(shown.split())
    assert "balances B̃θ²" not in shown


def test_a_graph_whose_weights_are_its_parameters_is_as_before() -> None:
    found = in_process("show", "3-4-2 relu", "--json").json
    assert (found["parameters"], found["edges"], found["unrolled"]) == (20, 20, [])
