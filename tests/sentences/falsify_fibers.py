"""What is said of parameters and functions, on small integer networks whose functions are compared exactly."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cache
from itertools import islice, pairwise, product
from typing import Any

import numpy as np
from falsification import Trial
from fibers.exact_jacobian import jacobian_rank
from fibers.small_networks import (
    SIGNS,
    SMALL,
    UNITS,
    Key,
    Layers,
    anchored,
    by_function,
    integers,
    layers_of,
    line_function,
    mlp,
    orbit,
    planar,
)

from lawful import Mlp
from lawful.fibers import Stack
from lawful.fibers.deep.genericity import is_generic
from lawful.fibers.deep.identifiability import Identifiability, certificate, identifiable
from lawful.fibers.fingerprint import canonical
from lawful.fibers.regions.count import count_regions, group_networks
from lawful.fibers.same import same
from lawful.fibers.summary import describe_fiber
from lawful.report.structure.fibers import (
    canonical_json,
    canonical_text,
    fiber_json,
    fiber_text,
    fingerprint_json,
    fingerprint_text,
    identifiable_json,
    identifiable_text,
    regions_json,
    regions_text,
    verdict_json,
    verdict_text,
)
from lawful.sentences import fibers as sentences

Members = dict[Key, Layers]
LINES: dict[str, tuple[tuple[int, ...], tuple[Any, ...]]] = {
    "1-1-1": ((1, 1, 1), (SMALL, SIGNS, SMALL)),
    "1-2-1": ((1, 2, 1), (SIGNS, (-1, 0), (-1, 1, 2))),
    "1-1-1-1": ((1, 1, 1, 1), (UNITS, SIGNS, SIGNS, SMALL, UNITS)),
    "1-1-2-1": ((1, 1, 2, 1), (UNITS, (0,), UNITS, (-2, -1, 1), (-1, 2))),
}
GRID = [np.array(point) for point in product(np.arange(-3.25, 3.3, 0.5), repeat=2)]


@cache
def lines(name: str, every: int) -> tuple[tuple[Key, Layers, tuple[Layers, ...]], ...]:
    """Some networks of a shape, each with all others of its function (up to order and scale)."""
    shape, values = LINES[name]
    groups = by_function(integers(shape, *values))
    found = [(key, layers, members) for members in groups.values() for key, layers in members.items()]
    return tuple(
        (key, layers, tuple(m for k, m in members.items() if k != key)) for key, layers, members in found[::every]
    )


def asked() -> Iterator[tuple[Layers, tuple[Layers, ...], Mlp, Identifiability]]:
    for name, every in (("1-1-1", 3), ("1-2-1", 5), ("1-1-1-1", 3), ("1-1-2-1", 7)):
        for _, layers, others in lines(name, every):
            network = mlp(layers)
            yield layers, others, network, _identifiable(layers)


def facing() -> list[tuple[Key, Layers, tuple[Layers, ...]]]:
    """Two neurons that face each other, and a third beside them."""
    found = []
    for sign, bias, *outs in product((-1, 1), (0, 1), (-1, 1, 2), (1, 3), (-1, 1)):
        rows = ((1, 0), (-1, 0), (sign, bias))
        found.append((tuple(tuple(map(Fraction, row)) for row in rows), (tuple(map(Fraction, (*outs, 0))),)))
    return [((), layers, ()) for layers in found]


@cache
def _identifiable(layers: Layers) -> Identifiability:
    return identifiable(mlp(layers))


@cache
def degenerate() -> tuple[Mlp, ...]:
    """Random networks of two inputs and signs, with two hidden layers or one; some with a hidden hyperplane."""
    rng = np.random.default_rng(3)
    found = []
    for number in range(60):
        widths = [(2, 2, 1), (2, 2, 2, 1), (2, 3, 1)][number % 3]
        pairs = list(pairwise(widths))
        weights = [rng.integers(-1, 2, size=(m, n)).astype(float) for n, m in pairs]
        biases = [rng.integers(-1, 2, size=m).astype(float) for _, m in pairs]
        if number % 4 == 0:
            weights[0][1], biases[0][1] = 2 * weights[0][0], 2 * biases[0][0]
        if len(widths) == 4 and number % 2:
            weights[1], biases[1] = -np.abs(rng.integers(1, 3, size=(2, 2))).astype(float), np.array([-1.0, -2.0])
            weights[1][:, 0] *= -1
        found.append(Mlp(weights, biases))
    return tuple(found)


def _signals(network: Mlp, layer: int) -> np.ndarray:
    """Values of a hidden layer on the grid, before the ReLU."""
    values = np.array(GRID)
    for number, (weight, bias) in enumerate(zip(network.weights, network.biases, strict=True)):
        values = values @ weight.T + bias
        if number == layer:
            return np.asarray(values)
        values = np.maximum(values, 0.0)
    raise IndexError(layer)


def _reasons(wording: Callable[..., str], truth: Callable[[Mlp, int, int], bool]) -> Callable[[], Iterator[Trial]]:
    """A sentence about one neuron: is it among the reasons, and is it so on a grid?"""

    def trials() -> Iterator[Trial]:
        for network in degenerate():
            reasons = identifiable(network).reasons
            for layer, width in enumerate(network.widths[1:-1]):
                for neuron in range(width):
                    words = wording(("first", "second")[layer], neuron)
                    yield Trial(f"{network.weights} {network.biases}", words in reasons, truth(network, layer, neuron))

    return trials


def _linear(layer: str, neuron: int) -> str:
    return sentences.linear(layer, neuron, "the image of the first layer")


def multiples() -> Iterator[Trial]:
    for network in degenerate():
        reasons = identifiable(network).reasons
        for layer, width in enumerate(network.widths[1:-1]):
            values = np.maximum(_signals(network, layer), 0.0)
            for one in range(width):
                for two in range(one + 1, width):
                    a, b = values[:, one], values[:, two]
                    parallel = bool(np.isclose(np.outer(a, b), np.outer(b, a)).all())
                    said = sentences.multiples(("first", "second")[layer], (one, two)) in reasons
                    yield Trial(f"{network.weights} {network.biases}", said, parallel)


def hidden() -> Iterator[Trial]:
    points = np.array(GRID)
    for network in degenerate():
        if len(network.widths) != 4:
            continue
        reasons = identifiable(network).reasons
        for neuron in range(network.widths[1]):
            biases = [np.array(bias) for bias in network.biases]
            biases[0][neuron] += 1.0
            biases[1] -= network.weights[1][:, neuron]
            moved = Mlp(network.weights, biases)
            true = bool(np.allclose(moved.evaluate(points), network.evaluate(points)))
            said = any(sentences.hidden("second", neuron, 1, flips) in reasons for flips in (0, 1))
            yield Trial(f"{network.weights} {network.biases}", said, true)


def reversible() -> Iterator[Trial]:
    for layers, _, _, found in asked():
        if len(layers) > 2:
            continue
        for chosen in ((0,), (1,), (0, 1)):
            if max(chosen) >= len(layers[0]):
                continue
            rows = tuple(tuple(-q for q in row) if j in chosen else row for j, row in enumerate(layers[0]))
            true = line_function((rows, layers[1])) == line_function(layers)
            yield Trial(str(layers), sentences.reversible(chosen) in found.reasons, true)


def _alone(wordings: Callable[[str], bool], among: bool = False) -> Callable[[], Iterator[Trial]]:
    """A sentence that says that there are no other parameters."""

    def trials() -> Iterator[Trial]:
        for layers, others, _, found in asked():
            yield Trial(str(layers), any(map(wordings, found.reasons)), not others)

    return trials


def identifiable_yes() -> Iterator[Trial]:
    for layers, others, _, found in asked():
        said = identifiable_text(identifiable_json(found)).startswith(sentences.identifiable(generic=False))
        yield Trial(str(layers), said, not others)


def identifiable_no() -> Iterator[Trial]:
    for layers, others, network, found in asked():
        said = identifiable_text(identifiable_json(found)).startswith(sentences.not_identifiable())
        yield Trial(str(layers), said, bool(others) or (said and _another(network, found, layers)))


def _another(network: Mlp, found: Identifiability, layers: Layers) -> bool:
    """Whether the parameters in the certificate have the same function and are no reordering and rescaling."""
    proof = certificate(network, found)
    given = proof["other"] or proof["twins"][0]["other"]
    other = tuple(tuple(tuple(map(Fraction, row)) for row in rows) for rows in given)
    return line_function(other) == line_function(layers) and orbit(other) != orbit(layers)


def twins() -> Iterator[Trial]:
    for layers, others, _, found in asked():
        seen = {orbit(other) for other in others}
        given = {orbit(layers_of(twin)) for twin in found.twins}
        real = {line_function(layers_of(twin)) for twin in found.twins} <= {line_function(layers)}
        exactly = found.count is not None
        true = real and len(given) == len(found.twins) and (not exactly or seen <= given) and bool(given)
        yield Trial(str(layers), sentences.twins(len(given), exactly).split(" (")[0].capitalize()[:30]
                    in identifiable_text(identifiable_json(found)), true)  # fmt: skip


def _other(wordings: Callable[[str], bool], names: tuple[str, ...]) -> Callable[[], Iterator[Trial]]:
    def trials() -> Iterator[Trial]:
        for name in names:
            for _, layers, others in facing() if name == "facing" else lines(name, 5):
                found = _identifiable(layers)
                said = any(map(wordings, found.reasons))
                yield Trial(str(layers), said, bool(others) or (said and _another(mlp(layers), found, layers)))

    return trials


def no_symmetry() -> Iterator[Trial]:
    for members in islice(sorted(planar(1, 600, 1, UNITS).values(), key=len, reverse=True), 60):
        stacks = [Stack.of(mlp(layers), exact=True) for layers in members.values()]
        generic = [is_generic(stack).holds is True for stack in stacks]
        for layers, stack, own in zip(members.values(), stacks, generic, strict=True):
            if own:
                said = sentences.no_symmetry() in identifiable(stack).reasons
                yield Trial(str(layers), said, sum(generic) == 1)


@cache
def rounded() -> tuple[tuple[Mlp, int], ...]:
    """Networks with few digits, and how many directions of weights keep the function to first order, in rationals."""
    rng = np.random.default_rng(5)
    found = []
    for number in range(10):
        widths = (2, 3, 2, 1) if number % 2 else (1, 3, 2, 1)
        pairs = list(pairwise(widths))
        weights = [np.round(8 * rng.normal(size=(m, n))) / 8 + 1 / 16 for n, m in pairs]
        network = Mlp(weights, [np.round(8 * rng.normal(size=m)) / 8 + 1 / 32 for _, m in pairs])
        found.append((network, network.parameters - sum(widths[1:-1]) - jacobian_rank(network)))
    return tuple(found)


def locally_fixed() -> Iterator[Trial]:
    for network, corank in rounded():
        yield Trial(f"{network.weights}", sentences.locally_fixed() in identifiable(network).reasons, corank == 0)


def dimension() -> Iterator[Trial]:
    for network, corank in rounded():
        summary = describe_fiber(network).summary
        head = fiber_text(fiber_json(summary, None)).splitlines()[0]
        for size in range(corank + 2):
            yield Trial(
                f"{network.weights}", head.endswith(f": {sentences.freedoms(size, None, None)}"), size <= corank
            )


def layer_fixed() -> Iterator[Trial]:
    mixed = [each for each in lines("1-1-2-1", 1) if each[1][1][0][0] * each[1][1][1][0] < 0]
    for _, layers, others in (*lines("1-1-1-1", 9), *mixed[3::4]):
        status = describe_fiber(mlp(layers)).summary.layers
        first = {orbit(each)[0] for each in (layers, *others)}
        yield Trial(str(layers), bool(status) and status[0] == "fixed", len(first) == 1)


def hidden_shift() -> Iterator[Trial]:
    points = np.array(GRID)
    for shift in (1.0, 2.0, 3.0):
        biases = [np.array([0.0, shift]), np.array([-1.0, -3.0]), np.zeros(1)]
        network = Mlp([[[1.0, 0.5], [-0.5, 1.0]], [[1.0, -1.0], [2.0, -1.0]], [[1.0, 3.0]]], biases)
        summary = describe_fiber(network).summary
        said = fiber_text(fiber_json(summary, None))
        for shift in (summary.lowest_shift + 1e-3, summary.lowest_shift + 2.5, summary.lowest_shift - 1.5):
            biases = [np.array(bias) for bias in network.biases]
            biases[0][summary.hidden] += shift
            biases[1] -= shift * network.weights[1][:, summary.hidden]
            true = bool(np.allclose(Mlp(network.weights, biases).evaluate(points), network.evaluate(points)))
            yield Trial(f"{network.weights}", "is hidden" in said and shift > summary.lowest_shift, true)


def canonical_forms() -> Iterator[Trial]:
    for _, layers, others in (*lines("1-2-1", 11), *lines("1-1-1-1", 5)):
        network = anchored(mlp(layers))
        found = canonical(network)
        for other in others[:2]:
            form = canonical(anchored(mlp(other)))
            same_form = form.network.widths == found.network.widths and np.allclose(
                form.network.theta, found.network.theta
            )
            said = sentences.canonical(True) in canonical_text(canonical_json(found)) and form.complete
            yield Trial(f"{layers} {other}", said, bool(same_form))
        yield Trial(f"{layers} against another function", False, False)


def functions() -> Iterator[Trial]:
    pool = [mlp(layers) for _, layers, _ in lines("1-2-1", 11)][:15]
    for start in range(0, len(pool) - 3, 3):
        some = {str(k): network for k, network in enumerate([*pool[start : start + 3], pool[start]])}
        said = fingerprint_text(fingerprint_json(group_networks(list(some), some.__getitem__)))
        exact = {(line_function(layers_of(Stack.of(n))), Stack.of(n).exact_outputs([-7.0])) for n in some.values()}
        for many in (1, 2, 3, 4):
            yield Trial(f"{start}", sentences.functions(4, many) in said, len(exact) <= many)


def one_function() -> Iterator[Trial]:
    """Networks of one input: their breakpoints, slopes and one value are the whole function."""
    pool = [mlp(layers) for _, layers, _ in lines("1-2-1", 11)][:12]
    for first in range(len(pool)):
        for second in (first, (first + 1) % len(pool), (first + 5) % len(pool)):
            some = {"a": pool[first], "b": pool[second]}
            said = fingerprint_text(fingerprint_json(group_networks(list(some), some.__getitem__)))
            exact = {(line_function(layers_of(Stack.of(n))), Stack.of(n).exact_outputs([-7.0])) for n in some.values()}
            yield Trial(f"{first} {second}", sentences.one_function(["a", "b"]) in said, len(exact) == 1)


def _cuts(layers: Layers) -> dict[Fraction, int]:
    """Where neurons of a network of one input change their sign, and how many do."""
    found: dict[Fraction, int] = {}
    for number in range(1, len(layers)):
        for row in layers[number - 1]:
            signal = (*layers[: number - 1], (row,))
            bends = line_function((*signal, ((Fraction(1), Fraction(0)),)))[1]
            places = {place for place, _ in bends if not _value(signal, place)}  # where it starts to be active
            found |= {place: found.get(place, 0) + 1 for place in places}
    return found


def _value(layers: Layers, x: Fraction) -> Fraction:
    values = [x]
    for number, rows in enumerate(layers):
        values = [sum((w * v for w, v in zip(row, values, strict=False)), row[-1]) for row in rows]
        if number < len(layers) - 1:
            values = [max(v, Fraction(0)) for v in values]
    return values[0]


def regions() -> Iterator[Trial]:
    for _, layers, _ in (*lines("1-2-1", 11), *lines("1-1-1-1", 5)):
        said = regions_text(regions_json(count_regions(mlp(layers), None)))
        for many in (1, 2, 3, 4):
            yield Trial(
                str(layers), said.startswith(sentences.regions(many, True, "R^1")), len(_cuts(layers)) + 1 == many
            )


def facets() -> Iterator[Trial]:
    for _, layers, _ in (*lines("1-2-1", 11), *lines("1-1-1-1", 5)):
        said = regions_text(regions_json(count_regions(mlp(layers), None, facets=True)))
        alone = {place for place, neurons in _cuts(layers).items() if neurons == 1}
        bends, cuts = len(alone & {place for place, _ in line_function(layers)[1]}), len(alone)
        for many in (0, 1, 2, 3):
            for seen in (0, 1, 2, 3):
                yield Trial(str(layers), f"  {sentences.facets(many, seen)}" in said, (many, seen) == (cuts, bends))


def _compared() -> Iterator[tuple[Layers, Layers, Any]]:
    pool = lines("1-2-1", 11)
    for (_, layers, others), (_, far, _) in pairwise(pool):
        for other in (*others[:1], far):
            yield layers, other, same(mlp(layers), mlp(other), exact=True)


def equal() -> Iterator[Trial]:
    for layers, other, verdict in _compared():
        said = verdict_text(verdict_json(verdict)).startswith(sentences.equal("exactly", "", "R^1"))
        values = [_value(each, Fraction(-7)) for each in (layers, other)]
        yield Trial(f"{layers} {other}", said, line_function(layers) == line_function(other) and values[0] == values[1])


def different() -> Iterator[Trial]:
    for layers, other, verdict in _compared():
        result = verdict_json(verdict)
        said = "They differ by at least" in verdict_text(result)
        values = [_value(each, Fraction(-7)) for each in (layers, other)]
        apart = line_function(layers) != line_function(other) or values[0] != values[1]
        if said:
            line = next(line for line in verdict_text(result).splitlines() if "They differ" in line)
            gap = Fraction(line.split("at least ")[1].split(",")[0])
            x = Fraction(result["counterexample"]["input"][0])
            apart = abs(_value(layers, x) - _value(other, x)) >= gap > 0
        yield Trial(f"{layers} {other}", said, apart)


def _says(*starts: str) -> Callable[[str], bool]:
    return lambda reason: any(part in reason for part in starts)


FALSIFIERS = {
    "fibers.identifiable": identifiable_yes,
    "fibers.not_identifiable": identifiable_no,
    "fibers.twins": twins,
    "fibers.unheard": _reasons(sentences.unheard, lambda n, layer, j: not n.weights[layer + 1][:, j].any()),
    "fibers.constant": _reasons(sentences.constant, lambda n, layer, j: bool(np.ptp(_signals(n, layer)[:, j]) == 0)),
    "fibers.dead": _reasons(sentences.dead, lambda n, layer, j: bool((_signals(n, layer)[:, j] <= 0).all())),
    "fibers.linear": _reasons(_linear, lambda n, layer, j: bool((_signals(n, layer)[:, j] >= 0).all())),
    "fibers.multiples": multiples,
    "fibers.hidden": hidden,
    "fibers.reversible": reversible,
    "fibers.other_roles": _other(_says("the function can also be shared out"), ("facing", "1-2-1")),
    "fibers.only_roles": _alone(_says("no orientation can change", "no other roles")),
    "fibers.reversed_ramp": _other(_says(sentences.reversed_ramp()), ("1-1-1-1", "1-1-1")),
    "fibers.fixed_ramp": _alone(_says(sentences.fixed_ramp())),
    "fibers.no_symmetry": no_symmetry,
    "fibers.locally_fixed": locally_fixed,
    "fibers.dimension": dimension,
    "fibers.layer_fixed": layer_fixed,
    "fibers.hidden_shift": hidden_shift,
    "fibers.canonical": canonical_forms,
    "fibers.functions": functions,
    "fibers.one_function": one_function,
    "fibers.regions": regions,
    "fibers.facets": facets,
    "fibers.equal": equal,
    "fibers.different": different,
}
