"""A network of channels and the smaller one that replaces it: the same function, and its numbers those that follow.

The certificate lists which channels are gone, and what rows and columns of layers take over. Both networks are run side
by side at random points (`signals.py`): their results have to be the same. The numbers of the smaller one are compared
with what follows from the list (`compare.py`), each rounded.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

import numpy as np
from flint import ctx

from lawful.errors import Unsupported
from lawful.verify.core.balls import BITS
from lawful.verify.core.finding import Finding
from lawful.verify.core.residues import Collision
from lawful.verify.core.schema import (
    check_clock,
    integer,
    integers,
    items,
    limit_cost,
    object_with_keys,
    rational,
    require,
    word,
)
from lawful.verify.core.tensors import weights_digest
from lawful.verify.pruning.compare import ChangedWeights, compare, read_tidying
from lawful.verify.pruning.program import ChannelStep, Move, finder, read_held_tensor, read_program
from lawful.verify.pruning.signals import ChannelRun, Mask

Tie = tuple[int, Any, int, Any]  # channels of one operation, and those of another that they stay or leave with


def check(body: dict[str, Any], networks: Sequence[Any] = ()) -> Finding:
    """How many channels went while the function stayed, up to rounding; tensors held by digest are in `networks`."""
    keys = "program results before after others added folded dropped lost gone moves"
    parts = object_with_keys(body, "certificate", keys)
    find = finder(networks)
    before, after = (
        {
            str(name): read_held_tensor(tensor, str(name), find)
            for name, tensor in object_with_any_keys(parts[key], key).items()
        }
        for key in ("before", "after")
    )
    others = {str(name): line for name, line in object_with_any_keys(parts["others"], "others").items()}
    require(all(isinstance(line, str) and len(line) < 400 for line in others.values()), "others: expected texts")
    require(not set(others) & (set(before) | set(after)), "a tensor is both read and not read")
    lost = {word(name, "lost", *others) for name in items(parts["lost"], "lost", most=len(others))}
    stay = {name: line for name, line in others.items() if name not in lost}
    digests = tuple(
        weights_digest({name: tensor.line for name, tensor in tensors.items()} | rest)
        for tensors, rest in ((before, others), (after, stay))
    )
    steps = read_program(parts["program"], before)
    for name in dict.fromkeys(str(item["tensors"]["weight"]) for item in parts["program"] if "transposed" in item):
        require(name in after, "a tensor is missing")
        after[name] = after[name].transpose()
    results = integers(parts["results"], "results", 0, len(steps) - 1, most=1000)
    _require_outputs(steps, results)
    tidying = read_tidying(parts["added"], parts["folded"], parts["dropped"], steps, results)
    tied = _tied_channels(steps)
    pinned = _spread(tied, _fixed_channels(steps, results))
    stated = [np.zeros(step.channels, dtype=bool) for step in steps]
    for item in items(parts["gone"], "gone"):
        at, place = integers(item, "gone", 0, length=2)
        require(at < len(steps) and place < steps[at].channels, "a channel is not there")
        stated[at][place] = True
    gone = _spread(tied, stated)
    require(
        not any((one & two).any() for one, two in zip(gone, pinned, strict=True)), "a channel that must stay leaves"
    )
    moves = [_move(item, steps, gone) for item in items(parts["moves"], "moves", most=1_000_000)]
    columns = [(move.step, move.place) for move in moves if move.kind != "row"]
    require(len(set(columns)) == len(columns), "a channel is taken over twice")
    _limit_work(steps, before, moves)
    alive = [~mask for mask in gone]
    with ctx.workprec(BITS):
        run = _run(steps, before, alive, moves, tidying.dropped, results)
        weights = ChangedWeights(steps, before, alive)
        weights.apply_all(moves, run.folded)
        compare(weights, after, tidying)
    layers = [at for at, step in enumerate(steps) if step.kind == "layer" and step.first is None]
    hidden = sum(int((~pinned[at]).sum()) for at in layers)
    left = hidden - sum(int(gone[at].sum()) for at in layers)
    name = hashlib.sha256(json.dumps([parts["program"], results], sort_keys=True).encode()).hexdigest()
    # The module may read the others all the same: that is for whoever knows the module to say.
    facts = {
        "channels_before": hidden, "channels_after": left, "program": name, "unread": sorted(others),
        "lost": sorted(lost), "folded": len(tidying.folded), "dropped": len(tidying.dropped),
        "error": f"2^-{run.check_chance()}",
    }  # fmt: skip
    return Finding(facts, digests)


def _run(
    steps: list[ChannelStep],
    before: Any,
    alive: list[Mask],
    moves: list[Move],
    dropped: Sequence[int],
    results: list[int],
) -> ChannelRun:
    """Both networks side by side; once more with other primes where two values shared a hash."""
    for _ in range(3):
        run = ChannelRun(steps, before, alive, moves, dropped)
        try:
            same = run.same_results(results)
        except Collision:
            continue
        where = "" if run.parted is None else f" (their values part at operation {run.parted})"
        require(same, f"the smaller network computes another function{where}")
        run.check_chance()
        return run
    raise Unsupported("random points collide again and again")


def _require_outputs(steps: list[ChannelStep], results: list[int]) -> None:
    """Every weight leads to a result: a function without outputs, or with fewer, is the same as any other."""
    leads = set(results)
    for at in reversed(range(len(steps))):
        if at in leads:
            leads |= set(steps[at].sources)
    require(all(at in leads for at, step in enumerate(steps) if step.tensors), "weights lead to none of the results")


def object_with_any_keys(value: object, where: str) -> dict[str, Any]:
    """An object with any keys."""
    return object_with_keys(value, where, "", " ".join(value) if isinstance(value, dict) else "")


def _ties(steps: list[ChannelStep]) -> Iterator[Tie]:
    """Channels that leave together: those that are added, multiplied, scored, passed on, or made by one layer."""
    for at, step in enumerate(steps):
        every = np.arange(step.channels)
        if step.heads is not None:
            yield at, every, step.sources[2], np.array(step.heads.written)
            queries, keys = np.array(step.heads.queries), np.array(step.heads.keys)
            yield step.sources[0], queries, step.sources[1], np.broadcast_to(keys[:, None], queries.shape)
            if step.heads.rotary:
                yield step.sources[1], keys, step.sources[1], np.broadcast_to(keys[:, :1], keys.shape)
        elif step.kind == "cat":
            start = 0
            for source in step.sources:
                count = steps[source].channels
                yield at, np.arange(start, start + count), source, np.arange(count)
                start += count
        elif step.kind == "part":
            yield at, every, step.sources[0], every + step.start
        elif step.kind not in ("input", "other", "layer"):
            yield from ((at, every, source, every // step.width) for source in step.sources)
        if step.first is not None:
            below, source = step.sources[0], steps[step.first].sources[0]
            yield at, every, step.first, every
            yield below, np.arange(steps[below].channels), source, np.arange(steps[source].channels)


def _tied_channels(steps: list[ChannelStep]) -> tuple[Any, Any]:
    """For every channel of all operations the first of those that it is tied to, and where each operation starts.

    Roots take over the smallest root that they are tied to and paths are shortened, as long as a tie joins two roots: a
    chain of n ties takes about log n rounds, whichever way they are listed.
    """
    starts = np.cumsum([0, *(step.channels for step in steps)])
    pairs = [(starts[one] + np.ravel(here), starts[two] + np.ravel(there)) for one, here, two, there in _ties(steps)]
    first, second = (
        np.concatenate([np.zeros(0, np.intp), *ends]) for ends in (zip(*pairs, strict=True) if pairs else ((), ()))
    )
    root = np.arange(starts[-1])
    while not np.array_equal(root[first], root[second]):
        check_clock()
        one, two = root[first], root[second]
        np.minimum.at(root, np.maximum(one, two), np.minimum(one, two))
        while not np.array_equal(root, shorter := root[root]):
            root = shorter
    return root, starts


def _spread(tied: tuple[Any, Any], masks: list[Mask]) -> list[Mask]:
    """Everything that leaves (or stays) with some channels."""
    root, starts = tied
    marked = np.zeros(len(root), dtype=bool)
    marked[root[np.concatenate(masks)]] = True
    return np.split(marked[root], starts[1:-1])


def _fixed_channels(steps: list[ChannelStep], results: list[int]) -> list[Mask]:
    """Inputs, results, and all that an operation reads or makes that is not followed."""
    fixed = set(results)
    for at, step in enumerate(steps):
        if step.kind in ("input", "other"):
            fixed |= {at, *step.sources}
    return [np.full(step.channels, at in fixed) for at, step in enumerate(steps)]


def _move(value: object, steps: list[ChannelStep], gone: list[Mask]) -> Move:
    """What rows or columns of a layer take over; the row or column itself leaves, and those that take over stay."""
    parts = items(value, "moves", most=4)
    kind = word(parts[0] if parts else None, "moves", "column", "constant", "row")
    items(parts, "moves", length=3 if kind == "constant" else 4)
    at = integer(parts[1], "moves", 0, len(steps) - 1)
    step = steps[at]
    require(step.kind == "layer" and step.first is None, "what takes over is no layer, or a later use of one")
    leaving = gone[at if kind == "row" else step.sources[0]]
    terms = []
    for term in items(parts[3], "moves", most=len(leaving)) if kind != "constant" else []:
        place, factor = items(term, "moves", length=2)
        terms.append((integer(place, "moves", 0, len(leaving) - 1), rational(factor, "moves")))
    place = integer(parts[2], "moves", 0, len(leaving) - 1)
    require(bool(leaving[place]), "what takes over is said of a channel that stays")
    require(place not in {other for other, _ in terms}, "a channel takes over from itself")
    if kind == "row":
        width = step.channels // step.groups
        require(all(other // width == place // width for other, _ in terms), "a row takes over another group's")
    return Move(kind, at, place, tuple(terms))


def _limit_work(steps: list[ChannelStep], before: Any, moves: list[Move]) -> None:
    """Every weight modulo four primes, of which a library does five in a step; each move in fractions."""
    named = {at: step.tensors.get("weight") for at, step in enumerate(steps)}
    sizes = {at: prod(before[name].shape) for at, name in named.items() if name is not None}
    work = 2.0 * sum(sizes.values()) + 20.0 * sum(step.channels for step in steps)
    for move in moves:
        step = steps[move.step]
        across = step.channels if move.kind == "row" else steps[step.sources[0]].channels
        work += 20.0 * (1 + len(move.terms)) * sizes[move.step] / max(1, across)
    for step in steps:
        if step.heads is not None:
            work += 100.0 * sum(len(row) for group in step.heads.queries for row in group)
    limit_cost(work)
