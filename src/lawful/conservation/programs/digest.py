"""The name of the program that a module is: what a certificate of its laws is about."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from lawful.conservation.certificate import program_name
from lawful.conservation.programs.module_function import lower, probe
from lawful.conservation.rank_proof import program_batch
from lawful.errors import LawfulError, Unsupported
from lawful.extras import needed
from lawful.program.domains.straighten import straighten
from lawful.program.frontends.onnx import read_onnx


def program_digests(module: torch.nn.Module, input_shape: tuple[int, ...] | None = None) -> tuple[str, ...]:
    """The digests of its programs in both modes; weights do not count, buffers do.

    Where an output has several axes the classes of cross-entropy may stand on any of them.
    """
    digests: list[str] = []
    for mode in ("train", "eval"):
        try:
            case = probe(module, input_shape, None, "full", mode)
        except LawfulError:  # train mode may be random in a way that is not read
            if mode == "eval" and not digests:
                raise
            continue
        digests.append(program_name(lower(case, program_batch(case))))
        for axis in range(1, len(case.output_shape)):
            with suppress(LawfulError):  # an output that has no classes
                case = probe(module, input_shape, None, "cross-entropy", mode, axis)
                digests.append(program_name(lower(case, program_batch(case))))
    return tuple(dict.fromkeys(digests))


def file_digest(model: Any) -> str:
    """The digest of the program of an ONNX file (or `ModelProto`) for one sample: that of the module it came from."""
    if isinstance(model, (str, Path)):
        model = needed("onnx").load(str(model))
    stored = {tensor.name for tensor in model.graph.initializer}
    inputs = {value.name: value.type.tensor_type.shape.dim for value in model.graph.input if value.name not in stored}
    if any(size.dim_value <= 0 for dims in inputs.values() for size in dims[1:]):
        raise Unsupported("the sizes of its inputs are open beside the number of samples")
    sizes = {name: (1, *(size.dim_value for size in dims[1:])) for name, dims in inputs.items()}
    program = read_onnx(model, sizes, exact=True)
    shapes = {name: program.parameters[name].shape for name in program.tensors if name in program.parameters}
    return program_name(straighten(program, shapes))
