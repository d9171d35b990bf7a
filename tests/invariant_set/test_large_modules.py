"""Modules of many entries: graphs are kept as blocks, and say the same as edges that are written down one by one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from command_line import in_process
from torch import nn

from lawful.invariant_set import EntryGraph, entry_graph
from lawful.invariant_set import certificate as evidence
from lawful.invariant_set.balance import Balance, balance, rounding
from lawful.invariant_set.rebalance import rebalance
from lawful.symmetry.scaling import EdgeBlock


class _Residual(nn.Module):
    """Two convolutions with batch normalisation around a skip, then a layer that reads places."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(2, 5, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(5)
        self.inner = nn.Conv2d(5, 4, 3, padding=1)
        self.outer = nn.Conv2d(4, 5, 1)
        self.head = nn.Linear(5 * 16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm(self.stem(x)))
        return self.head((x + self.outer(torch.relu(self.inner(x)))).flatten(1))


def written(graph: EntryGraph) -> tuple[np.ndarray, np.ndarray]:
    """Squares that enter and leave each node, from the incidence matrix of the scaling graph."""
    squares = graph.scaling.edge_values(dict(graph.module.named_parameters())) ** 2
    return (graph.scaling.incidence > 0) @ squares, (graph.scaling.incidence < 0) @ squares


def test_blocks_hold_the_edges_of_the_incidence_matrix() -> None:
    torch.manual_seed(0)
    graph = entry_graph(_Residual(), (2, 4, 4))
    table = graph.scaling.incidence.toarray()
    for column, (tail, head) in enumerate(zip(graph.tails, graph.heads, strict=True)):
        wanted = np.zeros(len(graph.hidden))
        for end, sign in ((head, 1), (tail, -1)):
            if 0 < end <= len(graph.hidden):
                wanted[end - 1] += sign
        assert (table[:, column] == wanted).all()
    entering, leaving = written(graph)
    np.testing.assert_allclose(balance(graph), entering - leaving, rtol=1e-12)
    assert [graph.ends(edge) for edge in range(graph.parameters)] == list(
        zip(graph.tails.tolist(), graph.heads.tolist(), strict=True)
    )
    assert [graph.weight(edge) for edge in range(graph.parameters)] == graph.weights.tolist()


def test_exact_balances_are_sums_of_fractions_at_any_size() -> None:
    torch.manual_seed(1)
    module = _Residual()
    with torch.no_grad():
        module.head.weight *= 1e-9
        module.stem.weight *= 1e9
    graph = entry_graph(module, (2, 4, 4))
    exact = [type(rounding(graph))(0)] * len(graph.names)
    total = exact[0]
    for tail, head, weight in zip(graph.tails, graph.heads, graph.weights.tolist(), strict=True):
        square = type(total)(weight) ** 2
        exact[head] += square
        exact[tail] -= square
        total += square
    assert Balance.of(graph).fractions == exact[1:-1]
    assert rounding(graph) == 4 * total / 2**52


def test_a_module_may_be_trained_after_it_was_read() -> None:
    torch.manual_seed(2)
    module = _Residual().double()  # in float64 a copy in float64 could be the module's own numbers
    before = {name: tensor.detach().clone() for name, tensor in module.named_parameters()}
    graph = entry_graph(module, (2, 4, 4))
    weights = graph.weights.copy()
    for name, tensor in module.named_parameters():
        assert torch.equal(tensor, before[name])  # reading moves nothing
    with torch.no_grad():
        module.stem.weight.zero_()
    assert (entry_graph(module, (2, 4, 4)).weights == 0).any()
    np.testing.assert_array_equal(np.concatenate([part.weights for part in graph.edges()]), weights)


def test_rebalancing_meets_the_target_in_the_stored_state() -> None:
    torch.manual_seed(3)
    module = _Residual().double()
    done = rebalance(entry_graph(module, (2, 4, 4)))
    assert done.reached
    after = _Residual().double()
    after.load_state_dict(dict(done.dag.state()))  # type: ignore[union-attr]
    assert np.abs(balance(entry_graph(after, (2, 4, 4)))).max() < 1e-13
    x = torch.randn(8, 2, 4, 4, dtype=torch.float64)
    module.train()
    after.train()
    torch.testing.assert_close(module(x), after(x), rtol=1e-9, atol=1e-9)


def test_edges_that_cancel_and_masks_are_counted() -> None:
    block = EdgeBlock(
        "w", (3, 4, 2), np.zeros((3, 1, 1), int), np.zeros((1, 4, 1), int), np.array([[[True], [False]] * 2])
    )
    assert block.count == 3 * 2 * 2 == len(block.positions)


@pytest.mark.parametrize("subcommand", ["components", "rebalance"])
def test_what_no_certificate_holds_is_refused_before_the_work(
    subcommand: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "limited_nets.py").write_text(
        "from torch import nn\nnet = nn.Sequential(nn.Conv1d(1, 2, 1), nn.ReLU(), nn.Conv1d(2, 1, 1))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(evidence, "LARGEST", 3)

    def work(*_: object, **__: object) -> None:
        raise AssertionError("the work was done")

    for name in ("lawful.invariant_set.locks.components.decide", "lawful.invariant_set.rebalance._newton"):
        monkeypatch.setattr(name, work)
    done = in_process(subcommand, "limited_nets:net", "--input", "1,4", "--certificate", "proof.json", cwd=tmp_path)
    assert done.returncode == 2
    assert "certificate" in done.stderr or "scalar weights" in done.stderr
    assert not (tmp_path / "proof.json").exists()
