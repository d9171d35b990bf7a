"""What is read of modules that are written in their own ways: changes in place, biases of rotary queries and keys."""

from __future__ import annotations

import pytest
import torch
from checkpoints.conftest import disguise, narrow
from torch import nn

from lawful.checkpoints.architecture import CheckpointArchitecture
from lawful.checkpoints.compare.decide import same_checkpoints
from lawful.checkpoints.group.spaces import HeadSpace, UnitSpace
from lawful.checkpoints.read_architecture import read_architecture


class InPlace(nn.Module):
    """As torchvision and transformers write residual networks: `+=` and ReLU in place."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6)
        self.inner, self.second = nn.Conv2d(6, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6)
        self.relu, self.head = nn.ReLU(inplace=True), nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.relu(self.norm(self.stem(x)))
        y = self.second(self.inner(x))
        y += x
        return self.head(self.relu(y).mean((2, 3)))


def assert_disguises_come_back(found: CheckpointArchitecture) -> None:
    hidden = narrow(disguise(found, found.state(), 3), torch.float32)
    assert same_checkpoints(found, found.state(), hidden).verdict == "equal"
    name = next(name for name, shape in found.group.shapes.items() if len(shape) > 1)
    assert same_checkpoints(found, found.state(), {**hidden, name: 1.01 * hidden[name]}).verdict == "different"


def test_changes_in_place_hide_no_batch_norm() -> None:
    torch.manual_seed(0)
    found = read_architecture(InPlace().eval(), "3,6,6")
    assert len(found.folds) == 2
    assert [(type(space), space.size) for space in found.group.spaces] == [(UnitSpace, 6)]
    assert_disguises_come_back(found)


def test_biases_of_rotary_queries_and_keys_turn_with_their_heads() -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=40, hidden_size=16, intermediate_size=20, num_hidden_layers=1, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=16, attention_bias=True, use_cache=False)  # fmt: skip
    module = transformers.LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for tensor in module.parameters():
            tensor.add_(0.2 * torch.randn_like(tensor))
    found = read_architecture(module, "4:int")
    heads = next(space for space in found.group.spaces if isinstance(space, HeadSpace))
    turned = {rows.tensor.split("self_attn.")[1] for rows in heads.heads[0][0].members}
    assert turned == {"q_proj.weight", "q_proj.bias", "k_proj.weight", "k_proj.bias"}
    assert found.notes == ()
    assert_disguises_come_back(found)


def test_heads_of_which_only_some_coordinates_turn_with_positions() -> None:
    """GPT-NeoX: a quarter of the coordinates of queries and keys are rotary, GL acts on the others."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.GPTNeoXConfig(
        vocab_size=30, hidden_size=24, num_hidden_layers=1, num_attention_heads=3, intermediate_size=20,
        max_position_embeddings=16, rotary_pct=0.5, use_cache=False)  # fmt: skip
    module = transformers.GPTNeoXForCausalLM(config).eval()
    with torch.no_grad():
        for tensor in module.parameters():
            tensor.add_(0.2 * torch.randn_like(tensor))
    found = read_architecture(module, "4:int")
    heads = next(space for space in found.group.spaces if isinstance(space, HeadSpace))
    assert [[(block.kind, block.size) for block in head] for head in heads.heads] == [
        [("GL", 4), ("rotary", 4), ("GL", 8)]
    ] * 3
    assert heads.permutes
    assert_disguises_come_back(found)


def test_a_module_that_computes_in_single_precision_is_replayed_in_double() -> None:
    """RMSNorm of Llama asks for float32; what it hides there (a thousandth of one weight) is seen in float64."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=40, hidden_size=16, intermediate_size=20, num_hidden_layers=1, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=16, use_cache=False)  # fmt: skip
    module = transformers.LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for tensor in module.parameters():
            tensor.add_(0.3 * torch.randn_like(tensor))
    found = read_architecture(module, "4:int")
    hidden = disguise(found, found.state(), 1)
    one, two = (found.replays(state, [found.draw_inputs(5)])[0] for state in (found.state(), hidden))
    assert all(float((a - b).abs().max()) < 1e-12 for a, b in zip(one, two, strict=True))
    hidden = narrow(hidden, torch.float32)
    hidden["model.layers.0.self_attn.q_proj.weight"][3, 2] *= 1.001
    assert same_checkpoints(found, found.state(), hidden).verdict == "different"


@pytest.mark.parametrize("size", [1e-9, 1e-4, 1.0, 1e6])
def test_what_is_nearly_a_symmetry_near_zero_is_none(size: float) -> None:
    """GELU is odd up to 1e-9 where its inputs are that small: a unit with its sign turned is another function."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 6), nn.GELU(), nn.Linear(6, 5), nn.GELU(), nn.Linear(5, 2)).double()
    with torch.no_grad():
        for tensor in module.parameters():
            tensor.mul_(size)
    found = read_architecture(module, (3,))
    assert not any(space.signed for space in found.group.spaces)
    state = {name: tensor.clone() for name, tensor in found.state().items()}
    state["0.weight"][0] *= -1
    state["0.bias"][0] *= -1
    state["2.weight"][:, 0] *= -1
    assert same_checkpoints(found, found.state(), state).verdict != "equal"


def test_activations_are_seen_far_out_too() -> None:
    """Odd between −9 and 9, and not beyond."""

    class Clamped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(3, 6), nn.Linear(6, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.second(torch.clamp(self.first(x), -9.0, 14.0))

    found = read_architecture(Clamped(), (3,))
    assert [(space.permutes, space.signed) for space in found.group.spaces] == [(True, False)]
