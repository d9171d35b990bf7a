"""THE table: every operator once, one file a family; importing it fills `table.OPERATORS`, `table.ATEN`, `table.ONNX`.

To add an operator, write one `define(...)` (what a node means, and its traits) or one `@aten`/`@onnx` function (how
a call is written in operators that there are). No other line is needed: domains follow families and traits.
"""

from lawful.program.operators import (
    arithmetic,
    attention,
    choice,
    contraction,
    contributed,
    elementwise,
    factory,
    lookup,
    movement,
    normalisation,
    recurrent,
    reduction,
    window,
)

__all__ = [
    "arithmetic",
    "attention",
    "choice",
    "contraction",
    "contributed",
    "elementwise",
    "factory",
    "lookup",
    "movement",
    "normalisation",
    "recurrent",
    "reduction",
    "window",
]
