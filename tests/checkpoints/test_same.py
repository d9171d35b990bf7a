"""Equal, different or undecided: what rounding explains, and what it does not."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from checkpoints.conftest import architecture, disguise, narrow
from checkpoints.models import FAMILIES, make
from effort import trials
from torch import nn

import lawful
from lawful.checkpoints.compare.certificate import copy_certificate
from lawful.checkpoints.compare.decide import CheckpointVerdict, same_checkpoints
from lawful.checkpoints.opening import CheckpointPair, OpenCheckpoint, open_checkpoints
from lawful.checkpoints.rewrite.folds import GainFold, State
from lawful.errors import CertificateError, InvalidNetwork, LawfulError, Unsupported
from lawful.verify import verify


def decided(family: str, second: State, first: State | None = None) -> CheckpointVerdict:
    found = architecture(family)
    return same_checkpoints(found, found.state() if first is None else first, second)


def certified(
    family: str, second: State, first: State | None = None
) -> tuple[dict[str, Any], list[dict[str, np.ndarray]]]:
    found = architecture(family)
    pair = CheckpointPair(
        found,
        *(OpenCheckpoint(state, {name: name for name in state}, "") for state in (first or found.state(), second)),
    )
    certificate = copy_certificate(pair, same_checkpoints(found, pair.first.state, pair.second.state))
    files = [
        {name: tensor.double().numpy() for name, tensor in each.state.items() if tensor.is_floating_point()}
        for each in (pair.first, pair.second)
    ]
    return certificate, files


@pytest.mark.parametrize("kind", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_disguises_are_copies_within_their_rounding(family: str, kind: torch.dtype) -> None:
    found = architecture(family)
    verdict = decided(family, narrow(disguise(found, found.state(), 1), kind))
    assert verdict.verdict == ("rounded" if kind == torch.bfloat16 else "equal")
    assert bool(verdict) == (kind != torch.bfloat16)
    assert verdict.within == ("weight by weight" if family == "mlp" else "copy by weights")
    assert verdict.epsilon < 10 * torch.finfo(kind).eps + 1e-7 * (kind == torch.float64)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_copy_is_equal_exactly_and_a_cast_is_rounded(family: str) -> None:
    """A cast has other outputs, by more than the arithmetic: another function, and not the same word."""
    state = architecture(family).state()
    assert decided(family, dict(state)).within == "exactly"
    cast = decided(family, narrow(state, torch.bfloat16))
    assert (cast.verdict, cast.within) == ("rounded", "weight by weight")
    assert cast.replay.gap > 1e3 * cast.replay.error
    assert 1e-3 < cast.epsilon < 2**-7


def test_permutations_and_powers_of_two_are_exact() -> None:
    state = dict(architecture("mlp").state())
    order, powers = torch.randperm(7), torch.exp2(torch.randint(-3, 4, (7,)))
    state["0.weight"] = powers[:, None] * state["0.weight"][order]
    state["0.bias"] = powers * state["0.bias"][order]
    state["2.weight"] = state["2.weight"][:, order] / powers
    assert decided("mlp", state).within == "exactly"
    certificate, files = certified("mlp", state)
    assert verify(json.dumps(certificate), *files).facts["moved_only"] == sum(t.numel() for t in state.values())


def test_a_permuted_stream_with_its_gains_is_exact() -> None:
    state = dict(architecture("llama").state())
    order = torch.randperm(16)
    for name, tensor in state.items():
        if tensor.ndim == 1 or any(part in name for part in ("out.", "down.")):
            state[name] = tensor[order]
        else:
            state[name] = tensor[:, order]
    verdict = decided("llama", state)
    assert (verdict.verdict, verdict.within) == ("equal", "exactly")


@pytest.mark.parametrize("family", FAMILIES)
def test_one_weight_off_by_a_thousandth_is_different(family: str) -> None:
    found = architecture(family)
    state = narrow(disguise(found, found.state(), 3), torch.float32)
    name = [name for name in found.group.shapes if state[name].ndim > 1][-2]
    flat = state[name].reshape(-1).clone()
    flat[int(flat.abs().argsort()[len(flat) // 2])] *= 1.001
    state[name] = flat.reshape(state[name].shape)
    verdict = decided(family, state)
    assert verdict.verdict == "different"
    assert verdict.replay.gap > 1e3 * verdict.replay.error
    worst = max(verdict.comparison.distances, key=lambda each: each.relative)
    assert worst.tensor == name


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_one_weight_changed_by_many_roundings_is_not_equal(family: str, kind: torch.dtype) -> None:
    """Seen in B's own order and axes, where no rotation spreads a change over a whole row."""
    found = architecture(family)
    state = narrow(disguise(found, found.state(), 3), kind)
    names = [name for name in found.group.shapes if state[name].ndim > 1]
    for name in names[:: max(1, len(names) // trials(1, 3))]:
        flat = state[name].reshape(-1).clone()
        place = int(flat.abs().argsort()[len(flat) // 2])
        flat[place] *= 1 + 80 * torch.finfo(kind).eps / 2
        assert not decided(family, {**state, name: flat.reshape(state[name].shape)}).is_copy


@pytest.mark.parametrize("family", FAMILIES)
def test_copies_in_float64_of_float64_are_equal(family: str) -> None:
    found = architecture(family)
    state = {name: t.double() if t.is_floating_point() else t for name, t in found.state().items()}
    verdict = decided(family, disguise(found, state, 2), state)
    assert verdict.verdict == "equal"
    assert verdict.epsilon < 1e-12


def test_small_rotary_phases_of_a_coarse_copy_are_kept() -> None:
    """A phase of a few roundings is a phase, not rounding, if others are larger."""
    found = architecture("llama")
    for seed in (0, 1):
        verdict = decided("llama", narrow(disguise(found, found.state(), seed), torch.bfloat16))
        assert verdict.verdict == "rounded"


@pytest.mark.parametrize("family", FAMILIES)
def test_one_unit_in_the_last_place_without_a_disguise_is_not_equal(family: str) -> None:
    state = dict(architecture(family).state())
    for name in list(architecture(family).group.shapes)[1::5][:3]:
        changed = {**state, name: state[name].clone()}
        flat = changed[name].view(-1)
        flat[1 % len(flat)] = torch.nextafter(flat[1 % len(flat)], torch.tensor(9.0))
        assert not decided(family, changed).is_copy


@pytest.mark.parametrize("family", FAMILIES)
def test_strangers_and_children_are_different(family: str) -> None:
    other = make(family, seed=1)
    stranger = {name: tensor.detach() for name, tensor in (*other.named_parameters(), *other.named_buffers())}
    assert decided(family, stranger).verdict == "different"
    found = architecture(family)
    torch.manual_seed(0)
    child = {
        name: tensor * (1 + 0.05 * torch.randn_like(tensor)) if name in found.group.shapes else tensor
        for name, tensor in found.state().items()
    }
    assert not decided(family, narrow(disguise(found, child, 1), torch.bfloat16)).is_copy


@pytest.mark.parametrize("family", ["gpt", "llama", "resnet", "vit"])
def test_certificates_are_verified_from_the_tensors(family: str) -> None:
    found = architecture(family)
    certificate, files = certified(family, narrow(disguise(found, found.state(), 1), torch.float32))
    seen = verify(json.dumps(certificate), *files)
    assert seen.facts["entry"] < 1e-6
    assert "Not checked" not in seen.statement
    assert seen.facts["function"]
    with pytest.raises(CertificateError, match="give both files"):
        verify(json.dumps(certificate))
    with pytest.raises(CertificateError):
        verify(json.dumps(certificate), files[1], files[0])


def test_forged_certificates_are_rejected() -> None:
    found = architecture("gpt")
    certificate, files = certified("gpt", narrow(disguise(found, found.state(), 1), torch.float32))
    text = json.dumps(certificate)
    assert verify(text, *files)
    changed = copy.deepcopy(files)
    changed[1]["blocks.0.up.weight"][0, 0] += 0.5
    with pytest.raises(CertificateError, match="explains"):
        verify(text, *changed)
    forged = json.loads(text)
    forged["frames"][0]["source"] = [0] * len(forged["frames"][0]["source"])
    with pytest.raises(CertificateError, match="permuted"):
        verify(json.dumps(forged), *files)
    forged = json.loads(text)
    forged["matrices"][1]["partner"] = 0
    with pytest.raises(CertificateError):
        verify(json.dumps(forged), *files)
    forged = json.loads(text)
    forged["moved"] = ["head.weight"]
    with pytest.raises(CertificateError, match="another one"):
        verify(json.dumps(forged), *files)
    forged = json.loads(text)
    del forged["tensors"][0]
    with pytest.raises(CertificateError, match=r"does not speak of|digests|not in the file"):
        verify(json.dumps(forged), *files)
    for key in ("folds", "shifts", "frames"):  # without a part, more is left than rounding explains
        forged = json.loads(text)
        forged[key] = []
        with pytest.raises(LawfulError):
            verify(json.dumps(forged), *files)
    for number in range(0, len(certificate["frames"]), 3):
        forged = json.loads(text)
        rows = forged["frames"][number]["source"]
        rows[0], rows[1] = rows[1], rows[0]
        with pytest.raises(CertificateError, match="explains"):
            verify(json.dumps(forged), *files)


def test_coarse_numbers_excuse_no_forged_order() -> None:
    """Two entries of a bias in bfloat16 that changed places are 3 to 10 units of rounding apart, all others none."""
    found = architecture("gpt")
    state = narrow(found.state(), torch.bfloat16)
    certificate, files = certified("gpt", narrow(disguise(found, state, 3), torch.bfloat16), state)
    vectors = [place for place, each in enumerate(certificate["frames"]) if each["tensor"].endswith("out.bias")]
    assert verify(json.dumps(certificate), *files)
    assert vectors
    for place in vectors:
        forged = json.loads(json.dumps(certificate))
        rows = forged["frames"][place]["source"]
        rows[0], rows[1] = rows[1], rows[0]
        with pytest.raises(CertificateError, match="explains"):
            verify(json.dumps(forged), *files)


def test_a_gain_that_was_not_moved_with_its_layer_is_seen() -> None:
    """Weights equal as stored, but another gain: folds are compared too, and give the forgery away."""
    found = architecture("llama")
    state = dict(found.state())
    certificate, files = certified("llama", dict(state))
    assert verify(json.dumps(certificate), *files).facts["entry"] == 0.0
    files[1] = {**files[1], "blocks.0.first.weight": files[1]["blocks.0.first.weight"][::-1].copy()}
    forged = json.loads(json.dumps(certificate))
    forged["moved"].remove("blocks.0.first.weight")
    from lawful.verify.core.checkpoint import tensors_digest

    forged["about"][1] = tensors_digest(files[1])
    with pytest.raises(CertificateError, match="not moved with it"):
        verify(json.dumps(forged), *files)


def test_only_a_copy_has_a_certificate_of_its_weights() -> None:
    other = make("mlp", seed=1)
    with pytest.raises(LawfulError, match="only a copy has a certificate"):
        certified("mlp", {name: tensor.detach() for name, tensor in other.named_parameters()})


@pytest.mark.parametrize("family", ["gpt", "llama"])
def test_one_token_that_was_changed_is_met_by_an_input(family: str) -> None:
    """Random inputs may never hold it: those that the tables tell apart are tried too."""
    found = architecture(family)
    state = narrow(disguise(found, found.state(), 5), torch.float32)
    for row in (1, 20, 39):
        table = state["token.weight"].clone()
        table[row] *= 1.05
        verdict = decided(family, {**state, "token.weight": table})
        assert verdict.verdict == "different"
        assert (verdict.replay.inputs[0] == row).any()


def test_a_gain_of_zero_is_folded_if_its_offset_is_zero_too() -> None:
    """Nothing is read of such a value; with an offset there something is, and no gain of 1 can stand for it."""
    found = architecture("gpt")
    each = next(
        each
        for each in found.folds
        if isinstance(each, GainFold) and each.gain and each.offset and not all(r.bias for r in each.readers)
    )
    state = {name: tensor.clone() for name, tensor in found.state().items()}
    for name in (str(each.gain), str(each.offset)):
        state[name][1] = 0
    hidden = narrow(disguise(found, state, 1), torch.float32)
    verdict = same_checkpoints(found, state, hidden)
    assert verdict.verdict == "equal"
    pair = CheckpointPair(found, *(OpenCheckpoint(one, {name: name for name in one}, "") for one in (state, hidden)))
    files = [{name: tensor.double().numpy() for name, tensor in one.items()} for one in (state, hidden)]
    assert verify(copy_certificate(pair, verdict), *files)
    empty = {name: torch.zeros_like(tensor) for name, tensor in state.items()}
    assert same_checkpoints(found, state, empty).verdict != "equal"
    with pytest.raises(Unsupported, match="holds zeros"):
        same_checkpoints(found, state | {str(each.offset): state[str(each.offset)] + 1}, hidden)


def test_nan_is_said_with_the_file_that_holds_it(tmp_path: Path) -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    wrong = {**module.state_dict(), "0.bias": torch.full((4,), torch.nan)}
    torch.save(module.state_dict(), tmp_path / "right.pt")
    torch.save(wrong, tmp_path / "wrong.pt")
    with pytest.raises(InvalidNetwork, match=r"wrong\.pt.*0\.bias"):
        open_checkpoints(tmp_path / "right.pt", tmp_path / "wrong.pt", model=module, input=(3,))


class BareHead(nn.Module):
    """A LayerNorm whose offset no bias can take over."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.head = nn.Linear(4, 6), nn.LayerNorm(6), nn.Linear(6, 3, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(torch.tanh(self.first(x))))


def test_a_gain_of_zero_beside_an_offset_is_compared_as_it_stands() -> None:
    torch.manual_seed(0)
    module = BareHead()
    with torch.no_grad():
        module.norm.weight[2], module.norm.bias[2] = 0.0, 0.5
    first = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    order = torch.tensor([1, 0, 3, 2, 5, 4])
    moved = {name: tensor[order] for name, tensor in first.items() if name != "head.weight"}
    moved["head.weight"] = first["head.weight"][:, order]
    changed = {**moved, "norm.bias": moved["norm.bias"] + torch.tensor([0.0, 0.0, 0.0, 0.01, 0.0, 0.0])}
    answers = [lawful.same(first, second, model=module, input=(4,)).verdict for second in (moved, changed)]
    assert answers == ["equal", "different"]
    assert lawful.canonical(module, input=(4,)).verdict.verdict == "equal"
