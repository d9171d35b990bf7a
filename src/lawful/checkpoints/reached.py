"""Modules that choose (experts, by the largest of some numbers): what a trial did not reach, it did not try.

Outputs that stay say something of a space only if they depend on it. Where nothing is chosen every random trial reaches
everything; where an expert is not taken, anything may be done to it, and nothing is seen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import fx

from lawful.checkpoints.architecture import CheckpointArchitecture
from lawful.checkpoints.axis_frames import as_rows
from lawful.checkpoints.group import HiddenSpace, members_of
from lawful.checkpoints.replay import filled, widened
from lawful.errors import Unsupported
from lawful.network.modules.export import ExportedModule, operator_name
from lawful.symmetry.check import tensors_in

MOST_INPUTS = 24  # after which what was never chosen is let go
LOOKED_UP = {"embedding", "index", "index_select", "gather"}
Masks = Mapping[str, torch.Tensor]  # of each tensor the entries on which outputs depend


def chooses(exported: ExportedModule) -> bool:
    """Whether whole numbers (places, yes or no) are made of numbers that depend on weights, or pick whole matrices.

    >>> from torch import nn
    >>> from lawful.network.modules.export import export_module
    >>> class Largest(nn.Linear):
    ...     def forward(self, x):
    ...         return super().forward(x).topk(1).values
    >>> chooses(export_module(Largest(3, 4), [(2, 3)])), chooses(export_module(nn.Linear(3, 4), [(2, 3)]))
    (True, False)
    """
    moving = {node for node in exported.graph.nodes if node.op == "placeholder" and node.name in exported.trained}
    for node in exported.graph.nodes:
        if node.op != "call_function" or not moving.intersection(node.all_input_nodes):
            continue
        moving.add(node)
        first = node.all_input_nodes[0]
        if operator_name(node.target) in LOOKED_UP and first.op == "placeholder" and first.meta["val"].ndim > 2:
            return True
        made = node.meta.get("val")
        several = made if isinstance(made, (tuple, list)) else (made,)
        if any(isinstance(each, torch.Tensor) and not each.is_floating_point() for each in several):
            return True
    return False


def reached(exported: ExportedModule, tensors: Mapping[str, torch.Tensor], inputs: Sequence[torch.Tensor]) -> Masks:
    """The entries of parameters along which outputs have a derivative, in float64.

    >>> from torch import nn
    >>> from lawful.network.modules.export import export_module
    >>> net = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1))
    >>> sizes = {"0.weight": (2, 2), "0.bias": (2,), "2.weight": (1, 2), "2.bias": (1,)}
    >>> given = {name: torch.ones(size) for name, size in sizes.items()} | {"0.weight": torch.eye(2) * 2}
    >>> reached(export_module(net, [(1, 2)]), given, [torch.tensor([[1.0, -1.0]])])["0.weight"].tolist()
    [[True, True], [False, False]]
    """
    try:
        return _reached(exported, tensors, inputs)
    except (RuntimeError, NotImplementedError) as error:
        raise Unsupported(f"no derivatives: {error}") from None


def _reached(exported: ExportedModule, tensors: Mapping[str, torch.Tensor], inputs: Sequence[torch.Tensor]) -> Masks:
    values: dict[fx.Node, object] = {}
    leaves: dict[str, torch.Tensor] = {}
    with torch.enable_grad():
        for node in exported.graph.nodes:
            if node.op == "placeholder":
                name = exported.names.get(node.name)
                if node.name in exported.inputs:
                    values[node] = widened(inputs[exported.inputs.index(node.name)], torch.float64)
                elif name in tensors:
                    stored = widened(tensors[str(name)], torch.float64)
                    if node.name in exported.trained and node.users:
                        leaves[str(name)] = stored.clone().requires_grad_()
                        stored = leaves[str(name)].clone()  # which may be overwritten
                    values[node] = stored
                else:
                    values[node] = widened(exported.tensors[node.name], torch.float64)
            elif node.op == "output":
                found = [each for each in tensors_in(filled(node.args[0], values, torch.float64)) if each.requires_grad]
                sums = [each.sin().sum() for each in found]  # a plain sum would not see what is centred
                slopes: Sequence[torch.Tensor | None] = [None] * len(leaves)
                if sums:
                    slopes = torch.autograd.grad(sums, list(leaves.values()), allow_unused=True)
                return {
                    name: torch.zeros_like(leaf, dtype=torch.bool) if slope is None else slope.isfinite() & (slope != 0)
                    for (name, leaf), slope in zip(leaves.items(), slopes, strict=True)
                }
            else:
                arguments, options = (filled(each, values, torch.float64) for each in (node.args, node.kwargs))
                values[node] = node.target(*arguments, **options)
    raise AssertionError("a graph without an output")


def seen(space: HiddenSpace, masks: Masks) -> bool:
    """Whether outputs depend on some numbers of a space in each of its tensors; its units all go the same way."""
    met = (as_rows(masks[rows.tensor], rows.dims)[torch.as_tensor(np.unique(rows.places))]
           for rows in members_of(space) if rows.tensor in masks)  # fmt: skip
    return all(bool(each.any()) for each in met)


def reaching(
    given: CheckpointArchitecture, tensors: Mapping[str, torch.Tensor], seed: int, enough: Callable[[Masks], bool]
) -> tuple[list[list[torch.Tensor]], Masks]:
    """Random inputs, more and more of them until what they reach together is enough (or for long enough)."""
    many = [given.draw_inputs(seed)]
    masks = reached(given.exported, tensors, many[0])
    for more in range(1, MOST_INPUTS):
        if enough(masks):
            break
        inputs = given.draw_inputs(seed + more)
        own = reached(given.exported, tensors, inputs)
        if any(name not in masks or bool((own[name] & ~masks[name]).any()) for name in own):
            many.append(inputs)
            masks = {**masks, **{name: masks[name] | mask if name in masks else mask for name, mask in own.items()}}
    return many, masks
