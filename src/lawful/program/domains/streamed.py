"""Several evaluations beside each other, with weights that are fetched where they are used and dropped after that use.

A checkpoint may be larger than memory, and its tensors may take time to make. So a leaf is not a value here: it stays a
node, and every operator that reads it asks for its tensor. All runs read a tensor before the next one is asked for.
Stored numbers are widened in parts, as many as a processor keeps close, or after a few of them were picked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from lawful.errors import LawfulError
from lawful.program.arrays import TorchArrays
from lawful.program.domains.interpret import AbstractDomain, interpret
from lawful.program.program import Node, Program
from lawful.program.table import OperatorFamily

CLOSE = 2**20  # numbers that are widened together: 8 MB, about what a processor keeps close


@dataclass(frozen=True, eq=False)
class StreamedRun:
    """What one evaluation is given: inputs in the order of the program's, and tensors by name.

    A buffer that `tensors` does not have is the program's own.
    """

    tensors: Mapping[str, torch.Tensor]
    inputs: Sequence[torch.Tensor]


class StreamedEvaluation(AbstractDomain[list[Any]]):
    """For every run a tensor, or the node itself where it is a parameter or buffer."""

    def __init__(self, program: Program, runs: Sequence[StreamedRun], real: torch.dtype) -> None:
        self.program, self.runs, self.arrays = program, runs, TorchArrays(real)
        self.place = {node: number for number, node in enumerate(program.inputs)}

    def leaf(self, node: Node) -> list[Any]:
        """Inputs and constants; the others wait until they are asked for."""
        if node.op == "constant":
            return [self.widen(torch.tensor(node["value"]), node)] * len(self.runs)
        if node not in self.place:
            return [node] * len(self.runs)
        values = [run.inputs[self.place[node]] for run in self.runs]
        for value in values:
            if tuple(value.shape) != node.shape:
                raise LawfulError(f"the input {node['name']} has size {list(value.shape)}, not {list(node.shape)}")
        return [self.widen(value.detach(), node) for value in values]

    def other(self, node: Node, *operands: list[Any]) -> list[Any]:
        """What the table says, run by run; runs in a row that share their tensors share what was fetched."""
        results: list[Any] = []
        fetched: dict[Node, Any] = {}
        tensors: Mapping[str, torch.Tensor] | None = None
        for number, run in enumerate(self.runs):
            values = tuple(operand[number] for operand in operands)
            if run.tensors is not tensors:
                tensors, fetched = run.tensors, {}
            for value in values:
                if isinstance(value, Node) and value not in fetched:
                    fetched[value] = self.fetch(value, run.tensors)
            results.append(self._apply(node, values, fetched))
        return results

    def fetch(self, leaf: Node, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """A parameter or buffer as it is stored."""
        name = leaf["name"]
        stored_here = leaf.op == "buffer" and name not in tensors
        tensor = torch.as_tensor((self.program.tensors if stored_here else tensors)[name]).detach()
        if tuple(tensor.shape) != leaf.shape:
            raise LawfulError(f"{name} has size {list(tensor.shape)}, not {list(leaf.shape)}")
        return tensor

    def widen(self, tensor: torch.Tensor, like: Node) -> torch.Tensor:
        """In the type in which all is computed."""
        return self.arrays.cast(tensor, like.kind)  # type: ignore[no-any-return]

    def _apply(self, node: Node, values: Sequence[Any], fetched: Mapping[Node, torch.Tensor]) -> Any:
        stored = [value for value in values if isinstance(value, Node)]
        if len(stored) == 1 and node.op == "contract":
            result = self._contract(node, values, fetched[stored[0]])
            if result is not None:
                return result
        picks = node.family in (OperatorFamily.MOVEMENT, OperatorFamily.LOOKUP)
        reals = [value for value, operand in zip(values, node.inputs, strict=True) if operand.kind == "f"]
        as_stored = picks and len(stored) == len(reals) == 1  # a few rows of a large table: widened afterwards
        arguments = [
            value if not isinstance(value, Node) else fetched[value] if as_stored else self.widen(fetched[value], value)
            for value in values
        ]
        if node.op == "opaque":
            output = node["call"](*arguments)  # a call of arrays gives an array
            return self.widen(output if isinstance(output, torch.Tensor) else torch.from_numpy(output), node)
        return self.widen(node.operator.meaning(self.arrays, node.attributes, *arguments), node)

    def _contract(self, node: Node, values: Sequence[Any], stored: torch.Tensor) -> torch.Tensor | None:
        """A product with a large matrix whose numbers are stored in fewer bits, some of its rows at a time.

        None if there is no axis of the matrix alone that the result has too, along which it could be cut.
        """
        if stored.dtype == self.arrays.real or stored.numel() <= CLOSE:
            return None
        letters, out = node["spec"].split("->")
        large, others = letters.split(",")
        first = isinstance(values[0], Node)
        large, others, value = (large, others, values[1]) if first else (others, large, values[0])
        rows = next((c for c in large if c in out and c not in others), None)
        if rows is None:
            return None
        axis, size = large.index(rows), stored.shape[large.index(rows)]
        parts = torch.split(stored, max(CLOSE * size // stored.numel(), 1), dim=axis)
        spec = f"{large},{others}->{out}"
        blocks = [self.arrays.einsum(spec, part.to(self.arrays.real), value) for part in parts]
        return torch.cat(blocks, dim=out.index(rows))


def evaluate_beside(
    program: Program, runs: Sequence[StreamedRun], real: torch.dtype = torch.float64
) -> list[list[Any]]:
    """The outputs of every run, computed in one floating type whatever the source computes in.

    >>> from torch import nn
    >>> from lawful.program.frontends.torch_export import read_module
    >>> net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    >>> x = torch.ones(2, 3)
    >>> found = evaluate_beside(read_module(net, [(2, 3)]), [StreamedRun(dict(net.named_parameters()), [x])])
    >>> torch.allclose(found[0][0], net(x).double(), atol=1e-6)
    True
    """
    domain = StreamedEvaluation(program, runs, real)
    # In the source's own order, neighbours in the network are neighbours in time, and are made together.
    values = interpret(replace(program, nodes=program.as_run()), domain)
    return [
        [
            domain.widen(domain.fetch(value, run.tensors), output) if isinstance(value, Node) else value
            for output, value in ((output, values[output][number]) for output in program.outputs)
        ]
        for number, run in enumerate(runs)
    ]
