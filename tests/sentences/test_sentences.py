"""Every registered sentence is attacked: said only where brute force says it is true.

A file `tests/sentences/falsify_SUBJECT.py` has a dict FALSIFIERS: sentence name -> function that yields trials.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from lawful.sentences import all_sentences

SENTENCES = all_sentences()


def load_falsifiers() -> dict[str, Callable[[], Iterable]]:
    falsifiers: dict[str, Callable[[], Iterable]] = {}
    for path in sorted(Path(__file__).parent.glob("falsify_*.py")):
        spec = spec_from_file_location(path.stem, path)
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        assert not falsifiers.keys() & module.FALSIFIERS.keys(), f"{path.name} attacks a sentence a second time"
        falsifiers |= module.FALSIFIERS
    return falsifiers


FALSIFIERS = load_falsifiers()


def test_every_sentence_has_a_falsifier_and_every_falsifier_a_sentence():
    assert set(FALSIFIERS) == set(SENTENCES)


@pytest.mark.parametrize("name", sorted(FALSIFIERS))
def test_no_network_falsifies(name):
    trials = list(FALSIFIERS[name]())
    false = [trial for trial in trials if trial.said and not trial.true]
    assert not false, f"{name} ({SENTENCES[name].claims}) was said where it is false: {false[0].about}"
    assert any(trial.said for trial in trials), f"{name} was never said: its falsifier tests nothing"
    assert any(not trial.true for trial in trials), f"{name} was true in all trials: its oracle cannot fail"
