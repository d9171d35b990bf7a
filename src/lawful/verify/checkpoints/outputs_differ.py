"""That two checkpoints are different functions: steps from the numbers of their files to one output of each.

The steps are carried out here in balls that surely hold every number, with more and more bits until the two outputs
are surely as far apart as is claimed. That these steps are what the architecture computes, at some input, is a
statement about the architecture, which is not in the files: it is not checked here, and the statement says so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from flint import arb, ctx

from lawful.errors import CertificateError, Unsupported
from lawful.verify.core.checkpoint import Array, survey
from lawful.verify.core.finding import Finding
from lawful.verify.core.program import FUNCTIONS, Numbers, ReadStep, interpret, read_steps, work_of
from lawful.verify.core.schema import items, limit_cost, number, object_with_keys, require

MOST_ENTRIES = 6_000_000  # of all arrays of a list of steps: each is a ball
# Doubled until balls tell the outputs apart, or can tell that they are closer than is claimed.
PRECISIONS = (64, 128, 256, 512, 1024, 2048)
PRODUCT, FUNCTION = 20.0, 300.0  # elementary operations of a product of balls of 64 bits, and of a sine


def check(body: Mapping[str, Any], files: Sequence[Mapping[str, Array]]) -> Finding:
    """Check the certificate against the tensors of two files, by their names there."""
    parts = object_with_keys(dict(body), "certificate", "steps tensors apart")
    if len(files) != 2:
        raise CertificateError("it is about the numbers of two checkpoints: give both files, A and then B")
    least = number(parts["apart"], "apart")
    require(least > 0, "outputs that are nothing apart are no difference")
    programs = [read_steps(listed) for listed in items(parts["steps"], "steps", most=2)]
    require(bool(programs), "no steps are listed")
    for steps in programs:
        require(steps[1].length == 0, "an input that is not in the certificate")
        require(steps[-1].length == 1, "the steps do not end with one output")
        limit_cost(_cost(steps))
        if sum(step.length for step in steps) > MOST_ENTRIES:
            raise Unsupported(f"the steps of this certificate have more than {MOST_ENTRIES:,} numbers")
    live = all(steps[0].length > 0 and 0 in _live(steps) for steps in programs)
    require(live, "the output depends on no number of the files")
    surveys = [survey(file) for file in files]
    same = surveys[0][0] == surveys[1][0]
    require(len(programs) == 2 or not same, "the two files hold the same numbers")
    names = items(parts["tensors"], "tensors", length=2)
    if len(programs) == 1:
        # One list of steps reads both files alike; in another order it would tell a file from itself.
        _need_one_order(names, surveys[0][1], surveys[1][1])
    both = programs[0], programs[-1]
    pair = [
        (steps, _numbers(file, shapes, listed_names, steps[0].length))
        for steps, file, (_, shapes), listed_names in zip(both, files, surveys, names, strict=True)
    ]
    _need_apart(pair, least)
    digests = surveys[0][0], surveys[1][0]
    return Finding({"apart": least, "steps": max(map(len, programs)), "lists": len(programs)}, digests)


def _numbers(file: Mapping[str, Array], shapes: Mapping[str, Any], names: object, count: int) -> list[float]:
    """The numbers of some tensors of a file, laid end to end: so many; no tensor twice."""
    tensors = items(names, "tensors", most=100_000)
    require(all(isinstance(name, str) and name in shapes for name in tensors), "a tensor that is not in its file")
    require(len(set(tensors)) == len(tensors), "a tensor is named twice")
    fits = sum(math.prod(shapes[name]) for name in tensors) == count
    require(fits, "the steps do not begin with the numbers of the tensors")
    laid: list[float] = []
    for name in tensors:
        values = np.asarray(file[name], dtype=np.float64)
        require(bool(np.isfinite(values).all()), "a number of the files is not finite")
        laid += values.ravel().tolist()
    return laid


def _need_one_order(names: Sequence[Any], first: Mapping[str, Any], second: Mapping[str, Any]) -> None:
    """Tensors that stand at one place are of one shape, and have one name wherever both files know both names."""
    one, two = (items(listed, "tensors", most=100_000) for listed in names)
    require(len(one) == len(two), "one list of steps reads more tensors of one file than of the other")
    for mine, yours in zip(one, two, strict=True):
        shared = mine == yours or (yours not in first and mine not in second)
        require(shared, "one list of steps reads the tensors of the two files in different orders")
        require(first.get(mine) == second.get(yours), "one list of steps reads tensors of different shapes")


def _live(steps: Sequence[ReadStep]) -> set[int]:
    """The steps that the output is made of."""
    live = {len(steps) - 1}
    for place in reversed(range(len(steps))):
        live.update(steps[place].sources if place in live else ())
    return live


def _cost(steps: Sequence[ReadStep]) -> float:
    """Elementary operations of one run."""
    return sum(FUNCTION * step.length if step.kind in FUNCTIONS else PRODUCT * work_of(step) for step in steps)


def _need_apart(pair: Sequence[tuple[list[ReadStep], list[float]]], least: float) -> None:
    before, cost = ctx.prec, 0.0
    try:
        for bits in PRECISIONS:
            # Whether balls tell the outputs apart is up to the certificate: all runs together are limited, not each.
            cost += max(_cost(steps) for steps, _ in pair) * max(1.0, bits / 512)
            limit_cost(cost)
            ctx.prec = bits
            one, two = (_output(steps, values) for steps, values in pair)
            gap = abs(one - two)
            if gap > arb(least):
                return
            require(not gap <= arb(least), "the outputs are not as far apart as stated")
    finally:
        ctx.prec = before
    raise CertificateError(f"balls of {PRECISIONS[-1]} bits do not tell the outputs apart")


def _output(steps: Sequence[ReadStep], values: Sequence[float]) -> Any:
    """A ball that holds the output."""
    numbers = Numbers()
    leaves = {"parameters": values, "input": []}
    values_of_steps = interpret(
        steps, numbers, lambda step: [numbers.table([leaves.get(step.kind, step.values)])], keep=False
    )
    return values_of_steps[0][0][0, 0]
