"""That a program computes one function before and after the folds and the group element of a certificate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lawful.errors import CertificateError, Unsupported
from lawful.verify.checkpoints.element import Form, ListedFrame
from lawful.verify.checkpoints.folds import Fold
from lawful.verify.core.schema import printable, require
from lawful.verify.relational.claims import draw_assignment, exact_frames
from lawful.verify.relational.growth import measure, parameter_growth, words_of
from lawful.verify.relational.operators import Runs
from lawful.verify.relational.program import ListedProgram, program_digest, read_program
from lawful.verify.relational.residues import LEAST_BITS, Collision, Lanes, NotCovered


@dataclass(frozen=True)
class Proof:
    """What was shown, or why nothing was."""

    digest: str
    nodes: int
    unread: tuple[str, ...]  # tensors of the certificate that no output depends on
    open: str  # what no rule follows; empty if the function was shown to be the same
    bits: int = 0  # the chance of an error is below 2 to the power of minus this


def prove(*claim: Any) -> Proof:
    """What `run` shows; once more with other primes where two values shared a hash."""
    for _ in range(3):
        try:
            return run(*claim)
        except Collision:
            continue
    raise Unsupported("random points collide again and again")


def run(
    listed_program: object,
    shapes: Mapping[str, tuple[int, ...]],
    folds: list[Fold],
    listed_frames: Mapping[str, list[ListedFrame]],
    shifts: Mapping[str, list[np.ndarray[Any, Any]]],
    forms: list[Form],
    numbers: Callable[[str], tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]],
) -> Proof:
    """Run the program with random tensors, with these after the folds, and with those after the element.

    Rejects the certificate if outputs differ, and names the first node where a function meets a value of its own.
    """
    digest, nodes, unread, bits = "", 0, tuple[str, ...](), 0
    try:
        digest = program_digest(listed_program)
        program = read_program(listed_program, dict(shapes))
        nodes = len(program.nodes)
        unread = tuple(name for name in shapes if name not in _read(program))
        field = Lanes()  # primes and points are drawn here, when all has been read
        frames = exact_frames(field, listed_frames, forms)
        moved = {name: [frame.dims for frame in own] for name, own in frames.items()}
        degrees = draw_assignment(field, shapes, moved, 1)
        degrees.fold(folds)
        leaves = parameter_growth(shapes, folds, listed_frames, shifts, forms, degrees.degrees)
        constants = {node.attributes["name"] for node in program.nodes if node.op == "held"}
        words = {name: words_of(numbers(name)[0]) for name in constants}
        terms, generic, bits = measure(program, leaves, words, 3)
        if bits < LEAST_BITS:
            raise NotCovered("products of so many values")
        first = draw_assignment(field, shapes, moved, terms)
        sides = [first]
        if folds:
            folded = first.copy()
            folded.fold(folds)
            sides.append(folded)
        last = sides[-1].copy()
        for name, own in frames.items():
            for frame in own:
                last.tensors[name] = last.tensors[name].act(field, frame)
        for name, pieces in shifts.items():
            for piece in pieces:
                last.tensors[name] = last.tensors[name].add(field, piece)
        sides.append(last)

        def held(name: str) -> np.ndarray[Any, Any]:
            """Numbers that both files have and nothing moves are constants of the program."""
            one, two = numbers(name)
            still = (
                name not in frames
                and name not in shifts
                and all(side.tensors[name] is first.tensors[name] for side in sides)
            )
            require(still and np.array_equal(one, two), "a tensor that the program takes for a constant is moved")
            return one

        runs = Runs(field, program, [side.leaves() for side in sides], generic, held)
        for side in sides:
            for key, values in side.powers.items():
                runs.known.setdefault(key, {}).update(values)
        if not runs.outputs_agree():
            where = printable(str(runs.parted))[:80] if runs.parted else "an output"
            raise CertificateError(
                f"the program computes another function with what is listed: its values part at {where}"
            )
    except NotCovered as reason:
        return Proof(digest, nodes, unread, printable(str(reason))[:120])
    return Proof(digest, nodes, unread, "", bits)


def _read(program: ListedProgram) -> set[str]:
    """The tensors on which the outputs depend: a program that leaves them out says nothing of them."""
    live = set(program.outputs)
    for node in reversed(program.nodes):
        if node.number in live:
            live.update(node.operands)
    leaves = [node for node in program.nodes if node.number in live and node.op in ("parameter", "held")]
    return {node.attributes["name"] for node in leaves}
