"""Whatever a user has, as a program of `lawful.program`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from lawful.api.inputs import ReadOptions, input_shape, open_options, takes
from lawful.errors import InvalidNetwork, LawfulError
from lawful.network import Architecture, Dag, Mlp
from lawful.sources.opening import Source, open_trained

if TYPE_CHECKING:
    from lawful.program import Program

ONE_SAMPLE = 1  # programs know all sizes: where a file leaves the number of samples open, it is one


@takes(ReadOptions)
def read_program(network: Source, **reading: Unpack[ReadOptions]) -> Program:
    """The network as a program of one table of operators, in one normal form: `print(read_program(...).text())`.

    >>> read_program("2-1 linear")
    Program(Mlp(2-1): 3 nodes, 1 parameters)
    """
    input = reading.get("input")
    if isinstance(network, (str, Path)) and Path(network).suffix.lower() == ".onnx" and reading.get("model") is None:
        return _read_file(Path(network), input)
    found = open_trained(network, **open_options(reading))
    if isinstance(found, (Architecture, Mlp, Dag)):
        from lawful.program.frontends.layers import read_layers

        return read_layers(found, ONE_SAMPLE)
    from lawful.program.frontends.torch_export import read_module
    from lawful.symmetry.inputs import examples

    return read_module(found, [each[:ONE_SAMPLE] for each in examples(found, input)])


def _read_file(path: Path, input: Any) -> Program:
    from lawful.extras import needed
    from lawful.formats.graphs import onnx_file
    from lawful.formats.io.reading import naming
    from lawful.program.frontends.onnx import read_onnx

    needed("onnx")
    with naming(path):
        model = onnx_file.complete(onnx_file.parse(path), path.parent)
        program = read_onnx(model, _open_sizes(model, input))
        if not program.outputs:
            raise InvalidNetwork("it computes nothing: the graph has no outputs")
        for name in program.parameters:
            if not np.isfinite(np.asarray(program.tensors[name], dtype=np.float64)).all():
                raise InvalidNetwork(f"{name[:80]!r} holds NaN or infinite values")
        return program


def _open_sizes(model: Any, input: Any) -> dict[str, tuple[int, ...]]:
    """Sizes of the inputs that the file leaves open: the number of samples is 1, the others are given."""
    shape: Any = input_shape(input) or ()
    given: Iterator[tuple[int, ...]] = iter(shape if shape and isinstance(shape[0], tuple) else [shape] * bool(shape))
    held = {each.name for each in model.graph.initializer}
    sizes: dict[str, tuple[int, ...]] = {}
    for entry in model.graph.input:
        dims = entry.type.tensor_type.shape.dim
        stated = [each.dim_value if each.dim_value > 0 else None for each in dims]  # -1 is open, too
        if entry.name in held or None not in stated:
            continue
        own = next(given, None)
        rest = stated[1:] if own is None else list(own)
        if None in rest or len(rest) != len(stated) - 1:
            given_size = "" if own is None else f", of {len(stated) - 1} numbers, not {len(own)}"
            raise LawfulError(
                f"the size of its input {entry.name[:40]!r} is open: give it without the samples, like --input 3,8,8"
                + given_size
            )
        sizes[entry.name] = (stated[0] or ONE_SAMPLE, *rest)
    return sizes
