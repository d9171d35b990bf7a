"""What is said of parameters and functions: identifiable, fibers, standard members, hashes, regions, equality."""

from __future__ import annotations

from collections.abc import Sequence

from lawful.sentences import sentence

UP_TO = "up to order and scale of the neurons"


# Identifiable


@sentence(
    "fibers.identifiable", claims="no other parameters of this shape, generic ones if it says so, have the function"
)
def identifiable(generic: bool) -> str:
    """The answer yes, and among which parameters."""
    among = "generic networks of this shape (P4 Definition 8)" if generic else "all networks of this shape"
    return f"IDENTIFIABLE, {UP_TO}, among {among}, with biases"


@sentence(
    "fibers.not_identifiable", claims="other parameters of this shape, no reordering and rescaling, have the function"
)
def not_identifiable() -> str:
    """The answer no."""
    return f"NOT IDENTIFIABLE, {UP_TO}, among networks of this shape, with biases"


@sentence(
    "fibers.twins", claims="exactly, or at least, so many other parameters have the function, up to order and scale"
)
def twins(others: int, exactly: bool) -> str:
    """How many other parameters have the same function."""
    many = "1 other parameter has" if others == 1 else f"{others:,} other parameters have"
    return f"{'exactly' if exactly else 'at least'} {many} this function, {UP_TO}"


@sentence("fibers.unheard", claims="the neuron's output weights are all zero")
def unheard(layer: str, neuron: int) -> str:
    """A neuron that nothing above listens to."""
    return f"{layer}-layer neuron {neuron} reaches no output: its weights are free"


@sentence("fibers.constant", claims="the neuron's input weights are all zero")
def constant(layer: str, neuron: int) -> str:
    """A neuron that does not depend on the input."""
    return f"{layer}-layer neuron {neuron} is constant: its bias is free"


@sentence("fibers.dead", claims="the neuron is zero for every input")
def dead(layer: str, neuron: int) -> str:
    """A neuron above a ReLU layer without a positive weight or bias."""
    return f"{layer}-layer neuron {neuron} is dead: its weights are free"


@sentence("fibers.linear", claims="the neuron is active, or zero, for every input")
def linear(layer: str, neuron: int, sees: str) -> str:
    """A neuron above a ReLU layer without a negative weight or bias."""
    return f"{layer}-layer neuron {neuron} is linear on {sees}"


@sentence("fibers.multiples", claims="the neurons are positive multiples of each other for every input")
def multiples(layer: str, neurons: Sequence[int]) -> str:
    """Neurons on one hyperplane that look the same way."""
    return f"{layer}-layer neurons {_list_numbers(neurons)} are multiples"


@sentence(
    "fibers.hidden",
    claims="translating the hyperplane can be made up for by the next biases, and flipping so many others",
)
def hidden(hider: str, neuron: int, layer: int, flips: int) -> str:
    """A hyperplane that leaves no trace in the function (P4 Section 5)."""
    more = f", and {flips} other{'s' if flips > 1 else ''} can be flipped" if flips else ""
    where = f" of layer {layer}" * (layer > 1)
    return f"the {hider} layer hides hyperplane {neuron}{where}: it translates{more}"


@sentence("fibers.reversible", claims="reversing these neurons together keeps the function, with other output biases")
def reversible(neurons: Sequence[int]) -> str:
    """Neurons whose linear parts add up to zero."""
    return f"neurons {_list_numbers(neurons)} can be reversed together"


@sentence(
    "fibers.other_roles", claims="the function also comes from a network of this shape with other roles of its neurons"
)
def other_roles(pairs: Sequence[Sequence[int]]) -> str:
    """Neurons that face each other, and another way to share out the function (P4 Definition 22)."""
    return f"{_facing(pairs)}; the function can also be shared out in other ways"


@sentence("fibers.only_roles", claims="no other roles of the neurons, on any hyperplanes, give the function")
def only_roles(pairs: Sequence[Sequence[int]]) -> str:
    """All assignments of roles were looked at."""
    if not pairs:
        return "every neuron has its own hyperplane, and no orientation can change"
    return f"{_facing(pairs)}; no other roles of the neurons give the function"


@sentence(
    "fibers.reversed_ramp", claims="the same function comes from the first layer reversed, with other second weights"
)
def reversed_ramp() -> str:
    """A first layer of one neuron that every second-layer neuron falls with."""
    return "the only first-layer neuron can be reversed: no second-layer neuron grows with it"


@sentence("fibers.fixed_ramp", claims="no other parameters of this shape have the function")
def fixed_ramp() -> str:
    """A first layer of one neuron: some second-layer neurons grow with it and some fall, none can be reversed."""
    return "the function bends as often as it can, and only its first bend can be the first layer's"


@sentence("fibers.no_symmetry", claims="no other generic parameters of this shape have the function")
def no_symmetry() -> str:
    """P4 Theorem 5, for two first-layer neurons or more."""
    return "no dead or linear second-layer neuron, and no hidden hyperplane"


@sentence("fibers.locally_fixed", claims="no other parameters near these, but rescaled ones, have the function")
def locally_fixed() -> str:
    """The rank of the derivatives is as large as it can be."""
    return "near these weights only rescaled neurons give the same function (rank of its derivatives)"


# Fibers


@sentence(
    "fibers.dimension", claims="near the parameter its fiber has this dimension, or one between these, beyond rescaling"
)
def freedoms(dimension: int | None, least: int | None, most: int | None) -> str:
    """How many continuous freedoms there are."""
    if dimension is not None:
        words = str(dimension)
    elif most is None:
        words = f"at least {least}"
    else:
        words = f"{least} to {most}"
    return f"{words} continuous freedom{'' if words == '1' else 's'} beyond order and scale"


@sentence(
    "fibers.layer_fixed",
    claims="in every generic parameter of the function this layer is the same, up to order and scale",
)
def layer_statuses(statuses: Sequence[str]) -> str:
    """What is known of each hidden layer."""
    return ", ".join(f"layer {number} {status}" for number, status in enumerate(statuses, 1))


@sentence("fibers.hidden_shift", claims="the hidden hyperplane can move by any larger shift")
def hidden_shift(neuron: int, lowest: str) -> str:
    """How far a hidden hyperplane moves."""
    moves = f"it can move by any t > {lowest}, the second biases compensate"
    return f"Hyperplane {neuron} of the first layer is hidden: {moves}"


# Standard members and hashes


@sentence(
    "fibers.canonical", claims="every network with this function whose form is also complete has this standard member"
)
def canonical(complete: bool) -> str:
    """What a standard member is worth."""
    if complete:
        return "determined by the function alone"
    return "order and scale of the neurons do not change it; other weights of the function may have another"


@sentence("fibers.functions", claims="the networks have at most so many functions")
def functions(networks: int, groups: int) -> str:
    """How many functions there are among many networks: networks of one group were proved to be one function."""
    many = "1 network" if networks == 1 else f"{networks} networks"
    if groups == 1:
        return f"{many}, 1 function"
    return f"{many}, at most {groups} functions"


@sentence("fibers.one_function", claims="the networks named are one function")
def one_function(names: Sequence[str]) -> str:
    """Networks that share a hash which no two functions share."""
    return f"the same: {', '.join(names)}"


# Regions and equality


@sentence(
    "fibers.regions", claims="there are this many regions, or at least as many, on which no neuron changes its sign"
)
def regions(count: int, complete: bool, domain: str) -> str:
    """How many regions there are."""
    many = "1 region" if count == 1 else f"{count:,} regions"
    return f"{many if complete else f'at least {many}'} on {domain}"


@sentence(
    "fibers.facets", claims="one neuron alone changes its sign at so many facets; the function bends at so many of them"
)
def facets(count: int, visible: int) -> str:
    """How many facets there are: neurons that change together have none."""
    return f"{count:,} facets where one neuron changes its sign, {visible:,} of them visible in the function"


@sentence(
    "fibers.equal",
    claims="the two networks are the same function on the domain, exactly, weight by weight, or within a bound",
)
def equal(within: str, size: str, domain: str) -> str:
    """The same function, and what that means."""
    meaning = {
        "exactly": "exactly",
        "weights": f"weight by weight within {size}",
        "outputs": f"within {size} of output",
    }[within]
    return f"EQUAL {meaning} on {domain}"


@sentence("fibers.different", claims="the outputs differ at the input, by at least so much")
def different(gap: str) -> str:
    """How far the outputs differ at a counterexample."""
    return f"They differ by at least {gap}, in exact arithmetic"


def _facing(pairs: Sequence[Sequence[int]]) -> str:
    return "; ".join(f"neurons {_list_numbers(pair)} face each other" for pair in pairs)


def _list_numbers(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
