"""From a module to an architecture: its graph, what can be folded in it, and the group that acts on the rest."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from lawful.checkpoints.architecture import CheckpointArchitecture, read_program
from lawful.checkpoints.group.read_spaces import read_group
from lawful.checkpoints.group.spaces import HeadSpace, OrbitGroup
from lawful.checkpoints.group.trials import keep_true_symmetries
from lawful.checkpoints.rewrite.folds import DropFold, Fold, Folding, LinearReader, ValueFold, find_folds, numbers_after
from lawful.errors import LawfulError
from lawful.program.domains.dependence import read_entries
from lawful.program.frontends.export import copied, export_module
from lawful.program.frontends.torch_export import padded_tables
from lawful.program.passes.fold import LayerReader, factors, substitute
from lawful.program.program import Program
from lawful.symmetry.demands.reading import read_demands, trained_names
from lawful.symmetry.inputs import Input, examples

AGREE, AGREE_SINGLE = 1e-8, 1e-3  # of the outputs' size, in float64 and where the module itself computes in less
NO_PROGRAM = "its calls cannot be carried out one by one: no symmetries are read"


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
    exported = export_module(module, list(inputs))
    program = read_program(module, exported)
    if program is None:  # nothing to read a group from: tensors are compared as they are
        shapes = {name: tuple(tensor.shape) for name, tensor in module.named_parameters()}
        tolerance = AGREE_SINGLE if exported.rounds else AGREE
        return CheckpointArchitecture(
            module, exported, None, inputs, (), OrbitGroup((), (), shapes, 0), tolerance, (NO_PROGRAM,)
        )
    folds: tuple[Fold, ...] = find_folds(program, kinds=folding)
    readers = _readers(program)
    biases = {name: reader.bias for name, reader in readers.items() if reader.bias is not None}
    left = substitute(program, numbers_after(folds))  # without what was folded, in normal form again
    demands = read_demands(left, trained_names(exported), padded=padded_tables(exported))
    group = read_group(demands, set(factors(left)), biases)
    folds += _value_folds(group, readers) if folding == "all" else ()
    folds += _never_read(module, program) if folding == "all" else ()
    tolerance = AGREE
    architecture = CheckpointArchitecture(module, exported, program, inputs, folds, group, tolerance, ())
    return keep_true_symmetries(architecture, seed)


def _never_read(module: nn.Module, program: Program) -> tuple[Fold, ...]:
    """Parameters of which no output reads an entry: whatever they hold, the function is the same."""
    read = {name for name, entries in read_entries(program).items() if entries.any()}
    return tuple(DropFold(name) for name, tensor in module.named_parameters() if name not in read and tensor.ndim)


def in_evaluation(module: nn.Module) -> nn.Module:
    """The module, or one with its tensors that does not train."""
    if not any(part.training for part in module.modules()):
        return module
    return copied(module, shared=True).eval()


def _readers(program: Program) -> dict[str, LinearReader]:
    """The linear layers with a bias by the name of their weight, where nothing else reads weight or bias."""
    reader, readers = LayerReader(program), {}
    for node in program.nodes:
        layer = reader.layer(node)
        if layer is None or layer.is_convolution or layer.bias is None:
            continue
        if reader.is_read_once(layer.weight) and reader.is_read_once(layer.bias):
            name = str(layer.weight["name"])
            readers[name] = LinearReader(name, layer.axis, str(layer.bias["name"]))
    return readers


def _value_folds(group: OrbitGroup, readers: dict[str, LinearReader]) -> tuple[Fold, ...]:
    value_folds: list[Fold] = []
    for space in group.spaces:
        for block in (block for head in space.heads for block in head) if isinstance(space, HeadSpace) else ():
            biases = [rows for rows in block.members if len(group.shapes[rows.tensor]) == 1]
            for rows in biases:
                others = [member for member in block.members if member.powers[0] == -rows.powers[0]]
                if len(others) != 1 or rows.places.shape[1] != 1 or block.kind != "GL":
                    continue
                reader = readers.get(others[0].tensor)
                if reader is None or others[0].dims != (reader.axis,) or others[0].tensor == rows.tensor:
                    continue
                columns = tuple(tuple(int(row) for row in copy) for copy in others[0].places.T)
                value_folds.append(
                    ValueFold(rows.tensor, tuple(int(row) for row in rows.places[:, 0]), columns, reader)
                )
    return tuple(value_folds)
