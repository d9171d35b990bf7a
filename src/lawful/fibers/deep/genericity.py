"""Is a parameter generic, as far as that can be decided in polynomial time? (P4 Definition 8.)"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np

from lawful.fibers.deep.identification import RidgeWitness, rank_of, ridge_witness
from lawful.fibers.layers import Stack
from lawful.fibers.shallow.normal_form import group_rows

# Are the weights of a three-layer bottleneck generic, as far as its rigidity needs it? (P4 Definition 8.)

MOST_MASKS = 4096  # masked products that are all looked at
MOST_WORK = 20_000_000  # rational products spent on ridges before the question is left open


class Rigidity(NamedTuple):
    """Whether the weights are generic, why not, the ridges that fix first-layer neurons, and those without one."""

    genericity: Genericity
    problems: tuple[str, ...]
    ridges: tuple[RidgeWitness, ...]
    missing: tuple[int, ...]


def bottleneck_rigidity(stack: Stack, seed: int = 0) -> Rigidity:
    """Ranks and pairs in rationals; then a ridge for each first-layer neuron, or else all masked products."""
    exact = stack.rational()
    first, second = exact.weights[0], exact.row(1)
    problems = []
    if rank_of(first) < len(first):
        problems.append("the first layer's weights are linearly dependent")
    for group in group_rows(second, 0.0):
        if len(group) > 1:
            problems.append(f"second-layer neurons {', '.join(str(j) for j, _ in group)} share a hyperplane")
    every = tuple(range(len(first)))
    if problems:
        return Rigidity(Genericity(False, problems[0], "exactly"), tuple(problems), (), every)
    ridges = _ridges(stack, seed)
    missing = tuple(neuron for neuron in every if neuron not in {ridge.first for ridge in ridges})
    words = "full rank, no two neurons alike, a ridge fixes each first-layer neuron"
    generic = all_masks(exact) if missing else Genericity(True, words, "exactly")
    return Rigidity(generic, (), ridges, missing)


def _ridges(stack: Stack, seed: int) -> tuple[RidgeWitness, ...]:
    if stack.widths[2] == 1 or stack.widths[1] ** 2 * stack.widths[2] > MOST_WORK:
        return ()  # where the only second-layer neuron is silent, nothing shows: four facets never meet
    witnesses = (ridge_witness(stack, neuron, seed) for neuron in range(stack.widths[1]))
    return tuple(ridge for ridge in witnesses if ridge is not None)


def is_generic(exact: Stack) -> Genericity:
    """P4 Definition 8, for a bottleneck of rationals: everything that it asks for is decided, or nothing."""
    if rank_of(exact.weights[0]) < exact.widths[1]:
        return Genericity(False, "the first layer's weights are linearly dependent", "exactly")
    return all_masks(exact)


def masks(stack: Stack) -> int:
    """How many masked products a bottleneck has."""
    return int(2 ** sum(stack.widths[1:]))


def all_masks(exact: Stack) -> Genericity:
    """All masked products of full rank, no minor of `[W2 | b2]` zero."""
    count, width, outputs = exact.widths[1:]
    if masks(exact) > MOST_MASKS:
        return Genericity(None, "masked products are too many to look at all of them", "nothing")
    second, third, whole = exact.weights[1], exact.weights[2], exact.row(1)
    for rows in _subsets(width):
        for columns in _subsets(count + 1):
            if rank_of(whole[np.ix_(rows, columns)]) < min(len(rows), len(columns)):
                return Genericity(False, "a minor of the second layer's weights and biases vanishes", "all masks")
        for columns in _subsets(count):
            product = third[:, rows] @ second[np.ix_(rows, columns)]
            for outs in _subsets(outputs):
                if rank_of(product[list(outs)]) < min(len(rows), len(columns), len(outs)):
                    return Genericity(False, "a masked product has less than the largest rank", "all masks")
    return Genericity(True, "masked products have full rank", "all masks")


def _subsets(count: int) -> list[tuple[int, ...]]:
    return [chosen for size in range(1, count + 1) for chosen in combinations(range(count), size)]


MOST_ENTRIES = 20_000  # of a matrix whose rank is found in rationals


@dataclass(frozen=True)
class Genericity:
    """`holds` is None where nothing was decided; `tested` says how."""

    holds: bool | None
    reason: str
    tested: str


def genericity(stack: Stack) -> Genericity:
    """Zeros, pairs of neurons and ranks of single layers, all decided exactly; masked products are left open.

    >>> from lawful.network import Mlp
    >>> genericity(Stack.of(Mlp([[[1.0, 0.0], [1.0, 2.0]], [[3.0, 1.0]]]))).reason
    'the weight from input 1 to neuron 0 of layer 1 is zero'
    >>> genericity(Stack.of(Mlp([[[1.0, 1.0], [2.0, 2.0]], [[1.0, 1.0]]], [[1.0, 2.0], None]))).reason
    'neurons 0, 1 of layer 1 share a hyperplane'
    """
    for layer, weight in enumerate(stack.weights, 1):
        if (weight == 0).any():
            neuron, source = (int(k) for k in np.argwhere(weight == 0)[0])
            below = f"input {source}" if layer == 1 else f"neuron {source} of layer {layer - 1}"
            return Genericity(False, f"the weight from {below} to neuron {neuron} of layer {layer} is zero", "exactly")
    for layer in range(stack.hidden):
        for group in group_rows(stack.row(layer), 0.0):
            if len(group) > 1:
                names = ", ".join(str(j) for j, _ in group)
                return Genericity(False, f"neurons {names} of layer {layer + 1} share a hyperplane", "exactly")
        weight = stack.weights[layer]
        if weight.size > MOST_ENTRIES:
            return Genericity(None, f"the rank of layer {layer + 1} is too large a question", "zeros and pairs")
        if rank_of(Stack((weight,), (stack.biases[layer],), ()).rational().weights[0]) < min(weight.shape):
            return Genericity(False, f"the weights of layer {layer + 1} have less than the largest rank", "exactly")
    return Genericity(True, "no zero, no two neurons alike, full rank of every layer", "exactly")
