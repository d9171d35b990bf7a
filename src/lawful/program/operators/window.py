"""Windows along axes: a movement; pooling is a reduction of them, a Fourier transform of a signal a fixed matrix."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lawful.program.arrays import count_windows
from lawful.program.builder import Builder, Operand
from lawful.program.operators.contraction import onnx_padding, per_axis
from lawful.program.program import Node
from lawful.program.table import INFINITY, Refused, TooShort, aten, onnx

Pairs = Sequence[tuple[int, int]]
Windows = tuple[Sequence[int], Sequence[int], Pairs, Sequence[int], bool]  # kernel, stride, padding, dilation, ceil


def cut_windows(
    b: Builder,
    x: Node,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Pairs,
    dilation: Sequence[int],
    ceil: bool = False,
    fill: Operand = 0.0,
) -> Node:
    """The last axes cut into windows: a result (..., places..., kernel...); what is outside is `fill`."""
    rank = len(kernel)
    lead = x.rank - rank
    for k in range(rank):
        size, reach = x.shape[lead + k], dilation[k] * (kernel[k] - 1) + 1
        count = count_windows(size, reach, stride[k], padding[k], ceil)
        if count <= 0:
            raise TooShort
        b.check_size(count * kernel[k])
        at = np.arange(count)[:, None] * stride[k] + np.arange(kernel[k]) * dilation[k] - padding[k][0]
        x = b.pick(x, lead + k, np.where((at >= 0) & (at < size), at, -1), fill=fill)
        order = [*range(lead + k + 1), *range(lead + k + 2, x.rank), lead + k + 1]
        x = b.permute(x, order)
    return x


def max_pool(
    b: Builder,
    x: Node,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Pairs,
    dilation: Sequence[int],
    ceil: bool,
) -> Node:
    """The maximum of each window."""
    windows = cut_windows(b, x, kernel, stride, padding, dilation, ceil, -INFINITY if x.kind == "f" else -(2**62))
    return b.reduce("amax", windows, range(windows.rank - len(kernel), windows.rank))


def average_pool(
    b: Builder,
    x: Node,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Pairs,
    dilation: Sequence[int],
    ceil: bool,
    count_padding: bool,
    divisor: int | None = None,
) -> Node:
    """The mean of each window: over what is inside, or with the padding (but never with what hangs over it)."""
    rank = len(kernel)
    windows = cut_windows(b, x, kernel, stride, padding, dilation, ceil)
    total = b.sum(windows, range(windows.rank - rank, windows.rank))
    if divisor:
        return b.div(total, float(divisor))
    inside = np.ones([1])
    for k, size in enumerate(x.shape[x.rank - rank :]):
        reach = dilation[k] * (kernel[k] - 1) + 1
        count = count_windows(size, reach, stride[k], padding[k], ceil)
        at = np.arange(count)[:, None] * stride[k] + np.arange(kernel[k]) * dilation[k] - padding[k][0]
        low, high = (-padding[k][0], size + padding[k][1]) if count_padding else (0, size)
        inside = inside[..., None] * ((at >= low) & (at < high)).sum(1)
    return b.div(total, b.constant(inside[0]))


def _pairs(padding: Any, rank: int) -> list[tuple[int, int]]:
    return [(p, p) for p in per_axis(padding, rank)]


def _register_pools(rank: int) -> None:
    for name, rest in ((f"max_pool{rank}d", None), (f"max_pool{rank}d_with_indices", [None])):
        _register_max_pool(name, rank, rest)

    @aten(f"avg_pool{rank}d")
    def mean_pool(
        b: Builder,
        x: Node,
        kernel_size: Any,
        stride: Any = (),
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Node:
        kernel = per_axis(kernel_size, rank)
        steps = per_axis(stride, rank) if stride else kernel
        return average_pool(
            b, x, kernel, steps, _pairs(padding, rank), (1,) * rank, ceil_mode, count_include_pad, divisor_override
        )

    @aten(f"adaptive_avg_pool{rank}d", *([f"_adaptive_avg_pool{rank}d"] if rank > 1 else []))
    def adaptive_mean(b: Builder, x: Node, output_size: Any) -> Node:
        for k, (size, new) in enumerate(_adaptive_sizes(x, rank, output_size)):
            bounds = _adaptive_bounds(size, new)
            matrix = np.zeros((new, size))
            for row, (low, high) in enumerate(bounds):
                matrix[row, low:high] = 1.0 / (high - low)
            x = _adaptive_axis(b, x, x.rank - rank + k, size, new, matrix)
        return x

    @aten(f"adaptive_max_pool{rank}d")
    def adaptive_max(b: Builder, x: Node, output_size: Any) -> list[Any]:
        for k, (size, new) in enumerate(_adaptive_sizes(x, rank, output_size)):
            bounds = _adaptive_bounds(size, new)
            longest = max((high - low for low, high in bounds), default=1)
            at = np.array([[low + min(j, high - low - 1) for j in range(longest)] for low, high in bounds])
            axis = x.rank - rank + k
            x = b.reduce("amax", b.pick(x, axis, at), axis + 1)
        return [x, None]


def _register_max_pool(name: str, rank: int, rest: list[Any] | None) -> None:
    """Maxima of windows; with where they are, which is left to PyTorch, if there is a rest."""

    @aten(name)
    def pool(b: Builder, x: Node, kernel_size: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1,
             ceil_mode: bool = False) -> Any:  # fmt: skip
        kernel = per_axis(kernel_size, rank)
        steps = per_axis(stride, rank) if stride else kernel
        made = max_pool(b, x, kernel, steps, _pairs(padding, rank), per_axis(dilation, rank), ceil_mode)
        return made if rest is None else [made, *rest]


def _adaptive_sizes(x: Node, rank: int, output_size: Any) -> list[tuple[int, int]]:
    wanted = (output_size,) if isinstance(output_size, int) else tuple(output_size)
    wanted = wanted * rank if len(wanted) == 1 else wanted
    return [(size, size if new is None else int(new)) for size, new in zip(x.shape[-rank:], wanted, strict=True)]


def _adaptive_bounds(size: int, new: int) -> list[tuple[int, int]]:
    """Window i reaches from ⌊i size / new⌋ to ⌈(i + 1) size / new⌉."""
    return [(i * size // new, -(-(i + 1) * size // new)) for i in range(new)]


def _adaptive_axis(b: Builder, x: Node, axis: int, size: int, new: int, matrix: Any) -> Node:
    """Equal windows are a mean of a new axis, others a fixed matrix along the axis."""
    if new == size:
        return x
    if new and size % new == 0:
        parts = b.reshape(x, (*x.shape[:axis], new, size // new, *x.shape[axis + 1 :]))
        return b.mean(parts, axis + 1)
    return b.along(x, axis, matrix)


for _rank in (1, 2, 3):
    _register_pools(_rank)


def _register_onnx_pool(name: str, pool: Callable[[Builder, Node, Windows, dict[str, int]], Node]) -> None:
    """ONNX's pools, whose windows are stated alike."""

    @onnx(name)
    def build(b: Builder, x: Node, kernel_shape: Any, auto_pad: str = "NOTSET", ceil_mode: int = 0,
              dilations: Any = None, pads: Any = None, strides: Any = None, storage_order: int = 0,
              count_include_pad: int = 0, p: int = 2, outputs: int = 1) -> Node:  # fmt: skip
        if outputs > 1:
            raise Refused(f"{name} with the positions of its maxima")
        stride, dilation = (given or [1] * len(kernel_shape) for given in (strides, dilations))
        pairs = onnx_padding(x, kernel_shape, stride, dilation, pads, auto_pad)
        windows = (kernel_shape, stride, pairs, dilation, bool(ceil_mode))
        return pool(b, x, windows, {"count_padding": count_include_pad, "p": p})


def _lp_pool(b: Builder, x: Node, windows: Windows, settings: dict[str, int]) -> Node:
    """(Σ |x|ᵖ)^(1/p) of each window."""
    p = settings["p"]
    parts = cut_windows(b, b.power(b.function("abs", x), p), *windows)
    return b.power(b.sum(parts, range(parts.rank - len(windows[0]), parts.rank)), 1 / p)


_register_onnx_pool("MaxPool", lambda b, x, windows, _: max_pool(b, x, *windows))
_register_onnx_pool(
    "AveragePool", lambda b, x, windows, settings: average_pool(b, x, *windows, bool(settings["count_padding"]))
)
_register_onnx_pool("LpPool", _lp_pool)


@onnx("GlobalAveragePool")
def _global_average_pool(b: Builder, x: Node) -> Node:
    return b.mean(x, range(2, x.rank), True)


@onnx("GlobalMaxPool")
def _global_max_pool(b: Builder, x: Node) -> Node:
    return b.reduce("amax", x, range(2, x.rank), True)


def fourier_basis(size: int, bins: int) -> NDArray[np.float64]:
    """(size, bins, 2): the real and imaginary parts of exp(-2πi t k / size)."""
    angle = 2 * np.pi * (np.outer(np.arange(size), np.arange(bins)) % size) / size  # reduced first: exact
    return np.stack([np.cos(angle), -np.sin(angle)], -1)


@onnx("STFT")
def _stft(
    b: Builder, x: Node, step: Node, window: Node | None = None, length: Node | None = None, onesided: int = 1
) -> Node:
    if x.rank == 3 and x.shape[-1] != 1:
        raise Refused("STFT of a complex signal")
    signal = b.reshape(x, x.shape[:2])
    if length is not None:
        size = int(b.numbers(length, "the length of STFT")[0])
    elif window is not None:
        size = window.shape[0]
    else:
        raise Refused("STFT without a length")
    hop = int(b.numbers(step, "the step of STFT")[0])
    frames = b.move(lambda t: np.lib.stride_tricks.sliding_window_view(t, size, 1)[:, ::hop], signal)
    frames = frames if window is None else b.mul(frames, window)
    basis = b.constant(fourier_basis(size, size // 2 + 1 if onesided else size))
    return b.contract("bfs,sko->bfko", frames, basis)
