"""Graphs of a module's entries, asked of linear programs: how small can a square become on the set of a balance?"""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
from scipy.optimize import linprog

from lawful.verify import Verified

NEAR = 1e-6


def _graph(network: dict[str, Any]) -> tuple[Any, Any]:
    """Incidence of the nodes that scale, and the weights."""
    tails, heads, weights = [], [], []
    for part in network["tensors"]:
        kind = np.dtype(part["tensor"]["dtype"])
        values = np.frombuffer(base64.b64decode(part["tensor"]["data"]), dtype=kind).astype(float)
        tails += part["tails"]
        heads += part["heads"]
        weights += [values[spot] for spot in part["positions"]]
    table = np.zeros((network["nodes"] + 2, len(weights)))
    np.add.at(table, (heads, np.arange(len(weights))), 1.0)
    np.add.at(table, (tails, np.arange(len(weights))), -1.0)
    return table[1:-1], np.array(weights)


def _least(table: Any, balance: Any, edge: int, slack: float) -> float:
    """min x_e with `Σ |Bx − c| ≤ slack`."""
    nodes, edges = table.shape
    whole = np.hstack([table, np.eye(nodes), -np.eye(nodes)])
    cost = np.zeros(edges + 2 * nodes)
    cost[edge] = 1.0
    budget = np.r_[np.zeros(edges), np.ones(2 * nodes)][None]
    found = linprog(cost, A_eq=whole, b_eq=balance, A_ub=budget, b_ub=[slack])
    return float(found.fun) if found.status == 0 else np.inf


def components_hold(proof: dict[str, Any], found: Verified) -> bool:
    """Each lock is one, and without other laws there is no other."""
    table, weights = _graph(proof["network"])
    slack = proof["tolerance"] / proof["denominator"]
    least = [_least(table, table @ weights**2, edge, slack) for edge in range(len(weights))]
    locked = sum(value > NEAR for value in least)
    stated = found.facts["log2_components"]
    return stated <= locked if proof["network"]["other_laws"] else stated == locked


def path_holds(proof: dict[str, Any], found: Verified) -> bool:
    """Signs differ only where squares can vanish within the drift; or a lock, or a balance, keeps the two apart."""
    (table, start), (_, stop) = (_graph(proof[key]) for key in ("start", "stop"))
    balances = table @ start**2, table @ stop**2
    apart = float(np.abs(balances[0] - balances[1]).sum())
    turned = np.flatnonzero(start * stop < 0)
    drift = float(found.facts["drift"]) + NEAR if found.facts["joined"] else apart
    least = [_least(table, balances[0], int(edge), drift) for edge in turned]
    if found.facts["joined"]:
        return apart <= drift and all(value < NEAR for value in least)
    return apart > 0 or any(value > NEAR for value in least)
