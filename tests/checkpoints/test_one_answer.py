"""One question has one answer, whatever form the networks come in; a verdict is true, false or neither."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints.conftest import same_by_weights
from command_line import in_process
from safetensors.torch import save_file
from torch import nn

import lawful
from lawful.api import same as asking


def twins(seed: int) -> tuple[nn.Module, nn.Module]:
    """Two ReLU modules, one of them permuted and scaled, in which the first two units are the same."""
    torch.manual_seed(seed)
    one, two = (
        nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 3)) for _ in range(2)
    )
    with torch.no_grad():
        one[0].weight[1], one[0].bias[1] = one[0].weight[0], one[0].bias[0]
        order, scales = torch.randperm(6), torch.rand(6) + 0.5
        two.load_state_dict(one.state_dict())
        two[0].weight.copy_(one[0].weight[order] * scales[:, None])
        two[0].bias.copy_(one[0].bias[order] * scales)
        two[2].weight.copy_(one[2].weight[:, order] / scales)
    return one, two


@pytest.mark.parametrize("seed", [0, 1, 10])
def test_a_unit_twice_is_no_obstacle_to_modules(seed: int) -> None:
    """The graphs leave these open: scales are rounded, and twins can share their outgoing weights in many ways."""
    one, two = twins(seed)
    found = lawful.same(one, two, input=(5,))
    assert found.verdict == "equal"
    assert found


def perceptron() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 3))


def test_a_cast_is_rounded_in_every_form(tmp_path: Path) -> None:
    net = perceptron()
    half = {name: tensor.bfloat16() for name, tensor in net.state_dict().items()}
    for found in (lawful.same(net, half, model=net, input=(5,)), lawful.same(net.state_dict(), half)):
        assert (found.verdict, found.within) == ("rounded", "weight by weight")
        assert not found
    save_file(net.state_dict(), tmp_path / "a.safetensors")
    save_file(half, tmp_path / "b.safetensors")
    run = in_process("same", tmp_path / "a.safetensors", tmp_path / "b.safetensors", "--json")
    assert run.returncode == 1
    assert run.json["verdict"] == "rounded"
    assert run.json["within"]["kind"] == "weights"
    assert run.json["counterexample"]["gap"] > 1e-4
    assert "ROUNDED COPY, another function" in in_process(
        "same", tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    ).stdout  # fmt: skip


def test_a_cast_that_loses_nothing_is_equal() -> None:
    net = perceptron()
    state = {name: tensor.bfloat16().float() for name, tensor in net.state_dict().items()}
    assert lawful.same(state, {name: tensor.bfloat16() for name, tensor in state.items()}).verdict == "equal"


def test_a_cast_that_loses_what_no_output_sees_is_not_called_another_function() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 1))
    with torch.no_grad():
        for tensor in net.parameters():
            tensor.fill_(0.5)
        net[0].weight[0] = torch.tensor([0.1, 0.3])
        net[2].weight[0, 0] = 0.0
    half = {name: tensor.bfloat16() for name, tensor in net.state_dict().items()}
    assert same_by_weights(net, half, input=(2,)).verdict in ("equal", "undecided")


def test_paths_that_contradict_each_other_are_a_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = perceptron(), nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 3))
    right = same_by_weights(one, one.state_dict(), input=(5,))

    def wrong(*_: Any) -> Any:
        return right

    monkeypatch.setattr(asking, "_compare_weights", wrong)
    with pytest.raises(AssertionError, match="exact outputs differ"):
        lawful.same(one, two.state_dict(), model=one, input=(5,))
    monkeypatch.setattr(asking, "_compare_weights", lambda *_: replace(right, verdict="undecided", within=None))
    assert lawful.same(one, two.state_dict(), model=one, input=(5,)).verdict == "different"


def test_verdicts_have_a_truth_value_and_other_results_refuse() -> None:
    assert lawful.same("3-4-2 relu", "3-4-2 relu")
    assert not lawful.same(perceptron(), nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 3)), input=(5,))
    net = nn.Sequential(nn.Linear(2, 3), nn.GELU(), nn.Linear(3, 3), nn.GELU(), nn.Linear(3, 1))
    near = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    near["4.bias"] = torch.nextafter(near["4.bias"], torch.tensor(9.0))
    found = replace(lawful.same(net, near, model=net, input=(2,)), verdict="undecided")
    with pytest.raises(TypeError, match="an undecided verdict is neither true nor false"):
        bool(found)
    for other in (lawful.show("3-4-2 relu"), lawful.laws("3-4-2 relu"), lawful.align(net, near, input=(2,))):
        with pytest.raises(TypeError, match="neither true nor false"):
            bool(other)
