"""Read a module's program once, and collect what its operators demand of gauges and shifts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch

from lawful.network.modules.export import ExportedModule
from lawful.program.domains.interpret import interpret
from lawful.program.frontends.torch_export import padded_tables, read_exported
from lawful.program.program import Program
from lawful.symmetry.gauge_domain import GaugeDomain
from lawful.symmetry.gauges import Gauges
from lawful.symmetry.motion import Shape
from lawful.symmetry.shifts import Shifts


@dataclass(frozen=True, eq=False)
class Demands:
    """What was read: demands on gauges and shifts, the fields of every parameter, and what was not understood."""

    gauges: Gauges
    shifts: Shifts
    shapes: Mapping[str, Shape]
    fields: Mapping[str, tuple[torch.Tensor, ...]]
    unused: tuple[str, ...]
    unknown: Mapping[str, int]


def read_graph(
    exported: ExportedModule,
    frozen: Iterable[str] = (),
    *,
    centred: bool = False,
    means: bool = False,
    program: Program | None = None,
) -> Demands:
    """Go through a module's program once; parameters in `frozen` do not train and count as constants.

    If `centred`, a skip around a bare linear map or gain, `x + Ax`, is read as one map: its gauges act on `I + A`.
    `means` asks for what acts on the mean of a space alone. `program` is the module's, if it is at hand.
    """
    if program is None:
        program = read_exported(exported, trains=True)
    still = frozenset(frozen)
    names, padded = list(exported.names.values()), padded_tables(exported)
    domain = GaugeDomain(program, Gauges(means=means), still, padded, names=names, centred=centred)
    values = interpret(program, domain)
    domain.pin("output", *(domain.closed(values[node]) for node in dict.fromkeys(program.outputs)))
    domain.pin_unread()
    unused = tuple(
        exported.names[node.name]
        for node in exported.graph.nodes
        if node.op == "placeholder" and node.name in exported.trained and exported.names[node.name] not in still
        and exported.names[node.name] not in domain.shapes
    )  # fmt: skip
    order = [name for name in exported.names.values() if name in domain.shapes]
    shapes = {name: domain.shapes[name] for name in order}
    fields = {name: domain.fields[name] for name in order}
    return Demands(domain.gauges, domain.shifts, shapes, fields, unused, domain.unknown)
