"""Forgers who know the source: claims that a checker could only refuse by its conditions, as all else fits them.

A forger of `pruning` picks any reasons and writes the network that would follow from them; one of `same` applies any
steps, whether or not they keep the function. What is accepted must be true at every input that is tried.
"""

from __future__ import annotations

import copy
import random
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from effort import trials
from forging import REFUSED, Proof, signed
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from second_opinion import load_second_checker

from lawful import verify

SMALL = (-2.0, -1.0, -1.0, -0.5, 0.0, 0.5, 1.0, 1.0, 2.0)
FACTORS = ("-2", "-1", "-1/2", "0", "1/2", "1", "2")
SLOPES = (0.0, 0.0, 0.0, 0.5, 1.0, -0.5, -1.0)
POINTS = np.random.default_rng(0).integers(-64, 65, size=(60, 2)) / 16  # in [-4, 4], exactly
# shrinking would not make a network simpler, and draws of single numbers are slow
SEEDS = st.integers(0, 2**32)
many = settings(
    max_examples=trials(400, 20_000), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)


def evaluate(network: Any, point: Any) -> list[Fraction]:
    """The outputs of a graph of a certificate, exactly, by its definition."""
    order = sorted(range(len(network["roles"])), key=levels(network).__getitem__)
    slopes = iter(network["slopes"])
    slope = {v: Fraction(next(slopes)) for v, role in enumerate(network["roles"]) if role == 1}
    coordinates = iter(point)
    value = {v: Fraction(next(coordinates)) for v, role in enumerate(network["roles"]) if role == 0}
    value |= {v: Fraction(1) for v, role in enumerate(network["roles"]) if role == 3}
    for v in order:
        if network["roles"][v] in (1, 2):
            pairs = zip(network["edges"], network["weights"], strict=True)
            total = sum((Fraction(w) * value[t] for (t, h), w in pairs if h == v), Fraction(0))
            value[v] = total if total > 0 or v not in slope else slope[v] * total
    return [value[v] for v, role in enumerate(network["roles"]) if role == 2]


def levels(network: Any) -> list[int]:
    found = [0] * len(network["roles"])
    for _ in found:
        for tail, head in network["edges"]:
            found[head] = max(found[head], found[tail] + 1)
    return found


def draw_network(rng: random.Random) -> Any:
    """2 inputs, one or two hidden layers of 1 to 3 neurons, some of them multiples of others, one output, biases."""
    widths = [2, *(rng.randint(1, 3) for _ in range(rng.randint(1, 2))), 1]
    first = [sum(widths[:k]) for k in range(len(widths))]
    constant, edges, weights = sum(widths), [], []
    for layer in range(1, len(widths)):
        rows = [[rng.choice(SMALL) for _ in range(widths[layer - 1] + 1)] for _ in range(widths[layer])]
        for row in rows:  # a bias that keeps a neuron on one side of its kink in [-1, 1]
            if rng.random() < 0.3:
                row[-1] = rng.choice((-1, 1)) * sum(map(abs, row[:-1]))
        if len(rows) > 1 and rng.random() < 0.6:
            factor = float(Fraction(rng.choice(FACTORS)))
            rows[1] = [factor * entry for entry in rows[0]]
        for neuron, row in enumerate(rows):
            for tail, weight in enumerate(row):
                edges.append([first[layer - 1] + tail if tail < widths[layer - 1] else constant, first[layer] + neuron])
                weights.append(weight)
    roles = [0] * widths[0] + [1] * sum(widths[1:-1]) + [2] + [3]
    return {"roles": roles, "edges": edges, "slopes": [rng.choice(SLOPES)] * sum(widths[1:-1]), "weights": weights}


def rows_of(network: Any) -> dict[int, dict[int, Fraction]]:
    found: dict[int, dict[int, Fraction]] = {v: {} for v, role in enumerate(network["roles"]) if role in (1, 2)}
    for (tail, head), weight in zip(network["edges"], network["weights"], strict=True):
        if weight:
            found[head][tail] = Fraction(weight)
    return found


def combine(*parts: tuple[Fraction, dict[int, Fraction]]) -> dict[int, Fraction]:
    total: dict[int, Fraction] = {}
    for factor, form in parts:
        for label, weight in form.items():
            total[label] = total.get(label, Fraction(0)) + factor * weight
    return {label: weight for label, weight in total.items() if weight}


def forge_pruning(rng: random.Random) -> Proof:
    network = draw_network(rng)
    hidden = [v for v, role in enumerate(network["roles"]) if role == 1]
    constant, rows = len(network["roles"]) - 1, rows_of(network)
    slope = Fraction(network["slopes"][0])
    gone = rng.sample(hidden, rng.randint(1, min(2, len(hidden))))
    kinds = rng.choices(("unread", "value", "on", "off", "pair"), k=rng.randint(1, 2))
    reasons: dict[int, Any] = {}
    forms: dict[int, dict[int, Fraction]] = {}
    for v in sorted(gone):
        kind, factor = rng.choice(kinds), Fraction(rng.choice(FACTORS))
        own = combine(*((weight, forms.get(tail, {tail: Fraction(1)})) for tail, weight in rows[v].items()))
        if kind == "unread":
            reasons[v] = None
        elif kind == "value":
            reasons[v], forms[v] = str(factor), {constant: factor} if factor else {}
        elif kind in ("on", "off"):
            reasons[v], forms[v] = kind, combine((Fraction(1) if kind == "on" else slope, own))
        else:
            partner = rng.choice(hidden)
            reasons[v] = [partner, str(factor)]
            opposite = factor < 0 and slope != 1 and rng.random() < 0.5  # or as if the factor were positive
            form = {partner: abs(factor) if opposite else factor}
            forms[v] = combine((Fraction(1), form), (1 + slope if opposite else Fraction(0), own))
    labels = [v for v in range(len(network["roles"])) if v not in gone]
    edges, weights = [], []
    for head in labels:
        if head in rows:
            wanted = combine(*((weight, forms.get(tail, {tail: Fraction(1)})) for tail, weight in rows[head].items()))
            wanted = {tail: weight for tail, weight in wanted.items() if tail in labels}
            for tail in sorted({*wanted, constant}):
                edges.append([labels.index(tail), labels.index(head)])
                weights.append(float(wanted.get(tail, 0)))
    unread = [v for v in labels if v in hidden and not any(labels[tail] == v for tail, _ in edges)]
    edges += [[labels.index(v), labels.index(constant - 1)] for v in unread]  # a graph has no neuron without a way out
    weights += [0.0] * len(unread)
    after = {
        "roles": [network["roles"][v] for v in labels], "edges": edges, "weights": weights,
        "slopes": [network["slopes"][0]] * sum(v in hidden for v in labels),
    }  # fmt: skip
    box = rng.choice([None, [[-1.0, -1.0], [1.0, 1.0]], [[-1.0, -1.0], [1.0, 1.0]], [[0.0, 0.0], [None, None]]])
    stage = {
        "after": after,
        "labels": labels,
        "evidence": [[v, reason] for v, reason in reasons.items()],
        "carriers": [],
    }
    return {
        "kind": "pruning", "version": 2, "about": [], "original": network, "box": box, "neurons_before": len(hidden),
        "neurons_after": len(hidden) - len(gone), "max_output_change_bound": rng.choice((0.0, 0.5, 4.0)),
        "rounding_bound": 0.0, "stages": [stage],
    }  # fmt: skip


def test_no_forged_pruning_is_false() -> None:
    accepted = [0]

    @many
    @given(SEEDS)
    def forge(seed: int) -> None:
        proof = forge_pruning(random.Random(seed))  # noqa: S311
        try:
            found = verify(signed(proof))
        except REFUSED:
            return
        accepted[0] += 1
        low, high = proof["box"] or ([None, None], [None, None])
        for point in POINTS:
            inside = all(
                (a is None or a <= x) and (b is None or x <= b) for x, a, b in zip(point, low, high, strict=True)
            )
            ours, theirs = (evaluate(net, point) for net in (proof["original"], proof["stages"][-1]["after"]))
            moved = max(abs(a - b) for a, b in zip(ours, theirs, strict=True))
            assert not inside or moved <= found.facts["max_output_change_bound"], proof

    forge()
    assert accepted[0] > 0, "a forger who never comes near the truth tests nothing"


careless = load_second_checker()  # applies steps whether or not their conditions hold
careless.must = lambda *_: None  # type: ignore[attr-defined]


def draw_step(rng: random.Random, width: int, layers: int) -> dict[str, Any]:
    do = rng.choice(("reorder", "rescale", "drop", "merge", "collapse", "translate", "lift", "flip"))
    neuron, other = rng.randrange(width), rng.randrange(width)
    rest: dict[str, Any] = {
        "reorder": {"order": rng.sample(range(width), width)},
        "rescale": {"factors": [rng.choice((0.5, 1.0, 2.0, -1.0)) for _ in range(width)]},
        "drop": {"neuron": neuron},
        "merge": {"keep": neuron, "drop": other},
        "collapse": {},
        "translate": {"neuron": neuron, "shift": rng.choice(SMALL)},
        "lift": {"neuron": neuron, "shift": rng.choice(SMALL)},
        "flip": {"neuron": neuron, "flipped": rng.sample(range(width), rng.randint(0, min(2, width)))},
    }[do]
    return {"do": do, "layer": rng.randint(1, layers - 1)} | rest


def forge_equality(rng: random.Random) -> Proof | None:
    width, layers = rng.randint(1, 3), rng.randint(2, 3)
    sizes = [2, *[width] * (layers - 1), 1]
    weights = [[[rng.choice(SMALL) for _ in range(sizes[k])] for _ in range(sizes[k + 1])] for k in range(layers)]
    biases = [[rng.choice(SMALL) for _ in range(size)] for size in sizes[1:]]
    if width > 1 and rng.random() < 0.5:  # multiples
        factor = rng.choice(SMALL)
        weights[0][1], biases[0][1] = [factor * entry for entry in weights[0][0]], factor * biases[0][0]
    if layers == 3 and rng.random() < 0.4:  # the second layer hides neuron 0, or nearly
        for row in weights[1]:
            row[:] = [abs(row[0]) or 1.0, *(-abs(entry) for entry in row[1:])]
        biases[1] = [rng.choice((-1.0, -0.5, 0.0, 0.5)) for _ in biases[1]]
    if rng.random() < 0.3:  # always active on the box
        biases[0] = [sum(map(abs, row)) for row in weights[0]]
    network = {"weights": weights, "biases": biases, "slopes": [rng.choice(SLOPES) for _ in range(layers - 1)]}
    box = rng.choice([None, [[0.0, 0.0], [1.0, 1.0]]])
    domain = [(None, None)] * 2 if box is None else [(Fraction(0), Fraction(1))] * 2
    net, _ = careless.read_layers(careless.parse(careless.json.dumps(network)))
    walked = []
    for step in [draw_step(rng, width, layers) for _ in range(rng.randint(1, 2))]:
        try:
            net = careless.apply_step(net, careless.parse(careless.json.dumps(step)), domain)
        except Exception:  # it does not even fit the sizes
            return None
        walked.append(step)
    if not all(net.rows) or any(int(e.denominator).bit_count() > 1 for la in net.rows for row in la for e in row):
        return None
    other = {
        "weights": [[[float(e) for e in row[:-1]] for row in layer] for layer in net.rows],
        "biases": [[float(row[-1]) for row in layer] for layer in net.rows],
        "slopes": [float(slope) for slope in net.slopes],
    }
    return {
        "kind": "same", "version": 2, "about": [], "networks": [network, other], "box": box, "verdict": "equal",
        "within": {"kind": "exactly", "value": 0.0}, "counterexample": None,
        "witness": {"first": walked, "second": [], "ending": "weights"},
    }  # fmt: skip


def test_no_forged_equality_is_false() -> None:
    accepted = [0]

    @many
    @given(SEEDS)
    def forge(seed: int) -> None:
        proof = forge_equality(random.Random(seed))  # noqa: S311
        if proof is None:
            return
        try:
            verify(signed(proof))
        except REFUSED:
            return
        accepted[0] += 1
        one, two = (careless.read_layers(careless.parse(careless.json.dumps(net)))[0] for net in proof["networks"])
        for point in POINTS:
            if proof["box"] is None or all(0 <= x <= 1 for x in point):
                exact = [Fraction(x) for x in point]
                assert one.at(exact) == two.at(exact), proof

    forge()
    assert accepted[0] > 0


@pytest.mark.parametrize("reason", [None, "0", "on", "off", [3, "1"]])
def test_a_carrier_stands_for_nothing_but_its_sum(reason: Any) -> None:
    """`y = relu(x) - relu(-x)`: no reason lets a carrier that bends take the place of both neurons."""
    graph = {"roles": [0, 1, 1, 2], "edges": [[0, 1], [0, 2], [1, 3], [2, 3]], "slopes": [0.0, 0.0],
             "weights": [1.0, -1.0, 1.0, -1.0]}  # fmt: skip
    after = {"roles": [0, 1, 2], "edges": [[0, 1], [1, 2]], "slopes": [0.0], "weights": [1.0, 1.0]}
    stage = {"after": after, "labels": [0, 4, 3], "evidence": [[1, "on"], [2, reason]], "carriers": [[4, 3, "0"]]}
    proof = {"kind": "pruning", "version": 2, "about": [], "original": graph, "box": None, "neurons_before": 2,
             "neurons_after": 1, "max_output_change_bound": 1e9, "rounding_bound": 1e9, "stages": [stage]}  # fmt: skip
    with pytest.raises(REFUSED):
        verify(signed(copy.deepcopy(proof)))
