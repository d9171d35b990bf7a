"""Follow a traced PyTorch graph, operation by operation, with a pending tensor in place of the input."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx

from lawful.errors import LawfulError, Unsupported
from lawful.network.assemble import Assembly, Value
from lawful.network.modules.functions import ATEN_ORDER, FUNCTIONS, LAYERS, SUPPORTED, OperationContext
from lawful.network.operations import BATCH


class Interpreter:
    """Runs a traced graph with a `Value` in place of the input tensor."""

    def __init__(
        self,
        assembly: Assembly,
        root: fx.GraphModule,
        tensors: Mapping[str, Any] | None = None,
        batch: Sequence[int] = (BATCH,),
    ) -> None:
        self.state, self.root, self.tensors = OperationContext(assembly, batch), root, tensors or {}

    def run(self, graph: fx.Graph) -> Any:
        """The result of the graph's output node."""
        known: dict[fx.Node, Any] = {}
        started = False
        for node in graph.nodes:
            if node.op == "placeholder" and node.name in self.tensors:
                known[node] = self.tensors[node.name]
            elif node.op == "placeholder":
                if started and not node.args:
                    raise Unsupported(f"the module has a second input {node.name!r}: one is supported")
                known[node] = node.args[0] if started else self.state.assembly.input()
                started = True
            elif node.op == "get_attr":
                known[node] = operator.attrgetter(node.target)(self.root)
            else:
                args = fx.map_arg(node.args, known.__getitem__)
                options = fx.map_arg(node.kwargs, known.__getitem__)
                if node.op == "output":
                    return args[0]
                known[node] = self._call(node, args, options)
        return None

    def _call(self, node: fx.Node, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        layer = type(self.root.get_submodule(str(node.target))) if node.op == "call_module" else None
        name = layer.__name__ if layer else operator_name(node.target)
        place = f"layer {node.target!r} ({name})" if layer else f"{node.name!r} ({name})"
        try:
            if layer is not None:
                if layer in LAYERS:
                    return LAYERS[layer](self.state, self.root.get_submodule(str(node.target)), *args)
            elif not any(isinstance(item, Value) for item in _flat(args)):
                if name in ("mul", "add", "sub", "floordiv", "getitem", "neg"):
                    return getattr(operator, name)(*args)
            elif name in FUNCTIONS:
                aten = isinstance(node.target, torch._ops.OpOverload)
                run = ATEN_ORDER.get(name, FUNCTIONS[name]) if aten else FUNCTIONS[name]
                return run(self.state, *args, **options)
        except LawfulError as error:
            raise type(error)(f"{place}: {error}") from None
        except (TypeError, ValueError, IndexError, AttributeError) as error:
            raise Unsupported(f"{place} is used in an unsupported way ({str(error)[:120]})") from None
        raise Unsupported(f"{place} is not supported; supported are {SUPPORTED}")


def operator_name(target: Any) -> str:
    """The bare name of a function, a method or an ATen operator."""
    if isinstance(target, torch._ops.OpOverload):
        target = target.overloadpacket
    name = target if isinstance(target, str) else getattr(target, "__name__", str(target))
    return name.strip("_")


def _flat(args: Any) -> list[Any]:
    return [part for item in args for part in (_flat(item) if isinstance(item, (list, tuple)) else [item])]
