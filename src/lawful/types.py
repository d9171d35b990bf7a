"""The array types, once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]
Mask = NDArray[np.bool_]
Residues = NDArray[np.int64]
Singles = NDArray[np.float32]
