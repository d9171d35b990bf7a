"""Disguises that are written here, of small modules of many kinds: found again; and what only looks like one is not."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from lawful.checkpoints.compare.certificate import copy_certificate
from lawful.checkpoints.compare.decide import CheckpointVerdict, same_checkpoints
from lawful.checkpoints.group.spaces import HeadSpace
from lawful.checkpoints.identity.orbit_hash import orbit_hash
from lawful.checkpoints.opening import CheckpointPair, OpenCheckpoint
from lawful.checkpoints.read_architecture import read_architecture
from lawful.checkpoints.rewrite.folds import State
from lawful.verify import verify


class Depthwise(nn.Module):
    """An inverted residual with squeeze and excitation: channels stay apart between two mixtures."""

    def __init__(self, activation: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.activation = activation
        self.widen, self.norm = nn.Conv2d(3, 8, 1, bias=False), nn.BatchNorm2d(8)
        self.apart = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.squeeze, self.excite = nn.Conv2d(8, 3, 1), nn.Conv2d(3, 8, 1)
        self.narrow = nn.Conv2d(8, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.activation(self.apart(self.activation(self.norm(self.widen(x)))))
        gate = torch.sigmoid(self.excite(torch.relu(self.squeeze(x.mean((2, 3), keepdim=True)))))
        return self.narrow(x * gate).mean((2, 3))


class WrittenAttention(nn.Module):
    """Attention as a softmax of a product; `slopes` gives each head its own bias; `shared` keys serve all heads."""

    def __init__(self, *, slopes: bool = False, shared: bool = False, plus: float = 0.0, stacked: bool = False) -> None:
        super().__init__()
        self.plus, self.stacked, kept = plus, stacked, 4 if shared else 8
        self.table = nn.Embedding(20, 8)
        self.gain, self.last = nn.Parameter(torch.randn(8) / 4), nn.Parameter(torch.randn(8) / 4)
        self.query, self.key = nn.Linear(8, 8), nn.Linear(8, kept)
        self.value, self.out = nn.Linear(8, kept), nn.Linear(8, 8)
        distance = (torch.arange(5)[:, None] - torch.arange(5)).abs()
        self.register_buffer("bias", -distance * torch.tensor([1.0, 0.3])[:, None, None] * slopes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.table(x)
        y = functional.rms_norm(x, (8,)) * (self.plus + self.gain)
        q, k, v = (layer(y).unflatten(-1, (-1, 4)).transpose(1, 2) for layer in (self.query, self.key, self.value))
        k, v = (each.expand(-1, 2, -1, -1) for each in (k, v))
        if self.stacked:
            q, k, v = (each.reshape(-1, 5, 4) for each in (q, k, v))
            bias = self.bias.repeat(len(x), 1, 1)
            read = torch.baddbmm(bias, q, k.mT, beta=0.5, alpha=0.25).softmax(-1) @ v
            read = read.unflatten(0, (-1, 2))
        else:
            read = (q @ k.mT / 2 + self.bias).softmax(-1) @ v
        x = x + self.out(read.transpose(1, 2).flatten(2))
        return functional.rms_norm(x, (8,)) * (self.plus + self.last) @ self.table.weight.T


class HeadsOfTheirOwn(nn.Module):
    """Two attentions with norms of queries and keys (2 heads share a key), or with a table of biases for both."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, kept = kind, 8 if kind == "norms" else 16
        self.table = nn.Embedding(20, 8)
        self.query, self.key = nn.Linear(8, 16), nn.Linear(8, kept)
        self.value, self.out = nn.Linear(8, kept), nn.Linear(16, 8)
        self.queries, self.keys = nn.RMSNorm(4), nn.RMSNorm(4)
        self.again, self.result = nn.Linear(8, 48), nn.Linear(16, 8)
        self.places = nn.Parameter(torch.randn(9, 4))
        self.register_buffer("distance", torch.arange(5)[:, None] - torch.arange(5) + 4)

    def attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        q, k, v = (each.unflatten(-1, (-1, 4)).transpose(1, 2) for each in (q, k, v))
        bias = None
        if self.kind == "norms":
            q, k = self.queries(q), self.keys(k)
        else:
            bias = self.places[self.distance].permute(2, 0, 1)[None]
        read = functional.scaled_dot_product_attention(q, k, v, bias, enable_gqa=self.kind == "norms")
        return read.transpose(1, 2).flatten(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.table(x)
        x = x + self.out(self.attend(self.query(x), self.key(x), self.value(x)))
        if self.kind == "table":
            x = x + self.result(self.attend(*self.again(x).chunk(3, -1)))
        return x


class ByHand(nn.Module):
    """Layers written as products with transposed weights, after a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.norm = nn.Embedding(20, 6), nn.LayerNorm(6, bias=False)
        self.up, self.down = nn.Parameter(torch.randn(9, 6)), nn.Parameter(torch.randn(6, 9))
        self.head = nn.Linear(6, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.table(x)
        return self.head(x + functional.gelu(self.norm(x) @ self.up.T) @ self.down.T)


def drawn(module: nn.Module) -> nn.Module:
    with torch.no_grad():
        for tensor in (*module.parameters(), *module.buffers()):
            if tensor.ndim == 1 and tensor.is_floating_point():
                tensor.add_(0.2 * torch.rand_like(tensor))
    return module.eval()


def compared(module: nn.Module, change: Callable[[State], None], size: str) -> CheckpointVerdict:
    """A copy that computes the same, told by a change of its tensors; an equality has to pass the verifier."""
    found = read_architecture(module, size)
    first = found.state()
    second = {name: tensor.double() if tensor.is_floating_point() else tensor for name, tensor in first.items()}
    change(second)
    inputs = [found.draw_inputs(3)]
    one, two = found.replays(first, inputs)[0][0], found.replays(second, inputs)[0][0]
    assert float((one - two).abs().max()) < 1e-12 * float(one.abs().max())
    second = {name: tensor.to(first[name].dtype) for name, tensor in second.items()}
    pair = CheckpointPair(found, *(OpenCheckpoint(each, {name: name for name in each}, "") for each in (first, second)))
    verdict = same_checkpoints(found, first, second)
    if verdict.verdict == "equal":
        files = [{name: tensor.double().numpy() for name, tensor in each.items() if tensor.is_floating_point()}
                 for each in (first, second)]  # fmt: skip
        assert verify(json.dumps(copy_certificate(pair, verdict)), *files).facts["numbers"] > 0
    return verdict


def moved(state: State, order: torch.Tensor, *axes: tuple[str, int]) -> None:
    for name, dim in axes:
        state[name] = state[name].index_select(dim, order)


@pytest.mark.parametrize(
    "activation", [functional.relu6, functional.silu, functional.relu], ids=lambda each: each.__name__
)
def test_channels_of_depthwise_convolutions_change_places(activation: Callable[..., torch.Tensor]) -> None:
    torch.manual_seed(0)

    def change(state: State) -> None:
        statistics = [(f"norm.{name}", 0) for name in ("weight", "bias", "running_mean", "running_var")]
        moved(state, torch.randperm(8), ("widen.weight", 0), *statistics, ("apart.weight", 0), ("apart.bias", 0),
              ("squeeze.weight", 1), ("excite.weight", 0), ("excite.bias", 0), ("narrow.weight", 1))  # fmt: skip
        if activation is functional.relu:  # and the values before the convolution have a scale
            powers = torch.exp2(torch.randint(-3, 4, (8,)))
            state["norm.weight"], state["norm.bias"] = state["norm.weight"] * powers, state["norm.bias"] * powers
            state["apart.weight"] = state["apart.weight"] / powers[:, None, None, None]

    verdict = compared(drawn(Depthwise(activation)), change, "3,5,5")
    within = "copy by weights" if activation is functional.relu else "exactly"  # scales go into a gain of a norm
    assert (verdict.verdict, verdict.within) == ("equal", within)


def test_channels_of_a_norm_by_groups_change_places_within_them() -> None:
    torch.manual_seed(2)
    module = nn.Sequential(nn.Conv2d(2, 6, 3), nn.GroupNorm(2, 6), nn.SiLU(), nn.Flatten(), nn.Linear(54, 2))

    def change(state: State) -> None:
        order = torch.tensor([2, 0, 1, 4, 3, 5])
        moved(state, order, ("0.weight", 0), ("0.bias", 0), ("1.weight", 0), ("1.bias", 0))
        state["4.weight"] = state["4.weight"].unflatten(1, (6, 9))[:, order].flatten(1)

    verdict = compared(drawn(module), change, "2,5,5")
    assert (verdict.verdict, verdict.within) == ("equal", "exactly")


def test_slopes_change_places_with_their_channels() -> None:
    torch.manual_seed(4)
    module = nn.Sequential(nn.Conv2d(2, 4, 3), nn.PReLU(4), nn.Conv2d(4, 3, 3), nn.Tanh(), nn.Flatten())

    def change(state: State) -> None:
        order, powers = torch.randperm(4), torch.exp2(torch.randint(-3, 4, (4,)))
        moved(state, order, ("0.weight", 0), ("0.bias", 0), ("1.weight", 0), ("2.weight", 1))
        state["0.weight"], state["0.bias"] = state["0.weight"] * powers[:, None, None, None], state["0.bias"] * powers
        state["2.weight"] = state["2.weight"] / powers[:, None, None]

    verdict = compared(drawn(module), change, "2,5,5")
    assert (verdict.verdict, verdict.within) == ("equal", "exactly")


class Contracted(nn.Module):
    """Attention by sums over named axes, a matrix of its own for each head."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Parameter(torch.randn(2, 6, 4)) for _ in range(3))
        self.out = nn.Parameter(torch.randn(2, 4, 6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (torch.einsum("btd,hde->bhte", x, each) for each in (self.query, self.key, self.value))
        return torch.einsum("bhte,hed->btd", torch.softmax(q @ k.transpose(-1, -2) / 2, -1) @ v, self.out)


def test_heads_of_sums_over_named_axes_change_places() -> None:
    torch.manual_seed(7)

    def change(state: State) -> None:
        moved(state, torch.tensor([1, 0]), *((name, 0) for name in ("query", "key", "value", "out")))
        powers = torch.exp2(torch.randint(-3, 4, (4,)))
        state["query"], state["key"] = state["query"] * powers, state["key"] / powers
        state["value"], state["out"] = state["value"] * powers, state["out"] / powers[:, None]

    verdict = compared(drawn(Contracted()), change, "5,6")
    assert (verdict.verdict, verdict.within) == ("equal", "exactly")


class Tempered(nn.Module):
    """Outputs times one learned number."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down, self.temperature = nn.Linear(4, 6), nn.Linear(6, 3), nn.Parameter(torch.tensor(2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.temperature * self.down(functional.gelu(self.up(x)))


def test_a_parameter_of_one_number_is_no_gain_of_a_norm() -> None:
    torch.manual_seed(3)

    def change(state: State) -> None:
        moved(state, torch.randperm(6), ("up.weight", 0), ("up.bias", 0), ("down.weight", 1))

    verdict = compared(drawn(Tempered()), change, "4")
    assert (verdict.verdict, verdict.within) == ("equal", "exactly")


@pytest.mark.parametrize("kind", ["own", "shared", "plus", "stacked"])
def test_heads_of_attention_that_is_written_out_change_places(kind: str) -> None:
    torch.manual_seed(1)
    module = drawn(WrittenAttention(shared=kind == "shared", plus=float(kind == "plus"), stacked=kind == "stacked"))

    def change(state: State) -> None:
        heads, stream = torch.tensor([4, 5, 6, 7, 0, 1, 2, 3]), torch.randperm(8)
        own = [] if kind == "shared" else ["key", "value"]
        moved(state, heads, *((f"{name}.{each}", 0) for name in ("query", *own) for each in ("weight", "bias")),
              ("out.weight", 1))  # fmt: skip
        moved(state, stream, ("table.weight", 1), ("gain", 0), ("last", 0), ("out.weight", 0), ("out.bias", 0),
              *((f"{name}.weight", 1) for name in ("query", "key", "value")))  # fmt: skip

    verdict = compared(module, change, "5:int")
    assert (verdict.verdict, verdict.within) == ("equal", "exactly")


def test_heads_whose_queries_and_keys_are_normalised_change_places() -> None:
    torch.manual_seed(5)
    pairs, queries = torch.tensor([1, 0]), torch.tensor([3, 2, 0, 1])

    def change(state: State) -> None:
        for name, order in (("key", pairs), ("value", pairs), ("query", queries)):
            rows = (4 * order[:, None] + torch.arange(4)).reshape(-1)
            moved(state, rows, (f"{name}.weight", 0), (f"{name}.bias", 0))
        moved(state, (4 * queries[:, None] + torch.arange(4)).reshape(-1), ("out.weight", 1))

    verdict = compared(drawn(HeadsOfTheirOwn("norms")), change, "5:int")
    assert (verdict.verdict, verdict.within) == ("equal", "exactly")


def test_heads_change_places_with_their_biases_in_all_layers_that_share_them() -> None:
    torch.manual_seed(6)
    module, order = drawn(HeadsOfTheirOwn("table")), torch.tensor([2, 0, 3, 1])
    rows = (4 * order[:, None] + torch.arange(4)).reshape(-1)

    def change(state: State) -> None:
        moved(
            state, rows, *((f"{name}.{each}", 0) for name in ("query", "key", "value") for each in ("weight", "bias"))
        )
        moved(state, torch.cat([rows, rows + 16, rows + 32]), ("again.weight", 0), ("again.bias", 0))
        moved(state, rows, ("out.weight", 1), ("result.weight", 1))
        moved(state, order, ("places", 1))

    verdict = compared(module, change, "5:int")
    assert (verdict.verdict, verdict.within) == ("equal", "exactly")
    found = read_architecture(module, "5:int", folding="statistics")
    first = found.state()
    second = dict(first)
    change(second)
    assert orbit_hash(found, first).hash == orbit_hash(found, second).hash is not None
    moved(second, order, ("places", 1))
    assert orbit_hash(found, first).hash != orbit_hash(found, second).hash
    assert same_checkpoints(found, first, second).verdict == "different"


@pytest.mark.parametrize("stacked", [False, True])
def test_two_heads_that_are_told_apart_never_change_places(stacked: bool) -> None:
    """Of two heads, a random order is the right one half of the time: both orders have to be tried."""
    torch.manual_seed(2)
    module = drawn(WrittenAttention(slopes=True, stacked=stacked))
    for seed in range(4):
        (heads,) = (
            space
            for space in read_architecture(module, "5:int", seed=seed).group.spaces
            if isinstance(space, HeadSpace)
        )
        assert not heads.permutes


def test_gains_go_into_layers_that_are_written_as_products() -> None:
    torch.manual_seed(3)

    def change(state: State) -> None:
        state["up"] = state["up"] * state["norm.weight"]
        state["norm.weight"] = torch.ones(6, dtype=torch.float64)

    assert compared(drawn(ByHand()), change, "5:int").verdict == "equal"


def test_biases_that_are_zero_in_both_are_equal() -> None:
    """Constants that are added elsewhere are solved for: what that leaves at zero is an error of solving."""
    torch.manual_seed(4)
    module = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, batch_first=True, norm_first=True).eval()
    with torch.no_grad():
        for name, tensor in module.named_parameters():
            if name.endswith("bias"):
                tensor.zero_()
    whole = nn.Sequential(nn.Linear(3, 8), module, nn.LayerNorm(8), nn.Linear(8, 2)).eval()
    rng = np.random.default_rng(0)

    def change(state: State) -> None:
        for name in ("1.self_attn.in_proj_weight", "1.linear1.weight", "3.weight"):  # what they read has no mean
            state[name] = state[name] + torch.as_tensor(rng.normal(size=(len(state[name]), 1)))
        for name in ("0.weight", "0.bias"):
            state[name] = state[name] + torch.as_tensor(rng.normal(size=state[name].shape[1:]))

    assert compared(whole, change, "4,3").verdict == "equal"
