"""Splitting phases and halves: answers against a mixed-integer program, certificates against forgers."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from milp_oracle import Instance, random_instance, rescale

from lawful.bounds.layers import Layer
from lawful.bounds.split.certificate import ForbiddenRegion, certificate_of_specification
from lawful.bounds.split.search import SearchOutcome, search
from lawful.errors import LawfulError
from lawful.network import Dag
from lawful.network.validity import Role
from lawful.verify import verify


def as_dag(layers: tuple[Layer, ...]) -> Dag:
    """Layers as a graph: neurons of slope 1 are hidden nodes like others."""
    widths = [layers[0].weight.shape[1], *(len(layer.bias) for layer in layers)]
    starts = np.cumsum([0, *widths])
    roles = [int(Role.INPUT)] * widths[0] + [int(Role.HIDDEN)] * sum(widths[1:-1]) + [int(Role.OUTPUT)] * widths[-1]
    names = [str(i) for i in range(len(roles))] + ["one"]
    tails, heads, theta = [], [], []
    for number, (weight, bias, _) in enumerate(layers):
        for i, j in np.ndindex(*weight.shape):
            tails.append(int(starts[number] + j))
            heads.append(int(starts[number + 1] + i))
            theta.append(float(weight[i, j]))
        for i, shift in enumerate(bias):
            tails.append(len(roles))
            heads.append(int(starts[number + 1] + i))
            theta.append(float(shift))
    slopes = np.concatenate([np.ones(widths[0]), *(layer.slopes for layer in layers), [1.0]])
    return Dag(names, [*roles, int(Role.CONSTANT)], tails, heads, theta, slopes.tolist())


def certificate(instance: Instance, found: SearchOutcome) -> dict[str, Any]:
    low, high = (tuple(Fraction(float(v)) for v in end) for end in (instance.low, instance.high))
    region = ForbiddenRegion(low, high, instance.forbidden)
    return certificate_of_specification(
        as_dag(instance.layers), [region], point=found.input, proofs=None if found.tree is None else [found.tree]
    )


def moved(instance: Instance, point: np.ndarray) -> Instance:
    """The question with its first case moved until it contains a point."""
    x = [Fraction(float(v)) for v in point]
    from lawful.bounds.exact import exact_outputs

    y = exact_outputs(instance.layers, point)
    case = []
    for space in instance.forbidden[0]:
        value = sum((a * v for a, v in zip(space.outputs, y, strict=True)), Fraction(0))
        value += sum((a * v for a, v in zip(space.inputs, x, strict=False)), Fraction(0))
        case.append(space._replace(bound=max(space.bound, value), strict=False))
    return replace(instance, forbidden=(tuple(case), *instance.forbidden[1:]))


def attempt(seed: int) -> str:
    """One random question, asked four times; what became of it."""
    rng = np.random.default_rng(seed)
    instance, points = random_instance(rng)
    truth = any(instance.reached(point) for point in points)
    asked = [(instance, None), (instance, bool(rng.random() < 0.5)), (rescale(instance, rng), None)]
    words = []
    for each, full in asked:
        found = search(each.question, each.replay, seconds=3.0, seed=seed, full=full)
        words.append(found.status)
        assert not (truth and found.status == "holds"), f"{seed}: FALSE PROOF"
        if found.input is not None:
            assert each.reached(found.input)
        if found.status != "undecided":
            verify(json.dumps(certificate(each, found)), as_dag(each.layers))
        if found.tree is not None:
            other = moved(each, points[0] if each is instance else (each.low + each.high) / 2)
            forged = certificate(other, found)
            with pytest.raises(LawfulError):
                verify(forged)
    return " ".join(words)


@pytest.mark.parametrize("start", range(0, 60, 10))
def test_random_questions_against_a_mixed_integer_program(start: int) -> None:
    outcomes = [attempt(seed) for seed in range(start, start + 10)]
    assert sum("undecided" not in words for words in outcomes) >= 7, outcomes
