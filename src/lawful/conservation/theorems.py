"""Counts that need no computation: theorems whose hypotheses an architecture is checked to fulfil, at any size."""

from __future__ import annotations

from lawful.conservation.closure.lie_closure import fits
from lawful.conservation.fields.momentum_and_metric import Flow
from lawful.conservation.known.graph_laws import known_laws
from lawful.conservation.known.law import LawFamily
from lawful.conservation.law_count import LawCount
from lawful.conservation.prediction import balanced_laws
from lawful.network import Architecture, Dag, Mlp
from lawful.network.dynamics import GradientFlow

ELIMINATED = 5000  # parameters up to which the count is computed, and has a certificate
EXPLICIT = 200_000  # parameters up to which the laws are also written down


def by_theorem(source: Architecture | Mlp | Dag, loss: str, flow: Flow) -> LawCount | None:
    """The count of a network too large for elimination, or None if it is not too large or nothing can be said.

    One hidden layer, fully connected: ReLU has one law per hidden neuron and no other function of φ is conserved (P1
    Example 3.6; a bias is one more input, and one of the output is a free direction), linear without biases has
    `rk(2r + 1 − rk)/2` with `rk = min(n + m, r)` (P1 Propositions 4.2 and 4.3, Corollary 4.4). Other layered networks
    have *at least* one law for every hidden neuron: `Σ a_v ∇c_v = 0` forces a_u = a_v along every edge, and a_v = 0
    beside inputs and outputs.

    >>> found = by_theorem(Architecture.parse("784-2000-10 relu bias"), "full", GradientFlow())
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
        return _count_by_theorem(source, hidden, "proved", "P1 Example 3.6", "phi")
    if len(widths) == 3 and slopes == {1.0} and not biased:
        return _count_by_theorem(source, balanced_laws(widths), "proved", "P1 Corollary 4.4", "near")
    if fits(source.parameters):
        return None
    return _count_by_theorem(source, hidden, "at least", "P1 Proposition 4.1", "near" if slopes == {1.0} else "phi")


def _widths(source: Architecture | Mlp | Dag) -> tuple[int, ...] | None:
    if isinstance(source, Architecture):
        return None if source.skips else source.widths
    return source.widths if isinstance(source, Mlp) else None


def _count_by_theorem(source: Architecture | Mlp | Dag, laws: int, status: str, theorem: str, claim: str) -> LawCount:
    dag = source.to_dag() if source.parameters <= EXPLICIT else None
    known = known_laws(dag) if dag is not None and status == "proved" else LawFamily((), source.parameters)
    size = source.parameters
    reason = "" if status == "proved" else "too large to look for more than the balances of hidden neurons"
    return LawCount(
        size, size, (size - laws,), known, laws, status, "phi", GradientFlow(), "full", arithmetic="theorem", dag=dag,
        architecture=str(source) if isinstance(source, Architecture) else None, reason=reason, claim=claim,
        theorem=theorem, words=(f"‖in‖² − ‖out‖² of every hidden neuron ({laws:,} laws)",),
    )  # fmt: skip
