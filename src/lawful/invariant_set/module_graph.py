"""The graph on which a module's balances live: trained entries as edges between what scales on its own.

A graph of scalar weights (`Dag`) is the special case in which every weight is one edge. Here kernels are parallel
edges, skips close circles, and what is tied, frozen or fixed takes no part.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lawful.errors import InvalidNetwork, LawfulError, Unsupported
from lawful.network import Dag, Mlp, Role
from lawful.sources.modules.module_network import ModuleNetwork
from lawful.sources.opening import Source, module_behind, open_free
from lawful.sources.opening import open as open_any
from lawful.sources.provenance import with_provenance
from lawful.types import Floats, Indices

if TYPE_CHECKING:
    import torch
    from torch import nn

    from lawful.symmetry.scaling import EdgeBlock, ScalingGraph

Result = TypeVar("Result")
INPUT, OUTPUT = "(in)", "(out)"  # all that does not scale: where edges come from, and where they go


CHUNK = 1 << 19  # edges that are held at once where a graph is read edge by edge: a few megabytes for each array


class Edges(NamedTuple):
    """Some consecutive edges: the number of the first, both ends of each, their weights, and the tensor they are of."""

    first: int
    tails: Indices
    heads: Indices
    weights: Floats
    parameter: str = ""
    positions: Indices | slice = slice(None)


@dataclass(frozen=True, eq=False, repr=False)
class EntryGraph:
    """Nodes that scale, entries of a module's parameters as edges, and what these balances leave out.

    It has the names that `Dag` has: node 0 stands for everything that edges come from without being scaled, the last
    node for everything they go to. `beyond` says why more than these balances may confine training: then only locks
    are definite.

    Millions of edges are kept as the tensors that they are (`values`) and as blocks, whose ends are a few thousand
    numbers; `log_scales`, one for each node, multiply an edge i→j by `exp(s_j − s_i)`. `edges()` reads them in
    portions. `tails`, `heads` and `weights` write all of them down, which is for graphs that are small.
    """

    module: nn.Module
    scaling: ScalingGraph
    beyond: tuple[str, ...]
    values: Mapping[str, NDArray[Any]]
    log_scales: Floats | None = None

    def __repr__(self) -> str:
        return f"EntryGraph({type(self.module).__name__}: {len(self.hidden)} nodes, {self.parameters:,} entries)"

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of all nodes, the two ends among them."""
        return INPUT, *self.scaling.nodes, OUTPUT

    @property
    def roles(self) -> NDArray[np.int8]:
        """Hidden nodes between the two ends."""
        by_node = np.full(len(self.names), Role.HIDDEN, dtype=np.int8)
        by_node[0], by_node[-1] = Role.INPUT, Role.OUTPUT
        return by_node

    @cached_property
    def hidden(self) -> Indices:
        """The nodes that scale."""
        return np.arange(1, len(self.names) - 1)

    @cached_property
    def blocks(self) -> tuple[EdgeBlock, ...]:
        """The edges of each parameter, with ends numbered as in `names`."""
        last = len(self.names) - 1
        return tuple(
            replace(
                block,
                heads=np.where(block.heads < 0, last, block.heads + 1),
                tails=np.where(block.tails < 0, 0, block.tails + 1),
            )
            for block in self.scaling.blocks
        )

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """The number of the first edge of each block, and that of all edges."""
        return tuple(accumulate((block.count for block in self.blocks), initial=0))

    @property
    def parameters(self) -> int:
        """Number of entries that are edges."""
        return self.starts[-1]

    def edges(self) -> Iterator[Edges]:
        """All edges, in portions that need little memory."""
        for first, block in zip(self.starts, self.blocks, strict=False):
            yield from self.edges_of(block, first)

    def edges_of(self, block: EdgeBlock, first: int) -> Iterator[Edges]:
        """The edges of one block, whose first has this number."""
        shape = block.shape or (1,)
        wide = [np.broadcast_to(ends.reshape(ends.shape or (1,)), shape) for ends in (block.tails, block.heads)]
        values = self.values[block.parameter].reshape(shape)
        row = math.prod(shape[1:])
        step = max(1, CHUNK // max(row, 1))
        for start in range(0, shape[0], step):
            here = slice(start, start + step)
            tails, heads, weights = (array[here].reshape(-1) for array in (*wide, values))
            positions: Indices | slice = slice(start * row, start * row + len(weights))
            if block.mask is not None:
                mask = np.broadcast_to(block.mask.reshape(block.mask.shape or (1,)), shape)[here].reshape(-1)
                positions = start * row + np.flatnonzero(mask)
                tails, heads, weights = tails[mask], heads[mask], weights[mask]
            weights = weights.astype(np.float64)
            if self.log_scales is not None:
                half = np.exp((self.log_scales[heads] - self.log_scales[tails]) / 2)
                with np.errstate(over="ignore", invalid="ignore"):
                    weights = weights * half * half  # the factor itself may overflow where the weight does not
            yield Edges(first, tails, heads, weights, block.parameter, positions)
            first += len(weights)

    @cached_property
    def tails(self) -> Indices:
        """Where each edge comes from."""
        return np.concatenate([np.zeros(0, dtype=np.intp), *(part.tails for part in self.edges())])

    @cached_property
    def heads(self) -> Indices:
        """Where each edge goes."""
        return np.concatenate([np.zeros(0, dtype=np.intp), *(part.heads for part in self.edges())])

    @cached_property
    def weights(self) -> Floats:
        """The entries' values."""
        return np.concatenate([np.zeros(0), *(part.weights for part in self.edges())])

    @property
    def theta(self) -> Floats:
        """The entries' values."""
        return self.weights

    def edge_name(self, edge: int) -> tuple[str, str]:
        """Names of the two ends of an edge."""
        tail, head = self.ends(edge)
        return self.names[tail], self.names[head]

    def ends(self, edge: int) -> tuple[int, int]:
        """The nodes that an edge leaves and enters."""
        block, place = self._place(edge)
        pairs = [
            int(small[tuple(min(at, size - 1) for at, size in zip(place, small.shape, strict=True))])
            for small in (block.tails, block.heads)
        ]
        return pairs[0], pairs[1]

    def weight(self, edge: int) -> float:
        """The value of one edge."""
        block, place = self._place(edge)
        value = float(self.values[block.parameter][place])
        tail, head = self.ends(edge)
        return value if self.log_scales is None else value * math.exp(self.log_scales[head] - self.log_scales[tail])

    def entry(self, edge: int) -> str:
        """The entry that an edge is, such as `3.weight[0, 1]`."""
        block, place = self._place(edge)
        return f"{block.parameter}[{', '.join(map(str, place))}]"

    def _place(self, edge: int) -> tuple[EdgeBlock, tuple[int, ...]]:
        number = bisect_right(self.starts, edge) - 1
        block, position = self.blocks[number], edge - self.starts[number]
        if block.mask is not None:
            position = int(block.positions[position])
        return block, tuple(map(int, np.unravel_index(position, block.shape)))

    def with_theta(self, weights: ArrayLike) -> EntryGraph:
        """The same graph and module with other values of its edges."""
        numbers = np.asarray(weights, dtype=np.float64)
        if numbers.shape != (self.parameters,) or not np.isfinite(numbers).all():
            raise InvalidNetwork(f"{self.parameters} entries need as many finite numbers")
        values = dict(self.values)
        for start, block in zip(self.starts, self.blocks, strict=False):
            flat = values[block.parameter].astype(np.float64).reshape(-1)
            flat[block.positions] = numbers[start : start + block.count]
            values[block.parameter] = flat.reshape(block.shape)
        return replace(self, values=values, log_scales=None)

    def rescaled(self, scales: Floats) -> EntryGraph:
        """The graph with its hidden nodes rescaled by `exp(scales)`."""
        whole = np.zeros(len(self.names)) if self.log_scales is None else self.log_scales.copy()
        whole[self.hidden] += scales
        return replace(self, log_scales=whole)

    def to_dag(self) -> EntryGraph:
        """Itself."""
        return self

    def state(self) -> dict[str, torch.Tensor]:
        """The module's state with the entries at their values here, each in its own type."""
        tensors_by_name = {name: tensor.detach() for name, tensor in self.module.state_dict().items()}
        self._fill(
            tensors_by_name, {block.parameter: tensors_by_name[block.parameter].clone() for block in self.blocks}
        )
        for name, first in _twins(self.module).items():  # one tensor under several names
            tensors_by_name[name] = tensors_by_name[first]
        return tensors_by_name

    def _fill(self, target: dict[str, torch.Tensor], tensors: Mapping[str, torch.Tensor]) -> None:
        """Put the edges' values into tensors, and these into their places."""
        import torch

        flat = {name: tensor.contiguous().view(-1) for name, tensor in tensors.items()}
        for part in self.edges():
            into = flat[part.parameter]
            places = part.positions if isinstance(part.positions, slice) else torch.as_tensor(part.positions)
            into[places] = torch.as_tensor(part.weights).to(into)
        target |= {name: flat[name].view(tensor.shape) for name, tensor in tensors.items()}

    def evaluate(self, inputs: Any) -> Any:
        """Outputs of the module with these values for a batch, in float64."""
        import torch

        batch = inputs if isinstance(inputs, torch.Tensor) else torch.as_tensor(np.asarray(inputs))
        with torch.no_grad():
            outputs = self.filled().eval()(batch.double() if batch.is_floating_point() else batch)
        return outputs if isinstance(inputs, torch.Tensor) else outputs.numpy()

    def filled(self, double: bool = True) -> nn.Module:
        """A copy of the module, in float64 or in its own types, with the entries at their values here."""
        from lawful.program.frontends.export import copy_module, twin_of

        twin = twin_of(self.module) if double else copy_module(self.module)
        parameters = dict(twin.named_parameters())
        for block in self.blocks:
            parameters[block.parameter].data = parameters[block.parameter].data.contiguous()
        self._fill({}, {block.parameter: parameters[block.parameter].data for block in self.blocks})
        return twin


Balanced: TypeAlias = Dag | EntryGraph


def edges_of(graph: Balanced) -> Iterator[Edges]:
    """All edges of a graph, in portions if it is a module's."""
    if isinstance(graph, EntryGraph):
        yield from graph.edges()
    else:
        yield Edges(0, graph.tails, graph.heads, graph.theta)


def as_dag(graph: Balanced) -> Dag:
    """A graph of scalar weights, or a refusal: some questions are about such graphs alone."""
    if isinstance(graph, EntryGraph):
        raise Unsupported(f"this is about graphs of scalar weights, and {graph} is a module")
    return graph


def balanced_graph(source: Source, input: Any = None) -> Mlp | Balanced:
    """The graph of a source's balances: its own weights as edges, or the scaling graph of the module that it is.

    `input` is the size of a module's input without the batch, as for `lawful.symmetries`.

    >>> from torch import nn
    >>> kernel, readers = nn.Conv1d(1, 1, 1, bias=False), nn.Linear(2, 1, bias=False)
    >>> found = balanced_graph(nn.Sequential(kernel, nn.ReLU(), nn.Flatten(), readers), (1, 2))
    >>> found, [found.entry(edge) for edge in range(3)]
    (EntryGraph(Sequential: 1 nodes, 3 entries), ['0.weight[0, 0, 0]', '3.weight[0, 0]', '3.weight[0, 1]'])
    """
    if isinstance(source, EntryGraph):
        return source
    if isinstance(source, (Mlp, Dag)):
        return open_free(source)
    return graph_of(open_any(source, input_shape=_sizes(input)), input)


def graph_of(network: Any, input: Any = None, *, shared: bool = False) -> Mlp | Balanced:
    """The same for what `lawful.open` returned: the module behind it where its weights are not edges one by one."""
    if isinstance(network, ModuleNetwork):
        return entry_graph(network.module, input if input is not None else network.input_shape, shared=shared)
    reading = network.reading
    if reading is not None and reading.entangled and (module := module_behind(reading)) is not None:
        sizes = (network.widths[0],) if isinstance(network, Mlp) and module is reading.module else None
        return entry_graph(module, input if input is not None else sizes, shared=shared)
    return open_free(network)


def _sizes(input: Any) -> tuple[int, ...] | None:
    """An input size as numbers, if it is one; token ids and example tensors are for modules alone."""
    if isinstance(input, str) and re.fullmatch(r"\d+(,\d+)*", input):
        return tuple(int(part) for part in input.split(","))
    if isinstance(input, (tuple, list)) and all(isinstance(size, int) for size in input):
        return tuple(input)
    return None


def entry_graph(module: nn.Module, input: Any = None, *, shared: bool = False) -> EntryGraph:
    """The scaling graph of a module with its weights, in train mode; `shared` if nobody will change the module."""
    from lawful.symmetry.scaling import scaling_laws

    if any(tensor.device.type == "meta" for tensor in module.parameters()):
        raise LawfulError("a module on the meta device has no weights, hence no balances")
    whole, scaling_reading = scaling_laws(module, input)
    if scaling_reading.mode != "train":
        raise Unsupported(
            f"its balances are those of training, and train mode cannot be read ({scaling_reading.noted})"
        )
    scaling, odd = whole.plain()
    parameters, edges = dict(module.named_parameters()), [block.parameter for block in scaling.blocks]
    values = {name: _array(parameters[name]) if shared else _array(parameters[name]).copy() for name in edges}
    beyond = []
    if odd:
        beyond.append(f"{odd:,} balances of products or of activations of degree 2 make no graph")
    if (rest := len(scaling_reading.laws) - len(scaling.nodes) - odd) > 0:
        beyond.append(f"{rest:,} other laws (matrices, shifts, centres) confine training as well")
    if scaling_reading.pinned:
        names = ", ".join(pin.operation for pin in scaling_reading.pinned[:3])
        beyond.append(f"not understood, so perhaps more is conserved: {names}")
    graph = EntryGraph(module, scaling, tuple(beyond), values)
    if wrong := sum(int((~np.isfinite(part.weights)).sum()) for part in graph.edges()):
        raise InvalidNetwork(f"{wrong} weights are not finite")
    return graph


def _array(tensor: torch.Tensor) -> NDArray[Any]:
    """A tensor's own numbers, not copy_module where NumPy has their type."""
    import torch

    array = tensor.detach().cpu()
    return np.asarray((array if array.dtype in (torch.float32, torch.float64) else array.double()).numpy())


def _twins(module: nn.Module) -> Mapping[str, str]:
    first: dict[int, str] = {}
    twins = {}
    for name, tensor in module.named_parameters(remove_duplicate=False):
        if (original := first.setdefault(id(tensor), name)) != name:
            twins[name] = original
    return twins


def with_readings(result: Result, *graphs: Mlp | Balanced) -> Result:
    """The result, which says how its networks were read; modules are read as they train."""
    modules = [graph for graph in graphs if isinstance(graph, EntryGraph)]
    opened = (_as_module(graph) if isinstance(graph, EntryGraph) else graph for graph in graphs)
    return with_provenance(result, *opened, trained="train" if modules else None)


def _as_module(graph: EntryGraph) -> ModuleNetwork:
    from lawful.sources.modules.convert import module_reading

    return ModuleNetwork(graph.module, "its entries are edges", module_reading(graph.module))


def same_graph(first: Balanced, last: Balanced) -> None:
    """Refuse two parameters that do not belong to one graph."""
    if isinstance(first, EntryGraph) and isinstance(last, EntryGraph):
        same = first.names == last.names and len(first.blocks) == len(last.blocks)
        for one, other in zip(first.blocks, last.blocks, strict=False):
            same = same and (one.parameter, one.shape) == (other.parameter, other.shape)
            same = same and all(
                np.array_equal(getattr(one, place), getattr(other, place)) for place in ("tails", "heads", "positions")
            )
        if not same:
            raise InvalidNetwork("a path joins two checkpoints of one module, but these are different modules")
        return
    names: Sequence[str] = ("names", "roles", "tails", "heads")
    for name in names:
        one, other = getattr(first, name), getattr(last, name)
        if len(one) != len(other) or not np.array_equal(one, other):
            raise InvalidNetwork(f"a path joins two parameters of one graph, but these differ: {first} and {last}")


def frozen_apart(first: Balanced, last: Balanced) -> tuple[str, ...]:
    """Parameters of two modules that do not train, and differ."""
    if not isinstance(first, EntryGraph) or not isinstance(last, EntryGraph):
        return ()
    theirs = dict(last.module.named_parameters())
    return tuple(
        name for name, tensor in first.module.named_parameters()
        if not tensor.requires_grad and not bool((tensor == theirs[name]).all())
    )  # fmt: skip
