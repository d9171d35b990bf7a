"""Values that no operator makes, and calls that the table does not know."""

from __future__ import annotations

from typing import Any

from lawful.program.table import OperatorFamily, define


def _given(arrays: Any, attributes: Any) -> Any:
    raise NotImplementedError("a domain says what its inputs, parameters and buffers are")


define("input", OperatorFamily.LEAF, "given when the program runs", _given, attributes=("name",))
define("parameter", OperatorFamily.LEAF, "held, and changed by training", _given, attributes=("name",))
define("buffer", OperatorFamily.LEAF, "held, and not changed by gradients", _given, attributes=("name",))
define("constant", OperatorFamily.LEAF, "always the same", lambda arrays, a: a["value"], attributes=("value",))
define(
    "opaque",
    OperatorFamily.OPAQUE,
    "a call that the table does not know; it can only be run",
    lambda arrays, a, *operands: a["call"](*operands),
    shape=lambda a, *shapes: a["shape"],
    attributes=("name", "detail", "number", "call", "shape"),
)
