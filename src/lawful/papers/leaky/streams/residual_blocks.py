"""Which sums of a program are residual blocks `x + f(x)`, and which axis of their stream is the neurons'.

A residual add joins an activation with something computed from it. Where a stage changes its width the activation is
carried along by an affine map; its add is a block too, `projected`, compared with what that map makes of it, unless the
other branch is affine as well (two heads that are averaged).
Two branches that are added up before they join the stream, as attention and MLP of a parallel block, are no block.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

from lawful.papers.leaky.streams.neuron_axis import neurons
from lawful.program.passes.fold import LayerReader
from lawful.program.program import Node, Program
from lawful.program.table import OperatorFamily

Above = dict[Node, set[Node]]
BENDING = frozenset({OperatorFamily.ELEMENTWISE, OperatorFamily.CHOICE})
MIXING = frozenset({OperatorFamily.CONTRACTION, OperatorFamily.OPAQUE})  # a transform that is not known may mix


@dataclass(frozen=True, eq=False)
class ResidualAdd:
    """One block: the stream that enters (`skip`), the sum that leaves, and which axis holds the neurons."""

    name: str
    skip: Node
    branch: Node
    result: Node
    channels: int
    projected: bool


def residual_adds(program: Program) -> tuple[ResidualAdd, ...]:
    """The residual adds of a program, in order.

    >>> from torch import Tensor, nn
    >>> from lawful.program.frontends.torch_export import read_module
    >>> class Block(nn.Module):
    ...     def __init__(self) -> None:
    ...         super().__init__()
    ...         self.inner = nn.Linear(4, 4)
    ...     def forward(self, x: Tensor) -> Tensor:
    ...         return x + self.inner(x.relu())
    >>> net = nn.Sequential(nn.Linear(2, 4), Block(), Block(), nn.Linear(4, 1))
    >>> [add.name for add in residual_adds(read_module(net, [(3, 2)]))]
    ['1', '2']
    """
    above: Above = {}
    found: list[ResidualAdd] = []
    for node in program.as_run():
        known = [each for each in node.inputs if each in above]
        if known or node in program.inputs:
            above[node] = {node}.union(*(above[each] for each in known))
        if known and node.family is OperatorFamily.ADDITION:
            block = _residual(node, above, program)
            if block is not None:
                found.append(block)
    outer = [block for block in found if not (block.projected and _inside(block, found, above))]
    return tuple(_complete_blocks(outer, program))


def _inside(block: ResidualAdd, found: list[ResidualAdd], above: Above) -> bool:
    """Whether an add of two branches is part of what another block adds to its stream."""
    return any(
        not other.projected and block.result in above[other.branch] and block.result not in above[other.skip]
        for other in found
    )


def _residual(node: Node, above: Above, program: Program) -> ResidualAdd | None:
    first, second = node.inputs
    if first not in above or second not in above or first.shape != second.shape or node.rank < 2:
        return None
    leads = first in above[second]
    projected = not (leads or second in above[first])
    if projected:
        ways = sorted(((first, second), (second, first)), key=lambda way: len(above[way[0]] - above[way[1]]))
        carried = [way for way in ways if _affine(above[way[0]] - above[way[1]], above)]
        if len(carried) != 1 or not _stream(above[first] & above[second]):
            return None
        skip, branch = carried[0]
    else:
        skip, branch = (first, second) if leads else (second, first)
    if not any(_weighs(each) for each in above[branch] - above[skip]):
        return None  # nothing is computed on the way: no block
    return ResidualAdd(_name(node, skip, branch, above, program), skip, branch, node, 0, projected)


def _stream(nodes: set[Node]) -> bool:
    """Whether one of the nodes is an activation: tokens and masks that two sides share make no stream."""
    return any(node.kind == "f" and node.rank > 1 for node in nodes)


def _affine(nodes: set[Node], above: Above) -> bool:
    """Whether nothing bends on the way: no activation, and no product of two things that the input moves."""
    for node in nodes:
        softmax = node.family is OperatorFamily.NORMALISATION and "centre" not in node.attributes
        if node.family in BENDING or softmax:
            return False
        multiplies = node.family in (OperatorFamily.PRODUCT, OperatorFamily.CONTRACTION)
        if multiplies and sum(each in above for each in node.inputs) > 1:
            return False
    return True


def _weighs(node: Node) -> bool:
    """Whether an operator mixes neurons."""
    return node.family in MIXING or node.family is OperatorFamily.NORMALISATION


def _complete_blocks(found: list[ResidualAdd], program: Program) -> Iterator[ResidualAdd]:
    """Names apart; and blocks of one shape have their neurons along one axis."""
    votes: dict[tuple[int, ...], list[tuple[int, int]]] = defaultdict(list)
    reader = LayerReader(program)
    for block in found:
        votes[block.result.shape] += neurons((block.skip, block.result, block.branch), reader)
    names = [block.name for block in found]
    paths = [program.parts.get(block.result.step, "") for block in found]
    for number, block in enumerate(found):
        axes = block.result.rank
        cast = votes[block.result.shape]
        best = [place for rank, place in cast if rank == min(cast)[0]]
        default = 1 if axes == 4 else axes - 1
        channels = 1 if axes == 2 else max(sorted(set(best)), key=best.count) if best else default
        name = paths[number] if paths[number] and paths.count(paths[number]) == 1 else block.name
        if names.count(name) > 1:
            name = f"{name}#{1 + names[:number].count(name)}"
        yield replace(block, name=name, channels=channels)


def _name(node: Node, skip: Node, branch: Node, above: Above, program: Program) -> str:
    """The module that adds, and the part of it that computed the branch: the last one that mixes neurons."""
    here = program.parts.get(node.step, "")
    mixing = [each for each in above[branch] - above[skip] if each.family in MIXING]
    order = {each: place for place, each in enumerate(above)}
    there = program.parts.get(max(mixing, key=order.__getitem__, default=branch).step, "")
    inside = there.removeprefix(here).strip(".").split(".")[0] if there.startswith(here) else ""
    return ".".join(part for part in (here, inside) if part) or node.op
