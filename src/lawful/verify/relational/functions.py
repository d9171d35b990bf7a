"""New variables for functions that are no arithmetic: the same value gets the same variable, in all runs."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from lawful.verify.relational.residues import LANES, PRIMES, Lanes, Residues

SMALL_TABLE = 200_000  # values of a function that are remembered one by one, to be met again at another node


@dataclass(eq=False)
class SideValues:
    """One array a run; the same object where runs cannot differ. `below`: entries that are minus infinity in all."""

    sides: list[Any]
    below: np.ndarray[Any, Any] | None = None
    positions: np.ndarray[Any, Any] | None = None  # the integers that a constant is


class FunctionVariables:
    """New variables for functions of values that runs share: the same value gets the same variable."""

    def __init__(self, field: Lanes) -> None:
        self.field = field
        self.known: dict[tuple[str, float], dict[bytes, Residues]] = {}
        self.node: object = None
        self.parted: object = None  # the first node at which one run has a value that the first run has not

    def distinct(self, sides: list[Residues]) -> list[Residues]:
        """The different arrays among the sides."""
        return list({id(each): each for each in sides}.values())

    def spread(
        self, sides: list[Residues], table: Residues, kinds: Any, shape: tuple[int, ...], scale: Any = None
    ) -> SideValues:
        """For each side its part of one long line of results."""
        line = table[:, kinds]
        if scale is not None:
            line = self.field.times(line, scale)
        found: dict[int, Residues] = {}
        start = 0
        for each in self.distinct(sides):
            size = prod(each.shape[1:])
            found[id(each)] = line[:, start : start + size].reshape(LANES, *shape)
            start += size
        return SideValues([found[id(each)] for each in sides])

    def note_parting(self, sides: list[Residues], kinds: Any) -> None:
        """Remember the first node at which one side has values that the first side has not."""
        if self.parted is not None:
            return
        start, first = 0, None
        for each in self.distinct(sides):
            size = prod(each.shape[1:])
            own = np.unique(kinds[start : start + size])
            start += size
            if first is None:
                first = own
            elif not np.isin(own, first).all():
                self.parted = self.node
                return

    def variables(self, sides: list[Residues], shape: tuple[int, ...]) -> SideValues:
        """A variable for every different column of the keys `(lanes, *shape)`."""
        line = np.concatenate([each.reshape(len(each), -1) for each in self.distinct(sides)], axis=1)
        first, kinds = self.field.groups(line)
        self.note_parting(sides, kinds)
        return self.spread(sides, self.field.draw((len(first),)), kinds, shape)

    def function(self, name: str, detail: float, x: SideValues, shape: tuple[int, ...]) -> SideValues:
        """A function of one number whose values are remembered, so that another node or a fold meets them again."""
        sides = self.distinct(x.sides)
        line = np.concatenate([each.reshape(LANES, -1) for each in sides], axis=1)
        first, kinds = self.field.groups(line)
        self.note_parting(x.sides, kinds)
        if len(first) > SMALL_TABLE:
            return self.spread(x.sides, self.field.draw((len(first),)), kinds, shape)
        memory = self.known.setdefault((name, detail), {})
        table = self.field.draw((len(first),))
        for place, column in enumerate(np.ascontiguousarray(line[:, first].T)):
            if name == "power" and bool((column == 1).all()):
                table[:, place] = 1  # a value that is 1 at all points is the number 1
            else:
                table[:, place] = memory.setdefault(column.tobytes(), table[:, place].copy())
        return self.spread(x.sides, table, kinds, shape)

    def homogeneous(
        self, sides: list[Residues], extra: list[Residues] | None, degree: int, even: bool = False
    ) -> SideValues:
        """f with f(s x) = s^degree f(x) for numbers s > 0, degree 0 or 1.

        Values that are multiples of each other have the same quotient of their two points. The multiple is a number
        that has to be recognised: only then its sign is known.
        """
        field, shape = self.field, sides[0].shape[1:]
        line = np.concatenate([each.reshape(LANES, -1) for each in self.distinct(sides)], axis=1)
        beside = None
        if extra is not None:
            chosen = {id(one): two for one, two in zip(sides, extra, strict=True)}
            beside = np.concatenate([chosen[id(each)].reshape(LANES, -1) for each in self.distinct(sides)], axis=1)
        one, two = line[:PRIMES], line[PRIMES:]
        ratio = field.times(two, field.inverse(one))
        zero = np.asarray(~line.any(0))
        keys = np.concatenate([ratio, zero[None].astype(np.int64)] + ([] if beside is None else [beside]))
        first, kinds = field.groups(keys)
        scale = field.times(one, field.inverse(one[:, first[kinds]]))
        scale[:, zero] = 1
        scales, which = field.groups(scale)
        numbers = [field.number(scale[:, place]) for place in scales]
        sign = np.array([0 if each is None else (1 if each > 0 else -1) for each in numbers])[which]
        # Three kinds of variables: of the value that came first, of its opposite, and of what is no known multiple.
        own = np.zeros(len(kinds), dtype=np.int64)
        if (sign == 0).any():
            whole = line if beside is None else np.concatenate([line, beside])
            own = field.groups(whole)[1] + 1
        opposite = (sign < 0) & (not even)
        firsts, final = field.groups(np.stack([kinds, np.where(sign == 0, own, 0), opposite]).astype(np.int64))
        self.note_parting(sides, final)
        table = field.draw((len(firsts),))
        if degree == 0:
            return self.spread(sides, table, final, shape)
        table[:, zero[firsts]] = 0
        size = np.where(sign < 0, field.primes_for(scale) - scale, scale)
        size = np.where(sign == 0, 1, size)
        return self.spread(sides, table, final, shape, np.concatenate([size, size]))
