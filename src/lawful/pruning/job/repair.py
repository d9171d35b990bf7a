"""Repair by least squares: layers that lost inputs take over what these said, from the network's input to its output.

`min over D of |Y − (W + D) f|² + ridge |D|²`: Y of the original, f of the network repaired so far, so that every layer
also absorbs the errors of those before it. The ridge is on the *change*: where data say nothing, weights stay.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lawful.program.program import Node
from lawful.pruning.channels.weights import ChannelWeights
from lawful.pruning.job.network import RunnableProgram
from lawful.pruning.job.statistics import unfold, with_one, written
from lawful.pruning.job.units import Sites, data_operand
from lawful.types import Floats

RIDGE = 1e-3  # of the mean second moment: what the comparison in the docs was run with; no other was tried
BIAS_RIDGE = 1e-6  # a bias should follow the mean freely
NodePairs = Sequence[tuple[Node, Node]]  # the uses of a layer, in the network before and after


def silence(state: ChannelWeights, sites: Sites, gone: Collection[int]) -> dict[str, Floats]:
    """Weights of readers with columns of 0 where units left: rows first, as the channel program has them."""
    found: dict[str, Floats] = {}
    for number in gone:
        for weight, places in sites.units[number].places.items():
            if weight not in found:
                found[weight] = np.array(state.arrays[weight], dtype=np.float64)
            found[weight][:, list(places)] = 0.0
    return found


def stored(state: ChannelWeights, weight: str, array: Floats) -> torch.Tensor:
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
    ridge: float = RIDGE,
    tick: Callable[[str], None] = lambda said: None,
) -> dict[str, torch.Tensor]:
    """The weights, biases and means that change, as the network stores them."""
    arrays = silence(state, sites, gone)
    left = {weight: np.ones(array.shape[1], dtype=bool) for weight, array in arrays.items()}
    for number in gone:
        for weight, places in sites.units[number].places.items():
            left[weight][list(places)] = False
    pairs = {weight: [(node, node) for node in sites.readers[weight].nodes] for weight in arrays}
    return _refit(network, network, state, arrays, left, pairs, x, ridge, tick)


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
    return _refit(network, shorter, state, arrays, left, pairs, x, RIDGE, tick)


def _refit(
    network: RunnableProgram,
    smaller: RunnableProgram,
    state: ChannelWeights,
    arrays: dict[str, Floats],
    left: Mapping[str, NDArray[np.bool_]],
    pairs: Mapping[str, NodePairs],
    x: Floats,
    ridge: float,
    tick: Callable[[str], None],
) -> dict[str, torch.Tensor]:
    """Layer by layer, least squares over the columns that are `left`; `pairs` are a layer's uses in both networks."""
    new = {weight: stored(state, weight, array) for weight, array in arrays.items() if not left[weight].all()}
    shifts = _shifts(state)
    place = {node: number for number, node in enumerate(smaller.program.as_run())}
    for count, weight in enumerate(sorted(pairs, key=lambda each: place[pairs[each][0][1]]), 1):
        tick(f"layer {count} of {len(pairs)}")
        changed, shift, array = smaller.with_tensors(new), shifts.get(weight), arrays[weight]
        columns = torch.as_tensor(np.repeat(left[weight], math.prod(array.shape[2:])))
        change = _solve(network, changed, pairs[weight], columns, x, ridge, has_bias=shift is not None)
        if not bool(change.any()):  # a layer before all that left
            continue
        whole = torch.zeros(len(array), len(columns), dtype=torch.float64)
        whole[:, columns] = change[:, :-1]
        arrays[weight] = array + whole.reshape(array.shape).numpy()
        arrays[weight][:, ~left[weight]] = 0.0
        new[weight] = stored(state, weight, arrays[weight])
        if shift is not None:
            name, sign = shift
            new[name] = changed.tensors[name].double() + sign * change[:, -1]
    return new


def _shifts(state: ChannelWeights) -> dict[str, tuple[str, float]]:
    """Where a layer's bias can change: its own, or with the other sign the mean of a normalisation right behind it."""
    found: dict[str, tuple[str, float]] = {}
    reading = [name for each in state.program.operations for name in each.sources]
    for weight, uses in state.uses.items():
        bias = uses[0].tensors["bias"]
        if bias is not None:
            found[weight] = (bias, 1.0)
            continue
        norms = [each for each in state.program.operations if each.kind == "norm" and uses[0].name in each.sources]
        alone = len(uses) == 1 and reading.count(uses[0].name) == 1 and len(norms) == 1
        mean = norms[0].tensors.get("mean") if alone else None
        shared = [each for each in state.program.operations if mean is not None and mean in each.tensors.values()]
        if mean is not None and len(shared) == 1:
            found[weight] = (mean, -1.0)
    return found


@torch.no_grad()
def _solve(
    network: RunnableProgram,
    changed: RunnableProgram,
    pairs: NodePairs,
    columns: torch.Tensor,
    x: Floats,
    ridge: float,
    *,
    has_bias: bool,
) -> torch.Tensor:
    """The change of a layer's rows, for the columns that are left and the bias."""
    size = int(columns.sum()) + 1
    moments = torch.zeros(size, size, dtype=torch.float64)
    wanted: Any = 0.0
    keep = torch.cat([columns, torch.ones(1, dtype=torch.bool)])
    for rows, given in network.batches(x):
        count = rows.stop - rows.start
        for first, second in pairs:
            (target,) = network.values(given, [first])
            features, now = changed.values(given, [data_operand(second), second])
            f = with_one(unfold(second, features))[:, keep]
            gap = written(second, target - now).double()
            if count < len(given):  # what fills the last batch counts for nothing
                f, gap = _first(f, count, len(given)), _first(gap, count, len(given))
            moments += f.T @ f
            wanted = wanted + f.T @ gap
    if not has_bias:
        moments, wanted = moments[:-1, :-1], wanted[:-1]
    scale = float(moments.diagonal()[: size - 1].mean()) if size > 1 else 1.0
    weights = torch.ones(len(moments), dtype=torch.float64)
    if has_bias:
        weights[-1] = BIAS_RIDGE
    change = torch.linalg.solve(moments + torch.diag(weights) * (ridge * scale if scale > 0 else 1.0), wanted).T
    return change if has_bias else torch.cat([change, change.new_zeros(len(change), 1)], 1)


def _first(rows: torch.Tensor, count: int, batch: int) -> torch.Tensor:
    """Rows of the first samples of a batch."""
    return rows.reshape(batch, -1, rows.shape[-1])[:count].reshape(-1, rows.shape[-1])
