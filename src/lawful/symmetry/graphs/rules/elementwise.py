"""Functions of one value, entry by entry: activations, powers, noise, copies."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from lawful.symmetry.graphs.motion import GraphMotion, Step
from lawful.symmetry.graphs.rules.arithmetic import homogeneous, multiply, scale


def relu(step: Step, self: GraphMotion) -> GraphMotion:
    """`max(x, 0)`, degree 1."""
    return homogeneous(step, self)


def leaky_relu(step: Step, self: GraphMotion, negative_slope: float = 0.01) -> GraphMotion:
    """`max(x, 0) + s min(x, 0)`, degree 1."""
    return homogeneous(step, self)


def absolute(step: Step, self: GraphMotion) -> GraphMotion:
    """`|x|`, degree 1."""
    return homogeneous(step, self)


def sign(step: Step, self: GraphMotion) -> GraphMotion:
    """`x/|x|`, degree 0."""
    return homogeneous(step, self, 0.0)


def sqrt(step: Step, self: GraphMotion) -> GraphMotion:
    """`√x`, degree ½."""
    return homogeneous(step, self, 0.5)


def rsqrt(step: Step, self: GraphMotion) -> GraphMotion:
    """`1/√x`, degree −½."""
    return homogeneous(step, self, -0.5)


def reciprocal(step: Step, self: GraphMotion) -> GraphMotion:
    """`1/x`, degree −1."""
    return homogeneous(step, self, -1.0)


def prelu(step: Step, self: GraphMotion, weight: GraphMotion) -> GraphMotion:
    """`max(x, 0) + w min(x, 0)`: degree 1 in x, the slopes w are seen, and change places with their channels."""
    slopes, x = step.settled(weight), homogeneous(step, self)
    step.shifts.drop(slopes.shifts)
    for field in slopes.gauges:
        step.gauges.pin(field, step.name, permutes=True)
    if torch.Size(weight.shape).numel() == 1:
        return x
    by_channel = GraphMotion(slopes.shape, slopes.gauges).reshaped((*slopes.shape, *(1,) * (len(self.shape) - 2)))
    return multiply(step, x, by_channel)


def dropout(step: Step, input: GraphMotion, p: float, train: bool) -> GraphMotion:
    """In training a random mask: diagonals pass; a shift comes through in some places only, so it is seen."""
    if not train or p == 0:
        return input
    x = step.settled(input)
    for field in x.gauges:
        step.gauges.diagonal(field)
    step.shifts.drop(x.shifts)
    return replace(x, shifts=(), square_of=None)


def native_dropout(step: Step, input: GraphMotion, p: float, train: bool | None) -> tuple[GraphMotion, ...]:
    """The same with its mask."""
    return dropout(replace(step, shape=input.shape), input, p, bool(train)), GraphMotion(input.shape)


def made_anew(step: Step, *values: Any, **options: Any) -> GraphMotion:
    """Only the shape of the argument is used: ones, random numbers, masks."""
    return GraphMotion(step.shape)


def negate(step: Step, self: GraphMotion) -> GraphMotion:
    """`−x`."""
    return scale(step, self, -1.0)


def same(step: Step, self: GraphMotion, *rest: Any, **options: Any) -> GraphMotion:
    """Copies, casts and changes of memory layout."""
    return self


def detach(step: Step, self: GraphMotion) -> GraphMotion:
    """Training takes a detached value for data: as a function of what does get gradients, it stands still."""
    for field in self.gauges:
        step.gauges.tell_apart(field, range(len(step.shape)))
    return GraphMotion(step.shape)


def other_elementwise(step: Step, *values: Any, **options: Any) -> GraphMotion:
    """GELU, SiLU, tanh, exp, clamp: of continuous gauges only the identity passes (and permutations do)."""
    given = [value for value in values if isinstance(value, GraphMotion)]
    alone = len(given) == 1 and given[0].shape == step.shape
    step.pin(*values, *options.values(), permutes=alone)
    steady = all(value.steady for value in given)
    kept = given[0].gauges if alone else ()  # pinned, but they still permute
    return GraphMotion(step.shape, kept, steady=steady)
