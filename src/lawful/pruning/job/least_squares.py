"""Second moments of what layers read, and repair by least squares.

Scores: for a layer `y = W f` (f with a 1 for the bias, patches for a convolution), `G = E[f f']`, and `A = E[g g']`
summed over places with g the gradient of `v · outputs` at y, v random signs. Then `tr(A D G D')` estimates the squared
change of the outputs when W changes by D: to first order, and as if f and g were independent (K-FAC's assumption).

Repair: from the network's input to its output, layers that lost inputs take over what these said, by
`min over D of |Y − (W + D) f|² + ridge |D|²` with Y of the original and f of the network repaired so far. Invariant:
when a layer is solved, all layers before it are final, so it also absorbs their errors. The ridge is on the *change*:
where data say nothing, weights stay. Cost: one pass over the samples and one solve of (features + 1)³ for each layer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from lawful.errors import LawfulError
from lawful.program.program import Node
from lawful.pruning.channels.weights import ChannelWeights
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
    for _, batch in network.batches(x, whole=len(x) >= network.batch):
        out, *values = free.run(batch, watched)
        if not out.is_floating_point() or not bool(torch.isfinite(out).all()):
            raise LawfulError("the network's outputs on the data are no finite numbers")
        at = dict(zip(watched, values, strict=True))
        signs = torch.randint(0, 2, out.shape, generator=generator).to(out) * 2 - 1
        gradients = torch.autograd.grad((signs * out).sum(), [at[node] for node in nodes], allow_unused=True)
        slopes = dict(zip(nodes, gradients, strict=True))
        samples += len(batch)
        for reader in readers:
            total[reader.weight] = _add_batch(total.get(reader.weight), reader, at, slopes)
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


def _add_batch(
    before: tuple[torch.Tensor, torch.Tensor, int] | None,
    reader: Reader,
    at: Mapping[Node, torch.Tensor],
    slopes: Mapping[Node, torch.Tensor | None],
) -> tuple[torch.Tensor, torch.Tensor, int]:
    moments, minded, places = before or (torch.zeros(()), torch.zeros(()), 0)
    for node in reader.nodes:
        rows = with_one(unfold(node, at[data_operand(node)].detach()))
        slope = slopes[node]
        slopes_written = written(node, torch.zeros_like(at[node]) if slope is None else slope).double()
        moments, minded, places = (
            moments + rows.T @ rows,
            minded + slopes_written.T @ slopes_written,
            places + len(rows),
        )
    return moments, minded, places


def taylor_scores(network: RunnableProgram, sites: Sites, x: Floats, labels: Labels) -> dict[int, float]:
    """`E[(sum of a dL/da)²]` for every unit: a its activations where they are read, L the cross entropy."""
    operands = list(dict.fromkeys(data_operand(node) for reader in sites.readers.values() for node in reader.nodes))
    axes = {data_operand(node): channel_axes(node)[0] for reader in sites.readers.values() for node in reader.nodes}
    free = _differentiable(network)
    totals = dict.fromkeys(range(len(sites.units)), 0.0)
    samples = 0
    for rows, batch in network.batches(x, whole=len(x) >= network.batch):
        out, *values = free.run(batch, operands)
        count = rows.stop - rows.start
        scores = out[:count, : network.classes] if network.classes else out[:count]
        loss = functional.cross_entropy(scores, torch.as_tensor(labels[rows]), reduction="sum")
        slopes = torch.autograd.grad(loss, values, allow_unused=True)
        sums = {
            node: (value * slope).movedim(axes[node], -1).reshape(len(batch), -1, value.shape[axes[node]]).sum(1)
            for node, value, slope in zip(operands, values, slopes, strict=True) if slope is not None
        }  # fmt: skip
        samples += count
        for number, unit in enumerate(sites.units):
            total = torch.zeros(len(batch))
            for node, places in {
                data_operand(node): places
                for weight, places in unit.places.items()
                for node in sites.readers[weight].nodes
            }.items():
                if node in sums:
                    total = total + sums[node][:, list(places)].sum(1).detach()
            totals[number] += float((total[:count] ** 2).sum())
    return {number: value / samples for number, value in totals.items()}


RIDGE = 1e-3  # of the mean second moment: what the comparison in the docs was run with; no other was tried
BIAS_RIDGE = 1e-6  # a bias should follow the mean freely
NodePairs = Sequence[tuple[Node, Node]]  # the uses of a layer, in the network before and after


def silence(state: ChannelWeights, sites: Sites, gone: Collection[int]) -> dict[str, Floats]:
    """Weights of readers with columns of 0 where units left: rows first, as the channel program has them."""
    arrays: dict[str, Floats] = {}
    for number in gone:
        for weight, places in sites.units[number].places.items():
            if weight not in arrays:
                arrays[weight] = np.array(state.arrays[weight], dtype=np.float64)
            arrays[weight][:, list(places)] = 0.0
    return arrays


def to_stored(state: ChannelWeights, weight: str, array: Floats) -> torch.Tensor:
    """A weight as its network stores it."""
    turned = np.swapaxes(array, 0, 1) if weight in state.program.transposed else array
    return torch.as_tensor(np.ascontiguousarray(turned))


def repair(
    network: RunnableProgram,
    state: ChannelWeights,
    sites: Sites,
    gone: Collection[int],
    x: Floats,
    *,
    emphasis: Floats | None = None,
    tick: Callable[[str], None] = lambda said: None,
) -> dict[str, torch.Tensor]:
    """The weights, biases and means that change, as the network stores them; `emphasis` is a factor a sample."""
    arrays = silence(state, sites, gone)
    left = {weight: np.ones(array.shape[1], dtype=bool) for weight, array in arrays.items()}
    for number in gone:
        for weight, places in sites.units[number].places.items():
            left[weight][list(places)] = False
    pairs = {weight: [(node, node) for node in sites.readers[weight].nodes] for weight in arrays}
    return _refit(network, network, state, arrays, left, pairs, x, emphasis, tick)


def repair_shortened(
    network: RunnableProgram,
    shorter: RunnableProgram,
    state: ChannelWeights,
    pairs: Mapping[str, NodePairs],
    x: Floats,
    *,
    tick: Callable[[str], None] = lambda said: None,
) -> dict[str, torch.Tensor]:
    """The same where a block left: layers behind it, beside themselves in the whole network, take over what it said."""
    arrays = {weight: np.array(state.arrays[weight], dtype=np.float64) for weight in pairs}
    left = {weight: np.ones(array.shape[1], dtype=bool) for weight, array in arrays.items()}
    return _refit(network, shorter, state, arrays, left, pairs, x, None, tick)


def _refit(
    network: RunnableProgram,
    smaller: RunnableProgram,
    state: ChannelWeights,
    arrays: dict[str, Floats],
    left: Mapping[str, NDArray[np.bool_]],
    pairs: Mapping[str, NodePairs],
    x: Floats,
    emphasis: Floats | None,
    tick: Callable[[str], None],
) -> dict[str, torch.Tensor]:
    """Layer by layer, least squares over the columns that are `left`; `pairs` are a layer's uses in both networks."""
    new = {weight: to_stored(state, weight, array) for weight, array in arrays.items() if not left[weight].all()}
    shifts = _shifts(state)
    place = {node: number for number, node in enumerate(smaller.program.as_run())}
    for count, weight in enumerate(sorted(pairs, key=lambda each: place[pairs[each][0][1]]), 1):
        tick(f"layer {count} of {len(pairs)}")
        changed, shift, array = smaller.with_tensors(new), shifts.get(weight), arrays[weight]
        columns = torch.as_tensor(np.repeat(left[weight], math.prod(array.shape[2:])))
        change = _solve(network, changed, pairs[weight], columns, x, emphasis, has_bias=shift is not None)
        if not bool(change.any()):  # a layer before all that left
            continue
        whole = torch.zeros(len(array), len(columns), dtype=torch.float64)
        whole[:, columns] = change[:, :-1]
        arrays[weight] = array + whole.reshape(array.shape).numpy()
        arrays[weight][:, ~left[weight]] = 0.0
        new[weight] = to_stored(state, weight, arrays[weight])
        if shift is not None:
            name, sign = shift
            new[name] = changed.tensors[name].double() + sign * change[:, -1]
    return new


def _shifts(state: ChannelWeights) -> dict[str, tuple[str, float]]:
    """Where a layer's bias can change: its own, or with the other sign the mean of a normalisation right behind it."""
    shifts: dict[str, tuple[str, float]] = {}
    reading = [name for operation in state.program.operations for name in operation.sources]
    for weight, uses in state.uses.items():
        bias = uses[0].tensors["bias"]
        if bias is not None:
            shifts[weight] = (bias, 1.0)
            continue
        norms = [
            operation
            for operation in state.program.operations
            if operation.kind == "norm" and uses[0].name in operation.sources
        ]
        alone = len(uses) == 1 and reading.count(uses[0].name) == 1 and len(norms) == 1
        mean = norms[0].tensors.get("mean") if alone else None
        shared = [
            operation
            for operation in state.program.operations
            if mean is not None and mean in operation.tensors.values()
        ]
        if mean is not None and len(shared) == 1:
            shifts[weight] = (mean, -1.0)
    return shifts


@torch.no_grad()
def _solve(
    network: RunnableProgram,
    changed: RunnableProgram,
    pairs: NodePairs,
    columns: torch.Tensor,
    x: Floats,
    emphasis: Floats | None,
    *,
    has_bias: bool,
) -> torch.Tensor:
    """The change of a layer's rows, for the columns that are left and the bias."""
    size = int(columns.sum()) + 1
    moments = torch.zeros(size, size, dtype=torch.float64)
    wanted: Any = 0.0
    keep = torch.cat([columns, torch.ones(1, dtype=torch.bool)])
    for rows, batch in network.batches(x):
        count = rows.stop - rows.start
        for first, second in pairs:
            (target,) = network.values(batch, [first])
            features, now = changed.values(batch, [data_operand(second), second])
            f = with_one(unfold(second, features))[:, keep]
            gap = written(second, target - now).double()
            if count < len(batch):  # what fills the last batch counts for nothing
                f, gap = _first(f, count, len(batch)), _first(gap, count, len(batch))
            if emphasis is not None:
                factor = torch.as_tensor(np.sqrt(emphasis[rows])).repeat_interleave(len(f) // count)[:, None]
                f, gap = f * factor, gap * factor
            moments += f.T @ f
            wanted = wanted + f.T @ gap
    if not has_bias:
        moments, wanted = moments[:-1, :-1], wanted[:-1]
    scale = float(moments.diagonal()[: size - 1].mean()) if size > 1 else 1.0
    weights = torch.ones(len(moments), dtype=torch.float64)
    if has_bias:
        weights[-1] = BIAS_RIDGE
    change = torch.linalg.solve(moments + torch.diag(weights) * (RIDGE * scale if scale > 0 else 1.0), wanted).T
    return change if has_bias else torch.cat([change, change.new_zeros(len(change), 1)], 1)


def _first(rows: torch.Tensor, count: int, batch: int) -> torch.Tensor:
    """Rows of the first samples of a batch."""
    return rows.reshape(batch, -1, rows.shape[-1])[:count].reshape(-1, rows.shape[-1])
