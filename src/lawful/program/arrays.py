"""The functions in which operators are written, once for NumPy and once for PyTorch.

Both libraries have most functions under one name with one meaning (`exp`, `where`, ...): those come from the library
itself. The rest, and those whose details differ, are methods here. The core folds constants and evaluates graphs with
NumPy alone; PyTorch is imported by whoever asks for its arrays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import special

from lawful.program.index_map import IndexMap
from lawful.program.table import ValueKind


class NumpyArrays:
    """NumPy, computing reals in one floating type."""

    def __init__(self, real: Any = np.float64) -> None:
        self.real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    def cast(self, x: Any, kind: ValueKind) -> Any:
        """Values of another kind: a truth value is not zero, an integer is cut towards zero."""
        if kind == "i" and x.dtype.kind == "f":
            x = np.trunc(x)
        return x.astype({"b": np.bool_, "i": np.int64, "f": self.real, "c": np.complex128}[kind])

    erf = staticmethod(special.erf)
    erfc = staticmethod(special.erfc)
    sigmoid = staticmethod(special.expit)
    lgamma = staticmethod(special.gammaln)

    def relu(self, x: Any) -> Any:
        """max(x, 0); no number stays none."""
        return np.maximum(x, 0)

    def softplus(self, x: Any) -> Any:
        """log(1 + eˣ), without overflow."""
        return np.logaddexp(x, 0)

    def power(self, x: Any, exponent: float) -> Any:
        """x to a number. Half-integers go through the root: C's `pow(-inf, -0.5)` is 0, and √(-∞) is NaN."""
        if exponent % 1 == 0.5:
            return np.sqrt(x) ** int(2 * exponent)
        return np.power(x, int(exponent)) if exponent == int(exponent) and exponent >= 0 else np.power(x, exponent)

    def pow(self, x: Any, y: Any) -> Any:
        """x to the power y, entry by entry; integers with negative powers are cut to 0 (or ±1), as PyTorch does."""
        if x.dtype.kind != "f" and y.dtype.kind != "f":
            return np.where(y < 0, np.where(np.abs(x) == 1, x ** np.abs(y % 2), 0), x ** np.maximum(y, 0))
        return np.power(x, y)

    def sum(self, x: Any, axes: Sequence[int]) -> Any:
        """The sum along axes, which keep size 1."""
        return x.sum(axis=tuple(axes), keepdims=True)

    def prod(self, x: Any, axes: Sequence[int]) -> Any:
        """The product along axes, which keep size 1."""
        return x.prod(axis=tuple(axes), keepdims=True)

    def gates(self, shape: Sequence[int], share: float) -> Any:
        """Random gates, of which a share is shut."""
        open_ = np.random.default_rng().random(tuple(shape)) >= share
        return open_ / (1 - share) if share < 1 else np.zeros(tuple(shape))

    def amax(self, x: Any, axes: Sequence[int]) -> Any:
        """The maximum along axes, which keep size 1."""
        return x.max(axis=tuple(axes), keepdims=True)

    def amin(self, x: Any, axes: Sequence[int]) -> Any:
        """The minimum along axes, which keep size 1."""
        return x.min(axis=tuple(axes), keepdims=True)

    def argmax(self, x: Any, axis: int) -> Any:
        """Where the first maximum along an axis is."""
        return x.argmax(axis=axis, keepdims=True)

    def argmin(self, x: Any, axis: int) -> Any:
        """Where the first minimum along an axis is."""
        return x.argmin(axis=axis, keepdims=True)

    def einsum(self, spec: str, *operands: Any) -> Any:
        """An Einstein sum."""
        return np.einsum(spec, *operands, optimize=True)

    def softmax(self, x: Any, axis: int) -> Any:
        """Shifted by the maximum: the same number, without overflow."""
        weights = np.exp(x - x.max(axis=axis, keepdims=True))
        return weights / weights.sum(axis=axis, keepdims=True)

    def argsort(self, x: Any, axis: int, descending: bool) -> Any:
        """A stable order along an axis."""
        if not descending:
            return np.argsort(x, axis=axis, kind="stable")
        turned = np.flip(x, axis)  # equal entries keep their order only if they are turned twice
        return x.shape[axis] - 1 - np.flip(np.argsort(turned, axis=axis, kind="stable"), axis)

    def sort(self, x: Any, axis: int, descending: bool) -> Any:
        """The entries in order along an axis."""
        return np.take_along_axis(x, self.argsort(x, axis, descending), axis)

    def gather(self, x: Any, index: Any, axis: int) -> Any:
        """result[i] = x[i with its index along the axis replaced by index[i]]."""
        rows = x[tuple(slice(0, n) if k != axis else slice(None) for k, n in enumerate(index.shape))]
        return np.take_along_axis(rows, index, axis)

    def lookup(self, x: Any, index: Any, axis: int) -> Any:
        """The slices of x at positions along an axis, which the axes of `index` replace."""
        return np.take(x, index, axis=axis)

    def scatter(self, x: Any, index: Any, source: Any, axis: int, reduce: str) -> Any:
        """A copy of x with entries of `source` written (or added, multiplied, ...) at `index` along an axis."""
        result = x.copy()
        at = list(np.indices(index.shape, sparse=True))
        at[axis] = index
        part = source[tuple(slice(0, n) for n in index.shape)]
        if reduce == "none":
            result[tuple(at)] = part
        else:
            how = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}[reduce]
            how.at(result, tuple(at), part)
        return result

    def take(self, sources: Sequence[Any], index: IndexMap) -> Any:
        """The entries at an index map of the sources, laid end to end."""
        if len(sources) == 1 and index.keeps_order and sources[0].size == index.size:
            return sources[0].reshape(index.shape)
        flat = (
            np.ascontiguousarray(sources[0]).ravel()
            if len(sources) == 1
            else np.concatenate(list(map(np.ravel, sources)))
        )
        if index.strides is None or index.size == 0:
            return flat[index.positions]
        steps = [step * flat.itemsize for step in index.strides]
        return np.lib.stride_tricks.as_strided(flat[index.offset :], index.shape, steps)

    def convolve(self, x: Any, weight: Any, a: Any) -> Any:
        """A convolution as a sum over windows; a transposed one is one of the spread input with the turned kernel."""
        rank = x.ndim - 2
        kernel, groups = weight.shape[2:], a["groups"]
        low, high, stride = list(a["padding"]), list(a["padding"]), a["stride"]
        if a["transposed"]:
            spread = np.zeros(
                (*x.shape[:2], *((n - 1) * s + 1 for n, s in zip(x.shape[2:], stride, strict=True))), x.dtype
            )
            spread[(slice(None), slice(None), *(slice(None, None, s) for s in stride))] = x
            inner, outer = weight.shape[0] // groups, weight.shape[1]
            turned = weight.reshape(groups, inner, outer, *kernel).swapaxes(1, 2)
            weight = np.flip(turned, tuple(range(3, 3 + rank))).reshape(groups * outer, inner, *kernel)
            reach = [d * (k - 1) for d, k in zip(a["dilation"], kernel, strict=True)]
            low = [r - p for r, p in zip(reach, a["padding"], strict=True)]
            high = [r - p + more for r, p, more in zip(reach, a["padding"], a["output_padding"], strict=True)]
            x, stride = spread, (1,) * rank
        cut = tuple(slice(max(-p, 0), n - max(-q, 0)) for p, q, n in zip(low, high, x.shape[2:], strict=True))
        x = x[(slice(None), slice(None), *cut)]
        x = np.pad(x, [(0, 0), (0, 0), *((max(p, 0), max(q, 0)) for p, q in zip(low, high, strict=True))])
        reach = [d * (k - 1) + 1 for d, k in zip(a["dilation"], kernel, strict=True)]
        windows: Any = np.lib.stride_tricks.sliding_window_view(x, reach, tuple(range(2, 2 + rank)))
        windows = windows[
            (..., *(slice(None, None, s) for s in stride), *(slice(None, None, d) for d in a["dilation"]))
        ]
        windows = windows.reshape(x.shape[0], groups, -1, *windows.shape[2:])
        weight = weight.reshape(groups, weight.shape[0] // groups, *weight.shape[1:])
        places, inside = "uvw"[:rank], "xyz"[:rank]
        result = self.einsum(f"ngc{places}{inside},goc{inside}->ngo{places}", windows, weight)
        return result.reshape(x.shape[0], -1, *result.shape[3:])


class TorchArrays:
    """PyTorch, computing reals in one floating type; gradients flow."""

    def __init__(self, real: Any = None) -> None:
        import torch

        self.torch = torch
        self.real = torch.float64 if real is None else real

    def __getattr__(self, name: str) -> Any:
        return getattr(self.torch, name)

    def cast(self, x: Any, kind: ValueKind) -> Any:
        """Values of another kind: a truth value is not zero, an integer is cut towards zero."""
        if kind == "i" and x.is_floating_point():
            x = x.trunc()
        return x.to({"b": self.torch.bool, "i": self.torch.int64, "f": self.real, "c": self.torch.complex128}[kind])

    def softplus(self, x: Any) -> Any:
        """log(1 + eˣ), without overflow and without PyTorch's threshold, beyond which it returns x."""
        return self.torch.logaddexp(x, x.new_zeros(()))

    def power(self, x: Any, exponent: float) -> Any:
        """x to a number; half-integers go through the root, as in NumPy."""
        if exponent == -0.5:
            return x.rsqrt()
        return x.sqrt().pow(int(2 * exponent)) if exponent % 1 == 0.5 else x.pow(exponent)

    def pow(self, x: Any, y: Any) -> Any:
        """x to the power y, entry by entry; integers with negative powers are cut to 0 (or ±1)."""
        if x.is_floating_point() or y.is_floating_point():
            return self.torch.pow(x, y)
        unit = self.torch.where(x.abs() == 1, x ** (y % 2), self.torch.zeros_like(x))
        return self.torch.where(y < 0, unit, x ** y.clamp(min=0))

    def sum(self, x: Any, axes: Sequence[int]) -> Any:
        """The sum along axes, which keep size 1."""
        return x.sum(tuple(axes), keepdim=True)

    def prod(self, x: Any, axes: Sequence[int]) -> Any:
        """The product along axes, which keep size 1."""
        for axis in axes:
            x = x.prod(axis, keepdim=True)
        return x

    def gates(self, shape: Sequence[int], share: float) -> Any:
        """Random gates, of which a share is shut."""
        open_ = self.torch.rand(tuple(shape)) >= share
        return open_ / (1 - share) if share < 1 else self.torch.zeros(tuple(shape))

    def amax(self, x: Any, axes: Sequence[int]) -> Any:
        """The maximum along axes, which keep size 1."""
        return x.amax(tuple(axes), keepdim=True)

    def amin(self, x: Any, axes: Sequence[int]) -> Any:
        """The minimum along axes, which keep size 1."""
        return x.amin(tuple(axes), keepdim=True)

    def any(self, x: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
        """Whether any entry along axes is true."""
        return x.any(axis, keepdim=keepdims)

    def all(self, x: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
        """Whether all entries along axes are true."""
        return x.all(axis, keepdim=keepdims)

    def argmax(self, x: Any, axis: int) -> Any:
        """Where the first maximum along an axis is: of equal ones PyTorch promises none, so it is looked for."""
        return self._first((x == x.amax(axis, keepdim=True)) | (x != x), axis)  # a NaN is the maximum, as in NumPy

    def argmin(self, x: Any, axis: int) -> Any:
        """Where the first minimum along an axis is."""
        return self._first((x == x.amin(axis, keepdim=True)) | (x != x), axis)

    def _first(self, mask: Any, axis: int) -> Any:
        size = mask.shape[axis]
        at = self.torch.arange(size).reshape(-1, *(1,) * (mask.dim() - axis - 1))
        return self.torch.where(mask, at, size).amin(axis, keepdim=True)

    def argsort(self, x: Any, axis: int, descending: bool) -> Any:
        """A stable order along an axis."""
        return self.torch.sort(x, dim=axis, descending=descending, stable=True)[1]

    def sort(self, x: Any, axis: int, descending: bool) -> Any:
        """The entries in order along an axis."""
        return self.torch.sort(x, dim=axis, descending=descending, stable=True)[0]

    def gather(self, x: Any, index: Any, axis: int) -> Any:
        """result[i] = x[i with its index along the axis replaced by index[i]]."""
        return x.gather(axis, index)

    def lookup(self, x: Any, index: Any, axis: int) -> Any:
        """The slices of x at positions along an axis, which the axes of `index` replace."""
        return x.index_select(axis, index.flatten()).reshape((*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]))

    def scatter(self, x: Any, index: Any, source: Any, axis: int, reduce: str) -> Any:
        """A copy of x with entries of `source` written (or added, multiplied, ...) at `index` along an axis."""
        if reduce == "none":
            return x.scatter(axis, index, source)
        if reduce == "add":
            return x.scatter_add(axis, index, source)
        return x.scatter_reduce(axis, index, source, {"mul": "prod", "max": "amax", "min": "amin"}[reduce])

    def take(self, sources: Sequence[Any], index: IndexMap) -> Any:
        """The entries at an index map of the sources, laid end to end."""
        if len(sources) == 1 and index.keeps_order and sources[0].numel() == index.size:
            return sources[0].reshape(index.shape)
        flat = (
            self.torch.cat([source.reshape(-1) for source in sources])
            if len(sources) > 1
            else sources[0].contiguous().reshape(-1)
        )
        if index.strides is None or min(index.strides, default=0) < 0 or index.size == 0:
            return flat[self.torch.from_numpy(index.positions)]
        return flat.as_strided(index.shape, index.strides, flat.storage_offset() + index.offset)

    def convolve(self, x: Any, weight: Any, a: Any) -> Any:
        """A convolution, transposed or not, of one to three axes."""
        extra = a["output_padding"] if a["transposed"] else (0,) * (x.dim() - 2)
        settings = (a["stride"], a["padding"], a["dilation"], a["transposed"], extra, a["groups"])
        return self.torch.convolution(x, weight, None, *settings)


NUMPY = NumpyArrays()


def arrays_for(value: Any, real: Any = None) -> NumpyArrays | TorchArrays:
    """The functions for arrays like this one."""
    if isinstance(value, (np.ndarray, np.generic)):
        return NumpyArrays(np.float64 if real is None else real)
    return TorchArrays(real)


def count_windows(size: int, reach: int, stride: int, padding: tuple[int, int], ceil: bool) -> int:
    """How many windows of `reach` entries start inside a padded axis."""
    room = (size + sum(padding) - reach) / stride
    if not ceil:
        return math.floor(room) + 1
    count = math.ceil(room) + 1  # the last window may hang over the end, but must start before the right padding
    return count - 1 if (count - 1) * stride >= size + padding[0] else count
