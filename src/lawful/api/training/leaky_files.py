"""The files of a run of Leaky ResNets: a folder of plain ones.

RUN/run.json          what was asked for
RUN/train.npz, test.npz   the data: x and y
RUN/depth-3.npz       weights, steps and maps of the network of effective depth 3
RUN/depth-3.json      its evidence: stationarity, costs, evaluations
RUN/depth-3.part.npz  an unfinished one, with all that its search needs to go on to the same bytes
RUN/depth-3.part.json the seconds that went into it so far
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from lawful.errors import InvalidNetwork, LawfulError
from lawful.formats.io.reading import naming, read_json
from lawful.formats.io.writing import write_bytes
from lawful.formats.queries.data import read_data
from lawful.formats.tensors import npz as npz_format
from lawful.papers.leaky import LeakyResNet, TeacherTask
from lawful.papers.leaky.solver.geodesic import Leg
from lawful.papers.leaky.solver.paper_recipe import RecipeState


def load_leg(path: Path) -> Leg:
    """Where the search for a network stands."""
    network, numbers = load_network(path), npz_format.load_arrays(path).get("leg")
    if numbers is None or numbers.shape != (2,) or not ((numbers >= 0) & (numbers <= 2**53)).all():
        raise InvalidNetwork(f"{path}: damaged: delete it to start this network again")
    return Leg(network, *(int(number) for number in numbers))


def leg_arrays(leg: Leg) -> dict[str, Any]:
    """A leg as arrays, the way `load_leg` reads it."""
    return network_arrays(leg.network) | {"leg": np.array((leg.spent, leg.stage), np.float64)}


def load_recipe(path: Path) -> RecipeState:
    """Where the paper's recipe stands."""
    network, arrays = load_network(path), npz_format.load_arrays(path)
    step, moments = arrays.get("step"), arrays.get("moments")
    shape = tuple(network.weights.shape)
    if step is None or step.shape != () or moments is None or moments.shape not in ((0,), (2, *shape)):
        raise InvalidNetwork(f"{path}: damaged: delete it to start this network again")
    return RecipeState(network, int(step), tuple(moments))


def recipe_arrays(state: RecipeState) -> dict[str, Any]:
    """A state of the recipe as arrays, the way `load_recipe` reads it."""
    moments = np.stack(state.moments) if state.moments else np.empty(0)
    return network_arrays(state.network) | {"step": np.array(float(state.step)), "moments": moments}


def is_run(path: Path) -> bool:
    """Whether a folder holds a run."""
    return (path / "run.json").is_file()


def read_run(folder: Path) -> tuple[float, Iterator[tuple[LeakyResNet, dict[str, Any]]]]:
    """The ridge of a run, and its finished networks with their summaries, smallest effective depth first."""
    plan = read_object(folder / "run.json")
    ridge = plan.get("ridge")
    if plan.get("kind") != "leaky run" or not isinstance(ridge, (int, float)):
        raise InvalidNetwork(f"{folder}: run.json does not describe a run of `lawful leaky`")
    names = [path.stem for path in folder.glob("depth-*.json") if re.fullmatch(r"depth-[\d.e+-]+", path.stem)]
    if not names:
        raise LawfulError(f"{folder}: no network of this run is finished yet")
    names.sort(key=lambda name: float(name.removeprefix("depth-")))
    return float(ridge), (
        (load_network(folder / f"{name}.npz"), read_object(folder / f"{name}.json")) for name in names
    )


def load_task(path: Path) -> TeacherTask:
    """Inputs and targets of a data file."""
    data = read_data(path)
    if data.y is None:
        raise LawfulError(f"{path}: needs targets `y` beside the inputs `x`")
    return TeacherTask(data.x, data.y[:, None] if data.y.ndim == 1 else data.y)


def load_network(path: Path) -> LeakyResNet:
    """Read a network that `lawful leaky` wrote."""
    with naming(path):
        arrays = npz_format.load_arrays(path, kinds="f")
        missing = [name for name in ("weights", "steps", "effective_depth", "softness") if name not in arrays]
        if missing:
            raise InvalidNetwork(f"not a Leaky ResNet, it has no array {missing[0]!r}")
        return LeakyResNet(
            arrays["weights"],
            _number(arrays, "effective_depth"),
            arrays["steps"],
            into=arrays.get("into"),
            out=arrays.get("out"),
            softness=_number(arrays, "softness"),
        )


def _number(arrays: dict[str, Any], name: str) -> float:
    if arrays[name].shape != ():
        raise InvalidNetwork(f"{name!r} is not one number")
    return float(arrays[name])


def network_arrays(network: LeakyResNet) -> dict[str, Any]:
    """A network as arrays, the way `load_network` reads it."""
    arrays: dict[str, Any] = {
        "weights": network.weights.detach().numpy(),
        "steps": network.steps.numpy(),
        "effective_depth": np.array(network.effective_depth),
        "softness": np.array(network.softness),
    }
    for name in ("into", "out"):
        if (matrix := getattr(network, name)) is not None:
            arrays[name] = matrix.detach().numpy()
    return arrays


def write_arrays(path: Path, arrays: dict[str, Any]) -> None:
    """Write an .npz file, whole or not at all."""
    write_bytes(path, npz_format.dump(arrays, None))


def read_object(path: Path) -> dict[str, Any]:
    """A JSON file that holds an object."""
    value = read_json(path)
    if not isinstance(value, dict):
        raise InvalidNetwork(f"{path}: not a JSON object")
    return value
