"""Singular points of an invariant set: a witness on it, or every way to have one refuted, in rationals.

A singular point cuts off a set W of hidden neurons that meets its balances by its own inner edges, while the others
meet theirs without W; then `Σ_W c = 0`, and W may be taken connected (P0 Proposition 6). To show that there is none,
all connected zero-sum sets are listed here (sums of halves that cancel, `2^(n/2)` of each) and each must be refuted by
the certificate. Balances are integers there, in units of their common denominator: sums of fractions of thousands of
digits would each look for common factors again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import lcm
from typing import Any

from lawful.errors import Unsupported
from lawful.verify.core.dag import CheckedDag, read_dag, read_squares
from lawful.verify.core.finding import Finding
from lawful.verify.core.numbers import Rational, as_fraction, fraction
from lawful.verify.core.schema import integers, items, limit_sums, object_with_keys, require, spend, truth

MOST_LISTED = 40  # neurons among which zero-sum sets are listed: 2^20 sums on each side
Ways = Mapping[int, Iterable[int]]


def check(body: dict[str, Any]) -> Finding:
    """Whether the invariant set of the network's own balance has a singular point."""
    parts = object_with_keys(body, "certificate", "network balance exist cut_off squares refutations")
    dag = read_dag(parts["network"])
    require((dag.weights is None) is not (parts["balance"] is None), "a balance is prescribed, or that of the weights")
    balance = dag.balance
    if parts["balance"] is not None:
        stated = items(parts["balance"], "balance", length=len(dag.hidden))
        balance = {node: fraction(item, "balance") for node, item in zip(dag.hidden, stated, strict=True)}
        limit_sums(balance.values(), float(len(balance)))
    facts: dict[str, Any] = {"prescribed": dag.weights is None, "balance": [as_fraction(c) for c in balance.values()]}
    facts["exist"] = truth(parts["exist"], "exist")
    if facts["exist"]:
        require(parts["refutations"] is None, "a witness needs no refutations")
        facts["cut_off"] = sorted(_check_witness(parts, dag, balance))
    else:
        require(parts["cut_off"] is None and parts["squares"] is None, "a witness does not go with the answer no")
        facts["refuted"] = _check_none(parts["refutations"], dag, balance)
    return Finding(facts, (dag.digest(),))


def _read_hidden(value: object, where: str, dag: CheckedDag) -> frozenset[int]:
    nodes = integers(value, where, 0, len(dag.roles) - 1)
    require(set(nodes) <= set(dag.hidden), f"{where}: a node is not hidden")
    require(len(set(nodes)) == len(nodes), f"{where}: a node appears twice")
    return frozenset(nodes)


def _check_witness(given: dict[str, Any], dag: CheckedDag, balance: Mapping[int, Rational]) -> frozenset[int]:
    """The neurons cut off, after showing that the squares are a point of the set that no edge joins to the others."""
    inside = _read_hidden(given["cut_off"], "cut_off", dag)
    require(bool(inside), "no neurons are cut off")
    squares = read_squares(given["squares"], "squares", dag, fraction)
    limit_sums(squares.values(), 4.0 * len(squares))
    for edge, amount in squares.items():
        apart = (dag.tails[edge] in inside) is not (dag.heads[edge] in inside)
        require(not (amount and apart), f"edge {edge} joins the cut-off neurons to others")
    # No edge with a weight joins W to the rest, and both meet their balances: a point of the set that cuts W off.
    total = dag.balance_of(squares)
    require(all(total.get(node, 0) == c for node, c in balance.items()), "the squares do not have the balance")
    return inside


def _check_none(value: object, dag: CheckedDag, balance: Mapping[int, Rational]) -> int:
    """How many connected zero-sum sets there are, after refuting each."""
    common = lcm(*(int(c.q) for c in balance.values()))
    units = {node: int(c * common) for node, c in balance.items()}
    words = 1 + (common.bit_length() + max((unit.bit_length() for unit in units.values()), default=0)) / 64
    stated = items(value, "refutations", most=100_000)
    spend(20.0 * len(stated) * (len(dag.roles) + len(dag.tails) + words * len(units) / 1000))  # 1000 words added a step
    refuted = {_refutation(item, dag, units) for item in stated}
    heads, tails = ({node: [end for end, _ in ends[node] if end in units] for node in units}
                    for ends in (dag.out_of, dag.into))  # fmt: skip
    inner = sum(map(len, heads.values()))
    both = {node: [*heads[node], *tails[node]] for node in units}
    count, left = 0, _find_possible(units, heads, tails, inner)
    while left:
        part = _reach({next(iter(left))}, both, left)
        left -= part
        if len(part) > MOST_LISTED:
            raise Unsupported(f"{len(part)} neurons could take part, more than the {MOST_LISTED} that can be listed")
        spend(40.0 * 2 ** (len(part) / 2) * words)  # memory too: all sums of one half are kept
        for chosen in _zero_sums(sorted(part), units):
            spend(1000.0 + 50.0 * inner)
            if _reach({next(iter(chosen))}, both, chosen) == chosen:
                require(chosen in refuted, f"neurons {sorted(chosen)[:6]} sum to zero, and nothing refutes them")
                count += 1
    return count


def _refutation(item: object, dag: CheckedDag, units: Mapping[int, int]) -> frozenset[int]:
    """A set that cannot be cut off: on one side nothing leaves (or enters) some neurons whose balance needs it."""
    parts = object_with_keys(item, "refutations", "cut_off inside blocked forward")
    cut_off = _read_hidden(parts["cut_off"], "refutations.cut_off", dag)
    blocked = _read_hidden(parts["blocked"], "refutations.blocked", dag)
    inside = truth(parts["inside"], "refutations.inside")
    forward = truth(parts["forward"], "refutations.forward")
    require(all((node in cut_off) is inside for node in blocked), "a refutation blocks neurons of the other side")
    ends = dag.out_of if forward else dag.into
    # What leaves a set of neurons on one side of the cut is at least −Σ c > 0, but nothing there can take it up.
    others = {end for node in blocked for end, _ in ends[node]} - blocked
    crossing = any((end in cut_off) is inside for end in others)
    total = sum(units[node] for node in blocked)
    require(not crossing and (total < 0 if forward else total > 0), "a set is not refuted")
    return cut_off


def _find_possible(units: Mapping[int, int], heads: Ways, tails: Ways, inner: int) -> set[int]:
    """Neurons that can be cut off: with c > 0 only below one with c < 0 inside, and the mirror image."""
    left, before = set(units), -1
    while len(left) != before:
        before = len(left)
        spend(50.0 * inner)
        for sign, ways in ((1, heads), (-1, tails)):
            fed = _reach({node for node in left if units[node] * sign < 0}, ways, left)
            left -= {node for node in left if units[node] * sign > 0} - fed
    return left


def _reach(start: set[int], ways: Ways, within: set[int] | frozenset[int]) -> set[int]:
    """Where ways inside a set lead to from a part of it."""
    reached, waiting = set(start), list(start)
    while waiting:
        fresh = {end for end in ways[waiting.pop()] if end in within and end not in reached}
        reached |= fresh
        waiting += fresh
    return reached


def _zero_sums(nodes: list[int], units: Mapping[int, int]) -> Iterator[frozenset[int]]:
    """Nonempty sets whose balances sum to zero, through a table of all sums of the first half; sets are bits."""
    half = len(nodes) // 2
    table: dict[int, list[int]] = {}
    for chosen, total in enumerate(_all_sums(nodes[:half], units)):
        table.setdefault(total, []).append(chosen)
    for second, total in enumerate(_all_sums(nodes[half:], units)):
        for first in table.get(-total, ()):
            if chosen := first | second << half:
                yield frozenset(node for place, node in enumerate(nodes) if chosen >> place & 1)


def _all_sums(nodes: list[int], units: Mapping[int, int]) -> list[int]:
    """The sum of every subset; subset k has member j if bit j of k is set."""
    sums = [0]
    for node in nodes:
        sums += [total + units[node] for total in sums]
    return sums
