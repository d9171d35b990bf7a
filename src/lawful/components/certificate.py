"""The evidence for a count of components as one JSON object: graph, balance, stable sets, flows."""

from __future__ import annotations

from typing import Any

from lawful.components.avoiding import free_flows
from lawful.components.locks import Components
from lawful.components.verify import statement


def certificate(found: Components) -> dict[str, Any]:
    """All that is needed to re-check the answer without the network: `verify.verify` does.

    Balance, minima and squares are whole multiples of `1 / denominator`.

    >>> from lawful.components.locks import components
    >>> from lawful.components.verify import verify
    >>> from lawful.network import Architecture
    >>> proof = certificate(components(Architecture.parse("2-2-1").to_dag(), [-3, 1]))
    >>> proof["statement"], proof["locked"]
    ('the invariant set has exactly 2^1 connected components: 1 edge is locked',
     [{'edge': 4, 'side': 'out', 'minimum': 3, 'nodes': [2]}])
    >>> verify(proof)
    """
    dag, balance = found.dag, found.balance
    return {
        "kind": "components",
        "statement": statement(len(found.locked)),
        "connected": found.connected,
        "log2_components": found.log2_components,
        "nodes": list(dag.names),
        "roles": dag.roles.tolist(),
        "edges": [list(ends) for ends in zip(dag.tails.tolist(), dag.heads.tolist(), strict=True)],
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
