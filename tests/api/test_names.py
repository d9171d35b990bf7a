"""One name for one thing: what the command line calls an option, Python calls a parameter, with the same default."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import lawful
from lawful.cli import _command

# What only a command line has: files to write, ways to print, and where the work is done.
ONLY_TYPED = {
    "json", "out", "html", "certificate", "plot", "svg", "figure", "save", "latex", "images", "csv", "markdown", "list",
    "all", "each", "check", "values", "apply", "seed", "scheduler", "workers", "drop_useless", "activation", "model",
    "order", "input", "time", "index", "needed", "verify", "network", "result",
}  # fmt: skip
# Names that still differ: one line less is progress, one more is a mistake.
APART = {
    "show": {"program"}, "components": {"exact"}, "path": {"points"}, "rebalance": {"box"},
    "laws": {"near", "data", "loss", "momentum", "friction", "autonomous", "decay", "metric", "degree", "logarithms",
             "reduction", "mode", "classes_axis", "inputs", "weights"},
    "symmetries": {"mode"}, "prune": {"tolerance", "keep", "curve", "box", "data", "around", "decide", "smallest",
                                      "seconds", "criterion", "held_out", "multiple", "plan", "skips", "tune"},
    "verify": {"balance", "box"},
    "flow": {"friction", "decay", "metric", "stop_loss", "stop_gradient"}, "drift": {"tolerance"},
    "truncate": {"clusters", "project"}, "truncation-flow": {"clusters", "project", "scale", "fixed", "standard"},
    "separate": {"clusters", "project"},
    "leaky": {"data", "classes", "depth", "width", "samples", "steps", "a", "ridge", "softness", "method", "tolerance",
              "evaluations", "grids", "seeds", "maps", "penalty"},
    "bottleneck": {"ridge"}, "fiber": {"sample"}, "distance": {"within", "norm", "output", "seconds"},
    "audit": {"quick", "full"}, "sweep": {"retry_failed"},
}  # fmt: skip
DEFAULTS_SAID_IN_HELP = {"loss", "until", "snapshots", "tolerance", "max_evaluations", "effort", "seed"}
# The same meant by another word: all cores (a script that starts processes has to expect them), a folder for files or
# none, zero, the size of the weights.
SPELLED = {("vnncomp", "threads"), ("demo", "out"), ("rebalance", "balance"), ("path", "tolerance")}
VERBS = sorted(_command().commands)


def options(name: str) -> dict[str, Any]:
    found = [each for each in _command().commands[name].params if each.param_type_name == "option"]
    return {each.opts[0].lstrip("-").replace("-", "_"): each for each in found if each.name != "help"}


@pytest.mark.parametrize("name", VERBS)
def test_options_are_parameters(name: str) -> None:
    known = set(inspect.signature(getattr(lawful, name.replace("-", "_"))).parameters)
    missing = set(options(name)) - known - ONLY_TYPED
    assert missing <= APART.get(name, set()), missing - APART.get(name, set())


@pytest.mark.parametrize("name", VERBS)
def test_defaults_are_the_same(name: str) -> None:
    known = inspect.signature(getattr(lawful, name.replace("-", "_"))).parameters
    for option, each in options(name).items():
        if (name, option) in SPELLED:
            continue
        if option in known and known[option].default is not inspect.Parameter.empty:
            if each.default is None and option in DEFAULTS_SAID_IN_HELP:
                said = (each.help or "").partition("[default: ")[2].rstrip("]")
                assert said.split(",")[0] in (
                    str(known[option].default),
                    f"{known[option].default:g}" if isinstance(known[option].default, float) else "",
                ), (name, option, said)
            else:
                assert each.default == known[option].default, (name, option)


def test_old_names_still_work() -> None:
    with pytest.warns(DeprecationWarning, match="`target` is now called `balance`"):
        assert lawful.rebalance("2-3-1 relu", target=0.0).reached  # type: ignore[call-arg]
    with pytest.raises(lawful.LawfulError, match="give one of them"):
        lawful.rebalance("2-3-1 relu", target=0.0, balance=1.0)  # type: ignore[call-arg]
