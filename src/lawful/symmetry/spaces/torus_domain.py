"""Scales entry by entry: the label of every entry of every value, and what each family of operators demands of them.

A homogeneous operator passes positive scales, whichever it is: entries that it combines must have one logarithm t, and
its result has `degree · t`. Nothing more is asked of the table. What is not homogeneous has t = 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from lawful.program.arrays import NUMPY
from lawful.program.domains.interpret import AbstractDomain, interpret
from lawful.program.index_map import IndexMap
from lawful.program.program import Node, Program
from lawful.symmetry.demands.contractions import SumLetters
from lawful.symmetry.demands.labels import align, compact
from lawful.symmetry.demands.motion import Shape, move_labels
from lawful.symmetry.solver.logarithms import Logarithms
from lawful.types import Residues


def read_logarithms(program: Program, shapes: Mapping[str, Shape]) -> tuple[dict[str, Residues], Logarithms]:
    """The label of every entry of each parameter (0 if nothing reads it), and the equations that operators demand."""
    domain = TorusDomain(shapes)
    for value in interpret(program, domain).values():
        domain.torus.pin(value)
    return domain.entries, domain.torus


class TorusDomain(AbstractDomain[torch.Tensor]):
    """Labels of logarithms, entry by entry; label 0 stands still."""

    def __init__(self, shapes: Mapping[str, Shape]) -> None:
        self.torus = Logarithms()
        self.entries = {name: np.zeros(int(np.prod(shape, dtype=int)), np.int64) for name, shape in shapes.items()}

    def leaf(self, node: Node) -> torch.Tensor:
        """The entries of parameters that train; all else stands still."""
        if node.op != "parameter" or node["name"] not in self.entries:
            return _still(node.shape)
        labels = self.torus.fresh(node.size)
        self.entries[node["name"]] = labels.numpy()
        return labels.reshape(node.shape)

    def movement(self, node: Node, *sources: torch.Tensor) -> torch.Tensor:
        """Labels move like entries."""
        if len(sources) == 1:
            return compact(move_labels(sources[0], node["map"]))
        at = torch.from_numpy(np.ascontiguousarray(node["map"].positions)).reshape(node.shape)
        return compact(torch.cat([each.reshape(-1) for each in sources])[at])

    def addition(self, node: Node, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Both have one scale."""
        return self._homogeneous(node, x, y, degree=1.0)

    def product(self, node: Node, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Scales multiply: logarithms add up."""
        return self.torus.total(align(x, node.shape), align(y, node.shape))

    def contraction(self, node: Node, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """All products that are summed have one scale; convolutions are not followed."""
        if "spec" not in node.attributes:
            return self.opaque(node, x, y)
        letters = SumLetters(node["spec"], tuple(x.shape), tuple(y.shape))
        total = self.torus.total(letters.placed(x, letters.x), letters.placed(y, letters.y), summed=letters.line)
        return letters.result(total.reshape(letters.shape))

    def lookup(self, node: Node, *operands: torch.Tensor) -> torch.Tensor:
        """Nobody knows what is picked: one scale along the axis, so that any position shows where entries go."""
        if len(operands) > 2:  # what is written somewhere
            return self.opaque(node, *operands)
        table, index = operands
        self.torus.pin(index)
        where: Any = np.arange(node.inputs[0].size).reshape(node.inputs[0].shape)
        at = node.operator.meaning(NUMPY, node.attributes, where, np.zeros(node.inputs[1].shape, np.int64))
        level = self.torus.level(table, [int(node["axis"])]).expand(table.shape)
        return compact(move_labels(level, IndexMap.of(np.asarray(at))))

    def other(self, node: Node, *operands: torch.Tensor) -> torch.Tensor:
        """Functions by their degree in all real operands together; what has none sees every scale."""
        degree = node.traits.degree if node.traits.gradient else None
        if degree is not None and node.inputs:
            return self._homogeneous(node, *operands, degree=float(degree))
        return self.opaque(node, *operands)

    def opaque(self, node: Node, *operands: torch.Tensor) -> torch.Tensor:
        """A call that the table does not know sees every scale."""
        for each in operands:
            self.torus.pin(each)
        return _still(node.shape)

    def _homogeneous(self, node: Node, *operands: torch.Tensor, degree: float) -> torch.Tensor:
        """`f(s x) = s^degree f(x)`: the entries that make an entry of the result have one scale s.

        Along an axis of its own, f combines all of them. Conditions (truth values, integers) stand still.
        """
        axes = [*node.attributes.get("axes", ()), *([node["axis"]] if "axis" in node.attributes else [])]
        first: torch.Tensor | None = None
        for operand, source in zip(operands, node.inputs, strict=True):
            if source.kind != "f":
                self.torus.pin(operand)
                continue
            labels = self.torus.level(operand, [int(axis) for axis in axes])
            labels = align(labels, node.shape)
            if first is None:
                first = labels
            else:
                self.torus.same(first, labels)
        if first is None or degree == 0:
            return _still(node.shape)
        return first if degree == 1 else self.torus.total(_still(node.shape), first, degree)


def _still(shape: Shape) -> torch.Tensor:
    return torch.zeros((), dtype=torch.int64).expand(shape)
