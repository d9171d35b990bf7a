"""A pruned module as the bytes of a file that runs without its class: a graph and its weights."""

from __future__ import annotations

import copy
import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any

import torch
from torch import nn

from lawful.errors import Unsupported
from lawful.pruning.loading import set_caches


def graph_bytes(module: nn.Module, example: torch.Tensor | tuple[int, ...], suffix: str) -> bytes:
    """`.pt2` (an exported program) or `.onnx`, for inputs like the example."""
    kind = next((tensor.dtype for tensor in module.parameters() if tensor.is_floating_point()), torch.float32)
    given = (example if isinstance(example, torch.Tensor) else torch.zeros(example, dtype=kind),)
    whole = copy.deepcopy(module).eval()
    set_caches(whole, False)
    buffer = io.BytesIO()
    try:
        with _quiet(), torch.no_grad():
            program = torch.export.export(whole, given, strict=False)
            if suffix == ".onnx":
                return _onnx(program)
            torch.export.save(program, buffer)
    except Exception as error:  # whatever an exporter does not know
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise Unsupported(f"PyTorch cannot write this module as {suffix}: {lines[0][:160]}") from None
    return buffer.getvalue()


def _onnx(program: Any) -> bytes:
    found = torch.onnx.export(program, dynamo=True, verbose=False)
    if found is None:
        raise Unsupported("the exporter gave no file")
    return bytes(found.model_proto.SerializeToString())


@contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        yield
