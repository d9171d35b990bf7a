"""Permutations are counted only if moving the entries of all parameters at once leaves the function as it was."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from effort import trials
from models import RULES, THEORY, Function, Llama, plain, rotary_head
from test_random_modules import random_module
from torch import nn
from torch.nn import functional

from lawful.program.frontends.export import export_module
from lawful.symmetry import symmetries
from lawful.symmetry.demands.labels import occurrences
from lawful.symmetry.demands.reading import read_graph
from lawful.symmetry.inputs import examples
from lawful.symmetry.orbit import output_difference
from lawful.symmetry.solver.gauge_solution import solve
from lawful.symmetry.spaces.permutations import interchangeable, shuffle


def shuffled(module: nn.Module, given: Any, seed: int) -> tuple[nn.Module, int, float]:
    """The module with its interchangeable parts shuffled, how many kinds there are, how much the outputs differ."""
    frozen = [name for name, tensor in module.named_parameters() if not tensor.requires_grad]
    exported = export_module(module, examples(module, given), training=True)
    demands = read_graph(exported, frozen)
    classes = interchangeable(demands.gauges, solve(demands.gauges))
    moved = shuffle(classes, demands.gauges.count, np.random.default_rng(seed))
    twin = copy.deepcopy(module)
    own = dict(twin.named_parameters())
    for name, fields in demands.fields.items():
        rows = np.stack([field.reshape(-1).numpy() for field in fields], axis=1)
        before, after = ([(*row, copy) for row, copy in zip(table.tolist(), repeats(table), strict=True)]
                         for table in (rows, moved[rows]))  # fmt: skip
        place = {key: number for number, key in enumerate(before)}
        tensor = own[name].detach().reshape(-1)
        mixed = torch.empty_like(tensor)
        mixed[[place[key] for key in after]] = tensor
        tensor = mixed.reshape(own[name].shape)
        with torch.no_grad():
            own[name].copy_(tensor)
    return twin, len(classes), output_difference(module, twin, given, exported=exported)


def repeats(table: np.ndarray) -> list[int]:
    """How often each row came before: entries with equal labels keep their order."""
    return occurrences(np.unique(table, axis=0, return_inverse=True)[1].reshape(-1)).tolist()


@pytest.mark.parametrize("name", [*THEORY, *RULES])
def test_shuffled_parts_leave_the_function(name: str) -> None:
    torch.manual_seed(0)
    make, given, _ = {**THEORY, **RULES}[name]
    module = make().double()
    assert shuffled(module, given, 1)[2] < 1e-9


@pytest.mark.parametrize("seed", range(0, trials(12, 40), 2))
def test_shuffled_parts_of_random_modules(seed: int) -> None:
    module, given = random_module(seed)
    module = module.double()
    assert shuffled(module, given, seed)[2] < 1e-9


class Bent(nn.Module):
    """Constants and detached copies tell units apart."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.a, self.b, self.kind = nn.Linear(3, 4), nn.Linear(4, 2), kind
        self.register_buffer("c", torch.tensor([1.0, 2.0, 3.0, 4.0]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.tanh(self.a(x))
        if self.kind == "scaled":
            h = torch.tanh(h * self.c)
        elif self.kind == "shifted":
            h = torch.relu(h) + 1
        elif self.kind == "detached":
            h = h * h.detach().cumsum(-1)
        elif self.kind == "maximum":
            h = torch.maximum(h, self.c)
        return self.b(h)


COUNTED: dict[str, tuple[Any, Any, int]] = {
    "units": (lambda: nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Linear(4, 2)), (3,), 24),
    "channels through batch norm": (
        lambda: nn.Sequential(nn.Conv1d(2, 4, 2), nn.BatchNorm1d(4), nn.ReLU(), nn.Conv1d(4, 2, 1)), (2, 5), 24,
    ),
    "channels through group norm, group by group": (
        lambda: nn.Sequential(nn.Conv1d(2, 6, 2), nn.GroupNorm(2, 6), nn.ReLU(), nn.Conv1d(6, 2, 1)),
        (2, 5),
        6 * 6,
    ),
    "channels through two group norms": (
        lambda: Function(
            lambda s, x: s.d(torch.relu(s.c(torch.relu(s.b(s.a(x)))))),
            a=nn.Conv1d(2, 8, 2), b=nn.GroupNorm(2, 8), c=nn.GroupNorm(4, 8), d=nn.Conv1d(8, 2, 1),
        ),
        (2, 5),
        2**4,
    ),
    "channels through instance norm": (
        lambda: nn.Sequential(nn.Conv1d(2, 4, 2), nn.InstanceNorm1d(4, affine=True), nn.ReLU(), nn.Conv1d(4, 2, 1)),
        (2, 5),
        24,
    ),
    "heads and units": (lambda: nn.TransformerEncoderLayer(6, 3, 2, 0.0, batch_first=True), (4, 6), 6 * 2),
    "groups of heads, and the stream": (lambda: Llama(width=8, heads=4, groups=2, inner=3), "4:int", 2 * 6 * 40320),
    "rotary pairs": (lambda: rotary_head(4), (5, 3), 1),
    "constant factors": (lambda: Bent("scaled"), (3,), 1),
    "a number added": (lambda: Bent("shifted"), (3,), 24),
    "detached": (lambda: Bent("detached"), (3,), 1),
    "beside a constant": (lambda: Bent("maximum"), (3,), 1),
    "slopes": (lambda: nn.Sequential(nn.Linear(3, 4), nn.PReLU(4), nn.Linear(4, 2)), (3,), 24),
    "slopes of inputs": (lambda: nn.Sequential(nn.PReLU(3), nn.Linear(3, 2)), (3,), 1),
    "a gate": (
        lambda: Function(
            lambda s, x: s.c(functional.silu(s.a(x)) * s.b(x)), a=plain(3, 3), b=plain(3, 3), c=plain(3, 2)
        ),
        (3,),
        6,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", COUNTED)
def test_counts_and_shuffles(name: str) -> None:
    torch.manual_seed(0)
    make, given, expected = COUNTED[name]
    module = make().double()
    assert 10 ** symmetries(module, given).log10_discrete == pytest.approx(expected)
    twin, kinds, difference = shuffled(module, given, 2)
    assert (kinds > 0) == (expected > 1)
    assert difference < 1e-9
    if math.isclose(expected, 1):
        return
    moved = zip(module.parameters(), twin.parameters(), strict=True)
    assert any(not torch.equal(one, two) for one, two in moved)


@pytest.mark.parametrize(
    ("layer", "kinds"),
    [
        (lambda: nn.LSTM(2, 3, batch_first=True), [3]),
        (lambda: nn.GRU(2, 3, 2, batch_first=True), [3, 3]),
        (lambda: nn.LSTM(2, 3, batch_first=True, bidirectional=True, bias=False), [3, 3]),
    ],
)
def test_units_of_recurrent_layers_permute(layer: Any, kinds: list[int]) -> None:
    torch.manual_seed(0)
    made = layer()
    width = 6 if made.bidirectional else 3
    module = Function(lambda self, x: self.read(self.layer(x)[0]), layer=made, read=nn.Linear(width, 2)).double()
    found = symmetries(module, (4, 2))
    assert found.log10_discrete == pytest.approx(sum(math.log10(math.factorial(n)) for n in kinds))
    _, classes, difference = shuffled(module, (4, 2), 1)
    assert classes == len(kinds)
    assert difference < 1e-9


class Mixed(nn.Module):
    """Tokens mixed by a map with a bias, channel by channel; then the tokens that some number is largest for."""

    def __init__(self, *, bent: bool = False) -> None:
        super().__init__()
        self.a, self.tokens, self.b = nn.Linear(3, 5), nn.Linear(4, 4), nn.Linear(5, 2)
        self.register_buffer("bias", torch.randn(5, 4) if bent else torch.randn(1, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.tanh(self.tokens(torch.tanh(self.a(x)).transpose(1, 2)) + self.bias).transpose(1, 2)
        return self.b(h.flatten(0, 1)[x.sum(-1).flatten().topk(3).indices])


@pytest.mark.parametrize("bent", [False, True])
def test_channels_pass_a_bias_of_tokens_and_a_choice_of_tokens(bent: bool) -> None:
    torch.manual_seed(0)
    found = symmetries(Mixed(bent=bent), (4, 3))
    assert found.log10_discrete == pytest.approx(0.0 if bent else math.log10(math.factorial(5)))
    assert shuffled(Mixed(bent=bent).double(), (4, 3), 1)[2] < 1e-9


class CappedAttention(nn.Module):
    """Scores without a shift that could move them, bent before the softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(8, 8, bias=False) for _ in range(3))
        self.out = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (layer(x).unflatten(-1, (2, 4)).transpose(1, 2) for layer in (self.q, self.k, self.v))
        read = torch.tanh(q @ k.mT / 5).softmax(-1) @ v
        return torch.as_tensor(self.out(read.transpose(1, 2).flatten(2)))


def test_scores_that_no_gauge_moves_still_belong_to_heads() -> None:
    exported = export_module(CappedAttention(), [(2, 3, 8)])
    (attention,) = read_graph(exported).gauges.attentions
    assert attention.query.shape == attention.key.shape == attention.value.shape == (2, 4)


@pytest.mark.parametrize(
    ("between", "readers", "count"),
    [
        (lambda h, g: torch.stack([h, g]).softmax(0)[0], 4, 24),  # 576 were stated: each half by itself
        (lambda h, g: h.view(-1, 2, 2).softmax(-1)[..., 0], 2, 1),  # 4, of which 2 are none
        (lambda h, g: h.view(-1, 2, 2).softmax(-1).flatten(1), 4, 4),  # 24
        (lambda h, g: torch.cat([h, g], -1).softmax(-1)[:, :4], 4, 576),
    ],
)
def test_entries_of_a_softmax_stay_in_their_line(between: Any, readers: int, count: int) -> None:
    parts = {"a": nn.Linear(3, 4), "c": nn.Linear(3, 4), "b": nn.Linear(readers, 2)}
    module = Function(lambda self, x: self.b(between(self.a(x), self.c(x))), **parts).double()
    assert round(10 ** symmetries(module, (3,)).log10_discrete) == count
    assert all(shuffled(module, (3,), seed)[2] < 1e-9 for seed in range(3))
