"""One function in many spellings: one program, one digest, and the same proof, by module and by ONNX file."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from program.spellings import NOTHING, WAYS, Spelled, Written

from lawful.conservation import count_laws
from lawful.conservation.certificate import certificate, program_name
from lawful.conservation.programs.digest import file_digest
from lawful.conservation.programs.module_function import lower, probe
from lawful.conservation.rank_proof import program_batch


def digest(module: torch.nn.Module) -> str:
    case = probe(module, (5,))
    return program_name(lower(case, program_batch(case)))


@pytest.fixture(scope="module")
def plain() -> str:
    return digest(Spelled("none"))


def exported(module: torch.nn.Module) -> Any:
    held = io.BytesIO()
    x = torch.zeros(2, 5)
    torch.onnx.export(module, (x,), held, dynamo=False, input_names=["x"], dynamic_axes={"x": {0: "n"}})
    return onnx.load_from_string(held.getvalue())


@pytest.mark.parametrize("name", NOTHING)
def test_a_call_that_does_nothing_changes_no_digest(name: str, plain: str) -> None:
    assert digest(Spelled(name)) == plain
    if name != "positive":  # which PyTorch's exporter does not know
        assert file_digest(exported(Spelled(name))) == plain


@pytest.mark.parametrize("way", [way for way in WAYS if "einsum" not in way])
def test_layers_written_out_have_one_digest(way: str, plain: str) -> None:
    assert digest(Written(way)) == plain


@pytest.mark.parametrize("name", ["none", "where with equal branches", "type_as"])
def test_a_spelling_is_a_stack_of_layers_whatever_it_calls(name: str) -> None:
    """A balance for each of six hidden neurons; the certificate is about the architecture, not about the calls."""
    count = count_laws(Spelled(name), input_shape=(5,))
    assert (count.laws, count.status) == (6, "proved")
    assert certificate(count)["about"] == certificate(count_laws("5-6-3 relu bias"))["about"]


def test_casts_of_a_module_are_left_out_and_said_so() -> None:
    case = probe(Spelled("to"), (5,))
    assert any("casts" in line for line in case.assumed)
    assert not any("casts" in line for line in probe(Spelled("none"), (5,)).assumed)


def test_a_file_of_another_function_has_another_digest(plain: str) -> None:
    class Shifted(Spelled):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.b(torch.relu(self.a(x)) + 1e-9)

    assert file_digest(exported(Shifted("none"))) != plain


def test_a_certificate_is_about_the_file_that_was_exported(lawful: Any, tmp_path: Path) -> None:
    """The command line tells the file of the module from that of another one."""
    other = torch.nn.Sequential(torch.nn.Linear(5, 6), torch.nn.Tanh(), torch.nn.Linear(6, 3))
    onnx.save(exported(Spelled("none")), tmp_path / "a.onnx")
    onnx.save(exported(other), tmp_path / "b.onnx")
    count = count_laws(Spelled("where with equal branches"), input_shape=(5,))
    (tmp_path / "c.json").write_text(json.dumps(certificate(count)))
    assert "6" in lawful("verify", tmp_path / "c.json", tmp_path / "a.onnx").stdout
    assert lawful("verify", tmp_path / "c.json", tmp_path / "b.onnx", code=1).returncode == 1
