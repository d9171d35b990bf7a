"""The settings of an ONNX operator, those that the file leaves out included."""

from __future__ import annotations

from typing import Any


def options_of(node: Any, opset: int) -> dict[str, Any]:
    """A node's attributes by name; one that is absent has the value that its standard gives it.

    The standard's numbers are of the same type as the file's: 0.01 left out and 0.01 written down are one float32.

    >>> from onnx.helper import make_node
    >>> left_out, written = make_node("LeakyRelu", ["x"], ["y"]), make_node("LeakyRelu", ["x"], ["y"], alpha=0.01)
    >>> options_of(left_out, 17) == options_of(written, 17) == {"alpha": 0.009999999776482582}
    True
    """
    from onnx import AttributeProto, defs
    from onnx.helper import get_attribute_value

    found = {entry.name: get_attribute_value(entry) for entry in node.attribute}
    if node.domain not in ("", "ai.onnx") or not defs.has(node.op_type):
        return found
    try:
        stated = defs.get_schema(node.op_type, opset, "").attributes
    except defs.SchemaError:  # the operator is younger than the file says it is
        return found
    usual = {name: each.default_value for name, each in stated.items()}
    known = {name: each for name, each in usual.items() if each.type != AttributeProto.UNDEFINED}
    return {**{name: get_attribute_value(each) for name, each in known.items()}, **found}
