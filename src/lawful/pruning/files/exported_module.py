"""A pruned module as the bytes of a file that runs without its class: a graph and its weights."""

from __future__ import annotations

import copy
import io
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any

import torch
from torch import nn

from lawful.errors import Unsupported
from lawful.pruning.files.hugging_face_config import without_caches
from lawful.sources.onnx.network import resize_file


def same_nodes(source: Path, module: nn.Module, examples: Sequence[torch.Tensor | tuple[int, ...]]) -> bytes | None:
    """An ONNX file with smaller initializers, where a module came from one whose nodes still fit."""
    if not source.is_file():
        return None
    generator = torch.Generator().manual_seed(0)
    sizes = [tuple(each.shape) if isinstance(each, torch.Tensor) else each for each in examples]
    whole = [isinstance(each, torch.Tensor) and not each.is_floating_point() for each in examples]
    given = [
        each if isinstance(each, torch.Tensor) and ids else torch.randn(size, generator=generator)
        for each, size, ids in zip(examples, sizes, whole, strict=True)
    ]
    return resize_file(source, module, given)


def graph_bytes(
    module: nn.Module, examples: Sequence[torch.Tensor | tuple[int, ...]], suffix: str, *, any_batch: bool = False
) -> bytes:
    """`.pt2` (an exported program) or `.onnx`, for inputs like the examples; for `any_batch` where that can be said."""
    kind = next((tensor.dtype for tensor in module.parameters() if tensor.is_floating_point()), torch.float32)
    given = tuple(each if isinstance(each, torch.Tensor) else torch.zeros(each, dtype=kind) for each in examples)
    whole = copy.deepcopy(module).eval()
    without_caches(whole)
    buffer = io.BytesIO()
    try:
        with _quiet(), torch.no_grad():
            program = _exported(whole, given, any_batch=any_batch)
            if suffix == ".onnx":
                return _onnx(program)
            torch.export.save(program, buffer)
    except Exception as error:  # whatever an exporter does not know
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise Unsupported(f"PyTorch cannot write this module as {suffix}: {lines[0][:160]}") from None
    return buffer.getvalue()


def _exported(module: nn.Module, given: tuple[torch.Tensor, ...], *, any_batch: bool) -> Any:
    if any_batch:
        batch = torch.export.Dim("batch", min=1)
        with suppress(Exception):  # code that looks at the number of samples: a graph for this one is left
            return torch.export.export(module, given, dynamic_shapes=tuple({0: batch} for _ in given), strict=False)
    return torch.export.export(module, given, strict=False)


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
