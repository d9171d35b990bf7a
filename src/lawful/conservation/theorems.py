"""Counts that need no computation: theorems whose hypotheses an architecture is checked to fulfil, at any size."""

from __future__ import annotations

from itertools import pairwise

from lawful.conservation.closure.lie_closure import fits
from lawful.conservation.fields.flows import Flow
from lawful.conservation.known.graph_laws import known_laws
from lawful.conservation.known.law import LawFamily
from lawful.conservation.law_count import LawCount
from lawful.network import Architecture, Dag, Mlp
from lawful.network.dynamics import GradientFlow

ELIMINATED = 5000  # parameters up to which the count is computed, and has a certificate
EXPLICIT = 200_000  # parameters up to which the laws are also written down


def count_by_theorem(source: Architecture | Mlp | Dag, loss: str, flow: Flow) -> LawCount | None:
    """The count of a network too large for elimination, or None if it is not too large or nothing can be said.

    One hidden layer, fully connected: ReLU has one law per hidden neuron and no other function of φ is conserved (P1
    Example 3.6; a bias is one more input, and one of the output is a free direction), linear without biases has
    `rk(2r + 1 − rk)/2` with `rk = min(n + m, r)` (P1 Propositions 4.2 and 4.3, Corollary 4.4). Other layered networks
    have *at least* one law for every hidden neuron: `Σ a_v ∇c_v = 0` forces a_u = a_v along every edge, and a_v = 0
    beside inputs and outputs.

    >>> found = count_by_theorem(Architecture.parse("784-2000-10 relu bias"), "full", GradientFlow())
    >>> found.laws, found.status, found.theorem
    (2000, 'proved', 'P1 Example 3.6')
    """
    if source.parameters <= ELIMINATED or flow != GradientFlow() or loss != "full":
        return None
    architecture = source if isinstance(source, Architecture) else None
    widths = _widths(source)
    if widths is None or (architecture is None and not isinstance(source, Mlp)):
        return None
    slopes = {architecture.slope} if architecture is not None else set(getattr(source, "slopes", ()))
    biased = (
        architecture.bias if architecture is not None else any(b is not None for b in getattr(source, "biases", ()))
    )
    hidden = sum(widths[1:-1])
    if len(widths) == 3 and 1.0 not in slopes:
        return _theorem_count(source, hidden, "proved", "P1 Example 3.6", "phi")
    if len(widths) == 3 and slopes == {1.0} and not biased:
        return _theorem_count(source, balanced_laws(widths), "proved", "P1 Corollary 4.4", "near")
    if fits(source.parameters):
        return None
    return _theorem_count(source, hidden, "at least", "P1 Proposition 4.1", "near" if slopes == {1.0} else "phi")


def _widths(source: Architecture | Mlp | Dag) -> tuple[int, ...] | None:
    if isinstance(source, Architecture):
        return None if source.skips else source.widths
    return source.widths if isinstance(source, Mlp) else None


def _theorem_count(source: Architecture | Mlp | Dag, laws: int, status: str, theorem: str, claim: str) -> LawCount:
    dag = source.to_dag() if source.parameters <= EXPLICIT else None
    known = known_laws(dag) if dag is not None and status == "proved" else LawFamily((), source.parameters)
    size = source.parameters
    reason = "" if status == "proved" else "too large to look for more than the balances of hidden neurons"
    return LawCount(
        size, size, (size - laws,), known, laws, status, "phi", GradientFlow(), "full", arithmetic="theorem", dag=dag,
        architecture=str(source) if isinstance(source, Architecture) else None, reason=reason, claim=claim,
        theorem=theorem, words=(f"‖in‖² − ‖out‖² of every hidden neuron ({laws:,} laws)",),
    )  # fmt: skip


def predicted_laws(architecture: Architecture) -> int | None:
    """How many laws the formulas predict, or None where there is none (skips, linear networks with biases).

    ReLU networks have one law per hidden neuron, linear ones `linear_laws`.

    >>> predicted_laws(Architecture.parse("6-5-6-4-3-6 linear")), predicted_laws(Architecture.parse("4-5-3 relu bias"))
    (52, 5)
    """
    if architecture.skips:
        return None
    if architecture.slope != 1.0:
        return sum(architecture.widths[1:-1])
    return None if architecture.bias else linear_laws(architecture.widths)


def balanced_laws(widths: tuple[int, ...]) -> int:
    """What balancedness gives: `Σ_i rk_i (2 n_i + 1 − rk_i)/2` over the hidden layers (one layer: P1 Proposition 4.2).

    `rk_i = min(n_i, n_{i−1} + n_{i+1})`.

    >>> balanced_laws((3, 2, 3)), balanced_laws((7, 3, 6, 2, 5))
    (3, 29)
    """
    total = 0
    for below, here, above in zip(widths, widths[1:], widths[2:], strict=False):
        rank = min(here, below + above)
        total += rank * (2 * here + 1 - rank) // 2
    return total


def linear_laws(widths: tuple[int, ...]) -> int:
    """The number of laws of a deep linear network without biases, also where layers have width 1.

    Cut the network at its layers of width 1. A piece between two of them computes one number from one number, so its
    fields are multiples of one field and all but one of its weights' directions are bound: D − 1 laws. Other pieces
    have `balanced_laws`, and each neuron at a cut has its own balance.

    >>> linear_laws((1, 2, 2, 1)), balanced_laws((1, 2, 2, 1))
    (7, 6)
    """
    ones = [place for place, width in enumerate(widths) if width == 1]
    cuts = sorted({0, len(widths) - 1, *ones})
    total = sum(0 < place < len(widths) - 1 for place in ones)
    for start, stop in pairwise(cuts):
        piece = widths[start : stop + 1]
        bound = piece[0] == piece[-1] == 1
        total += sum(a * b for a, b in pairwise(piece)) - 1 if bound else balanced_laws(piece)
    return total
