"""Networks that every law is tried on, and the real command line."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from command_line import Run, ended, in_a_process, in_process
from effort import trials
from hypothesis import settings
from second_opinion import every_certificate_checked_twice

from lawful import Architecture, Dag, Mlp
from lawful.network import Role, initialise

settings.register_profile("lawful", deadline=None)  # a busy machine is no failure
settings.load_profile("lawful")

ARCHITECTURES = (
    "3-4-2 relu",
    "3-4-4-2 relu bias",
    "1-1-1 relu",
    "6-5-6 linear",
    "4-3-5-1 leaky_relu(0.1) bias",
    "2-3-3-3-2 relu bias skip(1,2)",
    "5-4-3-2 relu skip(0,2) skip(0,1)",
    "3-2 linear bias",
)


def pytest_configure() -> None:
    """torchvision, which timm and transformers import, may come with operators built for another PyTorch.

    Until all tests are collected nothing is garbage. Workers of xdist inherit the width of a terminal: output is tested
    as a pipe gets it, not wrapped.
    """
    os.environ.pop("COLUMNS", None)
    gc.disable()
    with contextlib.suppress(ImportError):
        from lawful.sources.checkpoints.load import let_torchvision_load

        let_torchvision_load()


def pytest_collection_finish() -> None:
    """What is imported by now stays: looking for garbage in it again and again takes time from every test."""
    gc.freeze()
    gc.set_threshold(10_000)
    gc.enable()


@pytest.fixture(autouse=True)
def _modules_belong_to_their_test(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Many tests write a `nets.py`: what one has imported of it is not there for the next."""
    before, base = set(sys.modules), str(tmp_path_factory.getbasetemp())
    yield
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(base):
            del sys.modules[name]


@pytest.fixture(scope="session", autouse=True)
def _certificates_are_checked_twice() -> Iterator[None]:
    """By checkers that share no line: all that the tests make and verify, in this process."""
    with every_certificate_checked_twice():
        yield


@pytest.fixture(scope="module", autouse=True)
def _modules_written_alike_are_exported_once(request: pytest.FixtureRequest) -> Iterator[None]:
    """Tracing is a third of the time of all tests; those of the reader itself, of the network, do it every time."""
    if request.path.parent.name == "network":
        yield
        return
    from written_alike import exported_once

    from lawful.program.frontends import export

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(export, "_export", exported_once(export._export))
        yield


@pytest.fixture(scope="session", autouse=True)
def _ctrl_c_is_heard() -> None:
    """A shell's background jobs ignore Ctrl-C, and so would every process that a test starts."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def random_dag(seed: int) -> Dag:
    """A sparse graph with several inputs and outputs, skips, mixed activations and some biases."""
    rng = np.random.default_rng(seed)
    inputs, hidden, outputs = (int(n) for n in rng.integers((1, 1, 1), (4, 9, 4)))
    count = inputs + hidden + outputs
    pairs = set()
    for node in range(inputs, count):
        below = inputs + hidden if node >= inputs + hidden else node
        pairs |= {
            (int(tail), node) for tail in rng.choice(below, size=min(below, int(rng.integers(1, 4))), replace=False)
        }
    for node in range(inputs, inputs + hidden):  # somebody must listen
        pairs.add((node, int(rng.integers(max(node + 1, inputs + 1), count))))
    pairs |= {(count, node) for node in range(inputs, count) if rng.random() < 0.4}
    tails, heads = np.array(sorted(pairs)).T
    roles = np.repeat([Role.INPUT, Role.HIDDEN, Role.OUTPUT, Role.CONSTANT], [inputs, hidden, outputs, 1])
    slopes = rng.choice([0.0, 0.0, 0.2, 1.0], size=count + 1)
    return Dag([f"n{i}" for i in range(count)] + ["bias"], roles, tails, heads, rng.normal(size=len(tails)), slopes)


@pytest.fixture(params=ARCHITECTURES)
def architecture(request: pytest.FixtureRequest) -> Architecture:
    return Architecture.parse(request.param)


@pytest.fixture(params=[*ARCHITECTURES, *range(trials(4, 12))], ids=str)
def network(request: pytest.FixtureRequest) -> Mlp | Dag:
    """Layered networks and random graphs, with weights."""
    if isinstance(request.param, int):
        return random_dag(request.param)
    return Architecture.parse(request.param).initialise(seed=7)


@pytest.fixture
def dag(network: Mlp | Dag) -> Dag:
    return network.to_dag()


@pytest.fixture
def toy() -> Dag:
    """The graph of P0 Figure 2d: inputs a, b; 2 -> 3, 2 -> 4, 3 -> 4, 4 -> 5."""
    names = ("a", "b", "2", "3", "4", "5")
    roles = [Role.INPUT, Role.INPUT, Role.HIDDEN, Role.HIDDEN, Role.HIDDEN, Role.OUTPUT]
    return initialise(Dag(names, roles, [0, 2, 2, 1, 3, 4], [2, 3, 4, 3, 4, 5]), "uniform", seed=1)


@pytest.fixture(scope="session")
def lawful() -> Callable[..., Run]:
    """Run the command line in this process and check its exit code."""
    return lambda *arguments, code=0, cwd=None: ended(in_process(*arguments, cwd=cwd), code)


@pytest.fixture(scope="session")
def lawful_process() -> Callable[..., Run]:
    """Run the installed command in a process of its own and check its exit code."""
    return lambda *arguments, code=0, cwd=None: ended(in_a_process(*arguments, cwd=cwd), code)
