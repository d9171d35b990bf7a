"""What the user typed for a flow becomes a training problem: settings, data, laws to watch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from lawful.cli.source import input_shape, is_module, open_network
from lawful.errors import LawfulError, Unsupported

if TYPE_CHECKING:
    import torch

    from lawful.network import Dag, Mlp
    from lawful.training.problems.loss_value import Problem
    from lawful.training.quantities import Quantities

DEFAULTS: dict[str, Any] = {
    "data": None, "loss": "mse", "time": 1.0, "dynamics": "gradient", "friction": 1.0, "decay": 0.0, "snapshots": 101,
    "tolerance": 1e-10, "stop_loss": None, "stop_gradient": None, "max_evaluations": 1_000_000, "seed": 0,
    "input": None, "activation": None, "out": None, "certificate": None, "project": False, "ignore_kinks": False,
    "metric": None, "model": None, "order": None,
}  # fmt: skip


def read_settings(source: str, given: dict[str, Any]) -> dict[str, Any]:
    """Defaults, then the TOML file if `source` is one, then the command line."""
    if not source.endswith(".toml"):
        return DEFAULTS | given | {"network": source}
    from lawful.formats.io.reading import read_toml

    path = Path(source)
    stored = read_toml(path)
    if "until" in stored:
        stored["time"] = stored.pop("until")
    unknown = sorted(set(stored) - set(DEFAULTS) - {"network"})
    if unknown:
        known = ", ".join(["network", *DEFAULTS])
        raise LawfulError(f"{source}: unknown setting {unknown[0][:40]!r}; settings are {known}")
    if not isinstance(stored.get("network"), str):
        raise LawfulError(f'{source}: needs network = "..." (a file, module:factory or architecture)')
    for key, value in stored.items():
        default = DEFAULTS.get(key)
        kinds = {bool: (bool,), float: (float, int), int: (int,), str: (str,)}.get(type(default), (str, float, int))
        if not isinstance(value, kinds) or (isinstance(value, bool) and kinds != (bool,)):
            raise LawfulError(f"{source}: {key} = {value!r} has the wrong type")
    for key in ("data", "out", "certificate", "metric"):  # paths are relative to the file that names them
        if stored.get(key) is not None:
            stored[key] = str(path.parent / str(stored[key]))
    return DEFAULTS | stored | given


def training_problem(settings: dict[str, Any]) -> tuple[Problem, Quantities, Mlp | Dag | None]:
    """The training problem, its known laws, and the network if it is one."""
    from lawful.api.training import drawn_data
    from lawful.formats.queries.data import read_data
    from lawful.network import Dag, Mlp
    from lawful.sources.opening import open_module as open_any_module
    from lawful.training import known_laws, problem
    from lawful.training.problems.losses import find_loss

    shape = input_shape(settings["input"])
    seed = int(settings["seed"])
    settings["loss"] = find_loss(str(settings["loss"])).name
    reading = {key: settings[key] for key in ("activation", "model", "order")}
    trained: Mlp | Dag | torch.nn.Module
    try:
        trained = open_network(settings["network"], seed=seed, shape=shape, **reading)
    except Unsupported:
        if not is_module(settings["network"]) and settings["model"] is None:
            raise
        trained = open_any_module(settings["network"], **reading).module
    else:
        told = trained.reading
        if told is not None and (told.entangled or told.tail) and told.module is not None:
            trained = told.module  # the graph's weights do not train one by one: the module's do
    network = trained if isinstance(trained, Mlp | Dag) else None
    inputs = None if network is None else len(network.to_dag().inputs)
    if settings["data"] is None:
        if network is None:
            raise LawfulError("this module needs --data: its input size is not known")
        x, y = drawn_data(network, str(settings["loss"]), seed)
    else:
        settings["data"] = str(settings["data"])
        found = read_data(Path(settings["data"]), inputs)
        if found.y is None:
            raise LawfulError(f"{settings['data']}: has no targets `y`")
        x, y = found.x, found.y
    if isinstance(trained, Mlp | Dag):
        return problem(trained, x, y, settings["loss"]), known_laws(trained), trained
    from lawful.training.module_laws import module_laws
    from lawful.training.problems.module_problem import ModuleProblem

    at = ModuleProblem(trained, found.sized(shape), y, settings["loss"])
    return at, module_laws(trained, at.x), None
