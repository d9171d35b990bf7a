"""Index maps: composition is indexing twice, affine maps are found, and no map has two forms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lawful.program.index_map import IndexMap, row_major


@st.composite
def movements(draw: st.DrawFn) -> list:
    """A shape and some movements that NumPy carries out."""
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    steps, now = [], np.empty(shape)
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["permute", "flip", "slice", "expand", "reshape", "pick"]))
        axis = draw(st.integers(0, now.ndim - 1))
        if kind == "permute":
            order = tuple(draw(st.permutations(range(now.ndim))))
            step = lambda a, order=order: a.transpose(order)  # noqa: E731
        elif kind == "flip":
            step = lambda a, axis=axis: np.flip(a, axis)  # noqa: E731
        elif kind == "slice":
            by = draw(st.sampled_from([1, 2, -1]))
            step = lambda a, axis=axis, by=by: a[(slice(None),) * axis + (slice(None, None, by),)]  # noqa: E731
        elif kind == "expand":
            step = lambda a: np.broadcast_to(a, (2, *a.shape))  # noqa: E731
        elif kind == "reshape":
            step = lambda a: a.reshape(-1)  # noqa: E731
        else:
            at = draw(st.lists(st.integers(0, now.shape[axis] - 1), min_size=1, max_size=4))
            step = lambda a, axis=axis, at=at: np.take(a, at, axis)  # noqa: E731
        steps.append(step)
        now = step(now)
    return [shape, steps]


@given(movements())
def test_composition_is_one_movement_after_the_other(case: list) -> None:
    shape, steps = case
    labels = np.arange(np.prod(shape)).reshape(shape)
    whole = IndexMap.contiguous(shape)
    for step in steps:
        own = np.arange(whole.size).reshape(whole.shape)
        whole = IndexMap.of(step(own)).after(whole)
        labels = step(labels)
        assert np.array_equal(whole.positions, labels)
        again = IndexMap.of(labels)
        assert (again.strides, again.offset, again.key) == (whole.strides, whole.offset, whole.key)


def test_a_prefix_is_no_reshape() -> None:
    """It keeps order, but has not all entries: whoever asks compares sizes."""
    assert IndexMap.of(np.arange(3)).keeps_order
    assert IndexMap.of(np.arange(3)).size == 3


@pytest.mark.parametrize("order", [(1, 0, 2), (2, 1, 0), (0, 1, 2), (2, 0, 1)])
def test_permutations_are_recognised(order: tuple[int, ...]) -> None:
    shape = (2, 3, 3)
    index = IndexMap.of(np.arange(18).reshape(shape).transpose(order))
    assert index.permutation_of(shape) == order
    assert index.permutation_of((3, 3, 3)) is None


def test_large_maps_take_no_memory() -> None:
    turned = IndexMap.affine((10**6, 10**6), (1, 10**6))
    back = turned.after(turned)
    assert back.keeps_order
    assert row_major((10**6, 10**6)) == back.strides


def test_scalars_and_empty_maps() -> None:
    assert IndexMap.of(np.array(3)).positions.shape == ()
    assert IndexMap.of(np.zeros((0, 3), dtype=int)).after(IndexMap.contiguous((2,))).shape == (0, 3)


def test_the_key_of_a_table_is_a_whole_hash() -> None:
    """Nodes of equal keys are one node: half of 64 bits of a hash can be searched."""
    assert len(IndexMap.of(np.array([0, 2, 1, 3, 3])).key) == 64
