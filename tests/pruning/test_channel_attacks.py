"""What must not be called the same: operations before a reader, rounding, code that looks at sizes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pruned import kinds, same
from torch import Tensor, nn
from torch.nn import functional

from lawful.errors import Unsupported
from lawful.pruning.channels import certificate as channel_certificate
from lawful.pruning.channels import prune_channels
from lawful.pruning.channels import weights as channel_weights


def planted(*parts: nn.Module, size: int = 9) -> Any:
    """A constant channel and a pair of multiples before some layers, then a convolution."""
    torch.manual_seed(8)
    model: Any = nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(), *parts)
    with torch.no_grad():
        width = model(torch.zeros(2, 2, size, size)).shape[1]
        model.append(nn.Conv2d(width, 2, 1))
        model[0].weight[1], model[0].bias[1] = 0.0, 0.5
        model[0].weight[2], model[0].bias[2] = 2 * model[0].weight[3], 2 * model[0].bias[3]
    return model.eval()


@pytest.mark.parametrize(
    ("part", "gone"),
    [
        (nn.MaxPool2d(2, padding=1), {"constant", "duplicate"}),
        (nn.AvgPool2d(2, padding=1), {"duplicate"}),
        (nn.AvgPool2d(2, ceil_mode=True), {"constant", "duplicate"}),  # the mean of what lies inside
        (nn.AvgPool2d(2, divisor_override=3), {"constant", "duplicate"}),
        (nn.Upsample(scale_factor=2), {"constant", "duplicate"}),
        (nn.ZeroPad2d(1), {"duplicate"}),
        (nn.ReflectionPad2d(1), {"constant", "duplicate"}),
        (nn.ReplicationPad2d(1), {"constant", "duplicate"}),
        (nn.CircularPad2d(1), {"constant", "duplicate"}),
        (nn.ConstantPad2d(1, 0.7), set()),
        (nn.Softplus(), {"constant"}),
        (nn.PixelShuffle(2), set()),
        (nn.ChannelShuffle(2), set()),
        (nn.PReLU(4), {"constant", "duplicate"}),
        (nn.GroupNorm(2, 4), set()),
        (nn.Softmax(1), set()),
        (nn.AdaptiveMaxPool2d(2), {"constant", "duplicate"}),
    ],
)
@torch.no_grad()
def test_what_comes_between_decides(part: nn.Module, gone: set[str]) -> None:
    model = planted(part)
    found = prune_channels(model, [(2, 2, 9, 9)])
    assert set(kinds(found)) == gone
    same(model, found, 2, 9, 9)


@torch.no_grad()
def test_two_readers_must_both_see_a_multiple() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.Linear(4, 6), nn.Linear(6, 3), nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            h = self.a(x)
            return self.b(h.relu()) + self.c(torch.tanh(h))

    torch.manual_seed(9)
    model = Two()
    model.a.weight[1], model.a.bias[1] = 2 * model.a.weight[0], 2 * model.a.bias[0]  # a multiple for one reader only
    model.a.weight[3], model.a.bias[3] = model.a.weight[2], model.a.bias[2]
    found = prune_channels(model, [(2, 4)])
    assert [(gone.layer, gone.channel) for gone in found.removed] == [("a", 3)]
    same(model, found, 4)


@torch.no_grad()
def test_rounded_multiples_are_none() -> None:
    """0.3 times a row, in float32, is not 0.3 times that row; 3 times small integers is."""
    torch.manual_seed(10)
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    model[0].weight[1], model[0].bias[1] = 0.3 * model[0].weight[0], 0.3 * model[0].bias[0]
    model[0].weight[2], model[0].bias[2] = torch.tensor([1.0, -2.0, 0.0, 5.0]), torch.tensor(7.0)
    model[0].weight[3], model[0].bias[3] = 3 * model[0].weight[2], 3 * model[0].bias[2]
    found = prune_channels(model, [(2, 4)])
    assert [(gone.layer, gone.channel) for gone in found.removed] == [("0", 3)]
    same(model, found, 4)


def test_tiny_multiples() -> None:
    """Rounding at the bottom of the range of doubles makes rows look proportional."""
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)).double()
    with torch.no_grad():
        model[0].weight[0], model[0].bias[0] = torch.tensor([1.0, 1 / 3], dtype=torch.float64), 0.0
        model[0].weight[1], model[0].bias[1] = model[0].weight[0] * 2.0**-1060, 0.0  # a third has 14 bits left
    assert not prune_channels(model, [(2, 2)]).removed


@torch.no_grad()
def test_a_zero_is_a_zero_only_where_it_is_exact() -> None:
    """0.1 + 0.2 - 0.3 is not 0: beside a border of zeros such a channel shows, however small."""
    model = nn.Sequential(nn.Conv1d(1, 3, 1), nn.Conv1d(3, 2, 1), nn.Conv1d(2, 1, 3, padding=1)).double()
    model[0].weight[1:], model[0].bias[1], model[0].bias[2] = 0.0, 0.1, 0.2
    model[1].weight[0], model[1].bias[0] = torch.tensor([[0.0], [1.0], [1.0]]), -0.3
    found = prune_channels(model, [(2, 1, 5)])
    assert ("1", 0) not in {(gone.layer, gone.channel) for gone in found.removed}
    model[0].bias[1], model[0].bias[2], model[1].bias[0] = 0.25, 0.5, -0.75
    found = prune_channels(model, [(2, 1, 5)])
    assert ("1", 0) in {(gone.layer, gone.channel) for gone in found.removed}


@torch.no_grad()
def test_a_smaller_module_must_have_the_same_graph() -> None:
    """A factor of 1 + 1e-12 would pass for rounding."""

    class Sly(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(3, 4), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            hidden = self.one(x).relu()
            return self.two(hidden) * (1.0 if hidden.shape[1] == 4 else 1 + 1e-12)

    model = Sly()
    model.one.weight[1] = 0.0
    with pytest.raises(Unsupported, match="once it is smaller"):
        prune_channels(model, [(2, 3)])


@torch.no_grad()
def test_a_flattened_size_in_the_code_keeps_what_feeds_it() -> None:
    class Fixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two, self.last = nn.Conv1d(1, 4, 3), nn.Conv1d(4, 3, 3), nn.Linear(12, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(self.two(self.one(x).relu()).relu().view(-1, 12))

    torch.manual_seed(11)
    model = Fixed()
    model.one.weight[1], model.two.weight[1] = 0.0, 0.0
    found = prune_channels(model, [(2, 1, 8)])
    assert {gone.layer for gone in found.removed} == {"one"}
    same(model, found, 1, 8)


def test_quantised_layers_are_refused() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    quantised = torch.ao.quantization.quantize_dynamic(model, {nn.Linear})
    with pytest.raises(Unsupported, match="quantised"):
        prune_channels(quantised, [(2, 4)])


@torch.no_grad()
def test_a_depthwise_layer_with_one_channel_left_is_still_the_same_graph() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(2, 4, 1), nn.ReLU(), nn.Conv2d(4, 4, 3, groups=4, padding=1, bias=False), nn.Conv2d(4, 3, 1)
    )
    model[3].weight[:, 1:] = 0.0
    found = prune_channels(model, [(2, 2, 6, 6)])
    assert found.module[2].groups == found.channels_after == 1
    same(model, found, 2, 6, 6)


@torch.no_grad()
def test_types_stay_what_they_were_and_folded_weights_must_fit() -> None:
    torch.manual_seed(0)
    model: Any = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    model[2].double()
    model[0].weight[1], model[0].bias[1] = 0.0, 0.3
    found = prune_channels(model, [(2, 3)])
    assert [part.weight.dtype for part in found.module if isinstance(part, nn.Linear)] == [
        torch.float32, torch.float64, torch.float32,
    ]  # fmt: skip
    half = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).half()
    half[0].weight[1], half[0].bias[1] = 0.0, 1.0
    half[2].weight[:, 1], half[2].bias[:] = 6e4, 6e4
    with pytest.raises(Unsupported, match=r"does not fit into torch\.float16"):
        prune_channels(half, [(2, 3)])


@torch.no_grad()
def test_a_raw_parameter_has_no_room_for_a_bias() -> None:
    """Only zeros go into a weight that is no layer's: nothing would add a bias there."""

    class Raw(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(3, 5), nn.Parameter(torch.randn(2, 5))

        def forward(self, x: Tensor) -> Tensor:
            return functional.linear(functional.gelu(self.one(x)), self.two)

    torch.manual_seed(12)
    model = Raw()
    model.one.weight[1:3], model.one.bias[2] = 0.0, 0.0
    found = prune_channels(model, [(2, 3)])
    assert [(gone.channel, gone.kind) for gone in found.removed] == [(2, "constant")]
    same(model, found, 3)


@torch.no_grad()
def test_rows_that_take_over_may_have_gained_a_bias() -> None:
    """A constant gives the middle layer a bias; its columns are dependent, so that its rows take over, bias too."""
    torch.manual_seed(13)
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 4, bias=False), nn.Linear(4, 2))
    model[0].weight[1], model[0].bias[1] = 0.0, 0.5
    model[3].weight[:] = torch.tensor([[1.0, 2.0, 0.0, 1.0], [0.0, 1.0, 1.0, 3.0]])
    found = prune_channels(model, [(2, 2)])
    assert kinds(found) == {"constant": 1, "dependent": 2}
    same(model, found, 2)


def test_a_module_that_does_not_run_in_float64_is_compared_as_a_program() -> None:
    class Single(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(3, 4), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            if x.dtype == torch.float64 and type(x) is Tensor:
                raise RuntimeError("expected Float32")
            return self.two(self.one(x).relu())

    module = Single()
    with torch.no_grad():
        module.one.weight[1] = 0.0
    found = prune_channels(module, [(2, 3)])
    assert kinds(found) == {"constant": 1}
    assert found.compared <= 1e-12


@torch.no_grad()
def test_what_is_too_large_for_a_certificate_is_refused_before_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel_weights, "LARGEST", 10)
    monkeypatch.setattr(channel_weights.ChannelWeights, "sweep_all", lambda self: pytest.fail("has worked"))
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    with pytest.raises(Unsupported, match="at most 10 weights"):
        prune_channels(model, [(2, 4)], certified=True)


@torch.no_grad()
def test_the_smaller_file_is_written_even_if_the_evidence_fails(
    lawful: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "two.py").write_text(
        "from torch import nn\n\nnet = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 3))\n"
    )

    def refuse(found: Any) -> None:
        raise Unsupported("no evidence")

    monkeypatch.setattr(channel_certificate, "certificate", refuse)
    options = ("prune", "two:net", "--input", "1,8,8", "--out", tmp_path / "small.pt", "--certificate", "proof.json")
    assert "no evidence" in lawful(*options, cwd=tmp_path, code=2).stderr
    assert (tmp_path / "small.pt").exists()


@torch.no_grad()
def test_one_channel_with_statistics_is_left() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(128, 2))
    model[4].weight[:, :64] = 0.0
    found = prune_channels(model.eval(), [(2, 1, 8, 8)])
    assert [gone.channel for gone in found.removed] == [0]
    same(model, found, 1, 8, 8)


@torch.no_grad()
def test_a_layer_that_is_transposed_gains_a_bias() -> None:
    class Mixing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two, self.three = nn.Linear(4, 6), nn.Linear(6, 5, bias=False), nn.Conv1d(5, 3, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.three(self.two(self.one(x).sigmoid()).transpose(1, 2).relu())

    torch.manual_seed(0)
    model = Mixing().eval()
    model.one.weight[1] = 0.0
    found = prune_channels(model, [(2, 7, 4)])
    assert found.module.two.bias is not None
    same(model, found, 7, 4)
