"""Components of an invariant set: stable sets show what is locked, flows what is free, in integers.

Free: a flow `x ≥ 0` of balance c has `x_e = 0`. In a graph of neurons any other edge leaves a neuron with other ways
out and enters one with other ways in (P0 Propositions 3 and 4); in the graph of a module each edge has its flow. With
a tolerance, locked means for every balance within it, free for some. Where a module has other laws as well, only what
is locked is stated.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from lawful.verify.core.dag import CheckedDag
from lawful.verify.core.finding import Finding
from lawful.verify.core.schema import integer, integers, items, object_with_keys, require, truth
from lawful.verify.invariant_set.entries import CheckedEntries, read_graph
from lawful.verify.invariant_set.locks import check_locks
from lawful.verify.sentences import say_components

KEYS = "network denominator tolerance balance locked flows connected log2_components"


def check(body: dict[str, Any]) -> Finding:
    """How many components the invariant set has, and which edges are locked."""
    given = object_with_keys(body, "certificate", KEYS)
    dag = read_graph(given["network"])
    denominator = integer(given["denominator"], "denominator", 1)
    slack = integer(given["tolerance"], "tolerance", 0)
    units = integers(given["balance"], "balance", length=len(dag.hidden))
    balance = dict(zip(dag.hidden, units, strict=True))
    if dag.weights is not None:
        pairs = ((Fraction(unit, denominator), dag.balance[node]) for node, unit in balance.items())
        require(all(stated == true for stated, true in pairs), "the balance is not that of the weights")
    whole_balance = {node: Fraction(unit, denominator) for node, unit in balance.items()}
    locked = check_locks(given["locked"], dag, whole_balance, Fraction(slack, denominator))
    freed = _freed(given["flows"], dag, balance, slack)
    require(not set(locked) & freed, "an edge is both locked and freed")
    others = isinstance(dag, CheckedEntries) and dag.others
    for edge in range(0 if others else len(dag.tails)):
        settled = edge in locked or edge in freed or not dag.must_be_settled(edge)
        require(settled, f"edge {edge} is neither locked nor freed")
    stated = integer(given["log2_components"], "log2_components", 0)
    require(stated == len(locked), f"{len(locked)} edges are locked, not the {stated} stated")
    connected = None if (slack or others) and not locked else not locked  # within a tolerance nothing shows that it is
    stated_answer = None if given["connected"] is None else truth(given["connected"], "connected")
    require(stated_answer is connected, "the stated answer does not follow")
    tolerance = Fraction(slack, denominator)
    digest = dag.digest()
    facts = {
        "prescribed": dag.weights is None,
        "entries": isinstance(dag, CheckedEntries),
        "other_laws": others,
        "log2_components": len(locked),
        "connected": connected,
        "tolerance": tolerance,
        "balance": [Fraction(unit, denominator) for unit in units],
        "locked": [{"edge": _edge(dag, edge), "at_least": least} for edge, least in sorted(locked.items())],
    }
    return Finding(say_components(facts, (digest,)), facts, (digest,))


def _edge(dag: CheckedDag, edge: int) -> tuple[Any, ...]:
    """The two ends of an edge, or the entry that it is."""
    return dag.places[edge] if isinstance(dag, CheckedEntries) else (dag.tails[edge], dag.heads[edge])


def _freed(value: object, dag: CheckedDag, balance: dict[int, int], slack: int) -> set[int]:
    found: set[int] = set()
    size = sum(abs(unit) for unit in balance.values())
    for number, item in enumerate(items(value, "flows", most=len(dag.tails))):
        flow = object_with_keys(item, "flows", "squares frees")
        squares: dict[int, int] = {}
        moved: dict[int, int] = {}  # what the flow brings to each neuron that it touches
        for pair in items(flow["squares"], "flows.squares", most=len(dag.tails)):
            edge, amount = integers(pair, "flows.squares", 0, length=2)
            require(edge < len(dag.tails) and edge not in squares, f"flow {number} names no edge, or one twice")
            squares[edge] = amount
            tail, head = dag.tails[edge], dag.heads[edge]
            for node, gain in ((head, amount), (tail, -amount)):
                if node in balance:
                    moved[node] = moved.get(node, 0) + gain
        wrong = size + sum(abs(balance[node] - gain) - abs(balance[node]) for node, gain in moved.items())
        require(wrong <= slack, f"flow {number} does not have the stated balance")
        frees = integers(flow["frees"], "flows.frees", 0, len(dag.tails) - 1)
        require(not any(squares.get(edge) for edge in frees), f"flow {number} is not zero on an edge that it frees")
        found.update(frees)
    return found
