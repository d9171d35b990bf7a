"""Movements: labels go where entries go. Pieces of several values side by side, masks among them.

Labels of a movement of one value are moved by its index map, and nothing is demanded but that what is left out does not
mix with what is kept. Where pieces of several values meet (concatenation, padding, a causal mask over scores), entries
that are zero or infinite fit every gauge: they take the label of their neighbours, so that a mask does not pin what it
leaves alone. Invariant: a field that comes out is one that all its pieces follow; cost: O(entries of the result) for
pieces side by side, and O(distinct labels) for one value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
import torch

from lawful.program.index_map import IndexMap
from lawful.program.program import Node
from lawful.symmetry.demands.gauges import PINNED, Gauges
from lawful.symmetry.demands.labels import compact, flat, narrow, on, varying
from lawful.symmetry.demands.motion import Follower, Motion, move_labels
from lawful.symmetry.demands.shifts import ZERO, Shift
from lawful.types import Floats, Mask, Residues

IGNORED = -1e30  # a number so low that its exponential is exactly zero beside any other
ANY = -1  # the label of an entry that fits every gauge: zero, or infinite


class MovementFollower(Follower):
    """What movements make of motions, and which entries of parameters they read."""

    def __init__(self, gauges: Gauges) -> None:
        super().__init__(gauges)
        self.fields: dict[str, tuple[torch.Tensor, ...]] = {}
        self.read: dict[str, list[Residues] | None] = {}  # labels that movements pick of parameters; None: all of them

    def follow_movement(self, node: Node, *sources: Motion) -> Motion:
        """Labels move like entries."""
        return self._side_by_side(node, sources) if len(sources) > 1 else self.move(node, sources[0], node["map"])

    def move(self, node: Node, source: Motion, index: IndexMap) -> Motion:
        """A value of which an index map picks entries."""
        result = self.regroup(source, node.shape, lambda labels: move_labels(labels, index))
        self._note_read(source, result.gauges)
        # Where channels are is of no account, only that all are there in their order: a crop or a transpose of images
        # does not part a bias from what is added later.
        if source.absorber is not None and _keeps_line(source, index):
            result = replace(result, absorber=source.absorber)
        if source.scores is not None and node.size == node.inputs[0].size:
            result = replace(result, scores=source.scores.move(lambda labels: move_labels(labels, index)))
        return result

    def _note_read(self, source: Motion, picked: Sequence[torch.Tensor]) -> None:
        if source.raw is not None and self.read.get(source.raw, []) is not None:
            self.read.setdefault(source.raw, []).extend(flat(field) for field in picked)  # type: ignore[union-attr]

    def pin_unread(self) -> None:
        """Pin what an input of this size does not read of a parameter: nothing is said of rows for longer ones."""
        for name, picked in self.read.items():
            if picked is not None:
                known = np.concatenate(picked)
                for field in self.fields[name]:
                    labels = flat(field)
                    rest = labels[~np.isin(labels, known, kind="table")]
                    if len(rest):
                        self.gauges.pin(torch.from_numpy(rest), "movement")

    def _side_by_side(self, node: Node, sources: Sequence[Motion]) -> Motion:
        """Pieces of several values: fields are joined, with standing entries where a piece has none."""
        pieces, start = [], 0
        for source, operand in zip(sources, node.inputs, strict=True):
            count = len(self.shifts.read)
            piece = self.settle(source)
            if source.raw is not None and not _masks(node, operand, start):  # only what is picked counts as read
                del self.shifts.read[count:]
                at = node["map"].positions.reshape(-1)
                entries = torch.from_numpy(np.unique(at[(at >= start) & (at < start + operand.size)]) - start)
                self.shifts.read += [np.asarray(shift.labels.reshape(-1)[entries]) for shift in piece.shifts]
                self._note_read(source, [field.reshape(-1)[entries] for field in source.gauges])
            start += operand.size
            pieces.append(piece)
        if all(piece.zero for piece in pieces):
            return Motion(node.shape, zero=True)
        index = node["map"]
        at = torch.from_numpy(np.ascontiguousarray(index.positions)).reshape(node.shape)

        def join(lines: Sequence[torch.Tensor]) -> torch.Tensor:
            return torch.cat([line.reshape(-1) for line in lines])[at]

        mask = _find_mask(node, pieces, at)
        free = [_entries(piece, lambda value: np.asarray((value == 0) | np.isinf(value)), PINNED) for piece in pieces]
        if all(len(piece.gauges) <= 1 for piece in pieces):
            owners: list[dict[int, torch.Tensor]] = [{n: p.gauges[0] for n, p in enumerate(pieces) if p.gauges}]
        else:
            owners = [{n: field} for n, piece in enumerate(pieces) for field in piece.gauges]
        gauges = []
        for owner in owners:
            if owner:
                wide = join([owner.get(number, line) for number, line in enumerate(free)])
                field = self._label_free_entries(wide)
                if any(not np.isin(flat(before), flat(field), kind="table").all() for before in owner.values()):
                    self.gauges.whole(field)
                gauges.append(field)
        low = [_entries(piece, lambda value: np.asarray(value <= IGNORED), ZERO) for piece in pieces]
        shifts = []
        for number, piece in enumerate(pieces):
            for shift in self.shifts.alive(piece.shifts):
                if mask is not None and mask.hides(number, shift):  # without spelling all entries out
                    shifts.append(replace(shift, masked=True))
                    continue
                parts = [join([part if n == number else line for n, line in enumerate(low)])
                         for part in (shift.labels, shift.phases)]  # fmt: skip
                masked = shift.masked or bool((parts[0] == ANY).any())
                labels, phases = (_fill(part)[0].clamp(min=0) for part in parts)
                shifts.append(replace(shift.move(labels, phases), masked=masked))
        motion = Motion(node.shape, tuple(gauges), self.shifts.plus(shifts, ()))
        return self._masked_scores(node, pieces, motion, at, mask)

    def _label_free_entries(self, wide: torch.Tensor) -> torch.Tensor:
        """A field whose free entries have the label that their neighbours have, or one of their own.

        Where some coordinates of a line are free and others are not, only diagonal gauges pass.
        """
        free = wide == ANY
        if not bool(free.any()):
            return compact(wide)
        field, open_ = _fill(wide)
        axes = varying(field)
        if bool(open_.any()):
            fresh = self.gauges.fresh(int(open_.sum()))
            self.gauges.diagonal(fresh)
            field = field.clone().contiguous()
            field[open_] = fresh
        inside = (free & ~open_).sum(axes) if axes else free.long()
        live = (~open_).sum(axes) if axes else torch.ones_like(inside)
        if bool(((inside > 0) & (inside < live)).any()):
            self.gauges.diagonal(field)
            self.gauges.tell_apart(field, axes)
        return compact(field)

    def _masked_scores(
        self, node: Node, pieces: Sequence[Motion], found: Motion, at: torch.Tensor, simple: EntryMask | None
    ) -> Motion:
        """Scores of which constants replace some entries, in their places."""
        marked = [number for number, piece in enumerate(pieces) if piece.scores is not None]
        if len(marked) != 1 or any(p.known is None for n, p in enumerate(pieces) if n != marked[0]):
            return found
        piece = pieces[marked[0]]
        if simple is not None and simple.number == marked[0] and piece.scores is not None:
            sizes = [n if d in varying(simple.kept) else 1 for d, n in enumerate(node.shape)]
            return replace(found, scores=piece.scores.beside(sizes))
        start = sum(operand.size for operand in node.inputs[: marked[0]])
        size = node.inputs[marked[0]].size
        inside = (at >= start) & (at < start + size)
        entries = torch.arange(size).reshape(piece.shape) + start if piece.shape == node.shape else None
        if entries is None or not bool(((at == entries) | ~inside).all()) or piece.scores is None:
            return found
        mask = compact(torch.where(inside, -1, at))
        return replace(found, scores=piece.scores.beside([n if d in varying(mask) else 1
                                                          for d, n in enumerate(node.shape)]))  # fmt: skip


@dataclass(frozen=True, eq=False)
class EntryMask:
    """A value of which one number replaces some entries, in their places: which are `kept`.

    `number` is its place among the sources; `ignored`: a softmax ignores what is put there.
    """

    number: int
    kept: torch.Tensor
    ignored: bool

    def hides(self, number: int, shift: Shift) -> bool:
        """Whether a shift of the value is itself behind the mask, its labels and phases as they were.

        It is if its labels are constant along an axis of which every line keeps an entry: what is left tells the rest.
        Phases of entries that are gone may be any: fewer that agree only leave fewer shifts.
        """
        still = [d for d in range(shift.labels.dim()) if d not in varying(shift.labels)]
        passing = narrow(self.kept)
        return self.ignored and number == self.number and any(bool(passing.any(d).all()) for d in still)


def _find_mask(node: Node, pieces: Sequence[Motion], at: torch.Tensor) -> EntryMask | None:
    """The mask that a movement of a value and one number is."""
    if len(pieces) != 2:
        return None
    for number, other in ((0, 1), (1, 0)):
        constant, size = pieces[other].known, node.inputs[number].size
        if constant is None or constant.size != 1 or pieces[number].shape != node.shape:
            continue
        start = 0 if number == 0 else 1
        passing = at == torch.arange(start, start + size).reshape(node.shape)
        if not bool((passing | (at == (size if number == 0 else 0))).all()):
            return None
        return EntryMask(number, compact(passing), float(constant.flat[0]) <= IGNORED)
    return None


def _keeps_line(source: Motion, index: IndexMap) -> bool:
    """Whether a movement leaves the one line of a value whole and in its order, so that what is added to it then can be
    added to the parameter behind it as well.

    The line is followed by places, not by labels: `cat([u, u]) + b` repeats the labels of u, and its halves may be
    exchanged without a trace in them, but not without one in b.
    """
    axes = varying(source.gauges[0]) if len(source.gauges) == 1 else ()
    if len(source.gauges) != 1 or len(axes) > 1:
        return False
    places = torch.arange(prod(source.shape[d] for d in axes))
    moved = narrow(compact(move_labels(on(axes, source.shape, places), index)))
    return torch.equal(moved.reshape(-1), places) and len(varying(moved)) == len(axes)


def _masks(node: Node, source: Node, start: int) -> bool:
    """Whether a movement leaves every entry of a source where it is, or out for good."""
    at = node["map"].positions.reshape(-1)
    inside = (at >= start) & (at < start + source.size)
    return node.shape == source.shape and bool((at[inside] - start == np.flatnonzero(inside)).all())


def _entries(piece: Motion, free: Callable[[Floats], Mask], rest: int) -> torch.Tensor:
    """The label of each entry of a standing piece: `ANY` for known numbers that are free, `rest` for the others."""
    known = np.zeros(()) if piece.zero else piece.known
    if known is None:
        return torch.full((), rest, dtype=torch.int64).expand(piece.shape)
    labels = np.where(free(known.astype(np.float64)), ANY, rest)
    return torch.from_numpy(np.broadcast_to(labels, piece.shape).astype(np.int64))


def _fill(wide: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Labels with free entries replaced by what all others along an axis are; and those that stay free."""
    field = wide
    for axis in range(wide.dim()):
        most = field.amax(axis, keepdim=True)
        if bool(((field == most) | (field == ANY)).all()):
            field = most
    field = field.expand(wide.shape)
    return field, field == ANY
