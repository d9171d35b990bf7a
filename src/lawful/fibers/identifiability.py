"""Does a function determine its parameters, up to order and scale of neurons? Decided in rationals, or left open."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lawful.fibers.bottleneck_genericity import bottleneck_rigidity
from lawful.fibers.genericity import Genericity
from lawful.fibers.identification import RidgeWitness, balanced_subset, rank_of
from lawful.fibers.local_rank import FixedDirections, fixed_directions
from lawful.fibers.reduce import hidden_neuron
from lawful.fibers.shallow import Kind, group_rows, normal_form
from lawful.fibers.skips_as_layers import layered
from lawful.fibers.stack import Stack
from lawful.network import Dag, Mlp
from lawful.network.assemble import as_mlp
from lawful.shown import Shown

ORDINALS = ("first", "second", "third", "fourth", "fifth")


@dataclass(frozen=True)
class Identifiability(Shown):
    """Whether the function determines the parameters up to permutation and scaling; None means undecided.

    A yes is meant among generic parameters of the same shape (P4 Definition 8). `layers` says of each hidden layer what
    is known of its weights: "fixed" by the function, "locally fixed" if no other weights near these give it, "free" to
    move, or "open"; `ridges` are the witnesses.
    """

    identifiable: bool | None
    reasons: tuple[str, ...]
    genericity: Genericity
    layers: tuple[str, ...] = ()
    ridges: tuple[RidgeWitness, ...] = ()


def identifiable(network: Mlp | Dag | Stack, *, seed: int = 0) -> Identifiability:
    """One hidden layer (P4 Section 4), three-layer bottlenecks (Theorem 5), and what is known beyond them.

    *No* comes with a symmetry that moves the weights; it needs no genericity. *Yes* needs that every neuron is fixed by
    what the function shows; pairs and ranks are decided in rationals, nothing is sampled.

    >>> weights = [[[1.0, 0.2], [0.3, 1.0]], [[1.0, -1.5], [-2.0, 1.1]], [[1.0, 3.0]]]
    >>> identifiable(Mlp(weights, [[0.1, 0.7], [-1.0, 1.0], [0.0]])).identifiable
    True
    >>> identifiable(Mlp([[[1.0, 0.2], [0.3, 1.0]], [[1.0, -1.5]], [[1.0]]], [[0.1, 0.7], [-1.0], [0.0]])).reasons
    ('the second layer hides hyperplane 0: it translates, and 1 other can be flipped',)
    """
    if isinstance(network, Dag):
        mlp = as_mlp(network)
        return _graph(network, seed) if mlp is None else identifiable(mlp, seed=seed)
    stack = network if isinstance(network, Stack) else Stack.of(network)
    free = symmetries(stack)
    if free:
        status = tuple("free" if layer in free else "open" for layer in range(1, stack.hidden + 1))
        words = tuple(reason for reasons in free.values() for reason in reasons)
        return Identifiability(False, words, Genericity(None, "a symmetry needs none", "exactly"), status)
    if stack.hidden == 1 and stack.slopes == (0.0,):
        return _one_layer(stack)
    shape = _not_a_bottleneck(stack)
    if shape:
        words = (f"no symmetry of single layers was found, but {shape}: what the layers hide together is open",)
        near, settled = _near(fixed_directions(stack, seed))
        status = ("locally fixed" if settled else "open",) * stack.hidden
        return Identifiability(None, (*words, *near), Genericity(None, "not tested", "nothing"), status)
    return _bottleneck(stack, seed)


def _graph(graph: Dag, seed: int) -> Identifiability:
    """A graph with skips: its weights are its edges, not those of the layers that stand for it."""
    near, _ = _near(fixed_directions(layered(graph), seed, graph))
    words = ("the network is a graph with skips or missing weights, which the theorems do not cover", *near)
    return Identifiability(None, words, Genericity(None, "not tested", "nothing"))


def _near(found: FixedDirections | None) -> tuple[tuple[str, ...], bool]:
    """What the rank of the derivatives says of the weights nearby, and whether it says all."""
    if found is None:
        return (), False
    if found.fixed == found.most:
        return ("near these weights only rescaled neurons give the same function (rank of its derivatives)",), True
    count = f"at least {found.fixed} of {found.most} directions that are no rescalings"
    return (f"near these weights the function fixes {count} (rank of its derivatives)",), False


def symmetries(stack: Stack) -> dict[int, list[str]]:
    """Changes of weights that keep the function, by hidden layer; they exist whatever the other layers are."""
    found: dict[int, list[str]] = {}
    for layer in range(1, stack.hidden + 1):
        rows, above, name = stack.row(layer - 1), stack.weights[layer], _ordinal(layer)
        reasons = []
        rectified = layer >= 2 and stack.slopes[layer - 2] == 0.0
        relu = stack.slopes[layer - 1] == 0.0
        for j, row in enumerate(rows):
            if all(item == 0 for item in above[:, j]):
                reasons.append(f"{name}-layer neuron {j} reaches no output: its weights are free")
            elif relu and all(item == 0 for item in row[:-1]):
                reasons.append(f"{name}-layer neuron {j} is constant: its bias is free")
            elif rectified and relu and (row <= 0).all():
                reasons.append(f"{name}-layer neuron {j} is dead: its weights are free")
            elif rectified and (row >= 0).all():
                image = "the image of the first layer" if layer == 2 else "what it sees"
                reasons.append(f"{name}-layer neuron {j} is linear on {image}")
        for group in group_rows(rows, 0.0):
            alike = [j for j, factor in group if factor > 0], [j for j, factor in group if factor < 0]
            reasons += [f"{name}-layer neurons {_listed(some)} are multiples" for some in alike if len(some) > 1]
        if stack.slopes[layer - 1] == 1.0:
            reasons.append(f"the {name} layer is linear: it can be mixed")
        hidden = None if reasons else hidden_neuron(stack, layer)
        if hidden is not None:
            flips = stack.widths[layer] - 1 if stack.widths[layer + 1] == 1 else 0
            more = f", and {flips} other{'s' if flips > 1 else ''} can be flipped" if flips else ""
            hides = f"the {_ordinal(layer + 1)} layer hides hyperplane {hidden}" + (f" of layer {layer}" * (layer > 1))
            reasons.append(f"{hides}: it translates{more}")
        if reasons:
            found[layer] = reasons
    return found


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))


def _ordinal(layer: int) -> str:
    return ORDINALS[layer - 1] if layer <= len(ORDINALS) else f"{layer}th"


def _not_a_bottleneck(stack: Stack) -> str:
    if stack.hidden != 2 or set(stack.slopes) != {0.0}:
        return f"the theorem needs two hidden ReLU layers, not {stack.hidden} with slopes {stack.slopes}"
    if stack.widths[1] > stack.widths[0]:
        return f"not a bottleneck: the first layer has {stack.widths[1]} neurons for {stack.widths[0]} inputs"
    return ""


def _one_layer(stack: Stack) -> Identifiability:
    """Every neuron visible, no two of one orientation on a hyperplane, no set of them that can be reversed together.

    Two neurons that face each other share what bends between them only through a linear part, `w ⊗ (a' − a)`.
    """
    form = normal_form(stack, tolerance=0.0)
    idle = [number for number, kind in enumerate(form.kinds) if kind is not Kind.VISIBLE]
    if idle:  # groups that cancel can be moved together, or rescaled against each other
        words = tuple(f"neuron {number} is {form.kinds[number]}" for number in idle)
        return Identifiability(False, words, Genericity(False, words[0], "exactly"), ("free",))
    facing = [group for group in form.groups if len(group.neurons) > 1]
    if not facing:
        answer, words = _reversible(stack, 0)
        generic = Genericity(True, "every neuron has its own hyperplane", "exactly")
    else:
        terms = [
            np.outer(group.jump, group.hyperplane[:-1]).ravel() for group in form.groups if len(group.neurons) == 1
        ]
        for group in facing:
            for output in range(len(group.jump)):
                share = group.jump * 0
                share[output] = share[output] + 1
                terms.append(np.outer(share, group.hyperplane[:-1]).ravel())
        answer = True if rank_of(np.array(terms, dtype=object)) == len(terms) else None
        pairs = "; ".join(f"neurons {_listed(list(group.neurons))} face each other" for group in facing)
        words = (f"{pairs}; {'nothing can move between them' if answer else 'whether they can move is open'}",)
        generic = Genericity(False, pairs, "exactly")
    return Identifiability(answer, words, generic, ({True: "fixed", False: "free", None: "open"}[answer],))


def _reversible(stack: Stack, layer: int) -> tuple[bool | None, tuple[str, ...]]:
    """Whether orientation is fixed: reversed neurons leave a linear part, which must vanish."""
    exact = stack.rational()
    rows, outs = exact.weights[layer], exact.weights[layer + 1]
    terms = [np.array([a * b for a in outs[:, j] for b in rows[j]], dtype=object) for j in range(len(rows))]
    flips = balanced_subset(terms)
    if flips:
        return False, (f"neurons {_listed(list(flips))} can be reversed together",)
    if flips is None:
        return None, (f"whether some of the {len(terms)} neurons can be reversed together is open",)
    return True, ("every neuron has its own hyperplane, and no orientation can change",)


def _bottleneck(stack: Stack, seed: int) -> Identifiability:
    """P4 Theorem 5 without its sign conditions, which hold: each neuron fixed by a ridge, or all masks looked at."""
    generic, problems, ridges, missing = bottleneck_rigidity(stack, seed)
    if problems:
        return Identifiability(None, tuple(f"not generic: {each}" for each in problems), generic, ("open", "open"))
    oriented, words = _reversible(stack, 1)
    if oriented is False:
        return Identifiability(False, words, Genericity(False, words[0], "exactly"), ("open", "free"))
    if generic.holds is not True:
        some = f"first-layer neurons {_listed(list(missing[:8]))}{', ...' if len(missing) > 8 else ''}"
        words = (f"whether the function fixes {some} is open: no ridge was found that does, and {generic.reason}",)
        return Identifiability(None, words, generic, ("open", "open"), ridges)
    if oriented is None:
        return Identifiability(None, words, generic, ("fixed", "open"), ridges)
    words = ("no dead or linear second-layer neuron, and no hidden hyperplane",)
    return Identifiability(True, words, generic, ("fixed", "fixed"), ridges)
