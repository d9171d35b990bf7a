"""A network as a whole: describe it, audit it, write it in another format."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from lawful.api.audit import Audit
from lawful.api.audit import audit as audit_graph
from lawful.api.inputs import ReadOptions, open_options, takes
from lawful.errors import LawfulError
from lawful.network import Architecture, Dag, Mlp
from lawful.pruning.removable.activity import settle
from lawful.sources.files import Written, contents, write
from lawful.sources.modules.module_network import ModuleNetwork
from lawful.sources.opening import Source, module_behind, open, open_free, open_graph
from lawful.sources.provenance import read_as, with_provenance
from lawful.sources.summary import Summary, TensorSummary, summarise

if TYPE_CHECKING:
    from lawful.api.module_audit import ModuleAudit
    from lawful.formats.queries.data import Data


@takes(ReadOptions)
def show(network: Source, **reading: Unpack[ReadOptions]) -> Summary | TensorSummary:
    """Describe a network: layers, parameters, bottlenecks, dead and linear neurons, balances.

    Of a module that is no graph of scalar weights, or of weights that do not say how they are joined, the tensors.

    >>> show("3-4-1 relu bias").parameters
    21
    """
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
    network: Source, out: str | Path, *, dtype: str | None = None, seed: int = 0, **reading: Unpack[ReadOptions]
) -> Written:
    """Write a network in another format; the file's ending chooses it, the function stays the same.

    A module becomes an ONNX file of its own layers; the other formats hold graphs of scalar weights.
    """
    opened = open(network, **open_options(reading))
    if isinstance(opened, Architecture):
        opened = open_graph(network, seed=seed, **open_options(reading))
    input = reading.get("input")
    return with_provenance(write_opened(choose_form(opened, out, input), out, dtype, input), opened)


def choose_form(opened: Mlp | Dag | ModuleNetwork, out: str | Path, input: Any = None) -> Mlp | Dag | ModuleNetwork:
    """What an ONNX file is written of: the module where its graph would repeat shared weights, or lacks its end."""
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
    if not isinstance(network, ModuleNetwork):
        return write(network, out, dtype=dtype)
    if Path(out).suffix.lower() != ".onnx":
        network.to_dag()
    from lawful.api.module_file import write_module

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
) -> Audit | ModuleAudit:
    """Everything we know about a network, in order of consequence, and what to do about it.

    Of a module whose weights are used at many places, or that is no graph of scalar weights: what its symmetries say.

    >>> audit("3-6-4-1 relu bias").components.connected
    True
    """
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
