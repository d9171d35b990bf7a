"""Does a function determine its parameters, up to order and scale of neurons? Decided in rationals, or left open."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from lawful.fibers.deep import single_neuron
from lawful.fibers.deep.genericity import Genericity, bottleneck_rigidity
from lawful.fibers.deep.identification import RidgeWitness, balanced_subset
from lawful.fibers.deep.local_rank import FixedDirections, fixed_directions
from lawful.fibers.layers import Stack, as_layers
from lawful.fibers.reduce import hidden_neuron
from lawful.fibers.shallow.normal_form import Kind, group_rows, normal_form
from lawful.fibers.shallow.roles import RoleAssignments, role_assignments
from lawful.network import Dag, Mlp
from lawful.network.assemble import as_mlp
from lawful.result import Shown
from lawful.sentences import fibers as sentences

MOST_TWINS = 64  # other parameters that are listed
ORDINALS = ("first", "second", "third", "fourth", "fifth")


@dataclass(frozen=True)
class Identifiability(Shown):
    """Whether the function determines the parameters up to permutation and scaling; None means undecided.

    A yes is meant `among` "all" parameters of the same shape, or "generic" ones (P4 Definition 8). `twins` are other
    parameters of the function where there are finitely many, and `count` is how many there are with this one, up to
    order and scale; None if infinitely many, or not known. `layers` says of each hidden layer what is known of its
    weights: "fixed" by the function, "locally fixed" if no other weights near these give it, "free" to move, or "open";
    `ridges` are the witnesses.
    """

    identifiable: bool | None
    reasons: tuple[str, ...]
    genericity: Genericity
    layers: tuple[str, ...] = ()
    ridges: tuple[RidgeWitness, ...] = ()
    among: str | None = None
    twins: tuple[Stack, ...] = ()
    count: int | None = None


def identifiable(network: Mlp | Dag | Stack, *, seed: int = 0) -> Identifiability:
    """One hidden layer (P4 C.2), three-layer bottlenecks (Theorem 5), and what is known beyond them.

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
    return _ramp(stack) if single_neuron.is_ramp(stack) else _bottleneck(stack, seed)


def _graph(graph: Dag, seed: int) -> Identifiability:
    """A graph with skips: its weights are its edges, not those of the layers that stand for it."""
    near, _ = _near(fixed_directions(as_layers(graph), seed, graph))
    words = ("the network is a graph with skips or missing weights, which the theorems do not cover", *near)
    return Identifiability(None, words, Genericity(None, "not tested", "nothing"))


def _near(found: FixedDirections | None) -> tuple[tuple[str, ...], bool]:
    """What the rank of the derivatives says of the weights nearby, and whether it says all."""
    if found is None:
        return (), False
    if found.fixed == found.most:
        return (sentences.locally_fixed(),), True
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
                reasons.append(sentences.unheard(name, j))
            elif all(item == 0 for item in row[:-1]):
                reasons.append(sentences.constant(name, j))
            elif rectified and relu and (row <= 0).all():
                reasons.append(sentences.dead(name, j))
            elif rectified and (row >= 0).all():
                image = "the image of the first layer" if layer == 2 else "what it sees"
                reasons.append(sentences.linear(name, j, image))
        for group in group_rows(rows, 0.0):
            alike = [j for j, factor in group if factor > 0], [j for j, factor in group if factor < 0]
            reasons += [sentences.multiples(name, some) for some in alike if len(some) > 1]
        if stack.slopes[layer - 1] == 1.0:
            reasons.append(f"the {name} layer is linear: it can be mixed")
        hidden = None if reasons else hidden_neuron(stack, layer)
        if hidden is not None:
            flips = stack.widths[layer] - 1 if stack.widths[layer + 1] == 1 else 0
            reasons.append(sentences.hidden(_ordinal(layer + 1), hidden, layer, flips))
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
    """Every neuron shows, and all roles that as many neurons can have in this function are looked at."""
    form = normal_form(stack, tolerance=0.0)
    idle = [number for number, kind in enumerate(form.kinds) if kind is not Kind.VISIBLE]
    if idle:  # groups that cancel can be moved together, or rescaled against each other
        words = tuple(f"neuron {number} is {form.kinds[number]}" for number in idle)
        return Identifiability(False, words, Genericity(False, words[0], "exactly"), ("free",))
    pairs = [group.neurons for group in form.groups if len(group.neurons) > 1]
    facing = "; ".join(f"neurons {_listed(list(pair))} face each other" for pair in pairs)
    own = "every neuron has its own hyperplane"
    generic = Genericity(not pairs, facing or own, "exactly")
    roles = role_assignments(stack)
    if roles.complete and len(roles.found) == 1 and roles.found[0].isolated:
        return Identifiability(True, (sentences.only_roles(pairs),), generic, ("fixed",), among="all", count=1)
    others = list(islice(other_roles(roles), MOST_TWINS))
    if not others:
        why = f"whether they can have other roles is open: {len(form.visible)} hyperplanes are too many to look at"
        return Identifiability(None, (f"{generic.reason}; {why}",), generic, ("open",))
    reason = sentences.other_roles(pairs) if pairs else sentences.reversible(others[0][1])
    near = "locally fixed" if roles.count is not None else "open"
    twins = tuple(member for member, _ in others) if all(each.isolated for each in roles.found) else ()
    return Identifiability(False, (reason,), generic, (near,), among="all", twins=twins, count=roles.count)


def other_roles(roles: RoleAssignments) -> Iterator[tuple[Stack, tuple[int, ...]]]:
    """Other parameters of the same function, one for every assignment but the network's own; and which neurons turn."""
    form = roles.form
    faces = tuple(k for k, group in enumerate(form.visible) if len(group.neurons) > 1)
    turns = tuple(k for k, group in enumerate(form.visible) if len(group.neurons) == 1 and group.factors[0] < 0)
    for each in roles.found:
        if (each.facing, each.turned) != (faces, turns) or not each.isolated:
            changed = sorted(form.visible[k].neurons[0] for k in set(each.turned) ^ set(turns))
            yield roles.member(each), tuple(changed)


def _ramp(stack: Stack) -> Identifiability:
    """A first layer of one neuron: P4 Theorem 5 does not hold, but all parameters can be looked at."""
    exact = stack.rational()
    full = single_neuron.bends_fully(exact)
    if single_neuron.falls(exact):
        generic = Genericity(None, "a twin needs none", "exactly")
        twin = (single_neuron.reverse(exact),)
        status, count = ("locally fixed", 2) if full else ("open", None)
        return Identifiability(
            False, (sentences.reversed_ramp(),), generic, (status, status), twins=twin if full else (), count=count
        )
    for group in group_rows(exact.row(1), 0.0):
        if len(group) > 1:
            problem = f"second-layer neurons {_listed([j for j, _ in group])} share a hyperplane"
            generic = Genericity(False, problem, "exactly")
            return Identifiability(None, (f"not generic: {problem}",), generic, ("open", "open"))
    oriented, reasons = _reversible(stack, 1)
    if oriented is None:
        return Identifiability(None, reasons, Genericity(None, "not tested", "nothing"), ("open", "open"))
    if not oriented:
        return Identifiability(False, reasons, Genericity(False, reasons[0], "exactly"), ("open", "open"))
    generic = Genericity(True, "no two neurons bend at one place, and no set of them can be reversed", "exactly")
    return Identifiability(True, (sentences.fixed_ramp(),), generic, ("fixed", "fixed"), among="all", count=1)


def _reversible(stack: Stack, layer: int) -> tuple[bool | None, tuple[str, ...]]:
    """Whether orientation is fixed: reversed neurons leave a linear part, which must vanish."""
    exact = stack.rational()
    rows, outs = exact.weights[layer], exact.weights[layer + 1]
    terms = [np.array([a * b for a in outs[:, j] for b in rows[j]], dtype=object) for j in range(len(rows))]
    flips = balanced_subset(terms)
    if flips:
        return False, (sentences.reversible(flips),)
    if flips is None:
        return None, (f"whether some of the {len(terms)} neurons can be reversed together is open",)
    return True, (sentences.only_roles(()),)


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
    words = (sentences.no_symmetry(),)
    return Identifiability(True, words, generic, ("fixed", "fixed"), ridges, among="generic")
