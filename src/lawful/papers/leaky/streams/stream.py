"""Residual streams of any module: the values that the adds `x + f(x)` of its program carry."""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lawful.errors import LawfulError
from lawful.program.domains.evaluate import evaluate
from lawful.program.frontends.export import in_mode
from lawful.program.frontends.torch_export import read_module
from lawful.program.passes.fold import LayerReader
from lawful.program.program import Node, Program
from lawful.program.table import OperatorFamily
from lawful.sources.modules.functional_call import as_taken
from lawful.types import Floats

# Which axis of a stream holds its neurons: what reads the stream and what writes to it tell.

NORM, SCALE, LAYER = range(3)  # how good a witness is: an MLP over tokens is a layer too
FAR = 12  # operators away from the stream
Vote = tuple[int, int]  # rank of the witness, axis


def neurons(nodes: tuple[Node, ...], reader: LayerReader) -> list[Vote]:
    """What the operators near these values (of one shape) say, each with its rank: the smallest is the best.

    A normalisation works over neurons, a gain has one number for each, and a layer mixes them. Operators entry by entry
    and permutations are followed; any other movement hides what is behind it.
    """
    votes: list[Vote] = []
    for node in nodes:
        axes = tuple(range(node.rank))
        votes += [*_onwards(node, axes, reader, FAR), *_back(node, axes, reader, FAR)]
    return votes


def _onwards(node: Node, axes: tuple[int, ...], reader: LayerReader, far: int) -> Iterator[Vote]:
    """From a value to its readers; `axes` says which axis of the stream each axis of the value is."""
    for user in reader.users[node]:
        witness = _witness(user, reader, reads=node)
        if witness is not None:
            yield witness[0], axes[witness[1]]
        elif far and (order := _order(user, node)) is not None:
            yield from _onwards(user, tuple(axes[k] for k in order), reader, far - 1)


def _back(node: Node, axes: tuple[int, ...], reader: LayerReader, far: int) -> Iterator[Vote]:
    """From a value to what computed it."""
    witness = _witness(node, reader)
    if witness is not None:
        yield witness[0], axes[witness[1]]
        return
    source = next((value for value in node.inputs if _order(node, value) is not None), None)
    if not far or source is None:
        return
    order = _order(node, source) or ()
    before = [0] * len(axes)
    for here, there in enumerate(order):
        before[there] = axes[here]
    yield from _back(source, tuple(before), reader, far - 1)


def _witness(node: Node, reader: LayerReader, reads: Node | None = None) -> Vote | None:
    """What an operator says about the axis of neurons in the value that it reads (in its own, if none is given)."""
    if node.family is OperatorFamily.NORMALISATION and "centre" in node.attributes:
        return (NORM, node["axes"][0]) if len(node["axes"]) == 1 else None
    layer = reader.layer(node)
    if layer is not None:
        if reads is None:
            return (LAYER, layer.result_axis) if layer.result.rank == node.rank else None
        return (LAYER, layer.value_axis) if layer.value is reads else None
    if node.family is OperatorFamily.PRODUCT:
        if reader.statistics(node) is not None:
            return NORM, 1
        scale = reader.scale(node)
        return None if scale is None or scale.scale is None else (SCALE, scale.axis)
    return None


def _order(node: Node, source: Node) -> tuple[int, ...] | None:
    """For every axis of a node, which axis of one of its operands it is: after a permutation, or entry by entry."""
    if node.family is OperatorFamily.MOVEMENT:
        one = len(node.inputs) == 1 and "map" in node.attributes
        return node["map"].permutation_of(source.shape) if one else None
    entries = node.family is not OperatorFamily.CONTRACTION and node.shape == source.shape
    return tuple(range(node.rank)) if entries else None


# Which sums of a program are residual blocks `x + f(x)`, and which axis of their stream is the neurons'.

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
    blocks: list[ResidualAdd] = []
    for node in program.as_run():
        known = [value for value in node.inputs if value in above]
        if known or node in program.inputs:
            above[node] = {node}.union(*(above[value] for value in known))
        if known and node.family is OperatorFamily.ADDITION:
            block = _residual(node, above, program)
            if block is not None:
                blocks.append(block)
    outer = [block for block in blocks if not (block.projected and _inside(block, blocks, above))]
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
    if not any(_weighs(value) for value in above[branch] - above[skip]):
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
        if multiplies and sum(value in above for value in node.inputs) > 1:
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
    mixing = [value for value in above[branch] - above[skip] if value.family in MIXING]
    order = {value: place for place, value in enumerate(above)}
    there = program.parts.get(max(mixing, key=order.__getitem__, default=branch).step, "")
    inside = there.removeprefix(here).strip(".").split(".")[0] if there.startswith(here) else ""
    return ".".join(part for part in (here, inside) if part) or node.op


CHUNK = 16  # inputs at a time


@dataclass(frozen=True, eq=False)
class StreamStates:
    """What one block read and wrote: a row per neuron, a column per sample (the same samples in both)."""

    name: str
    before: Floats
    after: Floats
    projected: bool


def as_inputs(module: nn.Module, samples: Floats, where: str = "", hint: str = "") -> torch.Tensor:
    """Samples as a module takes them (`as_taken`), of its own type, tried on one.

    >>> as_inputs(nn.Embedding(5, 2), np.array([[0.0, 3.0]]))
    tensor([[0, 3]])
    """
    dtype = next((parameter.dtype for parameter in module.parameters()), torch.float64)
    inputs = as_taken(module, samples, dtype, where)
    try:
        with torch.no_grad(), in_mode(module, training=False):
            module(inputs[:1])
    except Exception as error:  # the module is the user's own code
        raise LawfulError(f"the network does not run on these samples: {str(error)[:150]}{hint}") from None
    return inputs


def stream_states(module: nn.Module, inputs: Tensor, *, most: int, seed: int = 0) -> tuple[StreamStates, ...]:
    """Run the module in eval mode and keep at most so many samples (pixels, tokens) of every residual add."""
    chunks = [inputs[start : start + CHUNK] for start in range(0, len(inputs), CHUNK)]
    programs: dict[int, tuple[Program, tuple[ResidualAdd, ...]]] = {}
    columns_of: dict[str, list[tuple[Floats, Floats]]] = {}
    projected: dict[str, bool] = {}
    rng = np.random.default_rng(seed)
    share = -(-most // len(chunks))
    for chunk in chunks:
        if len(chunk) not in programs:
            whole = read_module(module, [chunk], _keywords(module))
            blocks = residual_adds(whole)
            ends = dict.fromkeys(value for block in blocks for value in (block.skip, block.result))
            # what follows, such as the scores of a vocabulary, is not asked for
            programs[len(chunk)] = Program.of(whole.inputs, ends, whole.tensors), blocks
        program, blocks = programs[len(chunk)]
        with torch.no_grad():
            values = dict(zip(program.outputs, evaluate(program, chunk, real=_real(module)), strict=True))
        for block in blocks:
            pair = [columns(values[value], block.channels) for value in (block.skip, block.result)]
            chosen = _some(pair[0].shape[1], share, rng)
            columns_of.setdefault(block.name, []).append((pair[0][:, chosen], pair[1][:, chosen]))
            projected[block.name] = block.projected
    return tuple(
        StreamStates(
            name,
            np.concatenate([before for before, _ in pairs], axis=1),
            np.concatenate([after for _, after in pairs], axis=1),
            projected[name],
        )
        for name, pairs in columns_of.items()
    )


def _keywords(module: nn.Module) -> dict[str, bool]:
    """A language model that keeps a cache returns what no graph can hold: it is called without."""
    return {"use_cache": False} if "use_cache" in inspect.signature(module.forward).parameters else {}


def columns(value: Tensor, channels: int) -> Floats:
    """A row per neuron, a column per pixel or token: in single precision, if the module has no more."""
    flat = value.detach().movedim(channels, 0).reshape(value.shape[channels], -1)
    return np.asarray((flat if flat.dtype == torch.float64 else flat.float()).cpu().numpy())


def _some(count: int, most: int, rng: np.random.Generator) -> Any:
    return slice(None) if count <= most else np.sort(rng.choice(count, most, replace=False))


def _real(module: nn.Module) -> torch.dtype:
    """The type in which a module computes."""
    kinds = (tensor.dtype for tensor in (*module.parameters(), *module.buffers()) if tensor.is_floating_point())
    return next(kinds, torch.float64)
