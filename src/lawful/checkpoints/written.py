"""Are two modules written alike: one program with the same constants, on tensors of the same names?"""

from __future__ import annotations

import hashlib
from collections import Counter

from torch import Tensor, as_tensor, nn

from lawful.checkpoints.architecture import CheckpointArchitecture, read_program
from lawful.network.modules.export import export_module
from lawful.program.program import Node, Program, attribute_key
from lawful.program.table import OperatorFamily
from lawful.symmetry.rules import RULES

STATISTICS = ("running_mean", "running_var", "num_batches_tracked")  # part of a checkpoint, not of the module
WHERE = frozenset({OperatorFamily.MOVEMENT, OperatorFamily.CONTRACTION})  # which entries meet: layouts, not constants


def written_alike(found: CheckpointArchitecture, other: nn.Module) -> bool:
    """Whether another module has the same names and the same program, with the same constants in it."""
    own = found.module
    if {n: t.shape for n, t in own.named_parameters()} != {n: t.shape for n, t in other.named_parameters()}:
        return False
    theirs = read_program(other, export_module(other, list(found.inputs), known=RULES))
    return found.program is not None and theirs is not None and signature(found.program) == signature(theirs)


def signature(program: Program, *, names: bool = True) -> str:
    """What a program computes, in words: its text, and digests of what it holds beside parameters and statistics."""
    held = [
        f"{name if names else ''} {tuple(program.tensors[name].shape)} {_digest(program.tensors[name])}"
        for name in program.buffers
        if not name.endswith(STATISTICS)
    ]
    return "\n".join([program.text(names), *held])


def _digest(tensor: Tensor) -> str:
    return hashlib.sha256(as_tensor(tensor).detach().double().cpu().numpy().tobytes()).hexdigest()[:16]


def first_difference(one: Program | None, two: Program | None, *, calls_alike: bool) -> str | None:
    """An operator in which programs differ, whatever their parameters are called: of the same operators with other
    constants (not those on other tensors: a head may be tied in one of them), or of some other operators if these are
    few."""
    if one is None or two is None:
        return None
    words = [Counter(map(_words, _computing(each, with_layouts=not calls_alike))) for each in (one, two)]
    mine, theirs = words[0] - words[1], words[1] - words[0]
    if calls_alike:
        alike = Counter(node.op for node in one.nodes) == Counter(node.op for node in two.nodes)
    else:
        alike = mine.total() == theirs.total() <= words[0].total() // 4
    if not alike or not mine or not theirs:
        return None
    return f"{next(iter(mine))} in A, {next(iter(theirs))} in B"[:300]


def _computing(program: Program, with_layouts: bool) -> list[Node]:
    """The constants and calls in the order in which they are computed; no other leaves."""
    return [
        node
        for node in program.as_run()
        if (node.op == "constant" or node.family is not OperatorFamily.LEAF)
        and (with_layouts or node.family not in WHERE)
    ]


def _words(node: Node) -> str:
    """An operator with its constants."""
    inside = (f"{key}={attribute_key(value)}" for key, value in sorted(node.attributes.items()) if key != "call")
    return f"{node.op}({', '.join(inside)})"
