"""What the domain of channels claims holds of the numbers that the program itself computes."""

from __future__ import annotations

import base64
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from flint import arb, ctx
from program.models import make
from program.spellings import NOTHING, WAYS, Spelled, Written
from torch import nn

from lawful.errors import CertificateError, NotACertificate
from lawful.program.core.functions import apply_function, nearest
from lawful.program.domains.evaluate import evaluate
from lawful.program.frontends.torch_export import read_module
from lawful.program.program import Program
from lawful.pruning.channels import prune_channels
from lawful.pruning.channels.certificate import certificate
from lawful.pruning.channels.constants_and_multiples import BITS, Facts
from lawful.pruning.channels.onnx_file import prune_onnx
from lawful.pruning.channels.reading.domain import ChannelReading, read_channels
from lawful.pruning.channels.reading.values import Channels, follow
from lawful.pruning.channels.weights import ChannelWeights
from lawful.sources.checkpoints.load import let_torchvision_load
from lawful.verify import verify
from lawful.verify.core.tensors import read_tensor, weights_digest
from lawful.verify.pruning.constants import evaluate as bent

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
ROUNDING = 2.0**-40  # of sums of some hundred terms in float64, relative to the largest entry


def weights_of(reading: ChannelReading) -> ChannelWeights:
    arrays = {}
    for name, tensor in reading.source.tensors.items():
        array = np.asarray(tensor.detach().double().numpy(), dtype=np.float64).copy()
        arrays[name] = np.swapaxes(array, 0, 1) if name in reading.program.transposed else array
    return ChannelWeights(reading.program, arrays)


def check_claims(program: Program, *inputs: np.ndarray) -> tuple[int, int]:
    """Every channel that is said to be constant or a multiple of another one is, in all entries of every value."""
    reading = read_channels(program)
    with ctx.workprec(BITS):
        facts = Facts(weights_of(reading))
    nodes = [node for node in program.nodes if isinstance(reading.values[node], Channels)]
    values = evaluate(program, *inputs, keep=nodes)[len(program.outputs) :]
    constants = multiples = 0
    for node, value in zip(nodes, values, strict=True):
        known = reading.values[node]
        spelled = known.width > 1 or known.name not in facts.keys
        late = reading.operation(known.name) is not None and "bias" in reading.operation(known.name).tensors
        if spelled or (late and node.op in ("contract", "conv", "mul")):  # a bias that the next node adds is in already
            continue
        numbers = np.asarray(value, dtype=np.float64)
        flat = {
            int(label): np.compress((known.labels == label).ravel(), _by_channel(numbers, known), axis=0)[0]
            for label in np.unique(known.labels)
        }
        room = ROUNDING * (1.0 + np.abs(numbers[np.isfinite(numbers)]).max(initial=0.0))
        for label, entries in flat.items():
            if label in facts.constant[known.name]:
                constants += 1
                assert np.abs(entries - nearest(facts.constant[known.name][label])).max() <= room, (node, label)
        leaders: dict[int, int] = {}
        for label in flat:
            leader = leaders.setdefault(facts.keys[known.name][label], label)
            if leader != label:
                multiples += 1
                ratio = facts.factors[known.name][label] / facts.factors[known.name][leader]
                gap = np.abs(flat[label] - float(ratio) * flat[leader]).max()
                assert gap <= room * max(1.0, abs(float(ratio))), (node, label, leader)
    return constants, multiples


def _by_channel(numbers: np.ndarray, known: Channels) -> np.ndarray:
    """One row for every entry of the labels: all its positions."""
    axes = known.axes
    moved = np.moveaxis(numbers, axes, range(len(axes)))
    return moved.reshape(known.labels.size, -1)


@torch.no_grad()
def plant(module: nn.Module) -> nn.Module:
    """Make a row of every layer constant, and one a multiple of its neighbour."""
    for part in module.modules():
        if isinstance(part, (nn.Linear, nn.Conv1d, nn.Conv2d)) and len(part.weight) > 3:
            part.weight[1] = 0.0
            part.weight[3] = 2 * part.weight[2]
            if part.bias is not None:
                part.bias[3] = 2 * part.bias[2]
        if isinstance(part, (nn.BatchNorm1d, nn.BatchNorm2d)):
            part.running_mean.normal_(generator=torch.Generator().manual_seed(1))
            for tensor in (part.weight, part.bias, part.running_mean, part.running_var):
                if len(tensor) > 3:
                    tensor[3] = tensor[2]
    return module.eval()


def numbers_for(program: Program, module: nn.Module) -> list[np.ndarray]:
    rng = np.random.default_rng(5)
    return [
        rng.normal(size=node.shape) if node.kind == "f" else rng.integers(0, 40, node.shape) for node in program.inputs
    ]


@pytest.mark.parametrize("name", ["mlp", "lenet", "attention", "vit", "bert", "llama"])
def test_claims_hold_of_the_values_that_the_program_computes(name: str) -> None:
    let_torchvision_load()
    module, x = make(name)
    program = read_module(plant(module), [tuple(x.shape) if x.is_floating_point() else x])
    constants, multiples = check_claims(program, *numbers_for(program, module))
    assert constants
    assert multiples


class Odd(nn.Module):
    """A layer, and whatever a test puts between it and the next."""

    def __init__(self, between: Callable[[torch.Tensor], torch.Tensor], inner: int = 6, spatial: bool = True) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a = nn.Conv2d(2, 6, 3) if spatial else nn.Linear(5, 6)
        self.b = nn.Conv2d(inner, 3, 1) if spatial else nn.Linear(inner, 3)
        self.between = between

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(self.between(self.a(x)))


SPATIAL: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], int]] = {
    "zeros beside": (lambda h: nn.functional.pad(h, (1, 1, 1, 1)), 6),
    "ones beside": (lambda h: nn.functional.pad(h, (1, 1, 1, 1), value=1.0), 6),
    "largest of padded windows": (lambda h: nn.functional.max_pool2d(h, 3, 2, 1), 6),
    "mean with padding": (lambda h: nn.functional.avg_pool2d(h, 3, 2, 1), 6),
    "mean without padding": (lambda h: nn.functional.avg_pool2d(h, 3, 2, 1, count_include_pad=False), 6),
    "mean over three": (lambda h: h.mean((2, 3), keepdim=True).expand(-1, -1, 2, 2), 6),
    "sum": (lambda h: h.sum(3, keepdim=True), 6),
    "turned": (lambda h: h.transpose(2, 3), 6),
    "each channel shifted by itself": (lambda h: torch.stack([h[:, k].roll(k, 2) for k in range(6)], 1), 6),
    "shuffled": (lambda h: h.reshape(2, 2, 3, 6, 6).transpose(1, 2).reshape(2, 6, 6, 6), 6),
    "pixels": (lambda h: nn.functional.pixel_unshuffle(h, 2), 24),
    "both signs": (lambda h: torch.cat([h.relu(), (-h).relu()], 1), 12),
    "gate": (lambda h: nn.functional.glu(h, 1), 3),
    "turned and straight": (lambda h: h + h.transpose(2, 3), 6),
    "interpolated": (lambda h: nn.functional.interpolate(h, scale_factor=2, mode="bilinear"), 6),
    "by their own means": (lambda h: nn.functional.instance_norm(h), 6),
    "in groups": (lambda h: nn.functional.group_norm(h, 2), 6),
    "shrunk": (lambda h: nn.functional.hardshrink(h, 0.25), 6),
    "shrunk towards 0": (lambda h: nn.functional.softshrink(h, 0.25), 6),
    "shrunk behind a shift": (lambda h: nn.functional.softshrink(torch.tanh(h) + 1, 0.25), 6),
    "of the larger": (lambda h: torch.maximum(h, 0.5 * h), 6),
    "softmax of channels": (lambda h: h.softmax(1), 6),
    "largest channel": (lambda h: h - h.amax(1, keepdim=True), 6),
}


@pytest.mark.parametrize("name", SPATIAL)
def test_claims_hold_through_odd_calls(name: str) -> None:
    between, inner = SPATIAL[name]
    module = plant(Odd(between, inner).double())
    program = read_module(module, [(2, 2, 8, 8)])
    check_claims(program, *numbers_for(program, module))


def test_channels_that_move_apart_are_not_followed() -> None:
    module = plant(Odd(SPATIAL["each channel shifted by itself"][0]).double())
    reading = read_channels(read_module(module, [(2, 2, 8, 8)]))
    assert not [
        each for each in reading.program.operations if each.kind == "layer" and not reading.program.is_pinned(each.name)
    ]


def test_a_constant_beside_zeros_is_none() -> None:
    module = plant(Odd(SPATIAL["zeros beside"][0]).double())
    with torch.no_grad():
        module.a.bias[1] = 0.5
    found = prune_channels(module, [(2, 2, 8, 8)])
    assert ("a", 1) not in {(each.layer, each.channel) for each in found.removed if each.kind == "constant"}


@torch.no_grad()
def redundant(module: nn.Module) -> nn.Module:
    """One constant channel and one duplicate."""
    module.a.weight[2], module.a.bias[2] = 0.0, 0.75
    module.a.weight[4], module.a.bias[4] = 2 * module.a.weight[1], 2 * module.a.bias[1]
    return module


# their code states the number of channels
FIXED = ("einsum with an expanded weight", "in parts", "in another shape", "times the identity")
HELD = [way for way in WAYS if way not in FIXED]


@pytest.mark.parametrize("module", [*map(Spelled, NOTHING), *map(Written, HELD)], ids=[*NOTHING, *HELD])
def test_all_spellings_lose_the_same_channels(module: nn.Module) -> None:
    found = prune_channels(redundant(module), [(2, 5)])
    assert [(each.channel, each.kind) for each in found.removed] == [(2, "constant"), (4, "duplicate")]
    assert verify(certificate(found)).facts["channels_after"] == 4


def test_padding_leaves_channels_where_they_are() -> None:
    from lawful.program.index_map import IndexMap

    at = np.full((1, 2, 4), 4)
    at[:, :, 1:3] = np.arange(4).reshape(1, 2, 2)
    moved = follow(IndexMap.of(at), [((1, 2, 2), np.arange(2).reshape(1, 2, 1)), ((1,), None)])
    assert moved is not None
    assert moved.labels.tolist() == [[[0], [1]]]
    assert moved.outside is not None
    assert moved.outside.ravel().tolist() == [True, False, False, True]


class Scaled(nn.Module):
    """A scale and a shift by channel between two layers, of which nothing else knows."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = nn.Conv2d(2, 6, 3), nn.Conv2d(6, 3, 1)
        self.gain, self.shift = (nn.Parameter(torch.randn(6, *shape)) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gain, shift = self.gain.reshape(6, 1, 1), self.shift.reshape(6, 1, 1)
        return self.b(torch.relu(self.a(x)) * gain + shift)


class OpenScaled(Scaled):
    """The same, for any number of channels."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(torch.relu(self.a(x)) * self.gain.reshape(-1, 1, 1) + self.shift.reshape(-1, 1, 1))


@torch.no_grad()
def scaled() -> nn.Module:
    module = redundant(OpenScaled())
    module.gain[4], module.shift[4] = module.gain[1], 2 * module.shift[1]  # twice the channel beside it
    module.gain[0] = 0.0
    return module


@pytest.mark.parametrize("shape", [(), (1, 1)])
def test_claims_hold_through_a_scale_by_channel(shape: tuple[int, ...]) -> None:
    module = plant(Scaled(*shape).double())
    with torch.no_grad():
        module.gain[3], module.shift[3] = module.gain[2], 2 * module.shift[2]
    program = read_module(module, [(2, 2, 8, 8)])
    constants, multiples = check_claims(program, *numbers_for(program, module))
    assert constants
    assert multiples


def test_a_scale_by_channel_is_cut_with_its_layers() -> None:
    found = prune_channels(scaled(), [(2, 2, 8, 8)])
    assert {(each.layer, each.channel, each.kind) for each in found.removed} == {
        ("a", 0, "constant"), ("a", 2, "constant"), ("a", 4, "duplicate"),
    }  # fmt: skip
    assert found.module.gain.shape == (3,)
    assert verify(certificate(found)).facts["channels_after"] == 3


@pytest.mark.parametrize("forgery", ["gain before", "shift before", "nothing", "other size"])
def test_a_forged_scale(forgery: str) -> None:
    made = certificate(prune_channels(scaled(), [(2, 2, 8, 8)]))
    step = next(each for each in made["program"] if each["kind"] == "scale")
    if forgery == "nothing":
        step["tensors"] = {"weight": None, "bias": None}
    elif forgery == "other size":
        step["channels"] -= 1
    else:
        tensor = made["before"]["gain" if forgery.startswith("gain") else "shift"]
        numbers = np.frombuffer(base64.b64decode(tensor["data"]), dtype=np.float32).copy()
        numbers[4] += 1.0  # no longer twice the channel beside it
        tensor["data"] = base64.b64encode(numbers.tobytes()).decode()
        made["about"][0] = redigested(made)
    with pytest.raises((CertificateError, NotACertificate)):
        verify(made)


def redigested(made: dict[str, Any]) -> str:
    """The digest of the forged weights: a forger knows how to make one."""
    tensors = {name: read_tensor(each) for name, each in made["before"].items()}
    return weights_digest({name: tensor.line for name, tensor in tensors.items()} | made["others"])


@pytest.mark.parametrize(("low", "high"), [("clamp_min", "clamp_max")])
def test_bounds_of_a_ball_are_sure_or_unknown(low: str, high: str) -> None:
    with ctx.workprec(BITS):
        third, wide = arb(1) / 3, arb(0, 1)
        half = [Fraction(1, 2)]
        for function in (bent, lambda name, given, value: apply_function(name, tuple(map(float, given)), value)):
            assert function(low, half, third) == Fraction(1, 2)
            assert function(high, half, third) is third
            assert function(low, [Fraction(0)], third) is third
            assert function(high, [Fraction(0)], third) == 0
            assert function(low, half, wide) is None
            assert function(high, half, wide) is None


@pytest.mark.parametrize("dynamo", [False, True])
@pytest.mark.parametrize("name", ["stack and select", "where with equal branches", "einsum", "clamp_min"])
def test_files_of_spellings_lose_the_same_channels(name: str, dynamo: bool, tmp_path: Path) -> None:
    path = tmp_path / "spelled.onnx"
    torch.onnx.export(redundant(Spelled(name)).eval(), (torch.zeros(2, 5),), path, dynamo=dynamo, verbose=False)
    found = prune_onnx(onnx.load(path))
    onnx.checker.check_model(found.model)
    assert [(each.channel, each.kind) for each in found.removed] == [(2, "constant"), (4, "duplicate")]
    assert verify(certificate(found)).facts["channels_after"] == 4
    batch = np.random.default_rng(1).normal(size=(2, 5)).astype(np.float32)
    one, two = (
        onnxruntime.InferenceSession(model.SerializeToString()).run(None, {model.graph.input[0].name: batch})[0]
        for model in (onnx.load(path), found.model)
    )
    assert np.allclose(one, two, atol=1e-6)


def test_a_weight_that_is_returned_stays_whole() -> None:
    class Open(Spelled):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return super().forward(x), self.a.weight

    assert prune_channels(redundant(Open("none")), [(2, 5)]).removed == ()
