"""Spaces whose mean can be scaled: layer normalisation does not see it, and what else reads them is linear.

On the coordinates of a residual stream that is read by layer normalisations and by bare linear maps, `X = 1 1ᵀ` moves
nothing that a normalisation sees. It acts on what writes the mean and on what reads it: one law for each such stream,
`Σ_written ‖1ᵀP‖² − Σ_read ‖1ᵀP‖²`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from lawful.program.frontends.export import ExportedModule
from lawful.program.program import Node, Program
from lawful.program.table import OperatorFamily
from lawful.symmetry.demands.gauges import Link
from lawful.symmetry.demands.parameter_axes import users_of
from lawful.symmetry.demands.reading import read_graph
from lawful.symmetry.laws.families import MatrixLaws, MeanLaw
from lawful.symmetry.result import Space
from lawful.symmetry.solver.gauge_solution import GaugeSolution, solve
from lawful.symmetry.spaces.parameter_spaces import matrix_spaces, parameter_sides
from lawful.types import Mask, Residues


def mean_spaces(
    exported: ExportedModule, program: Program, frozen: Iterable[str], dead: Mapping[str, Mask]
) -> list[Space]:
    """One space for each stream whose mean is written and read by parameters, and seen by nothing else."""
    if not _bare_readers(program):
        return []
    demands = read_graph(exported, frozen, centred=True, means=True, program=program)
    solution = solve(demands.gauges)
    marked = _centred_blocks(demands.gauges.centrings, solution)
    sides = [side for side in parameter_sides(demands, dead) if marked[solution.block[side.labels]].any()]
    found = []
    for space in matrix_spaces(sides, solution, np.zeros(0, np.int64)):
        laws = space.laws
        if not isinstance(laws, MatrixLaws) or not space.group.startswith("GL"):
            continue
        label = next(side.labels for side in sides if side.axis is laws.members[0].axis)[laws.members[0].places[0, 0]]
        if marked[solution.block[label]] and {member.sign for member in laws.members} == {1, -1}:
            found.append(Space(space.name, 1, "scales", 1, space.roles, MeanLaw(laws.members)))
    return found


def _centred_blocks(centrings: Iterable[Link], solution: GaugeSolution) -> Mask:
    """Blocks that normalisations centre, whole and alone: their vector 1 is the block's own."""
    sizes = np.bincount(solution.cell)
    met, spoiled = (np.zeros(int(solution.block.max()) + 1, dtype=bool) for _ in range(2))
    for link in centrings:
        met[solution.block[link.left]] = True
        if not _whole_cells(link.group, solution.cell[link.left], sizes):
            spoiled[solution.block[link.left]] = True
    return np.asarray(met & ~spoiled)


def _whole_cells(group: Residues, cell: Residues, sizes: Residues) -> bool:
    number = np.unique(group, return_inverse=True)[1]
    first = np.full(int(number.max(initial=-1)) + 1, -1)
    first[number] = cell
    return bool((first[number] == cell).all() and (sizes[first] == np.bincount(number)).all())


def _bare_readers(program: Program) -> bool:
    """Whether something besides normalisations and sums reads what a centred normalisation reads."""
    users = users_of(program)
    waiting = [node.inputs[0] for node in program.nodes if _centres(node)]
    seen = set()
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        for user in users[node]:
            if _passes(user):
                waiting.append(user)
            elif not _centres(user):
                return True
        if _passes(node):
            waiting += node.inputs
    return False


def _centres(node: Node) -> bool:
    return bool(node.attributes.get("centre", False))


def _passes(node: Node) -> bool:
    """Sums, movements, and products with gates of dropout."""
    noisy = node.family is OperatorFamily.PRODUCT and any(each.traits.noise for each in node.inputs)
    return noisy or node.family in (OperatorFamily.ADDITION, OperatorFamily.MOVEMENT)
