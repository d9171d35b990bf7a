"""Experts that change places with the rows of what chooses between them; and what no trial has chosen."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from checkpoints.test_architectures import compared, moved
from torch import nn
from torch.nn import functional

from lawful import same
from lawful.checkpoints.compare.decide import same_checkpoints
from lawful.checkpoints.group.spaces import GroupedUnits
from lawful.checkpoints.read_architecture import read_architecture
from lawful.checkpoints.rewrite.folds import State
from lawful.symmetry import symmetries


class Stacked(nn.Module):
    """Experts as a stack of matrices, weighed by a softmax; with `named`, the experts differ in more than weights."""

    def __init__(self, *, named: bool = False) -> None:
        super().__init__()
        self.router = nn.Linear(3, 4)
        self.up, self.down = nn.Parameter(torch.randn(4, 3, 5)), nn.Parameter(torch.randn(4, 5, 2))
        self.register_buffer("size", torch.arange(1.0, 5.0) if named else torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = functional.gelu(torch.einsum("bi,eih->beh", x, self.up))
        weights = self.router(x).softmax(-1) * self.size
        return (weights[..., None] * torch.einsum("beh,eho->beo", hidden, self.down)).sum(1)


class Chosen(nn.Module):
    """The two best of four experts."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(3, 4)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(3, 5), nn.GELU(), nn.Linear(5, 2)) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        best, places = self.router(x).topk(2, -1)
        weights = torch.zeros(len(x), 4, dtype=x.dtype).scatter(-1, places, best.softmax(-1))
        return self.added([weights[:, k, None] * expert(x) for k, expert in enumerate(self.experts)])

    def added(self, parts: list[torch.Tensor]) -> torch.Tensor:
        return torch.stack(parts).sum(0)


class Rewritten(Chosen):
    """The same in other calls."""

    def added(self, parts: list[torch.Tensor]) -> torch.Tensor:
        return parts[0] + parts[1] + parts[2] + parts[3]


@torch.library.custom_op("lawful_tests::grouped_mm_fallback", mutates_args=())
def grouped_product(input: torch.Tensor, weight: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
    """Rows in the order of their experts, each times the matrix of its own; `offs` says where each ends."""
    expert = (torch.arange(len(input))[:, None] >= offs).sum(1)
    return torch.einsum("sk,skn->sn", input, weight[expert])


@grouped_product.register_fake
def _(input: torch.Tensor, weight: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
    return input.new_empty(len(input), weight.shape[2])


def _backward(context: Any, slope: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
    input, weight, offs = context.saved_tensors
    expert = (torch.arange(len(input))[:, None] >= offs).sum(1)
    own = torch.einsum("sk,sn->skn", input, slope)
    return torch.einsum("sn,skn->sk", slope, weight[expert]), torch.zeros_like(weight).index_add(0, expert, own), None


grouped_product.register_autograd(_backward, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs))


class Sorted(nn.Module):
    """Tokens sorted by the two experts that each of them has chosen, as transformers has it; around it a stream."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.router, self.head = nn.Embedding(9, 4), nn.Linear(4, 3, bias=False), nn.Linear(4, 2)
        self.up, self.down = nn.Parameter(torch.randn(3, 10, 4)), nn.Parameter(torch.randn(3, 4, 5))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.table(tokens).flatten(0, 1)
        weights, places = self.router(x).softmax(-1).topk(2, -1)
        expert, order = places.flatten().sort()
        offs = torch.histc(expert.float(), 3, 0, 2).cumsum(0)
        gate, up = grouped_product(x[order // 2], self.up.transpose(1, 2), offs).chunk(2, -1)
        y = grouped_product(functional.silu(gate) * up, self.down.transpose(1, 2), offs)
        back = torch.empty_like(order).index_put((order,), torch.arange(len(order)))
        return self.head(x + (y * weights.flatten()[order, None])[back].unflatten(0, (-1, 2)).sum(1))


def test_experts_of_sorted_tokens_change_places_and_so_does_their_stream() -> None:
    torch.manual_seed(7)

    def change(state: State) -> None:
        moved(state, torch.tensor([2, 0, 1]), ("router.weight", 0), ("up", 0), ("down", 0))
        moved(state, torch.randperm(4), ("table.weight", 1), ("router.weight", 1), ("up", 2), ("down", 1),
              ("head.weight", 1))  # fmt: skip
        for number in range(3):
            order = torch.randperm(5)
            state["up"][number] = state["up"][number][torch.cat([order, 5 + order])]
            state["down"][number] = state["down"][number][:, order]

    found = compared(Sorted(), change, "6:int")
    assert (found.verdict, found.within) == ("equal", "exactly")


def exchange(state: State) -> None:
    order = torch.tensor([2, 3, 1, 0])
    moved(state, order, *((name, 0) for name in ("router.weight", "router.bias", "up", "down")))
    inside = torch.stack([torch.randperm(5) for _ in range(4)])
    state["up"] = state["up"].gather(2, inside[:, None].expand(-1, 3, -1))
    state["down"] = state["down"].gather(1, inside[..., None].expand(-1, -1, 2))


def test_experts_change_places_with_their_rows_of_the_router() -> None:
    torch.manual_seed(0)
    found = compared(Stacked(), exchange, "3")
    assert (found.verdict, found.within) == ("equal", "exactly")


def test_experts_without_their_rows_of_the_router_are_another_function() -> None:
    torch.manual_seed(1)
    found = read_architecture(Stacked(), "3")
    other = found.state()
    moved(other, torch.tensor([1, 0, 2, 3]), ("up", 0), ("down", 0))
    assert same_checkpoints(found, found.state(), other).verdict == "different"


def test_experts_that_something_else_tells_apart_stay_in_their_places() -> None:
    torch.manual_seed(2)
    found = read_architecture(Stacked(named=True), "3")
    (space,) = found.group.spaces
    assert isinstance(space, GroupedUnits)
    assert not space.permutes
    other = found.state()
    exchange(other)
    assert same_checkpoints(found, found.state(), other).verdict == "different"


@pytest.mark.parametrize(("seed", "number"), [(0, 2), (2, 0)])
def test_signs_of_an_expert_that_the_first_inputs_do_not_choose_are_no_symmetry(seed: int, number: int) -> None:
    torch.manual_seed(seed)
    found = read_architecture(Chosen(), "3", seed=seed)
    assert len(found.group.spaces) == 4
    other = found.state()
    for name in (f"experts.{number}.0.weight", f"experts.{number}.0.bias", f"experts.{number}.2.weight"):
        other[name] = -other[name]
    assert same_checkpoints(found, found.state(), other).verdict == "different"


def test_units_inside_of_chosen_experts_change_places() -> None:
    torch.manual_seed(3)

    def change(state: State) -> None:
        for number in range(4):
            axes = [(f"experts.{number}.{name}", d) for name, d in (("0.weight", 0), ("0.bias", 0), ("2.weight", 1))]
            moved(state, torch.randperm(5), *axes)

    assert compared(Chosen(), change, "3").verdict == "equal"


def test_experts_that_are_modules_of_their_own_are_not_exchanged() -> None:
    """The same function: but that numbers went from one tensor to another is not seen."""
    torch.manual_seed(4)

    def change(state: State) -> None:
        moved(state, torch.tensor([1, 0, 2, 3]), ("router.weight", 0), ("router.bias", 0))
        for name in ("0.weight", "0.bias", "2.weight", "2.bias"):
            one, two = f"experts.0.{name}", f"experts.1.{name}"
            state[one], state[two] = state[two], state[one]

    assert compared(Chosen(), change, "3").verdict == "undecided"


@pytest.mark.parametrize("number", [None, 1])
def test_a_rewrite_is_tried_in_all_experts(number: int | None) -> None:
    torch.manual_seed(5)
    one, two = Chosen(), Rewritten()
    with torch.no_grad():
        one.router.bias[1] -= 4  # seldom chosen
    two.load_state_dict(one.state_dict())
    if number is not None:
        two.experts[number][1] = nn.Tanh()  # type: ignore[index]
    found = same(one, two, input="3").verdict
    assert found == "equal" if number is None else found != "equal"


def test_scales_of_sorted_experts_are_checked_generators() -> None:
    torch.manual_seed(8)
    found = symmetries(Sorted(), "6:int", check=True)
    sizes = [space.size for space in found.spaces if {"up", "down"} <= set(space.parameters)]
    assert sorted(sizes) == [4, 15]  # the stream; the units of all experts, between their linear half and `down`
    assert found.checked is not None
