"""Modules that choose (experts, by the largest of some numbers): what a trial did not reach, it did not try.

Outputs that stay say something of a space only if they depend on it. Where nothing is chosen every random trial reaches
everything; where an expert is not taken, anything may be done to it, and nothing is seen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch

from lawful.checkpoints.architecture import CheckpointArchitecture
from lawful.checkpoints.group.axis_actions import as_rows
from lawful.checkpoints.group.spaces import HiddenSpace, members_of
from lawful.errors import Unsupported
from lawful.program.domains.dependence import Dependence
from lawful.program.domains.evaluate import evaluate
from lawful.program.domains.interpret import interpret
from lawful.program.program import Node, Program
from lawful.program.table import OperatorFamily

MOST_INPUTS = 24  # after which what was never chosen is let go
Masks = Mapping[str, torch.Tensor]  # of each tensor the entries on which outputs depend


def chooses(given: CheckpointArchitecture) -> bool:
    """Whether whole numbers (places, yes or no) are made of numbers that depend on weights, or pick whole matrices; if
    what it computes is not known, it may."""
    return given.program is None or chooses_by_weights(given.program)


def chooses_by_weights(program: Program) -> bool:
    """The same of a program.

    >>> from torch import nn
    >>> from lawful.program.frontends.torch_export import read_module
    >>> class Largest(nn.Linear):
    ...     def forward(self, x):
    ...         return super().forward(x).topk(1).values
    >>> [chooses_by_weights(read_module(net, [(2, 3)])) for net in (Largest(3, 4), nn.Linear(3, 4), nn.ReLU())]
    [True, False, False]
    """
    trained = set(program.parameters)
    depends = interpret(program, Dependence(), keep=program.nodes)
    for node in program.nodes:
        if node.family is OperatorFamily.LEAF or not any(depends[each] & trained for each in node.inputs):
            continue
        sorts = node.family is OperatorFamily.CHOICE and "axis" in node.attributes
        if sorts or (node.kind != "f" and not _compares_with_infinity(node)):
            return True
        if node.family is OperatorFamily.LOOKUP and node.inputs[0].op == "parameter" and node.inputs[0].rank > 2:
            return True
    return False


def _compares_with_infinity(node: Node) -> bool:
    """Attention asks whether a mask has left nothing of a row: of finite numbers that is never so."""
    held = [each["value"] for each in node.inputs if each.op == "constant"]
    return node.family is OperatorFamily.COMPARISON and any(bool(np.isinf(value).all()) for value in held)


def reached_entries(program: Program, tensors: Mapping[str, torch.Tensor], inputs: Sequence[torch.Tensor]) -> Masks:
    """The entries of parameters along which outputs have a derivative, in float64.

    >>> from torch import nn
    >>> from lawful.program.frontends.torch_export import read_module
    >>> net = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1))
    >>> sizes = {"0.weight": (2, 2), "0.bias": (2,), "2.weight": (1, 2), "2.bias": (1,)}
    >>> given = {name: torch.ones(size) for name, size in sizes.items()} | {"0.weight": torch.eye(2) * 2}
    >>> reached_entries(read_module(net, [(1, 2)]), given, [torch.tensor([[1.0, -1.0]])])["0.weight"].tolist()
    [[True, True], [False, False]]
    """
    leaves = {name: tensors[name].detach().double().requires_grad_() for name in program.parameters}
    others = {name: tensors.get(name, program.tensors[name]) for name in program.buffers}
    try:
        with torch.enable_grad():
            outputs = evaluate(program, *inputs, tensors={**others, **leaves})
            sums = [each.sin().sum() for each in outputs if each.requires_grad]  # a plain sum misses what is centred
            slopes: Sequence[torch.Tensor | None] = [None] * len(leaves)
            if sums:
                slopes = torch.autograd.grad(sums, list(leaves.values()), allow_unused=True)
    except (RuntimeError, NotImplementedError) as error:
        raise Unsupported(f"no derivatives: {error}") from None
    return {
        name: torch.zeros_like(leaf, dtype=torch.bool) if slope is None else slope.isfinite() & (slope != 0)
        for (name, leaf), slope in zip(leaves.items(), slopes, strict=True)
    }


def is_seen(space: HiddenSpace, masks: Masks) -> bool:
    """Whether outputs depend on some numbers of a space in each of its tensors; its units all go the same way."""
    met = (as_rows(masks[rows.tensor], rows.dims)[torch.as_tensor(np.unique(rows.places))]
           for rows in members_of(space) if rows.tensor in masks)  # fmt: skip
    return all(bool(each.any()) for each in met)


def reaching(
    given: CheckpointArchitecture, tensors: Mapping[str, torch.Tensor], seed: int, enough: Callable[[Masks], bool]
) -> tuple[list[list[torch.Tensor]], Masks]:
    """Random inputs, more and more of them until what they reach together is enough (or for long enough)."""
    if given.program is None:
        raise Unsupported("what the module computes is not known call by call")
    many = [given.draw_inputs(seed)]
    masks = reached_entries(given.program, tensors, many[0])
    for more in range(1, MOST_INPUTS):
        if enough(masks):
            break
        inputs = given.draw_inputs(seed + more)
        own = reached_entries(given.program, tensors, inputs)
        if any(name not in masks or bool((own[name] & ~masks[name]).any()) for name in own):
            many.append(inputs)
            masks = {**masks, **{name: masks[name] | mask if name in masks else mask for name, mask in own.items()}}
    return many, masks
