"""Components of an invariant set: stable sets show what is locked, flows what is free, in integers.

Free: a flow `x ≥ 0` of balance c has `x_e = 0`. In a graph of neurons any other edge leaves a neuron with other ways
out and enters one with other ways in (P0 Propositions 3 and 4); in the graph of a module each edge has its flow. With
a tolerance, locked means for every balance within it, free for some. Where a module has other laws as well, only what
is locked is stated. All balances and squares are integers, in units of 1 / `denominator`.
"""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import Any

from flint import fmpq

from lawful.verify.core.dag import HIDDEN, CheckedDag, read_squares
from lawful.verify.core.finding import Finding
from lawful.verify.core.schema import integer, integers, items, object_with_keys, require, truth
from lawful.verify.invariant_set.balances import CheckedEntries, check_locks, read_graph

KEYS = "network denominator tolerance balance locked flows connected log2_components"


def check(body: dict[str, Any]) -> Finding:
    """How many components the invariant set has, and which edges are locked."""
    parts = object_with_keys(body, "certificate", KEYS)
    dag = read_graph(parts["network"])
    denominator = integer(parts["denominator"], "denominator", 1)
    slack = integer(parts["tolerance"], "tolerance", 0)
    units = integers(parts["balance"], "balance", length=len(dag.hidden))
    balance = dict(zip(dag.hidden, units, strict=True))
    if dag.weights is not None:
        of_weights = all(fmpq(unit, denominator) == dag.balance[node] for node, unit in balance.items())
        require(of_weights, "the balance is not that of the weights")
    locked = check_locks(parts["locked"], dag, balance, slack)
    freed = _free_edges(parts["flows"], dag, balance, slack)
    require(not set(locked) & freed, "an edge is both locked and freed")
    entries = isinstance(dag, CheckedEntries)
    others = isinstance(dag, CheckedEntries) and dag.other_laws
    for edge in range(0 if others else len(dag.tails)):
        settled = edge in locked or edge in freed or not (entries or _is_an_only_way(dag, edge))
        require(settled, f"edge {edge} is neither locked nor freed")
    stated = integer(parts["log2_components"], "log2_components", 0)
    # Each locked edge keeps its sign, all others can change theirs one by one: 2^locked components (P0 Theorem 2).
    require(stated == len(locked), f"{len(locked)} edges are locked, not the {stated} stated")
    connected = None if (slack or others) and not locked else not locked  # within a tolerance nothing shows that it is
    answer = None if parts["connected"] is None else truth(parts["connected"], "connected")
    require(answer is connected, "the stated answer does not follow")
    places = dag.places if isinstance(dag, CheckedEntries) else list(zip(dag.tails, dag.heads, strict=True))
    least = [{"edge": places[edge], "at_least": Fraction(x, denominator)} for edge, x in sorted(locked.items())]
    facts = {
        "prescribed": dag.weights is None, "entries": entries, "other_laws": others, "log2_components": len(locked),
        "connected": connected, "tolerance": Fraction(slack, denominator),
        "balance": [Fraction(unit, denominator) for unit in units], "locked": least,
    }  # fmt: skip
    return Finding(facts, (dag.digest(),))


def _is_an_only_way(dag: CheckedDag, edge: int) -> bool:
    """Whether an edge is some neuron's only one in, or out: all others are free (P0 Propositions 3 and 4)."""
    tail, head = dag.tails[edge], dag.heads[edge]
    only_out = dag.roles[tail] == HIDDEN and len(dag.out_of[tail]) == 1
    return only_out or (dag.roles[head] == HIDDEN and len(dag.into[head]) == 1)


def _free_edges(value: object, dag: CheckedDag, balance: dict[int, int], slack: int) -> set[int]:
    """Edges on which some flow of the balance is zero, up to the slack in the sum of absolute differences."""
    free: set[int] = set()
    size = sum(abs(unit) for unit in balance.values())
    for number, item in enumerate(items(value, "flows", most=len(dag.tails))):
        flow = object_with_keys(item, "flows", "squares frees")
        squares = read_squares(flow["squares"], "flows.squares", dag, partial(integer, low=0))
        moved = dag.balance_of(squares)  # a flow may be short and the graph large: nodes not touched miss all of c
        # Σ |c − B̃x| over all hidden nodes, of which those without an edge of the flow contribute |c|.
        wrong = size + sum(abs(balance[node] - gain) - abs(balance[node]) for node, gain in moved.items())
        require(wrong <= slack, f"flow {number} does not have the stated balance")
        frees = integers(flow["frees"], "flows.frees", 0, len(dag.tails) - 1)
        require(not any(squares.get(edge) for edge in frees), f"flow {number} is not zero on an edge that it frees")
        free.update(frees)
    return free
