"""Plans of sweeps: families of values, and what is refused."""

from __future__ import annotations

import itertools

import pytest

from lawful import LawfulError
from lawful.api.sweeps import plan_from
from lawful.conservation import count_laws
from lawful.network import Architecture


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"job": "claim"}, r"\[grid\]"),
        ({"job": "claim", "grid": {}, "x": 1}, "not 'x'"),
        ({"job": "claim", "grid": {"id": []}}, "no values"),
        ({"job": "claim", "grid": {"id": {"odd": 1}}}, "give a value"),
        ({"job": "claim", "grid": {"id": {"range": [0]}}}, "ValueError"),
        ({"job": "claim", "grid": {"id": {"random": 3}}}, "KeyError: 'low'"),
        ({"job": "claim", "grid": {"id": {"range": [0, 1], "low": 2}}}, "not 'low'"),
        ({"job": "claim", "grid": {"id": ["a"]}, "limits": {"seconds": -1}}, "positive"),
        ({"job": "claim", "grid": {"id": ["a"]}, "limits": {"memory_gb": float("inf")}}, "positive"),
        ({"job": "claim", "grid": {"id": ["a"]}, "limits": 5}, "positive"),
        ({"job": "claim", "grid": {"id": {"range": [0, 10**30]}}}, "whole number"),
        ({"job": "claim", "grid": {"id": {"range": [0, 10**15]}, "b": {"range": [0, 10**15]}}}, "more than"),
        ({"job": "claim", "grid": {"id": {"random": 10**12, "low": 0, "high": 1}}}, "whole number"),
        ({"job": "claim", "grid": {"id": {"random": 3, "low": 0, "high": float("inf")}}}, "no bounds"),
        ({"job": "claim", "grid": {"id": {"random": 3, "low": -1, "high": 1, "log": True}}}, "no bounds"),
        ({"job": "claim", "grid": {"a": {"random_architectures": 1, "depth": [2, 10**9], "width": [1, 2]}}}, "whole"),
        ({"job": "claim", "grid": {"a": {"all_architectures": ["relu"], "parameters": 60, "depth": 10**9}}}, "lower"),
        ({"job": "claim", "grid": {"a": {"all_architectures": ["relu"], "parameters": 900, "depth": 900}}}, "up to"),
    ],
)
def test_bad_plans_are_refused(table: dict[str, object], words: str) -> None:
    with pytest.raises(LawfulError, match=words):
        plan_from(table)


def test_families_of_values() -> None:
    grid = {
        "a": {"random_architectures": 30, "depth": [2, 4], "width": [2, 5], "activation": "linear", "seed": 3},
        "rate": {"random": 20, "low": 1e-4, "high": 0.1, "log": True},
    }
    plan = plan_from({"job": "claim", "grid": grid})
    assert plan.values == plan_from({"job": "claim", "grid": grid}).values
    widths = [Architecture.parse(str(text)).widths for text in plan.values["a"]]
    assert all(3 <= len(w) <= 5 and min(w) >= 2 and max(w) <= 5 for w in widths)
    assert all(1e-4 <= float(rate) <= 0.1 for rate in plan.values["rate"])
    everything = plan_from(
        {"job": "claim", "grid": {"a": {"all_architectures": ["relu"], "parameters": 12, "depth": 3}}}
    )
    found = {Architecture.parse(str(text)).widths for text in everything.values["a"]}
    brute = {
        w
        for count in (3, 4)
        for w in itertools.product(range(1, 13), repeat=count)
        if sum(a * b for a, b in itertools.pairwise(w)) <= 12
    }
    assert found == brute
    grid = {"a": {"all_architectures": ["linear", "relu bias"], "parameters": 12, "depth": 3, "up_to_reversal": True}}
    chosen = [Architecture.parse(str(text)) for text in plan_from({"job": "claim", "grid": grid}).values["a"]]
    plain = {net.widths for net in chosen if not net.bias}
    assert plain | {widths[::-1] for widths in plain} == brute
    assert all(widths == widths[::-1] or widths[::-1] not in plain for widths in plain)
    biased = {net.widths for net in chosen if net.bias}
    assert biased == {w for w in brute if sum((a + 1) * b for a, b in itertools.pairwise(w)) <= 12}
    with pytest.raises(LawfulError, match="perhaps followed by 'bias'"):
        plan_from({"job": "claim", "grid": {"a": {"all_architectures": ["relu x"], "parameters": 9, "depth": 2}}})


def test_a_network_and_its_transpose_have_the_same_laws() -> None:
    """What `up_to_reversal` relies on."""
    for widths in ("1-2-3-1-2", "4-1-2-2-1", "2-5-1", "3-2-4-2", "1-2-2-3"):
        for kind in ("linear", "relu"):
            one, other = (count_laws(f"{text} {kind}") for text in (widths, widths[::-1]))
            assert (one.dimensions, one.status) == (other.dimensions, other.status)


def test_calls_come_in_the_order_of_the_product_without_lists() -> None:
    """The last row of the grid varies fastest, as in `itertools.product`; a range stays a range."""
    grid = {"a": ["x", "y"], "b": {"range": [0, 10**12]}, "c": [True, False, True]}
    plan = plan_from({"job": "claim", "grid": grid})
    assert len(plan) == 6 * 10**12
    found = [tuple(task.inputs.values()) for task in itertools.islice(plan.tasks(), 100)]
    assert found == list(itertools.islice(((a, b, c) for a in "xy" for b in range(100) for c in grid["c"]), 100))
