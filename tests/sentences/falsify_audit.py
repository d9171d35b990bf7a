"""Sentences of an audit against plain enumeration on small degenerate networks."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from itertools import product

import numpy as np
from degenerate_networks import agree, describe, networks, rank, sums
from falsification import Trial
from fibers.small_networks import line_function, mlp

from lawful.api.audit import Audit, audit
from lawful.api.prune import prune
from lawful.formats.queries.data import Data
from lawful.network import Mlp
from lawful.report.audit.audit import sentences, to_json
from lawful.report.audit.audit_page import audit_page
from lawful.sentences import audit as says

ONE_NEURON = [
    Mlp([inner, outer], [bias, None])
    for inner, outer, bias in (
        ([[2.0]], [[1.0]], None), ([[1.0]], [[2.0]], None), ([[1.0]], [[-2.0]], None), ([[1.0]], [[1.0]], None),
        ([[0.0]], [[1.0]], None), ([[1.0]], [[0.0]], None), ([[0.0]], [[0.0]], None), ([[1.0, 2.0]], [[1.0]], None),
        ([[1.0, 1.0]], [[3.0]], None), ([[1.0]], [[1.0], [2.0]], None), ([[3.0]], [[1.0], [2.0]], None),
        ([[1.0]], [[1.0]], [1.0]), ([[1.0]], [[-3.0]], [1.0]), ([[0.0]], [[-3.0]], [0.0]),
    )
]  # fmt: skip


@cache
def audited() -> list[tuple[Mlp, Audit, dict[str, str]]]:
    """Every network is audited once."""
    given = [*networks(16, seed=8), *networks(12, seed=9, widths=((1, 2, 1), (2, 3, 1), (1, 3, 2)))]
    return [(network, found, dict(sentences(found))) for network in given for found in [audit(network, effort="quick")]]


@cache
def alone() -> list[tuple[Mlp, Audit, dict[str, str]]]:
    """Networks of one hidden neuron, whose invariant set `|in|² − |out|² = c` is seen at once."""
    return [(each, found, dict(sentences(found))) for each in ONE_NEURON for found in [audit(each, effort="quick")]]


def lock(network: Mlp) -> str | None:
    """Which of the two ends of the one neuron is locked: a single weight that the balance keeps from 0."""
    inner = [*network.weights[0].ravel(), *(() if network.biases[0] is None else network.biases[0])]
    outer = list(network.weights[1].ravel())
    balance = sum(w * w for w in inner) - sum(w * w for w in outer)
    if balance > 0 and len(inner) == 1:
        return "in"
    return "out" if balance < 0 and len(outer) == 1 else None


def connected() -> Iterator[Trial]:
    for network, _, said in alone():
        yield Trial(describe(network), said["where it can go"] == says.connected(), lock(network) is None)


def locked() -> Iterator[Trial]:
    for network, _, said in alone():
        yield Trial(describe(network), said["where it can go"].startswith(says.locked(1)), lock(network) is not None)


def confined() -> Iterator[Trial]:
    """`y = bias + v relu(...)`: the sign of v alone says where y is, if v is locked."""
    for network, _, said in alone():
        weight = float(network.weights[1][0, 0])
        side = ("above" if weight > 0 else "below") if lock(network) == "out" else None
        for word in ("above", "below"):
            yield Trial(
                f"{word}: {describe(network)}", says.confined([("y0", word)]) in said["where it can go"], side == word
            )


def unlocked() -> Iterator[Trial]:
    """Rescaling reaches balance 0 unless one end is all zero."""
    for network, _, said in alone():
        ends = network.weights[0].any() or (network.biases[0] is not None and network.biases[0].any())
        free = bool(ends and network.weights[1].any())
        for left in (0, 1):
            true = lock(network) is not None and left == (0 if free else 1)
            yield Trial(f"{left}: {describe(network)}", says.unlocked(left) in said["where it can go"], true)


def removable() -> Iterator[Trial]:
    for network, found, said in audited():
        pruning = found.pruning
        words = "can go and nothing changes" in said["what is wasted"]
        small = pruning.network
        if pruning.rounding or not isinstance(small, Mlp):
            continue
        fewer = sum(small.widths[1:-1]) < sum(network.widths[1:-1])
        yield Trial(describe(network), words, fewer and agree(network, small))


def on_the_range() -> Iterator[Trial]:
    rng = np.random.default_rng(10)
    for network in networks(8, seed=11, widths=((1, 3, 2), (2, 2, 1), (1, 2, 2, 1))):
        data = Data(rng.uniform(1.0, 2.0, size=(20, network.widths[0])), None)
        found = audit(network, data=data, effort="quick")
        said = dict(sentences(found))["on your data's range"]
        assert found.box_pruning is not None
        inside = rng.uniform(data.x.min(axis=0), data.x.max(axis=0), size=(300, network.widths[0]))
        moved = float(np.abs(network.evaluate(inside) - found.box_pruning.network.evaluate(inside)).max())
        stated = float(said.split("more than ")[1].rstrip(".")) if "more than" in said else 0.0
        yield Trial(f"{said}: {describe(network)}", "can go there" in said, moved <= stated + 1e-13)
    yield Trial("a neuron that bends there", False, False)
    for value in (1.234e-9, 0.0999):
        text = says.on_the_range(2, value).split("more than ")[1].rstrip(".")
        yield Trial(text, True, Fraction(text) >= Fraction(value))


def silent_on_data() -> Iterator[Trial]:
    """Hidden values at every sample, in fractions; weights of 1/4 steps and whole samples are exact in floats."""
    rng = np.random.default_rng(12)
    for network in networks(10, seed=13, widths=((1, 3, 2), (2, 2, 1), (1, 2, 2, 1))):
        samples = rng.integers(-2, 3, size=(4, network.widths[0]))
        found = audit(network, data=Data(samples.astype(float), None), effort="quick")
        layers = [sums(network, tuple(map(Fraction, row.tolist())))[:-1] for row in samples]
        silent = sum(
            all(layer[number][j] <= 0 for layer in layers)
            for number, width in enumerate(network.widths[1:-1])
            for j in range(width)
        )
        page = audit_page(found)
        for count in range(4):
            yield Trial(f"{count}: {describe(network)}", says.silent_on_data(count) in page, count == silent)


def derivative_rank(network: Mlp) -> tuple[int, int]:
    """The rank of the derivative of `Σ in² − Σ out²` of every hidden neuron, in fractions, and how many there are."""
    layers = len(network.weights)
    edges = [
        (layer, i, j) for layer, w in enumerate(network.weights) for i in range(w.shape[0]) for j in range(w.shape[1])
    ]
    biases = [(layer, i) for layer, b in enumerate(network.biases[:-1]) if b is not None for i in range(len(b))]
    rows = []
    for layer in range(layers - 1):
        for neuron in range(network.weights[layer].shape[0]):
            row = []
            for number, i, j in edges:
                sign = (number == layer and i == neuron) - (number == layer + 1 and j == neuron)
                row.append(2 * sign * Fraction(float(network.weights[number][i, j])))
            row += [Fraction(float(network.biases[n][i])) * 2 * (n == layer and i == neuron) for n, i in biases]  # type: ignore[index]
            rows.append(row)
    return rank(rows), len(rows)


def regular() -> Iterator[Trial]:
    for network, _, said in [*audited(), *alone()]:
        full, hidden = derivative_rank(network)
        yield Trial(describe(network), said["rank"] == says.regular(full), full == hidden)


def singular() -> Iterator[Trial]:
    for network, found, said in [*audited(), *alone()]:
        full, hidden = derivative_rank(network)
        words = said["rank"].startswith(f"rank J = {full} of {hidden}; cut off: ")
        yield Trial(describe(network), words and found.singularity.singular, full < hidden)


def rescaling() -> Iterator[Trial]:
    for network, _, said in audited():
        weights, biases = [w.copy() for w in network.weights], [b.copy() for b in network.biases]
        weights[0][0], biases[0][0] = 4.0 * weights[0][0], 4.0 * biases[0][0]
        half_way = Mlp(weights, biases)
        weights[1][:, 0] /= 4.0
        order = np.arange(len(weights[0]))[::-1]
        moved = Mlp([weights[0][order], weights[1][:, order], *weights[2:]], [biases[0][order], *biases[1:]])
        words = says.rescaling(sum(network.widths[1:-1]), True)
        yield Trial(describe(network), said["the same function"].startswith(words), agree(network, moved))
        yield Trial(f"half: {describe(network)}", False, agree(network, half_way))


def kinds() -> Iterator[Trial]:
    for network, found, said in audited():
        if found.normal_form is None:
            continue
        counts = by_hand(network)
        words = says.kinds([(kind, counts.count(kind)) for kind in dict.fromkeys(counts)])
        yield Trial(describe(network), "Its neurons:" in said["the same function"], words in said["the same function"])
    yield Trial("others", False, False)


def by_hand(network: Mlp) -> list[str]:
    """Rows of fractions up to any factor are hyperplanes; what all neurons on one add up to across it is its jump."""
    rows = [[*map(Fraction, w), Fraction(b)] for w, b in zip(network.weights[0], network.biases[0], strict=True)]  # type: ignore[arg-type]
    found = []
    for row in rows:
        if not any(row[:-1]):
            found.append("linear" if row[-1] > 0 else "dead")
            continue
        first = next(k for k, entry in enumerate(row) if entry)
        jump = [Fraction(0)] * network.widths[-1]
        for other, column in zip(rows, network.weights[1].T, strict=True):
            if other[first] and [entry / other[first] for entry in other] == [entry / row[first] for entry in row]:
                size = abs(other[first] / row[first])
                jump = [total + size * Fraction(float(w)) for total, w in zip(jump, column, strict=True)]
        found.append("visible" if any(jump) else "cancelling")
    return found


def fiber_dimension() -> Iterator[Trial]:
    """A fiber is no larger than what the derivatives of the outputs leave free, rescalings not counted."""
    for network, found, said in audited():
        if found.normal_form is None or not isinstance(network, Mlp):
            continue
        inputs = np.random.default_rng(0).normal(size=(200, network.widths[0])) * 3.0
        base, step = network.theta, 1e-6
        columns = []
        for k in range(len(base)):
            moved = base.copy()
            moved[k] += step
            columns.append(((network.with_theta(moved).evaluate(inputs) - network.evaluate(inputs)) / step).ravel())
        free = len(base) - int(np.linalg.matrix_rank(np.array(columns), tol=1e-3)) - network.widths[1]
        dimension = found.fiber_dimension
        words = dimension is not None and says.fiber_dimension(dimension) in said["the same function"]
        yield Trial(describe(network), words, dimension is not None and dimension <= max(free, 0))
    yield Trial("a larger one", False, False)
    for bias, *above in product((1, 2), (1, 2), (-1, 2, 3), (-1, 1)):  # a first bend that the second layer may hide
        layers = tuple(
            tuple(tuple(map(Fraction, row)) for row in rows)
            for rows in (((1, bias),), ((-1, above[0]), (-1, above[1])), ((1, above[2], 0),))
        )
        (inner,), second, outer = layers
        step = Fraction(1, 4)
        moved = ((inner[0], inner[1] + step),), tuple((w, b - step * w) for w, b in second), outer
        free = line_function(moved) == line_function(layers)
        written = to_json(audit(mlp(layers), effort="quick"))["same_function"]
        yield Trial(str(layers), written["fiber_dimension"] == 0, not free)


def flows(network: Mlp, moves: int, spread: float, inputs: np.ndarray | None = None) -> int:
    """How many directions training can take near these weights: the rank of gradients of outputs at many inputs.

    Laws are functions of the weights that all these gradients leave unchanged, so there are at most as many as
    parameters less this rank (at one point; brackets of the fields can only lower the number further).
    """
    rng = np.random.default_rng(0)
    points = rng.normal(size=(60, network.widths[0])) * 3.0 if inputs is None else inputs
    best = 0
    for _ in range(moves):
        base = network.theta + spread * rng.normal(size=network.parameters)
        step, rows = 1e-6, []
        for k in range(len(base)):
            up, down = base.copy(), base.copy()
            up[k] += step
            down[k] -= step
            rows.append(
                (network.with_theta(up).evaluate(points) - network.with_theta(down).evaluate(points)).ravel()
                / (2 * step)
            )
        best = max(best, int(np.linalg.matrix_rank(np.array(rows), tol=1e-5)))
    return best


def conserved() -> Iterator[Trial]:
    """One hidden ReLU layer conserves its balances and nothing else (P1), from every start."""
    for network, found, said in audited():
        assert found.laws is not None
        if len(network.weights) > 2:
            continue
        for count in (network.widths[1], network.widths[1] + 1):
            words = says.conserved(count, True, "proved")
            most = network.parameters - flows(network, 2, 1.0)
            true = count == network.widths[1] and most >= count
            yield Trial(f"{count}: {describe(network)}", words in said["what training conserves"], true)


def conserved_near() -> Iterator[Trial]:
    """No more than the gradients close to the present weights leave free."""
    for network, found, said in audited():
        near = found.near_laws
        words = "Close to the present weights" in said["what training conserves"]
        if near is None:
            continue
        free = network.parameters - flows(network, 1, 1e-4)
        yield Trial(describe(network), words, near.laws <= free)
    yield Trial("all parameters", False, False)


def conserved_on_data() -> Iterator[Trial]:
    rng = np.random.default_rng(12)
    for network in networks(6, seed=13, widths=((1, 2, 1), (2, 2, 1))):
        data = Data(rng.normal(size=(3, network.widths[0])), None)
        found = audit(network, data=data, effort="quick")
        assert found.data_laws is not None
        free = network.parameters - flows(network, 1, 1e-4, data.x)
        said = "On these data alone" in dict(sentences(found))["what training conserves"]
        yield Trial(describe(network), said, found.data_laws.laws <= free)
    yield Trial("all parameters", False, False)


def balances() -> Iterator[Trial]:
    """A gradient step of size η moves every balance by no more than η² times squares of the gradient."""
    network = Mlp(
        [np.ones((150, 20)), np.ones((1, 150))], [None, None]
    )  # more weights than a quick audit counts laws of
    found = audit(network, effort="quick")
    said = dict(sentences(found))["what training conserves"]
    yield Trial("20-150-1", said == says.balances(150), network.parameters - 150 >= flows_of_balances(network))
    yield Trial("one more than the neurons", False, False)


def flows_of_balances(network: Mlp) -> int:
    """The gradient of a ReLU network along every balance's own gradient is 0: as many directions are never taken."""
    inputs = np.random.default_rng(1).normal(size=(20, network.widths[0]))
    hidden = np.maximum(inputs @ network.weights[0].T, 0.0)
    for neuron in range(network.widths[1]):
        inner = (network.weights[1][0, neuron] * (hidden[:, neuron] > 0))[:, None] * inputs
        along = inner @ network.weights[0][neuron] - hidden[:, neuron] * network.weights[1][0, neuron]
        assert np.abs(along).max() < 1e-12
    return network.parameters - network.widths[1]


def ramps() -> tuple[np.ndarray, np.ndarray]:
    """All 1-1-2-1 networks with these whole numbers, inner weights of size 1; and their outputs on a fine grid."""
    signs, whole = (-1, 1), (-2, -1, 0, 1, 2)
    rows = np.array(list(product(signs, whole, signs, signs, whole, whole, (-2, -1, 1, 2), (-2, -1, 1, 2), (-1, 0, 1))))
    inputs = np.arange(-32, 33) / 4
    first = np.maximum(rows[:, :1] * inputs + rows[:, 1:2], 0)
    second = [np.maximum(rows[:, [2 + k]] * first + rows[:, [4 + k]], 0) for k in (0, 1)]
    return rows, rows[:, 6:7] * second[0] + rows[:, 7:8] * second[1] + rows[:, 8:9]


@cache
def ramps_audited() -> list[tuple[Mlp, str, bool]]:
    """What is said of the weights of a function, and whether another of these networks is the same function."""
    rows, outputs = ramps()
    known: dict[bytes, set[tuple[int, ...]]] = {}
    for row, values in zip(rows.tolist(), outputs, strict=True):
        swapped = [*row[:2], row[3], row[2], row[5], row[4], row[7], row[6], row[8]]
        known.setdefault(values.tobytes(), set()).add(tuple(min(row, swapped)))
    found = []
    rising = [(1, 0, 1, -1, -1, 2, 1, 1, 0), (-1, 1, 1, -1, -1, 2, 1, -1, 1)]  # identifiable, both
    for row in [*rising, *np.random.default_rng(14).permutation(rows)[:10].tolist()]:
        a, b, c, d, e, f, g, h, i = map(float, row)
        network = Mlp([[[a]], [[c], [d]], [[g, h]]], [[b], [e, f], [i]])
        said = dict(sentences(audit(network, effort="quick")))["the same function"]
        twin = len(known[outputs[(rows == row).all(axis=1)][0].tobytes()]) > 1
        found.append((network, said, twin))
    return found


def identifiable() -> Iterator[Trial]:
    for network, said, twin in ramps_audited():
        yield Trial(describe(network), "and nothing else does among" in said, not twin)


def not_identifiable() -> Iterator[Trial]:
    """Another network, or more directions without effect than three rescalings, show that there are others."""
    inputs = np.arange(-32, 33)[:, None] / 4 + 0.01
    for network, said, twin in ramps_audited():
        free = network.parameters - 3 - flows(network, 1, 0.0, inputs)
        yield Trial(describe(network), "so do others of this shape" in said, twin or free > 0)


def advised(found: Audit, word: str) -> str | None:
    """The title and the benefit of a recommendation."""
    return next((f"{each.title}: {each.benefit}" for each in found.recommendations if word in each.command), None)


def percent(words: str) -> Fraction:
    return Fraction(words.split("%")[0].split()[-1]) / 100


def advise_pruning() -> Iterator[Trial]:
    for network, found, _ in audited()[::3]:
        words = advised(found, "lawful prune")
        small = prune(network).network
        saved = 1 - Fraction(small.parameters, network.parameters)
        fewer = len(network.to_dag().hidden) - len(small.to_dag().hidden)
        true = isinstance(small, Mlp) and fewer > 0 and agree(network, small)
        if words is not None and isinstance(small, Mlp):
            true = true and percent(words) <= saved and f"remove {fewer} neuron" in words
        yield Trial(describe(network), words is not None and isinstance(small, Mlp), true)


def advise_box() -> Iterator[Trial]:
    rng = np.random.default_rng(15)
    for network in networks(5, seed=16, widths=((1, 3, 2), (2, 3, 1))):
        data = Data(rng.uniform(1.0, 2.0, size=(20, network.widths[0])), None)
        words = advised(audit(network, data=data, effort="quick"), "--box=")
        box = (np.full(network.widths[0], data.x.min()), np.full(network.widths[0], data.x.max()))
        small = prune(network, box=box).network
        inside = rng.uniform(*box, size=(300, network.widths[0]))
        moved = float(np.abs(network.evaluate(inside) - small.evaluate(inside)).max())
        stated = 0.0 if words is None else float(words.split("within ")[1])
        yield Trial(f"{words}: {describe(network)}", words is not None, moved <= stated + 1e-13)
    yield Trial("a neuron that bends there", False, False)


def advise_unlocking() -> Iterator[Trial]:
    for network, found, _ in alone():
        words = advised(found, "--balance unlock")
        true = lock(network) is not None and all(np.any(weight) for weight in network.weights)
        yield Trial(describe(network), words is not None and "no sign is locked any more" in words, true)


def advise_balancing() -> Iterator[Trial]:
    """`a s² + b / s²` is least where both are `√(ab)`."""
    for network, found, _ in alone():
        inner = sum(float((part**2).sum()) for part in (network.weights[0], network.biases[0]) if part is not None)
        outer = float((network.weights[1] ** 2).sum())
        saved = 1 - 2 * (inner * outer) ** 0.5 / (inner + outer) if inner + outer else 0.0
        words = advised(found, "--balance zero")
        right = words is not None and 0 <= Fraction(saved + 1e-12) - percent(words) <= Fraction(11, 10_000)
        yield Trial(describe(network), words is not None, right)


FALSIFIERS = {
    "audit.silent_on_data": silent_on_data,
    "audit.advise_balancing": advise_balancing,
    "audit.advise_box": advise_box,
    "audit.advise_pruning": advise_pruning,
    "audit.advise_unlocking": advise_unlocking,
    "audit.identifiable": identifiable,
    "audit.not_identifiable": not_identifiable,
    "audit.balances": balances,
    "audit.conserved": conserved,
    "audit.conserved_near": conserved_near,
    "audit.conserved_on_data": conserved_on_data,
    "audit.box": on_the_range,
    "audit.confined": confined,
    "audit.connected": connected,
    "audit.fiber_dimension": fiber_dimension,
    "audit.kinds": kinds,
    "audit.locked": locked,
    "audit.regular": regular,
    "audit.removable": removable,
    "audit.rescaling": rescaling,
    "audit.singular": singular,
    "audit.unlocked": unlocked,
}
