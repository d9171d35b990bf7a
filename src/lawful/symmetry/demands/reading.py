"""Go through a program once, and collect what its operators demand of gauges and shifts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import torch

from lawful.errors import Unsupported
from lawful.program.domains.interpret import interpret
from lawful.program.frontends.export import ExportedModule
from lawful.program.frontends.torch_export import padded_rows, read_exported, scales_gradients
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
    held: tuple[str, ...] = ()  # tables with a row of numbers that does not train


def read_demands(
    program: Program,
    names: Iterable[str],
    frozen: Iterable[str] = (),
    padded: Collection[str] = (),
    *,
    held: Collection[str] = (),
    centred: bool = False,
    means: bool = False,
) -> Demands:
    """What the operators of a program demand; `names` are its module's parameters in their own order.

    Parameters in `frozen` do not train and count as constants; tables in `padded` have a row that does not, of numbers
    or trained by others if they are in `held`. If `centred`, a skip around a bare linear map or gain, `x + Ax`, is read
    as one map: its gauges act on `I + A`. `means` asks for what acts on the mean of a space alone.
    """
    still, order = frozenset(frozen), list(dict.fromkeys(names))
    domain = GaugeDomain(program, Gauges(means=means), still, padded, held=held, names=order, centred=centred)
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
        tuple(held),
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
    if scales_gradients(exported):
        raise Unsupported("training does not follow the gradient of what the module computes (scale_grad_by_freq)")
    if program is None:
        program = read_exported(exported, trains=True)
    padded = padded_rows(exported)
    held = _held_rows(exported, padded)
    return read_demands(program, trained_names(exported), frozen, padded, held=held, centred=centred, means=means)


def _held_rows(exported: ExportedModule, padded: Mapping[str, int]) -> list[str]:
    """Tables whose padded row may hold numbers: a gauge moves them, and training does not.

    A row of zeros is what every linear gauge keeps, as long as nothing else reads the table and trains the row.
    """
    places = {exported.names[node.name]: node for node in exported.graph.nodes if node.name in exported.trained}
    return [
        name
        for name, row in padded.items()
        if (tensor := exported.tensors[places[name].name]).is_meta
        or len(places[name].users) > 1
        or bool(tensor[row].any())
    ]


def trained_names(exported: ExportedModule) -> list[str]:
    """The parameters of a traced module, in its own order."""
    return [name for place, name in exported.names.items() if place in exported.trained]
