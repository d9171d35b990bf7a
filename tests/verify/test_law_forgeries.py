"""Counts of laws forged with the source at hand, and an independent count: Lie closures of polynomials, by sympy.

The oracle shares nothing with the kernel: it looks for activation patterns by trying inputs of all sizes at weights
nearby, writes the fields of training as polynomials, and closes them under brackets symbolically.
"""

from __future__ import annotations

import itertools
import json
import random
import re
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import pytest
from flint import nmod_mat
from forging import REFUSED, Proof, signed
from sympy import GF, ring

import lawful.verify.conservation.module as of_module
from lawful.errors import CertificateError, NotACertificate, Unsupported
from lawful.verify import verify
from lawful.verify.conservation.module import _fingerprint
from lawful.verify.core import schema
from lawful.verify.core.finding import Verified

PRIME = 8_388_593
Field = list[Any]

# x -> a -> (c, d) -> y, where d bends the other way by as much as c
FORK = {"roles": [0, 1, 1, 1, 2], "edges": [[0, 1], [1, 2], [1, 3], [2, 4], [3, 4]],
        "slopes": [0.5, 2.0, 0.5], "weights": [1.0, -1.0, 1.0, 1.0, 1.0]}  # fmt: skip


def laws(network: Proof, known: Sequence[Any], level: str = "near", **more: Any) -> Proof:
    """A certificate whose brackets and counts are still to be filled in."""
    edges = len(network["edges"])
    rng = random.Random(1)  # noqa: S311
    point = [rng.randrange(PRIME) for _ in range(edges)]
    body = {"kind": "laws", "version": 1, "about": [], "network": network, "level": level, "laws": 0,
            "parameters": edges, "states": edges, "loss": "full", "flow": {"name": "gradient"}, "prime": PRIME,
            "seed": 7, "point": point, "brackets": [15] * 4, "dimensions": [0] * 4, "known": list(known)}  # fmt: skip
    return signed(body | more)


def fill_in(proof: Proof) -> Verified:
    """What a forger does with the checker's own words: state whatever it says is so."""
    for _ in range(9):
        try:
            return verify(json.dumps(proof))
        except CertificateError as error:
            if found := re.search(r"up to level (\d+) span (\d+)", str(error)):
                proof["dimensions"][int(found[1])] = int(found[2])
            elif found := re.search(r"^(\d+) of the explicit laws are independent", str(error)):
                proof["laws"] = int(found[1])
            else:
                raise
    raise AssertionError("the words lead nowhere")


# The oracle


def order_of(network: Proof) -> list[int]:
    into = {node: {tail for tail, head in network["edges"] if head == node} for node in range(len(network["roles"]))}
    order: list[int] = []
    while len(order) < len(into):
        order += [node for node in into if node not in order and into[node] <= set(order)]
    return order


def forward(network: Proof, weights: Sequence[Any], x: Sequence[Any], gate: Any, one: Any) -> dict[int, Any]:
    """Values of all nodes, in whatever numbers; `gate(node, sum)` multiplies a hidden one."""
    inputs = iter(x)
    value: dict[int, Any] = {}
    for node in order_of(network):
        role = network["roles"][node]
        if role in (0, 3):
            value[node] = next(inputs) if role == 0 else one
            continue
        value[node] = 0 * one
        for edge, (tail, head) in enumerate(network["edges"]):
            if head == node:
                value[node] = value[node] + weights[edge] * value[tail]
        if role == 1:
            value[node] = value[node] * gate(node, value[node])
    return value


def hidden(network: Proof) -> list[int]:
    return [node for node, role in enumerate(network["roles"]) if role == 1]


def pattern(network: Proof, weights: Sequence[Fraction], x: Sequence[Fraction]) -> tuple[Fraction, ...]:
    slopes = dict(zip(hidden(network), map(Fraction, network["slopes"]), strict=True))
    gates: dict[int, Fraction] = {}

    def gate(node: int, total: Fraction) -> Fraction:
        gates[node] = Fraction(1) if total > 0 else slopes[node]
        return gates[node]

    forward(network, weights, x, gate, Fraction(1))
    return tuple(gates[node] for node in hidden(network))


def shown(network: Proof, data: Sequence[Any] | None, rng: random.Random) -> Iterator[tuple[Any, list[int]]]:
    """Patterns and inputs (modulo the prime): those of the data, or all that inputs of all sizes show nearby."""
    count = network["roles"].count(0)
    if data is not None:
        nearby = [Fraction(weight) + Fraction(rng.randint(-9, 9), 10**18) for weight in network["weights"]]
        for row in data:
            exact = [Fraction(value) for value in row]
            yield pattern(network, nearby, exact), [_residue(value) for value in exact]
        return
    patterns = set()
    for _ in range(3):
        nearby = [Fraction(weight) + Fraction(rng.randint(-(10**6), 10**6), 10**13) for weight in network["weights"]]
        for _ in range(250):
            size = 10.0 ** rng.choice([-9, -3, -1, 0, 0, 0, 1, 3, 9, 15])
            x = [Fraction(rng.gauss(0, 1) * size * 10.0 ** rng.choice([0, 0, -3, 3])) for _ in range(count)]
            patterns.add(pattern(network, nearby, x))
    for each in sorted(patterns):
        for _ in range(count + 2):
            yield each, [rng.randrange(PRIME) for _ in range(count)]


def _residue(value: Fraction) -> int:
    return value.numerator * pow(value.denominator, -1, PRIME) % PRIME


def reached(
    network: Proof, loss: str, data: Sequence[Any] | None, rng: random.Random, flow: Proof | None = None
) -> int:
    """The dimension of the Lie algebra at a random point of the state space."""
    size, flow = len(network["edges"]), flow or {"name": "gradient"}
    states = states_of(size, flow)
    numbers, *state = ring([f"t{k}" for k in range(states)], GF(PRIME))
    theta = state[:size]
    point = [(each, rng.randrange(1, PRIME)) for each in state]
    fields: list[Field] = []
    for gates, x in shown(network, data, rng):
        by_node = dict(zip(hidden(network), map(_residue, gates), strict=True))
        value = forward(network, theta, map(numbers, x), lambda node, _, by_node=by_node: by_node[node], numbers(1))
        outputs = [value[node] for node, role in enumerate(network["roles"]) if role == 2]
        if loss == "cross-entropy":
            outputs = [one - outputs[-1] for one in outputs[:-1]]
        fields += [moved([output.diff(each) for each in theta], flow, states, numbers) for output in outputs]
    if flow["name"] == "momentum":
        velocity, friction = state[size : 2 * size], numbers(_residue(Fraction(flow["friction"])))
        drift = [*velocity, *(-friction * each for each in velocity)]
        fields.append([*drift, *[numbers(1)] * (states - 2 * size)])
    if flow["name"] == "decay":
        rate = numbers(_residue(Fraction(flow["decay"])))
        fields.append([*(-rate * each for each in theta), numbers(1)])
    rows = [[int(entry.evaluate(point)) % PRIME for entry in field] for field in fields]

    def mixed() -> Field:
        factors = [numbers(rng.randrange(PRIME)) for _ in fields]
        parts = [[factor * field[k] for factor, field in zip(factors, fields, strict=True)] for k in range(states)]
        return [sum(each, numbers(0)) for each in parts]

    inner = [mixed() for _ in range(4)] if fields else []
    for _ in range(3):
        inner = [_bracket(mixed(), rng.choice(inner), state) for _ in inner]
        rows += [[int(entry.evaluate(point)) % PRIME for entry in field] for field in inner]
    return int(nmod_mat(len(rows), states, [entry for row in rows for entry in row], PRIME).rank()) if rows else 0


def states_of(size: int, flow: Proof) -> int:
    return 2 * size + (not flow["autonomous"]) if flow["name"] == "momentum" else size + (flow["name"] == "decay")


def moved(force: Field, flow: Proof, states: int, numbers: Any) -> Field:
    """What a force does to the state."""
    size, zero = len(force), numbers(0)
    if flow["name"] == "momentum":
        return [*[zero] * size, *force, *[zero] * (states - 2 * size)]
    metric = [[Fraction(j == k) for k in range(size)] for j in range(size)]
    for block in flow.get("blocks", ()):
        for (j, line), (k, at) in itertools.product(
            zip(block["weights"], block["matrix"], strict=True), enumerate(block["weights"])
        ):
            metric[j][at] = Fraction(line[k])
    rows = [[numbers(_residue(entry)) * part for entry, part in zip(row, force, strict=True) if entry]
            for row in metric]  # fmt: skip
    return [*(sum(row, zero) for row in rows), *[zero] * (states - size)]


def _bracket(x: Field, z: Field, theta: Field) -> Field:
    pairs = list(zip(theta, x, z, strict=True))
    return [sum((a.diff(t) * v - b.diff(t) * u for t, u, v in pairs), 0 * a) for a, b in zip(x, z, strict=True)]


# Forgeries


def test_the_gates_at_an_input_of_zero_are_those_of_no_open_set() -> None:
    """f is T x or T x/2 with T = a (2 c v + d w): one field, four laws. At x = 0 all gates seem to be slopes."""
    known = [["neuron", node] for node in (1, 2, 3)]
    more = {"inputs": [[1.0], [-1.0], [0.0]], "fixed": [None] * 5}
    assert reached(FORK, "full", None, random.Random(0)) == 1  # noqa: S311
    with pytest.raises(CertificateError, match="boundary of neuron 1"):
        fill_in(laws(FORK, known, **more))
    with pytest.raises(CertificateError, match="leave room for 4 laws, not 3"):
        fill_in(laws(FORK, known, **more | {"inputs": [[1.0], [-1.0]]}))


def test_on_data_a_coordinate_of_zero_stays_zero() -> None:
    known = [["neuron", node] for node in (1, 2, 3)] + [["weight", *edge] for edge in FORK["edges"]]
    with pytest.raises(REFUSED, match="nothing shows that edge"):
        fill_in(laws(FORK, known, "data", inputs=[[1.0], [0.0]], fixed=[None] * 5, groups=[0, 1]))
    found = fill_in(laws(FORK, known[3:], "data", inputs=[[0.0]], fixed=[None] * 5, groups=[0]))
    assert found.facts["laws"] == 5, "nothing moves"


def random_network(rng: random.Random) -> Proof:
    """Small, with equal, zero and opposite weights, slopes that are inverse to each other, skips and a bias."""
    inputs, neurons, outputs, biased = (
        rng.choice([1, 1, 2]),
        rng.randint(1, 4),
        rng.choice([1, 1, 2]),
        rng.random() < 0.4,
    )
    roles = [0] * inputs + [1] * neurons + [2] * outputs + [3] * biased
    last = inputs + neurons
    heads = range(inputs, last + outputs)
    edges = [[tail, head] for head in heads for tail in [*range(min(head, last)), *[len(roles) - 1] * biased]
             if rng.random() < 0.5]  # fmt: skip
    for node in range(inputs, last):
        edges += [] if any(head == node for _, head in edges) else [[rng.randrange(node), node]]
        edges += [] if any(tail == node for tail, _ in edges) else [[node, last + rng.randrange(outputs)]]
    if len(edges) > 9:
        return random_network(rng)
    slopes = [rng.choice([0.0, 0.0, 0.5, 1.0, 2.0, -1.0]) for _ in range(neurons)]
    weights = [rng.choice([1.0, -1.0, 2.0, 0.0, 0.5, -2.0, 3.0]) for _ in edges]
    return {"roles": roles, "edges": edges, "slopes": slopes, "weights": weights}


def every_name(network: Proof) -> Iterator[list[Any]]:
    """Every law that a certificate of a graph can name."""
    nodes, inner = range(len(network["roles"])), hidden(network)
    yield from ([kind, node] for kind in ("neuron", "detour") for node in inner)
    yield from ([kind, *two] for kind in ("pair", "rotation") for two in itertools.combinations(inner, 2))
    yield from (["combination", [["1", "neuron", one], ["1", "neuron", two]]] for one, two in
                itertools.combinations(inner, 2))  # fmt: skip
    yield from (["weight", *edge] for edge in network["edges"])
    yield from (["sum", node] for node in nodes)
    parts = [list(part) for count in range(len(inner) + 1) for part in itertools.combinations(inner, count)]
    yield from (["part", source, sink, part] for source in (None, *nodes) for sink in nodes for part in parts)


def random_flow(rng: random.Random, size: int) -> Proof:
    match rng.choice(["momentum", "decay", "metric", "metric"]):
        case "momentum":
            return {"name": "momentum", "friction": rng.choice([0.0, 0.5]), "autonomous": rng.random() < 0.5}
        case "decay":
            return {"name": "decay", "decay": rng.choice([0.25, 3.0])}
    order = rng.sample(range(size), size)
    blocks = []
    while order and rng.random() < 0.8:
        where, order = order[:2], order[2:]
        off = rng.choice([0.0, 1.0, -1.0])
        matrix = [[rng.choice([2.0, 3.0]) if j == k else off for k in where] for j in where]
        blocks.append({"weights": where, "matrix": matrix})
    return {"name": "metric", "blocks": blocks}


def accepted(proof: Proof, **change: Any) -> bool:
    """Whether a change passes all that is asked before laws are counted."""
    try:
        verify(json.dumps(signed(proof | change)))
    except CertificateError as error:
        return bool(re.search(r"laws are independent|span \d+ dimensions|leave room", str(error)))
    except (NotACertificate, Unsupported):
        return False
    return True


@pytest.mark.parametrize("level", ["near", "data"])
@pytest.mark.parametrize("seed", range(12))
def test_whoever_names_all_laws_gets_no_other_count(seed: int, level: str) -> None:
    """Inputs, gates and laws that pass one by one are put together: if that verifies, the count is true."""
    rng = random.Random(100 * seed + (level == "data"))  # noqa: S311
    count_all_names(rng, random_network(rng), level)


@pytest.mark.parametrize("level", ["near", "data"])
@pytest.mark.parametrize("seed", range(12))
def test_nor_under_other_flows(seed: int, level: str) -> None:
    rng = random.Random(200 * seed + (level == "data"))  # noqa: S311
    network = random_network(rng)
    if len(network["edges"]) <= 6:  # with momentum there are twice as many states
        count_all_names(rng, network, level, random_flow(rng, len(network["edges"])))


def count_all_names(rng: random.Random, network: Proof, level: str, flow: Proof | None = None) -> None:
    loss = rng.choice(["full", "full", "cross-entropy"])
    sizes = [0.0, 0.0, 1.0, -1.0, 2.0, -0.25, 100.0, -1e6, rng.gauss(0, 1)]
    rows = [[rng.choice(sizes) for _ in range(network["roles"].count(0))] for _ in range(rng.choice([1, 2, 6]))]
    states = states_of(len(network["edges"]), flow or {"name": "gradient"})
    of_flow = {} if flow is None else {"flow": flow, "states": states,
                                       "point": [rng.randrange(PRIME) for _ in range(states)]}  # fmt: skip
    more: dict[str, Any] = of_flow | {
        "loss": loss,
        "fixed": [None] * len(network["roles"]),
        "brackets": [1],
        "dimensions": [0],
    }
    grouped: dict[str, Any] = {"groups": [0]} if level == "data" else {}
    rows = [row for row in rows if accepted(laws(network, [], level, inputs=[row], **more, **grouped))]
    if not rows:
        return
    more["inputs"] = rows
    if level == "data":
        seen = [pattern(network, [Fraction(w) for w in network["weights"]], list(map(Fraction, row))) for row in rows]
        more["groups"] = [list(dict.fromkeys(seen)).index(each) for each in seen]
    proof = laws(network, [], level, **more)
    for place, node in enumerate(hidden(network)):
        for gate in (0.0, 1.0, network["slopes"][place]):
            fixed = [gate if each == node else old for each, old in enumerate(proof["fixed"])]
            if accepted(proof, fixed=fixed):
                proof = signed(proof | {"fixed": fixed})
    known = [name for name in every_name(network) if accepted(proof, known=[name])]
    known = known[: 4 * states + 100]  # as many as may be listed
    try:
        found = fill_in(signed(proof | {"known": known, "brackets": [15] * 4, "dimensions": [0] * 4}))
    except REFUSED:
        return
    data = rows if level == "data" else None
    assert states - found.facts["laws"] == reached(network, loss, data, rng, flow)


@pytest.mark.parametrize("widths", [(1, 1, 1), (2, 2, 1), (1, 3, 1), (2, 2, 2), (1, 2, 2)])
def test_the_theorem_about_linear_networks_agrees_with_brackets(widths: tuple[int, int, int]) -> None:
    first, second = range(widths[0], sum(widths[:2])), range(sum(widths[:2]), sum(widths))
    edges = [[tail, head] for head in first for tail in range(widths[0])]
    edges += [[tail, head] for head in second for tail in first]
    roles = [role for role, width in enumerate(widths) for _ in range(width)]
    network = {"roles": roles, "edges": edges, "slopes": [1.0] * widths[1], "weights": [1.0] * len(edges)}
    left = len(edges) - reached(network, "full", None, random.Random(0))  # noqa: S311
    architecture = signed({"kind": "laws", "network": network | {"weights": None}})["about"]
    proof = {"kind": "laws-by-theorem", "version": 1, "about": architecture, "widths": list(widths),
             "biases": [False, False], "slope": 1.0}  # fmt: skip
    assert verify(json.dumps(proof | {"laws": left})).facts["laws"] == left
    for other in (left - 1, left + 1):
        with pytest.raises(REFUSED, match="the theorem gives"):
            verify(json.dumps(proof | {"laws": other}))
    with pytest.raises(REFUSED, match="has no biases"):
        verify(json.dumps(proof | {"laws": left, "biases": [True, False]}))


def test_a_metric_is_named_by_the_weights_that_it_speaks_of() -> None:
    """It had one name whatever the order of edges: a network, a metric, and two counts."""
    edges, diagonal = [[0, 2], [1, 2], [0, 3], [1, 3], [2, 4], [2, 5], [3, 4], [3, 5]], [1.0, 1.0, 1.0, 1.0, 2, 2, 2, 2]
    graph = {"roles": [0, 0, 1, 1, 2, 2], "slopes": [1.0, 1.0], "weights": None}
    known = [["neuron", 2], ["neuron", 3], ["pair", 2, 3]]
    order = [4, 0, 5, 1, 2, 6, 3, 7]

    def said(edges: Any, diagonal: Any, known: Any) -> str:
        flow = {"name": "metric", "diagonal": diagonal}
        proof = laws(graph | {"edges": edges}, known, "phi", flow=flow, brackets=[15] * 3, dimensions=[0] * 3)
        return fill_in(proof).statement

    turned = [edges[place] for place in order]
    first = said(edges, diagonal, known)
    assert "exactly 3" in first
    assert said(turned, [diagonal[place] for place in order], known) == first
    name = re.compile(r"metric [0-9a-f]{12}")
    assert name.findall(said(turned, diagonal, known[:2])) != name.findall(first)


# Modules


def of_steps(steps: list[Any], known: Any, **more: Any) -> str:
    size = steps[0]["length"]
    body = {"kind": "laws-of-module", "version": 1, "about": ["program:" + _fingerprint(steps)], "steps": steps,
            "laws": size, "parameters": size, "theta": [3 + k for k in range(size)], "theta_bits": 2, "sample_bits": 1,
            "inputs": [], "weights": [], "words": [], "columns": [], "known": known, "classes": 0,
            "precision": 128}  # fmt: skip
    return json.dumps(body | more)


def leaves(size: int, width: int = 0) -> list[Any]:
    return [{"kind": "parameters", "length": size}, {"kind": "input", "length": width}]


def test_laws_that_take_hours_to_eliminate_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dense laws of n parameters take n³ steps in balls, which no estimate counts: the clock does."""
    monkeypatch.setattr(schema, "MOST_SECONDS", 0.3)
    monkeypatch.setattr(of_module, "identities", lambda *_: pytest.fail("it was not given up"))
    known = [[[[k], str(1 + (k * j * j + 3 * k + j) % 97)] for k in range(150)] for j in range(150)]
    with pytest.raises(Unsupported, match="processor time"):
        verify(of_steps([*leaves(150), {"kind": "constant", "values": [1.0]}], known))


@pytest.mark.parametrize(
    ("steps", "known", "more"),
    [
        # θ0 itself moves: y = θ0 x
        ([*leaves(1, 1), {"kind": "mul", "sources": [0, 1]}], [[[[0], "1"]]], {}),
        # y = exp(θ0) x, where a law that looks at exp alone would be e^θ0
        ([*leaves(1, 1), {"kind": "exp", "sources": [0]}, {"kind": "mul", "sources": [2, 1]}], [[[[0], "1"]]], {}),
        # of θ0 + θ1 a rotation is no law, the difference is: the other one is not
        (
            [*leaves(2), {"kind": "sum", "sources": [0], "sizes": [2]}],
            [[[[0], "1"], [[1], "-1"]], [[[0, 0], "1"], [[1, 1], "-1"]]],
            {},
        ),
        # one law named twice is one law
        ([*leaves(2), {"kind": "constant", "values": [1.0]}], [[[[0], "1"]], [[[0], "2"]]], {}),
        # under cross-entropy over classes that the outputs are not
        ([*leaves(1, 3), {"kind": "take", "sources": [0], "indices": [0, 0, 0]}], [[[[0], "1"]]], {"classes": 2}),
        # a choice between θ0 and 0 by a number that is not told
        (
            [*leaves(1, 1), {"kind": "constant", "values": [0.0]}, {"kind": "choose", "sources": [1, 0, 2]}],
            [[[[0], "1"]]],
            {},
        ),
        # tokens that fit no input
        ([*leaves(1, 3), {"kind": "take", "sources": [1], "indices": [0]}], [[[[0], "1"]]], {"tokens": 2}),
    ],
)
def test_functions_that_training_moves_are_no_laws_of_a_module(steps: Any, known: Any, more: Any) -> None:
    with pytest.raises(REFUSED):
        verify(of_steps(steps, known, **more))


def test_parameters_that_no_output_reads_are_laws() -> None:
    assert verify(of_steps([*leaves(1), {"kind": "constant", "values": [1.0]}], [[[[0], "1"]]])).facts["laws"] == 1


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"tokens": 2, "inputs": [[1, 1]]}, "no token ids"),
        ({"draws": [["gate", 1]], "inputs": [[2, 1]]}, "neither 0 nor 1"),
        ({"draws": [["unit", 1]], "inputs": [[2, 2]]}, r"outside \(0, 1\)"),
        ({"inputs": [[0, 0]]}, "not proved independent"),
        ({"words": [[0], [0]], "columns": [0, 0]}, "more than 1"),
    ],
)
def test_inputs_that_training_never_meets_show_no_direction(more: dict[str, Any], words: str) -> None:
    """y = θ x0 x1 has no law; an input outside of what is drawn, or one that moves nothing, does not show it."""
    take = [{"kind": "take", "sources": [1], "indices": [place]} for place in (0, 1)]
    steps = [*leaves(1, 2), *take, {"kind": "mul", "sources": [0, 2]}, {"kind": "mul", "sources": [4, 3]}]
    body = {"laws": 0, "inputs": [[2, 2]], "weights": [[1]], "words": [[0]], "columns": [0]}
    assert verify(of_steps(steps, [], **body)).facts["laws"] == 0
    if "draws" in more:
        body |= {"about": ["program:" + _fingerprint([steps, more["draws"]])]}
    with pytest.raises(REFUSED, match=words):
        verify(of_steps(steps, [], **body | more))
