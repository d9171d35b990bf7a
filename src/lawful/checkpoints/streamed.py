"""Tensors that are made when they are asked for: a checkpoint is never in memory as a whole.

Folds join tensors: a gain, the layers that read it and their biases. Such a cluster is folded at once, and every tensor
outside it can wait.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import torch

from lawful.checkpoints.folds import (
    CentreFold,
    Fold,
    GainFold,
    LinearReader,
    MoveFold,
    State,
    StatisticsFold,
    ValueFold,
    fold,
)

KEPT = 2**29  # bytes of tensors that are kept once they are made
COARSE = 2.0**-12  # numbers stored with less than this precision are worked with in float32
MANY = 2**22  # if there are so many of them in a tensor


class MadeTensors(Mapping[str, torch.Tensor]):
    """Tensors by name; `make` gives one and whatever came with it, and the latest are kept."""

    def __init__(self, names: Iterable[str], make: Callable[[str], Mapping[str, torch.Tensor]]) -> None:
        self._names, self._make = dict.fromkeys(names), make
        self._kept: OrderedDict[str, torch.Tensor] = OrderedDict()
        self._bytes = 0

    def __getitem__(self, name: str) -> torch.Tensor:
        if name not in self._names:
            raise KeyError(name)
        if name in self._kept:
            self._kept.move_to_end(name)
            return self._kept[name]
        made = self._make(name)
        found = made[name]
        self.forget(made)
        for each, tensor in made.items():
            self._kept[each] = tensor
            self._bytes += tensor.nbytes
        while self._bytes > KEPT and self._kept:
            self._bytes -= self._kept.popitem(last=False)[1].nbytes
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def forget(self, names: Iterable[str]) -> None:
        """Make these again the next time."""
        for name in names:
            if name in self._kept:
                self._bytes -= self._kept.pop(name).nbytes


@dataclass(frozen=True)
class FoldCluster:
    """Tensors that folds join, and these folds in order."""

    names: tuple[str, ...]
    folds: tuple[Fold, ...]


def names_in(each: Fold) -> tuple[str, ...]:
    """All tensors of a fold."""
    readers: tuple[LinearReader, ...]
    held: tuple[str | None, ...]
    if isinstance(each, GainFold):
        readers, held = each.readers, (each.gain, each.offset)
    elif isinstance(each, StatisticsFold):
        readers = () if each.writer is None else (each.writer,)
        held = each.gain, each.offset, each.mean, each.variance
    elif isinstance(each, ValueFold):
        readers, held = (each.reader,), (each.bias,)
    elif isinstance(each, CentreFold):
        readers, held = (), (each.tensor, each.amount)
    elif isinstance(each, MoveFold):
        readers, held = (), (each.source, each.target)
    else:
        readers, held = (), (each.tensor,)
    found = [*held, *(name for reader in readers for name in (reader.weight, reader.bias))]
    return tuple(dict.fromkeys(name for name in found if name is not None))


def fold_clusters(names: Iterable[str], folds: Iterable[Fold]) -> dict[str, FoldCluster]:
    """The cluster of every tensor.

    >>> from lawful.checkpoints.folds import LinearReader
    >>> one = GainFold("gain", None, 0.0, (LinearReader("w", 1, "b"),), centred=False)
    >>> found = fold_clusters(["gain", "w", "b", "other"], [one])
    >>> found["w"].names, found["other"].names
    (('gain', 'w', 'b'), ('other',))
    """
    folds = tuple(folds)
    of = {name: {name} for name in names}
    for each in folds:
        joined = set[str]().union(*(of[name] for name in names_in(each)))
        for name in joined:
            of[name] = joined
    made: dict[int, FoldCluster] = {}
    for group in of.values():
        if id(group) not in made:
            own = tuple(each for each in folds if names_in(each)[0] in group)
            made[id(group)] = FoldCluster(tuple(name for name in of if name in group), own)
    return {name: made[id(group)] for name, group in of.items()}


def rounding_unit(kind: torch.dtype) -> float:
    """Half the distance of 1 to the next number."""
    return float(torch.finfo(kind).eps) / 2


def working_types(first: State, second: State) -> dict[str, torch.dtype]:
    """In what every tensor is worked with: float32 where it is large and stored coarsely, otherwise float64."""
    found = {}
    for name, tensor in first.items():
        if tensor.is_floating_point():
            unit = max(rounding_unit(state[name].dtype) for state in (first, second))
            large = tensor.numel() >= MANY and unit >= COARSE
            found[name] = torch.float32 if large else torch.float64
    return found


def stored_size(stored: torch.Tensor, wide: torch.Tensor) -> torch.Tensor:
    """What the rounding of each stored number is relative to: its size, but no less than the type's smallest normal."""
    if not stored.is_floating_point():
        return wide
    return wide.abs().clamp_min(max(torch.finfo(stored.dtype).tiny, torch.finfo(wide.dtype).tiny))


def folded_tensors(
    state: Mapping[str, torch.Tensor],
    folds: tuple[Fold, ...],
    kinds: Mapping[str, torch.dtype] | None = None,
    *,
    absolute: bool = False,
) -> MadeTensors:
    """The tensors of a checkpoint after its folds, in float64 or the types that are asked for.

    `absolute`: instead of each number the sum of the sizes of its terms.
    """
    clusters = fold_clusters(state, folds)

    def make(name: str) -> State:
        cluster = clusters[name]
        given = {each: typed(each, state[each]) for each in cluster.names}
        if absolute:
            given = {each: stored_size(state[each], tensor) for each, tensor in given.items()}
        found = fold(given, cluster.folds, absolute=absolute)
        return {each: typed(each, tensor) for each, tensor in found.items()}

    def typed(name: str, tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_floating_point():
            return tensor
        return tensor.to(torch.float64 if kinds is None else kinds[name])

    return MadeTensors(state, make)
