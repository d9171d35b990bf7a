"""Are two modules written alike: the same calls with the same constants on tensors of the same names?"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from torch import fx, nn

from lawful.checkpoints.architecture import CheckpointArchitecture
from lawful.network.modules.export import ExportedModule, export_module, operator_name
from lawful.symmetry.graphs.rules import RULES

STATISTICS = ("running_mean", "running_var", "num_batches_tracked")  # part of a checkpoint, not of the module


def written_alike(found: CheckpointArchitecture, other: nn.Module) -> bool:
    """Whether another module has the same names and the same graph, with the same constants in it."""
    own = found.module
    if {n: t.shape for n, t in own.named_parameters()} != {n: t.shape for n, t in other.named_parameters()}:
        return False
    return signature(found.exported) == signature(export_module(other, list(found.inputs), known=RULES))


def signature(exported: ExportedModule, *, named: bool = True) -> list[str]:
    """What a graph computes, in words: calls, constants, names of parameters (or their numbers), digests of tensors."""
    return [f"{name} {words}" for name, words in _calls(exported, named)]


def first_difference(one: ExportedModule, two: ExportedModule, *, calls_alike: bool) -> str | None:
    """The first call in which graphs differ, whatever their parameters are called: of the same calls with other
    constants (not those on other tensors: a head may be tied in one of them), or of some other calls if these are
    few."""
    calls = [list(_calls(each, named=False, numbered=not calls_alike)) for each in (one, two)]
    if len(calls[0]) != len(calls[1]):
        return None
    names = [[name for name, _ in each] for each in calls]
    off = [number for number, (mine, theirs) in enumerate(zip(*calls, strict=True)) if mine != theirs]
    others = sum(mine != theirs for mine, theirs in zip(*names, strict=True))
    if not off or others > (0 if calls_alike else len(names[0]) // 4):
        return None
    (name, mine), (other, theirs) = calls[0][off[0]], calls[1][off[0]]
    return f"{name}{mine} in A, {other}{theirs} in B"[:300]


def _calls(exported: ExportedModule, named: bool, numbered: bool = True) -> Iterator[tuple[str, str]]:
    numbers: dict[str, str] = {}

    def number(node: fx.Node) -> str:
        if not numbered:
            return "%"
        return numbers.setdefault(node.name, f"%{len(numbers)}")

    for node in exported.graph.nodes:
        held = exported.names.get(node.name)
        if named and held is not None:
            numbers[node.name] = held
        if node.op == "placeholder" and node.name in exported.tensors and node.name not in exported.trained:
            tensor = exported.tensors[node.name].detach()
            moving = held is not None and held.endswith(STATISTICS)
            digest = "" if moving else hashlib.sha256(tensor.double().cpu().numpy().tobytes()).hexdigest()[:16]
            yield "tensor", f" {tuple(tensor.shape)} {digest}"
    for node in exported.calls:
        args = node.args
        if operator_name(node.target) == "dropout" and args[2:] == (False,):
            args = (args[0], "any share", False)  # nothing is dropped in evaluation
        elif operator_name(node.target) == "embedding":
            args = args[:2]  # which row has no gradient (padding) is for training alone
        given = fx.node.map_arg((args, tuple(sorted(node.kwargs.items()))), number)
        yield operator_name(node.target), f"({', '.join(map(str, given[0]))}{_keywords(given[1])})"
        number(node)


def _keywords(given: object) -> str:
    return "".join(f", {name}={value}" for name, value in given) if isinstance(given, (list, tuple)) else ""
