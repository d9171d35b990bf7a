"""Laws of recurrent layers: their states count samples on the second axis, and their inputs are sequences."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import lawful
from lawful.conservation.programs.module_function import probe


@pytest.mark.parametrize(("kind", "laws"), [(nn.RNN, 2), (nn.GRU, 4), (nn.LSTM, 8)])
@pytest.mark.parametrize("batch_first", [False, True])
def test_the_two_biases_of_a_gate_differ_by_a_constant(
    kind: Callable[..., nn.RNNBase], laws: int, batch_first: bool
) -> None:
    """They are added wherever they are read; but for the candidate of a GRU, whose one bias is multiplied first."""
    torch.manual_seed(0)
    found = lawful.laws(kind(2, 2, batch_first=batch_first), input=(3, 2))
    assert (found.laws, found.status) == (laws, "proved")


def test_samples_of_a_recurrent_layer_do_not_mix() -> None:
    found = probe(nn.LSTM(2, 3, num_layers=2).double(), (4, 2))
    assert found.output_shape == (4 * 3 + 2 * 3 + 2 * 3,)
    assert not found.mixes


def test_a_stated_size_of_token_ids_is_used() -> None:
    """As an ONNX file states it: `"4:int"`."""
    module = nn.Sequential(nn.Embedding(5, 2), nn.Flatten(), nn.Linear(8, 1))
    module.input_sizes = ("4:int",)  # type: ignore[assignment]
    found = probe(module.double(), None)
    assert (found.input_shape, found.vocabulary) == ((4,), 5)
