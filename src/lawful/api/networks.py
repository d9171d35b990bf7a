"""A network as a whole: describe it, audit it, read it as a program, write it in another format."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Unpack

from lawful.api.inputs import Help, ReadOptions, Seed, input_shape, open_options, takes
from lawful.errors import InvalidNetwork, LawfulError

if TYPE_CHECKING:
    from lawful.api.audit import Audit
    from lawful.formats.queries.data import Data
    from lawful.network import Dag, Mlp
    from lawful.program import Program
    from lawful.sources.files import Written
    from lawful.sources.modules.module_network import ModuleNetwork
    from lawful.sources.opening import Source
    from lawful.sources.summary import Summary, TensorSummary


@takes(ReadOptions)
def show(network: Source, **reading: Unpack[ReadOptions]) -> Summary | TensorSummary:
    """Describe a network: layers, parameters, bottlenecks, dead and linear neurons, balances.

    Of a module that is no graph of scalar weights, or of weights that do not say how they are joined, the tensors.

    >>> show("3-4-1 relu bias").parameters
    21
    """
    from lawful.pruning.removable.activity import settle
    from lawful.sources.files import contents
    from lawful.sources.modules.module_network import ModuleNetwork
    from lawful.sources.opening import open
    from lawful.sources.provenance import read_as, with_provenance
    from lawful.sources.summary import TensorSummary, summarise

    try:
        opened = open(network, **open_options(reading), glance=True)
    except LawfulError as reason:
        is_file = isinstance(network, (str, Path)) and reading.get("model") is None
        tensors = contents(Path(network)) if is_file else None
        if tensors is None:
            raise
        return read_as(TensorSummary(str(network), tensors.layers, str(reason)), tensors)
    if isinstance(opened, ModuleNetwork):
        return with_provenance(TensorSummary(repr(opened), opened.reading.layers, opened.obstacle), opened)
    return with_provenance(settle(summarise(opened), opened), opened)


@takes(ReadOptions)
def convert(
    network: Source,
    out: Annotated[str | Path, Help("File to write; its ending chooses the format.", argument="OUT")],
    *,
    dtype: Annotated[str | None, Help("float64, float32, float16 or bfloat16 [default: as in the source].")] = None,
    seed: Seed = 0,
    **reading: Unpack[ReadOptions],
) -> Written:
    """Write a network in another format; the file's ending chooses it, the function stays the same.

    A module becomes an ONNX file of its own layers; the other formats hold graphs of scalar weights.
    """
    from lawful.network import Architecture
    from lawful.sources.opening import open, open_graph
    from lawful.sources.provenance import with_provenance

    opened = open(network, **open_options(reading))
    if isinstance(opened, Architecture):
        opened = open_graph(network, seed=seed, **open_options(reading))
    input = reading.get("input")
    return with_provenance(write_opened(choose_form(opened, out, input), out, dtype, input), opened)


def choose_form(opened: Mlp | Dag | ModuleNetwork, out: str | Path, input: Any = None) -> Mlp | Dag | ModuleNetwork:
    """What an ONNX file is written of: the module where its graph would repeat shared weights, or lacks its end."""
    from lawful.sources.modules.module_network import ModuleNetwork
    from lawful.sources.opening import module_behind

    reading = opened.reading
    if isinstance(opened, ModuleNetwork) or Path(out).suffix.lower() != ".onnx" or reading is None or reading.changed:
        return opened
    module = module_behind(reading) if reading.entangled or reading.tail else None
    if module is None:
        return opened
    from lawful.symmetry.inputs import examples

    try:
        examples(module, input)
    except LawfulError:  # a graph knows the number of its inputs where a module does not
        return opened
    return ModuleNetwork(module, "", reading)


def write_opened(network: Mlp | Dag | ModuleNetwork, out: str | Path, dtype: str | None, input: Any = None) -> Written:
    """Write a network in the form that was chosen; of a module, only ONNX files."""
    from lawful.api.onnx_export import write_module
    from lawful.sources.files import write
    from lawful.sources.modules.module_network import ModuleNetwork

    if not isinstance(network, ModuleNetwork):
        return write(network, out, dtype=dtype)
    if Path(out).suffix.lower() != ".onnx":
        network.to_dag()  # refused: no other format holds a module
    return write_module(network.module, out, dtype, network.input_shape if input is None else input)


@takes(ReadOptions)
def audit(
    network: Source,
    *,
    source: str = "network",
    data: Data | None = None,
    loss: str = "full",
    effort: str = "normal",
    seed: int = 0,
    **reading: Unpack[ReadOptions],
) -> Audit:
    """Everything we know about a network, in order of consequence, and what to do about it.

    Of a module whose weights are used at many places, or that is no graph of scalar weights: what its symmetries say.

    >>> audit("3-6-4-1 relu bias").components.connected
    True
    """
    from lawful.api.audit import audit as audit_graph
    from lawful.sources.modules.module_network import ModuleNetwork
    from lawful.sources.opening import module_behind, open, open_free
    from lawful.sources.provenance import with_provenance

    opened = open(network, **open_options(reading))
    module = opened.module if isinstance(opened, ModuleNetwork) else None
    if module is None and opened.reading is not None and opened.reading.entangled:
        module = module_behind(opened.reading)
    if module is None:
        return audit_graph(open_free(opened, seed=seed), source=source, data=data, loss=loss, effort=effort)
    from lawful.api.module_audit import audit_module

    if data is not None:
        raise LawfulError("data are for networks of layers: leave them out for this module")
    size = reading.get("input", getattr(opened, "input_shape", None))
    return with_provenance(audit_module(module, size, source=source, effort=effort), opened)


ONE_SAMPLE = 1  # programs know all sizes: where a file leaves the number of samples open, it is one


@takes(ReadOptions)
def read_program(network: Source, **reading: Unpack[ReadOptions]) -> Program:
    """The network as a program of one table of operators, in one normal form: `print(read_program(...).text())`.

    >>> read_program("2-1 linear")
    Program(Mlp(2-1): 3 nodes, 1 parameters)
    """
    from lawful.network import Architecture, Dag, Mlp
    from lawful.sources.opening import open_trained

    input = reading.get("input")
    if isinstance(network, (str, Path)) and Path(network).suffix.lower() == ".onnx" and reading.get("model") is None:
        return _read_file(Path(network), input)
    opened = open_trained(network, **open_options(reading))
    if isinstance(opened, (Architecture, Mlp, Dag)):
        from lawful.program.frontends.layers import read_layers

        return read_layers(opened, ONE_SAMPLE)
    from lawful.program.frontends.torch_export import read_module
    from lawful.symmetry.inputs import examples

    return read_module(opened, [example[:ONE_SAMPLE] for example in examples(opened, input)])


def _read_file(path: Path, input: Any) -> Program:
    import numpy as np

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
    shapes: Iterator[tuple[int, ...]] = iter(shape if shape and isinstance(shape[0], tuple) else [shape] * bool(shape))
    initial = {tensor.name for tensor in model.graph.initializer}
    sizes: dict[str, tuple[int, ...]] = {}
    for entry in model.graph.input:
        dims = entry.type.tensor_type.shape.dim
        stated = [dim.dim_value if dim.dim_value > 0 else None for dim in dims]  # -1 is open, too
        if entry.name in initial or None not in stated:
            continue
        given_sizes = next(shapes, None)
        rest = stated[1:] if given_sizes is None else list(given_sizes)
        if None in rest or len(rest) != len(stated) - 1:
            given_size = "" if given_sizes is None else f", of {len(stated) - 1} numbers, not {len(given_sizes)}"
            raise LawfulError(
                f"the size of its input {entry.name[:40]!r} is open: give it without the samples, like --input 3,8,8"
                + given_size
            )
        sizes[entry.name] = (stated[0] or ONE_SAMPLE, *rest)
    return sizes
