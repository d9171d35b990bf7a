"""What `same` answers depends on the two functions, not on how they are spelled or handed over."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch
from program.spellings import Spelled, Written
from torch import nn

import lawful


def copies(make: type[nn.Module], way: str) -> tuple[nn.Module, nn.Module]:
    """A module in which the first two units are the same, and its permuted and rescaled copy in float32."""
    one, two = make(way).eval(), make(way).eval()
    torch.manual_seed(1)
    with torch.no_grad():
        one.a.weight[1], one.a.bias[1] = one.a.weight[0], one.a.bias[0]
        order, scales = torch.randperm(6), torch.rand(6) + 0.5
        two.a.weight.copy_(one.a.weight[order] * scales[:, None])
        two.a.bias.copy_(one.a.bias[order] * scales)
        two.b.weight.copy_(one.b.weight[:, order] / scales)
        two.b.bias.copy_(one.b.bias)
    return one, two


@pytest.mark.parametrize(
    ("make", "way"),
    [
        (Spelled, "type_as"),
        (Spelled, "chunk and cat"),
        (Spelled, "where with equal branches"),
        (Written, "matmul from the left"),
    ],
)
def test_one_pair_has_one_answer(make: type[nn.Module], way: str, tmp_path: Path) -> None:
    one, two = copies(make, way)
    files = tmp_path / "a.onnx", tmp_path / "b.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for module, file in zip((one, two), files, strict=True):
            torch.onnx.export(
                module, (torch.zeros(1, 5),), file, dynamo=False, input_names=["x"], dynamic_axes={"x": {0: "n"}}
            )
    answers = [
        lawful.same(one, two, input=(5,)),
        lawful.same(one, two.state_dict(), model=one, input=(5,)),
        lawful.same(*map(str, files), input=(5,)),
        lawful.same(one, str(files[1]), input=(5,)),
        lawful.same(str(files[0]), two, input=(5,)),
    ]
    assert [each.verdict for each in answers] == ["equal"] * len(answers)
    with torch.no_grad():
        two.b.bias[0] += 1
    assert [
        lawful.same(one, two, input=(5,)).verdict,
        lawful.same(one, two.state_dict(), model=one, input=(5,)).verdict,
    ] == ["different"] * 2
