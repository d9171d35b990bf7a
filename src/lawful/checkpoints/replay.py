"""What a module computes with tensors that are fetched where they are used and dropped after their last use.

The graph is carried out call by call, in float64 wherever the module asks for any floating point type: what counts is
the function of the weights, not the rounding of one way to compute it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx

from lawful.errors import Unsupported
from lawful.network.modules.export import ExportedModule
from lawful.symmetry.check import tensors_in

FLOATS = {torch.float16, torch.bfloat16, torch.float32}


def replay(
    exported: ExportedModule, tensors: Mapping[str, torch.Tensor], many: Sequence[Sequence[torch.Tensor]]
) -> list[list[torch.Tensor]]:
    """The outputs for each of several lists of inputs, of the sizes with which the module was traced.

        >>> from torch import nn
        >>> from lawful.errors import Unsupported
    from lawful.network.modules.export import export_module
        >>> net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
        >>> x = torch.ones(2, 3)
        >>> found = replay(export_module(net, [(2, 3)]), dict(net.named_parameters()), [[x]])
        >>> torch.allclose(found[0][0], net(x).double(), atol=1e-6)
        True
    """
    last = {given: node for node in exported.graph.nodes for given in node.all_input_nodes}
    ending: dict[fx.Node, list[fx.Node]] = {}
    for given, node in last.items():
        ending.setdefault(node, []).append(given)
    places = {name: place for place, name in enumerate(exported.inputs)}
    values: list[dict[fx.Node, Any]] = [{} for _ in many]
    with torch.no_grad(), _nothing_random():
        for node in exported.graph.nodes:
            if node.op == "output":
                return [[tensor.double() for tensor in tensors_in(_filled(node.args[0], held))] for held in values]
            if node.op == "placeholder":
                if node.name in places:
                    for held, inputs in zip(values, many, strict=True):
                        held[node] = _wide(inputs[places[node.name]])
                continue
            fetched = {
                given: _wide(_stored(exported, tensors, given))
                for given in node.all_input_nodes
                if given.op == "placeholder" and given.name not in places
            }
            for held in values:
                at = {**held, **fetched}
                held[node] = node.target(*_filled(node.args, at), **_filled(node.kwargs, at))
                for given in ending.get(node, ()):
                    held.pop(given, None)
    raise AssertionError("a graph without an output")


@contextmanager
def _nothing_random() -> Iterator[None]:
    """Refuse what draws random numbers: two runs differ then, and say nothing of two functions."""
    with torch.random.fork_rng(devices=[]):
        before = torch.random.get_rng_state()
        yield
        if not torch.equal(before, torch.random.get_rng_state()):
            raise Unsupported("the module draws random numbers in eval mode (dropout that is always on, or noise)")


def _stored(exported: ExportedModule, tensors: Mapping[str, torch.Tensor], node: fx.Node) -> torch.Tensor:
    name = exported.names.get(node.name)
    return exported.tensors[node.name] if name is None else tensors[name]


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().double() if tensor.dtype in FLOATS else tensor.detach()


def _filled(given: Any, values: Mapping[fx.Node, Any]) -> Any:
    """Arguments with nodes replaced by values, and floating types by float64."""

    def wide(each: Any) -> Any:
        return torch.float64 if isinstance(each, torch.dtype) and each in FLOATS else each

    return fx.node.map_aggregate(fx.node.map_arg(given, lambda node: values[node]), wide)
