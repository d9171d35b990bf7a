"""What data say of a layer: second moments of what it reads, and how much the outputs mind changes of what it writes.

For a layer `y = W f` (f with a 1 for the bias, patches for a convolution), `G = E[f f']`, and `A = E[g g']` summed over
places with g the gradient of `v · outputs` at y, v random signs. Then `tr(A D G D')` estimates the squared change of
the outputs when W changes by D: to first order, and as if f and g were independent (K-FAC's assumption).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from lawful.errors import LawfulError
from lawful.program.program import Node
from lawful.pruning.job.network import RunnableProgram
from lawful.pruning.job.units import Reader, Sites, channel_axes, data_operand
from lawful.types import Floats

Labels = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class LayerStatistics:
    """`moments` is G with the constant last, `minded` is A; both in float64."""

    moments: torch.Tensor
    minded: torch.Tensor


def unfold(node: Node, x: torch.Tensor) -> torch.Tensor:
    """What a layer reads, a row for every place: channel by channel, and tap by tap inside."""
    axis = channel_axes(node)[0]
    if "spec" in node.attributes:
        return x.movedim(axis, -1).reshape(-1, x.shape[axis])
    kernel = tuple(node.inputs[1].shape[2:])
    stride, padding, dilation = node["stride"], node["padding"], node["dilation"]
    if len(kernel) == 1:  # a line is an image of one row
        x = x.unsqueeze(2)
        kernel, stride, padding, dilation = (1, *kernel), (1, *stride), (0, *padding), (1, *dilation)
    parts = functional.unfold(x, kernel, dilation=dilation, padding=padding, stride=stride)
    return parts.transpose(1, 2).reshape(-1, parts.shape[1])


def written(node: Node, y: torch.Tensor) -> torch.Tensor:
    """What a layer writes, a row for every place, in the order of `unfold`."""
    axis = channel_axes(node)[1]
    return y.movedim(axis, -1).reshape(-1, y.shape[axis])


def with_one(rows: torch.Tensor) -> torch.Tensor:
    """Rows with a 1 at the end, in float64."""
    return torch.cat([rows, rows.new_ones(len(rows), 1)], 1).double()


def gather(network: RunnableProgram, sites: Sites, x: Floats, seed: int = 0) -> dict[str, LayerStatistics]:
    """One pass over the samples."""
    readers = list(sites.readers.values())
    nodes = [node for reader in readers for node in reader.nodes]
    watched = list(dict.fromkeys([*nodes, *(data_operand(node) for node in nodes)]))
    generator = torch.Generator().manual_seed(seed)
    total: dict[str, tuple[torch.Tensor, torch.Tensor, int]] = {}
    samples = 0
    free = _differentiable(network)
    for _, given in network.batches(x, whole=len(x) >= network.batch):
        out, *values = free.run(given, watched)
        if not out.is_floating_point() or not bool(torch.isfinite(out).all()):
            raise LawfulError("the network's outputs on the data are no finite numbers")
        at = dict(zip(watched, values, strict=True))
        signs = torch.randint(0, 2, out.shape, generator=generator).to(out) * 2 - 1
        gradients = torch.autograd.grad((signs * out).sum(), [at[node] for node in nodes], allow_unused=True)
        slopes = dict(zip(nodes, gradients, strict=True))
        samples += len(given)
        for reader in readers:
            total[reader.weight] = _added(total.get(reader.weight), reader, at, slopes)
    return {
        weight: LayerStatistics(moments / places, minded / samples)
        for weight, (moments, minded, places) in total.items()
    }


def _differentiable(network: RunnableProgram) -> RunnableProgram:
    """A copy in which gradients reach every layer: all parameters ask for them; statistics of norms cannot."""
    free = network.with_tensors({})
    for name in network.program.parameters:
        if free.tensors[name].is_floating_point():
            free.tensors[name].requires_grad_(True)
    return free


def _added(
    before: tuple[torch.Tensor, torch.Tensor, int] | None,
    reader: Reader,
    at: Mapping[Node, torch.Tensor],
    slopes: Mapping[Node, torch.Tensor | None],
) -> tuple[torch.Tensor, torch.Tensor, int]:
    moments, minded, places = before or (torch.zeros(()), torch.zeros(()), 0)
    for node in reader.nodes:
        rows = with_one(unfold(node, at[data_operand(node)].detach()))
        slope = slopes[node]
        given = written(node, torch.zeros_like(at[node]) if slope is None else slope).double()
        moments, minded, places = moments + rows.T @ rows, minded + given.T @ given, places + len(rows)
    return moments, minded, places


def taylor_scores(network: RunnableProgram, sites: Sites, x: Floats, labels: Labels) -> dict[int, float]:
    """`E[(sum of a dL/da)²]` for every unit: a its activations where they are read, L the cross entropy."""
    operands = list(dict.fromkeys(data_operand(node) for reader in sites.readers.values() for node in reader.nodes))
    axes = {data_operand(node): channel_axes(node)[0] for reader in sites.readers.values() for node in reader.nodes}
    free = _differentiable(network)
    found = dict.fromkeys(range(len(sites.units)), 0.0)
    samples = 0
    for rows, given in network.batches(x, whole=len(x) >= network.batch):
        out, *values = free.run(given, operands)
        count = rows.stop - rows.start
        loss = functional.cross_entropy(out[:count], torch.as_tensor(labels[rows]), reduction="sum")
        slopes = torch.autograd.grad(loss, values, allow_unused=True)
        sums = {
            node: (value * slope).movedim(axes[node], -1).reshape(len(given), -1, value.shape[axes[node]]).sum(1)
            for node, value, slope in zip(operands, values, slopes, strict=True) if slope is not None
        }  # fmt: skip
        samples += count
        for number, unit in enumerate(sites.units):
            total = torch.zeros(len(given))
            for node, places in {
                data_operand(node): places
                for weight, places in unit.places.items()
                for node in sites.readers[weight].nodes
            }.items():
                if node in sums:
                    total = total + sums[node][:, list(places)].sum(1).detach()
            found[number] += float((total[:count] ** 2).sum())
    return {number: value / samples for number, value in found.items()}
