"""The graph on which a module's balances live: trained entries as edges between what scales on its own.

A graph of scalar weights (`Dag`) is the special case in which every weight is one edge. Here kernels are parallel
edges, skips close circles, and what is tied, frozen or fixed takes no part.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lawful.errors import InvalidNetwork, LawfulError, Unsupported
from lawful.network import Dag, Mlp, Role
from lawful.sources.modules.module_network import ModuleNetwork
from lawful.sources.opening import Source, module_behind, open_free
from lawful.sources.opening import open as open_any
from lawful.sources.provenance import answered
from lawful.types import Floats, Indices

if TYPE_CHECKING:
    import torch
    from torch import nn

    from lawful.symmetry.scaling import ScalingGraph

Result = TypeVar("Result")
INPUT, OUTPUT = "(in)", "(out)"  # all that does not scale: where edges come from, and where they go


@dataclass(frozen=True, eq=False, repr=False)
class EntryGraph:
    """Nodes that scale, entries of a module's parameters as edges, and what these balances leave out.

    It has the names that `Dag` has: node 0 stands for everything that edges come from without being scaled, the last
    node for everything they go to. `beyond` says why more than these balances may confine training: then only locks
    are definite.
    """

    module: nn.Module
    scaling: ScalingGraph
    names: tuple[str, ...]
    tails: Indices
    heads: Indices
    weights: Floats
    beyond: tuple[str, ...]

    def __repr__(self) -> str:
        return f"EntryGraph({type(self.module).__name__}: {len(self.hidden)} nodes, {self.parameters:,} entries)"

    @property
    def roles(self) -> NDArray[np.int8]:
        """Hidden nodes between the two ends."""
        found = np.full(len(self.names), Role.HIDDEN, dtype=np.int8)
        found[0], found[-1] = Role.INPUT, Role.OUTPUT
        return found

    @cached_property
    def hidden(self) -> Indices:
        """The nodes that scale."""
        return np.arange(1, len(self.names) - 1)

    @property
    def parameters(self) -> int:
        """Number of entries that are edges."""
        return len(self.tails)

    @property
    def theta(self) -> Floats:
        """The entries' values."""
        return self.weights

    def edge_name(self, edge: int) -> tuple[str, str]:
        """Names of the two ends of an edge."""
        return self.names[self.tails[edge]], self.names[self.heads[edge]]

    def entry(self, edge: int) -> str:
        """The entry that an edge is, such as `3.weight[0, 1]`."""
        name = self.scaling.parameters[self.scaling.owners[edge]]
        shape = tuple(self.module.get_parameter(name).shape)
        place = np.unravel_index(int(self.scaling.positions[edge]), shape)
        return f"{name}[{', '.join(map(str, place))}]"

    def with_theta(self, weights: ArrayLike) -> EntryGraph:
        """The same graph and module with other values of its edges."""
        values = np.asarray(weights, dtype=np.float64)
        if values.shape != (self.parameters,) or not np.isfinite(values).all():
            raise InvalidNetwork(f"{self.parameters} entries need as many finite numbers")
        twin = copy.copy(self)
        object.__setattr__(twin, "weights", values)
        return twin

    def to_dag(self) -> EntryGraph:
        """Itself."""
        return self

    @cached_property
    def layers(self) -> tuple[Indices, ...]:
        """Nodes in groups without an edge inside, so that all of one group can move at once."""
        import rustworkx

        inner = (self.tails > 0) & (self.heads < len(self.names) - 1)
        pairs = np.unique(np.stack([self.tails[inner], self.heads[inner]], axis=1), axis=0)
        graph = rustworkx.PyGraph(multigraph=False)
        graph.add_nodes_from(range(len(self.names)))
        graph.add_edges_from_no_data([tuple(pair) for pair in pairs.tolist()])
        colours = rustworkx.graph_greedy_color(graph)
        colour = np.array([colours[node] for node in self.hidden.tolist()], dtype=np.intp)
        return tuple(self.hidden[colour == each] for each in range(int(colour.max(initial=-1)) + 1))

    def state(self) -> dict[str, torch.Tensor]:
        """The module's state with the entries at their values here, each in its own type."""
        import torch

        found = {name: tensor.detach().clone() for name, tensor in self.module.state_dict().items()}
        for number, name in enumerate(self.scaling.parameters):
            here = self.scaling.owners == number
            if here.any():
                flat = found[name].reshape(-1)
                flat[torch.as_tensor(self.scaling.positions[here])] = torch.as_tensor(self.weights[here]).to(flat)
                found[name] = flat.reshape(found[name].shape)
        for name, first in _twins(self.module).items():  # one tensor under several names
            found[name] = found[first]
        return found

    def evaluate(self, inputs: Any) -> Any:
        """Outputs of the module with these values for a batch, in float64."""
        import torch

        batch = inputs if isinstance(inputs, torch.Tensor) else torch.as_tensor(np.asarray(inputs))
        with torch.no_grad():
            found = self.filled().eval()(batch.double() if batch.is_floating_point() else batch)
        return found if isinstance(inputs, torch.Tensor) else found.numpy()

    def filled(self) -> nn.Module:
        """A copy of the module, in float64, with the entries at their values here."""
        import torch

        from lawful.program.frontends.export import twin_of

        twin = twin_of(self.module)
        own = dict(twin.named_parameters())
        with torch.no_grad():
            for number, name in enumerate(self.scaling.parameters):
                here = self.scaling.owners == number
                if here.any():
                    flat = own[name].reshape(-1).clone()
                    flat[torch.as_tensor(self.scaling.positions[here])] = torch.as_tensor(self.weights[here])
                    own[name].copy_(flat.reshape(own[name].shape))
        return twin


Balanced: TypeAlias = Dag | EntryGraph


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


def graph_of(network: Any, input: Any = None) -> Mlp | Balanced:
    """The same for what `lawful.open` returned: the module behind it where its weights are not edges one by one."""
    if isinstance(network, ModuleNetwork):
        return entry_graph(network.module, input if input is not None else network.input_shape)
    reading = network.reading
    if reading is not None and reading.entangled and (module := module_behind(reading)) is not None:
        own = (network.widths[0],) if isinstance(network, Mlp) and module is reading.module else None
        return entry_graph(module, input if input is not None else own)
    return open_free(network)


def _sizes(input: Any) -> tuple[int, ...] | None:
    """An input size as numbers, if it is one; token ids and example tensors are for modules alone."""
    if isinstance(input, str) and re.fullmatch(r"\d+(,\d+)*", input):
        return tuple(int(part) for part in input.split(","))
    if isinstance(input, (tuple, list)) and all(isinstance(each, int) for each in input):
        return tuple(input)
    return None


def entry_graph(module: nn.Module, input: Any = None) -> EntryGraph:
    """The scaling graph of a module with its weights, in train mode."""
    from lawful.symmetry.scaling import GROUND, scaling_laws

    if any(tensor.device.type == "meta" for tensor in module.parameters()):
        raise LawfulError("a module on the meta device has no weights, hence no balances")
    whole, found = scaling_laws(module, input)
    if found.mode != "train":
        raise Unsupported(f"its balances are those of training, and train mode cannot be read ({found.noted})")
    scaling, odd = whole.plain()
    values = scaling.edge_values(dict(module.named_parameters()))
    if not np.isfinite(values).all():
        raise InvalidNetwork(f"{int((~np.isfinite(values)).sum())} weights are not finite")
    last = len(scaling.nodes) + 1
    tails = np.where(scaling.tails == GROUND, 0, scaling.tails + 1)
    heads = np.where(scaling.heads == GROUND, last, scaling.heads + 1)
    beyond = []
    if odd:
        beyond.append(f"{odd:,} balances of products or of activations of degree 2 make no graph")
    if (rest := len(found.laws) - len(scaling.nodes) - odd) > 0:
        beyond.append(f"{rest:,} other laws (matrices, shifts, centres) confine training as well")
    if found.pinned:
        names = ", ".join(each.operation for each in found.pinned[:3])
        beyond.append(f"not understood, so perhaps more is conserved: {names}")
    return EntryGraph(module, scaling, (INPUT, *scaling.nodes, OUTPUT), tails, heads, values, tuple(beyond))


def _twins(module: nn.Module) -> Mapping[str, str]:
    first: dict[int, str] = {}
    found = {}
    for name, tensor in module.named_parameters(remove_duplicate=False):
        if (own := first.setdefault(id(tensor), name)) != name:
            found[name] = own
    return found


def told(result: Result, *graphs: Mlp | Balanced) -> Result:
    """The result, which says how its networks were read; modules are read as they train."""
    modules = [graph for graph in graphs if isinstance(graph, EntryGraph)]
    opened = (_as_module(graph) if isinstance(graph, EntryGraph) else graph for graph in graphs)
    return answered(result, *opened, trained="train" if modules else None)


def _as_module(graph: EntryGraph) -> ModuleNetwork:
    from lawful.sources.modules.convert import module_reading

    return ModuleNetwork(graph.module, "its entries are edges", module_reading(graph.module))


def same_graph(first: Balanced, last: Balanced) -> None:
    """Refuse two parameters that do not belong to one graph."""
    names: Sequence[str] = ("names", "roles", "tails", "heads")
    for name in names:
        one, other = getattr(first, name), getattr(last, name)
        if len(one) != len(other) or not np.array_equal(one, other):
            raise InvalidNetwork(f"a path joins two parameters of one graph, but these differ: {first} and {last}")
    if isinstance(first, EntryGraph) and isinstance(last, EntryGraph):
        for place in ("owners", "positions", "parameters"):
            if not np.array_equal(getattr(first.scaling, place), getattr(last.scaling, place)):
                raise InvalidNetwork("a path joins two checkpoints of one module, but these are different modules")


def frozen_apart(first: Balanced, last: Balanced) -> tuple[str, ...]:
    """Parameters of two modules that do not train, and differ."""
    if not isinstance(first, EntryGraph) or not isinstance(last, EntryGraph):
        return ()
    theirs = dict(last.module.named_parameters())
    return tuple(
        name for name, tensor in first.module.named_parameters()
        if not tensor.requires_grad and not bool((tensor == theirs[name]).all())
    )  # fmt: skip
