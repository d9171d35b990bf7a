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
from torch.nn import functional

from lawful.errors import Unsupported
from lawful.network.modules.export import ExportedModule, operator_name
from lawful.symmetry.check import tensors_in

CLOSE = 2**20  # numbers that are widened together
FLOATS = {torch.float16, torch.bfloat16, torch.float32, torch.float64}


def replay(
    exported: ExportedModule,
    tensors: Mapping[str, torch.Tensor],
    many: Sequence[Sequence[torch.Tensor]],
    kind: torch.dtype = torch.float64,
) -> list[list[torch.Tensor]]:
    """The outputs for each of several lists of inputs, of the sizes with which the module was traced.

    `kind`: in what it is carried out; float64 unless rounding does not matter.

    >>> from torch import nn
    >>> from lawful.network.modules.export import export_module
    >>> net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    >>> x = torch.ones(2, 3)
    >>> found = replay(export_module(net, [(2, 3)]), dict(net.named_parameters()), [[x]])
    >>> torch.allclose(found[0][0], net(x).double(), atol=1e-6)
    True
    """
    return replay_beside(exported, [(tensors, inputs) for inputs in many], kind)


def replay_beside(
    exported: ExportedModule,
    runs: Sequence[tuple[Mapping[str, torch.Tensor], Sequence[torch.Tensor]]],
    kind: torch.dtype = torch.float64,
) -> list[list[torch.Tensor]]:
    """The outputs of several runs, each with tensors and inputs of its own, carried out beside each other: what their
    tensors are made of is met by all of them before the next is made."""
    last = {given: node for node in exported.graph.nodes for given in node.all_input_nodes}
    ending: dict[fx.Node, list[fx.Node]] = {}
    for given, node in last.items():
        ending.setdefault(node, []).append(given)
    places = {name: place for place, name in enumerate(exported.inputs)}
    values: list[dict[fx.Node, Any]] = [{} for _ in runs]
    with torch.no_grad(), _nothing_random():
        for node in exported.graph.nodes:
            if node.op == "output":
                return [[tensor.double() for tensor in tensors_in(filled(node.args[0], held, kind))] for held in values]
            if node.op == "placeholder":
                if node.name in places:
                    for held, (_, inputs) in zip(values, runs, strict=True):
                        held[node] = widened(inputs[places[node.name]], kind)
                continue
            call = operator_name(node.target)
            looked_up = call == "embedding"  # a few rows of a large table: widened afterwards
            as_stored = looked_up or call == "linear"
            of: Mapping[str, torch.Tensor] | None = None
            fetched: dict[fx.Node, torch.Tensor] = {}
            for held, (tensors, _) in zip(values, runs, strict=True):
                if tensors is not of:
                    of, fetched = tensors, {}
                    for given in node.all_input_nodes:
                        if given.op == "placeholder" and given.name not in places:
                            own = stored(exported, tensors, given)
                            fetched[given] = own.detach() if as_stored else widened(own, kind)
                at = {**held, **fetched}
                run = _linear if call == "linear" else node.target
                made = run(*filled(node.args, at, kind), **filled(node.kwargs, at, kind))
                held[node] = widened(made, kind) if looked_up else made
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


def stored(exported: ExportedModule, tensors: Mapping[str, torch.Tensor], node: fx.Node) -> torch.Tensor:
    """A parameter or buffer; buffers that no checkpoint holds are the module's own."""
    name = exported.names.get(node.name)
    own = name is None or (node.name not in exported.trained and name not in tensors)
    return exported.tensors[node.name] if own else tensors[str(name)]


def widened(tensor: torch.Tensor, kind: torch.dtype = torch.float64) -> torch.Tensor:
    """A tensor in the type that is used, unless it holds whole numbers or truth values."""
    return tensor.detach().to(kind) if tensor.dtype in FLOATS else tensor.detach()


def _linear(values: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """`W x + b`, with the stored numbers of W widened a few rows at a time: as many as a processor keeps close.

    >>> weight, values = torch.randn(9, 2**19).bfloat16(), torch.randn(3, 2**19)
    >>> torch.allclose(_linear(values, weight), values @ weight.float().T, rtol=1e-4, atol=1e-2)
    True
    """
    wide = values.dtype
    bias = None if bias is None else bias.to(wide)
    if weight.dtype == wide:
        return functional.linear(values, weight, bias)
    parts = torch.split(weight, max(CLOSE // max(weight.shape[-1], 1), 1))
    found = torch.cat([functional.linear(values, part.to(wide)) for part in parts], dim=-1)
    return found if bias is None else found + bias


def filled(given: Any, values: Mapping[fx.Node, Any], kind: torch.dtype = torch.float64) -> Any:
    """Arguments with nodes replaced by values, and floating types by the one that is used."""

    def typed(each: Any) -> Any:
        return kind if isinstance(each, torch.dtype) and each in FLOATS else each

    return fx.node.map_aggregate(fx.node.map_arg(given, lambda node: values[node]), typed)
