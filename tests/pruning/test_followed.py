"""Channels are followed through what moves, bends or spreads them, and every result has a certificate."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from pruned import kinds
from torch import Tensor, nn
from torch.nn import functional

import lawful
from lawful.errors import CertificateError
from lawful.pruning.channels import ChannelPruning, prune_channels
from lawful.pruning.channels.certificate import certificate
from lawful.pruning.channels.model_files import with_caches, without_caches


class Between(nn.Module):
    """A convolution with something dead, constant, equal and proportional, some code, and a layer."""

    def __init__(self, last: nn.Module, code: Any) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.first, self.last, self.code = nn.Conv2d(2, 8, 3), last, code
        plant(self.first)

    def forward(self, x: Tensor) -> Any:
        return self.last(self.code(self.first(x)))


@torch.no_grad()
def plant(layer: Any) -> None:
    """Channel 0 is dead, 1 constant, 3 equal to 2, 5 and 6 twice and minus half of 4."""
    layer.weight[0], layer.bias[0] = 0.0, 0.0
    layer.weight[1], layer.bias[1] = 0.0, 0.7
    for place, other, factor in ((3, 2, 1.0), (5, 4, 2.0), (6, 4, -0.5)):
        layer.weight[place], layer.bias[place] = factor * layer.weight[other], factor * layer.bias[other]


@torch.no_grad()
def checked(model: nn.Module, inputs: list[Any], count: int) -> ChannelPruning:
    """The function is the same in float64, so many channels went, and the certificate holds."""
    found = prune_channels(model.eval(), inputs)
    given = [torch.randn(*each, dtype=torch.float64) if isinstance(each, tuple) else each for each in inputs]
    one, two = (copy.deepcopy(each).eval().double()(*given) for each in (model, found.module))
    assert torch.allclose(one, two, rtol=0, atol=1e-5 * float(one.abs().max()))
    assert len(found.removed) == count, kinds(found)
    lawful.verify(certificate(found))
    return found


FLAT = nn.Linear(8, 3)
SPREAD = nn.Conv2d(8, 3, 2)
WAYS: list[tuple[str, Any, nn.Module, int]] = [
    ("tokens", lambda x: torch.relu(x).flatten(2).transpose(1, 2), FLAT, 4),
    ("last axis", lambda x: torch.relu(x).permute(0, 2, 3, 1), FLAT, 4),
    ("and back", lambda x: torch.relu(x).permute(0, 2, 3, 1).movedim(-1, 1), SPREAD, 4),
    ("one place", lambda x: torch.relu(x)[:, :, 0, 1:].unsqueeze(1).squeeze(1).mean(-1), FLAT, 4),
    ("sum", lambda x: torch.relu(x).sum((2, 3)), FLAT, 4),  # a constant is counted
    ("largest", lambda x: x.relu().amax((2, 3)), FLAT, 4),
    ("largest of all signs", lambda x: x.amax((2, 3)), FLAT, 4),
    ("mean of all signs", lambda x: x.tanh().mean((2, 3)), FLAT, 3),
    ("finer", lambda x: functional.interpolate(x.relu(), scale_factor=2, mode="bilinear"), SPREAD, 4),
    ("clamped", lambda x: x.clamp(min=0), SPREAD, 4),
    ("between", lambda x: x.clamp(-1, 1), SPREAD, 3),
    ("squared", lambda x: x.relu().square(), SPREAD, 3),
    ("wave", torch.sin, SPREAD, 3),
    ("less than 1", lambda x: 1 - x.relu(), SPREAD, 3),
    ("one slope", nn.PReLU(), SPREAD, 4),
    ("slopes", nn.PReLU(8, init=0.5), SPREAD, 4),
    ("largest places", nn.AdaptiveMaxPool2d(3), SPREAD, 5 - 1),
    ("ELU", nn.ELU(), SPREAD, 3),
    ("CELU", nn.CELU(0.5), SPREAD, 3),
    ("log", nn.LogSigmoid(), SPREAD, 3),
    ("own means", nn.InstanceNorm2d(8, affine=True), SPREAD, 3),
    ("turned", nn.ReLU(), nn.ConvTranspose2d(8, 3, 2, stride=2), 3),  # beside its border a constant is none
]


@pytest.mark.parametrize(("code", "last", "count"), [way[1:] for way in WAYS], ids=[way[0] for way in WAYS])
def test_channels_are_followed(code: Any, last: nn.Module, count: int) -> None:
    checked(Between(copy.deepcopy(last), code), [(2, 2, 7, 7)], count)


@pytest.mark.parametrize("activation", [nn.Tanh(), nn.Softshrink()])
@torch.no_grad()
def test_opposite_channels_of_an_odd_function_are_one(activation: nn.Module) -> None:
    model = nn.Sequential(nn.Linear(3, 5), activation, nn.Linear(5, 2))
    model[0].weight[3], model[0].bias[3] = -model[0].weight[1], -model[0].bias[1]
    found = checked(model, [(2, 3)], 1)
    small: Any = found.module
    expected = model[2].weight[:, 1] - model[2].weight[:, 3]
    assert torch.equal(small[2].weight[:, 1], expected)


@torch.no_grad()
def test_opposite_channels_stay_where_signs_differ() -> None:
    for part in (nn.ReLU(), nn.GELU(), nn.Sequential(nn.Tanh(), nn.MaxPool1d(2))):
        model = nn.Sequential(nn.Conv1d(3, 5, 1), part, nn.Conv1d(5, 2, 1))
        model[0].weight[3], model[0].bias[3] = -model[0].weight[1], -model[0].bias[1]
        checked(model, [(2, 3, 6)], 0)


@torch.no_grad()
def test_a_decoder_of_turned_convolutions() -> None:
    torch.manual_seed(0)
    model: Any = nn.Sequential(
        nn.ConvTranspose2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
        nn.ConvTranspose2d(8, 6, 2), nn.ReLU(), nn.ConvTranspose2d(6, 1, 3, bias=False),
    )  # fmt: skip
    model[0].weight[:, :2] = 0.0
    model[1].bias[:2] = -1.0
    model[3].weight[:, 1], model[3].bias[1] = 4 * model[3].weight[:, 0], 4 * model[3].bias[0]
    found = checked(model, [(2, 3, 5, 5)], 3)
    small: Any = found.module
    assert [(part.in_channels, part.out_channels) for part in (small[0], small[3], small[5])] == [
        (3, 6),
        (6, 5),
        (5, 1),
    ]


@torch.no_grad()
def test_certificates_of_sixteen_bits() -> None:
    for kind in (torch.float16, torch.bfloat16):
        model = Between(nn.Conv2d(8, 3, 2), nn.ReLU()).to(kind)
        found = prune_channels(model, [(2, 2, 7, 7)])
        proof = certificate(found)
        lawful.verify(proof)
        name = "last.bias"
        small = found.module.state_dict()[name].clone()
        small[0] += 0.25
        forged = copy.deepcopy(proof)
        other = certificate(_with(found, name, small))
        forged["after"] = other["after"]
        forged["about"] = other["about"]
        with pytest.raises(CertificateError):
            lawful.verify(forged)


def _with(found: ChannelPruning, name: str, value: Tensor) -> ChannelPruning:
    found.module.load_state_dict({name: value}, strict=False)
    return found


@torch.no_grad()
def test_spectral_norms_are_made_permanent() -> None:
    model = nn.Sequential(nn.utils.spectral_norm(nn.Linear(3, 5)), nn.ReLU(), nn.Linear(5, 2)).eval()
    model[0].weight_orig[1], model[0].bias[1] = 0.0, 0.0  # type: ignore[operator]
    found = prune_channels(model, [(2, 3)])
    assert len(found.removed) == 1
    assert any("spectral" in note for note in found.notes)
    batch = torch.randn(4, 3)
    assert torch.allclose(model(batch), found.module(batch), atol=1e-6)


class Twice(nn.Module):
    """A block that is used several times, between a stem and a head of its own."""

    def __init__(self, seed: int, *, norm: bool) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.stem, self.block, self.head = nn.Conv2d(2, 8, 3), nn.Conv2d(8, 8, 1), nn.Conv2d(8, 3, 1)
        self.norm: nn.Module = nn.BatchNorm2d(8) if norm else nn.PReLU(8)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for _ in range(3):
            x = torch.relu(self.norm(self.block(x)))
        return torch.as_tensor(self.head(x))


@pytest.mark.parametrize("norm", [True, False])
@torch.no_grad()
def test_a_layer_that_is_used_again_loses_what_all_its_uses_can_spare(norm: bool) -> None:
    model = Twice(0, norm=norm)
    for layer in (model.stem, model.block):
        layer.weight[0], layer.bias[0] = 0.0, 0.0  # type: ignore[index]
        layer.weight[5], layer.bias[5] = layer.weight[2], layer.bias[2]  # type: ignore[index]
    # constant for one use, and for the others
    model.stem.weight[1], model.stem.bias[1] = 0.0, 0.5  # type: ignore[index]
    model.block.weight[3], model.block.bias[3] = 0.0, 0.5  # type: ignore[index]
    found = checked(model, [(2, 2, 5, 5)], 4)
    assert {(gone.layer, gone.channel) for gone in found.removed} == {(n, c) for n in ("stem", "block") for c in (0, 5)}
    assert not prune_channels(model, [(2, 2, 5, 5)], fold=True).tidied.folded


@torch.no_grad()
def test_factors_of_a_layer_that_is_used_again_must_be_the_same() -> None:
    for factor, count in ((2.0, 1), (4.0, 0)):
        model = Siamese()
        for layer, by in ((model.one, 2.0), (model.two, factor)):
            layer.weight[1], layer.bias[1] = by * layer.weight[0], by * layer.bias[0]
        checked(model, [(2, 3), (2, 3)], 2 * count)


class Siamese(nn.Module):
    """Two layers read by one."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.one, self.two, self.both = nn.Linear(3, 4), nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.sin(self.both(torch.relu(self.one(x)))) * self.both(torch.relu(self.two(y)))


@torch.no_grad()
def test_a_constant_of_two_uses_must_be_the_same() -> None:
    for value, count in ((0.5, 2), (0.25, 0)):
        model = Siamese()
        model.one.weight[0], model.two.weight[0] = 0.0, 0.0
        model.one.bias[0], model.two.bias[0] = 0.5, value
        found = checked(model, [(2, 3), (2, 3)], count)
        if not count:
            continue
        forged = certificate(found)
        state = {name: tensor.clone() for name, tensor in found.original.state_dict().items()}
        state["two.bias"][0] = 0.25
        found.original.load_state_dict(state)
        forged |= {key: certificate(found)[key] for key in ("before", "about")}
        with pytest.raises(CertificateError, match="another function"):
            lawful.verify(forged)


def test_only_what_returned_its_cache_does_so_again() -> None:
    """An encoder beside a decoder returns none, and refuses to."""
    model = nn.ModuleDict({"encoder": nn.Identity(), "decoder": nn.Identity()})
    for part, cached in zip(model.values(), (False, True), strict=True):
        part.config = SimpleNamespace(use_cache=cached)  # type: ignore[assignment]
    names = without_caches(model)
    assert names == ["decoder"]
    assert not any(part.config.use_cache for part in model.values())  # type: ignore[union-attr]
    with_caches(model, names)
    assert [part.config.use_cache for part in model.values()] == [False, True]  # type: ignore[union-attr]


class CastHeads(nn.Module):
    """Heads whose queries and keys are normalised in another type, as in Gemma-3."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(8, 8) for _ in range(4))
        self.gain = nn.Parameter(torch.rand(4))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part(x).unflatten(-1, (-1, 4)).transpose(1, 2) for part in (self.q_proj, self.k_proj, self.v_proj))
        q, k = self._normed(q), self._normed(k)
        found = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2)
        return torch.as_tensor(self.o_proj(found.flatten(2)))

    def _normed(self, x: Tensor) -> Tensor:
        wide = x.to(torch.float64)
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return (wide * (1.0 + self.gain.to(torch.float64))).type_as(x)


@torch.no_grad()
def test_heads_leave_behind_norms_of_another_type() -> None:
    model = CastHeads()
    model.o_proj.weight[:, :4] = 0.0
    checked(model, [(2, 5, 8)], 12)
