"""How maxima, pooling and sorting become steps of a program: by comparisons in pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from lawful.errors import Unsupported
from lawful.laws.lowering_choices import ChoiceRules
from lawful.laws.lowering_rules import TracedArray

MOST_SORTED = 16


class OrderRules(ChoiceRules):
    """The largest, the smallest, all in order; places are not computed."""

    def do_amax(self, value: TracedArray, axes: Any = (), keepdim: bool = False) -> TracedArray:
        """The largest over some axes."""
        count = len(value.shape)
        chosen = [axes] if isinstance(axes, int) else list(axes) or list(range(count))
        chosen = [axis % count for axis in chosen]
        kept = [axis for axis in range(count) if axis not in chosen]
        numbers = torch.arange(math.prod(value.shape)).reshape(value.shape).permute(kept + chosen)
        shape = tuple(value.shape[axis] for axis in kept)
        found = self._largest(value, numbers.reshape(*shape, -1))
        whole = tuple(1 if axis in chosen else size for axis, size in enumerate(value.shape))
        return TracedArray(found.number, whole if keepdim else shape)

    def do_max(self, value: TracedArray, *rest: Any) -> Any:
        """Of all entries, of two arrays, or along an axis with the places (which are not computed)."""
        if not rest:
            return self.do_amax(value)
        if isinstance(rest[0], TracedArray):
            return self.do_maximum(value, rest[0])
        return self.do_amax(value, *rest), None

    def do_max_pool2d_with_indices(
        self,
        value: TracedArray,
        kernel: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] = (0, 0),
        dilation: Sequence[int] = (1, 1),
        ceil: bool = False,
    ) -> tuple[TracedArray, None]:
        """The largest in each window; padded places never win, so only windows without them are covered."""
        if ceil:
            raise Unsupported("no proof covers max pooling beyond the edge")
        return self._largest(value, self.windows(value, kernel, stride, padding, dilation)), None

    def do_max_pool3d_with_indices(
        self,
        value: TracedArray,
        kernel: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] = (0, 0, 0),
        dilation: Sequence[int] = (1, 1, 1),
        ceil: bool = False,
    ) -> tuple[TracedArray, None]:
        """The same in space."""
        return self.do_max_pool2d_with_indices(value, kernel, stride, padding, dilation, ceil)

    def do_adaptive_max_pool2d(self, value: TracedArray, sizes: Sequence[int]) -> tuple[TracedArray, None]:
        """The largest in each of so many windows, from ⌊i·n/m⌋ up to ⌈(i + 1)·n/m⌉."""
        numbers = torch.arange(math.prod(value.shape)).reshape(value.shape)
        for axis, count in enumerate(sizes, len(value.shape) - len(sizes)):
            length = value.shape[axis]
            ends = [(place * length // count, -(-(place + 1) * length // count)) for place in range(count)]
            widest = max(stop - start for start, stop in ends)
            parts = [numbers.narrow(axis, start, stop - start).movedim(axis, -1) for start, stop in ends]
            filled = [torch.nn.functional.pad(part, (0, widest - part.shape[-1]), value=-1) for part in parts]
            numbers = torch.stack(filled, dim=axis)
        return self._largest(value, numbers.flatten(-len(sizes))), None

    do_adaptive_max_pool3d = do_adaptive_max_pool2d

    def do_min(self, value: TracedArray, *rest: Any) -> Any:
        """Minus the largest of the negated."""
        if rest and isinstance(rest[0], TracedArray):
            return self.do_minimum(value, rest[0])
        found = self.do_amax(self.do_neg(value), *rest)
        return (self.do_neg(found), None) if rest else self.do_neg(found)

    def do_amin(self, value: TracedArray, axes: Any = (), keepdim: bool = False) -> TracedArray:
        """The smallest over some axes."""
        return self.do_neg(self.do_amax(self.do_neg(value), axes, keepdim))

    def do_sort(self, value: TracedArray, axis: int = -1, descending: bool = False) -> tuple[TracedArray, None]:
        """Neighbours are exchanged until all are in order (odd-even transposition)."""
        numbers = torch.arange(math.prod(value.shape)).reshape(value.shape).movedim(axis, -1)
        number, shape = self.placed(value, value.shape), tuple(numbers.shape[:-1])
        columns = [
            TracedArray(self.write.take((number,), numbers[..., place].reshape(-1).numpy()), shape)
            for place in range(numbers.shape[-1])
        ]
        if len(columns) > MOST_SORTED:
            raise Unsupported(f"no proof covers sorting more than {MOST_SORTED} numbers")
        for sweep in range(len(columns)):
            for place in range(sweep % 2, len(columns) - 1, 2):
                small = self.do_minimum(columns[place], columns[place + 1])
                large = self.do_maximum(columns[place], columns[place + 1])
                columns[place], columns[place + 1] = (large, small) if descending else (small, large)
        order = torch.arange(numbers.numel()).reshape(numbers.shape[-1], *shape).movedim(0, axis)
        whole = self.write.take(tuple(column.number for column in columns), order.reshape(-1).numpy())
        return TracedArray(whole, value.shape), None

    def do_topk(
        self, value: TracedArray, count: int, axis: int = -1, largest: bool = True, ordered: bool = True
    ) -> tuple[TracedArray, None]:
        """The first of all in order."""
        found, _ = self.do_sort(value, axis, largest)
        numbers = torch.arange(math.prod(value.shape)).reshape(value.shape).narrow(axis, 0, count)
        return TracedArray(self.write.take((found.number,), numbers.reshape(-1).numpy()), tuple(numbers.shape)), None

    def _largest(self, value: TracedArray, numbers: torch.Tensor) -> TracedArray:
        """The largest of the entries that the last axis of `numbers` lists, by comparisons in pairs; −1 never wins."""
        number, shape = self.placed(value, value.shape), tuple(numbers.shape[:-1])
        order = numbers.reshape(-1, numbers.shape[-1]).sort(dim=-1, descending=True).values
        best = TracedArray(self.write.take((number,), order[:, 0].numpy()), (len(order),))
        for column in order[:, 1:].T:
            here = torch.nonzero(column >= 0).flatten()
            if not len(here):
                break
            given = TracedArray(self.write.take((number,), column[here].numpy()), (len(here),))
            before = TracedArray(self.write.take((best.number,), here.numpy()), (len(here),))
            merged = torch.arange(len(order))
            merged[here] = len(order) + torch.arange(len(here))
            sources = best.number, self.do_maximum(before, given).number
            best = TracedArray(
                self.write.take(sources, merged.numpy()) if len(here) < len(order) else sources[1], (len(order),)
            )
        return TracedArray(best.number, shape)
