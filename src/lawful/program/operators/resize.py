"""Resizing pictures: nearest is a movement, linear and cubic are a fixed matrix along each axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lawful.program.builder import Builder
from lawful.program.operators.movement import integers
from lawful.program.program import Node
from lawful.program.table import Refused, aten, onnx


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
    def sized(
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
    def scaled(b: Builder, x: Node, output_size: Any, align_corners: bool, scale_factors: Any = None) -> Node:
        sizes = output_size or [int(n * f) for n, f in zip(x.shape[2:], scale_factors, strict=True)]
        return _interpolate(b, x, sizes, mode, align_corners, scale_factors or [None] * rank)


for _name, _mode, _axes in (
    ("upsample_linear1d", "linear", 1),
    ("upsample_bilinear2d", "linear", 2),
    ("upsample_trilinear3d", "linear", 3),
    ("upsample_bicubic2d", "cubic", 2),
):
    _register_upsampling(_name, _mode, _axes)
