"""Go through a program once, and collect what its operators demand of gauges and shifts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import torch

from lawful.program.domains.interpret import interpret
from lawful.program.frontends.export import ExportedModule
from lawful.program.frontends.torch_export import padded_tables, read_exported
from lawful.program.program import Program
from lawful.symmetry.demands.gauge_domain import GaugeDomain
from lawful.symmetry.demands.gauges import Gauges
from lawful.symmetry.demands.motion import Shape
from lawful.symmetry.demands.shifts import Shifts


@dataclass(frozen=True, eq=False)
class Demands:
    """What was read: demands on gauges and shifts, the fields of every parameter, and what was not understood."""

    gauges: Gauges
    shifts: Shifts
    shapes: Mapping[str, Shape]
    fields: Mapping[str, tuple[torch.Tensor, ...]]
    unused: tuple[str, ...]
    unknown: Mapping[str, int]


def read_demands(
    program: Program,
    names: Iterable[str],
    frozen: Iterable[str] = (),
    padded: Collection[str] = (),
    *,
    centred: bool = False,
    means: bool = False,
) -> Demands:
    """What the operators of a program demand; `names` are its module's parameters in their own order.

    Parameters in `frozen` do not train and count as constants; tables in `padded` have a row that does not. If
    `centred`, a skip around a bare linear map or gain, `x + Ax`, is read as one map: its gauges act on `I + A`. `means`
    asks for what acts on the mean of a space alone.
    """
    still, order = frozenset(frozen), list(dict.fromkeys(names))
    domain = GaugeDomain(program, Gauges(means=means), still, padded, names=order, centred=centred)
    values = interpret(program, domain)
    domain.pin("output", *(domain.close(values[node]) for node in dict.fromkeys(program.outputs)))
    domain.pin_unread()
    read = [name for name in order if name in domain.shapes]
    return Demands(
        domain.gauges,
        domain.shifts,
        {name: domain.shapes[name] for name in read},
        {name: domain.fields[name] for name in read},
        tuple(name for name in order if name not in domain.shapes and name not in still),
        domain.unknown,
    )


def read_graph(
    exported: ExportedModule,
    frozen: Iterable[str] = (),
    *,
    centred: bool = False,
    means: bool = False,
    program: Program | None = None,
) -> Demands:
    """The same of a module that was traced, as it trains; `program` is the module's, if it is at hand."""
    if program is None:
        program = read_exported(exported, trains=True)
    return read_demands(program, trained_names(exported), frozen, padded_tables(exported), centred=centred, means=means)


def trained_names(exported: ExportedModule) -> list[str]:
    """The parameters of a traced module, in its own order."""
    return [name for place, name in exported.names.items() if place in exported.trained]
