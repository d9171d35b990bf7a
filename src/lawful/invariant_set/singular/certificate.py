"""Whether an invariant set has singular points, as one JSON object that `lawful verify` re-checks."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from lawful.errors import Unsupported
from lawful.invariant_set.singular.existence import SingularPoints
from lawful.network import Dag
from lawful.network.digest import digest, network_record


def certificate(dag: Dag, found: SingularPoints, balance: Mapping[str, Fraction] | None = None) -> dict[str, Any]:
    """The network, and the witness or the refutations of `singular_points(dag, exact_balance(dag))`.

    With another `balance` than that of the weights it speaks of the graph alone.

    >>> from lawful.network import Mlp
    >>> from lawful.invariant_set.singular.existence import exact_balance, singular_points
    >>> graph = Mlp([[[1.0], [2.0]], [[1.0, 1.0]]]).to_dag()
    >>> proof = certificate(graph, singular_points(graph, exact_balance(graph)))
    >>> proof["exist"], proof["cut_off"]
    (True, [1])
    """
    if found.exist is None:
        raise Unsupported(f"an undecided answer has no certificate: {found.reason}")
    edge = {dag.edge_name(number): number for number in range(dag.parameters)}
    body: dict[str, Any] = {
        "kind": "singular",
        "version": 1,
        "about": [digest(dag, weights=balance is None)],
        "network": network_record(dag, weights=balance is None),
        "balance": None if balance is None else [str(Fraction(balance[dag.names[node]])) for node in dag.hidden],
        "exist": found.exist,
        "cut_off": None,
        "squares": None,
        "refutations": None,
    }
    if found.witness is not None:
        squares = found.witness.squares.items()
        return body | {
            "cut_off": [dag.index[name] for name in found.witness.cut_off],
            "squares": [[edge[ends], str(square)] for ends, square in squares if square],
        }
    return body | {
        "refutations": [
            {
                "cut_off": [dag.index[name] for name in refutation.cut_off],
                "inside": refutation.inside,
                "blocked": [dag.index[name] for name in refutation.blocked],
                "forward": refutation.forward,
            }
            for refutation in found.refutations
        ]
    }
