"""How a tensor of the common form is made of those of one file: moved, cut, joined or constant, never computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class TensorSource:
    """Parts (tensors by name, each transposed if so said, or so many zeros) joined along `axis`, then rows picked.

    >>> fused = {"qkv": torch.arange(6.0)[:, None]}
    >>> TensorSource(("qkv",), rows=(2, 3)).made(fused).flatten().tolist()
    [2.0, 3.0]
    """

    parts: tuple[str | int, ...] = ()
    axis: int = 0
    transposed: bool = False
    rows: tuple[int, ...] | None = None
    constant: float | None = None
    shape: tuple[int, ...] = ()

    @property
    def plain(self) -> str | None:
        """The name of the tensor that this is, as it stands."""
        if self.constant is None and self.rows is None and not self.transposed and len(self.parts) == 1:
            return self.parts[0] if isinstance(self.parts[0], str) else None
        return None

    @property
    def names(self) -> tuple[str, ...]:
        """The tensors that it is made of."""
        return tuple(part for part in self.parts if isinstance(part, str))

    def made(self, state: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """The tensor."""
        if self.constant is not None:
            like = next((each for each in state.values() if each.is_floating_point()), torch.zeros(0))
            return torch.full(self.shape, self.constant, dtype=like.dtype)
        if (name := self.plain) is not None:
            return state[name]
        named = {part: state[part].T if self.transposed else state[part] for part in self.names}
        kind = next((tensor.dtype for tensor in named.values()), torch.float32)
        parts = [named[part] if isinstance(part, str) else torch.zeros(part, dtype=kind) for part in self.parts]
        whole = torch.cat(parts, self.axis) if len(parts) > 1 else parts[0]
        return whole if self.rows is None else whole.index_select(self.axis, torch.tensor(self.rows))


def of(name: str) -> TensorSource:
    """A tensor as it stands."""
    return TensorSource((name,))


def constant(value: float, *shape: int) -> TensorSource:
    """A tensor of one value."""
    return TensorSource(constant=value, shape=shape)
