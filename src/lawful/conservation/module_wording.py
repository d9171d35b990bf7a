"""Laws of a module in words: its parameters by their names and indices."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np

from lawful.conservation.known.law import Law
from lawful.conservation.wording import polynomial_words

LONGEST = 12


class ModuleWording:
    """How the parameters of a module are called, laid end to end.

    >>> from fractions import Fraction
    >>> wording = ModuleWording([("0.weight", (2, 2)), ("2.weight", (1, 2))])
    >>> law = Law("neuron", (), {(0, 0): Fraction(1), (1, 1): Fraction(1), (4, 4): Fraction(-1)})
    >>> wording.law(law)
    '0.weight[0,0]² + 0.weight[0,1]² − 2.weight[0,0]²'
    >>> wording.expression(law)
    'p0_weight_0_0**2 + p0_weight_0_1**2 - p2_weight_0_0**2'
    """

    def __init__(self, places: Sequence[tuple[str, Sequence[int]]]) -> None:
        self.places = [(name, tuple(shape)) for name, shape in places]
        self.starts = np.cumsum([0, *(int(np.prod(shape, dtype=int)) for _, shape in self.places)])

    def weight(self, edge: int) -> str:
        """The name of a parameter's entry."""
        which = int(np.searchsorted(self.starts, edge, side="right")) - 1
        name, shape = self.places[which]
        place = np.unravel_index(edge - int(self.starts[which]), shape) if shape else ()
        return f"{name}[{','.join(str(int(index)) for index in place)}]" if shape else name

    def law(self, law: Law) -> str:
        """The polynomial, cut after some terms."""
        return polynomial_words(law, self.weight, LONGEST)

    def expression(self, law: Law) -> str:
        """The whole polynomial in SymPy's syntax."""
        return self._joined(law, lambda edge: "p" + re.sub(r"\W+", "_", self.weight(edge)).strip("_"), "*", "**{}")

    def latex(self, law: Law) -> str:
        """The whole polynomial in LaTeX."""
        return self._joined(law, lambda edge: _latex(self.weight(edge)), r"\,", "^{{{}}}")

    def _joined(self, law: Law, name: object, times: str, power: str) -> str:
        parts = []
        for edges, factor in law.terms.items():
            names = [
                name(edge) + (power.format(edges.count(edge)) if edges.count(edge) > 1 else "")  # type: ignore[operator]
                for edge in dict.fromkeys(edges)
            ]
            size = [] if abs(factor) == 1 else [str(abs(factor))]
            parts.append(f"{'-' if factor < 0 else '+'} {times.join(size + names)}")
        return " ".join(parts).removeprefix("+ ")

    def grouped(self, laws: Iterable[Law]) -> list[str]:
        """A line for each law; what no sample moves is counted, parameter by parameter."""
        counts: dict[tuple[str, str], int] = {}
        lines = []
        for law in laws:
            if law.kind == "still":
                names = dict.fromkeys(self._owner(edges[0]) for edges in law.terms)
                kind = (
                    "entries of {} that no sample moves" if len(law.terms) == 1 else "sums over {} that no sample moves"
                )
                counts[kind, ", ".join(names)] = counts.get((kind, ", ".join(names)), 0) + 1
            else:
                lines.append(self.law(law))
        return [f"{kind.format(names)}: {count}" for (kind, names), count in counts.items()] + lines

    def _owner(self, edge: int) -> str:
        return self.places[int(np.searchsorted(self.starts, edge, side="right")) - 1][0]

    def summary(self, laws: Iterable[Law]) -> list[str]:
        """A line for each law."""
        return [self.law(law) for law in laws]


def _latex(name: str) -> str:
    base, _, index = name.partition("[")
    plain = base.replace("_", r"\_")
    return rf"\mathtt{{{plain}}}" + (f"_{{{index.removesuffix(']')}}}" if index else "")
