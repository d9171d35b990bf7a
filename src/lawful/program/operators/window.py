"""Windows along axes, and resizing: movements, and fixed matrices along each axis.

Pooling is a reduction of windows, a Fourier transform of a signal a fixed matrix. Nearest resizing is a movement;
linear and cubic ones are matrices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lawful.program.arrays import count_windows
from lawful.program.builder import Builder, Operand
from lawful.program.operators.contraction import onnx_padding, per_axis
from lawful.program.operators.movement import integers
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
        maxima = max_pool(b, x, kernel, steps, _pairs(padding, rank), per_axis(dilation, rank), ceil_mode)
        return maxima if rest is None else [maxima, *rest]


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
        stride, dilation = (stated or [1] * len(kernel_shape) for stated in (strides, dilations))
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


def _positions(new: int, old: int, scale: float, how: str, roi: tuple[float, float]) -> NDArray[Any]:
    """Where the entries of the result lie on the old axis."""
    at = np.arange(new, dtype=float)
    if how == "half_pixel" or (how == "pytorch_half_pixel" and new > 1):
        return (at + 0.5) / scale - 0.5
    if how == "pytorch_half_pixel":
        return at * 0
    if how == "half_pixel_symmetric":
        shift = old / 2 * (1 - new / (old * scale))
        return shift + (at + 0.5) / scale - 0.5
    if how == "align_corners":
        length = old * scale
        return at * (old - 1) / (length - 1) if length != 1 else at * 0
    if how == "asymmetric":
        return at / scale
    if how == "tf_crop_and_resize":
        low, high = roi
        if new > 1:
            return low * (old - 1) + at * (high - low) * (old - 1) / (old * scale - 1)
        return at * 0 + 0.5 * (low + high) * (old - 1)
    raise Refused(f"resizing by {how}")


def _kernel(mode: str, cubic: float, x: NDArray[Any]) -> NDArray[Any]:
    """The weight of an entry at a distance."""
    x = np.abs(x)
    if mode == "linear":
        return np.asarray(np.maximum(1 - x, 0))
    near: NDArray[Any] = (cubic + 2) * x**3 - (cubic + 3) * x**2 + 1
    far: NDArray[Any] = cubic * x**3 - 5 * cubic * x**2 + 8 * cubic * x - 4 * cubic
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))


def resize_matrix(
    at: NDArray[Any], old: int, mode: str, cubic: float, *, stretch: float = 1.0, exclude: bool = False
) -> NDArray[Any]:
    """The matrix of interpolation at positions; entries beyond an end are those at the end, or left out.

    `stretch` below 1 widens the kernel (antialiasing); then, or where entries are left out, rows are scaled to sum 1.
    """
    reach = math.ceil((1 if mode == "linear" else 2) / min(stretch, 1.0)) + 1
    matrix = np.zeros((len(at), old))
    rows = np.arange(len(at))
    for step in range(-reach, reach + 1):
        place = np.floor(at) + step
        weight = _kernel(mode, cubic, (at - place) * min(stretch, 1.0))
        if exclude:
            weight = np.where((place >= 0) & (place < old), weight, 0.0)
        np.add.at(matrix, (rows, place.clip(0, old - 1).astype(int)), weight)
    return matrix / matrix.sum(1, keepdims=True) if exclude or stretch < 1 else matrix


_NEAREST: dict[str, Any] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "round_prefer_floor": lambda t: np.ceil(t - 0.5),
    "round_prefer_ceil": lambda t: np.floor(t + 0.5),
}


@onnx("Resize")
def _resize(
    b: Builder,
    x: Node,
    roi: Node | None = None,
    scales: Any = None,
    sizes: Node | None = None,
    antialias: int = 0,
    axes: Any = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Node:
    over = list(range(x.rank)) if axes is None else [k % x.rank for k in axes]
    factors = (
        None if scales is None else (b.numbers(scales, "the scales of Resize") if isinstance(scales, Node) else scales)
    )
    crop = None if roi is None else b.numbers(roi, "the region of Resize")
    if factors:
        wanted = [math.floor(x.shape[k] * f) for k, f in zip(over, factors, strict=True)]
    elif sizes is not None:
        wanted = integers(b, sizes, "the sizes of Resize")
        factors = [new / x.shape[k] for k, new in zip(over, wanted, strict=True)]
        if keep_aspect_ratio_policy != "stretch":
            one = (min if keep_aspect_ratio_policy == "not_larger" else max)(factors)
            factors = [one] * len(over)
            wanted = [math.floor(one * x.shape[k] + 0.5) for k in over]
    else:
        raise Refused("Resize without sizes")
    for k, (axis, new) in enumerate(zip(over, wanted, strict=True)):
        old, scale = x.shape[axis], factors[k]
        how = coordinate_transformation_mode
        if old == new and scale == 1 and how != "tf_crop_and_resize":
            continue
        b.check_size(new * old)
        region = (0.0, 1.0) if not crop else (crop[k], crop[k + len(over)])
        at = _positions(new, old, scale, how, region)
        outside = (at < 0) | (at > old - 1) if how == "tf_crop_and_resize" else np.zeros(new, bool)
        if mode == "nearest":
            place = _NEAREST[nearest_mode](at).clip(0, old - 1).astype(int)
            x = b.pick(x, axis, np.where(outside, -1, place), fill=extrapolation_value)
        else:
            stretch = scale if antialias else 1.0
            matrix = resize_matrix(
                at,
                old,
                mode,
                cubic_coeff_a,
                stretch=stretch,
                exclude=bool(exclude_outside),
            )
            x = b.along(b.as_kind(x, "f"), axis, matrix)
            if outside.any():
                mask = outside.reshape(-1, *(1,) * (x.rank - axis - 1))
                x = b.where(b.constant(mask), extrapolation_value, x)
    return x


@onnx("Upsample")
def _upsample(b: Builder, x: Node, factors: Node | None = None, mode: str = "nearest", scales: Any = None) -> Node:
    return _resize(
        b,
        x,
        None,
        factors if scales is None else scales,
        mode="nearest" if mode == "nearest" else "linear",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )


def _interpolate(
    b: Builder, x: Node, sizes: Sequence[int], mode: str, align_corners: bool, scales: Sequence[Any]
) -> Node:
    lead = x.rank - len(sizes)
    for k, new in enumerate(sizes):
        old = x.shape[lead + k]
        if old == new:
            continue
        at = np.arange(new, dtype=float)
        if align_corners:
            at = at * (old - 1) / (new - 1) if new > 1 else at * 0
        else:
            at = (at + 0.5) * (1 / scales[k] if scales[k] else old / new) - 0.5
            at = at if mode == "cubic" else at.clip(0)
        x = b.along(b.as_kind(x, "f"), lead + k, resize_matrix(at, old, mode, -0.75))
    return x


def _register_upsampling(name: str, mode: str, rank: int) -> None:
    @aten(name)
    def upsample_to_size(
        b: Builder,
        x: Node,
        output_size: Any,
        align_corners: bool,
        scales: float | None = None,
        scales_d: float | None = None,
        scales_h: float | None = None,
        scales_w: float | None = None,
    ) -> Node:
        factors = [scales] if rank == 1 else [scales_d, scales_h, scales_w][-rank:]
        return _interpolate(b, x, output_size, mode, align_corners, factors)

    @aten(f"{name}.vec")
    def upsample_by_factors(
        b: Builder, x: Node, output_size: Any, align_corners: bool, scale_factors: Any = None
    ) -> Node:
        sizes = output_size or [int(n * f) for n, f in zip(x.shape[2:], scale_factors, strict=True)]
        return _interpolate(b, x, sizes, mode, align_corners, scale_factors or [None] * rank)


for _name, _mode, _axes in (
    ("upsample_linear1d", "linear", 1),
    ("upsample_bilinear2d", "linear", 2),
    ("upsample_trilinear3d", "linear", 3),
    ("upsample_bicubic2d", "cubic", 2),
):
    _register_upsampling(_name, _mode, _axes)
