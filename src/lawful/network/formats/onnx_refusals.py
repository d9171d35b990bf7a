"""Why an operator of an ONNX graph is not read, and what to do about it."""

from __future__ import annotations

from typing import Any

from lawful.errors import Unsupported

DOMAINS = ("", "ai.onnx", "ai.onnx.ml")
ROUNDING = ("Quantize", "Integer", "QLinear")  # in the names of operators that round what passes through them


def unread(node: Any) -> Unsupported:
    """What is said of an operator that nobody here knows."""
    if any(part in node.op_type for part in ROUNDING):
        return Unsupported(
            "is not supported; it rounds what passes through the network: give the model from before its quantisation, "
            "or one whose weights alone are quantised (DequantizeLinear)"
        )
    if node.domain not in DOMAINS:
        return Unsupported(
            f"is not supported (domain {node.domain[:40]!r}); give the model as it was exported, before a runtime's "
            "optimisation fused its nodes"
        )
    return Unsupported("is not supported; give the PyTorch module itself (module:factory), or a graph without it")
