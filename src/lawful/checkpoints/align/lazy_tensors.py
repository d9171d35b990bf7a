"""Tensors that are made when they are asked for: a checkpoint is never in memory as a whole.

Folds join tensors: a gain, the layers that read it and their biases. Such a cluster is folded at once, and every tensor
outside it can wait.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count

import torch

from lawful.checkpoints.rewrite.folds import (
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
from lawful.types import Indices

KEPT = 2**28  # bytes of tensors that are kept once they are made, all together: more saves no time on GPT-2 small
FEW = 2  # of the largest
COARSE = 2.0**-12  # numbers stored with less than this precision are worked with in float32
MANY = 2**22  # if there are so many of them in a tensor


class _Shelf:
    """The tensors that were made last, whoever made them, up to so many bytes together; of large tensors a few, since
    one step looks at several of A's and of B's again and again."""

    def __init__(self) -> None:
        self.held: OrderedDict[tuple[int, str], torch.Tensor] = OrderedDict()
        self.bytes = 0

    def put(self, key: tuple[int, str], tensor: torch.Tensor) -> None:
        self.drop(key)
        self.held[key] = tensor
        self.bytes += tensor.nbytes
        room = max(KEPT, FEW * max(each.nbytes for each in self.held.values()))
        while self.bytes > room and self.held:
            self.bytes -= self.held.popitem(last=False)[1].nbytes

    def get(self, key: tuple[int, str]) -> torch.Tensor | None:
        found = self.held.get(key)
        if found is not None:
            self.held.move_to_end(key)
        return found

    def drop(self, key: tuple[int, str]) -> None:
        if key in self.held:
            self.bytes -= self.held.pop(key).nbytes

    def leave(self, owner: int) -> None:
        for key in [key for key in self.held if key[0] == owner]:
            self.drop(key)


_SHELF = _Shelf()
_OWNERS = count()


class MadeTensors(Mapping[str, torch.Tensor]):
    """Tensors by name; `make` gives one and whatever came with it, and the latest are kept."""

    def __init__(self, names: Iterable[str], make: Callable[[str], Mapping[str, torch.Tensor]]) -> None:
        self._names, self._make = dict.fromkeys(names), make
        self._number = next(_OWNERS)
        weakref.finalize(self, _SHELF.leave, self._number)

    def __getitem__(self, name: str) -> torch.Tensor:
        if name not in self._names:
            raise KeyError(name)
        kept = _SHELF.get((self._number, name))
        if kept is not None:
            return kept
        made = self._make(name)
        for each, tensor in made.items():
            _SHELF.put((self._number, each), tensor)
        return made[name]

    def __contains__(self, name: object) -> bool:
        return name in self._names  # without making it

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def forget(self, names: Iterable[str]) -> None:
        """Make these again the next time."""
        for name in names:
            _SHELF.drop((self._number, name))


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

    >>> from lawful.checkpoints.rewrite.folds import LinearReader
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
    firsts = [names_in(each)[0] for each in folds]
    for group in of.values():
        if id(group) not in made:
            own = tuple(each for each, first in zip(folds, firsts, strict=True) if first in group)
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


def folded_rows(
    state: Mapping[str, torch.Tensor],
    folds: tuple[Fold, ...],
    name: str,
    axis: int,
    places: Indices,
    kinds: Mapping[str, torch.dtype],
) -> torch.Tensor | None:
    """Some rows of a folded tensor, made of the same rows before its folds: one fold at most, of a gain that acts along
    another axis. None if there are other folds.

    >>> import numpy as np
    >>> gain, weight = torch.tensor([1.0, 2.0]), torch.ones(3, 2)
    >>> one = GainFold("gain", None, 0.0, (LinearReader("w", 1, None),), centred=False)
    >>> kinds = dict.fromkeys(("gain", "w"), torch.float64)
    >>> folded_rows({"gain": gain, "w": weight}, (one,), "w", 0, np.array([2]), kinds).tolist()
    [[1.0, 2.0]]
    """
    acting = [each for each in folds if name in names_in(each)]
    own: tuple[Fold, ...] = ()
    if acting:
        only = acting[0]
        if len(acting) > 1 or not isinstance(only, GainFold):
            return None
        readers = tuple(replace(each, bias=None) for each in only.readers if each.weight == name and each.axis != axis)
        if len(readers) != 1 or any(only.gain in names_in(each) for each in folds if each is not only):
            return None
        own = (replace(only, offset=None, readers=readers),)
    needed = [each for each in names_in(own[0]) if each != name] if own else []
    rows = state[name].index_select(axis, torch.as_tensor(places)).to(kinds[name])
    return fold({name: rows} | {each: state[each].to(kinds[each]) for each in needed}, own)[name]
