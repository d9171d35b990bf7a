"""Convolutions and pooling as the sparse linear maps they are, for any number of space dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lawful.errors import InvalidNetwork
from lawful.network.assemble import Matrix, check_terms, sizes
from lawful.types import Floats, Indices


@dataclass(frozen=True)
class Window:
    """How a kernel moves over space, one number per dimension; padding may differ at the two ends."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    dilation: tuple[int, ...]
    ceil: bool = False

    def __post_init__(self) -> None:
        each = (self.kernel, self.stride, self.before, self.after, self.dilation)
        if len({len(numbers) for numbers in each}) != 1:
            raise InvalidNetwork("kernel, stride, padding and dilation differ in dimension")
        if min(*self.kernel, *self.stride, *self.dilation) < 1 or min(*self.before, *self.after) < 0:
            raise InvalidNetwork("kernel, stride and dilation must be at least 1, padding at least 0")

    def output(self, space: Sequence[int]) -> tuple[int, ...]:
        """Sizes of the result, by the rule that PyTorch and ONNX share.

        >>> Window((3, 3), (2, 2), (1, 1), (1, 1), (1, 1)).output((8, 7))
        (4, 4)
        """
        if len(space) != len(self.kernel):
            raise InvalidNetwork(f"a kernel of {sizes(self.kernel)} needs as many sizes, not {sizes(tuple(space))}")
        result = []
        for size, kernel, stride, before, after, dilation in zip(
            space, self.kernel, self.stride, self.before, self.after, self.dilation, strict=True
        ):
            reach = size + before + after - dilation * (kernel - 1) - 1
            steps = -(-reach // stride) if self.ceil else reach // stride
            if self.ceil and steps * stride >= size + before:  # the last window must start inside
                steps -= 1
            if reach < 0 or steps < 0:
                raise InvalidNetwork(f"a kernel of {sizes(self.kernel)} does not fit into {sizes(tuple(space))}")
            result.append(steps + 1)
        return tuple(result)

    def reads(self, space: Sequence[int]) -> tuple[Indices, NDArray[np.bool_], NDArray[np.bool_]]:
        """For each output place and kernel place: which input place, whether it exists, whether padding covers it."""
        outputs, axes = self.output(space), len(self.kernel)
        check_terms(math.prod(outputs) * math.prod(self.kernel))
        place, exists, padded = np.zeros((1,) * (2 * axes), dtype=np.intp), np.array(True), np.array(True)
        for axis, size in enumerate(space):
            start = np.arange(outputs[axis]) * self.stride[axis] - self.before[axis]
            at = start[:, None] + np.arange(self.kernel[axis]) * self.dilation[axis]
            spread = [1] * (2 * axes)
            spread[axis], spread[axes + axis] = at.shape
            place = place * size + at.reshape(spread)
            exists = exists & ((at >= 0) & (at < size)).reshape(spread)
            padded = padded & (at < size + self.after[axis]).reshape(spread)
        shape = (math.prod(outputs), math.prod(self.kernel))
        return place.reshape(shape), exists.reshape(shape), np.broadcast_to(padded, exists.shape).reshape(shape)


def convolution(weight: Floats, shape: tuple[int, ...], window: Window, groups: int) -> tuple[Matrix, tuple[int, ...]]:
    """The map of a convolution with `weight` (outputs, inputs / groups, kernel…) on a tensor of `shape`."""
    channels, space = shape[0], shape[1:]
    outputs, share = weight.shape[0], weight.shape[1]
    if groups < 1 or outputs % groups or share * groups != channels:
        raise InvalidNetwork(f"takes {share * groups} channels in {groups} groups, but its input is {sizes(shape)}")
    place, exists, _ = window.reads(space)
    check_terms(int(exists.sum()) * outputs * share)
    where, tap = np.nonzero(exists)
    places, area = len(place), math.prod(space)
    channel_out = np.arange(outputs)
    first = channel_out // (outputs // groups) * share
    columns = ((first[:, None, None] + np.arange(share)[None, :, None]) * area + place[where, tap]).ravel()
    rows = np.broadcast_to(channel_out[:, None, None] * places + where, (outputs, share, len(where))).ravel()
    entries = weight.reshape(outputs, share, -1)[:, :, tap].ravel()
    return Matrix(rows, columns, entries), (outputs, *window.output(space))


def average(
    shape: tuple[int, ...], window: Window, *, count_padding: bool, divisor: int | None = None
) -> tuple[Matrix, tuple[int, ...]]:
    """The map of average pooling on a tensor of `shape` (channels, space…)."""
    channels, space = shape[0], shape[1:]
    place, exists, padded = window.reads(space)
    check_terms(int(exists.sum()) * channels)
    counted = np.broadcast_to(float(divisor), len(place)) if divisor else (padded if count_padding else exists).sum(1)
    where, tap = np.nonzero(exists)
    channel = np.arange(channels)[:, None]
    columns = (channel * math.prod(space) + place[where, tap]).ravel()
    rows = (channel * len(place) + where).ravel()
    entries = np.tile(1.0 / counted[where], channels)
    return Matrix(rows, columns, entries), (channels, *window.output(space))


def adaptive(shape: tuple[int, ...], result: tuple[int, ...]) -> tuple[Matrix, tuple[int, ...]]:
    """The map of PyTorch's adaptive average pooling to given sizes: window i spans `⌊i n/m⌋` to `⌈(i+1) n/m⌉`."""
    channels, space = shape[0], shape[1:]
    weights: Floats = np.ones((1, 1))
    for size, wanted in zip(space, result, strict=True):
        check_terms(weights.size * wanted * size)
        share = np.zeros((wanted, size))
        for place in range(wanted):
            begin, end = place * size // wanted, -(-(place + 1) * size // wanted)
            share[place, begin:end] = 1.0 / (end - begin)
        weights = np.asarray(np.kron(weights, share), dtype=np.float64)
    where, column = np.nonzero(weights)
    check_terms(len(where) * channels)
    channel = np.arange(channels)[:, None]
    rows, columns = (channel * len(weights) + where).ravel(), (channel * math.prod(space) + column).ravel()
    return Matrix(rows, columns, np.tile(weights[where, column], channels)), (channels, *result)
