"""The evidence for a count of components as one JSON object: graph, balance, stable sets, flows."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from lawful.components.avoiding import free_flows
from lawful.components.balance import Balance
from lawful.components.locks import Components
from lawful.network.digest import digest, written


def certificate(found: Components) -> dict[str, Any]:
    """All that is needed to re-check the answer; the network's weights are in it if the balance is theirs.

    Balance, minima, squares and tolerance are whole multiples of `1 / denominator`.

    >>> from lawful.components.locks import components
    >>> from lawful.network import Architecture
    >>> proof = certificate(components(Architecture.parse("2-2-1").to_dag(), [-3, 1]))
    >>> proof["log2_components"], proof["locked"]
    (1, [{'edge': 4, 'side': 'out', 'minimum': 3, 'nodes': [2]}])
    """
    dag, balance = found.dag, found.balance
    own = dag.weights is not None and _is_own(found)
    return {
        "kind": "components",
        "version": 1,
        "about": [digest(dag, weights=own)],
        "connected": None if balance.slack and found.connected else found.connected,  # "no lock is sure" is not a yes
        "log2_components": found.log2_components,
        "network": written(dag, weights=own),
        "denominator": balance.denominator,
        "tolerance": balance.slack,
        "balance": list(balance.units),
        "locked": [
            {
                "edge": lock.edge,
                "side": lock.side,
                "minimum": int(lock.minimum * balance.denominator),
                "nodes": list(found.stable_set(lock)),
            }
            for lock in found.locked
        ],
        "flows": [
            {"squares": [list(pair) for pair in flow.squares.items()], "frees": list(flow.frees)}
            for flow in free_flows(found)
        ],
    }


def _is_own(found: Components) -> bool:
    """Whether the balance is that of the weights, within the tolerance; a prescribed one speaks of the graph alone."""
    return sum(found.balance.distance(Balance.of(found.dag)), Fraction(0)) <= found.balance.tolerance
