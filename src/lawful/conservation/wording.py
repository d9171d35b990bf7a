"""Laws in words: P1's matrices for layered networks (U_l has a column per neuron), names for others."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from itertools import pairwise

import numpy as np

from lawful.conservation.known.law import Law, Monomial
from lawful.network import Dag, Role

SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
_LATEX = (
    (r"‖([^‖]*)‖", r"\\lVert \1 \\rVert"),
    (r"⟨([^⟩]*)⟩", r"\\langle \1 \\rangle"),
    (r"([⁰¹²³⁴⁵⁶⁷⁸⁹]+)", lambda found: "^{" + "".join(str("⁰¹²³⁴⁵⁶⁷⁸⁹".index(c)) for c in found[1]) + "}"),
    (r"\b([Ub])(\d+)", r"\1_{\2}"),
    ("−", "-"),
    ("·", r" \\cdot "),
    ("→", r" \\to "),
    ("Σ_k", r"\\sum_k"),
    ("γ", r"\\gamma "),
    ("θ", r"\\theta"),
    ("…", r"\\dots"),
)
LONGEST, LONGEST_OF_MODULE = 6, 12  # terms of an unrecognised polynomial that are written out


def polynomial_words(law: Law, weight: Callable[[int], str], longest: int) -> str:
    """The polynomial with the names that `weight` gives, cut after some terms."""
    parts = [_term(edges, factor, weight) for edges, factor in list(law.terms.items())[:longest]]
    text = " ".join(parts).removeprefix("+ ")
    more = len(law.terms) - longest
    return text if more <= 0 else f"{text} + … ({more} more terms)"


def _term(edges: Monomial, factor: Fraction, weight: Callable[[int], str]) -> str:
    size = "" if abs(factor) == 1 else f"{abs(factor)}·"
    powers = [(edge, edges.count(edge)) for edge in dict.fromkeys(edges)]
    names = "·".join(weight(edge) + (str(power).translate(SUPERSCRIPTS) if power > 1 else "") for edge, power in powers)
    return f"{'+' if factor > 0 else '−'} {size}{names}"


def write_polynomial(law: Law, name: Callable[[int], str], times: str, power: str) -> str:
    """The whole polynomial in a language that has these signs for products and powers."""
    parts = []
    for edges, factor in law.terms.items():
        powers = [(name(edge), edges.count(edge)) for edge in dict.fromkeys(edges)]
        names = [symbol + (power.format(count) if count > 1 else "") for symbol, count in powers]
        size = [] if abs(factor) == 1 else [str(abs(factor))]
        parts.append(f"{'-' if factor < 0 else '+'} {times.join(size + names)}")
    return " ".join(parts).removeprefix("+ ")


class Wording:
    """Names of weights and laws of one network.

    >>> from lawful.conservation import known_laws
    >>> from lawful.network import Architecture
    >>> dag = Architecture.parse("2-2-1 linear bias").to_dag()
    >>> Wording(dag).law(known_laws(dag).laws[1])
    '‖U1[:,1]‖² + b1[1]² − ‖U2[1,:]‖²'
    >>> Wording(dag).law(known_laws(dag).laws[2])
    '⟨U1[:,0], U1[:,1]⟩ + b1[0]·b1[1] − ⟨U2[0,:], U2[1,:]⟩'
    """

    def __init__(self, dag: Dag) -> None:
        self.dag = dag
        self.places = _places(dag)

    # Weights

    def weight(self, edge: int) -> str:
        """The name of one weight: `U1[0,2]`, `b1[2]`, or `a→h` in a graph without layers."""
        tail, head = int(self.dag.tails[edge]), int(self.dag.heads[edge])
        if self.places is None:
            return f"{self.dag.names[tail]}→{self.dag.names[head]}"
        layer, column = self.places[head]
        if self.dag.roles[tail] == Role.CONSTANT:
            return f"b{layer}[{column}]"
        return f"U{layer}[{self.places[tail][1]},{column}]"

    def symbols(self) -> list[str]:
        """A name per weight that SymPy reads as one symbol."""
        return [re.sub(r"\W+", "_", self.weight(edge)).strip("_") for edge in range(self.dag.parameters)]

    # Laws

    def law(self, law: Law) -> str:
        """One law, as short as its kind allows."""
        match law.kind:
            case "neuron" if _plain(law):
                return self._neuron(law.nodes[0])
            case "pair" if _plain(law):
                return self._pair(*law.nodes)
            case "sum":
                node = law.nodes[0]
                return f"Σ_k {self._outgoing(node, 'k')}"
            case "detour":
                incoming, outgoing = (self.weight(edges[0]) for edges in law.terms)
                return f"({incoming} + {outgoing})·exp(−{self.weight(law.exponent or 0)})"
            case "weight":
                return self.weight(next(iter(law.terms))[0])
            case "rotation":
                first, second = (self.dag.names[node] for node in law.nodes)
                return f"⟨θ({first}), v({second})⟩ − ⟨θ({second}), v({first})⟩"
            case "impulse" | "rest":
                along = self.law(law.factors[0])
                return f"velocity of {along}" if law.kind == "impulse" else along
            case "product":
                return "·".join(f"({self.law(factor)})" for factor in law.factors)
        return polynomial_words(law, self.weight, LONGEST)

    def _neuron(self, node: int) -> str:
        if self.places is None:
            name = self.dag.names[node]
            return f"‖in({name})‖² − ‖out({name})‖²"
        layer, neuron = self.places[node]
        bias = f" + b{layer}[{neuron}]²" if self._biased(node) else ""
        return f"‖U{layer}[:,{neuron}]‖²{bias} − ‖U{layer + 1}[{neuron},:]‖²"

    def _pair(self, first: int, second: int) -> str:
        if self.places is None:
            left, right = self.dag.names[first], self.dag.names[second]
            return f"⟨in({left}), in({right})⟩ − ⟨out({left}), out({right})⟩"
        (layer, a), (_, b) = self.places[first], self.places[second]
        bias = f" + b{layer}[{a}]·b{layer}[{b}]" if self._biased(first) else ""
        return f"⟨U{layer}[:,{a}], U{layer}[:,{b}]⟩{bias} − ⟨U{layer + 1}[{a},:], U{layer + 1}[{b},:]⟩"

    def _outgoing(self, node: int, index: str) -> str:
        if self.places is None:
            return f"{self.dag.names[node]}→{index}"
        if self.dag.roles[node] == Role.CONSTANT:
            return f"b{max(layer for layer, _ in self.places.values())}[{index}]"
        layer, neuron = self.places[node]
        return f"U{layer + 1}[{neuron},{index}]"

    def _biased(self, node: int) -> bool:
        return self.dag.constant is not None and bool(
            ((self.dag.tails == self.dag.constant) & (self.dag.heads == node)).any()
        )

    def expression(self, law: Law) -> str:
        """The whole polynomial in SymPy's syntax, in the names of `symbols`."""
        return write_polynomial(law, self.symbols().__getitem__, "*", "**{}")

    def latex(self, law: Law) -> str:
        """The law in LaTeX."""
        text = self.law(law)
        for pattern, replacement in _LATEX:
            text = re.sub(pattern, replacement, text)
        return text

    # Many laws at once

    def summary(self, laws: Iterable[Law]) -> list[str]:
        """Laws of a kind in one layer on one line: a matrix, its diagonal, a list of sums."""
        groups: dict[tuple[str, int], list[Law]] = defaultdict(list)
        lines: list[str] = []
        for law in laws:
            known = self.places is not None and law.kind in ("neuron", "pair") and _plain(law)
            if known and self.places is not None:
                groups[law.kind, self.places[law.nodes[0]][0]].append(law)
            elif law.kind in ("sum", "weight", "rotation", "impulse", "rest"):
                groups[law.kind, 0].append(law)
            elif law.kind == "still":
                groups[law.kind, law.nodes[0]].append(law)
            else:
                lines.append(self.law(law))
        layers = sorted({layer for kind, layer in groups if kind in ("neuron", "pair")})
        front = [line for layer in layers for line in self._layer(groups["neuron", layer], groups["pair", layer])]
        for kind in ("sum", "weight", "rotation", "impulse", "rest"):
            front += _shorten([self.law(law) for law in groups.get((kind, 0), [])])
        sums = [self._sums(node, laws) for (kind, node), laws in groups.items() if kind == "still"]
        front += _shorten(sums, 12)
        return front + _shorten(lines, 20)

    def _sums(self, node: int, laws: Sequence[Law]) -> str:
        """The sums of a neuron's weights that no sample moves: written out if there is one, else their number."""
        name = self.dag.names[node]
        if len(laws) == 1:
            return f"{polynomial_words(laws[0], self.weight, LONGEST)}   (no sample moves it)"
        return f"{len(laws)} sums of the weights into {name}, along directions that no sample has"

    def _layer(self, neurons: Sequence[Law], pairs: Sequence[Law]) -> list[str]:
        if self.places is None or not neurons:
            return [self.law(law) for law in pairs]
        layer = self.places[neurons[0].nodes[0]][0]
        width = sum(place[0] == layer for node, place in self.places.items() if self.dag.roles[node] == Role.HIDDEN)
        bias = self._biased(neurons[0].nodes[0])
        rank = min(width, len(neurons[0].terms))  # of the matrix of all weights at these neurons
        if len(neurons) == width and len(pairs) >= rank * width - rank * (rank + 1) // 2 > 0:
            middle = f" + b{layer}·b{layer}ᵀ" if bias else ""
            matrix = f"U{layer}ᵀU{layer}{middle} − U{layer + 1}U{layer + 1}ᵀ"
            return [f"{matrix}   (symmetric {width}×{width}: {rank * (2 * width + 1 - rank) // 2} laws)"]
        middle = f" + b{layer}[j]²" if bias else ""
        last = f"j = 0..{width - 1}" if len(neurons) == width else f"{len(neurons)} of {width} neurons j"
        lines = [f"‖U{layer}[:,j]‖²{middle} − ‖U{layer + 1}[j,:]‖²   ({last}: {len(neurons)} laws)"]
        if len(neurons) == 1:
            lines = [self.law(neurons[0])]
        return lines + _shorten([self.law(law) for law in pairs])


def _shorten(lines: list[str], most: int = 6) -> list[str]:
    return lines if len(lines) <= most else [*lines[: most - 1], f"… and {len(lines) - most + 1} more of this kind"]


def _plain(law: Law) -> bool:
    """Whether the coefficients are ±1: a metric puts others."""
    return all(abs(factor) == 1 for factor in law.terms.values())


def _places(dag: Dag) -> dict[int, tuple[int, int]] | None:
    """Layer and number of every node of a fully connected layered network; None for any other graph."""
    constant = dag.roles[dag.tails] == Role.CONSTANT
    plain = np.flatnonzero(~constant)
    levels = np.zeros(len(dag.names), dtype=np.intp)
    depth = int(dag.levels[dag.outputs].max())
    layers = [dag.inputs]
    for level in range(1, depth):
        layers.append(dag.hidden[dag.levels[dag.hidden] == level])
    layers.append(dag.outputs)
    for number, layer in enumerate(layers):
        levels[layer] = number
    full = sum(len(below) * len(above) for below, above in pairwise(layers))
    if len(plain) != full or (levels[dag.heads[plain]] != levels[dag.tails[plain]] + 1).any():
        return None
    biased = set(dag.heads[constant].tolist())
    for layer in layers[1:]:
        if len(biased & set(layer.tolist())) not in (0, len(layer)):
            return None
    return {int(node): (number, place) for number, layer in enumerate(layers) for place, node in enumerate(layer)}


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
        return polynomial_words(law, self.weight, LONGEST_OF_MODULE)

    def expression(self, law: Law) -> str:
        """The whole polynomial in SymPy's syntax."""
        return write_polynomial(law, lambda edge: "p" + re.sub(r"\W+", "_", self.weight(edge)).strip("_"), "*", "**{}")

    def latex(self, law: Law) -> str:
        """The whole polynomial in LaTeX."""
        return write_polynomial(law, lambda edge: _latex(self.weight(edge)), r"\,", "^{{{}}}")

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
