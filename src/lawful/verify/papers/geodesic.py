"""How stationary a Leaky ResNet is, and its Hamiltonians, layer by layer, enclosed in balls.

Forward by definition; backward by the chain rule written out: `B_l = -(1/λ) ∂C/∂A_l`; the gap is
`Σ ρ ‖W − L̃ B σ(A)ᵀ‖²` over `Σ ρ ‖W‖²`, under a root; the rank estimate of a layer is `-2H/L̃ = 2⟨B, A⟩ − ‖B σ(A)ᵀ‖²`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flint import arb, ctx

from lawful.errors import Unsupported
from lawful.verify.core.balls import BITS, Ball, Table, ball, interval, lies_in, product, squares, transpose
from lawful.verify.core.finding import Finding, digest_of
from lawful.verify.core.schema import items, limit_cost, matrix, number, numbers, object_with_keys, require

MOST_BALLS = 5_000_000  # of 320 bits, about 110 bytes each
KEYS = "effective_depth softness ridge steps weights into out inputs targets stationarity ranks"


def check(body: dict[str, Any]) -> Finding:
    """The stationarity and the rank estimates lie in the stated intervals."""
    parts = object_with_keys(body, "certificate", KEYS)
    steps = numbers(parts["steps"], "steps")
    require(bool(steps) and all(step > 0 for step in steps), "the steps are not positive")
    weights = [matrix(layer, "weights") for layer in items(parts["weights"], "weights", length=len(steps))]
    width = len(weights[0])
    require(width > 0 and all(len(layer) == width for layer in weights), "the layers differ in width")
    require(all(len(row) == width + 1 for layer in weights for row in layer), "a layer does not fit its width and bias")
    inputs = matrix(parts["inputs"], "inputs")
    targets = matrix(parts["targets"], "targets", rows=len(inputs))
    require(bool(inputs) and bool(inputs[0]) and bool(targets[0]), "there are no data")
    into, out = (None if parts[key] is None else matrix(parts[key], key) for key in ("into", "out"))
    require(
        _fits(into, width, len(inputs[0])) and _fits(out, len(targets[0]), width), "the data do not fit the network"
    )
    depth, soft, ridge = (number(parts[key], key) for key in ("effective_depth", "softness", "ridge"))
    require(soft >= 0 and ridge > 0 and depth >= 0, "depth, softness or ridge is negative")
    require(
        any(value for layer in weights for row in layer for value in row), "all weights are zero: nothing is relative"
    )
    limit_cost(40.0 * len(steps) * width * (width + 1) * len(inputs))
    # every layer's state is kept for the way back, before and after its activation: the sum of squares needs no memory
    if len(steps) * (2 * width + 1) * len(inputs) > MOST_BALLS:
        raise Unsupported(f"the states of this network are more than {MOST_BALLS:,} numbers")
    stated = interval(parts["stationarity"], "stationarity")
    ranks = [interval(value, "ranks") for value in items(parts["ranks"], "ranks", length=len(steps))]
    with ctx.workprec(BITS):
        path = _Path(
            [ball(step) for step in steps], [_balls(layer) for layer in weights],
            None if out is None else _balls(out), ball(depth), ball(soft), ball(ridge),
        )  # fmt: skip
        start = transpose(_balls(inputs))
        gap, measured_ranks = path.measure(
            start if into is None else product(_balls(into), start), transpose(_balls(targets))
        )
        require(lies_in(gap, stated), "the stationarity is not in its interval")
        for layer, (rank, ends) in enumerate(zip(measured_ranks, ranks, strict=True)):
            require(lies_in(rank, ends), f"the Hamiltonian of layer {layer} is not in its interval")
    network = digest_of("leaky", [[depth, soft]], [steps], *weights, into or [], out or [])
    data = digest_of("data", inputs, targets)
    facts = {
        "stationarity": stated,
        "ranks": ranks,
        "effective_depth": depth,
        "ridge": ridge,
        "softness": soft,
        "network": network,
        "data": data,
        "samples": len(inputs),
    }
    return Finding(facts, others=(network, data))


def _balls(rows: list[list[float]]) -> Table:
    return [[ball(value) for value in row] for row in rows]


def _fits(rows: list[list[float]] | None, height: int, width: int) -> bool:
    return height == width if rows is None else len(rows) == height and len(rows[0]) == width


@dataclass(frozen=True)
class _Path:
    steps: list[Ball]
    weights: list[Table]
    out: Table | None
    depth: Ball
    soft: Ball
    ridge: Ball

    def measure(self, start: Table, targets: Table) -> tuple[Ball, list[Ball]]:
        """The stationarity, and a rank estimate for each layer."""
        states, lifts = [start], []
        for step, weight in zip(self.steps, self.weights, strict=True):
            state = states[-1]
            lift = [[self.rectify(a) for a in row] for row in state] + [[arb(1)] * len(state[0])]
            pushed = product(weight, lift)
            keep = 1 - step * self.depth
            states.append(
                [[keep * a + step * b for a, b in zip(*rows, strict=True)] for rows in zip(state, pushed, strict=True)]
            )
            lifts.append(lift)
        result = states[-1] if self.out is None else product(self.out, states[-1])
        share = arb(2) / len(start[0])
        slope = [[share * (a - b) for a, b in zip(*rows, strict=True)] for rows in zip(result, targets, strict=True)]
        if self.out is not None:
            slope = product(transpose(self.out), slope)
        gap = size = arb(0)
        ranks = []
        for layer in reversed(range(len(self.steps))):
            step, weight, lift, before = self.steps[layer], self.weights[layer], lifts[layer], states[layer]
            momentum = [[-entry / self.ridge for entry in row] for row in slope]
            moved = product(momentum, transpose(lift))
            gap += step * squares(
                [[w - self.depth * m for w, m in zip(*rows, strict=True)] for rows in zip(weight, moved, strict=True)]
            )
            size += step * squares(weight)
            inner = sum(
                (m * a for rows in zip(momentum, before, strict=True) for m, a in zip(*rows, strict=True)), arb(0)
            )
            ranks.append(2 * inner - squares(moved))
            slope = self.pull_back(slope, step, weight, before)
        return (gap / size).sqrt(), ranks[::-1]

    def pull_back(self, slope: Table, step: Ball, weight: Table, before: Table) -> Table:
        """The gradient one layer below."""
        keep = 1 - step * self.depth
        back = product(transpose([row[:-1] for row in weight]), slope)
        return [
            [keep * g + step * b * self.gate(a) for g, b, a in zip(*rows, strict=True)]
            for rows in zip(slope, back, before, strict=True)
        ]

    def rectify(self, value: Ball) -> Ball:
        """`max(a, 0)`, or a parabola where |a| is below the softness."""
        if not self.soft > 0:
            return value.max(arb(0))
        inner = (value + self.soft) * (value + self.soft) / (4 * self.soft)
        if abs(value) < self.soft:
            return inner
        outer = value.max(arb(0))
        return outer if abs(value) >= self.soft else outer.union(inner)

    def gate(self, value: Ball) -> Ball:
        """The derivative of `rectified`; at a kink anything between its two sides."""
        if self.soft > 0:
            return ((value + self.soft) / (2 * self.soft)).max(arb(0)).min(arb(1))
        return arb(1) if value > 0 else arb(0) if value < 0 else arb(0).union(arb(1))


def leaky_digest(network: Any) -> str:
    """The digest of a Leaky ResNet given in Python: of the numbers that make it."""
    ends = [[] if part is None else part.tolist() for part in (network.into, network.out)]
    shape = [[float(network.effective_depth), float(network.softness)]]
    return digest_of("leaky", shape, [network.steps.tolist()], *network.weights.tolist(), *ends)
