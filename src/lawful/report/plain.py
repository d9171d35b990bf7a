"""Values made of JSON's own types."""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import Enum
from fractions import Fraction
from typing import Any


def plain(value: Any) -> Any:
    """Arrays become lists, fractions text, infinities and NaN null.

    >>> import numpy as np
    >>> plain({"a": np.arange(2), "b": (Fraction(1, 3), float("inf"))})
    {'a': [0, 1], 'b': ['1/3', None]}
    """
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if isinstance(value, Enum):
        return plain(value.value)
    if hasattr(value, "tolist"):  # NumPy arrays and scalars, tensors
        return plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Fraction):
        return str(value)
    return value
