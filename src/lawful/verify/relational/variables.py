"""Values of several runs of one program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lawful.verify.relational.functions import FunctionVariables, SideValues
from lawful.verify.relational.program import ListedNode, ListedProgram
from lawful.verify.relational.residues import Lanes, NotCovered, Residues
from lawful.verify.relational.weights import Weight

Leaf = Residues | Weight


class Variables(FunctionVariables):
    """What runs of one program share: the lanes, and the variables that functions have got."""

    def __init__(
        self,
        field: Lanes,
        program: ListedProgram,
        leaves: list[dict[str, Leaf]],
        generic: list[bool],
        held: Callable[[str], np.ndarray[Any, Any]],
    ) -> None:
        super().__init__(field)
        self.program, self.leaves, self.generic, self.held = program, leaves, generic, held
        self.node: ListedNode = program.nodes[0]

    def each(self, change: Callable[..., Any], *values: SideValues) -> list[Any]:
        """A function of the arrays of each side, computed once for the same arrays."""
        done: dict[tuple[int, ...], Any] = {}
        found = []
        for arrays in zip(*(value.sides for value in values), strict=True):
            key = tuple(map(id, arrays))
            if key not in done:
                done[key] = change(*arrays)
            found.append(done[key])
        return found

    def dense(self, value: SideValues) -> SideValues:
        """Parameters written out."""
        if not any(isinstance(side, Weight) for side in value.sides):
            return value
        made = self.each(lambda w: w.write_out(self.field) if isinstance(w, Weight) else w, value)
        return SideValues(made, value.below, value.positions)

    def finite(self, *values: SideValues) -> None:
        """Refuse minus infinity where no rule speaks of it."""
        if any(value.below is not None for value in values):
            raise NotCovered(f"minus infinity in {self.node.op}")
