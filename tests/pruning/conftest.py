"""The modules to prune are importable by the tests beside them, and so are the forgers' tools."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "verify")]
