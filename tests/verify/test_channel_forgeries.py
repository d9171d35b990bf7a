"""Small prunings of channels, written by hand, whose smaller network computes something else."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import pytest
from forging import signed

from lawful.errors import CertificateError, Unsupported
from lawful.verify import verify

HALVES = {"a": [[1], [-1]], "c": [[1, 1]]}, {"a": [[1]], "c": [[2]]}
MERGED: dict[str, Any] = {"gone": [[1, 1]], "moves": [["column", 3, 1, [[0, "1"]]]]}


def tensor(values: Any) -> dict[str, Any]:
    array = np.array(values, dtype="<f4")
    return {"dtype": "float32", "shape": list(array.shape), "data": base64.b64encode(array.tobytes()).decode()}


def step(kind: str, sources: list[int], channels: int, function: str = "", **more: Any) -> dict[str, Any]:
    names = {name: more.pop(name, None) for name in ("weight", "bias")} if kind == "layer" else more.pop("tensors", {})
    return {"kind": kind, "sources": sources, "channels": channels, "tensors": names, "padded": False, "width": 1,
            "function": function, "arguments": more.pop("arguments", [])} | more  # fmt: skip


def proof(program: list[Any], before: dict[str, Any], after: dict[str, Any], **more: Any) -> str:
    empty: dict[str, Any] = {key: [] for key in ("lost", "added", "folded", "dropped", "gone", "moves")}
    body = {"kind": "channel-pruning", "version": 3, "about": [], "program": program, "others": {},
            "results": [len(program) - 1], "before": {name: tensor(held) for name, held in before.items()},
            "after": {name: tensor(held) for name, held in after.items()}}  # fmt: skip
    return json.dumps(signed(body | empty | more))


def through(middle: dict[str, Any], bias: str | None = None) -> list[Any]:
    """Two channels, something, one channel."""
    return [step("input", [], 1), step("layer", [0], 2, weight="a", bias=bias), middle,
            step("layer", [2], 1, weight="c", bias=None if bias is None else "d")]  # fmt: skip


def test_slopes_are_not_even_whatever_they_are_called() -> None:
    """PReLU(x) + PReLU(-x) is no 2 PReLU(x)."""
    before, after = HALVES
    slopes = {"s": [0.25, 0.25]}, {"s": [0.25]}
    middle = step("slopes", [1], 2, "abs", tensors={"weight": "s"})
    with pytest.raises(CertificateError, match="another function"):
        verify(proof(through(middle), before | slopes[0], after | slopes[1], **MERGED))
    verify(proof(through(middle), before | slopes[0] | {"a": [[1], [1]]}, after | slopes[1], **MERGED))


def test_a_pool_is_not_even_whatever_it_is_called() -> None:
    with pytest.raises(CertificateError, match="another function"):
        verify(proof(through(step("pool", [1], 2, "abs")), *HALVES, **MERGED))
    verify(proof(through(step("same", [1], 2, "abs")), *HALVES, **MERGED))


def test_a_normalisation_that_is_not_followed_reads_both_operands() -> None:
    program = [step("input", [], 1), step("layer", [0], 1, weight="a"),
               step("layer", [0], 1, weight="c", bias="d"), step("other", [1, 2], 1, "instance_norm")]  # fmt: skip
    with pytest.raises(CertificateError, match="reads something else"):
        verify(proof(program, {"a": [[1]], "c": [[1]], "d": [5]}, {"a": [[1]], "c": [[1]]}, dropped=[2]))


def test_a_bias_that_is_dropped_takes_no_constant_over() -> None:
    """relu(x) + 7 became relu(x)."""
    before = {"a": [[1], [0]], "b": [0, 7], "c": [[1, 1]], "d": [0]}
    forged = {"gone": [[1, 1]], "moves": [["constant", 3, 1]], "dropped": [3]}
    with pytest.raises(CertificateError, match="another function"):
        verify(proof(through(step("same", [1], 2, "relu"), "b"), before, {"a": [[1]], "b": [0], "c": [[1]]}, **forged))


def test_factors_that_cancel_make_no_room_for_a_weight() -> None:
    """A channel that is 0 is 2^60 - 2^60 times the other one: the weight 1 was stored as 100."""
    before = {"a": [[1], [0]], "c": [[1, 1]]}
    moves = [["column", 3, 1, [[0, str(2**60)], [0, str(-(2**60))]]]]
    program = through(step("same", [1], 2, "relu"))
    with pytest.raises(CertificateError, match="is not what follows"):
        verify(proof(program, before, {"a": [[1]], "c": [[100]]}, gone=[[1, 1]], moves=moves))
    verify(proof(program, before, {"a": [[1]], "c": [[1]]}, gone=[[1, 1]], moves=moves))


@pytest.mark.parametrize(("function", "arguments"), [("neg", [1.0]), ("mul number", []), ("div number", [2.0, 1.0])])
def test_functions_of_another_number_of_arguments(function: str, arguments: list[float]) -> None:
    """-x was taken for x, and x times nothing for -x: sums with x then vanished."""
    with pytest.raises(CertificateError, match="number of arguments"):
        verify(proof(through(step("same", [1], 2, function, arguments=arguments)), *HALVES, **MERGED))


def test_shrinking_by_a_negative_width_is_not_zero_at_zero() -> None:
    before, after = {"a": [[1], [0]], "c": [[1, 1]]}, {"a": [[1]], "c": [[1]]}
    for width in (-1.0, 1.0):
        program = through(step("bend", [1], 2, "softshrink", arguments=[width]))
        if width < 0:
            with pytest.raises(CertificateError, match="another function"):
                verify(proof(program, before, after, gone=[[1, 1]]))
        else:
            verify(proof(program, before, after, gone=[[1, 1]]))


def test_a_chain_of_long_factors_is_given_up() -> None:
    """Rows that leave lend to each other, a factor of 4,000 digits at a time: hours of sums after some hundreds."""
    count = 40
    before = {"a": np.ones((count, 1)), "c": np.eye(1, count)}
    moves = [["row", 1, row, [[row + 1, f"1/{10**3999 + 2 * row + 1}"]]] for row in range(1, count - 1)]
    program = [step("input", [], 1), step("layer", [0], count, weight="a"), step("layer", [1], 1, weight="c")]
    gone = [[1, row] for row in range(1, count)]
    with pytest.raises(Unsupported, match="denominator"):
        verify(proof(program, before, {"a": [[1]], "c": [[1]]}, gone=gone, moves=moves))
    assert verify(proof(program, before, {"a": [[1]], "c": [[1]]}, gone=gone)).statement.startswith("39 of 40 ")


def test_a_chain_of_factors_counts_all_of_them_against_the_chance() -> None:
    """Weights are multiplied by every factor of a chain: products of primes may vanish modulo one that is drawn."""
    factor = f"{3**1000}/{2**1585}"

    def chance(count: int) -> int:
        before = {"a": np.ones((count, 1)), "c": np.eye(1, count)}
        moves = [["row", 1, row, [[row + 1, factor]]] for row in range(1, count - 1)]
        program = [step("input", [], 1), step("layer", [0], count, weight="a"), step("layer", [1], 1, weight="c")]
        gone = [[1, row] for row in range(1, count)]
        statement = verify(proof(program, before, {"a": [[1]], "c": [[1]]}, gone=gone, moves=moves)).statement
        return int(statement.rpartition("2^-")[2].rstrip(")"))

    assert chance(4) > chance(20) + 5


@pytest.mark.parametrize("middle", [("mul", 2, "", []), ("bend", 1, "power", [9.0])], ids=["squares", "powers"])
def test_constants_that_are_multiplied_again_and_again_are_given_up(middle: tuple[str, int, str, list[float]]) -> None:
    """A number of 50 bits squared 30 times has 2^35: an hour and gigabytes in 3 kB."""
    kind, operands, function, arguments = middle
    program = [step("input", [], 1), step("layer", [0], 1, weight="a", bias="b")]
    program += [step(kind, [1 + k] * operands, 1, function, arguments=arguments) for k in range(30)]
    program += [step("layer", [0], 1, weight="c"), step("add", [31, 32], 1)]
    tensors = {"a": [[0]], "b": [1.1], "c": [[1]]}
    with pytest.raises(Unsupported, match="more than 300,000 bits"):
        verify(proof(program, tensors, tensors))


def test_tensors_that_the_program_leaves_out_are_named() -> None:
    before, after = HALVES
    body = json.loads(proof(through(step("same", [1], 2, "abs")), before, after, **MERGED))
    line = f"float32 [3] {'0' * 64}"
    forged = json.dumps(signed(body | {"others": {"head.weight": line}, "lost": ["head.weight"]}))
    assert "It does not read 1 tensor (head.weight), 1 of which are gone" in verify(forged).statement


def test_ties_that_form_a_long_chain_are_followed_at_once() -> None:
    """Each channel is added to the next one: all leave with the first."""
    count = 20_000
    program = [step("input", [], 1), step("layer", [0], count, weight="a"),
               *(step("part", [1], count - 1, arguments=[start]) for start in (0, 1)), step("add", [2, 3], count - 1),
               step("layer", [4], 1, weight="c")]  # fmt: skip
    tensors = {"a": np.ones((count, 1)), "c": np.ones((1, count - 1))}
    with pytest.raises(CertificateError, match="another function"):
        verify(proof(program, tensors, tensors, gone=[[1, 0]]))


def test_a_bias_is_gained_in_the_type_of_its_layer() -> None:
    """In bfloat16, 3.03 was 3 but for the rounding of its type."""
    before = {"a": [[1], [0]], "b": [0, 3], "c": [[1, 1]]}
    program = [*through(step("same", [1], 2, "relu"), "b")[:3], step("layer", [2], 1, weight="c")]
    body = json.loads(proof(program, before, {"a": [[1]], "b": [0], "c": [[1]], "d": [3]}, gone=[[1, 1]],
                            moves=[["constant", 3, 1]], added=[[3, "d"]]))  # fmt: skip
    verify(json.dumps(body))
    half = np.array([3.03], dtype="<f4").tobytes()[2:]
    body["after"]["d"] = {"dtype": "bfloat16", "shape": [1], "data": base64.b64encode(half).decode()}
    with pytest.raises(CertificateError, match="another type"):
        verify(json.dumps(signed(body)))
