"""The evidence for which single neurons of a network are needed, and which can go, as one JSON object."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

from lawful.fibers.verdict import mlp_json
from lawful.network import Mlp
from lawful.network.digest import digest
from lawful.pruning.removable.decide import Exclusion, Need, NeuronDecision, StandIn


def certificate(network: Mlp, decisions: Sequence[NeuronDecision]) -> dict[str, Any]:
    """What `lawful verify` needs to re-check every neuron that was decided.

    >>> from lawful.pruning.removable.decide import decide_neurons
    >>> net = Mlp([[[1.0], [2.0]], [[1.0, 1.0]]], [[0.0, -1.0], None])
    >>> [each["answer"] for each in certificate(net, decide_neurons(net))["neurons"]]
    ['needed', 'needed']
    """
    return {
        "kind": "removable",
        "version": 1,
        "about": [digest(network)],
        "network": mlp_json(network),
        "neurons": [_neuron(decision) for decision in decisions if decision.removable is not None],
    }


def _neuron(decision: NeuronDecision) -> dict[str, Any]:
    place = {"layer": decision.layer, "neuron": decision.neuron}
    evidence = decision.evidence
    if isinstance(evidence, StandIn):
        return place | {
            "answer": "removable",
            "coefficients": _texts(evidence.coefficients),
            "constant": str(evidence.constant),
            "decisions": list(evidence.decisions),
        }
    if isinstance(evidence, Need):
        cases = None if evidence.case is None else list(_lines(evidence.case))
        return place | {"answer": "needed", "points": [_texts(point) for point in evidence.points], "cases": cases}
    raise AssertionError("an undecided neuron has no evidence")


def _lines(case: Exclusion) -> Iterator[list[Any]]:
    """The tree of cases in the order of a walk, each line an input to split at or the multipliers that end a case."""
    if case.point:
        yield ["split", _texts(case.point)]
        for child in case.cases:
            yield from _lines(child)
    else:
        yield ["end", _texts(case.multipliers)]


def _texts(values: Sequence[Fraction]) -> list[str]:
    return [str(value) for value in values]
