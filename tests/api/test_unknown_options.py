"""No public function takes an option that it does not know."""

from __future__ import annotations

import inspect

import pytest
import torch
from torch import nn

import lawful
from lawful.api.inputs import UnknownOption

FUNCTIONS = [
    name for name in sorted(lawful._places()) if name != "verify" and not inspect.isclass(getattr(lawful, name))
]
WITH_OPTIONS = [
    name
    for name in FUNCTIONS
    if any(each.kind is each.VAR_KEYWORD for each in inspect.signature(getattr(lawful, name)).parameters.values())
]


def _arguments(name: str) -> list[str]:
    parameters = inspect.signature(getattr(lawful, name)).parameters.values()
    needed = [each for each in parameters if each.default is each.empty and each.kind is each.POSITIONAL_OR_KEYWORD]
    return ["3-4-2 relu"] * len(needed)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_unknown_options_are_refused_by_name(name: str) -> None:
    with pytest.raises(TypeError, match="no_such_option"):
        getattr(lawful, name)(*_arguments(name), no_such_option=1)


@pytest.mark.parametrize("name", WITH_OPTIONS)
def test_the_refusal_lists_what_is_taken(name: str) -> None:
    with pytest.raises(UnknownOption, match=f"^{name} has no option no_such_option: it takes .+"):
        getattr(lawful, name)(*_arguments(name), no_such_option=1)


def test_words_of_the_reader_are_no_options() -> None:
    """`input_shape` is what `lawful.open` calls an `input`: it was taken and led to nothing."""
    module = nn.Sequential(nn.Conv1d(1, 2, 2), nn.ReLU(), nn.Conv1d(2, 1, 2))
    with pytest.raises(UnknownOption, match=r"laws has no option input_shape: it takes .*input"):
        lawful.laws(module, input_shape=(1, 4))  # type: ignore[call-arg]


def test_prune_says_what_each_way_takes() -> None:
    with pytest.raises(UnknownOption, match=r"prune has no option tolerence: it takes .*tolerance"):
        lawful.prune("3-4-2 relu", tolerence=0.1)  # type: ignore[call-arg]
    with pytest.raises(UnknownOption, match=r"prune with a target has no option keep: it takes .*held_out"):
        lawful.prune(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)), target="params:0.5", keep=1)
    module = nn.Sequential(nn.Conv1d(1, 3, 2), nn.ReLU(), nn.Conv1d(3, 1, 2))
    with pytest.raises(lawful.LawfulError, match="no_such_option"):
        lawful.prune(module, input=torch.zeros(1, 1, 6), no_such_option=1)  # type: ignore[call-arg]
