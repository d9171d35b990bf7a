"""The verb: the symmetries of a module or network."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from torch import nn

from lawful.errors import LawfulError, Unsupported
from lawful.network import Architecture, Mlp
from lawful.program.frontends.export import ExportedModule, export_module
from lawful.program.frontends.torch_export import read_exported
from lawful.program.program import Program
from lawful.sources.modules.convert import to_module
from lawful.sources.modules.module_network import ModuleNetwork
from lawful.sources.modules.trained_field import refuse_special_parameters
from lawful.symmetry.check import CHECKED_SIZE, check_symmetries
from lawful.symmetry.demands.labels import flat
from lawful.symmetry.demands.reading import Demands, read_graph
from lawful.symmetry.inputs import Input, examples
from lawful.symmetry.result import Mode, Pinned, Symmetries
from lawful.symmetry.solver.gauge_solution import link_components, solve, solve_shifts
from lawful.symmetry.spaces.parameter_spaces import (
    dead_parameters,
    matrix_spaces,
    mean_spaces,
    parameter_sides,
    scale_spaces,
    shift_spaces,
    unused_parameters,
)
from lawful.symmetry.spaces.permutations import log10_permutations
from lawful.symmetry.spaces.torus_spaces import torus_spaces


def symmetries(
    module: Any,
    input: Input | Sequence[Input] | None = None,
    *,
    keywords: Mapping[str, Any] | None = None,
    mode: Mode = "train",
    check: bool | None = None,
    seed: int = 0,
) -> Symmetries:
    """The linear symmetries and invisible shifts of a module, with the laws that training therefore conserves.

    `input` is an example tensor (with a batch of at least 2), a size without the batch such as `(3, 32, 32)`, or text
    such as `"3,32,32"` or `"8:int"` (eight token ids); several inputs are a list, named ones go into `keywords`. A
    module on the meta device is read without weights. `check` tests every generator by vector-Jacobian products in
    float64 (by default for modules with weights and up to five million parameters).

    >>> found = symmetries(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), (3,))
    >>> len(found.laws), [(space.name, space.group, space.size) for space in found.spaces]
    (4, [('0.weight', 'scales', 4)])
    """
    module, input = module_of(module, input)
    if mode not in ("train", "eval"):
        raise LawfulError(f"mode is 'train' or 'eval', not {mode!r}")
    refuse_special_parameters(module)
    inputs = [] if keywords and not input else examples(module, input)
    result, _, exported = read_symmetries(module, inputs, keywords, mode)
    named = dict(module.named_parameters())
    big = sum(tensor.numel() for tensor in named.values()) > CHECKED_SIZE
    meta = any(tensor.device.type == "meta" for tensor in named.values())
    if check is False or (check is None and (big or meta or bool(keywords))):
        return result
    if meta:
        raise LawfulError("a module on the meta device has no weights: its symmetries cannot be checked")
    return check_symmetries(result, module, inputs, exported, seed=seed)


def read_symmetries(
    module: nn.Module, inputs: Sequence[Any], keywords: Mapping[str, Any] | None, mode: Mode
) -> tuple[Symmetries, Program, ExportedModule]:
    """The symmetries that the graph shows, unchecked, with the program and the graph that they were read from."""
    exported, mode, note = export_for(module, inputs, keywords, mode)
    named = dict(module.named_parameters())
    frozen = [name for name, tensor in named.items() if not tensor.requires_grad]
    program = read_exported(exported, trains=True)
    demands = read_graph(exported, frozen, centred=True, program=program)
    result = summarise(exported, program, demands, named, mode)
    return replace(result, noted=result.noted + note), program, exported


def export_for(
    module: nn.Module, inputs: Sequence[Any], keywords: Mapping[str, Any] | None, mode: Mode
) -> tuple[ExportedModule, Mode, str]:
    """The graph in the mode asked for; in eval mode, and said so, where only train mode branches on random numbers."""
    try:
        return export_module(module, inputs, keywords, training=mode == "train"), mode, ""
    except Unsupported as refusal:
        if mode == "eval":
            raise
        try:
            exported = export_module(module, inputs, keywords)
        except Unsupported:
            raise refusal from None
        return exported, "eval", f"; train mode cannot be read: {refusal}"


def module_of(module: Any, input: Any) -> tuple[nn.Module, Any]:
    """A network becomes the module that computes it."""
    if isinstance(module, nn.Module):
        return module, input
    if isinstance(module, ModuleNetwork):
        return module.module, input if input is not None else module.input_shape
    if isinstance(module, Architecture):
        module = module.initialise(seed=0)
    if isinstance(module, Mlp):
        return to_module(module), (module.widths[0],)
    raise Unsupported(f"symmetries are read from modules and layered networks, not from a {type(module).__name__}")


def summarise(
    exported: ExportedModule, program: Program, demands: Demands, named: dict[str, nn.Parameter], mode: Mode
) -> Symmetries:
    """Solve what was demanded, and name the parts of the answer."""
    gauges = demands.gauges
    solution = solve(gauges)
    ones = np.concatenate([np.zeros(0, np.int64), *gauges.ones])
    shifts = solve_shifts(demands.shifts)
    shifted, dead = shift_spaces(shifts, demands.shapes)
    sides = parameter_sides(demands, dead)
    frozen = [name for name, tensor in named.items() if not tensor.requires_grad]
    means = mean_spaces(exported, program, frozen, dead)
    spaces = [*matrix_spaces(sides, solution, ones), *scale_spaces(sides, solution), *means, *shifted]
    trained = {name: tuple(tensor.shape) for name, tensor in named.items() if tensor.requires_grad}
    moving = {name: shape for name, shape in trained.items() if name not in demands.held}
    spaces += torus_spaces(program, moving, spaces, dead)
    places = {name: number for number, name in enumerate(trained)}
    spaces.sort(key=lambda space: (min(places.get(name, 0) for name in space.parameters), space.group))
    return Symmetries(
        parameters=sum(math.prod(shape) for shape in trained.values()),
        spaces=tuple(spaces),
        dead=(*dead_parameters(dead, demands.shapes), *unused_parameters(demands.unused, trained)),
        pinned=_pinned_operations(demands),
        mode=mode,
        log10_discrete=log10_permutations(gauges, solution),
        noted=_words(program, shifts.unread, mode),
        shapes=trained,
    )


def _pinned_operations(demands: Demands) -> tuple[Pinned, ...]:
    """Each operation without a rule, and the parameters whose spaces it touches."""
    if not demands.unknown:
        return ()
    component = link_components(demands.gauges)
    total = sum(math.prod(shape) for shape in demands.shapes.values())
    operations = []
    for name, calls in demands.unknown.items():
        labels = [pin.labels for pin in demands.gauges.pins if pin.operation == name]
        touched = np.unique(component[np.concatenate(labels)]) if labels else np.zeros(0, dtype=int)
        parameters = tuple(
            parameter
            for parameter, fields in demands.fields.items()
            if any(np.isin(component[flat(field)], touched).any() for field in fields)
        )
        share = sum(math.prod(demands.shapes[parameter]) for parameter in parameters) / max(total, 1)
        operations.append(Pinned(name, calls, parameters, share))
    return tuple(operations)


def _words(program: Program, unread: Mapping[str, int], mode: Mode) -> str:
    noise = {str(node["name"]) for node in program.nodes if node.traits.noise}
    words = f"a program of {len(program.nodes):,} nodes, {mode} mode"
    words += f"; {', '.join(sorted(noise))} counts as noise" if noise and mode == "train" else ""
    for name, count in unread.items():
        words += f"; {count:,} entries of {name} are not read by an input of this size"
    return words
