"""One tracer for all modules: tied tensors are one, nothing is changed, in-place operations become values."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from lawful.errors import LawfulError, Unsupported
from lawful.network import Role
from lawful.program.domains import graph_reading
from lawful.program.frontends.export import export_module
from lawful.program.frontends.torch_export import read_module
from lawful.sources.modules.convert import from_module


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)
        self.second.weight = self.first.weight
        self.register_buffer("shift", torch.ones(3))
        self.unused = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu_(self.first(x))
        twin = x
        x += self.shift
        x[:, 0] = 0
        return self.second(x) + twin


def names(module: nn.Module, *shape: int) -> list[str]:
    return [str(call.target.__name__).split(".")[0] for call in export_module(module, [shape]).calls]


def test_a_tied_weight_has_one_placeholder_and_the_first_name() -> None:
    read = export_module(Tied(), [(2, 3)])
    place = next(place for place, name in read.names.items() if name == "first.weight")
    assert "second.weight" not in read.names.values()
    users = [call for call in read.calls if any(getattr(arg, "name", "") == place for arg in call.args)]
    assert len(users) == 2
    assert place in read.trained
    assert read.inputs == ("x",)


def test_changes_in_place_become_values() -> None:
    found = names(Tied(), 2, 3)
    assert not [name for name in found if name.endswith("_")]
    assert found.count("add") == 2
    assert "select_scatter" in found


def test_the_tensors_are_the_modules_own_and_its_mode_stays() -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.BatchNorm1d(4)).train()
    module[1].eval()
    read = export_module(module, [(2, 3)])
    weight = next(read.tensors[place] for place, name in read.names.items() if name == "0.weight")
    assert weight.data_ptr() == module[0].weight.data_ptr()
    assert [part.training for part in module] == [True, False, True]
    assert "running_mean" in " ".join(read.names.values())


def test_a_module_without_memory_is_read() -> None:
    with torch.device("meta"):
        module = nn.Sequential(nn.Linear(3, 100_000), nn.ReLU(), nn.Linear(100_000, 100_000))
    assert names(module, 2, 3) == ["linear", "relu", "linear"]


def test_the_modules_own_errors_become_one_line() -> None:
    with pytest.raises(Unsupported, match=r"torch\.export cannot read Linear"):
        export_module(nn.Linear(3, 2), [(2, 4)])


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Conv2d(2, 3, 3, stride=2, padding=1), (2, 6, 5)),
        (nn.Conv2d(2, 4, (2, 3), dilation=2, groups=2, padding=(1, 2)), (2, 6, 7)),
        (nn.Conv1d(1, 2, 5, padding=4), (1, 4)),
        (nn.Conv3d(1, 2, 2), (1, 3, 3, 3)),
    ],
)
def test_edges_of_convolutions_are_counted_before_they_are_unrolled(layer: nn.Module, shape: tuple[int, ...]) -> None:
    width = layer(torch.zeros(1, *shape)).numel()
    module = nn.Sequential(layer, nn.ReLU(), nn.Flatten(), nn.Linear(width, 1))
    dag = from_module(module, shape).to_dag()
    into = (dag.roles[dag.heads] == Role.HIDDEN) & (dag.tails != dag.constant)
    assert graph_reading.unrolled_edges(read_module(module, [(2, *shape)])) == int(into.sum())


def test_a_network_too_large_to_unroll_is_given_up_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def unrolled(*arguments: object) -> None:
        raise AssertionError("it was unrolled")

    monkeypatch.setattr(graph_reading, "lower_convolution", unrolled)
    with pytest.raises(Unsupported, match=r"2\d,\d+,\d+ edges are more than"):
        from_module(nn.Sequential(nn.Conv2d(64, 64, 3, padding=1)), (64, 26, 26))


def test_a_model_that_caches_keys_is_read_without_and_stays_as_it_was() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=11, n_positions=4)
    model = transformers.GPT2LMHeadModel(config).eval()
    read = export_module(model, [torch.zeros((2, 4), dtype=torch.int64)])
    assert len(read.results) == 1  # the logits, and no cache
    assert model.config.use_cache is True


def test_somebodys_factory_needs_a_torchvision_that_does_not_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """The factory fails once, because of an operator that is not there; with its name, it is called again."""
    from lawful.sources.checkpoints import load

    calls, tries = [], []
    monkeypatch.setattr(load, "let_torchvision_load", lambda: tries.append(1) is None)

    def factory() -> nn.Module:
        calls.append(1)
        if len(calls) == 1:
            try:
                raise RuntimeError("operator torchvision::nms does not exist")
            except RuntimeError as error:
                raise ModuleNotFoundError("Could not import module 'GPT2Model'") from error
        return nn.Linear(2, 1)

    assert isinstance(load.make_module(factory), nn.Linear)
    assert (len(calls), len(tries)) == (2, 1)

    def broken() -> nn.Module:
        raise RuntimeError("something else")

    with pytest.raises(LawfulError, match="something else"):
        load.make_module(broken)
    assert len(tries) == 1


class Chosen(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[x > 0].sum() + x


def test_a_size_that_depends_on_data_is_refused_with_its_line() -> None:
    with pytest.raises(Unsupported, match=r"Sequential makes a tensor whose size .*: return x\[x > 0\]\.sum\(\) \+ x"):
        export_module(nn.Sequential(nn.Linear(2, 2), Chosen()), [(2, 2)])
