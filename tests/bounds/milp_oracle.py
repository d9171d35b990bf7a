"""Small questions whose answers a mixed-integer program knows: phases of neurons are its binary variables."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from lawful.bounds.layers import Layer, evaluate, exact_outputs
from lawful.bounds.split.question import BoxQuestion, cases_of
from lawful.formats.queries.specification import ForbiddenHalfSpace
from lawful.types import Floats


@dataclass(frozen=True)
class Instance:
    """A network, a box and cases, with the input at which each case is nearest to being reached, and by how much."""

    layers: tuple[Layer, ...]
    low: Floats
    high: Floats
    forbidden: tuple[tuple[ForbiddenHalfSpace, ...], ...]

    @property
    def question(self) -> BoxQuestion:
        return BoxQuestion(
            self.layers, self.low, self.high, cases_of(self.forbidden, len(self.low), len(self.layers[-1].weight))
        )

    def reached(self, point: Floats) -> bool:
        """Whether an input is in a case, exactly."""
        if not ((self.low <= point) & (point <= self.high)).all():
            return False
        x, y = [Fraction(float(v)) for v in point], exact_outputs(self.layers, point)
        return any(all(space.holds(x, y) for space in case) for case in self.forbidden)

    def replay(self, point: Floats) -> Floats | None:
        return point if self.reached(point) else None


def nearest(
    layers: tuple[Layer, ...], low: Floats, high: Floats, rows: Floats, on_inputs: Floats, bounds: Floats
) -> tuple[Floats, float]:
    """The input of the box with the least `max(rows · y + on_inputs · x - bounds)`, and that number."""
    least, most = low.copy(), high.copy()
    size = len(low) + sum(3 * len(layer.bias) for layer in layers) + 1
    A: list[Floats] = []
    lower: list[float] = []
    upper: list[float] = []
    bound_low, bound_high, whole = np.full(size, -np.inf), np.full(size, np.inf), np.zeros(size)
    bound_low[: len(low)], bound_high[: len(low)] = low, high
    here, free = np.arange(len(low)), len(low)

    def need(pairs: list[tuple[int, float]], at_least: float, at_most: float) -> None:
        row = np.zeros(size)
        for place, factor in pairs:
            row[place] += factor
        A.append(row)
        lower.append(at_least)
        upper.append(at_most)

    for weight, bias, slopes in layers:
        centre, radius = weight @ (least + most) / 2 + bias, np.abs(weight) @ (most - least) / 2
        z, h, phase = (np.arange(free + k * len(bias), free + (k + 1) * len(bias)) for k in range(3))
        free += 3 * len(bias)
        for i, slope in enumerate(slopes):
            need([(z[i], 1.0), *((here[j], -weight[i, j]) for j in range(len(here)))], bias[i], bias[i])
            below, above = centre[i] - radius[i] - 1e-6, centre[i] + radius[i] + 1e-6
            bound_low[phase[i]], bound_high[phase[i]], whole[phase[i]] = 0, 1, 1
            if slope == 1:
                need([(h[i], 1.0), (z[i], -1.0)], 0, 0)
                continue
            below, above = min(below, 0.0), max(above, 0.0)
            need([(h[i], 1.0), (z[i], -1.0)], 0, np.inf)  # h >= z, h >= s z
            need([(h[i], 1.0), (z[i], -slope)], 0, np.inf)
            need(
                [(h[i], 1.0), (z[i], -1.0), (phase[i], -below * (1 - slope))], -np.inf, -below * (1 - slope)
            )  # z if phase 1
            need([(h[i], 1.0), (z[i], -slope), (phase[i], -above * (1 - slope))], -np.inf, 0)  # s z if phase 0
        least, most = centre - radius, centre + radius
        least, most = np.where(least > 0, least, slopes * least), np.where(most > 0, most, slopes * most)
        here = h
    goal = size - 1
    for row, own, bound in zip(rows, on_inputs, bounds, strict=True):
        need([*((here[j], a) for j, a in enumerate(row)), *enumerate(own.tolist()), (goal, -1.0)], -np.inf, bound)
    cost = np.zeros(size)
    cost[goal] = 1.0
    found = milp(
        cost,
        constraints=LinearConstraint(np.array(A), np.array(lower), np.array(upper)),
        integrality=whole,
        bounds=Bounds(bound_low, bound_high),
        options={"mip_rel_gap": 0.0},
    )
    if found.x is None:  # a solver's failure: the best of some samples stands in
        sample = low + np.random.default_rng(0).random((2000, len(low))) * (high - low)
        worst = (evaluate(layers, sample) @ rows.T + sample @ on_inputs.T - bounds).max(axis=1)
        return sample[worst.argmin()], float(worst.min())
    return np.clip(found.x[: len(low)], low, high), float(found.fun)


def random_instance(rng: np.random.Generator) -> tuple[Instance, Floats]:
    """An instance with thresholds around the truth, and for each case the input that the oracle finds."""
    inputs, outputs = int(rng.integers(1, 5)), int(rng.integers(1, 4))
    widths = [inputs, *rng.integers(1, 6, rng.integers(0, 4)).tolist(), outputs]
    kind = rng.choice(["normal", "whole", "sparse"])
    layers = []
    for number, (n, m) in enumerate(pairwise(widths)):
        weight, bias = np.float32(rng.normal(size=(m, n))).astype(float), np.float32(rng.normal(size=m)).astype(float)
        if kind != "normal":  # ties at kinks, zeros, equal neurons
            weight, bias = np.round(2 * weight) / 2, np.round(bias) * (rng.random(m) < 0.5)
        if kind == "sparse":
            weight = weight * (rng.random(weight.shape) < 0.5)
            if m > 1:
                weight[1], bias[1] = weight[0], bias[0]
        slopes = rng.choice([0.0, 0.0, 0.0, 0.125, 1.0], m)
        if number == len(widths) - 2 or rng.random() < 0.1:
            slopes = np.ones(m)
        layers.append(Layer(weight, bias, slopes))
    low, high = -np.round(rng.random(inputs) * 8) / 8, np.round(rng.random(inputs) * 8) / 8
    flat = rng.random(inputs) < 0.15
    high = np.where(flat, low, high)
    forbidden, points = [], []
    for _ in range(rng.integers(1, 3)):
        count = int(rng.integers(1, 4))
        rows = rng.integers(-2, 3, (count, outputs)).astype(float)
        own = rng.integers(-1, 2, (count, inputs)).astype(float) * (rng.random() < 0.3)
        sample = low + rng.random((200, inputs)) * (high - low)
        values = evaluate(tuple(layers), sample) @ rows.T + sample @ own.T
        start = np.quantile(values, rng.choice([0.0, 0.2, 0.5]), axis=0)
        point, gap = nearest(tuple(layers), low, high, rows, own, start)
        shift = gap + rng.choice([0.0, -1e-9, 1e-9, -1e-6, 1e-6, -1e-3, 1e-3, -0.3, 0.3])
        spaces = tuple(
            ForbiddenHalfSpace(
                tuple(map(Fraction, row)), tuple(map(Fraction, each)) if own.any() else (),
                Fraction(float(end + shift)), bool(rng.random() < 0.2),
            )
            for row, each, end in zip(rows, own, start, strict=True)
        )  # fmt: skip
        forbidden.append(spaces)
        points.append(point)
    return Instance(tuple(layers), low, high, tuple(forbidden)), np.array(points)


def rescale(instance: Instance, rng: np.random.Generator) -> Instance:
    """The same question with inputs and neurons in other units: powers of two, so that nothing is rounded."""
    layers = list(instance.layers)
    power = 2.0 ** rng.integers(-30, 31, len(instance.low))
    layers[0] = layers[0]._replace(weight=layers[0].weight / power)
    for number in range(len(layers) - 1):
        own = 2.0 ** rng.integers(-30, 31, len(layers[number].bias))
        weight, bias, slopes = layers[number]
        layers[number] = Layer(weight * own[:, None], bias * own, slopes)
        layers[number + 1] = layers[number + 1]._replace(weight=layers[number + 1].weight / own)
    unit = Fraction(2) ** int(rng.integers(-30, 31))
    last = layers[-1]
    layers[-1] = Layer(last.weight * float(unit), last.bias * float(unit), last.slopes)
    scale = [Fraction(float(p)) for p in power]
    forbidden = tuple(
        tuple(
            ForbiddenHalfSpace(
                each.outputs, tuple(a * unit / s for a, s in zip(each.inputs, scale, strict=False)),
                each.bound * unit, each.strict,
            )
            for each in case
        )
        for case in instance.forbidden
    )  # fmt: skip
    return Instance(tuple(layers), instance.low * power, instance.high * power, forbidden)
