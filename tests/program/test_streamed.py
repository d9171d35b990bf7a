"""Evaluation with tensors that are fetched where they are used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
import torch
from torch import nn

from lawful.errors import LawfulError
from lawful.program.domains import streamed
from lawful.program.domains.streamed import StreamedRun as Run
from lawful.program.domains.streamed import evaluate_beside
from lawful.program.frontends.export import export_module
from lawful.program.frontends.torch_export import read_exported, read_module
from lawful.program.passes.fold import substitute


class Noted(Mapping[str, torch.Tensor]):
    """Tensors, and the names that were asked for in order."""

    def __init__(self, held: Mapping[str, torch.Tensor]) -> None:
        self.held, self.asked = held, list[str]()

    def __getitem__(self, name: str) -> torch.Tensor:
        self.asked.append(name)
        return self.held[name]

    def __contains__(self, name: object) -> bool:
        return name in self.held

    def __iter__(self) -> Iterator[str]:
        return iter(self.held)

    def __len__(self) -> int:
        return len(self.held)


class Tied(nn.Module):
    """A table that is a head too, and a matrix that is read from the left."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table, self.first = nn.Embedding(7, 4), nn.Linear(4, 6)
        self.second, self.scale = nn.Parameter(torch.randn(6, 4)), nn.Parameter(torch.randn(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.first(self.table(x))) @ self.second
        return (hidden * self.scale) @ self.table.weight.T


@pytest.mark.parametrize("close", [1, 2**20])
@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float32, torch.float64])
def test_stored_numbers_are_widened_in_parts(kind: torch.dtype, close: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streamed, "CLOSE", close)
    net, tokens = Tied().to(kind), torch.tensor([[0, 3, 6], [1, 1, 2]])
    held = Noted(dict(net.named_parameters()))
    runs = [Run(held, [tokens]), Run(held, [tokens.flip(1)])]
    one, two = evaluate_beside(read_module(net, [tokens]), runs)
    expected = Tied().double()
    expected.load_state_dict(net.state_dict())
    assert torch.allclose(one[0], expected(tokens), rtol=1e-12)
    assert torch.equal(two[0], one[0].flip(1))
    assert one[0].dtype == torch.float64
    # in the order of the source; runs in a row share what was fetched, and the tied table is asked for again
    assert held.asked == ["table.weight", "first.weight", "first.bias", "second", "scale", "table.weight"]


def test_nodes_come_after_what_they_read_in_the_order_of_the_source() -> None:
    program = read_module(nn.Sequential(*(nn.Linear(3, 3) for _ in range(4))), [(2, 3)])
    order = program.as_run()
    place = {node: number for number, node in enumerate(order)}
    assert sorted(place.values()) == list(range(len(program.nodes)))
    assert all(place[each] < place[node] for node in order for each in node.inputs)
    steps = [node.step for node in order]
    assert steps == sorted(steps)


def test_what_a_checkpoint_holds_is_not_folded_into_the_program() -> None:
    """A BatchNorm of width 1: its statistics are single numbers, and those of the checkpoint count."""
    net = nn.Sequential(nn.Linear(2, 1), nn.BatchNorm1d(1)).eval()
    program = read_exported(export_module(net, [(2, 2)]), held=net.state_dict())
    other = {name: tensor + 1 if tensor.is_floating_point() else tensor for name, tensor in net.state_dict().items()}
    (found,), _ = evaluate_beside(program, [Run(other, [torch.ones(2, 2)]), Run(net.state_dict(), [torch.ones(2, 2)])])
    net.load_state_dict(other)
    assert torch.allclose(found, net.double()(torch.ones(2, 2).double()))


def test_sizes_that_do_not_fit_are_refused() -> None:
    net = nn.Linear(2, 3)
    program = read_module(net, [(4, 2)])
    with pytest.raises(LawfulError, match="weight has size"):
        evaluate_beside(program, [Run({"weight": torch.zeros(2, 3), "bias": torch.zeros(3)}, [torch.zeros(4, 2)])])
    with pytest.raises(LawfulError, match="the input"):
        evaluate_beside(program, [Run(dict(net.named_parameters()), [torch.zeros(5, 2)])])


def test_a_program_with_numbers_computes_what_the_module_does_with_them() -> None:
    """Scales of 1, shifts of 0 and statistics that do nothing are no operators any more."""
    net = nn.Sequential(nn.Conv1d(2, 3, 1), nn.BatchNorm1d(3), nn.Flatten(), nn.LayerNorm(12), nn.Linear(12, 2)).eval()
    resting = {"0.bias": 0.0, "1.weight": 1.0, "1.running_mean": 0.0, "1.running_var": 1 - 1e-5}
    whole = read_exported(export_module(net, [(2, 2, 4)]), held=net.state_dict())
    program = substitute(whole, {**resting, "3.weight": 1.0, "3.bias": 0.0})
    assert set(program.parameters) == {"0.weight", "1.bias", "4.weight", "4.bias"}
    with torch.no_grad():
        for name, tensor in (*net.named_parameters(), *net.named_buffers()):
            if name in resting:
                tensor.fill_(resting[name])
        net[1].bias.fill_(0.5)
    x = torch.randn(2, 2, 4)
    tensors = {**dict(net.named_parameters()), **dict(net.named_buffers())}
    assert torch.allclose(evaluate_beside(program, [Run(tensors, [x])])[0][0].float(), net(x), atol=1e-5)
