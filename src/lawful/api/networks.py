"""A network as a whole: describe it, audit it, write it in another format."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from lawful.api.audit import Audit
from lawful.api.audit import audit as audit_graph
from lawful.api.inputs import ReadOptions, open_options, takes
from lawful.errors import LawfulError
from lawful.pruning.removable.activity import settle
from lawful.sources.contents import contents
from lawful.sources.files import Written, write
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
        opened = open(network, **open_options(reading))
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
    """Write a network in another format; the file's ending chooses it, the function stays the same."""
    graph = open_graph(network, seed=seed, **open_options(reading))
    return with_provenance(write(graph, out, dtype=dtype), graph)


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
