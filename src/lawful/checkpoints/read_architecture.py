"""From a module to an architecture: its graph, what can be folded in it, and the group that acts on the rest."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace

from torch import fx, nn

from lawful.checkpoints.architecture import CheckpointArchitecture
from lawful.checkpoints.find_folds import Folding, find_folds, gains_of
from lawful.checkpoints.folds import DropFold, Fold, LinearReader, ValueFold
from lawful.checkpoints.group import HeadSpace, OrbitGroup
from lawful.checkpoints.read_group import read_group
from lawful.checkpoints.trials import tried
from lawful.errors import LawfulError
from lawful.network.modules.export import ExportedModule, copied, export_module, operator_name
from lawful.symmetry.check import casts
from lawful.symmetry.graphs.reading import read_graph
from lawful.symmetry.graphs.rules import RULES
from lawful.symmetry.inputs import Input, examples

AGREE, AGREE_SINGLE = 1e-8, 1e-3  # of the outputs' size, in float64 and where the module itself computes in less


def read_architecture(
    module: nn.Module, input: Input | Sequence[Input] | None = None, *, folding: Folding = "all", seed: int = 0
) -> CheckpointArchitecture:
    """Read a module (in evaluation; itself it stays in training if it is) once for all its checkpoints.

    >>> found = read_architecture(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), (3,))
    >>> [(type(space).__name__, space.size, space.permutes, space.signed) for space in found.group.spaces]
    [('UnitSpace', 4, True, False)]
    """
    module = in_evaluation(module)
    inputs = tuple(examples(module, input))
    if any(tensor.is_meta for tensor in module.parameters()):
        raise LawfulError("a module on the meta device has no weights to compare")
    whole = export_module(module, list(inputs), known=RULES)
    exported = replace(whole, graph=copy.deepcopy(whole.graph))
    readers = _readers(exported)
    folds = find_folds(exported, kinds=folding)
    biases = {name: reader.bias for name, reader in readers.items() if reader.bias is not None}
    group = read_group(read_graph(exported), gains_of(exported), biases)
    folds += _value_folds(group, readers) if folding == "all" else ()
    folds += _never_read(module, whole) if folding == "all" else ()
    wide = _carried_out(whole)
    tolerance = AGREE_SINGLE if casts(whole) and not wide else AGREE
    found = CheckpointArchitecture(module, whole, inputs, folds, group, tolerance, (), wide)
    return tried(found, seed)


def _never_read(module: nn.Module, exported: ExportedModule) -> tuple[Fold, ...]:
    """Parameters that no call of the graph reads: whatever they hold, the function is the same."""
    read = {exported.names[each.name] for node in exported.calls for each in node.all_input_nodes
            if each.name in exported.names}  # fmt: skip
    return tuple(DropFold(name) for name, tensor in module.named_parameters() if name not in read and tensor.ndim)


def in_evaluation(module: nn.Module) -> nn.Module:
    """The module, or one with its tensors that does not train."""
    if not any(part.training for part in module.modules()):
        return module
    return copied(module, shared=True).eval()


def _carried_out(exported: ExportedModule) -> bool:
    """Whether a graph is made of calls alone."""
    return all(node.op in ("placeholder", "call_function", "output") for node in exported.graph.nodes)


def _readers(exported: ExportedModule) -> dict[str, LinearReader]:
    """The linear layers of a graph by the name of their weight, where nothing else reads weight or bias."""
    found = {}
    for node in exported.calls:
        name = operator_name(node.target)
        if name == "linear":
            weight, axis, bias = node.args[1], 1, node.args[2] if len(node.args) > 2 else None
        elif name == "addmm":
            weight, axis, bias = node.args[2], 0, node.args[0]
        else:
            continue
        names = [
            exported.names.get(each.name) if isinstance(each, fx.Node) and len(each.users) == 1 else None
            for each in (weight, bias)
        ]
        if names[0] is not None and names[1] is not None:
            found[names[0]] = LinearReader(names[0], axis, names[1])
    return found


def _value_folds(group: OrbitGroup, readers: dict[str, LinearReader]) -> tuple[Fold, ...]:
    found: list[Fold] = []
    for space in group.spaces:
        for block in (block for head in space.heads for block in head) if isinstance(space, HeadSpace) else ():
            biases = [rows for rows in block.members if len(group.shapes[rows.tensor]) == 1]
            for rows in biases:
                others = [each for each in block.members if each.powers[0] == -rows.powers[0]]
                if len(others) != 1 or rows.places.shape[1] != 1 or block.kind != "GL":
                    continue
                reader = readers.get(others[0].tensor)
                if reader is None or others[0].dims != (reader.axis,) or others[0].tensor == rows.tensor:
                    continue
                columns = tuple(tuple(int(row) for row in copy) for copy in others[0].places.T)
                found.append(ValueFold(rows.tensor, tuple(int(row) for row in rows.places[:, 0]), columns, reader))
    return tuple(found)
