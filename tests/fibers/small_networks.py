"""All small integer networks of a shape, sorted by function, against what the package says of each.

`python tests/fibers/small_networks.py` runs the whole search and prints one line for every shape; tests run a slice.
Nothing here uses the package to decide whether functions are equal: networks of one input are compared as exact
piecewise linear functions, those of two inputs by their values on a grid that floats hold exactly, and where values
agree by brute force over regions (`same --exact`, itself compared with the first kind).
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import pairwise, permutations, product
from typing import Any

import numpy as np

from lawful import Mlp
from lawful.fibers import Stack
from lawful.fibers.deep.genericity import is_generic
from lawful.fibers.deep.identifiability import certificate, identifiable
from lawful.fibers.fingerprint import canonical, fingerprint
from lawful.verify import verify

Rows = tuple[tuple[Fraction, ...], ...]
Layers = tuple[Rows, ...]  # every layer as rows [w | b]
Key = tuple[Any, ...]


def integers(shape: Sequence[int], *values: Sequence[int]) -> Iterator[Layers]:
    """All networks of a shape; values for the weights and for the biases of each hidden layer, then for the outputs."""
    layers = []
    for layer, (below, width) in enumerate(pairwise(shape)):
        last = layer == len(shape) - 2
        weights, biases = values[2 * layer], [0] if last else values[2 * layer + 1]
        rows = [(*map(Fraction, w), Fraction(b)) for w in product(weights, repeat=below) for b in biases]
        layers.append(list(product(rows, repeat=width)))
    yield from product(*layers)


def mlp(layers: Layers) -> Mlp:
    tables = [np.array([[float(item) for item in row] for row in rows]) for rows in layers]
    return Mlp([table[:, :-1] for table in tables], [table[:, -1] for table in tables])


def layers_of(stack: Stack) -> Layers:
    exact = stack.rational()
    return tuple(
        tuple(tuple(Fraction(int(q.p), int(q.q)) for q in row) for row in exact.row(layer))
        for layer in range(len(exact.weights))
    )


def orbit(layers: Layers) -> Key:
    """What order and positive scale of the neurons leave alone; output biases, which others make up for, left out."""
    scaled, factors = [], [Fraction(1)] * (len(layers[0][0]) - 1)
    for rows in layers[:-1]:
        lines = [[*(w * f for w, f in zip(row, factors, strict=False)), row[-1]] for row in rows]
        factors = [sum(map(abs, line)) for line in lines]
        scaled.append(
            [[item / size if size else item for item in line] for line, size in zip(lines, factors, strict=True)]
        )
    heads = [[w * f for w, f in zip(row, factors, strict=False)] for row in layers[-1]]
    # a neuron whose row is zero has no size: what it sends is left out, as nothing arrives
    return min(_ordered(scaled, heads, orders) for orders in product(*(permutations(range(len(r))) for r in scaled)))


def _ordered(scaled: list[Any], heads: list[Any], orders: Sequence[Sequence[int]]) -> Key:
    below: Sequence[int] | None = None
    found = []
    for rows, order in zip(scaled, orders, strict=True):
        lines = [rows[k] if below is None else [*(rows[k][j] for j in below), rows[k][-1]] for k in order]
        found.append(tuple(map(tuple, lines)))
        below = order
    found.append(tuple(tuple(row[j] for j in below or ()) for row in heads))
    return tuple(found)


def line_function(layers: Layers) -> Key:
    """A network of one input as an exact function: its bends and its slopes, up to a constant (an output bias)."""
    pieces: list[Any] = [(None, None, [(Fraction(1), Fraction(0))])]
    for number, rows in enumerate(layers):
        last = number == len(layers) - 1
        after: list[Any] = []
        for low, high, values in pieces:
            sums = [
                (sum(w * a for w, (a, _) in zip(row, values, strict=False)),
                 sum((w * c for w, (_, c) in zip(row, values, strict=False)), row[-1]))
                for row in rows
            ]  # fmt: skip
            cuts = [] if last else sorted({-c / a for a, c in sums if a and _inside(-c / a, low, high)})
            for left, right in zip([low, *cuts], [*cuts, high], strict=True):
                middle = _middle(left, right)
                kept = sums if last else [s if s[0] * middle + s[1] > 0 else (Fraction(0), Fraction(0)) for s in sums]
                after.append((left, right, kept))
        pieces = after
    slopes = [(left, tuple(a for a, _ in values)) for left, _, values in pieces]
    bends = [(here, slope) for (here, slope), (_, before) in zip(slopes[1:], slopes, strict=False) if slope != before]
    return (slopes[0][1], tuple(bends))


def _inside(x: Fraction, low: Fraction | None, high: Fraction | None) -> bool:
    return (low is None or x > low) and (high is None or x < high)


def _middle(low: Fraction | None, high: Fraction | None) -> Fraction:
    if low is None or high is None:
        return Fraction(0) if low is high else high - 1 if low is None else low + 1
    return (low + high) / 2


def by_function(networks: Iterable[Layers]) -> dict[Key, dict[Key, Layers]]:
    """Networks of one input by function, then by what order and scale leave alone."""
    found: dict[Key, dict[Key, Layers]] = defaultdict(dict)
    for layers in networks:
        found[line_function(layers)].setdefault(orbit(layers), layers)
    return found


def check_identifiable(groups: dict[Key, dict[Key, Layers]], every: int = 1) -> dict[str, int]:
    """Yes and no, counts, twins and certificates of all networks, against the parameters of the same function."""
    tally = dict.fromkeys(("functions", "networks", "yes", "no", "open", "counted"), 0)
    tally["functions"] = len(groups)
    for number, members in enumerate(groups.values()):
        for key, layers in members.items():
            tally["networks"] += 1
            if (number + tally["networks"]) % every:
                continue
            network = mlp(layers)
            found = identifiable(network)
            if found.identifiable and found.among == "all":
                assert len(members) == 1, f"called identifiable, but others are the same function: {layers}"
            if found.count is not None:
                twins = {orbit(layers_of(twin)) for twin in found.twins}
                assert len(twins) == found.count - 1, f"twins are not as many as counted: {layers}"
                assert key not in twins, f"a twin is no other parameter: {layers}"
                assert set(members) <= twins | {key}, f"a parameter is missing among the twins: {layers}"
                if len(layers[0][0]) == 2:
                    assert {line_function(layers_of(twin)) for twin in found.twins} <= {line_function(layers)}
                tally["counted"] += 1
            if found.identifiable is not None:
                proved = verify(certificate(network, found))
                assert proved.facts["identifiable"] is found.identifiable, layers
            tally[{True: "yes", False: "no", None: "open"}[found.identifiable]] += 1
    return tally


def check_canonical(groups: dict[Key, dict[Key, Layers]], every: int = 1) -> dict[str, int]:
    """Wherever two forms of one function are called complete, they are equal, and so are their hashes."""
    tally = dict.fromkeys(("functions", "networks", "complete"), 0)
    tally["functions"] = len(groups)
    for number, members in enumerate(groups.values()):
        if number % every:
            continue
        seen: dict[str, Layers] = {}
        forms: list[tuple[Mlp, Layers]] = []
        for layers in members.values():
            tally["networks"] += 1
            network = anchored(mlp(layers))
            form, mark = canonical(network), fingerprint(network)
            if not form.complete:
                continue
            tally["complete"] += 1
            seen.setdefault(mark.hash, layers)
            assert len(seen) == 1, f"two hashes of one function: {list(seen.values())}"
            forms.append((form.network, layers))
            first = forms[0][0]
            same = form.network.widths == first.widths and np.allclose(_parameters(form.network), _parameters(first))
            assert same, f"two forms of one function: {forms[0][1]} and {layers}"
    return tally


def anchored(network: Mlp) -> Mlp:
    """The network with output biases that make it zero at one input: functions are compared up to constants."""
    start = network.evaluate(np.full((1, network.widths[0]), -7.0))[0]
    return Mlp(network.weights, [*network.biases[:-1], np.asarray(network.biases[-1]) - start])


def _parameters(network: Mlp) -> Any:
    biases = [np.asarray(b).ravel() for b in network.biases if b is not None]
    return np.concatenate([*(w.ravel() for w in network.weights), *biases])


def planar(seed: int, many: int, second: int, values: Sequence[int]) -> dict[bytes, dict[Key, Layers]]:
    """Random networks 2-2-n2-1 by their values on a grid; first rows and biases of signs, weights of full rank."""
    rng = np.random.default_rng(seed)
    first = rng.integers(-1, 2, size=(many, 2, 3)).astype(float)
    above = rng.choice(values, size=(many, second, 3)).astype(float)
    heads = rng.choice((-1.0, 1.0), size=(many, 1, second))
    full = np.linalg.det(first[:, :, :2]).round() != 0
    first, above, heads = first[full], above[full], heads[full]
    grid = np.array(list(product(np.arange(-12.0, 13.0) / 2 + 1 / 8, np.arange(-12.0, 13.0) / 2 - 1 / 16)))
    grid = np.concatenate([grid, 64 * grid[::7]])
    found: dict[bytes, dict[Key, Layers]] = defaultdict(dict)
    for k in range(len(first)):
        hidden = np.maximum(grid @ first[k, :, :2].T + first[k, :, 2], 0.0)
        output = (np.maximum(hidden @ above[k, :, :2].T + above[k, :, 2], 0.0) @ heads[k].T).ravel()
        layers = tuple(
            tuple(tuple(map(Fraction, row)) for row in table.tolist())
            for table in (first[k], above[k], np.column_stack([heads[k], [[0.0]]]))
        )
        found[(output - output[0]).tobytes()].setdefault(orbit(layers), layers)
    return found


def check_planar(groups: dict[bytes, dict[Key, Layers]]) -> dict[str, int]:
    """No two generic bottlenecks of one function, both identifiable among generic ones; complete forms agree."""
    tally = dict.fromkeys(("functions", "networks", "shared", "generic yes", "complete"), 0)
    tally["functions"] = len(groups)
    for members in groups.values():
        tally["networks"] += len(members)
        if len(members) == 1:
            continue
        tally["shared"] += 1
        stacks = [Stack.of(mlp(layers), exact=True) for layers in members.values()]
        generic = [is_generic(stack).holds is True for stack in stacks]
        for stack, is_so in zip(stacks, generic, strict=True):
            yes = is_so and identifiable(stack).identifiable is True
            tally["generic yes"] += yes
            if yes and sum(generic) > 1:
                raise AssertionError(
                    f"called identifiable, but generic others may be the same: {list(members.values())}"
                )
        marks = [fingerprint(_zeroed(mlp(layers))) for layers in members.values()]
        complete = {mark.hash for mark in marks if mark.complete}
        tally["complete"] += sum(mark.complete for mark in marks)
        assert len(complete) <= 1, f"complete forms of one function differ: {list(members.values())}"
    return tally


def _zeroed(network: Mlp) -> Mlp:
    """With an output bias that makes the network zero at the first point of the grid."""
    start = network.evaluate(np.array([[-6 + 1 / 8, -6 - 1 / 16]]))[0]
    return Mlp(network.weights, [*network.biases[:-1], np.asarray(network.biases[-1]) - start])


SIGNS, SMALL, UNITS = (-1, 0, 1), (-2, -1, 0, 1, 2), (-1, 1)
SHAPES: dict[str, tuple[tuple[int, ...], tuple[Sequence[int], ...]]] = {
    "1-1-1": ((1, 1, 1), (SMALL, SMALL, SMALL)),
    "1-2-1": ((1, 2, 1), (SMALL, SIGNS, SMALL)),
    "1-2-2": ((1, 2, 2), (SIGNS, SIGNS, SMALL)),
    "1-3-1": ((1, 3, 1), (UNITS, SIGNS, SMALL)),
    "1-3-2": ((1, 3, 2), (UNITS, SIGNS, SIGNS)),
    "1-1-1-1": ((1, 1, 1, 1), (SMALL, SMALL, SMALL, SMALL, SMALL)),
    "1-1-2-1": ((1, 1, 2, 1), (UNITS, SIGNS, SIGNS, SMALL, SMALL)),
    "1-1-2-2": ((1, 1, 2, 2), (UNITS, (-1, 1), UNITS, SMALL, SIGNS)),
    "1-1-3-1": ((1, 1, 3, 1), (UNITS, (0,), UNITS, SMALL, (-2, -1, 1, 2))),
}
QUICK = {"1-1-1": 3, "1-2-1": 61, "1-2-2": 61, "1-1-1-1": 13, "1-1-2-1": 61}


def main(names: Sequence[str]) -> None:
    for name in names or [*SHAPES, "2-2-1-1", "2-2-2-1"]:
        if name not in SHAPES:
            second = int(name[4])
            print(name, check_planar(planar(0, 60_000, second, (-2, -1, 1, 2) if second == 1 else UNITS)), flush=True)
            continue
        shape, values = SHAPES[name]
        groups = by_function(integers(shape, *values))
        many = sum(map(len, groups.values()))
        every = max(1, many // 2000)
        print(name, "identifiable", check_identifiable(groups, every), f"1 of {every}", flush=True)
        print(name, "canonical", check_canonical(groups, every), f"1 of {every}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
