"""The layers that PyTorch and ONNX have in common, applied to pending tensors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from lawful.errors import InvalidNetwork, Unsupported
from lawful.network.assemble import Assembly, Matrix, Value, check_terms, join, sizes
from lawful.network.windows import Window, convolution
from lawful.types import Floats

BATCH = -1  # stands for the size of the batch wherever sizes are computed with


def finite(what: str, numbers: Floats) -> Floats:
    """The same numbers, refused if one is NaN or infinite."""
    if not np.isfinite(numbers).all():
        where = [int(place) for place in np.argwhere(~np.isfinite(numbers))[0]]
        raise InvalidNetwork(f"{what}{where} is not finite")
    return numbers


def linear(assembly: Assembly, value: Value, weight: Floats, bias: Floats | None) -> Value:
    """`W x + b` along the last axis, `W` of shape (outputs, inputs)."""
    if weight.ndim != 2 or not value.shape or value.shape[-1] != weight.shape[1]:
        raise InvalidNetwork(f"a weight of shape {sizes(weight.shape)} meets an input of {sizes(value.shape)}")
    repeats = value.size // weight.shape[1]
    check_terms(weight.size * repeats)
    one = Matrix.dense(weight)
    if repeats > 1:  # the same matrix at every place of the other axes
        place = np.arange(repeats)[:, None]
        rows = (place * weight.shape[0] + one.rows).ravel()
        one = Matrix(rows, (place * weight.shape[1] + one.columns).ravel(), np.tile(one.entries, repeats))
    return assembly.apply(value, one, (*value.shape[:-1], weight.shape[0]), bias)


def convolve(
    assembly: Assembly, value: Value, weight: Floats, bias: Floats | None, window: Window, groups: int
) -> Value:
    """A convolution over the axes after the channels."""
    if len(value.shape) != weight.ndim - 1:
        raise InvalidNetwork(f"a kernel of {sizes(weight.shape)} needs channels and space, not {sizes(value.shape)}")
    matrix, shape = convolution(weight, value.shape, window, groups)
    return assembly.apply(value, matrix, shape, None if bias is None else per_channel(bias, shape))


def normalise(value: Value, mean: Floats, variance: Floats, scale: Floats, offset: Floats, epsilon: float) -> Value:
    """Batch normalisation with fixed statistics, folded into the sums it follows."""
    if not value.shape or mean.shape != (value.shape[0],):
        raise InvalidNetwork(f"normalises {sizes(mean.shape)} channels, but its input is {sizes(value.shape)}")
    factor = scale / np.sqrt(variance + epsilon)
    finite("batch normalisation's factor", factor)
    return value.scaled(per_channel(factor, value.shape)).shifted(per_channel(offset - factor * mean, value.shape))


def per_channel(numbers: Floats, shape: tuple[int, ...]) -> Floats:
    """One number per channel, ready to broadcast over space."""
    if numbers.shape != (shape[0],):
        raise InvalidNetwork(f"{sizes(numbers.shape)} numbers for {shape[0]} channels")
    return numbers.reshape(-1, *[1] * (len(shape) - 1))


def clip(assembly: Assembly, value: Value, low: ArrayLike | None, high: ArrayLike | None) -> Value:
    """`min(max(z, low), high)` by ReLUs: `low + σ(z − low) − σ(z − high)`, for numbers with low ≤ high."""
    if low is not None and high is not None and not (np.asarray(low) <= np.asarray(high)).all():
        raise Unsupported("clips to a range whose lower end is above its upper end")
    if low is None and high is None:
        return value
    held = assembly.settle(value)
    if low is None:  # min(z, high) = z − σ(z − high)
        return held + assembly.activate(_minus(held, high), 0.0).scaled(-1.0)
    above = assembly.activate(_minus(held, low), 0.0)
    result = above if not np.any(low) else above.shifted(low)
    return result if high is None else result + assembly.activate(_minus(held, high), 0.0).scaled(-1.0)


def _minus(value: Value, numbers: ArrayLike | None) -> Value:
    return value if numbers is None or not np.any(numbers) else value.shifted(-np.asarray(numbers, dtype=np.float64))


def maximum(assembly: Assembly, first: Value, second: Value) -> Value:
    """`max(a, b) = a + σ(b − a)`, entry by entry."""
    held = assembly.settle(first)
    return held + assembly.activate(second + held.scaled(-1.0), 0.0)


def max_pool(assembly: Assembly, value: Value, window: Window) -> Value:
    """The largest entry in each window, by ReLUs; places outside do not count."""
    held = assembly.settle(value)
    channels, space = value.shape[0], value.shape[1:]
    place, exists, _ = window.reads(space)
    if not exists.any(axis=1).all():
        raise InvalidNetwork("a window of max pooling sees no input")
    check_terms(place.size * channels)
    order = np.argsort(~exists, axis=1, kind="stable")  # places that exist come first
    places, counts = np.take_along_axis(place, order, axis=1), exists.sum(axis=1)
    area = int(np.prod(space))
    columns = (np.arange(channels)[:, None, None] * area + places).reshape(-1, place.shape[1])
    counts = np.tile(counts, channels)
    largest = held.take(columns[:, 0], (len(columns),))
    for step in range(1, int(counts.max())):
        rows = np.flatnonzero(counts > step)
        best = maximum(assembly, largest.take(rows, (len(rows),)), held.take(columns[rows, step], (len(rows),)))
        if len(rows) == len(columns):
            largest = best
        else:
            which = np.arange(len(columns))
            which[rows] = len(columns) + np.arange(len(rows))
            largest = join([largest, best]).take(which, (len(columns),))
    return largest.reshape((channels, *window.output(space)))


def flatten(value: Value, start: int = 0, end: int = -1) -> Value:
    """Join axes; `start` and `end` do not count the batch."""
    rank = len(value.shape)
    last = end + rank if end < 0 else end
    if not 0 <= start <= last < rank:
        raise Unsupported(f"cannot flatten axes {start} to {end} of {sizes(value.shape)}")
    joined = int(np.prod(value.shape[start : last + 1]))
    return value.reshape((*value.shape[:start], joined, *value.shape[last + 1 :]))


def reshape(value: Value, target: Sequence[int], batch: Sequence[int] = (BATCH,)) -> Value:
    """Reshape to sizes whose first stays the batch (any number of `batch`); one other may be −1."""
    if not target or target[0] not in batch:
        raise Unsupported(f"a reshape to {list(target)[:8]} that does not keep the batch apart")
    rest = [int(size) for size in target[1:]]
    known = int(np.prod([size for size in rest if size != -1]))
    if rest.count(-1) > 1 or (-1 in rest and (known < 1 or value.size % known)):
        raise InvalidNetwork(f"cannot reshape {sizes(value.shape)} to {rest}")
    return value.reshape(tuple(value.size // known if size == -1 else size for size in rest))


def permute(value: Value, axes: Sequence[int]) -> Value:
    """Reorder axes, the batch included and first."""
    rank = len(value.shape) + 1
    wanted = [axis + rank if axis < 0 else axis for axis in axes]
    if sorted(wanted) != list(range(rank)) or wanted[0] != 0:
        raise Unsupported(f"a transposition {list(axes)} that moves the batch")
    places = np.arange(value.size).reshape(value.shape).transpose([axis - 1 for axis in wanted[1:]])
    return value.take(places.ravel(), places.shape)


def mean(value: Value, axes: Sequence[int], keep: bool) -> Value:
    """The mean over axes that are counted with the batch, which is not one of them."""
    rank = len(value.shape) + 1
    inner = sorted({(axis + rank if axis < 0 else axis) - 1 for axis in axes})
    if not inner or inner[0] < 0 or inner[-1] >= len(value.shape):
        raise Unsupported(f"a mean over axes {list(axes)} of {sizes(value.shape)} and a batch")
    kept = tuple(1 if axis in inner else size for axis, size in enumerate(value.shape))
    rows = np.broadcast_to(np.arange(int(np.prod(kept))).reshape(kept), value.shape).ravel()
    order = np.argsort(rows, kind="stable")
    share = int(np.prod([value.shape[axis] for axis in inner]))
    result = value.mapped(Matrix(rows[order], order, np.full(value.size, 1.0 / share)), kept, weighted=False)
    return result if keep else result.reshape(tuple(size for axis, size in enumerate(kept) if axis not in inner))
