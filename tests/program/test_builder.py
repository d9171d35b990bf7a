"""The builder's normal form: each rule keeps values, NaN and infinities; what is no identity is not used."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lawful.program import Builder, Node, Refused
from lawful.program.domains.evaluate import evaluate

SPECIAL = np.array([0.0, -0.0, 1.5, -2.0, math.inf, -math.inf, math.nan, 1e300])


def _value(b: Builder, node: Node, x: np.ndarray) -> np.ndarray:
    return evaluate(b.finish([node]), x)[0]


@pytest.mark.parametrize(
    ("build", "truth"),
    [
        (lambda b, x: b.add(x, 0.0), lambda x: x + 0.0),
        (lambda b, x: b.mul(x, 1.0), lambda x: x),
        (lambda b, x: b.mul(x, 0.0), lambda x: x * 0.0),
        (lambda b, x: b.mul(2.0, b.mul(x, 0.5)), lambda x: 2.0 * (x * 0.5)),
        (lambda b, x: b.mul(x, x), lambda x: x * x),
        (lambda b, x: b.sub(x, x), lambda x: x - x),
        (lambda b, x: b.maximum(x, 0.0), lambda x: np.maximum(x, 0.0)),
        (lambda b, x: b.minimum(0.0, x), lambda x: np.minimum(x, 0.0)),
        (lambda b, x: b.power(b.power(x, 0.5), 2.0), lambda x: np.sqrt(x) ** 2),
        (lambda b, x: b.power(b.power(x, 0.5), -1.0), lambda x: 1 / np.sqrt(x)),
        (lambda b, x: b.where(b.elementwise("eq", x, x), x, 0.0), lambda x: np.where(x == x, x, 0.0)),
        (lambda b, x: b.div(1.0, x), lambda x: 1.0 / x),
        (lambda b, x: b.neg(b.neg(x)), lambda x: x),
    ],
)
def test_rules_hold_for_special_values(build, truth) -> None:
    b = Builder()
    x = b.input("x", SPECIAL.shape)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(_value(b, build(b, x), SPECIAL), truth(SPECIAL))


def test_numbers_and_nodes_are_not_mistaken() -> None:
    b = Builder()
    x = b.input("x", (2,))
    assert b.add(x, 2) is not b.add(x, x)
    np.testing.assert_array_equal(_value(b, b.add(x, 2), np.array([1.0, 3.0])), [3.0, 5.0])


def test_products_of_numbers_are_joined_only_if_exact() -> None:
    b = Builder()
    x = b.input("x", (2,))
    assert b.mul(4.0, b.mul(0.5, x)) is b.mul(2.0, x)
    assert b.mul(0.1, b.mul(0.2, x)) is not b.mul(0.1 * 0.2, x)
    assert b.mul(1e200, b.mul(1e200, x)) is not b.mul(math.inf, x)


def test_operands_stand_in_order_after_broadcasting() -> None:
    """A vector and its row are other nodes: the order must be that of what stands in the program."""
    b = Builder()
    x = b.input("x", (2, 6, 8))
    for size in range(2, 12):
        y, row = b.input("y", (size,)), b.input("x", (3, size))
        assert b.add(row, y) is b.add(b.reshape(y, (1, size)), row)
        made = b.mul(row, y)
        assert b.remake(made, made.inputs) is made
    assert b.mul(x, 2.0).inputs[0].op == "constant"


def test_repetition_comes_after_the_operator() -> None:
    b = Builder()
    x, y = b.input("x", (3, 1)), b.input("y", (3, 4))
    wide = b.expand(x, (3, 4))
    assert b.function("exp", wide) is b.expand(b.function("exp", x), (3, 4))
    assert b.add(wide, y) is b.add(x, y)
    assert b.add(b.constant(np.full((3, 4), 2.0)), y) is b.add(2.0, y)


def test_constants_in_movements_come_from_one_source() -> None:
    b = Builder()
    x = b.input("x", (3,))
    zeros = b.constant(np.zeros(2))
    assert b.concatenate([x, zeros], 0) is b.pick(x, 0, np.array([0, 1, 2, -1, -1]))
    both = b.concatenate([b.constant([1.0, 0.0]), x, b.constant([0.0, 1.0])], 0)
    np.testing.assert_array_equal(_value(b, both, np.array([5.0, 6.0, 7.0])), [1, 0, 5, 6, 7, 0, 1])


def test_the_order_of_sources_is_that_of_use() -> None:
    b = Builder()
    x, y = b.input("x", (2,)), b.input("y", (2,))
    turned = b.slice(b.concatenate([y, x], 0), 0, slice(None, None, -1))
    assert [each["name"] for each in turned.inputs] == ["x", "y"]
    assert b.slice(b.concatenate([y, x], 0), 0, slice(2, None)) is x


def test_attributes_that_an_operator_does_not_have() -> None:
    b = Builder()
    with pytest.raises(TypeError, match="softmax has the attributes"):
        b.apply("softmax", (b.input("x", (2,)),), axis=0, beta=2)
    with pytest.raises(Refused, match="a reshape"):
        b.reshape(b.input("x", (2,)), (3,))


def test_permutations_belong_to_contractions() -> None:
    b = Builder()
    x, w = b.input("x", (2, 3)), b.input("w", (4, 3))
    plain = b.contract("ni,oi->no", x, w)
    assert b.contract("in,oi->no", b.permute(x, (1, 0)), w) is plain
    assert b.permute(b.contract("oi,ni->on", w, x), (1, 0)) is plain
    assert b.matmul(x, b.permute(w, (1, 0))) is plain


def test_positions_outside_of_a_value_are_refused() -> None:
    b = Builder()
    x = b.input("x", (4, 3))
    with pytest.raises(Refused, match="from outside"):
        b.move(lambda t: t[np.array([7, 0])], x)


def test_a_mask_with_a_number_is_the_movement_that_it_was() -> None:
    """Masks of attention have one index map for all layers; it is the one that a movement by labels has."""
    rng = np.random.default_rng(0)
    for shape in ((3, 4), (2, 1, 4), (4,), (2, 3, 4)):
        mask = rng.random(shape) < 0.5
        mask.flat[:2] = True, False
        for known in (mask, ~mask):
            b = Builder()
            x = b.input("x", (2, 3, 4))
            whole, zeros = np.broadcast_to(known, x.shape), b.expand(b.constant(-1.0), x.shape)
            moved = b.move(lambda s, t, whole=whole: np.where(whole, s, t), x, zeros)
            assert b.where(b.constant(known), x, -1.0) is moved
            assert b.where(b.constant(~known), -1.0, x) is moved


def test_a_term_that_is_added_twice_is_its_double() -> None:
    b = Builder()
    x, h = b.input("x", (2, 3)), b.input("h", (3,))
    half = b.mul(h, 0.5)
    assert b.add(b.add(x, half), half) is b.add(x, h)
    assert b.add(half, b.add(half, x)) is b.add(x, h)
    assert b.add(b.add(x, h), x).op == "add"
