"""Functions of tensors in PyTorch: traced as they run, so that whatever surrounds a call (a mode, draws) takes part.

`torch.export` reads a module by itself. A function is read here with the tensors that it is given as parameters and
inputs, and every other tensor that it uses is a constant: a module in training, whose random numbers are inputs, or
one output of a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from lawful.errors import LawfulError, Unsupported
from lawful.program.frontends.decompositions import core_decompositions
from lawful.program.frontends.export import ExportedModule
from lawful.program.frontends.torch_export import find_entry, read_exported
from lawful.program.program import Program
from lawful.program.table import ATEN_CASTS, ATEN_FACTORIES, ATEN_MOVEMENTS

NORMS = [  # that PyTorch keeps whole where it breaks calls down
    torch.ops.aten.native_layer_norm,
    torch.ops.aten.native_group_norm,
    torch.ops.aten.native_batch_norm,
    torch.ops.aten._native_batch_norm_legit_no_training,
]


def read_function(
    function: Callable[..., Any], parameters: Mapping[str, torch.Tensor], inputs: Sequence[torch.Tensor] = ()
) -> Program:
    """The program, for exact arithmetic, of `function(tensors by name, *inputs)`.

    >>> program = read_function(lambda held, x: held["w"] * x.tanh(), {"w": torch.zeros(3)}, [torch.zeros(3)])
    >>> [(node.op, node.shape) for node in program.nodes]
    [('input', (3,)), ('parameter', (3,)), ('tanh', (3,)), ('mul', (3,))]
    """
    names, tensors = list(parameters), list(parameters.values())

    def of_tensors(parts: list[torch.Tensor], *data: torch.Tensor) -> Any:
        return function(dict(zip(names, parts, strict=True)), *data)

    try:
        traced = _trace(of_tensors, tensors, tuple(inputs))
    except LawfulError:
        raise
    except Exception as error:  # the function's own code runs, and may raise anything
        raise Unsupported(f"the calls cannot be listed: {_first_line(error)}") from None
    places = [node.name for node in traced.graph.nodes if node.op == "placeholder"]
    trained, data_inputs = places[: len(names)], places[len(names) :]
    exported = ExportedModule(
        traced.graph,
        dict(zip(trained, tensors, strict=True)),
        dict(zip(trained, names, strict=True)),
        frozenset(trained),
        tuple(data_inputs),
    )
    return read_exported(exported, exact=True)


def _trace(function: Callable[..., Any], tensors: list[torch.Tensor], inputs: tuple[torch.Tensor, ...]) -> Any:
    traced: Any = function
    for _ in range(2):  # recurrent layers bring calls in place along, which the second time replaces
        if traced is function or _changes(traced):
            free = torch.func.functionalize(traced)
            make = make_fx(free, _decompositions(), tracing_mode="fake", _allow_non_fake_inputs=True)
            traced = make(tensors, *inputs)
    return traced


def _changes(traced: fx.GraphModule) -> bool:
    """Whether a call changes one of its arguments in place."""
    return any(
        isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable for node in traced.graph.nodes
    )


@cache
def _decompositions() -> dict[Any, Callable[..., Any]]:
    """How PyTorch computes the calls that the table does not know."""
    rules = {**core_decompositions(), **torch._decomp.get_decompositions(NORMS)}
    return {target: rule for target, rule in rules.items() if not _is_known(target)}


def _is_known(target: Any) -> bool:
    name = target._schema.name.split("::")[-1]
    return name in ATEN_MOVEMENTS | ATEN_FACTORIES | ATEN_CASTS or find_entry(target) is not None


def _first_line(error: Exception) -> str:
    """An error of someone else's code, on one line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:160] if lines else ''}"
