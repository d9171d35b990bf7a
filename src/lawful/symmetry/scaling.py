"""The scaling graph of a module: what its diagonal gauges multiply, entry by entry.

A node is a coordinate that can be scaled on its own: an MLP's neuron, a convolution's channel, a channel of a residual
stream, a query's coordinate, a rotary pair. An edge is one trained entry of a parameter: it enters the node that scales
it up and leaves the node that scales it down. All taps of a kernel are parallel edges; skips merge nodes; what is
tied, frozen or fixed belongs to no free node. Paper 0 holds on it as it stands: `c_v = Σ_in θ² − Σ_out θ²`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sparse
import torch
from torch import nn

from lawful.errors import Unsupported
from lawful.program.frontends.export import ExportedModule
from lawful.program.frontends.torch_export import read_exported
from lawful.sources.modules.trained_field import refuse_hooks_of_parameters
from lawful.symmetry.check import (
    CHECKED_SIZE,
    FLOOR,
    MOST_POINTS,
    POINTS,
    TOLERANCE,
    FalseSymmetry,
    casts,
    largest_of,
    random_point,
    refuse_other_training,
)
from lawful.symmetry.demands.labels import align, flat, narrowed
from lawful.symmetry.demands.reading import Demands, read_graph
from lawful.symmetry.inputs import Input, examples
from lawful.symmetry.laws.families import Parameters
from lawful.symmetry.module_symmetries import exported_for, module_of, summarise
from lawful.symmetry.result import Mode, Symmetries
from lawful.symmetry.solver.gauge_solution import GaugeSolution, solve
from lawful.symmetry.solver.shift_solution import solve_shifts
from lawful.symmetry.spaces.shift_spaces import shift_spaces
from lawful.types import Floats, Indices, Mask

GROUND = -1  # inputs, outputs, and whatever cannot be scaled
LARGEST = 100_000_000


@dataclass(frozen=True, eq=False)
class ScalingGraph:
    """Nodes with a name, and the entries of parameters as edges between them.

    Edge e is entry `positions[e]` (in row-major order) of the parameter `parameters[owners[e]]`. `incidence` (nodes ×
    edges) says by which power each node scales each edge: +1 where it enters, −1 where it leaves, other numbers where
    an activation has another degree.
    """

    nodes: tuple[str, ...]
    parameters: tuple[str, ...]
    owners: Indices
    positions: Indices
    incidence: sparse.csr_array

    @property
    def is_graph(self) -> bool:
        """Whether every edge enters at most one node and leaves at most one: without gains, without junctions."""
        plain = bool(np.isin(self.incidence.data, (1.0, -1.0)).all())
        entering = np.asarray((self.incidence > 0).sum(axis=0)).reshape(-1)
        leaving = np.asarray((self.incidence < 0).sum(axis=0)).reshape(-1)
        return plain and int(entering.max(initial=0)) <= 1 and int(leaving.max(initial=0)) <= 1

    @property
    def heads(self) -> Indices:
        """The node that each edge enters, or −1."""
        return self._ends(1.0)

    @property
    def tails(self) -> Indices:
        """The node that each edge leaves, or −1."""
        return self._ends(-1.0)

    def _ends(self, sign: float) -> Indices:
        if not self.is_graph:
            raise Unsupported("its scales make no graph: a product of two scaled values, or an activation of degree 2")
        table = self.incidence.tocoo()
        found = np.full(self.incidence.shape[1], GROUND, dtype=np.intp)
        chosen = table.data == sign
        found[table.coords[1][chosen]] = table.coords[0][chosen]
        return found

    def edge_values(self, theta: Parameters) -> Floats:
        """The entries that are edges, at given parameters."""
        flat = [theta[name].detach().double().cpu().reshape(-1).numpy() for name in self.parameters]
        found = np.zeros(len(self.owners))
        for number, values in enumerate(flat):
            here = self.owners == number
            found[here] = values[self.positions[here]]
        return found

    def balance(self, theta: Parameters) -> Floats:
        """`c = B θ²`, one number for each node: conserved by gradient flow for every data set and loss."""
        return np.asarray(self.incidence @ self.edge_values(theta) ** 2)

    def plain(self) -> tuple[ScalingGraph, int]:
        """The part that is a graph: without the nodes that make junctions or gains, and how many those are."""
        table = self.incidence.tocoo()
        node, edge, power = table.coords[0], table.coords[1], table.data
        bad = ~np.isin(power, (1.0, -1.0))
        for sign in (1.0, -1.0):
            here = power == sign
            often = np.bincount(edge[here], minlength=self.incidence.shape[1]) > 1
            bad |= here & often[edge]
        left_out = np.zeros(len(self.nodes), dtype=bool)
        left_out[node[bad]] = True
        if not left_out.any():
            return self, 0
        rows = self.incidence[np.flatnonzero(~left_out)]
        kept = np.flatnonzero(np.diff(rows.tocsc().indptr))
        nodes = tuple(name for name, gone in zip(self.nodes, left_out.tolist(), strict=True) if not gone)
        part = ScalingGraph(nodes, self.parameters, self.owners[kept], self.positions[kept], rows[:, kept].tocsr())
        return part, int(left_out.sum())


def scaling_graph(module: Any, input: Input | Sequence[Input] | None = None, *, mode: Mode = "train") -> ScalingGraph:
    """The scaling graph of a module or layered network; arguments as for `symmetries`.

    >>> from torch import nn
    >>> kernel, readers = nn.Conv1d(1, 1, 1, bias=False), nn.Linear(2, 1)
    >>> graph = scaling_graph(nn.Sequential(kernel, nn.ReLU(), nn.Flatten(), readers), (1, 2))
    >>> graph.nodes, graph.tails.tolist(), graph.heads.tolist()
    (('0.weight.0',), [-1, 0, 0], [0, -1, -1])
    """
    return scaling_laws(module, input, mode=mode)[0]


def scaling_laws(
    module: Any, input: Input | Sequence[Input] | None = None, *, mode: Mode = "train"
) -> tuple[ScalingGraph, Symmetries]:
    """The scaling graph, and all symmetries of the same reading."""
    module, input = module_of(module, input)
    refuse_hooks_of_parameters(module)
    inputs = examples(module, input)
    exported, mode, note = exported_for(module, inputs, None, mode)
    named = dict(module.named_parameters())
    frozen = [name for name, tensor in named.items() if not tensor.requires_grad]
    program = read_exported(exported, trains=True)
    demands = read_graph(exported, frozen, program=program)
    if sum(int(np.prod(shape)) for shape in demands.shapes.values()) > LARGEST:
        raise Unsupported(f"a scaling graph has one edge for each entry: more than {LARGEST:,} are not written down")
    dead = shift_spaces(solve_shifts(demands.shifts), demands.shapes)[1]
    centred = read_graph(exported, frozen, centred=True, program=program)
    found = summarise(exported, program, centred, named, mode)
    found = replace(found, noted=found.noted + note)
    graph = _graph(demands, solve(demands.gauges), dead)
    if not any(tensor.device.type == "meta" for tensor in named.values()):
        _check(graph, module, inputs, exported, mode)
    return graph, found


def _check(
    graph: ScalingGraph, module: nn.Module, inputs: Sequence[torch.Tensor], exported: ExportedModule, mode: str
) -> None:
    """`FalseSymmetry` unless each node's scale leaves the function alone: `Σ ± θ_e ∂_e⟨w, f⟩ = 0` at random points."""
    if casts(exported) or sum(tensor.numel() for tensor in module.parameters()) > CHECKED_SIZE:
        return
    silent = np.ones(len(graph.nodes), dtype=bool)
    for seed in range(MOST_POINTS):
        if seed >= POINTS and not silent.any():  # where units are off, gradients say nothing
            return
        try:
            theta, slope = random_point(module, inputs, exported, mode, torch.Generator().manual_seed(seed))
        except Exception:  # the module's own code: some operations exist in single precision alone
            return
        terms = graph.edge_values(theta) * graph.edge_values(slope)
        size = abs(graph.incidence) @ np.abs(terms)
        # w/‖w‖ of a single weight has no slope at all: beside those of other weights its terms are rounding
        largest = largest_of(slope[name] * theta[name] for name in theta)
        off = np.abs(graph.incidence @ terms) / np.maximum(size, FLOOR * largest + np.finfo(float).tiny)
        silent &= size == 0
        if np.isfinite(terms).all() and off.max(initial=0.0) > TOLERANCE:
            refuse_other_training(module, inputs, exported)
            raise FalseSymmetry(f"the scale of {graph.nodes[int(off.argmax())]} changes the function")


def _graph(demands: Demands, solution: GaugeSolution, dead: Mapping[str, Mask]) -> ScalingGraph:
    """Entries that are dead never move: like frozen ones they are no edges."""
    powers = _without_centres(_powers(solution), demands)
    names: dict[int, str] = {}
    owners, positions, rows, columns, entries, count = [], [], [], [], [], 0
    for number, (name, fields) in enumerate(demands.fields.items()):
        shape = demands.shapes[name]
        size = int(np.prod(shape, dtype=int))
        found = sparse.csr_array((size, powers.shape[1]))
        for field in fields:
            small = narrowed(field)
            table = powers[small.reshape(-1).numpy()]
            for row in np.flatnonzero(np.diff(table.indptr)).tolist():
                node = int(table.indices[table.indptr[row]])
                if node not in names:
                    names[node] = f"{name}.{row}"
            spread = align(small.new_tensor(range(small.numel())).reshape(small.shape), shape).reshape(-1).numpy()
            found = found + table[spread]
        found.eliminate_zeros()
        moving = np.diff(found.indptr) > 0
        if name in dead:
            moving &= ~dead[name].reshape(-1)
        edges = np.flatnonzero(moving)
        kept = found[edges].tocoo()
        owners.append(np.full(len(edges), number))
        positions.append(edges)
        rows.append(kept.coords[1])
        columns.append(count + kept.coords[0])
        entries.append(kept.data)
        count += len(edges)
    used = np.unique(np.concatenate([np.zeros(0, dtype=int), *rows])).tolist()
    place = np.full(powers.shape[1], -1)
    place[used] = np.arange(len(used))
    joined = [np.concatenate([np.zeros(0), *part]) for part in (entries, rows, columns, owners, positions)]
    table = sparse.csr_array(
        (joined[0], (place[joined[1].astype(int)], joined[2].astype(int))), shape=(len(used), count)
    )
    # Any power of a scale is one: the smallest power of a node is 1, so that √(w²) is an edge like w.
    smallest = np.full(len(used), np.inf)
    np.minimum.at(smallest, np.repeat(np.arange(len(used)), np.diff(table.indptr)), np.abs(table.data))
    table = sparse.diags_array(1.0 / smallest).tocsr() @ table if len(used) else table
    return ScalingGraph(
        tuple(names[node] for node in used),
        tuple(demands.fields),
        joined[3].astype(np.intp),
        joined[4].astype(np.intp),
        table,
    )


def _without_centres(powers: sparse.csr_array, demands: Demands) -> sparse.csr_array:
    """Leave out nodes that scale a parameter about a centre: their balance is no sum of squares of entries."""
    labels = [flat(field) for name in demands.gauges.centres for field in demands.fields[name]]
    moved = np.unique(np.concatenate([np.zeros(0, int), *(powers[each].indices for each in labels)]))
    return powers[:, np.setdiff1d(np.arange(powers.shape[1]), moved)]


def _powers(solution: GaugeSolution) -> sparse.csr_array:
    """Labels × nodes: the power by which each node scales the entries with a label.

    Nodes are the solutions of the relations between scales, and every coordinate of a space on which GL acts.
    """
    count = len(solution.root)
    alone = np.bincount(solution.cell, minlength=count)[solution.cell] == 1
    whole = np.flatnonzero(~alone & ~solution.pinned & ~solution.skew & (solution.root == np.arange(count)))
    place = np.full(count, -1)
    place[whole] = np.arange(len(whole))
    moving = np.flatnonzero(place[solution.root] >= 0)
    inside = (solution.sign[moving].astype(float), (moving, place[solution.root[moving]]))
    within = sparse.csr_array(inside, shape=(count, len(whole)))
    scales = solution.scales
    column = np.full(count, -1)
    column[scales.coordinates] = np.arange(len(scales.coordinates))
    single = np.flatnonzero(column[solution.root] >= 0)
    chosen = (solution.sign[single].astype(float), (single, column[solution.root[single]]))
    outside = sparse.csr_array(chosen, shape=(count, len(scales.coordinates))) @ scales.basis
    return sparse.hstack([outside, within]).tocsr()
