"""Ways to move the weights of a layered network and keep its function: a lower bound of the dimension of its fiber.

Redundant neurons are removed one after the other, in rationals. What a removed neuron may be, given any weights of the
others, adds up: whoever moves along the fiber of the smaller network can put it back. Of what stays, pairs of layers
have the freedom of P4 Definition 22 and hidden hyperplanes move; pairs that share no layer move independently.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lawful.fibers.deep.identification import rank_of
from lawful.fibers.layers import Stack
from lawful.fibers.reduce import hidden_neuron, simplifications
from lawful.fibers.regions.domain import Domain
from lawful.fibers.reparametrisations import Drop, Merge, SymmetryStep, is_silent
from lawful.fibers.shallow.assignments import assigned_fiber

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
        return sum(each.dimension for each in self.found)


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
    found: list[Freedom] = []
    layer = 1
    while layer <= stack.hidden:
        steps = simplifications(stack, layer, 0.0)
        for step in steps:
            freedom, lifts = _freedom(stack, step, names[layer - 1])
            found.append(Freedom(numbers[layer - 1], *freedom, removal=True))
            stack = step.apply(stack)
            if isinstance(step, Drop | Merge):
                del names[layer - 1][step.neuron if isinstance(step, Drop) else step.drop]
            else:
                del names[layer - 1], numbers[layer - 1]
            if not lifts:
                return Freedoms(tuple(found), stack, False)
        layer = layer + 1 if not steps else max(layer - 1, 1)
    return Freedoms((*found, *_of_pairs(stack, names, numbers)), stack, True)


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
        grown = (total + sum(each.dimension for each in here), [*chosen, *here])
        best.append(max(best[-1], grown, key=lambda each: each[0]))
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
            words = [f"neurons {_listed(names, group.neurons)} cancel" for group in roles.cancelling]
            words += [f"neurons {_listed(names, roles.linear)} act linearly"] if roles.linear else []
            facing = [group.neurons for group in roles.visible if len(group.neurons) > 1]
            words += [f"neurons {_listed(names, some)} face each other" for some in facing]
            return [Freedom(number, "; ".join(words), roles.at_least)]
    hidden = hidden_neuron(stack, layer)
    return [] if hidden is None else [Freedom(number, f"the hyperplane of neuron {names[hidden]} is hidden", 1)]


def _listed(names: list[int], places: tuple[int, ...]) -> str:
    return ", ".join(str(names[place]) for place in places)
