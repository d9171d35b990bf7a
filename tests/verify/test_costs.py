"""Small files that ask for hours or gigabytes are refused before that is spent."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

import pytest
from forging import Proof, signed

from lawful import Unsupported, verify

RNG = random.Random(0)  # noqa: S311


def long_fraction(digits: int = 3900) -> str:
    """A fraction whose denominator shares hardly a factor with any other."""
    return f"{RNG.randrange(1, 99)}/{RNG.randrange(10 ** (digits - 1), 10**digits) | 1}"


def waypoints() -> Proof:
    """The balance of one neuron adds up fractions of 3,900 digits: hours with 600 of them in 2 MB."""
    count = 40
    graph = {
        "roles": [0] * count + [1, 2], "edges": [*([k, count] for k in range(count)), [count, count + 1]],
        "slopes": [0.0], "weights": [1.0] * (count + 1),
    }  # fmt: skip
    way = [[edge, long_fraction()] for edge in range(count)]
    signs = [[1] * (count + 1)] * 2
    return {"kind": "path", "version": 2, "start": graph, "stop": graph, "joined": True, "signs": signs,
            "waypoints": [way], "drift": "1000000", "locked": None}  # fmt: skip


def zero_sums() -> Proof:
    """2^20 sums of 160,000 digits each: 70 GB in 160 kB."""
    half = 20
    first, second = range(1, half + 1), range(half + 1, 2 * half + 1)
    edges = [[0, i] for i in first] + [[i, j] for i in first for j in second] + [[j, 2 * half + 1] for j in second]
    network = {"roles": [0, *[1] * (2 * half), 2], "edges": edges, "slopes": [0.0] * (2 * half), "weights": None}
    balance = [f"-{long_fraction()}" for _ in first] + [long_fraction() for _ in second]
    return {"kind": "singular", "version": 1, "network": network, "balance": balance, "exist": False, "cut_off": None,
            "squares": None, "refutations": []}  # fmt: skip


def squares() -> Proof:
    """A witness whose squares add up to millions of digits."""
    count = 40
    graph = {
        "roles": [0] * count + [1, 2], "edges": [*([k, count] for k in range(count)), [count, count + 1]],
        "slopes": [0.0], "weights": [1.0] * (count + 1),
    }  # fmt: skip
    return {"kind": "singular", "version": 1, "network": graph, "balance": None, "exist": True, "cut_off": [count],
            "squares": [[edge, long_fraction()] for edge in range(count)], "refutations": None}  # fmt: skip


def shares() -> Proof:
    """Coefficients of a convex combination."""
    points, labels = [[float(k)] for k in range(80)], [0] * 40 + [1] * 40
    common = {key: [long_fraction() for _ in range(40)] for key in ("inside", "outside")}
    return {"kind": "truncation-separation", "version": 1, "about": [], "points": points, "labels": labels,
            "answers": [{"answer": "common point"} | common, {"answer": "undecided"}]}  # fmt: skip


def counterexample() -> Proof:
    """An input that 50 neurons add up."""
    network = {"weights": [[[1.0] * 40] * 50, [[1.0] * 50]], "biases": [None, None], "slopes": [0.0]}
    return {"kind": "same", "version": 2, "networks": [network, network | {"biases": [None, [1.0]]}], "box": None,
            "verdict": "different", "within": None, "witness": None,
            "counterexample": {"input": [long_fraction() for _ in range(40)]}}  # fmt: skip


def deep_chain() -> Proof:
    """Exact ranges through 5,000 neurons with weights near 1e-290: 2.3 GB in 340 kB."""
    count = 5000
    graph = {"roles": [0, *[1] * count, 2], "edges": [[k, k + 1] for k in range(count + 1)], "slopes": [0.0] * count,
             "weights": [1.1e-290] * (count + 1)}  # fmt: skip
    stage = {"after": graph, "labels": list(range(count + 2)), "evidence": [], "carriers": []}
    return {"kind": "pruning", "version": 2, "original": graph, "box": [[-1.0], [1.0]], "neurons_before": count,
            "neurons_after": count, "max_output_change_bound": 0.0, "rounding_bound": 0.0,
            "stages": [stage]}  # fmt: skip


def waiting_sides() -> Proof:
    """8,000 sides that wait, each with its half-spaces."""
    count = 8000
    network = {"weights": [[[1.0]] * count, [[1.0] * count]], "biases": [[float(k) for k in range(count)], None],
               "slopes": [0.0]}  # fmt: skip
    return {"kind": "regions", "version": 1, "network": network, "box": None, "regions": 1,
            "decisions": ["both"] * count, "points": [["0"]]}  # fmt: skip


@pytest.mark.parametrize(
    "bomb",
    [waypoints, zero_sums, squares, shares, counterexample, deep_chain, waiting_sides],
    ids=lambda made: made.__name__,
)
def test_a_bomb_is_refused_as_too_large(bomb: Callable[[], Proof]) -> None:
    with pytest.raises(Unsupported, match=r"steps|common denominator"):
        verify(json.dumps(signed(bomb())))
