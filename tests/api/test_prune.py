"""`lawful.prune` takes a box and data as every other function does, and says which options it knows."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lawful
from lawful.pruning.job.job import prune_to_target
from lawful.pruning.neurons.prune import prune as prune_neurons

# On [0, 1] the second neuron is never on.
NETWORK = lawful.Mlp([[[1.0], [-1.0]], [[1.0, 1.0]]], [[0.0, -0.5], None])


def test_a_box_in_words() -> None:
    assert lawful.prune(NETWORK).neurons_after == 2
    assert lawful.prune(NETWORK, box="0,1").neurons_after == lawful.prune(NETWORK, box=([0.0], [1.0])).neurons_after < 2


@pytest.mark.parametrize("form", ["file", "pair", "rows"])
def test_data_in_every_form(tmp_path: Path, form: str) -> None:
    x, file = np.linspace(0, 1, 9)[:, None], tmp_path / "data.npz"
    np.savez(file, x=x, y=x[:, 0])
    data = {"file": file, "pair": (x, x[:, 0]), "rows": x}[form]
    assert lawful.prune(NETWORK, data=data, tolerance=1e-9).neurons_after < 2


def test_every_option_has_a_type() -> None:
    """The functions behind `lawful.prune` have no parameter that a type checker would refuse there."""
    own = {"network", "subject", "samples", "target", "seed"}
    for function in (prune_neurons, prune_to_target):
        assert set(inspect.signature(function).parameters) - own <= set(inspect.signature(lawful.prune).parameters)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"criterion": "taylor"}, "go with --target"),
        ({"target": "params:0.5", "fold": True}, "prune with a target has no option fold"),
        ({"fold": True}, "channel by channel"),
        ({"keep": "many"}, "--keep takes"),
        ({"tolerance": "much"}, "--tolerance takes"),
    ],
)
def test_combinations_without_sense_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(lawful.LawfulError, match=words):
        lawful.prune(NETWORK, **options)


def test_a_pruning_has_its_certificate() -> None:
    assert lawful.verify(lawful.prune(NETWORK).certificate()).kind == "pruning"
    bounded: dict[str, Any] = {"tolerance": 0.1, "box": "0,1"}
    with pytest.raises(lawful.Unsupported, match="certified=True"):
        lawful.prune(NETWORK, **bounded).certificate()
    assert lawful.verify(lawful.prune(NETWORK, **bounded, certified=True).certificate()).kind in ("pruning", "distance")
