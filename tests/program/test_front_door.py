"""`lawful show --program`: whatever a user has, one program."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from lawful.api.networks import read_program
from lawful.errors import LawfulError


@pytest.fixture(scope="module")
def forms(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One network as a module, a state dict's file and an ONNX file that leaves the number of samples open."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("forms")
    module = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    torch.save(module.state_dict(), folder / "net.pt")
    torch.onnx.export(
        module, (torch.zeros(1, 3),), folder / "net.onnx", dynamo=False, input_names=["x"], dynamic_axes={"x": {0: "n"}}
    )
    return {"module": module, "file": folder / "net.pt", "onnx": folder / "net.onnx"}


def test_every_form_is_one_program(forms: dict[str, Any]) -> None:
    digests = {name: read_program(form).digest(names=False) for name, form in forms.items()}
    assert len(set(digests.values())) == 1, digests


def test_the_command_line(lawful: Any, forms: dict[str, Any]) -> None:
    shown = lawful("show", str(forms["onnx"]), "--program").stdout
    assert "relu(" in shown
    assert "26 parameters" in shown
    found = json.loads(lawful("show", str(forms["file"]), "--program", "--json").stdout)
    assert found["parameters"] == 26
    assert found["digest"] in shown
    assert found["opaque"] == []
    assert found["operators"]["contract"] == 2


def test_sizes_that_a_file_leaves_open_are_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "open.onnx"
    names = {"x": {0: "n", 2: "height", 3: "width"}}
    torch.onnx.export(
        nn.Conv2d(1, 1, 3), (torch.zeros(1, 1, 5, 5),), path, dynamo=False, input_names=["x"], dynamic_axes=names
    )
    with pytest.raises(LawfulError, match="give it without the samples"):
        read_program(path)
    assert read_program(path, input="1,7,6").outputs[0].shape == (1, 1, 5, 4)


def test_files_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "none.onnx").write_bytes(b"\x00\x01")
    with pytest.raises(LawfulError, match=r"none\.onnx"):
        read_program(tmp_path / "none.onnx")
    (tmp_path / "empty.onnx").write_bytes(b"")
    with pytest.raises(LawfulError, match=r"empty\.onnx.*no outputs"):
        read_program(tmp_path / "empty.onnx")
    lost = nn.Linear(2, 2)
    nn.init.constant_(lost.weight, float("nan"))
    torch.onnx.export(lost, (torch.zeros(1, 2),), tmp_path / "nan.onnx", dynamo=False)
    with pytest.raises(LawfulError, match="NaN"):
        read_program(tmp_path / "nan.onnx")
