"""Every definite sentence that a result can print, each made in one place from facts.

A *definite* sentence states something about a network that could be false: "no neuron can be removed", "at most 0.204".
Screen, JSON, pages and the explorer take it from here, so that a sentence has one wording and one condition. Facts come
in as plain arguments (numbers, names, counts); a finished sentence goes out. Nothing is computed here.

Each file holds the sentences of one subject. A sentence is registered with what it claims, and `tests/sentences` tries
to falsify every registered sentence on small networks whose truth is known by brute force: one without a falsifier
fails the tests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pkgutil import iter_modules
from types import MappingProxyType
from typing import ParamSpec, TypeVar

Facts = ParamSpec("Facts")
Words = TypeVar("Words", str, tuple[str, str])  # one text, or a title and a text


@dataclass(frozen=True)
class Sentence:
    """A sentence that can be printed: its name, what it claims in one line, and the function that words it."""

    name: str
    claims: str
    words: Callable[..., str | tuple[str, str]]


_registered: dict[str, Sentence] = {}


def sentence(name: str, *, claims: str) -> Callable[[Callable[Facts, Words]], Callable[Facts, Words]]:
    """Register the function that words a definite sentence, under `subject.name`."""

    def register(words: Callable[Facts, Words]) -> Callable[Facts, Words]:
        before = _registered.get(name)  # Ctrl-C in the middle of an import has the same file imported again
        if before is not None and before.words.__qualname__ != words.__qualname__:
            raise ValueError(f"two sentences are called {name}")
        _registered[name] = Sentence(name, claims, words)
        return words

    return register


def all_sentences() -> Mapping[str, Sentence]:
    """Every sentence of the package by name, all files loaded."""
    for module in iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")
    return MappingProxyType(dict(sorted(_registered.items())))
