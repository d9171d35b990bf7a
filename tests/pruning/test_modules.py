"""Pruning PyTorch chains with convolutions, and back to modules and files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.prune import custom_from_mask

from lawful.errors import CertificateError, InvalidNetwork, NotACertificate, Unsupported
from lawful.network import Architecture, Mlp
from lawful.network.formats.files import read, write
from lawful.network.modules.convert import from_module, to_module
from lawful.pruning.module import prune_module
from lawful.pruning.module_certificate import certificate
from lawful.pruning.prune import prune
from lawful.verify import verify


def change(before: nn.Module, after: nn.Module, *shape: int) -> float:
    torch.manual_seed(5)
    batch = torch.randn(20, *shape, dtype=torch.float64)
    return float((before(batch) - after(batch)).abs().max())


def convolutional(padding: int = 0) -> nn.Sequential:
    torch.manual_seed(2)
    size = 6 + 4 * padding
    return nn.Sequential(
        nn.Conv2d(2, 5, 3, padding=padding), nn.ReLU(), nn.Conv2d(5, 4, 3, padding=padding), nn.LeakyReLU(0.1),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4 * (size // 2) ** 2, 6), nn.ReLU(), nn.Linear(6, 3),
    ).double()  # fmt: skip


@torch.no_grad()
def test_channels_of_every_kind() -> None:
    model = convolutional()
    model[0].weight[1].zero_()  # constant, with a bias
    model[2].weight[:, 3].zero_()  # nobody hears channel 3
    model[0].weight[4], model[0].bias[4] = 2 * model[0].weight[0], 2 * model[0].bias[0]
    model[6].weight[2].zero_()
    found = prune_module(model)
    assert {(layer, channel): why for layer, channel, why in found.removed} == {
        (0, 1): "constant", (0, 3): "silent", (0, 4): "duplicate", (6, 2): "constant",
    }  # fmt: skip
    assert found.module[0].out_channels == 2
    assert found.module[2].in_channels == 2
    assert (found.channels_before, found.channels_after) == (15, 11)
    assert change(model, found.module, 2, 10, 10) < 1e-12


@torch.no_grad()
def test_volumes() -> None:
    torch.manual_seed(3)
    model = nn.Sequential(
        nn.Conv3d(1, 4, 2), nn.ReLU(), nn.AvgPool3d(2), nn.Conv3d(4, 3, 1), nn.ReLU(), nn.Flatten(), nn.Linear(24, 2)
    ).double()
    model[0].weight[1], model[0].bias[1] = 3 * model[0].weight[2], 3 * model[0].bias[2]
    model[3].weight[0].zero_()
    found = prune_module(model)
    assert found.channels_after == found.channels_before - 2
    assert change(model, found.module, 1, 5, 5, 5) < 1e-12
    assert "2 of 7 hidden channels" in str(verify(proof_of(model)))


@torch.no_grad()
def test_zero_padding_keeps_a_constant_channel_but_not_a_zero_one() -> None:
    model = convolutional(padding=1)
    model[0].weight[1].zero_()
    model[0].bias[1] = 0.5
    assert prune_module(model).removed == ()  # its border is not constant for the next layer
    model[0].bias[1] = -0.5
    found = prune_module(model)
    assert found.removed == ((0, 1, "constant"),)
    assert change(model, found.module, 2, 10, 10) < 1e-12


@torch.no_grad()
def test_a_layer_that_says_nothing_keeps_one_channel() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).double()
    model[0].weight.zero_()
    found = prune_module(model)
    assert found.module[0].out_features == 1
    assert change(model, found.module, 3) < 1e-12


def test_what_is_not_a_chain_is_refused() -> None:
    with pytest.raises(Unsupported, match="unknown here"):
        prune_module(nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 1)))
    with pytest.raises(Unsupported, match="grouped"):
        prune_module(nn.Sequential(nn.Conv2d(2, 2, 3, groups=2)))


class Doubled(nn.Linear):
    """A layer with code of its own."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(input)


class Residual(nn.Sequential):
    """A chain that is none."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return input + super().forward(input)


def with_zero_row(first: nn.Module | None = None) -> nn.Sequential:
    torch.manual_seed(3)
    model = nn.Sequential(first or nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 3))
    with torch.no_grad():
        model[0].weight[1].zero_()
    return model


def test_what_layers_do_not_say_is_refused() -> None:
    """A subclass's own forward, a hook, a replaced method: none of it is in the weights."""
    with pytest.raises(Unsupported, match="code of its own"):
        prune_module(with_zero_row(Doubled(3, 4)))
    with pytest.raises(Unsupported, match="code of its own"):
        prune_module(Residual(*with_zero_row()))
    hooked = with_zero_row()
    hooked[1].register_forward_hook(lambda module, inputs, output: output + 1)
    with pytest.raises(Unsupported, match="hooks"):
        prune_module(hooked)
    before = with_zero_row()
    before.register_forward_pre_hook(lambda module, inputs: (2 * inputs[0],))
    with pytest.raises(Unsupported, match="hooks"):
        prune_module(before)
    patched = with_zero_row()
    patched[1].forward = lambda inputs: inputs + 1  # type: ignore[assignment]
    with pytest.raises(Unsupported, match="hooks"):
        prune_module(patched)
    poisoned = with_zero_row()
    with torch.no_grad():
        poisoned[0].weight[0, 0] = float("nan")
    with pytest.raises(InvalidNetwork, match="not finite"):
        prune_module(poisoned)


def masked(model: nn.Sequential) -> None:
    mask = torch.ones_like(model[0].weight)
    mask[2] = 0
    custom_from_mask(model[0], "weight", mask)


@pytest.mark.parametrize(
    ("change_weights", "words", "gone"),
    [
        (masked, "mask of its weight", 2),
        (lambda model: torch.nn.utils.weight_norm(model[2]), "weight normalisation", 1),
        (lambda model: torch.nn.utils.parametrizations.weight_norm(model[2]), "parametrisation", 1),
        (lambda model: torch.nn.utils.parametrizations.spectral_norm(model[2]), "parametrisation", 1),
    ],
)
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_masks_and_parametrised_weights_are_made_permanent_and_said(
    change_weights: Callable[[nn.Sequential], None], words: str, gone: int
) -> None:
    model = with_zero_row().double()
    change_weights(model)
    keys = list(model.state_dict())
    found = prune_module(model)
    assert words in found.notes[0]
    assert len(found.removed) == gone
    assert list(model.state_dict()) == keys  # the user's module is as it was
    assert change(model.eval(), found.module, 3) < 1e-12


@torch.no_grad()
def test_a_negative_zero_is_a_zero() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2)).double()
    model[0].weight[0] = torch.tensor([1.0, 0.0, 2.0])
    model[0].weight[1] = torch.tensor([0.5, -0.0, 1.0])
    model[0].bias[:2] = torch.tensor([0.25, 0.125])
    assert [why for _, _, why in prune_module(model).removed] == ["duplicate"]


# The certificate of a module's pruning


@torch.no_grad()
def redundant() -> nn.Sequential:
    """A chain with a constant, a silent and a duplicate channel, and a constant unit further up."""
    model = convolutional()
    model[0].weight[1].zero_()
    model[0].bias[1] = 0.3
    model[2].weight[:, 3].zero_()
    model[0].weight[4], model[0].bias[4] = 3 * model[0].weight[0], 3 * model[0].bias[0]
    model[6].weight[2].zero_()
    return model


def proof_of(model: nn.Module) -> dict[str, Any]:
    return dict(json.loads(json.dumps(certificate(prune_module(model)))))


@torch.no_grad()
def test_module_prunings_are_verified(lawful, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    nothing = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    nothing[0].weight.zero_()
    padded = convolutional(padding=1)
    padded[0].weight[1].zero_()
    padded[0].bias[1] = -0.5
    for model in (redundant(), redundant().float(), nothing, padded, convolutional()):
        proof = proof_of(model)
        verify(proof)
    path = tmp_path / "proof.json"
    path.write_text(json.dumps(proof_of(redundant())))
    assert "verified: 4 of 15 hidden channels of chain" in lawful("verify", path).stdout
    assert proof_of(nothing)["steps"][0]["muted"] is not None


def edited(place: list[Any], value: Any) -> Callable[[dict[str, Any]], None]:
    def edit(proof: dict[str, Any]) -> None:
        *path, last = place
        for key in path:
            proof = proof[key]
        proof[last] = value

    return edit


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (edited(["before", 0, "weight", 1, 0, 0], 1.0), "channel 1 hears something"),
        (edited(["before", 0, "bias", 1], 0.4), "another value than stated"),
        (edited(["before", 2, "weight", 0, 3, 0], 1.0), "channel 3 is heard"),
        (edited(["before", 0, "weight", 4, 0, 0], 9.0), "not its twin times"),
        (edited(["before", 2, "padding"], [1, 1]), "at the border"),
        (edited(["before", 1, "type"], "Tanh"), "expected one of"),
        (edited(["before", 5, "start_dim"], 2), "some axes only"),
        (edited(["before", 5], {"type": "Identity"}), "another axis"),
        (edited(["before", 4, "type"], "Linear"), "missing|unknown key"),
        (edited(["after", 1, "type"], "Identity"), "another kind of layer"),
        (edited(["after", 0, "stride"], [2, 2]), "another kind of layer"),
        (edited(["after", 2, "weight", 0, 0, 0], 7.0), "other weights than the steps give"),
        (edited(["after", 8, "bias", 0], 7.0), "another bias"),
        (edited(["after", 8, "dtype"], "float32"), "another kind of layer"),
        (edited(["steps", 0, "weight", 0, 0, 0], 7.0), "other weights for 0"),
        (edited(["steps", 0, "bias", 0], 7.0), "another bias"),
        (edited(["steps", 0, "layer"], 1), "not a hidden layer"),
        (edited(["steps", 0, "evidence"], [[9, "silent"]]), "out of range"),
        (edited(["steps", 0, "evidence"], [[0, "tired"]]), "unknown evidence"),
        (edited(["steps", 0, "evidence"], [[4, "duplicate", 4, "1"]]), "its twin leaves"),
        (edited(["steps", 0, "evidence"], [[4, "duplicate", 0, "2"]]), "not its twin times"),
        (edited(["steps", 0, "evidence"], []), "leaves no channel"),
        (edited(["steps"], []), "other weights than the steps give"),
        (edited(["statement"], "nothing happened"), "unknown key"),
        (edited(["before"], []), "differ in length"),
        (edited(["steps"], 3), "expected a list"),
    ],
)
def test_a_pruning_that_changes_the_function_is_rejected(edit: Callable[[dict[str, Any]], None], words: str) -> None:
    proof = proof_of(redundant())
    edit(proof)
    with pytest.raises((CertificateError, NotACertificate), match=words):
        verify(proof)


@torch.no_grad()
def test_traps_of_chains() -> None:
    """Two activations in a row, a pool that divides by another number: the constant goes through all of it."""
    model = nn.Sequential(nn.Linear(2, 3), nn.LeakyReLU(0.5), nn.ReLU(), nn.Linear(3, 1)).double()
    model[0].weight[1].zero_()
    model[0].bias[1] = -2.0
    found = prune_module(model)
    assert found.removed == ((0, 1, "constant"),)
    assert change(model, found.module, 2) < 1e-12
    pooled = nn.Sequential(nn.Conv2d(1, 2, 1), nn.AvgPool2d(2, divisor_override=1), nn.Conv2d(2, 1, 1)).double()
    pooled[0].weight[1].zero_()
    assert prune_module(pooled).removed == ()


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (nn.Sequential(nn.Conv1d(1, 4, 3), nn.ReLU(), nn.Linear(4, 2)), "last axis"),
        (nn.Sequential(nn.Linear(4, 6), nn.MaxPool1d(2), nn.Linear(3, 2)), "mixes its channels"),
        (nn.Sequential(nn.Conv1d(1, 4, 3), nn.Flatten(2), nn.Linear(4, 2)), "some axes"),
        # to MaxPool2d a batch of rows is one image, whose height are the channels
        (nn.Sequential(nn.Conv1d(1, 4, 1), nn.MaxPool2d((3, 1), 1, (1, 0)), nn.Flatten(), nn.Linear(28, 2)), "mix"),
    ],
)
def test_layers_along_other_axes_are_refused(model: nn.Module, words: str) -> None:
    with pytest.raises(Unsupported, match=words):
        prune_module(model)


@pytest.mark.parametrize("ending", [".safetensors", ".onnx", ".pt", ".npz", ".json"])
def test_the_smaller_network_survives_files(ending: str, tmp_path: Path) -> None:
    mlp = Architecture.parse("4-8-6-2 relu bias").initialise(seed=1)
    assert isinstance(mlp, Mlp)
    weights = [weight.copy() for weight in mlp.weights]
    weights[0][2] = 0.0
    pruning = prune(Mlp(weights, mlp.biases))
    assert pruning.neurons_after == 13
    write(pruning.network, tmp_path / f"small{ending}")
    batch = np.random.default_rng(0).normal(size=(50, 4))
    again = read(tmp_path / f"small{ending}")
    assert np.allclose(
        again.evaluate(batch), pruning.original.evaluate(batch), atol=1e-6 if ending == ".onnx" else 1e-12
    )
    module = to_module(pruning.network)
    assert module[0].out_features == 7
    found = module(torch.tensor(batch)).detach().numpy()
    assert np.allclose(found, pruning.original.evaluate(batch), atol=1e-12)


def test_a_convolution_as_a_graph() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 2), nn.ReLU(), nn.Flatten(), nn.Linear(2 * 4, 2)).double()
    with torch.no_grad():
        model[0].weight[1].zero_()
    dag = from_module(model, (1, 3, 3), drop_useless=True)
    pruning = prune(dag)
    assert pruning.bound == 0.0
    assert pruning.neurons_after == 4
    batch = np.random.default_rng(0).normal(size=(30, 9))
    assert np.allclose(pruning.network.evaluate(batch), dag.evaluate(batch), atol=1e-12)
