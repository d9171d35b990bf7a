"""Every public function takes every kind of source, and answers the same for a network, its graph and its file."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import safetensors.torch
import torch
from effort import trials
from hypothesis import example, given, settings
from hypothesis import strategies as st

import lawful as package
from lawful.api.checkpoints.diff import diff
from lawful.bounds.distance import distance
from lawful.conservation import count_laws
from lawful.fibers.fingerprint import canonical, fingerprint
from lawful.invariant_set import find_path, unlock
from lawful.network import Architecture, Dag, Mlp
from lawful.sources.files import write
from lawful.training import known_laws, problem

BATCH = np.random.default_rng(3).normal(size=(6, 3))
Answer = Callable[[Any], Any]


def _count(found: Any) -> Any:
    return found.laws, found.status, found.dimensions


def _pruned(found: Any) -> Any:
    """A perceptron writes the weights down that a graph leaves out: zeros."""
    theta = found.network.to_dag().theta
    return theta[theta != 0].tolist(), found.neurons_after, found.bound


FUNCTIONS: dict[str, Answer] = {
    "count_laws": lambda net: _count(count_laws(net)),
    "count_laws near": lambda net: _count(count_laws(net, level="near")),
    "components": lambda net: [(lock.edge, lock.sign, lock.minimum) for lock in package.components(net).locked],
    "rebalance": lambda net: package.rebalance(net).dag.theta.tolist(),
    "unlock": lambda net: unlock(net).dag.theta.tolist(),
    "find_path": lambda net: type(find_path(net, net)).__name__,
    "prune": lambda net: _pruned(package.prune(net)),
    "same": lambda net: package.same(net, net).verdict,
    "fingerprint": lambda net: fingerprint(net).hash,
    "canonical": lambda net: canonical(net).network.theta.tolist(),
    "distance": lambda net: float(distance(net, net, (-np.ones(3), np.ones(3)), seconds=1.0).upper),
    "diff": lambda net: diff(net, net, seconds=2.0).verdict.verdict,
    "known_laws": lambda net: known_laws(net).names,
    "problem": lambda net: round(problem(net, BATCH, np.zeros((6, 2))).evaluate(package.open(net).theta).loss, 12),
}


def forms(mlp: Mlp, folder: Path) -> dict[str, Any]:
    for ending in (".safetensors", ".pt", ".npz", ".json", ".onnx"):
        write(mlp, folder / f"net{ending}")
    files = {ending: str(folder / f"net{ending}") for ending in (".safetensors", ".pt", ".npz", ".json", ".onnx")}
    return {"graph": mlp.to_dag(), "path": folder / "net.npz", "module": package.to_module(mlp), **files}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_answer_does_not_depend_on_the_form(name: str, tmp_path: Path) -> None:
    for text in ("3-4-2 relu bias", "3-3-2 linear", "3-4-3-2 leaky_relu(0.25)"):
        mlp = Architecture.parse(text).initialise(seed=2)
        assert isinstance(mlp, Mlp)
        expected = FUNCTIONS[name](mlp)
        for form, source in forms(mlp, tmp_path).items():
            if form == "module" and name in ("known_laws", "problem"):
                continue  # modules train by themselves there: same numbers, other words
            assert FUNCTIONS[name](source) == expected, (text, form)


@pytest.mark.parametrize("name", ["count_laws", "components", "prune", "same", "rebalance"])
def test_functions_take_weights_models_and_text(name: str, tmp_path: Path) -> None:
    mlp = Architecture.parse("3-4-2 relu").initialise(seed=1)
    state = {"fc1.weight": torch.tensor(mlp.weights[0]), "fc2.weight": torch.tensor(mlp.weights[1])}  # type: ignore[union-attr]
    write(mlp, tmp_path / "net.onnx")
    expected = FUNCTIONS[name](mlp)
    assert FUNCTIONS[name](state) == expected
    assert FUNCTIONS[name](onnx.load(tmp_path / "net.onnx")) == expected
    assert FUNCTIONS[name]("3-4-2 relu") is not None


def test_audits_take_modules_and_files(tmp_path: Path) -> None:
    mlp = Architecture.parse("3-4-2 relu bias").initialise(seed=1)
    write(mlp, tmp_path / "net.pt")
    expected = package.audit(mlp)
    for source in (tmp_path / "net.pt", package.to_module(mlp), mlp.to_dag()):
        found = package.audit(source)
        assert _count(found.laws) == _count(expected.laws)
        assert found.components.connected == expected.components.connected


@settings(max_examples=trials(8, 15))
@given(seed=st.integers(0, 10**6), widths=st.lists(st.integers(1, 4), min_size=3, max_size=4), bias=st.booleans())
@example(seed=192, widths=[1, 3, 3, 1], bias=False)
def test_an_mlp_and_its_graph_agree_for_any_shape(seed: int, widths: list[int], bias: bool) -> None:
    text = "-".join(map(str, widths)) + " relu" + " bias" * bias
    mlp = Architecture.parse(text).initialise(seed=seed)
    graph = mlp.to_dag()
    assert isinstance(graph, Dag)
    for name in ("count_laws", "components", "fingerprint", "prune"):
        assert FUNCTIONS[name](mlp) == FUNCTIONS[name](graph), (text, name)
    assert package.prune(mlp, skips=True).neurons_after <= package.prune(mlp).neurons_after


def test_a_normalised_module_is_shown_and_counted_without_its_size() -> None:
    module = torch.nn.Sequential(torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 2), torch.nn.ReLU(), torch.nn.Linear(2, 1))
    assert isinstance(package.open(module), Mlp)
    assert count_laws(module).parameters == 6 + 8 + 3


def test_a_scaled_or_cut_module_is_no_graph_to_the_laws() -> None:
    """Twice a Linear layer is counted as the module it is; a softmax changes what the loss can see."""

    class Twice(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = torch.nn.Linear(2, 3, bias=False), torch.nn.Linear(3, 2, bias=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.two(2.0 * self.one(x))

    twice = count_laws(Twice())  # as a linear 2-3-2 network: a symmetric 3×3 matrix (P1 Proposition 4.2)
    assert (twice.laws, twice.dag) == (6, None)
    module = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2), torch.nn.Softmax(1))
    cut = count_laws(module)  # three balances, and sums over the classes: of three weights and of the biases
    assert (cut.laws, cut.dag) == (7, None)
    with pytest.raises(package.Unsupported, match="softmax at its end"):
        package.same(module, module[:3])
    assert package.same(module, module).verdict == "equal"


DATA = (np.random.default_rng(4).normal(size=(6, 3)), np.zeros((6, 2)))
BOX = (-np.ones(3), np.ones(3))
VERBS: dict[str, Answer] = {
    "show": lambda net: package.show(net),
    "laws": lambda net: package.laws(net),
    "symmetries": lambda net: package.symmetries(net),
    "components": lambda net: package.components(net),
    "path": lambda net: package.path(net, net),
    "rebalance": lambda net: package.rebalance(net),
    "unlock": lambda net: unlock(net),
    "singular": lambda net: package.singular(net),
    "prune": lambda net: package.prune(net),
    "same": lambda net: package.same(net, net),
    "distance": lambda net: distance(net, net, BOX, seconds=1.0),
    "diff": lambda net: package.diff(net, net, seconds=2.0),
    "identifiable": lambda net: package.identifiable(net),
    "fiber": lambda net: package.fiber(net),
    "regions": lambda net: package.regions(net),
    "canonical": lambda net: package.canonical(net),
    "fingerprint": lambda net: package.fingerprint([net]),
    "flow": lambda net: package.flow(net, DATA, until=0.01),
    "compare": lambda net: package.compare(net, "sgd:0.1", DATA, until=0.1),
    "truncate": lambda net: package.truncate(net, (DATA[0], [0, 0, 1, 1, 2, 2])),
    "bottleneck": lambda net: package.bottleneck(net, DATA[0], blocks=["0", "1", "2"]),
    "audit": lambda net: package.audit(net),
    "explore": lambda net: package.explore(net),
}
NOT_OF_A_NETWORK = {
    "align", "check", "convert", "demo", "drift", "find", "leaky", "merge", "reproduce", "separate", "sweep",
    "truncation_flow", "verify", "vnncomp",
}  # fmt: skip


def every_source(folder: Path) -> dict[str, Any]:
    """Eleven ways to have one network."""
    mlp = Architecture.parse("3-4-2 relu bias").initialise(seed=2)
    module = package.to_module(mlp)
    assert isinstance(mlp, Mlp)
    found = forms(mlp, folder)
    state = {name: tensor.float() for name, tensor in module.state_dict().items()}
    safetensors.torch.save_file(state, folder / "bare.safetensors")
    bare = {"state dict": state, "weights alone": folder / "bare.safetensors", "architecture": "3-4-2 relu bias"}
    return {**found, "network": mlp, "model": onnx.load(folder / "net.onnx"), **bare}


@pytest.mark.parametrize("name", VERBS)
def test_every_result_says_how_its_network_was_read(name: str, tmp_path: Path) -> None:
    """For every kind of source; what is assumed is exactly what the source does not say."""
    weighed = name not in ("show", "laws", "symmetries")  # these can speak of an architecture without weights
    for form, source in every_source(tmp_path).items():
        if name == "bottleneck" and form == "graph":
            continue  # one module without parts: there are no blocks to read
        if name == "symmetries" and form == "graph":
            continue  # refused: a graph is no module
        result = VERBS[name](source)
        reading = result.reading
        assert isinstance(reading, package.Reading), form
        assert reading.format, form
        if form in ("state dict", "weights alone"):
            assert [each[:12] for each in reading.assumed] == ["ReLU between"], form
        elif form == "architecture":
            assert [each[:14] for each in reading.assumed] == ["random weights"] * weighed, form
        else:
            assert reading.assumed == (), form


def test_every_verb_of_python_is_asked() -> None:
    verbs = {name for name in package._places() if name[0].islower()} - {"open", "read", "write", "count_laws"}
    assert verbs - NOT_OF_A_NETWORK - {"from_module", "to_module"} <= set(VERBS)
    takers = {
        function.__name__
        for module in list(sys.modules.values())
        if getattr(module, "__name__", "").startswith("lawful.")
        for name, function in vars(module).items()
        if inspect.isfunction(function) and not name.startswith(("_", "assert_"))  # `lawful.testing` asks these
        if next(iter(inspect.signature(function).parameters.values()), inspect.Parameter("x", 1)).annotation == "Source"
    }
    rest = {"open_pair", "check", "convert", "count_laws", "describe_fiber", "find_path", "known_laws", "problem"}
    rest |= {
        "training_problem",
        "balanced_graph",
        "bound_of_difference",
        "prune_with_certificate",
        "convolutional_file",
        "by_channels",
        "prune_bounded",
        "prune_to",
        "read_program",
    }
    checkpoints = {
        "align",
        "merge",
        "open_checkpoint",
        "open_checkpoints",
        "open_both",
        "open_one",
        "representative",
    }  # they take weights, with a model
    assert takers - set(VERBS) - rest - checkpoints == set()
