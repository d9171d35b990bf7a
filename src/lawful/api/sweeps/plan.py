"""What to run: a job and the values of its parameters, read from TOML, expanded one job at a time."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lawful.errors import LawfulError
from lawful.formats.io.reading import naming, read_toml
from lawful.network import Architecture, parse_activation

Scalar = str | int | float | bool
Values = Sequence[Scalar]
MAX_CALLS = 10**15
MAX_VALUES = 500_000  # of one parameter, where they are listed
MAX_DEPTH, MAX_WIDTH = 200, 100_000


@dataclass(frozen=True)
class Task:
    """One call: its place in the plan, the job's name and its arguments. The key depends on the call alone."""

    position: int
    job: str
    inputs: Mapping[str, Scalar]

    @property
    def key(self) -> str:
        """A name for the call that is the same in every run and on every machine."""
        text = json.dumps([self.job, dict(self.inputs)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]


@dataclass(frozen=True)
class Plan:
    """A job over the Cartesian product of its parameters' values; `seconds` and `memory` limit one call.

    Without `memory`, each of the local processes may use its share of the machine.

    >>> plan = Plan("count_laws", {"architecture": ["2-2-2 linear", "2-3-2 relu"], "seed": [0, 1]})
    >>> len(plan), [dict(task.inputs)["seed"] for task in plan.tasks()]
    (4, [0, 1, 0, 1])
    """

    job: str
    values: Mapping[str, Values]
    seconds: float = 3600.0
    memory: int | None = None

    def __len__(self) -> int:
        return math.prod(len(choices) for choices in self.values.values())

    def tasks(self) -> Iterator[Task]:
        """The calls in a fixed order, made one at a time."""
        backwards = list(self.values.items())[::-1]
        for position in range(len(self)):
            rest, inputs = position, {}
            for name, values in backwards:
                rest, place = divmod(rest, len(values))
                inputs[name] = values[place]
            yield Task(position, self.job, {name: inputs[name] for name in self.values})


def read_plan(path: Path) -> Plan:
    """Read a sweep from TOML; every mistake is named."""
    with naming(path):
        return plan_from(read_toml(path))


def plan_from(table: Mapping[str, Any]) -> Plan:
    """A plan from the parsed TOML: `job`, `[grid]`, and optionally `[limits]` with `seconds` and `memory_gb`."""
    unknown = set(table) - {"job", "grid", "limits"}
    if unknown or not isinstance(table.get("job"), str) or not isinstance(table.get("grid"), Mapping):
        raise LawfulError(f"a sweep has `job`, `[grid]` and perhaps `[limits]`{_also(unknown)}")
    limits = table.get("limits", {})
    wrong = not isinstance(limits, Mapping) or set(limits) - {"seconds", "memory_gb"}
    if wrong or not all(_is_number(value) and 0 < value < 1e12 for value in limits.values()):
        raise LawfulError("[limits] has `seconds` and `memory_gb`, both positive numbers")
    values = {name: _expand(name, setting) for name, setting in table["grid"].items()}
    empty = [name for name, choices in values.items() if not choices]
    if empty:
        raise LawfulError(f"[grid] {empty[0]} has no values")
    if math.prod(len(choices) for choices in values.values()) > MAX_CALLS:
        raise LawfulError(f"[grid] makes more than {MAX_CALLS:,} calls")
    memory = int(limits["memory_gb"] * 2**30) if "memory_gb" in limits else None
    return Plan(table["job"], values, float(limits.get("seconds", 3600.0)), memory)


def _also(unknown: set[str]) -> str:
    return f", not {sorted(unknown)[0]!r}" if unknown else ""


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _expand(name: str, given: Any) -> Values:
    """One value, a list of values, or a table that describes a family of them."""
    if isinstance(given, (str, int, float, bool)):
        return [given]
    if isinstance(given, list) and all(isinstance(value, (str, int, float, bool)) for value in given):
        return given
    if isinstance(given, dict):
        for kind, (family, allowed) in FAMILIES.items():
            if kind in given:
                unknown = set(given) - {kind, *allowed}
                if unknown:
                    raise LawfulError(f"[grid] {name}: {kind} takes {', '.join(allowed) or 'nothing'}{_also(unknown)}")
                try:
                    return family(given)
                except (KeyError, TypeError, ValueError, OverflowError) as error:
                    raise LawfulError(f"[grid] {name}: {type(error).__name__}: {error}") from None
    kinds = ", ".join(FAMILIES)
    raise LawfulError(f"[grid] {name}: give a value, a list of values, or a table with one of {kinds}")


def _range(given: Mapping[str, Any]) -> Values:
    first, last = (_whole(bound, -MAX_CALLS, MAX_CALLS) for bound in given["range"])
    return range(first, last)


def _random(given: Mapping[str, Any]) -> Values:
    """`{random = 20, low = 1e-4, high = 0.1, log = true, seed = 0}`: numbers drawn once, from a seed."""
    rng = np.random.default_rng(int(given.get("seed", 0)))
    low, high, log = float(given["low"]), float(given["high"]), given.get("log", False)
    if not -1e300 < low <= high < 1e300 or (log and low <= 0):
        raise ValueError(f"low = {low:g} and high = {high:g} are no bounds")
    count = _whole(given["random"], 0, MAX_VALUES)
    if log:
        return [float(v) for v in np.exp(rng.uniform(np.log(low), np.log(high), count))]
    return [float(v) for v in rng.uniform(low, high, count)]


def _random_architectures(given: Mapping[str, Any]) -> Values:
    """P1 Appendix I's kind of draw: `{random_architectures = 50, depth = [2, 5], width = [2, 10], bias = 0.5}`."""
    rng = np.random.default_rng(int(given.get("seed", 0)))
    fewest, most = (_whole(bound, 1, MAX_DEPTH) for bound in given["depth"])
    narrow, wide = (_whole(bound, 1, MAX_WIDTH) for bound in given["width"])
    slope = parse_activation(given.get("activation", "relu"))
    architectures = []
    for _ in range(_whole(given["random_architectures"], 0, MAX_VALUES)):
        depth = int(rng.integers(fewest, most + 1))
        widths = tuple(int(width) for width in rng.integers(narrow, wide + 1, size=depth + 1))
        architectures.append(str(Architecture(widths, slope, bool(rng.random() < float(given.get("bias", 0.0))))))
    return architectures


def _all_architectures(given: Mapping[str, Any]) -> Values:
    """Every layered one up to a size: `{all_architectures = ["linear", "relu bias"], parameters = 60, depth = 4}`.

    `up_to_reversal` keeps one of a network without biases and its transpose: their fields are the same.
    """
    largest = _whole(given["parameters"], 0, MAX_WIDTH)
    deepest = min(_whole(given["depth"], 0, MAX_CALLS), largest)  # every layer has a parameter
    if deepest > MAX_DEPTH:
        raise ValueError(f"depth goes up to {MAX_DEPTH}")
    sizes: list[tuple[tuple[int, ...], float, bool]] = []
    for words in given["all_architectures"]:
        activation, _, more = str(words).partition(" ")
        if more not in ("", "bias"):
            raise ValueError(f"{words!r} is not an activation, perhaps followed by 'bias'")
        slope, bias = parse_activation(activation), bool(more)
        halve = bool(given.get("up_to_reversal", False)) and not bias
        for depth in range(2, deepest + 1):
            for widths in _widths(depth + 1, largest, int(bias)):
                if not halve or widths <= widths[::-1]:
                    sizes.append((widths, slope, bias))
                    if len(sizes) > MAX_VALUES:
                        raise ValueError(f"there are more than {MAX_VALUES:,}: lower parameters or depth")
    return [str(Architecture(*size)) for size in sizes]


def _whole(value: Any, least: int, most: int) -> int:
    if not _is_number(value) or not least <= value <= most or value != int(value):
        raise ValueError(f"{str(value)[:40]} is not a whole number from {least} to {most}")
    return int(value)


def _widths(count: int, parameters: int, bias: int = 0) -> Iterator[tuple[int, ...]]:
    """Width tuples of networks with at most so many parameters: products of neighbours, and biases."""

    def grow(start: tuple[int, ...], left: int) -> Iterator[tuple[int, ...]]:
        missing = count - len(start)
        if missing == 0:
            yield start
            return
        cost, least = start[-1] + bias, (missing - 1) * (1 + bias)  # what the layers after this one need
        for width in range(1, (left - least) // cost + 1):
            yield from grow((*start, width), left - cost * width)

    for first in range(1, parameters + 1):
        yield from grow((first,), parameters)


Family = tuple[Callable[[Mapping[str, Any]], Values], tuple[str, ...]]
FAMILIES: dict[str, Family] = {
    "range": (_range, ()),
    "random": (_random, ("low", "high", "log", "seed")),
    "random_architectures": (_random_architectures, ("depth", "width", "activation", "bias", "seed")),
    "all_architectures": (_all_architectures, ("parameters", "depth", "up_to_reversal")),
}
