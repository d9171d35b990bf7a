"""The evidence for *identifiable* and *not identifiable*, as one JSON object that `lawful verify` re-checks.

No: other parameters of the same function, made by the symmetry that was found; all of them, where they are finitely
many. Yes: one hidden layer, and a first layer of one neuron, speak for themselves; of two, ridges fix the first.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from math import comb
from typing import Any

import numpy as np
from flint import fmpq

from lawful.errors import CertificateError, Unsupported
from lawful.fibers.deep.identifiability import Identifiability, other_roles
from lawful.fibers.deep.identification import balanced_subset
from lawful.fibers.deep.single_neuron import falls, is_ramp, reverse
from lawful.fibers.layers import Array, Stack
from lawful.fibers.reduce import hidden_neuron
from lawful.fibers.regions.comparison_proof import prove_by_regions
from lawful.fibers.regions.domain import Domain
from lawful.fibers.reparametrisations import Drop, Merge, SymmetryStep, Translate
from lawful.fibers.shallow.normal_form import group_rows, normal_form
from lawful.fibers.shallow.roles import role_assignments
from lawful.fibers.verdict import mlp_json, step_json
from lawful.network import Dag, Mlp
from lawful.network.assemble import as_mlp
from lawful.network.digest import digest

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
    found: list[Any] = []
    scales: Array = np.array([ONE] * stack.widths[0], dtype=object)
    for layer in range(len(stack.weights)):
        weights, biases = stack.weights[layer] * scales, stack.biases[layer]
        scales = np.abs(weights).sum(axis=1) + np.abs(biases)
        last = layer == stack.hidden
        units = [ONE if last or not size else size for size in scales]
        rows = [[*(row / unit), bias / unit] for row, bias, unit in zip(weights, biases, units, strict=True)]
        rows = [[*(sorted(row[:-1]) if layer else row[:-1]), row[-1]] for row in rows]
        found.append(rows if last else sorted(rows))
    return found


def _moves(stack: Stack, size: Any) -> Iterator[Move]:
    """Other parameters of the same function, each by one symmetry and so far from these."""
    for layer in range(1, stack.hidden + 1):
        yield from _of_neurons(stack, layer, size)
        yield from _of_multiples(stack, layer, size)
        if stack.slopes[layer - 1] == 1.0:
            other = _shifted(stack, layer, 0, size, size)
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
            yield _changed(stack, layer, j, [*(row[:-1] + ONE), row[-1] + 2 * size]), dropped
        elif not any(row[:-1]):  # its bias moves away from zero, where the activation is one line
            shift, slope = (size, ONE) if row[-1] > 0 else (-size, fmpq(*stack.slopes[layer - 1].as_integer_ratio()))
            yield _shifted(stack, layer, j, shift, slope * shift), dropped
        elif rectified and relu and all(item <= 0 for item in row):
            yield _changed(stack, layer, j, [row[0] - size, *row[1:]]), dropped
            yield _changed(stack, layer, j, [*row[:-1], row[-1] - size]), dropped
        elif rectified and all(item >= 0 for item in row):
            back = {"do": "lift", "layer": layer, "neuron": j, "shift": str(-size)}
            yield _shifted(stack, layer, j, size, size), _witness([], [back])


def _of_multiples(stack: Stack, layer: int, size: Any) -> Iterator[Move]:
    for group in _groups(stack.row(layer - 1)):
        for positive in (True, False):
            alike = [(neuron, factor) for neuron, factor in group if (factor > 0) is positive]
            if len(alike) > 1:
                (keep, own), (drop, factor) = alike[:2]
                above = stack.weights[layer].copy()
                above[:, keep] = above[:, keep] + size * factor / own
                above[:, drop] = above[:, drop] - size
                yield stack.replaced(layer, weight=above), _same_steps(Merge(layer, keep, drop))


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
        turned = stack.replaced(layer, bias=stack.biases[layer] + sum(above[:, j] * rows[j, -1] for j in flips))
        for j in flips:
            turned = _changed(turned, layer, j, [-item for item in rows[j]])
        together = [[[side, j] for side in (0, 1) for j, _ in group] for group in groups]
        yield turned, _witness([], [], together)
    if layer == 1:
        for group in normal_form(stack, tolerance=0.0).groups:
            if any(group.jump):
                continue
            moved = stack
            for j, factor in zip(group.neurons, group.factors, strict=True):
                moved = _shifted(moved, layer, j, size * factor, ZERO if factor > 0 else size * factor)
            apart = [[[side, j] for j in group.neurons] for side in (0, 1)]
            rest = [[[side, j] for side in (0, 1) for j, _ in one] for one in groups if one[0][0] not in group.neurons]
            yield moved, _witness([], [], apart + rest)


def _changed(stack: Stack, layer: int, neuron: int, row: Any) -> Stack:
    """Other weights and bias of one neuron."""
    weight, bias = stack.weights[layer - 1].copy(), stack.biases[layer - 1].copy()
    weight[neuron], bias[neuron] = row[:-1], row[-1]
    return stack.replaced(layer - 1, weight, bias)


def _shifted(stack: Stack, layer: int, neuron: int, shift: Any, passed: Any) -> Stack:
    """A bias moved, and what it passes on taken back from the next biases."""
    row: Array = stack.row(layer - 1)[neuron]
    moved = _changed(stack, layer, neuron, [*row[:-1], row[-1] + shift])
    return moved.replaced(layer, bias=stack.biases[layer] - passed * stack.weights[layer][:, neuron])


def _witness(first: list[Any], second: list[Any], groups: list[Any] | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {"first": first, "second": second, "ending": "weights" if groups is None else "normal form"}
    return found if groups is None else found | {"groups": groups}


def _same_steps(step: SymmetryStep) -> dict[str, Any]:
    return _witness([step_json(step)], [step_json(step)])
