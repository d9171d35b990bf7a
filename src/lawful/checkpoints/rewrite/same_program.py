"""Are two modules written alike: one program with the same constants, on tensors of the same names?"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from typing import Literal

import numpy as np
from torch import Tensor, as_tensor, nn

from lawful.checkpoints.architecture import CheckpointArchitecture, read_program
from lawful.program.frontends.export import export_module, written_calls
from lawful.program.frontends.torch_export import WRAPS
from lawful.program.program import Program, attribute_key
from lawful.program.table import OperatorFamily

STATISTICS = ("running_mean", "running_var", "num_batches_tracked")  # part of a checkpoint, not of the module
WHERE = frozenset({OperatorFamily.MOVEMENT, OperatorFamily.CONTRACTION})  # which entries meet: layouts, not constants


def written_alike(
    architecture: CheckpointArchitecture, other: nn.Module
) -> Literal["call by call", "as programs"] | None:
    """Whether another module has the same names and the same program, with the same constants in it.

    Programs are of one size of inputs: modules that make other calls may differ at other sizes.
    """
    module = architecture.module
    if {n: t.shape for n, t in module.named_parameters()} != {n: t.shape for n, t in other.named_parameters()}:
        return None
    exported = export_module(other, list(architecture.inputs))
    theirs = read_program(other, exported)
    if architecture.program is None or theirs is None or signature(architecture.program) != signature(theirs):
        return None
    return "call by call" if written_calls(architecture.exported) == written_calls(exported) else "as programs"


def signature(program: Program, *, names: bool = True) -> str:
    """What a program computes, in words: its text, and digests of what it holds beside parameters and statistics."""
    buffers = [
        f"{name if names else ''} {tuple(program.tensors[name].shape)} {_digest(program.tensors[name])}"
        for name in program.buffers
        if not name.endswith(STATISTICS)
    ]
    narrow = sorted(note for note in program.notes if note.endswith(WRAPS))  # the text says nothing of it
    return "\n".join([program.text(names), *buffers, *narrow])


def _digest(tensor: Tensor) -> str:
    return hashlib.sha256(as_tensor(tensor).detach().double().cpu().numpy().tobytes()).hexdigest()[:16]


def first_difference(one: Program | None, two: Program | None, *, calls_alike: bool) -> str | None:
    """An operator in which programs differ, whatever their parameters are called: of the same operators with other
    constants (not those on other tensors: a head may be tied in one of them), or of some other operators if these are
    few."""
    if one is None or two is None:
        return None
    words = [Counter(_words(program, with_layouts=not calls_alike)) for program in (one, two)]
    mine, theirs = words[0] - words[1], words[1] - words[0]
    if calls_alike:
        alike = Counter(node.op for node in one.nodes) == Counter(node.op for node in two.nodes)
    else:
        alike = mine.total() == theirs.total() <= words[0].total() // 4
    if not alike and not calls_alike:  # too many: the functions alone
        functions = [Counter(_functions(program)) for program in (one, two)]
        mine, theirs = functions[0] - functions[1], functions[1] - functions[0]
        alike = True
        if bool(mine) != bool(theirs):
            more = next(iter(mine or theirs))
            return f"{more} {functions[0][more]} times in A, {functions[1][more]} times in B"
    if not alike or not mine or not theirs:
        return None
    return f"{next(iter(mine))} in A, {next(iter(theirs))} in B"[:300]


def _functions(program: Program) -> Iterator[str]:
    """What is applied entry by entry."""
    return (node.op for node in program.as_run() if node.family is OperatorFamily.ELEMENTWISE)


def _words(program: Program, with_layouts: bool) -> Iterator[str]:
    """The constants and operators in the order in which they are computed, each with its numbers.

    Layouts are index maps, axes, and whether a norm centres: two ways to write one model may differ in them.
    """
    for node in program.as_run():
        layout = node.family in WHERE and not with_layouts
        if layout or (node.family is OperatorFamily.LEAF and node.op != "constant"):
            continue
        inside = (
            f"{key}={attribute_key(value)}"
            for key, value in sorted(node.attributes.items())
            if key != "call" and (with_layouts or isinstance(value, (float, str, np.ndarray)))
        )
        yield f"{node.op}({', '.join(inside)})"
