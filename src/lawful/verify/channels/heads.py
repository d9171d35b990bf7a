"""Attention in a program of channels: which channels are queries, keys and values, and that heads leave as wholes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from lawful.verify.core.schema import integers, items, object_with_keys, require, truth

FLAGS = ("rotary", "fixed", "alike", "whole")


@dataclass(frozen=True)
class HeadTables:
    """Channels of the three sources: `queries[group][head]`, `keys[group]`, `values[group]`.

    `rotary`: something mixes the inner channels of queries and keys. `fixed`: their number must not change. `alike`:
    all heads see one mask. `whole`: every query sees some key, so that a constant value stays one.
    """

    queries: tuple[tuple[tuple[int, ...], ...], ...]
    keys: tuple[tuple[int, ...], ...]
    values: tuple[tuple[int, ...], ...]
    rotary: bool
    fixed: bool
    alike: bool
    whole: bool

    @property
    def heads(self) -> int:
        """Heads of a group."""
        return len(self.queries[0])

    @cached_property
    def written(self) -> list[int]:
        """The value's channel behind every channel of the result."""
        return [place for group in self.values for _ in range(self.heads) for place in group]


def read_heads(value: object, channels: Sequence[int], made: int) -> HeadTables:
    """Tables that fit the channels of the three sources and of the result."""
    given = object_with_keys(value, "heads", "queries keys values " + " ".join(FLAGS))
    keys, values = (
        tuple(tuple(integers(row, name, 0, count - 1)) for row in items(given[name], name))
        for name, count in (("keys", channels[1]), ("values", channels[2]))
    )
    queries = tuple(
        tuple(tuple(integers(row, "queries", 0, channels[0] - 1)) for row in items(group, "queries"))
        for group in items(given["queries"], "queries")
    )
    groups = len(keys)
    require(groups > 0 and len(values) == len(queries) == groups, "an attention has other groups")
    require(len({len(row) for row in keys}) == len({len(row) for row in values}) == 1, "heads have other sizes")
    require(len({len(group) for group in queries}) == 1 and len(queries[0]) > 0, "groups have other numbers of heads")
    require(all(len(row) == len(keys[0]) for group in queries for row in group), "queries do not fit their keys")
    require(bool(keys[0]) and bool(values[0]), "an attention without channels")
    for table in (keys, values, tuple(row for group in queries for row in group)):
        flat = [place for row in table for place in row]
        require(len(set(flat)) == len(flat), "an attention takes a channel twice")
    require(made == groups * len(queries[0]) * len(values[0]), "an attention makes another number of channels")
    flags = [truth(given[name], name) for name in FLAGS]
    require(flags[1] or not flags[0], "mixed channels must stay")
    return HeadTables(queries, keys, values, *flags)


def check_grid(heads: HeadTables, keys: Any, values: Any) -> None:
    """What is left of an attention is one: groups leave with all their channels, the others keep equally many."""
    left = list(
        zip(keys[np.array(heads.keys)].sum(1).tolist(), values[np.array(heads.values)].sum(1).tolist(), strict=True)
    )
    staying = {both for both in left if both != (0, 0)}
    require(len(staying) == 1 and all(min(both) > 0 for both in staying), "what is left of the heads has other sizes")
    require(heads.alike or (0, 0) not in left, "a head leaves, and others see another mask")
    require(not heads.fixed or staying.pop()[0] == len(heads.keys[0]), "inner channels leave that must stay")
