"""Does a function determine its parameters, up to order and scale of neurons? Decided in rationals, or left open.

The evidence is one JSON object that `lawful verify` re-checks. No: other parameters of the same function, made by the
symmetry that was found; all of them, where they are finitely many. Yes: one hidden layer, and a first layer of one
neuron, speak for themselves; of two, ridges fix the first.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from math import comb
from typing import Any

import numpy as np
from flint import fmpq

from lawful.errors import CertificateError, Unsupported
from lawful.fibers.deep import single_neuron
from lawful.fibers.deep.genericity import Genericity, bottleneck_rigidity
from lawful.fibers.deep.identification import RidgeWitness, balanced_subset
from lawful.fibers.deep.local_rank import FixedDirections, fixed_directions
from lawful.fibers.deep.single_neuron import falls, is_ramp, reverse
from lawful.fibers.layers import Array, Stack, as_layers
from lawful.fibers.reduce import hidden_neuron
from lawful.fibers.regions.comparison_proof import prove_by_regions
from lawful.fibers.regions.domain import Domain
from lawful.fibers.reparametrisations import Drop, Merge, SymmetryStep, Translate
from lawful.fibers.shallow.normal_form import Kind, group_rows, normal_form
from lawful.fibers.shallow.roles import RoleAssignments, role_assignments
from lawful.fibers.verdict import mlp_json, step_json
from lawful.network import Dag, Mlp
from lawful.network.assemble import as_mlp
from lawful.network.digest import digest
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
    by_kind: dict[int, list[str]] = {}
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
            by_kind[layer] = reasons
    return by_kind


def _list_names(numbers: list[int]) -> str:
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
    facing = "; ".join(f"neurons {_list_names(list(pair))} face each other" for pair in pairs)
    alone = "every neuron has its own hyperplane"
    generic = Genericity(not pairs, facing or alone, "exactly")
    roles = role_assignments(stack)
    if roles.complete and len(roles.found) == 1 and roles.found[0].isolated:
        return Identifiability(True, (sentences.only_roles(pairs),), generic, ("fixed",), among="all", count=1)
    others = list(islice(other_roles(roles), MOST_TWINS))
    if not others:
        why = f"whether they can have other roles is open: {len(form.visible)} hyperplanes are too many to look at"
        return Identifiability(None, (f"{generic.reason}; {why}",), generic, ("open",))
    reason = sentences.other_roles(pairs) if pairs else sentences.reversible(others[0][1])
    near = "locally fixed" if roles.count is not None else "open"
    twins = tuple(member for member, _ in others) if all(role.isolated for role in roles.found) else ()
    return Identifiability(False, (reason,), generic, (near,), among="all", twins=twins, count=roles.count)


def other_roles(roles: RoleAssignments) -> Iterator[tuple[Stack, tuple[int, ...]]]:
    """Other parameters of the same function, one for every assignment but the network's own; and which neurons turn."""
    form = roles.form
    faces = tuple(k for k, group in enumerate(form.visible) if len(group.neurons) > 1)
    turns = tuple(k for k, group in enumerate(form.visible) if len(group.neurons) == 1 and group.factors[0] < 0)
    for assignment in roles.found:
        if (assignment.facing, assignment.turned) != (faces, turns) or not assignment.isolated:
            changed = sorted(form.visible[k].neurons[0] for k in set(assignment.turned) ^ set(turns))
            yield roles.member(assignment), tuple(changed)


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
            problem = f"second-layer neurons {_list_names([j for j, _ in group])} share a hyperplane"
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
        return Identifiability(
            None, tuple(f"not generic: {problem}" for problem in problems), generic, ("open", "open")
        )
    oriented, words = _reversible(stack, 1)
    if oriented is False:
        return Identifiability(False, words, Genericity(False, words[0], "exactly"), ("open", "free"))
    if generic.holds is not True:
        some = f"first-layer neurons {_list_names(list(missing[:8]))}{', ...' if len(missing) > 8 else ''}"
        words = (f"whether the function fixes {some} is open: no ridge was found that does, and {generic.reason}",)
        return Identifiability(None, words, generic, ("open", "open"), ridges)
    if oriented is None:
        return Identifiability(None, words, generic, ("fixed", "open"), ridges)
    words = (sentences.no_symmetry(),)
    return Identifiability(True, words, generic, ("fixed", "fixed"), ridges, among="generic")


MOST_RECOUNTED = 4096  # assignments of roles that a verifier looks at one by one
SECONDS = 60.0  # for the regions of a network and its twin
ZERO, ONE = fmpq(0), fmpq(1)
SIZES = (ONE, fmpq(3), fmpq(1, 7))  # of moves that are tried: one may be undone by order and scale
Move = tuple[Stack, dict[str, Any]]  # other parameters, and the witness that their function is the same


def certificate(network: Mlp | Dag, found: Identifiability) -> dict[str, Any]:
    """The network, and what shows that its function does or does not determine it.

    >>> from lawful.fibers.deep.identifiability import identifiable
    >>> mlp = Mlp([[[1.0], [2.0]], [[1.0, 1.0]]])
    >>> certificate(mlp, identifiable(mlp))["other"]
    [[['1', '0'], ['2', '0']], [['3', '0', '0']]]
    """
    mlp = network if isinstance(network, Mlp) else as_mlp(network)
    if found.identifiable is None or mlp is None:
        why = "the question is open" if mlp is not None else "the network has skips"
        raise Unsupported(f"no certificate: {why}")
    stack = Stack.of(mlp, exact=True)
    body: dict[str, Any] = {
        "kind": "identifiable",
        "version": 2,
        "about": [digest(mlp)],
        "network": mlp_json(mlp),
        "identifiable": found.identifiable,
        "other": None,
        "witness": None,
        "ridges": None,
    }
    if found.twins:
        twins = [{"other": _numbers(twin), "witness": _evidence(stack, twin)} for twin in found.twins]
        whole = found.count == len(twins) + 1
        return body | {"twins": twins, "complete": whole and (stack.hidden == 2 or recountable(stack))}
    if not found.identifiable:
        moves = (move for size in SIZES for move in _moves(stack, size))
        here = _invariants(stack)
        other, witness = next((move for move in moves if _invariants(move[0]) != here), (None, None))
        if other is None:
            raise Unsupported("no certificate: this symmetry has no evidence that is written down")
        return body | {"other": _numbers(other), "witness": witness}
    if stack.hidden == 1:
        if len(_groups(stack.row(0))) < stack.widths[1] and not recountable(stack):
            raise Unsupported("no certificate: the roles of neurons that face each other are too many to be re-checked")
        return body
    if is_ramp(stack):
        return body
    fixed = {ridge.first for ridge in found.ridges}
    if len(fixed) < stack.widths[1]:
        return body  # all masked products were looked at, and can be again
    return body | {
        "ridges": [
            {"first": ridge.first, "second": ridge.second, "values": list(map(str, ridge.values))}
            for ridge in found.ridges
        ]
    }


def recountable(stack: Stack) -> bool:
    """Whether the verifier, which looks at every assignment of roles one by one, can count them again."""
    planes = len(_groups(stack.row(0)))
    extra = stack.widths[1] - planes
    return bool(sum(comb(planes, k) * 2 ** (planes - k) for k in range(extra + 1)) <= MOST_RECOUNTED)


def _numbers(stack: Stack) -> list[list[list[str]]]:
    return [[list(map(str, row)) for row in stack.row(layer)] for layer in range(len(stack.weights))]


def _evidence(stack: Stack, twin: Stack) -> dict[str, Any]:
    """Why a twin has the same function: by its normal form, or by its maps on all regions."""
    if stack.hidden == 1:
        return _witness([], [], _together(stack, twin))
    proof = prove_by_regions(stack, twin, Domain.space(stack.widths[0]), time.perf_counter() + SECONDS)
    return _witness([], []) | {"ending": "regions", "decisions": proof.decisions}


def _together(stack: Stack, twin: Stack) -> list[list[list[int]]]:
    """Neurons of both networks by hyperplane."""
    both = np.concatenate([stack.row(0), twin.row(0)])
    width = stack.widths[1]
    return [[[int(j >= width), j % width] for j, _ in group] for group in _groups(both)]


def _invariants(stack: Stack) -> list[Any]:
    """What order and scale of the neurons leave alone: a move of one size may be undone by them, one of another not."""
    invariants: list[Any] = []
    scales: Array = np.array([ONE] * stack.widths[0], dtype=object)
    for layer in range(len(stack.weights)):
        weights, biases = stack.weights[layer] * scales, stack.biases[layer]
        scales = np.abs(weights).sum(axis=1) + np.abs(biases)
        last = layer == stack.hidden
        units = [ONE if last or not size else size for size in scales]
        rows = [[*(row / unit), bias / unit] for row, bias, unit in zip(weights, biases, units, strict=True)]
        rows = [[*(sorted(row[:-1]) if layer else row[:-1]), row[-1]] for row in rows]
        invariants.append(rows if last else sorted(rows))
    return invariants


def _moves(stack: Stack, size: Any) -> Iterator[Move]:
    """Other parameters of the same function, each by one symmetry and so far from these."""
    for layer in range(1, stack.hidden + 1):
        yield from _of_neurons(stack, layer, size)
        yield from _of_multiples(stack, layer, size)
        if stack.slopes[layer - 1] == 1.0:
            other = _shift(stack, layer, 0, size, size)
            collapse = {"do": "collapse", "layer": layer}
            yield other, _witness([collapse], [collapse])
        hidden = hidden_neuron(stack, layer)
        if hidden is not None:
            try:
                step = Translate(layer, hidden, size)
                yield step.apply(stack), _witness([step_json(step)], [])
            except CertificateError:
                continue
    yield from _of_last_layer(stack, size)
    if is_ramp(stack) and falls(stack):
        twin = reverse(stack)
        yield twin, _evidence(stack, twin)
    if stack.hidden == 1 and stack.slopes == (0.0,):
        for twin, _ in other_roles(role_assignments(stack)):
            yield twin, _evidence(stack, twin)


def _of_neurons(stack: Stack, layer: int, size: Any) -> Iterator[Move]:
    """Neurons that nobody hears, that are constant, dead, or linear on what they see."""
    rows, above = stack.row(layer - 1), stack.weights[layer]
    rectified = layer >= 2 and stack.slopes[layer - 2] == 0.0
    relu = stack.slopes[layer - 1] == 0.0
    for j, row in enumerate(rows):
        dropped = _same_steps(Drop(layer, j))
        if not any(above[:, j]):
            yield _change(stack, layer, j, [*(row[:-1] + ONE), row[-1] + 2 * size]), dropped
        elif not any(row[:-1]):  # its bias moves away from zero, where the activation is one line
            shift, slope = (size, ONE) if row[-1] > 0 else (-size, fmpq(*stack.slopes[layer - 1].as_integer_ratio()))
            yield _shift(stack, layer, j, shift, slope * shift), dropped
        elif rectified and relu and all(item <= 0 for item in row):
            yield _change(stack, layer, j, [row[0] - size, *row[1:]]), dropped
            yield _change(stack, layer, j, [*row[:-1], row[-1] - size]), dropped
        elif rectified and all(item >= 0 for item in row):
            back = {"do": "lift", "layer": layer, "neuron": j, "shift": str(-size)}
            yield _shift(stack, layer, j, size, size), _witness([], [back])


def _of_multiples(stack: Stack, layer: int, size: Any) -> Iterator[Move]:
    for group in _groups(stack.row(layer - 1)):
        for positive in (True, False):
            alike = [(neuron, factor) for neuron, factor in group if (factor > 0) is positive]
            if len(alike) > 1:
                (keep, ratio), (drop, factor) = alike[:2]
                above = stack.weights[layer].copy()
                above[:, keep] = above[:, keep] + size * factor / ratio
                above[:, drop] = above[:, drop] - size
                yield stack.with_layer(layer, weight=above), _same_steps(Merge(layer, keep, drop))


def _groups(rows: Array) -> list[list[tuple[int, Any]]]:
    """Neurons on one hyperplane, with their factors; those without weights have none."""
    wide = [j for j, row in enumerate(rows) if any(row[:-1])]
    if not wide:
        return []
    return [[(wide[j], factor) for j, factor in group] for group in group_rows(rows[wide], 0.0)]


def _of_last_layer(stack: Stack, size: Any) -> Iterator[Move]:
    """Groups that cancel move together; sets whose terms add up to zero can be reversed."""
    layer = stack.hidden
    if not layer or stack.slopes[-1] != 0.0:
        return
    rows, above = stack.row(layer - 1), stack.weights[layer]
    terms = [np.array([a * b for a in above[:, j] for b in rows[j, :-1]], dtype=object) for j in range(len(rows))]
    groups = _groups(rows)
    if flips := balanced_subset(terms):
        turned = stack.with_layer(layer, bias=stack.biases[layer] + sum(above[:, j] * rows[j, -1] for j in flips))
        for j in flips:
            turned = _change(turned, layer, j, [-item for item in rows[j]])
        together = [[[side, j] for side in (0, 1) for j, _ in group] for group in groups]
        yield turned, _witness([], [], together)
    if layer == 1:
        for group in normal_form(stack, tolerance=0.0).groups:
            if any(group.jump):
                continue
            moved = stack
            for j, factor in zip(group.neurons, group.factors, strict=True):
                moved = _shift(moved, layer, j, size * factor, ZERO if factor > 0 else size * factor)
            apart = [[[side, j] for j in group.neurons] for side in (0, 1)]
            rest = [[[side, j] for side in (0, 1) for j, _ in one] for one in groups if one[0][0] not in group.neurons]
            yield moved, _witness([], [], apart + rest)


def _change(stack: Stack, layer: int, neuron: int, row: Any) -> Stack:
    """Other weights and bias of one neuron."""
    weight, bias = stack.weights[layer - 1].copy(), stack.biases[layer - 1].copy()
    weight[neuron], bias[neuron] = row[:-1], row[-1]
    return stack.with_layer(layer - 1, weight, bias)


def _shift(stack: Stack, layer: int, neuron: int, shift: Any, passed: Any) -> Stack:
    """A bias moved, and what it passes on taken back from the next biases."""
    row: Array = stack.row(layer - 1)[neuron]
    moved = _change(stack, layer, neuron, [*row[:-1], row[-1] + shift])
    return moved.with_layer(layer, bias=stack.biases[layer] - passed * stack.weights[layer][:, neuron])


def _witness(first: list[Any], second: list[Any], groups: list[Any] | None = None) -> dict[str, Any]:
    record: dict[str, Any] = {
        "first": first,
        "second": second,
        "ending": "weights" if groups is None else "normal form",
    }
    return record if groups is None else record | {"groups": groups}


def _same_steps(step: SymmetryStep) -> dict[str, Any]:
    return _witness([step_json(step)], [step_json(step)])
