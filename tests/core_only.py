"""Run the command line as if only the core were installed: `python core_only.py '[["show", "3-2 relu"], ...]'`."""

from __future__ import annotations

import json
import sys
from importlib.abc import MetaPathFinder
from typing import Any

EXTRA = (
    "torch", "onnx", "onnxruntime", "sklearn", "matplotlib", "pandas", "dask", "distributed", "pyarrow", "lightning",
    "sympy", "networkx",
)  # fmt: skip


END = "exit code: "  # a line behind what each command says


class Nothing(MetaPathFinder):
    """No extra can be found."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name.partition(".")[0] in EXTRA:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def hide() -> None:
    """From now on no extra can be imported in this process."""
    sys.meta_path.insert(0, Nothing())


if __name__ == "__main__":
    hide()
    from lawful.cli import main

    for words in json.loads(sys.argv[1]):
        sys.argv[1:], code = words, 0
        try:
            main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        sys.stderr.flush()
        print(f"{END}{code}", flush=True)
