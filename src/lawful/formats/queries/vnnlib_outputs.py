"""VNN-LIB files about two networks: whether they agree within a number, or one is monotone."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

from lawful.formats.io.reading import naming
from lawful.formats.queries.vnnlib import read_vnnlib
from lawful.formats.vnnlib_formula import Case, mentions, normal_form

Cases = list[Case]  # one of the cases, with all its conditions


class Equivalence(NamedTuple):
    """A specification that two networks agree within a number, and what the file literally describes."""

    within: Fraction
    literally: str


def equivalence(path: Path) -> Equivalence | None:
    """The tolerance of a specification that compares two networks output by output, if it is one.

    Files differ in polarity: some describe inputs at which the outputs differ by more, some those at which they do
    not, and some contradict themselves. All of them are about the question whether `|g − f|` is at most a number.
    """
    with naming(path):
        text = read_vnnlib(path)
        if len(text.networks) != 2:
            return None
        formula = normal_form(text, [form for form in text.asserted if mentions(form, text, "output")])
    cases = [[*formula.shared, *case] for case in formula.cases]
    conditions = [condition for case in cases for condition in case]
    if not conditions or any(sorted(condition.terms.values()) != [-1, 1] for condition in conditions):
        return None
    if any(len({variable.place for variable in condition.terms}) != 1 for condition in conditions):
        return None
    if any(text.tensors[variable.tensor].side != "output" for condition in conditions for variable in condition.terms):
        return None
    sizes = {abs(condition.bound) for condition in conditions}
    if len(sizes) != 1:
        return None
    within = next(iter(sizes))
    if all(condition.bound == within for condition in conditions):
        return Equivalence(within, "inputs at which all outputs differ by at most that")
    pairs = [{(frozenset(condition.terms.items()), condition.bound) for condition in case} for case in cases]
    opposite = any(
        (frozenset((name, -size) for name, size in terms), bound) in case for case in pairs for terms, bound in case
    )
    words = "nothing: its conditions contradict each other" if opposite else "inputs at which outputs differ by more"
    return Equivalence(within, words)
