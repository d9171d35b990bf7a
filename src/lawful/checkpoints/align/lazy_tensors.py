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

from lawful.checkpoints.rewrite.folds import Fold, GainFold, State, apply_folds, names_in
from lawful.types import Indices

KEPT = 2**28  # bytes of tensors that are kept once they are made, all together: more saves no time on GPT-2 small
FEW = 2  # of the largest
# Large tensors whose numbers are stored with less than this precision are worked with in float32: half precision
# rounds by 2^-11, and an error of 2^-24 of a term is no more than a thousandth of that.
COARSE = 2.0**-12
MANY = 2**22  # numbers of such a tensor


class _Shelf:
    """The tensors that were made last, whoever made them, up to so many bytes together; of large tensors a few, since
    one step looks at several of A's and of B's again and again."""

    def __init__(self) -> None:
        self.tensors: OrderedDict[tuple[int, str], torch.Tensor] = OrderedDict()
        self.bytes = 0

    def put(self, key: tuple[int, str], tensor: torch.Tensor) -> None:
        self.drop(key)
        self.tensors[key] = tensor
        self.bytes += tensor.nbytes
        room = max(KEPT, FEW * max(tensor.nbytes for tensor in self.tensors.values()))
        while self.bytes > room and self.tensors:
            self.bytes -= self.tensors.popitem(last=False)[1].nbytes

    def get(self, key: tuple[int, str]) -> torch.Tensor | None:
        tensor = self.tensors.get(key)
        if tensor is not None:
            self.tensors.move_to_end(key)
        return tensor

    def drop(self, key: tuple[int, str]) -> None:
        if key in self.tensors:
            self.bytes -= self.tensors.pop(key).nbytes

    def drop_owner(self, owner: int) -> None:
        for key in [key for key in self.tensors if key[0] == owner]:
            self.drop(key)


_SHELF = _Shelf()
_OWNERS = count()


class MadeTensors(Mapping[str, torch.Tensor]):
    """Tensors by name; `make` gives one and whatever came with it, and the latest are kept."""

    def __init__(self, names: Iterable[str], make: Callable[[str], Mapping[str, torch.Tensor]]) -> None:
        self._names, self._make = dict.fromkeys(names), make
        self._number = next(_OWNERS)
        weakref.finalize(self, _SHELF.drop_owner, self._number)

    def __getitem__(self, name: str) -> torch.Tensor:
        if name not in self._names:
            raise KeyError(name)
        cached = _SHELF.get((self._number, name))
        if cached is not None:
            return cached
        tensors = self._make(name)
        for other, tensor in tensors.items():
            _SHELF.put((self._number, other), tensor)
        return tensors[name]

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
    for step in folds:
        joined = set[str]().union(*(of[name] for name in names_in(step)))
        for name in joined:
            of[name] = joined
    clusters: dict[int, FoldCluster] = {}
    firsts = [names_in(step)[0] for step in folds]
    for group in of.values():
        if id(group) not in clusters:
            inside = tuple(step for step, first in zip(folds, firsts, strict=True) if first in group)
            clusters[id(group)] = FoldCluster(tuple(name for name in of if name in group), inside)
    return {name: clusters[id(group)] for name, group in of.items()}


def rounding_unit(kind: torch.dtype) -> float:
    """Half the distance of 1 to the next number."""
    return float(torch.finfo(kind).eps) / 2


def working_types(first: State, second: State) -> dict[str, torch.dtype]:
    """In what every tensor is worked with: float32 where it is large and stored coarsely, otherwise float64."""
    types = {}
    for name, tensor in first.items():
        if tensor.is_floating_point():
            unit = max(rounding_unit(state[name].dtype) for state in (first, second))
            large = tensor.numel() >= MANY and unit >= COARSE
            types[name] = torch.float32 if large else torch.float64
    return types


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
        tensors = {member: cast(member, state[member]) for member in cluster.names}
        if absolute:
            tensors = {member: stored_size(state[member], tensor) for member, tensor in tensors.items()}
        folded = apply_folds(tensors, cluster.folds, absolute=absolute)
        return {member: cast(member, tensor) for member, tensor in folded.items()}

    def cast(name: str, tensor: torch.Tensor) -> torch.Tensor:
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
    >>> from lawful.checkpoints.rewrite.folds import LinearReader
    >>> one = GainFold("gain", None, 0.0, (LinearReader("w", 1, None),), centred=False)
    >>> kinds = dict.fromkeys(("gain", "w"), torch.float64)
    >>> folded_rows({"gain": gain, "w": weight}, (one,), "w", 0, np.array([2]), kinds).tolist()
    [[1.0, 2.0]]
    """
    acting = [step for step in folds if name in names_in(step)]
    row_folds: tuple[Fold, ...] = ()
    if acting:
        only = acting[0]
        if len(acting) > 1 or not isinstance(only, GainFold):
            return None
        readers = tuple(
            replace(reader, bias=None) for reader in only.readers if reader.weight == name and reader.axis != axis
        )
        if len(readers) != 1 or any(only.gain in names_in(step) for step in folds if step is not only):
            return None
        row_folds = (replace(only, offset=None, readers=readers),)
    needed = [other for other in names_in(row_folds[0]) if other != name] if row_folds else []
    rows = state[name].index_select(axis, torch.as_tensor(places)).to(kinds[name])
    return apply_folds({name: rows} | {other: state[other].to(kinds[other]) for other in needed}, row_folds)[name]
