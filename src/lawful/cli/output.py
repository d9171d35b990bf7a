"""How verbs speak: one JSON object, or text for people."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import typer


def print_json(result: Mapping[str, Any]) -> None:
    """One strict JSON object on stdout: arrays become lists, fractions text, infinities and NaN null."""
    typer.echo(json.dumps(plain(result), allow_nan=False, ensure_ascii=False, indent=1))


def plain(value: Any) -> Any:
    """A value made of JSON's own types.

    >>> import numpy as np
    >>> plain({"a": np.arange(2), "b": (Fraction(1, 3), float("inf"))})
    {'a': [0, 1], 'b': ['1/3', None]}
    """
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):  # NumPy arrays and scalars, tensors
        return plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Fraction):
        return str(value)
    return value
