"""What can be folded in a program, and the numbers that are left in place of what was folded."""

from __future__ import annotations

from typing import Literal

from lawful.checkpoints.rewrite.folds import Fold, GainFold, LinearReader, StatisticsFold
from lawful.program.passes.fold import ContractionLayer, LayerReader, ScaleAndShift, Statistics
from lawful.program.program import Node, Program

Folding = Literal["all", "statistics", "none"]


def find_folds(program: Program, *, shared: bool = False, kinds: Folding = "all") -> tuple[Fold, ...]:
    """What can be folded, in the order in which the program runs.

    `shared`: also into weights that are used elsewhere, for those who have a weight of its own for every use.
    `kinds` may be "statistics" (BatchNorms alone) or "none".
    """
    finder = _Finder(program, shared)
    found: list[Fold] = []
    for node in program.as_run() if kinds != "none" else ():
        statistics = finder.reader.statistics(node)
        one = finder.statistics(statistics) if statistics is not None else None
        if one is None and kinds == "all" and statistics is None and (scale := finder.reader.scale(node)) is not None:
            one = finder.scale(scale)
        if one is not None:
            found.append(one)
    return tuple(found)


def numbers_after(folds: tuple[Fold, ...]) -> dict[str, float]:
    """What scales, shifts and statistics are once they are folded, by name.

    A shift that no bias can take stays, and so does what a BatchNorm has no layer before it for.
    """
    found: dict[str, float] = {}
    for each in folds:
        if isinstance(each, GainFold):
            if each.gain is not None:
                found[each.gain] = 1.0 - each.plus
            if each.offset is not None and all(reader.bias for reader in each.readers):
                found[each.offset] = 0.0
        elif isinstance(each, StatisticsFold):
            found |= {each.mean: 0.0, each.variance: 1.0 - each.epsilon}
            if each.writer is not None:
                found[each.gain] = 1.0
                found |= {} if each.writer.bias is None else {each.writer.bias: 0.0}
    return found


class _Finder:
    def __init__(self, program: Program, shared: bool) -> None:
        self.reader, self.shared = LayerReader(program), shared

    def name(self, leaf: Node | None) -> str | None:
        """The name of a parameter, if nothing else reads it."""
        if leaf is None or not (self.shared or self.reader.is_read_once(leaf)):
            return None
        return str(leaf["name"])

    def linear(self, layer: ContractionLayer) -> LinearReader | None:
        """A layer by names, if nothing else reads its weight; a bias that is shared is none of its own."""
        weight = self.name(layer.weight)
        return None if weight is None else LinearReader(weight, layer.axis, self.name(layer.bias))

    def scale(self, given: ScaleAndShift) -> Fold | None:
        """A scale, or the mean that a centred normalisation takes off, in all layers that read it."""
        gain, offset = self.name(given.scale), self.name(given.shift)
        if (given.scale is not None and gain is None) or (given.shift is not None and offset is None):
            return None
        layers = self.reader.readers(given.result, given.axis)
        readers = [self.linear(layer) for layer in layers or ()]
        if not readers or None in readers:
            return None
        whole = tuple(each for each in readers if each is not None)
        carried = offset is None or all(each.bias for each in whole)
        value = given.value.attributes
        centred = carried and bool(value.get("centre")) and value["axes"] == (given.axis,)
        if gain is None and not centred:
            return None
        return GainFold(gain, offset, given.plus, whole, centred)

    def statistics(self, given: Statistics) -> Fold | None:
        """BatchNorm in evaluation, in the layer before it if that is read by nothing else."""
        gain, offset = self.name(given.scale), self.name(given.shift)
        if gain is None or offset is None:
            return None
        layer = self.reader.writer(given.value, 1)
        own = None if layer is None else self.linear(layer)
        writer = None
        if layer is not None and own is not None and (layer.bias is None or own.bias is not None):
            writer = LinearReader(own.weight, 1 - own.axis, own.bias)
        return StatisticsFold(gain, offset, given.mean["name"], given.variance["name"], given.epsilon, writer)
