"""Channels that leave within a tolerance: attacks stay below every bound, and forged certificates are refused."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import lawful
from lawful.errors import CertificateError, LawfulError, Unsupported
from lawful.pruning.job.bounded import BoundedPruning, _repair_evenly, boxes_of, certificate, prune_within
from lawful.pruning.job.case import read_case
from lawful.pruning.job.network import ModuleSubject
from tests.command_line import in_process
from tests.pruning.test_job import Attention, Residual, made, samples


def pruned(tolerance: float = 0.5, **options: Any) -> BoundedPruning:
    return prune_within(ModuleSubject.of(made(Residual)), samples(Residual, 12), tolerance, **options)


def attack(found: BoundedPruning, low: Any, high: Any) -> float:
    """The largest change of an output that steps along its sign of slope find in the boxes, in float64."""
    one, two = made(Residual).double(), found.module.double()
    below, above = (torch.tensor(side).reshape(-1, 1, 5, 5) for side in (low, high))
    x = (below + (above - below) * torch.rand(below.shape, generator=torch.Generator().manual_seed(0))).requires_grad_()
    worst = 0.0
    for _ in range(40):
        gaps = (one(x) - two(x)).abs().amax(1)
        worst = max(worst, float(gaps.detach().max()))
        (slope,) = torch.autograd.grad(gaps.sum(), x)
        x = torch.minimum(torch.maximum(x + (above - below) / 10 * slope.sign(), below), above).detach()
        x.requires_grad_()
    return worst


@pytest.mark.parametrize("radius", [0.0, 0.01, 0.1])
def test_around_samples(radius: float) -> None:
    found = pruned(around=radius)
    assert found.kind == "certified"
    assert found.bounds is not None
    low, high = boxes_of(samples(Residual, 12).x.reshape(12, -1), None, radius)
    assert attack(found, low, high) <= max(found.bounds) <= 0.5
    assert found.pruned.parameters_after < found.pruned.parameters_before


def test_repair_is_for_the_worst_sample() -> None:
    """Weights that are fitted to the largest change allow more units to leave than those for the mean one."""
    x = samples(Residual, 12)
    case = read_case(ModuleSubject.of(made(Residual)), x)
    outputs = case.network.outputs(x.x)
    for count in (2, 4):
        gone = [removal.unit for removal in case.order_units("params")[:count]]
        plain = case.network.with_tensors(case.new_weights(gone)).outputs(x.x)
        evened = _repair_evenly(case, gone, x.x, outputs, np.ones(outputs.shape[1]))
        worst = float((case.network.with_tensors(evened.tensors).outputs(x.x) - outputs).abs().max())
        assert worst == pytest.approx(float(evened.ratios.max()))
        assert worst < 0.95 * float((plain - outputs).abs().max())


def test_on_a_box() -> None:
    found = pruned(tolerance=4.0, box=(np.full(25, -0.2), np.full(25, 0.3)))
    assert found.kind == "certified"
    assert found.bounds is not None
    low, high = boxes_of(np.zeros((12, 25)), (np.full(25, -0.2), np.full(25, 0.3)), None)
    assert attack(found, np.repeat(low, 8, 0), np.repeat(high, 8, 0)) <= max(found.bounds) <= 4.0


def test_around_samples_within_a_box() -> None:
    """What is stated and certified is about the part of the box near samples, and says so."""
    x = samples(Residual, 12).x
    found = pruned(around=0.1, box=(float(x.min()), float(x.max())))
    assert found.kind == "certified"
    assert "for every input of the box within 0.1 of one of 12 samples" in " ".join(str(found).split())
    assert lawful.verify(certificate(found))
    low, high = boxes_of(x.reshape(12, -1), found.box, 0.1)
    assert attack(found, low, high) <= max(found.bounds or ())


class Strided(torch.nn.Module):
    """The last row and column of pixels are read by no window."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = torch.nn.Conv2d(1, 4, 1), torch.nn.Conv2d(4, 3, 2, stride=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(self.a(x).relu()).flatten(1)


def test_pixels_that_no_window_reads() -> None:
    found = prune_within(ModuleSubject.of(Strided().eval()), samples(Residual, 12), 0.5, around=0.01)
    assert found.kind == "certified"
    assert max(found.bounds or ()) <= 0.5
    assert lawful.verify(certificate(found))


class Constant(torch.nn.Module):
    """Channels that are constant for every input are folded into biases of float32; another is dead near samples."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.out = torch.nn.Conv2d(1, 8, 1), torch.nn.Conv2d(8, 6, 2, stride=2), torch.nn.Linear(24, 3)
        with torch.no_grad():
            self.a.weight[2], self.a.bias[2] = 0.0, 0.3
            self.a.weight[4], self.a.bias[4] = 0.0, 7.7
            self.a.weight[5], self.a.bias[5] = 0.1, -50.0
            self.b.weight.mul_(3.3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.b(self.a(x).relu()).relu().flatten(1))


@pytest.mark.parametrize(("tolerance", "kind"), [(1e-9, "exact"), (1e-5, "certified")])
def test_bounds_include_the_rounding_of_folded_weights(tolerance: float, kind: str) -> None:
    x = np.random.default_rng(0).uniform(0, 1, (24, 1, 4, 4)).astype(np.float32)
    data = x, np.zeros(24, dtype=np.int64)
    found = lawful.prune(Constant().eval(), input=(1, 4, 4), data=data, tolerance=tolerance, around=0.01)
    batch = torch.tensor(x).double()
    change = float((Constant().double()(batch) - found.module.double()(batch)).abs().max())
    assert found.kind == kind
    assert change > 1e-9  # float32 rounds
    if kind == "exact":
        assert "rounded" in " ".join(found.notes)
    else:
        assert change <= max(found.bounds) <= tolerance


def test_nothing_leaves_where_nothing_may_change() -> None:
    found = pruned(tolerance=0.0, around=0.01)
    assert found.kind == "exact"
    assert found.bounds == (0.0, 0.0, 0.0)


def test_certificates_are_re_checked_and_forged_ones_refused() -> None:
    made_one = certificate(pruned(around=0.01))
    assert "of 12 samples" in lawful.verify(made_one).statement
    forged = made_one | {"upper": str(Fraction(made_one["upper"]) / 2)}
    with pytest.raises(CertificateError):
        lawful.verify(forged)


def test_attention_has_statistics_and_no_boxes() -> None:
    subject = ModuleSubject.of(made(Attention))
    found = prune_within(subject, samples(Attention, 120), 0.5, relative=True)
    assert found.kind == "statistical"
    assert found.bounds is None
    assert found.held_out is not None
    with pytest.raises(LawfulError, match="no certified bound"):
        certificate(found)
    with pytest.raises(Unsupported):
        prune_within(subject, samples(Attention, 12), 0.5, around=0.1)


def test_refusals() -> None:
    for tolerance in (-1.0, np.nan, np.inf):
        with pytest.raises(LawfulError, match="tolerance"):
            pruned(tolerance)
    with pytest.raises(LawfulError, match="from 0 on"):
        pruned(around=-0.1)
    with pytest.raises(LawfulError, match="lower corner"):
        pruned(box=(1.0, 0.0))


def test_command_line(tmp_path: Path) -> None:
    lines = ["from tests.pruning.test_job import Residual, made", "", "def net(): return made(Residual)", ""]
    (tmp_path / "nets.py").write_text("\n".join(lines))
    data = samples(Residual, 12)
    np.savez(tmp_path / "data.npz", x=data.x, y=data.labels)
    given = ("prune", "nets:net", "--input", "1,5,5", "--data", "data.npz", "--tolerance", "0.5", "--around", "0.01")
    out = in_process(*given, "--out", "small.safetensors", "--certificate", "c.json", "--json", cwd=tmp_path)
    assert out.returncode == 0, out.stderr
    assert out.json["kind"] == "certified"
    assert out.json["max_output_change_bound"] <= 0.5
    assert (tmp_path / "small.safetensors").exists()
    assert in_process("verify", tmp_path / "c.json").returncode == 0
