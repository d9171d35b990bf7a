"""Small tanh, sigmoid and GELU networks: the function determines the weights, so both verdicts are proved."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from checkpoints.conftest import same_by_weights as same
from hypothesis import given
from hypothesis import strategies as some
from safetensors.torch import save_file
from torch import nn

from lawful import align
from lawful.checkpoints.compare.certificate import copy_certificate
from lawful.checkpoints.compare.uniqueness import SmoothLayer, SmoothShape, as_tanh, decide_by_uniqueness
from lawful.checkpoints.opening import open_both
from lawful.checkpoints.verdict import decide
from lawful.errors import CertificateError
from lawful.verify import verify

LAYERS = {"tanh": nn.Tanh, "sigmoid": nn.Sigmoid, "gelu": nn.GELU}
State = dict[str, torch.Tensor]


def network(activation: str, widths: tuple[int, int, int] = (3, 5, 2), seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(*widths[:2]), LAYERS[activation](), nn.Linear(*widths[1:])).double()


def tensors(module: nn.Module) -> State:
    return {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}


def flipped(state: State, activation: str) -> State:
    """Unit 1 turned around: by the law of each activation."""
    found = {name: tensor.clone() for name, tensor in state.items()}
    row, bias, column = state["0.weight"][1], state["0.bias"][1], state["2.weight"][:, 1]
    found["0.weight"][1], found["0.bias"][1] = -row, -bias
    found["2.weight"][:, 1] = -column if activation != "gelu" else column
    if activation == "sigmoid":
        found["2.bias"] = state["2.bias"] + column
    return found


@pytest.mark.parametrize("activation", LAYERS)
def test_one_unit_in_the_last_place_is_different(activation: str) -> None:
    one = network(activation)
    state = tensors(one)
    state["2.weight"][0, 3] = np.nextafter(float(state["2.weight"][0, 3]), 9.0)
    found = same(one, state, input=(3,))
    assert (found.verdict, found.certified) == ("different", True)
    assert "determines its weights" in found.reason


def test_reducible_networks_are_reduced_first() -> None:
    """Two units with the same weights are one; a unit that was split is the same function, which alignment misses."""
    one = network("tanh", (3, 4, 2))
    with torch.no_grad():
        one[0].weight[3], one[0].bias[3] = 0.0, 0.0  # says nothing
        one[2].weight.copy_((one[2].weight * 64).round() / 64)
    state = tensors(one)
    state["0.weight"][3], state["0.bias"][3] = -state["0.weight"][0], -state["0.bias"][0]
    state["2.weight"][:, 3] = -0.25
    state["2.weight"][:, 0] -= 0.25
    found = same(one, state, input=(3,))
    assert (found.verdict, found.within) == ("equal", "exactly")
    x = torch.randn(50, 3, dtype=torch.float64)
    other = network("tanh", (3, 4, 2))
    other.load_state_dict(state)
    assert torch.allclose(one(x), other(x), rtol=0, atol=1e-14)


def test_constant_units_are_compared_by_the_independence_of_tanh() -> None:
    """w = 0: 0.5 tanh(1) and 0.5 tanh(2) are different constants, and no rational one is either."""
    one = network("tanh", (2, 3, 1))
    with torch.no_grad():
        one[0].weight[2] = 0.0
        one[0].bias[2] = 1.0
    state = tensors(one)
    state["0.bias"][2], state["2.weight"][0, 2] = -1.0, -state["2.weight"][0, 2]
    assert same(one, state, input=(2,)).verdict == "equal"
    state["0.bias"][2] = -2.0
    assert same(one, state, input=(2,)).verdict == "different"
    state = tensors(one)
    state["2.bias"] = state["2.bias"] + float(state["2.weight"][0, 2]) * float(np.tanh(1.0))
    state["2.weight"][0, 2] = 0.0
    found = same(one, state, input=(2,))
    assert found.verdict == "different"  # by less than 1e-16, and still


SHAPE = {name: SmoothShape(name, (SmoothLayer("0.weight", 1, "0.bias"), SmoothLayer("2.weight", 1, "2.bias")))
         for name in LAYERS}  # fmt: skip


@given(
    some.sampled_from(sorted(LAYERS)),
    some.lists(some.integers(-2, 2), min_size=15, max_size=15),
    some.lists(some.integers(-2, 2), min_size=15, max_size=15),
)
def test_the_theorem_agrees_with_outputs(activation: str, first: list[int], second: list[int]) -> None:
    """Small whole weights collide often: equal exactly if outputs at many points are."""

    def state(numbers: list[int]) -> State:
        flat = torch.tensor(numbers, dtype=torch.float64) / 2
        return {"0.weight": flat[:8].reshape(4, 2), "0.bias": flat[8:12], "2.weight": flat[11:15][None].clone(),
                "2.bias": torch.zeros(1, dtype=torch.float64)}  # fmt: skip

    states = [state(first), state(second)]
    found = decide_by_uniqueness(SHAPE[activation], *states)
    x = torch.randn(40, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 3
    outputs = []
    for each in states:
        module = nn.Sequential(nn.Linear(2, 4), LAYERS[activation](), nn.Linear(4, 1)).double()
        module.load_state_dict(each)
        outputs.append(module(x).detach())
    gap = float((outputs[0] - outputs[1]).abs().max())
    if found is not None:
        assert found.equal == (gap < 1e-9)


@pytest.mark.parametrize("activation", LAYERS)
def test_turned_units_are_found_again(activation: str) -> None:
    one = network(activation)
    state = {name: (tensor * 64).round() / 64 for name, tensor in tensors(one).items()}
    one.load_state_dict(state)
    other = flipped(state, activation)
    if activation == "gelu":  # GELU(z) = GELU(-z) + z has a linear part, which is no part of a layer
        assert same(one, other, input=(3,)).verdict == "different"
    else:
        found = same(one, other, input=(3,))
        assert (found.verdict, found.within) == ("equal", "exactly")


@pytest.mark.parametrize("activation", LAYERS)
@pytest.mark.parametrize("change", ["none", "last place"])
def test_certificates_of_both_verdicts(activation: str, change: str) -> None:
    one, state = network(activation), tensors(network(activation))
    state["0.weight"], state["0.bias"] = state["0.weight"].flip(0), state["0.bias"].flip(0)
    state["2.weight"] = state["2.weight"].flip(1)
    if change == "last place":
        state["0.weight"][0, 0] = np.nextafter(float(state["0.weight"][0, 0]), 9.0)
    pair, verdict = decide(open_both(one, state, input=(3,)))  # type: ignore[arg-type]
    assert verdict.verdict == ("equal" if change == "none" else "different")
    files = [{name: tensor.numpy() for name, tensor in each.items()} for each in (tensors(one), state)]
    certificate = copy_certificate(pair, verdict)
    verify(json.dumps(certificate), *files)
    if change == "last place":
        forged = {**certificate, "verdict": "equal"}
        with pytest.raises(CertificateError, match="are different"):
            verify(json.dumps(forged), *files)
        forged = {**certificate, "about": certificate["about"][::-1]}
        with pytest.raises(CertificateError, match="digests"):
            verify(json.dumps(forged), *files)
        layers = json.loads(json.dumps(certificate["layers"]))
        layers[0][0]["bias"] = None
        with pytest.raises(CertificateError, match="not at all"):
            verify(json.dumps({**certificate, "layers": layers}), *files)
        copied = {**certificate, "about": [certificate["about"][0]] * 2}
        with pytest.raises(CertificateError, match="decides"):
            verify(json.dumps(copied), files[0], files[0])


def deep(activation: str) -> nn.Sequential:
    torch.manual_seed(7)
    act = LAYERS[activation]
    return nn.Sequential(nn.Linear(3, 5), act(), nn.Linear(5, 4), act(), nn.Linear(4, 2)).double()


def reordered(state: State) -> State:
    found = {name: tensor.clone() for name, tensor in state.items()}
    found["0.weight"], found["0.bias"] = found["0.weight"].flip(0), found["0.bias"].flip(0)
    found["2.weight"] = found["2.weight"].flip(1)
    return found


@pytest.mark.parametrize("activation", ["tanh", "sigmoid"])
@pytest.mark.parametrize("place", ["0.weight", "0.bias", "2.weight", "4.bias"])
def test_deep_networks_are_different_by_one_unit_in_the_last_place(activation: str, place: str) -> None:
    one = deep(activation)
    state = reordered(tensors(one))
    state[place].view(-1)[1] = np.nextafter(float(state[place].view(-1)[1]), 9.0)
    pair, verdict = decide(open_both(one, state, input=(3,)))  # type: ignore[arg-type]
    assert (verdict.verdict, verdict.certified) == ("different", True)
    assert "Vlačić" in verdict.reason
    files = [{name: tensor.numpy() for name, tensor in each.items()} for each in (tensors(one), state)]
    certificate = copy_certificate(pair, verdict)
    assert "different functions" in verify(json.dumps(certificate), *files).statement
    with pytest.raises(CertificateError, match="are different"):
        verify(json.dumps({**certificate, "verdict": "equal"}), *files)
    copied = {**certificate, "about": [certificate["about"][0]] * 2}
    with pytest.raises(CertificateError, match="are the same"):
        verify(json.dumps(copied), files[0], files[0])


def test_deep_sigmoids_that_turn_around_are_equal_though_no_group_element_is_known() -> None:
    """`σ(−z) = 1 − σ(z)`: what the turned unit adds goes into the biases of the next layer, exactly."""
    one = deep("sigmoid")
    state = {name: (tensor * 64).round() / 64 + 1 / 128 for name, tensor in tensors(one).items()}
    one.load_state_dict(state)
    other = reordered(state)
    column = other["2.weight"][:, 1].clone()
    other["0.weight"][1], other["0.bias"][1] = -other["0.weight"][1], -other["0.bias"][1]
    other["2.weight"][:, 1], other["2.bias"] = -column, other["2.bias"] + column
    pair, verdict = decide(open_both(one, other, input=(3,)))  # type: ignore[arg-type]
    assert (verdict.verdict, verdict.within) == ("equal", "exactly")
    files = [{name: tensor.numpy() for name, tensor in each.items()} for each in (state, other)]
    certificate = copy_certificate(pair, verdict)
    assert "the same function" in verify(json.dumps(certificate), *files).statement
    with pytest.raises(CertificateError, match="are the same"):
        verify(json.dumps({**certificate, "verdict": "different"}), *files)


@pytest.mark.parametrize("activation", ["tanh", "sigmoid"])
@pytest.mark.parametrize("change", ["moved", "last place"])
def test_deep_networks_are_reduced_first(activation: str, change: str) -> None:
    """A unit that repeats another up to sign, and one that nobody hears: the others decide."""
    one = deep(activation)
    state = {name: (tensor * 64).round() / 64 + 1 / 128 for name, tensor in tensors(one).items()}
    state["0.weight"][1], state["2.weight"][:, 2] = state["0.weight"][0], 0.0
    state["0.bias"], state["2.bias"] = (torch.tensor(b).double() / 8 for b in ([1, 1, 2, -3, 5], [-1, 2, 3, 4]))
    one.load_state_dict(state)
    other = reordered(state)  # units 3 and 4 are the equal ones, and 2 is unheard
    other["2.weight"][:, 3] += 0.25
    other["2.weight"][:, 4] -= 0.25
    other["0.weight"][2] *= 3.0
    if change == "last place":
        other["4.weight"][1, 2] = np.nextafter(float(other["4.weight"][1, 2]), 9.0)
    pair, verdict = decide(open_both(one, other, input=(3,)))  # type: ignore[arg-type]
    assert verdict.verdict == ("equal" if change == "moved" else "different")
    files = [{name: tensor.numpy() for name, tensor in each.items()} for each in (state, other)]
    certificate = copy_certificate(pair, verdict)
    assert verify(json.dumps(certificate), *files).facts["units"] == 7
    turned = {"equal": "different", "different": "equal"}[verdict.verdict]
    with pytest.raises(CertificateError, match=r"are the same|are different"):
        verify(json.dumps({**certificate, "verdict": turned}), *files)


DEEP_SHAPE = SmoothShape("tanh", tuple(SmoothLayer(f"{n}.weight", 1, f"{n}.bias") for n in (0, 2, 4)))


@given(some.lists(some.sampled_from([-2, -1, 0, 1, 2]), min_size=15, max_size=15), some.integers(0, 2**15 - 1))
def test_deep_verdicts_agree_with_outputs(numbers: list[int], flips: int) -> None:
    """Small whole weights collide often: where the theorem decides, outputs at many points say the same."""

    def state(values: list[int]) -> State:
        flat = torch.tensor(values, dtype=torch.float64) / 2
        return {"0.weight": flat[:3, None], "0.bias": flat[3:6], "2.weight": flat[6:12].reshape(2, 3),
                "2.bias": torch.tensor([1.0, 3.0], dtype=torch.float64), "4.weight": flat[None, 12:14],
                "4.bias": flat[14:15]}  # fmt: skip

    states = [state(numbers), state([-n if flips >> place & 1 else n for place, n in enumerate(numbers)])]
    found = decide_by_uniqueness(DEEP_SHAPE, *states)
    x = torch.linspace(-3, 3, 41, dtype=torch.float64)[:, None]
    outputs = []
    for each in states:
        module = nn.Sequential(nn.Linear(1, 3), nn.Tanh(), nn.Linear(3, 2), nn.Tanh(), nn.Linear(2, 1)).double()
        module.load_state_dict(each)
        outputs.append(module(x).detach())
    if found is not None:
        assert found.equal == (float((outputs[0] - outputs[1]).abs().max()) < 1e-9)


@pytest.mark.parametrize("fault", ["zero weight", "zero bias", "equal biases", "gelu"])
def test_where_the_theorem_says_nothing_it_is_not_used(fault: str) -> None:
    one = deep("gelu" if fault == "gelu" else "tanh")
    state = tensors(one)
    with torch.no_grad():
        for values in (one.state_dict(), state):
            if fault == "zero weight":
                values["2.weight"][0, 0] = 0.0
            elif fault == "zero bias":
                values["2.bias"][1] = 0.0
            elif fault == "equal biases":
                values["0.bias"][1] = -values["0.bias"][0]
    state["4.weight"][0, 0] = np.nextafter(float(state["4.weight"][0, 0]), 9.0)
    verdict = same(one, state, input=(3,))
    assert verdict.verdict == "undecided"
    if fault != "gelu":
        layers = [{"weight": f"{n}.weight", "axis": 1, "bias": f"{n}.bias"} for n in (0, 2, 4)]
        files = [{name: tensor.numpy() for name, tensor in each.items()} for each in (tensors(one), state)]
        torn = copy_certificate(*_another_pair())
        forged = {**torn, "layers": [layers, layers]}
        with pytest.raises(CertificateError):
            verify(json.dumps(forged), *files)


def _another_pair() -> Any:
    one = deep("tanh")
    state = tensors(one)
    state["4.bias"][0] += 1.0
    return decide(open_both(one, state, input=(3,)))  # type: ignore[arg-type]


def test_sigmoids_are_written_as_tanh() -> None:
    one = deep("sigmoid")
    state = tensors(one)
    layers = [
        ([tuple(map(Fraction, row)) for row in state[f"{n}.weight"].tolist()],
         list(map(Fraction, state[f"{n}.bias"].tolist())))
        for n in (0, 2, 4)
    ]  # fmt: skip
    value = x = torch.randn(3, dtype=torch.float64)
    for place, (rows, biases) in enumerate(as_tanh(layers)):
        value = torch.tensor([[float(w) for w in row] for row in rows]).double() @ value
        value = value + torch.tensor([float(bias) for bias in biases]).double()
        value = value.tanh() if place < 2 else value
    assert torch.allclose(value, one(x), atol=1e-6)


def test_align_and_the_command_line(lawful: Any, tmp_path: Any) -> None:
    one = network("tanh")
    state = flipped(tensors(one), "tanh")
    assert align(one, state, input=(3,)).after == 0.0
    files = [str(tmp_path / name) for name in ("a.safetensors", "b.safetensors", "c.safetensors")]
    other = {**tensors(one), "2.bias": tensors(one)["2.bias"] + 2.0**-40}
    for file, each in zip(files, (tensors(one), state, other), strict=True):
        save_file({name: tensor.contiguous() for name, tensor in each.items()}, file)
    lawful("same", *files[:2], "--activation", "tanh", code=0)
    proof = str(tmp_path / "proof.json")
    run = lawful("same", files[0], files[2], "--activation", "tanh", "--certificate", proof, code=1)
    assert "affine parts differ" in run.stdout
    assert "different functions" in lawful("verify", proof, files[0], files[2], code=0).stdout
    marks = lawful("fingerprint", *files, "--activation", "tanh", "--json", code=0)
    assert json.loads(marks.stdout)["groups"] == [files[:2], files[2:]]
    lawful("canonical", files[0], "--activation", "tanh", "--out", str(tmp_path / "d.safetensors"), code=0)
