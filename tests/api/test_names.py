"""One name for one thing: what the command line calls an option, Python calls a parameter, with the same default."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

import lawful
from lawful.cli import _command

# What only a command line has: files to write and ways to print.
ONLY_TYPED = {
    "json", "out", "html", "certificate", "plot", "svg", "figure", "save", "latex", "images", "csv", "markdown", "list",
    "all", "each", "values", "apply", "workers", "time", "index", "needed", "verify", "network", "result",
}  # fmt: skip
# Words of a command line for what Python gives as one object.
AS_OBJECT = {
    "laws": {"flow": {"momentum", "friction", "autonomous", "decay", "metric"}, "level": {"near"}},
    "audit": {"effort": {"quick", "full"}},
}
# Names that still differ: one line less is progress, one more is a mistake.
APART = {
    "show": {"program", "seed"}, "components": {"exact"}, "path": {"points"}, "rebalance": {"box"},
    "laws": {"degree", "logarithms", "reduction", "inputs", "weights"},
    "prune": {"curve", "smallest"},
    "verify": {"balance", "box", "model", "input", "activation", "order", "drop_useless", "seed"},
    "drift": {"tolerance"},
    "truncation-flow": {"fixed", "standard"}, "bottleneck": {"ridge"}, "fiber": {"sample"},
    "fingerprint": {"scheduler"},
    "reproduce": {"scheduler"},
}  # fmt: skip
DEFAULTS_SAID_IN_HELP = {"loss", "until", "snapshots", "tolerance", "max_evaluations", "effort", "seed"}
# The same meant by another word: all cores (a script that starts processes has to expect them), a folder for files or
# none, zero, the size of the weights.
SPELLED = {
    ("vnncomp", "threads"), ("demo", "out"), ("rebalance", "balance"), ("path", "tolerance"), ("distance", "norm"),
    ("symmetries", "check"), ("symmetries", "mode"),
}  # fmt: skip
VERBS = sorted(_command().commands)


def options(name: str) -> dict[str, Any]:
    found = [each for each in _command().commands[name].params if each.param_type_name == "option"]
    return {each.opts[0].lstrip("-").replace("-", "_"): each for each in found if each.name != "help"}


def parameters(name: str) -> dict[str, Any]:
    """The parameters of a function with their defaults; those that `**options: Unpack[...]` stands for have none."""
    function = inspect.unwrap(getattr(lawful, name.replace("-", "_")))
    known: dict[str, Any] = {}
    for each in inspect.signature(function).parameters.values():
        listed = re.fullmatch(r"Unpack\[(\w+)\]", str(each.annotation))
        if listed is not None:
            options = function.__globals__[listed[1]].__annotations__
            known |= dict.fromkeys(options, inspect.Parameter.empty)
        else:
            known[each.name] = each.default
    return known


@pytest.mark.parametrize("name", VERBS)
def test_options_are_parameters(name: str) -> None:
    known = parameters(name)
    as_object = AS_OBJECT.get(name, {})
    assert set(as_object) <= set(known)
    missing = set(options(name)) - set(known) - ONLY_TYPED - set().union(*as_object.values())
    assert missing == APART.get(name, set())


@pytest.mark.parametrize("name", VERBS)
def test_defaults_are_the_same(name: str) -> None:
    known = parameters(name)
    for option, each in options(name).items():
        default = known.get(option, inspect.Parameter.empty)
        if (name, option) in SPELLED or default is inspect.Parameter.empty:
            continue
        if each.default is None and option in DEFAULTS_SAID_IN_HELP:
            said = (each.help or "").partition("[default: ")[2].rstrip("]")
            as_number = f"{default:g}" if isinstance(default, float) else ""
            assert said.split(",")[0] in (str(default), as_number), (name, option, said)
        else:
            assert each.default == default, (name, option)


def test_old_names_still_work() -> None:
    with pytest.warns(DeprecationWarning, match="`target` is now called `balance`"):
        assert lawful.rebalance("2-3-1 relu", target=0.0).reached  # type: ignore[call-arg]
    with pytest.raises(lawful.LawfulError, match="give one of them"):
        lawful.rebalance("2-3-1 relu", target=0.0, balance=1.0)  # type: ignore[call-arg]
