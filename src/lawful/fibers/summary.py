"""The fiber of a network in numbers: whole where a theorem covers it, else what is proved of it and what is open."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from math import lgamma, log

import numpy as np

from lawful.errors import LawfulError, Unsupported
from lawful.fibers.deep import single_neuron
from lawful.fibers.deep.bottleneck import BottleneckFiber, bottleneck_fiber
from lawful.fibers.deep.genericity import bottleneck_rigidity
from lawful.fibers.deep.identifiability import identifiable
from lawful.fibers.deep.identification import balanced_subset, rank_of
from lawful.fibers.deep.local_rank import fixed_directions
from lawful.fibers.layers import Stack, as_layers
from lawful.fibers.reduce import hidden_neuron, simplifications
from lawful.fibers.regions.domain import Domain
from lawful.fibers.reparametrisations import Drop, Merge, Reorder, Rescale, SymmetryStep, Translate, is_silent
from lawful.fibers.same import stack_of
from lawful.fibers.shallow.fiber import AssignedFiber, LayerwiseFiber, assigned_fiber, layerwise_fiber
from lawful.fibers.shallow.normal_form import normal_form
from lawful.network import Dag, Mlp
from lawful.network.assemble import as_mlp
from lawful.result import Shown
from lawful.sources.opening import Source, open_graph
from lawful.sources.provenance import with_provenance

# Ways to move the weights of a layered network and keep its function: a lower bound of the dimension of its fiber.

MOST_WORK = 200_000  # products of widths of a pair of layers whose roles are read


@dataclass(frozen=True)
class Freedom:
    """A way to move the weights of a hidden layer, counted from 1, with this many dimensions beyond rescaling."""

    layer: int
    what: str
    dimension: int
    removal: bool = False  # whether a smaller network has the same function


@dataclass(frozen=True, eq=False)
class Freedoms:
    """What was found, and the network that is left without redundant neurons; `complete` if all were looked at."""

    found: tuple[Freedom, ...]
    left: Stack
    complete: bool

    @property
    def dimension(self) -> int:
        """At least so many dimensions has the fiber beyond rescaling."""
        return sum(freedom.dimension for freedom in self.found)


def freedoms(network: Stack) -> Freedoms:
    """Remove what is redundant, count what each removal leaves free, then look at pairs of layers.

    >>> from lawful.network import Mlp
    >>> dead = Mlp([[[1.0], [-2.0]], [[-1.0, -1.0], [3.0, 1.0]], [[1.0, -1.0]]], [[1.0, 1.0], [-0.5, -2.0], [0.0]])
    >>> [(each.layer, each.what, each.dimension) for each in freedoms(Stack.of(dead)).found]
    [(2, 'neuron 0 is dead', 3)]
    """
    stack = network.rational()
    names = [list(range(width)) for width in stack.widths[1:-1]]
    numbers = list(range(1, stack.hidden + 1))
    moves: list[Freedom] = []
    layer = 1
    while layer <= stack.hidden:
        steps = simplifications(stack, layer, 0.0)
        for step in steps:
            freedom, lifts = _freedom(stack, step, names[layer - 1])
            moves.append(Freedom(numbers[layer - 1], *freedom, removal=True))
            stack = step.apply(stack)
            if isinstance(step, Drop | Merge):
                del names[layer - 1][step.neuron if isinstance(step, Drop) else step.drop]
            else:
                del names[layer - 1], numbers[layer - 1]
            if not lifts:
                return Freedoms(tuple(moves), stack, False)
        layer = layer + 1 if not steps else max(layer - 1, 1)
    return Freedoms((*moves, *_of_pairs(stack, names, numbers)), stack, True)


def _freedom(stack: Stack, step: SymmetryStep, names: list[int]) -> tuple[tuple[str, int], bool]:
    """What a removal leaves free, and whether any smaller network near the one that it gives comes from one near."""
    rows, outs = stack.row(step.layer - 1), stack.weights[step.layer]
    inputs, outputs = rows.shape[1] - 1, len(outs)
    if isinstance(step, Merge):
        return (f"neurons {names[step.keep]} and {names[step.drop]} are multiples", outputs), True
    if isinstance(step, Drop):
        row, out = rows[step.neuron], outs[:, step.neuron]
        if is_silent(stack, step.layer, step.neuron):
            return (f"neuron {names[step.neuron]} is dead", inputs + outputs), True
        constant, ignored = all(item == 0 for item in row[:-1]), all(item == 0 for item in out)
        if ignored and (inputs >= outputs or not constant):
            return (f"neuron {names[step.neuron]} reaches no output", inputs), True
        return (f"neuron {names[step.neuron]} is constant", outputs), True
    return _mixing(stack, step.layer)


def _mixing(stack: Stack, layer: int) -> tuple[tuple[str, int], bool]:
    """A linear layer: `U V` is kept by all invertible mixtures; if ReLUs make it up, by those that keep V positive."""
    inner, outer = stack.weights[layer - 1], stack.weights[layer]
    strict = np.full(len(inner), True) if stack.slopes[layer - 1] == 1.0 else (inner > 0).all(axis=1)
    some = int(strict.sum())
    stays = (some - rank_of(inner[strict])) * (some - rank_of(outer[:, strict]))
    dimension = some**2 - stays + len(inner) - some
    lifts = rank_of(inner) == inner.shape[1] or (bool(strict.all()) and rank_of(outer) == len(outer))
    return ("the layer is linear: its neurons can be mixed", dimension), lifts


def _of_pairs(stack: Stack, names: list[list[int]], numbers: list[int]) -> list[Freedom]:
    """The most that layers which are no neighbours can move, each together with the weights above it."""
    best: list[tuple[int, list[Freedom]]] = [(0, []), (0, [])]
    for layer in range(1, stack.hidden + 1):
        here = _of_pair(stack, layer, names[layer - 1], numbers[layer - 1])
        total, chosen = best[-2]
        grown = (total + sum(freedom.dimension for freedom in here), [*chosen, *here])
        best.append(max(best[-1], grown, key=lambda freedom: freedom[0]))
    return best[-1][1]


def _of_pair(stack: Stack, layer: int, names: list[int], number: int) -> list[Freedom]:
    """Roles of the neurons of one layer, seen from the values below to the sums above."""
    inputs, width, outputs = stack.widths[layer - 1 : layer + 2]
    if stack.slopes[layer - 1] != 0.0 or not inputs * width:  # a layer of which nothing is left has no roles
        return []
    if inputs * width * outputs <= MOST_WORK:
        pair = Stack(stack.weights[layer - 1 : layer + 1], stack.biases[layer - 1 : layer + 1], (0.0,))
        above = layer > 1 and stack.slopes[layer - 2] == 0.0
        roles = assigned_fiber(pair, Domain.orthant(inputs) if above else Domain.space(inputs))
        if roles.at_least:
            words = [f"neurons {_list_neurons(names, group.neurons)} cancel" for group in roles.cancelling]
            words += [f"neurons {_list_neurons(names, roles.linear)} act linearly"] if roles.linear else []
            facing = [group.neurons for group in roles.visible if len(group.neurons) > 1]
            words += [f"neurons {_list_neurons(names, some)} face each other" for some in facing]
            return [Freedom(number, "; ".join(words), roles.at_least)]
    hidden = hidden_neuron(stack, layer)
    return [] if hidden is None else [Freedom(number, f"the hyperplane of neuron {names[hidden]} is hidden", 1)]


def _list_neurons(names: list[int], places: tuple[int, ...]) -> str:
    return ", ".join(str(names[place]) for place in places)


MOST_COMPONENTS = 4096  # components looked at before the count is left open
MOST_PARAMETERS = 20_000  # whose freedoms are counted in rationals


@dataclass(frozen=True)
class Roles:
    """How many hyperplanes show, how many groups of neurons cancel, how many neurons are dead (P4 C.2)."""

    visible: int
    cancelling: int
    dead: int


@dataclass(frozen=True)
class FiberSummary:
    """A fiber in numbers, modulo order and scale.

    `at_least` and `at_most` bound its dimension near the given weights; `dimension` is that of the network without the
    `removed` neurons, None where it is open. `components` were looked at as far as `checked`. For bottlenecks `hidden`
    is the first-layer hyperplane that the second layer hides, `lowest_shift` how far it may move down and `flips` how
    many others can be reversed; `roles` are those of a layer that is not minimal. `freedoms` are ways to move the
    weights, `layers` says of each hidden layer whether it is "free" to move, "locally fixed" or "open", `log10_orders`
    is the logarithm of how many orders the neurons have, and `unknown` says in words what is left open. `count` is the
    number of all parameters of this shape with the function, up to order and scale, where it is known and finite, and
    `also` says in words where other components lie.
    """

    kind: str
    dimension: int | None
    removed: int
    components: int | None = None
    checked: int | None = None
    nonempty: int | None = None
    linear: int | None = None
    case: int | None = None
    domain: Domain | None = None
    hidden: int | None = None
    lowest_shift: float | None = None
    flips: int | None = None
    roles: Roles | None = None
    generic: bool | None = None
    at_least: int | None = None
    at_most: int | None = None
    freedoms: tuple[Freedom, ...] = ()
    layers: tuple[str, ...] = ()
    log10_orders: float = 0.0
    unknown: str = ""
    count: int | None = None
    also: str = ""


@dataclass(frozen=True, eq=False)
class PartialFiber:
    """What is known of the fiber of a deep or wide network: order and scale of its neurons, and hidden hyperplanes."""

    network: Mlp | Dag

    def sample(self, seed: int = 0) -> Mlp:
        """The same function with neurons in another order and at other scales, and hidden hyperplanes elsewhere."""
        mlp = self.network if isinstance(self.network, Mlp) else as_mlp(self.network)
        if mlp is None:
            raise Unsupported("samples are written for layered networks: this graph has skips")
        rng = np.random.default_rng(seed)
        stack = Stack.of(mlp)
        for layer in range(1, stack.hidden + 1):
            hidden = hidden_neuron(stack, layer)
            if hidden is not None:
                stack = Translate(layer, hidden, float(rng.integers(1, 17)) / 4).apply(stack)
        return _rescale(stack, seed)


@dataclass(frozen=True, eq=False)
class DescribedFiber(Shown):
    """A fiber in numbers, the fiber itself, and the other parameters where the fiber is finite."""

    summary: FiberSummary
    fiber: LayerwiseFiber | BottleneckFiber | AssignedFiber | PartialFiber
    twins: tuple[Stack, ...] = ()

    def sample(self, count: int, seed: int) -> list[Mlp]:
        """Other parameters of the same function, on as many components as there are samples."""
        if isinstance(self.fiber, AssignedFiber) and self.twins:
            isolated = [self.fiber.stack, *self.twins]
            return [_rescale(isolated[number % len(isolated)], seed + number) for number in range(count)]
        if isinstance(self.fiber, BottleneckFiber):
            return self.fiber.sample(count, seed)
        if isinstance(self.fiber, AssignedFiber | PartialFiber):
            return [self.fiber.sample(seed + number) for number in range(count)]
        live = [c for c in islice(self.fiber.components(), MOST_COMPONENTS) if c.dimension is not None]
        return [self.fiber.sample(live[number % len(live)].flipped, seed + number) for number in range(count)]


def _rescale(stack: Stack, seed: int) -> Mlp:
    """Neurons in another order, and at scales that are powers of two: nothing is rounded that was not before."""
    rng = np.random.default_rng(seed)
    for layer in range(1, stack.hidden + 1):
        width = stack.widths[layer]
        stack = Rescale(layer, tuple(np.exp2(rng.integers(-2, 3, size=width)))).apply(stack)
        stack = Reorder(layer, tuple(rng.permutation(width).tolist())).apply(stack)
    return stack.to_mlp()


def describe_fiber(network: Source, domain: str = "space", seed: int = 0) -> DescribedFiber:
    """One hidden layer and generic three-layer bottlenecks wholly (P4 Sections 4 and 6), others in part (P4 G.1, G.2).

    >>> found = describe_fiber("4-8-8-2 relu bias").summary
    >>> found.kind, found.dimension, found.layers
    ('layers 4-8-8-2', 0, ('locally fixed', 'locally fixed'))
    """
    if domain not in ("space", "orthant"):
        raise LawfulError(f"the domain is space or orthant, not {domain[:40]!r}")
    graph = open_graph(network)
    return with_provenance(_describe(graph, domain, seed), graph)


def _describe(network: Mlp | Dag, domain: str, seed: int) -> DescribedFiber:
    mlp = network if isinstance(network, Mlp) else as_mlp(network)
    if mlp is None:
        if domain == "orthant":
            raise LawfulError("the orthant is a domain for one hidden ReLU layer: leave it out for this graph")
        return DescribedFiber(_of_graph(network.to_dag(), seed), PartialFiber(network))
    stack = stack_of(network)
    if stack.hidden == 1 and stack.slopes == (0.0,):
        where = Domain.orthant(stack.widths[0]) if domain == "orthant" else Domain.space(stack.widths[0])
        return _one_layer(stack, where, seed)
    if domain == "orthant":
        raise LawfulError("the orthant is a domain for one hidden ReLU layer: leave it out for this network")
    moved = freedoms(stack) if mlp.parameters <= MOST_PARAMETERS else None
    known = _summarise(stack, moved, seed)
    if moved is not None and moved.complete:
        try:
            return _by_theorem(moved.left, known, seed)
        except Unsupported:  # deeper, wider, leaky or not generic: what is known must do
            pass
    return DescribedFiber(known, PartialFiber(mlp))


def _summarise(stack: Stack, moved: Freedoms | None, seed: int) -> FiberSummary:
    """Bounds of the dimension from both sides: ways to move the weights, and the rank of the derivatives."""
    near = fixed_directions(stack, seed)
    at_least = 0 if moved is None else moved.dimension
    at_most = None if near is None else near.most - near.fixed
    continuous = () if moved is None else moved.found
    rest = "locally fixed" if at_most == 0 else "open"
    layers = tuple(
        "free" if n in {freedom.layer for freedom in continuous} else rest for n in range(1, stack.hidden + 1)
    )
    unknown = "whether weights far from these give the same function"
    if at_most is None:
        unknown = f"how the layers move together (the network is too large for a rank), and {unknown}"
    elif at_most > at_least:
        more = at_most - at_least
        unknown = f"whether the weights can move in {more} further direction{'s' * (more > 1)}, and {unknown}"
    return FiberSummary(
        f"layers {'-'.join(map(str, stack.widths))}", at_least if at_least == at_most else None, 0,
        at_least=at_least, at_most=at_most, freedoms=continuous, layers=layers,
        log10_orders=_orders(stack), unknown=unknown,
    )  # fmt: skip


def _of_graph(graph: Dag, seed: int) -> FiberSummary:
    """A graph with skips: its weights are its edges, and all that is known is the rank of the derivatives."""
    near = fixed_directions(as_layers(graph), seed, graph)
    at_most = None if near is None else near.most - near.fixed
    unknown = "which other symmetries the graph has, and whether weights far from these give the same function"
    dimension = 0 if at_most == 0 else None
    return FiberSummary("graph with skips", dimension, 0, at_least=0, at_most=at_most, unknown=unknown)


def _by_theorem(left: Stack, known: FiberSummary, seed: int) -> DescribedFiber:
    """What P4 knows of a network without redundant neurons: one hidden layer, or a bottleneck that is generic."""
    if min(left.widths) == 0:
        raise Unsupported("nothing of this network reaches the output: it is constant")
    removed = sum(freedom.removal for freedom in known.freedoms)
    bounds = {
        key: getattr(known, key) for key in ("at_least", "at_most", "freedoms", "layers", "log10_orders")
    }  # of the network as it was given
    if left.hidden == 1:
        one = _one_layer(left, Domain.space(left.widths[0]), seed)
        count = None if removed else one.summary.count
        return replace(one, summary=replace(one.summary, removed=removed, count=count, **bounds))
    theorem = bottleneck_fiber(left)
    if single_neuron.is_ramp(left):
        return _of_ramp(left, theorem, known, removed)
    rigid = bottleneck_rigidity(left, seed)
    if rigid.genericity.holds is False:
        raise Unsupported(f"not generic: {rigid.genericity.reason}")
    if theorem.head is not None:
        checked, nonempty = _components(theorem.head)
        total, linear, case = 2 ** len(theorem.head.bending), len(theorem.head.linear), theorem.head.case
    else:
        checked = nonempty = total = 2**theorem.flips
        linear, case = 0, None
    generic = rigid.genericity.holds
    sure = generic or (not removed and theorem.dimension == known.at_most)
    if generic and theorem.head is not None:
        above = "fixed" if nonempty == 1 and theorem.dimension == 0 and not removed else "free"
        bounds["layers"] = ("free" if known.layers[0] == "free" else "fixed", above)
    summary = FiberSummary(
        "three-layer bottleneck", theorem.dimension if sure else None, removed, total, checked, nonempty, linear, case,
        hidden=theorem.hidden, lowest_shift=theorem.lowest_shift, flips=theorem.flips, generic=generic,
        unknown="" if generic else f"other parameters, unless the weights are generic ({rigid.genericity.reason})",
        **bounds,
    )  # fmt: skip
    return DescribedFiber(summary, theorem)


def _of_ramp(left: Stack, found: BottleneckFiber, known: FiberSummary, removed: int) -> DescribedFiber:
    """A first layer of one neuron, whose fiber P4 Section 6 does not describe.

    The function bends at n2 + 1 places, or at n2, and is constant on one side. At n2 + 1, all neurons have their place:
    the first layer's is the first bend, or the last if the function is constant there too. At n2, the first layer's is
    hidden below the first bend, or it is the first bend and one second-layer neuron is linear, while each of the others
    may look either way.
    """
    exact = left.rational()
    width, full = exact.widths[2], single_neuron.bends_fully(exact)
    jumps = [group.jump for group in normal_form(single_neuron.as_one_layer(exact), tolerance=0.0).visible]
    if single_neuron.falls(exact):
        if not full:
            raise Unsupported("not generic: second-layer neurons share a bend, or can be reversed together")
        count, dimension, layers = 2, 0, ("locally fixed", "locally fixed")
        also = "with the first layer reversed"
    else:
        if full and len(jumps) > width:
            count, dimension, layers, also = 1, 0, ("fixed", "fixed"), ""
        elif balanced_subset(jumps) != () or len(jumps) != width:
            raise Unsupported("not generic: not all second-layer neurons show, or some can be reversed together")
        else:
            count, dimension, layers = 1 + 2 ** (width - 1), 1, ("free", "free")
            linear = "with the first layer where the function first bends, and one second-layer neuron linear"
            also = linear if found.hidden is not None else "with the first layer hidden, below the first bend"
    linear_neurons = int(((exact.weights[1][:, 0] > 0) & (exact.biases[1] >= 0)).sum())
    summary = FiberSummary(
        "three-layer bottleneck", dimension, removed, count, count, count, linear_neurons,
        hidden=found.hidden, lowest_shift=found.lowest_shift, flips=found.flips, generic=True,
        at_least=known.at_least, at_most=known.at_most, freedoms=known.freedoms,
        layers=known.layers if removed else layers, log10_orders=known.log10_orders,
        count=count if dimension == 0 and not removed else None, also=also,
    )  # fmt: skip
    return DescribedFiber(summary, found)


def _one_layer(stack: Stack, domain: Domain, seed: int) -> DescribedFiber:
    space = not (domain.low == 0).all()
    answer = identifiable(stack) if space else None
    known = () if answer is None else answer.layers
    count = None if answer is None else answer.count
    try:
        layer = layerwise_fiber(stack, domain)
        checked, nonempty = _components(layer)
        fixed = "fixed" if checked == 2 ** len(layer.bending) else "locally fixed"
        layers = known or (fixed if layer.dimension == 0 and nonempty == 1 else "free",)
        summary = FiberSummary(
            "one hidden layer", layer.dimension, 0, 2 ** len(layer.bending), checked, nonempty, len(layer.linear),
            layer.case, domain, generic=True, at_least=layer.dimension, at_most=layer.dimension,
            layers=layers, log10_orders=_orders(stack), count=count,
        )  # fmt: skip
        return DescribedFiber(summary, layer)
    except Unsupported as error:  # more linear neurons than the theorem has cases for, not minimal, not generic
        roles = assigned_fiber(stack, domain)
        kind = "not generic" if str(error).startswith("not generic") else "not minimal"
    near = fixed_directions(stack, seed) if space else None
    at_most = 0 if count is not None else near.most - near.fixed if near is not None else None
    # where weights vanish or cancel, the parameter may also lie at the edge of sets with other roles
    dimension = roles.at_least if roles.at_least == at_most else None
    summary = FiberSummary(
        f"one hidden layer, {kind}", dimension, 0, count, count, count, len(roles.linear), None, domain,
        roles=Roles(len(roles.visible), len(roles.cancelling), len(roles.dead)), generic=False,
        at_least=roles.at_least, at_most=at_most, layers=known or ("free" if roles.at_least else "open",),
        log10_orders=_orders(stack), count=count,
        unknown="" if count is not None else "parameters in which neurons have other roles or orientations",
    )  # fmt: skip
    return DescribedFiber(summary, roles, () if answer is None or count is None else answer.twins)


def _orders(stack: Stack) -> float:
    """The decimal logarithm of how many orders the neurons of all layers have."""
    return sum(lgamma(width + 1) for width in stack.widths[1:-1]) / log(10)


def _components(fiber: LayerwiseFiber) -> tuple[int, int]:
    """How many components were looked at, and how many of them are not empty."""
    seen = list(islice(fiber.components(), MOST_COMPONENTS))
    return len(seen), sum(component.dimension is not None for component in seen)
