"""The tensors that a certificate of a copy speaks of, made one by one: as a file has them, joined, cut, constant.

Every number of the file has to be in them. Nothing is kept: a tensor is made again whenever it is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from lawful.errors import NotACertificate
from lawful.verify.core.checkpoint import Array, Shapes
from lawful.verify.core.schema import integer, integers, items, number, object_with_keys, require, truth

Source = str | dict[str, Any]
Taken = dict[str, list[Any]]  # for each tensor of a file, the rows that were taken, None for all


def read_sources(value: object) -> dict[str, tuple[Source, Source]]:
    """For each tensor of the common form, the tensor of each file that it is, or how it is made of some."""
    found: dict[str, tuple[Source, Source]] = {}
    for each in items(value, "tensors", most=1_000_000):
        name, *sources = items(each, "tensors", length=3)
        if not isinstance(name, str) or not all(isinstance(part, (str, dict)) for part in sources):
            raise NotACertificate("tensors: expected a name and two sources")
        require(name not in found, "a tensor is named twice")
        found[name] = (sources[0], sources[1])
    return found


def need_one_reading(
    sources: Mapping[str, tuple[Source, Source]], first: Collection[str], second: Collection[str]
) -> None:
    """A tensor that both files have plays one part: otherwise files in which two tensors are exchanged would be equal.

    Sources may differ where the files name their tensors differently, and where one file lacks a tensor that is tied to
    another: then that other one also stands for itself.
    """
    plain = {name for one, two in sources.values() if one == two for name in _names(one)}
    for one, two in sources.values():
        shared = [name for name in _names(one) if name in second], [name for name in _names(two) if name in first]
        apart = one != two and any(shared)
        tied = isinstance(one, str) and isinstance(two, str) and not all(shared) and plain >= {*shared[0], *shared[1]}
        require(not apart or tied, "a tensor that both files have plays different parts in them")


def _names(source: Source) -> list[str]:
    """The tensors of a file that one is made of."""
    parts = [source] if isinstance(source, str) else items(source.get("parts", []), "tensors", most=64)
    return [part for part in parts if isinstance(part, str)]


class FormTensors:
    """The tensors of the common form in one file."""

    def __init__(self, file: Mapping[str, Array], stored: Shapes, sources: Mapping[str, Source]) -> None:
        self.file, self.stored, self.sources = file, stored, sources
        self.shapes: Shapes = {}
        self._check()

    def made(self, name: str, taken: Taken | None = None) -> Array:
        """One of them, in float64."""
        source, taken = self.sources[name], {} if taken is None else taken
        if isinstance(source, str):
            require(source in self.stored, "a tensor of the certificate is not in the file")
            taken.setdefault(source, []).append(None)
            return np.asarray(self.file[source], dtype=np.float64)
        if "constant" in source:
            parts = object_with_keys(source, "tensors", "constant shape")
            shape = tuple(integers(parts["shape"], "tensors", 1, 10**9, most=8))
            require(math.prod(shape) <= self._room(), "a constant tensor is larger than the file")
            return np.full(shape, number(parts["constant"], "tensors"))
        return self._joined(object_with_keys(source, "tensors", "parts axis transposed rows"), taken)

    @property
    def constants(self) -> set[str]:
        """The tensors that are constants of the certificate and no numbers of the file."""
        return {name for name, source in self.sources.items() if isinstance(source, dict) and "constant" in source}

    def _room(self) -> int:
        return 4 * sum(math.prod(shape) for shape in self.stored.values()) + 1_000

    def _check(self) -> None:
        taken: Taken = {}
        room = self._room()
        for name in self.sources:
            array = self.made(name, taken)
            room -= array.size
            require(room >= 0, "the tensors of a file are used too often")
            require(bool(np.isfinite(array).all()), "a file holds numbers that are not finite")
            self.shapes[name] = array.shape
        for key, shape in self.stored.items():
            require(key in taken, "a file holds tensors that the certificate does not speak of")
            if None not in taken[key]:
                count = shape[taken[key][0][0]] if shape else 1
                rows = np.unique(np.concatenate([rows for _, rows in taken[key]]))
                same_axis = len({axis for axis, _ in taken[key]}) == 1
                require(same_axis and len(rows) == count, "a file holds rows that the certificate does not speak of")

    def _joined(self, parts: dict[str, Any], taken: Taken) -> Array:
        """Tensors (or so many zeros) joined along an axis, then rows of that."""
        turned = truth(parts["transposed"], "tensors")
        pieces: list[Array] = []
        owners: list[tuple[str | None, int]] = []
        axis = integer(parts["axis"], "tensors", 0, 8)
        listed = items(parts["parts"], "tensors", most=64)
        # before anything is made: 64 runs of a million zeros are a line of the certificate and gigabytes of rows
        joined_size = sum(
            math.prod(self.stored.get(part, ())) if isinstance(part, str) else integer(part, "tensors", 1, 1_000_000)
            for part in listed
        )
        require(joined_size <= self._room(), "the tensors of a file are used too often")
        for part in listed:
            if isinstance(part, str):
                require(part in self.stored, "a tensor of the certificate is not in the file")
                piece = np.asarray(self.file[part], dtype=np.float64)
                require(
                    axis < max(piece.ndim, 1) and (not turned or piece.ndim == 2), "a tensor is joined along no axis"
                )
                pieces.append(piece.T if turned else piece)
            else:
                pieces.append(np.zeros(part))
            owners += [(part if isinstance(part, str) else None, row) for row in range(pieces[-1].shape[axis])]
        shapes = {tuple(n for d, n in enumerate(piece.shape) if d != axis) for piece in pieces}
        require(len(shapes) == 1, "tensors that are joined do not fit each other")
        joined = np.concatenate(pieces, axis)
        count = len(owners)
        rows = range(count) if parts["rows"] is None else integers(parts["rows"], "tensors", 0, count - 1)
        require(len(set(rows)) == len(rows), "a row is taken twice")
        places: dict[str, list[int]] = {}
        for row in rows:
            owner, place = owners[row]
            if owner is not None:
                places.setdefault(owner, []).append(place)
        for owner, picked in places.items():
            taken.setdefault(owner, []).append((1 - axis if turned else axis, np.array(picked)))
        return np.take(joined, np.array(rows, dtype=int), axis)
