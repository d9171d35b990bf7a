"""How a kernel moves over space."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lawful.errors import InvalidNetwork
from lawful.network.assemble import sizes


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
