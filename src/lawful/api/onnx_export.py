"""A module as an ONNX file, which is read again and compared with the module before it is written."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lawful.errors import InvalidNetwork, Unsupported
from lawful.extras import needed
from lawful.formats.io.reading import naming
from lawful.formats.io.writing import check_target, write_bytes
from lawful.program.table import Refused
from lawful.sources.files import Written, check_range, describe_rounding

if TYPE_CHECKING:
    from torch import nn

    from lawful.program import Program

SAMPLES = 5  # at which a file is compared with the module; it is made from what the module computes for 2 and for 3
# Both are computed in float64, so that they differ by the rounding of the weights alone: 2^-11 in half precision,
# which a few layers multiply. A wrong axis or slope differs by about 1.
TOLERANCE = {"float64": 1e-9, "float32": 1e-4, "float16": 3e-2}
ONLY_ONE = "for one sample at a time: what its nodes are depends on the number of samples"


def write_module(module: nn.Module, out: str | Path, dtype: str | None = None, input: Any = None) -> Written:
    """Write what a module computes in evaluation, for any number of samples where its nodes do not depend on it.

    The file is read again and compared with the module before it is written.
    """
    from lawful.program.backends.onnx_file import TYPES, write_any_batch, write_onnx
    from lawful.program.frontends.torch_export import read_module
    from lawful.symmetry.inputs import examples

    needed("onnx")
    path = Path(out)
    check_target(path)
    inputs = examples(module, input)
    first = next((str(parameter.dtype).removeprefix("torch.") for parameter in module.parameters()), "float32")
    real = dtype or (first if first in TYPES else "float32")

    @cache
    def read(samples: int) -> Program:
        return read_module(module, [tensor[:1].expand(samples, *tensor.shape[1:]).clone() for tensor in inputs])

    with naming(path):
        try:
            model, note = write_any_batch(read, real), ""
            if model is None or not _agrees(model, read(SAMPLES), real):
                model, note = write_onnx(read(1), real), ONLY_ONE
                if not _agrees(model, read(1), real):
                    raise Unsupported("the file would compute something else than the module: a defect, or odd types")
        except Refused as reason:
            raise Unsupported(f"{type(module).__name__} cannot be written as an ONNX file: {reason}") from None
        weights = {name: _array(tensor) for name, tensor in read(1).tensors.items()}
        reals = {name: array for name, array in weights.items() if array.dtype.kind == "f"}
        for name, array in reals.items():
            if not np.isfinite(array).all():
                raise InvalidNetwork(f"{name[:80]!r} holds NaN or infinite values")
            check_range(name, array, real)
        write_bytes(path, model.SerializeToString(deterministic=True))
    return describe_rounding(path, dict.fromkeys(reals, real), reals, note)


def _agrees(model: Any, program: Program, real: str) -> bool:
    """Whether the file, read again, computes what the program does, on random inputs of its size."""
    from lawful.program.domains.evaluate import evaluate
    from lawful.program.frontends.onnx import read_onnx

    entries = [entry.name for entry in model.graph.input]
    try:
        again = read_onnx(model, dict(zip(entries, (node.shape for node in program.inputs), strict=True)))
    except Refused:
        return False
    rng = np.random.default_rng(0)
    values = [
        rng.normal(size=node.shape) if node.kind == "f" else rng.integers(0, 2, node.shape).astype(_WHOLE[node.kind])
        for node in program.inputs
    ]
    by_name = {node["name"]: value for node, value in zip(program.inputs, values, strict=True)}
    named = dict(zip(entries, by_name.values(), strict=True))
    theirs = evaluate(again, *(named[node["name"]] for node in again.inputs))
    return _are_close(theirs, evaluate(program, *values), TOLERANCE[real])


_WHOLE = {"i": np.int64, "b": np.bool_}


def _are_close(theirs: Sequence[Any], ours: Sequence[Any], tolerance: float) -> bool:
    for one, two in zip(theirs, ours, strict=True):
        actual, wanted = (np.asarray(array, dtype=np.float64) for array in (one, two))
        if actual.shape != wanted.shape:
            return False
        scale = np.abs(wanted[np.isfinite(wanted)]).max(initial=1e-6)
        if not np.allclose(actual, wanted, rtol=0, atol=tolerance * scale, equal_nan=True):
            return False
    return True


def _array(held: Any) -> NDArray[Any]:
    return held if isinstance(held, np.ndarray) else np.asarray(held.detach().cpu().double().numpy())
