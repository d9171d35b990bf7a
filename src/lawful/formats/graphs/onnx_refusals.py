"""Why an operator of an ONNX graph is not read, and what to do about it."""

from __future__ import annotations

from typing import Any

from lawful.errors import Unsupported

DOMAINS = ("", "ai.onnx", "ai.onnx.ml")
ROUNDING = ("Quantize", "Integer", "QLinear")  # in the names of operators that round what passes through them


def unread(node: Any) -> Unsupported:
    """What is said of an operator that nobody here knows."""
    if node.domain not in DOMAINS:
        return Unsupported(
            f"is not supported (domain {node.domain[:40]!r}); give the model as it was exported, before a runtime's "
            "optimisation fused its nodes"
        )
    return Unsupported(f"is not supported; {advice(node.op_type)}")


def advice(place: str) -> str:
    """What to do about an operator that is named in these words."""
    if any(part in place for part in ROUNDING):
        return (
            "it rounds what passes through the network: give the model from before its quantisation, or one whose "
            "weights alone are quantised (DequantizeLinear)"
        )
    return "give the PyTorch module itself (module:factory), or a graph without it"
