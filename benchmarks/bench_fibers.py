"""Functional equivalence, regions and fingerprints, beside a MILP and linear programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sparse
from scipy.optimize import Bounds, LinearConstraint, milp

from benchmarks.harness import Row, compare
from lawful import Mlp
from lawful.fibers import Different, Equal, Stack, cells
from lawful.fibers.fingerprint import canonical, fingerprint
from lawful.fibers.random_members import disguise, hiding_network, random_network
from lawful.fibers.regions.cells import count_cells
from lawful.fibers.regions.domain import Domain
from lawful.fibers.regions.pattern_tree import walk
from lawful.fibers.same import same


def rows() -> Iterator[Row]:
    """All comparisons."""
    yield from _equivalence()
    yield from _against_milp()
    yield from _regions()
    yield from _canonical()


def _moved(network: Mlp) -> Mlp:
    """The hidden hyperplane moved, and nothing that compensates."""
    biases = [np.array(bias) for bias in network.biases]
    biases[0][0] += 0.1
    return Mlp(network.weights, biases)


def _decide(network: Mlp, copy: Mlp, moved: Mlp) -> None:
    assert isinstance(same(network, copy), Equal)
    assert isinstance(same(network, moved), Different)


def _equivalence() -> Iterator[Row]:
    for widths in ((16, 16, 8, 1), (64, 64, 48, 10), (512, 512, 256, 10), (1024, 1024, 512, 10)):
        network = hiding_network(*widths, seed=1)
        copy, moved = disguise(network, seed=2), _moved(network)
        name = "-".join(map(str, widths))
        note = "permuted, rescaled, translated copy: equal; a hidden hyperplane moved: different"
        yield compare(f"same {name}, both questions", lambda: _decide(network, copy, moved), repeat=2, note=note)  # noqa: B023


def _against_milp() -> Iterator[Row]:
    for widths in ((3, 3, 2, 1), (6, 6, 4, 1), (8, 8, 6, 1)):
        network = hiding_network(*widths, seed=1)
        copy = disguise(network, seed=2)
        name = "-".join(map(str, widths))
        yield compare(
            f"same {name} on a box, equal",
            lambda: same(network, copy, box=(-1.0, 1.0)),  # noqa: B023
            "HiGHS MILP, 30 s limit",
            lambda: milp_gap(network, copy, 15.0),  # noqa: B023
            repeat=1,
            note="the MILP bounds the largest difference of the outputs from both sides",
        )


def milp_gap(first: Mlp, second: Mlp, seconds: float) -> float:
    """The largest `f − g` and `g − f` of two scalar networks on [-1, 1]^d, by the big-M mixed-integer program."""
    inputs = first.widths[0]
    low, high = [-1.0] * inputs, [1.0] * inputs
    integral = [0] * inputs
    entries: list[tuple[dict[int, float], float]] = []  # Σ coefficients ≤ right side
    costs: dict[int, float] = {}
    for sign, network in ((1.0, first), (-1.0, second)):
        below = list(range(inputs))
        least, most = np.array(low[:inputs]), np.array(high[:inputs])
        for weight, bias in zip(network.weights[:-1], network.biases[:-1], strict=True):
            shift = np.zeros(len(weight)) if bias is None else bias
            up, down = np.maximum(weight, 0), np.minimum(weight, 0)
            least, most = up @ least + down @ most + shift, up @ most + down @ least + shift
            above = []
            for row, offset, bottom, top in zip(weight, shift, least, most, strict=True):
                value, switch = len(low), len(low) + 1
                low += [0.0, 0.0]
                high += [max(top, 0.0), 1.0]
                integral += [0, 1]
                linear = dict(zip(below, row.tolist(), strict=True))
                negative = {k: -v for k, v in linear.items()}
                entries.append((linear | {value: -1.0}, -offset))
                entries.append((negative | {value: 1.0, switch: -min(bottom, 0.0)}, offset - min(bottom, 0.0)))
                entries.append(({value: 1.0, switch: -max(top, 0.0)}, 0.0))
                above.append(value)
            below, least, most = above, np.maximum(least, 0), np.maximum(most, 0)
        for place, coefficient in zip(below, network.weights[-1][0].tolist(), strict=True):
            costs[place] = costs.get(place, 0.0) + sign * coefficient
    shape = (len(entries), len(low))
    cells_ = [(number, place, v) for number, (line, _) in enumerate(entries) for place, v in line.items()]
    numbers, places, values = zip(*cells_, strict=True)
    matrix = sparse.csr_array((values, (numbers, places)), shape=shape)
    limit = LinearConstraint(matrix, -np.inf, np.array([right for _, right in entries]))
    worst = 0.0
    for sign in (1.0, -1.0):
        cost = np.zeros(len(low))
        for place, coefficient in costs.items():
            cost[place] = sign * coefficient
        found: Any = milp(
            cost, constraints=limit, bounds=Bounds(low, high), integrality=integral, options={"time_limit": seconds}
        )
        worst = max(worst, -float(found.mip_dual_bound))
    return worst


def _regions() -> Iterator[Row]:
    plane, small, large = random_network(2, 20, 20, 1), random_network(5, 5, 4, 1), random_network(8, 8, 6, 1)
    for network, name in ((plane, "2-20-20-1"), (small, "5-5-4-1")):
        stack, box = Stack.of(network), Domain.box(network.widths[0], -3.0, 3.0)
        count = sum(1 for _ in cells(stack, box))
        yield compare(
            f"all {count} regions of {name} on a box",
            lambda: list(cells(stack, box)),  # noqa: B023
            "a tree of linear programs",
            lambda: list(walk(stack, box, None)),  # noqa: B023
            repeat=1,
        )
    space = Domain.space(8)
    count, _ = count_cells(Stack.of(large), space)
    yield compare(f"{count} regions of 8-8-6-1 on R^8, counted", lambda: count_cells(Stack.of(large), space), repeat=1)


def _canonical() -> Iterator[Row]:
    wide = random_network(784, 512, 512, 10, seed=0)
    copy = disguise(wide, seed=1)
    yield compare("canonical form of 784-512-512-10", lambda: canonical(wide), repeat=1)
    yield compare("same 784-512-512-10, permuted and rescaled", lambda: same(wide, copy), repeat=1)
    pool = [random_network(16, 12, 8, 4, seed=seed) for seed in range(50)]
    yield compare("fingerprints of 50 networks 16-12-8-4", lambda: [fingerprint(each) for each in pool], repeat=1)
