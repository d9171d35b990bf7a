"""The graph of an ONNX file as everybody reads it: local functions and quantised operators written out."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from lawful.formats.graphs import onnx_file
from lawful.program.frontends.onnx_quantised import lower_quantised


def load(path: Path) -> Any:
    """The model of a file."""
    model = onnx_file.parse(path)
    if model.functions:
        from onnx.inliner import inline_local_functions

        model = inline_local_functions(model)
    return lower_quantised(model, partial(onnx_file.array, folder=path.parent))
