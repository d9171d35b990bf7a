"""The scaling graph of a module: what its diagonal gauges multiply, entry by entry.

A node is a coordinate that can be scaled on its own: an MLP's neuron, a convolution's channel, a channel of a residual
stream, a query's coordinate, a rotary pair. An edge is one trained entry of a parameter: it enters the node that scales
it up and leaves the node that scales it down. All taps of a kernel are parallel edges; skips merge nodes; what is
tied, frozen or fixed belongs to no free node. Paper 0 holds on it as it stands: `c_v = Σ_in θ² − Σ_out θ²`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any, Literal

import numpy as np
import scipy.sparse as sparse
import torch
from torch import nn

from lawful.errors import Unsupported
from lawful.program.frontends.export import ExportedModule
from lawful.program.frontends.torch_export import read_exported
from lawful.sources.modules.trained_field import refuse_special_parameters
from lawful.symmetry.check import (
    CHECKED_SIZE,
    FLOOR,
    MOST_POINTS,
    POINTS,
    TOLERANCE,
    FalseSymmetry,
    largest_of,
    random_point,
    refuse_other_training,
)
from lawful.symmetry.demands.labels import flat, narrow
from lawful.symmetry.demands.reading import Demands, read_graph
from lawful.symmetry.inputs import Input, examples
from lawful.symmetry.laws.families import Parameters
from lawful.symmetry.module_symmetries import export_for, module_of, summarise
from lawful.symmetry.result import Mode, Symmetries
from lawful.symmetry.solver.gauge_solution import GaugeSolution, solve, solve_shifts
from lawful.symmetry.spaces.parameter_spaces import shift_spaces
from lawful.types import Floats, Indices, Mask

GROUND = -1  # inputs, outputs, and whatever cannot be scaled
LARGEST = 100_000_000  # edges that are written down one by one; blocks have no such limit


@dataclass(frozen=True, eq=False)
class EdgeBlock:
    """The edges that entries of one parameter are.

    `heads` and `tails` are the nodes that they enter and leave, `mask` says which entries are edges (None: all are).
    All three have as many dimensions as the parameter, and size 1 along those where nothing changes: a million weights
    between a thousand nodes and a thousand others are two thousand numbers.
    """

    parameter: str
    shape: tuple[int, ...]
    heads: Indices
    tails: Indices
    mask: Mask | None = None

    @property
    def positions(self) -> Indices:
        """The entries that are edges, in row-major order."""
        size = int(np.prod(self.shape, dtype=int))
        return np.arange(size) if self.mask is None else np.flatnonzero(np.broadcast_to(self.mask, self.shape))

    @property
    def count(self) -> int:
        """How many edges."""
        size = int(np.prod(self.shape, dtype=int))
        return size if self.mask is None else int(self.mask.sum()) * (size // max(self.mask.size, 1))


@dataclass(frozen=True, eq=False)
class ScalingGraph:
    """Nodes with a name, and the entries of parameters as edges between them.

    An entry has a label in each of its parameter's `fields` (small, as in `EdgeBlock`), and `powers` (labels × nodes)
    says by which power each node scales what has a label: +1 where the entry enters, −1 where it leaves, other numbers
    where an activation has another degree. `still` entries never move and are no edges.
    """

    nodes: tuple[str, ...]
    powers: sparse.csr_array
    fields: Mapping[str, tuple[Indices, ...]]
    shapes: Mapping[str, tuple[int, ...]]
    still: Mapping[str, Mask]

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of all parameters that are read."""
        return tuple(self.fields)

    @cached_property
    def _written(self) -> tuple[Indices, Indices, sparse.csr_array]:
        """Owners and positions of all edges, and their incidence, edge by edge."""
        if sum(int(np.prod(shape, dtype=int)) for shape in self.shapes.values()) > LARGEST:
            raise Unsupported(f"more than {LARGEST:,} edges are not written down one by one")
        owners, positions, parts = [], [], [sparse.csr_array((0, len(self.nodes)))]
        for number, name in enumerate(self.fields):
            edges, table = self._entries(name)
            owners.append(np.full(len(edges), number))
            positions.append(edges)
            parts.append(table)
        none = np.zeros(0, dtype=np.intp)
        return (
            np.concatenate([none, *owners]),
            np.concatenate([none, *positions]),
            sparse.vstack(parts).T.tocsr(),
        )

    def _entries(self, name: str) -> tuple[Indices, sparse.csr_array]:
        """The entries of a parameter that are edges, and by which power each node scales them."""
        shape = self.shapes[name]
        total = sparse.csr_array((int(np.prod(shape, dtype=int)), len(self.nodes)))
        for labels in self.fields[name]:
            total = total + self.powers[np.broadcast_to(labels, shape).reshape(-1)]
        total.eliminate_zeros()
        moving = np.diff(total.indptr) > 0
        if name in self.still:
            moving &= ~self.still[name].reshape(-1)
        edges = np.flatnonzero(moving)
        return edges, total[edges]

    def least_powers(self) -> Floats:
        """The smallest power, without its sign, by which each node scales an edge; infinite where it scales none."""
        powers = np.full(len(self.nodes), np.inf)
        for name, fields in self.fields.items():
            tables = [self.powers[labels[self._alive(name, labels)]].tocoo() for labels in fields]
            nodes = [np.unique(table.coords[1]) for table in tables]
            if len(np.unique(np.concatenate([np.zeros(0, int), *nodes]))) < sum(map(len, nodes)):
                tables = [self._entries(name)[1].tocoo()]  # a node in two fields: its powers add up, or cancel
            for table in tables:
                np.minimum.at(powers, table.coords[1][table.data != 0], np.abs(table.data[table.data != 0]))
        return powers

    def _alive(self, name: str, labels: Indices) -> Mask:
        """Labels of at least one entry that moves."""
        if name not in self.still:
            return np.ones(labels.shape, dtype=bool)
        constant = tuple(axis for axis, size in enumerate(labels.shape) if size == 1)
        return np.asarray((~self.still[name]).any(axis=constant, keepdims=True))

    @property
    def owners(self) -> Indices:
        """The number of the parameter that each edge is an entry of."""
        return self._written[0]

    @property
    def positions(self) -> Indices:
        """Which entry of its parameter each edge is, in row-major order."""
        return self._written[1]

    @property
    def incidence(self) -> sparse.csr_array:
        """By which power each node scales each edge (nodes × edges)."""
        return self._written[2]

    @cached_property
    def is_graph(self) -> bool:
        """Whether every edge enters at most one node and leaves at most one: without gains, without junctions."""
        return not self._odd().any()

    @property
    def heads(self) -> Indices:
        """The node that each edge enters, or −1."""
        return self._ends("heads")

    @property
    def tails(self) -> Indices:
        """The node that each edge leaves, or −1."""
        return self._ends("tails")

    def _ends(self, side: Literal["heads", "tails"]) -> Indices:
        result = [
            np.broadcast_to(getattr(block, side), block.shape).reshape(-1)[block.positions] for block in self.blocks
        ]
        return np.concatenate([np.zeros(0, dtype=np.intp), *result])

    def edge_values(self, theta: Parameters) -> Floats:
        """The entries that are edges, at given parameters."""
        flat = [theta[name].detach().double().cpu().reshape(-1).numpy() for name in self.parameters]
        result = np.zeros(len(self.owners))
        for number, values in enumerate(flat):
            here = self.owners == number
            result[here] = values[self.positions[here]]
        return result

    def balance(self, theta: Parameters) -> Floats:
        """`c = B θ²`, one number for each node: conserved by gradient flow for every data set and loss."""
        return np.asarray(self.incidence @ self.edge_values(theta) ** 2)

    @cached_property
    def blocks(self) -> tuple[EdgeBlock, ...]:
        """The edges, a block for each parameter that has any; refused if this is no graph."""
        if not self.is_graph:
            raise Unsupported("its scales make no graph: a product of two scaled values, or an activation of degree 2")
        result = (self._block(name) for name in self.fields)
        return tuple(block for block in result if block.count)

    def _block(self, name: str) -> EdgeBlock:
        shape = self.shapes[name]
        above, below = (_single_nodes(self.powers, sign) for sign in (1.0, -1.0))
        none = np.full((1,) * len(shape), GROUND, dtype=np.intp)
        heads, tails = none, none
        for labels in self.fields[name]:
            heads, tails = _either(heads, above[labels]), _either(tails, below[labels])
        mask: Mask | None = None
        if np.isin(heads[heads != GROUND], tails).any():  # a scale up and down again is none
            cancels = (heads == tails) & (heads != GROUND)
            heads, tails = np.where(cancels, GROUND, heads), np.where(cancels, GROUND, tails)
        if not ((heads != GROUND).all() or (tails != GROUND).all()):
            mask = (heads != GROUND) | (tails != GROUND)
        if name in self.still and self.still[name].any():
            mask = (True if mask is None else mask) & ~self.still[name]
        return EdgeBlock(name, shape, heads, tails, None if mask is None or mask.all() else mask)

    def _odd(self) -> Mask:
        """Nodes that make junctions or gains: another power than ±1, or an entry that two enter, or that two leave."""
        powers = self.powers.tocoo()
        label, node, power = powers.coords[0], powers.coords[1], powers.data
        used = np.zeros(self.powers.shape[0], dtype=bool)
        for name, fields in self.fields.items():
            for labels in fields:
                used[labels[self._alive(name, labels)]] = True
        odd = np.zeros(len(self.nodes), dtype=bool)
        odd[node[used[label] & ~np.isin(power, (1.0, -1.0))]] = True
        ends = []
        for sign in (1.0, -1.0):
            here = used[label] & (power == sign)
            often = np.bincount(label[here], minlength=len(used)) > 1
            odd[node[here & often[label]]] = True
            ends.append(_single_nodes(self.powers, sign))
        for name, fields in self.fields.items():
            for one, two in combinations(fields, 2):
                moving = ~self.still[name] if name in self.still else True
                for side, other in (ends, ends[::-1]):
                    first, second = side[one], side[two]
                    if (first == GROUND).all() or (second == GROUND).all():
                        continue
                    both = (first != GROUND) & (second != GROUND) & moving
                    # what one field scales up and the other down again is scaled by neither
                    for near, far in ((first, other[two]), (second, other[one])):
                        both = both & ((near != far) | (near == GROUND))
                    for nodes in (first, second):
                        odd[np.unique(np.broadcast_to(nodes, both.shape)[both])] = True
        return odd

    def plain(self) -> tuple[ScalingGraph, int]:
        """The part that is a graph: without the nodes that make junctions or gains, and how many those are."""
        odd = self._odd()
        if not odd.any():
            return self, 0
        nodes = tuple(name for name, gone in zip(self.nodes, odd.tolist(), strict=True) if not gone)
        return replace(self, nodes=nodes, powers=self.powers[:, np.flatnonzero(~odd)].tocsr()), int(odd.sum())


def _single_nodes(powers: sparse.csr_array, sign: float) -> Indices:
    """For each label a node that scales it with this power, or −1."""
    table = powers.tocoo()
    nodes = np.full(powers.shape[0], GROUND, dtype=np.intp)
    chosen = table.data == sign
    nodes[table.coords[0][chosen]] = table.coords[1][chosen]
    return nodes


def _either(one: Indices, other: Indices) -> Indices:
    """The node that one of two fields names, small if the other names none."""
    if (other == GROUND).all():
        return one
    return other if (one == GROUND).all() else np.maximum(one, other)


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
    refuse_special_parameters(module)
    inputs = examples(module, input)
    exported, mode, note = export_for(module, inputs, None, mode)
    named = dict(module.named_parameters())
    frozen = [name for name, tensor in named.items() if not tensor.requires_grad]
    program = read_exported(exported, trains=True)
    demands = read_graph(exported, frozen, program=program)
    dead = shift_spaces(solve_shifts(demands.shifts), demands.shapes)[1]
    centred = read_graph(exported, frozen, centred=True, program=program)
    laws = summarise(exported, program, centred, named, mode)
    laws = replace(laws, noted=laws.noted + note)
    graph = _graph(demands, solve(demands.gauges), dead)
    if not any(tensor.device.type == "meta" for tensor in named.values()):
        _check(replace(graph), module, inputs, exported, mode)  # a copy: what it writes down goes with it
    return graph, laws


def _check(
    graph: ScalingGraph, module: nn.Module, inputs: Sequence[torch.Tensor], exported: ExportedModule, mode: str
) -> None:
    """`FalseSymmetry` unless each node's scale leaves the function alone: `Σ ± θ_e ∂_e⟨w, f⟩ = 0` at random points."""
    if exported.rounds or sum(tensor.numel() for tensor in module.parameters()) > CHECKED_SIZE:
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
    fields: dict[str, tuple[Indices, ...]] = {}
    shapes = {name: tuple(demands.shapes[name]) for name in demands.fields}
    still = {name: np.asarray(dead[name]).reshape(shapes[name]) for name in demands.fields if name in dead}
    for name, parameter_fields in demands.fields.items():
        rank = len(shapes[name])
        small = [narrow(field) for field in parameter_fields]
        fields[name] = tuple(field.reshape((1,) * (rank - field.dim()) + tuple(field.shape)).numpy() for field in small)
        for labels in fields[name]:
            table = powers[labels.reshape(-1)]
            for row in np.flatnonzero(np.diff(table.indptr)).tolist():
                names.setdefault(int(table.indices[table.indptr[row]]), f"{name}.{row}")
    graph = ScalingGraph(("",) * powers.shape[1], powers, fields, shapes, still)
    smallest = graph.least_powers()
    used = np.flatnonzero(np.isfinite(smallest))
    # Any power of a scale is one: the smallest power of a node is 1, so that √(w²) is an edge like w.
    scaled = powers[:, used] @ sparse.diags_array(1.0 / smallest[used]) if len(used) else powers[:, used]
    return replace(graph, nodes=tuple(names[node] for node in used.tolist()), powers=scaled.tocsr())


def _without_centres(powers: sparse.csr_array, demands: Demands) -> sparse.csr_array:
    """Leave out nodes that scale a parameter about a centre: their balance is no sum of squares of entries."""
    labels = [flat(field) for name in demands.gauges.centres for field in demands.fields[name]]
    moved = np.unique(np.concatenate([np.zeros(0, int), *(powers[label].indices for label in labels)]))
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
