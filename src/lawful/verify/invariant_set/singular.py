"""Singular points of an invariant set: a witness on it, or every way to have one refuted, in rationals.

A singular point cuts off a set W of hidden neurons that meets its balances by its own inner edges, while the others
meet theirs without W; then `Σ_W c = 0`, and W may be taken connected (P0 Proposition 6).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from math import lcm
from typing import Any

from lawful.errors import Unsupported
from lawful.verify.core.dag import HIDDEN, CheckedDag, read_dag
from lawful.verify.core.finding import Finding
from lawful.verify.core.schema import (
    integer,
    integers,
    items,
    limit_cost,
    limit_sums,
    object_with_keys,
    rational,
    require,
    truth,
)
from lawful.verify.sentences import say_singular

MOST_LISTED = 40  # neurons among which zero-sum sets are listed: 2^20 sums on each side
Balances = dict[int, Fraction]


def check(body: dict[str, Any]) -> Finding:
    """Whether the invariant set of the network's own balance has a singular point."""
    given = object_with_keys(body, "certificate", "network balance exist cut_off squares refutations")
    dag = read_dag(given["network"])
    require((dag.weights is None) is not (given["balance"] is None), "a balance is prescribed, or that of the weights")
    balance = dag.balance if given["balance"] is None else _prescribed(given["balance"], dag)
    digests = (dag.digest(),)
    facts: dict[str, Any] = {"prescribed": dag.weights is None, "balance": list(balance.values())}
    if truth(given["exist"], "exist"):
        require(given["refutations"] is None, "a witness needs no refutations")
        facts |= {"exist": True, "cut_off": sorted(_witness(given, dag, balance))}
        return Finding(say_singular(facts, digests), facts, digests)
    require(given["cut_off"] is None and given["squares"] is None, "a witness does not go with the answer no")
    facts |= {"exist": False, "refuted": _none(given["refutations"], dag, balance)}
    return Finding(say_singular(facts, digests), facts, digests)


def _hidden_set(value: object, where: str, dag: CheckedDag) -> set[int]:
    found = integers(value, where, 0, len(dag.roles) - 1)
    require(all(dag.roles[node] == HIDDEN for node in found), f"{where}: a node is not hidden")
    require(len(set(found)) == len(found), f"{where}: a node appears twice")
    return set(found)


def _prescribed(value: object, dag: CheckedDag) -> Balances:
    given = items(value, "balance", length=len(dag.hidden))
    found = {node: rational(item, "balance") for node, item in zip(dag.hidden, given, strict=True)}
    limit_sums(found.values(), float(len(found)))
    return found


def _witness(given: dict[str, Any], dag: CheckedDag, balance: Balances) -> set[int]:
    """The neurons cut off, after showing that the squares are a point of the set that no edge joins to the others."""
    inside = _hidden_set(given["cut_off"], "cut_off", dag)
    require(bool(inside), "no neurons are cut off")
    total = dict.fromkeys(dag.hidden, Fraction(0))
    squares: dict[int, Fraction] = {}
    for item in items(given["squares"], "squares", most=len(dag.tails)):
        number, square = items(item, "squares", length=2)
        edge, amount = integer(number, "squares", 0, len(dag.tails) - 1), rational(square, "squares")
        require(edge not in squares and amount >= 0, f"edge {edge} appears twice or has a negative square")
        squares[edge] = amount
    limit_sums(squares.values(), 4.0 * len(squares))
    for edge, amount in squares.items():
        tail, head = dag.tails[edge], dag.heads[edge]
        require(not amount or (tail in inside) == (head in inside), f"edge {edge} joins the cut-off neurons to others")
        if head in total:
            total[head] += amount
        if tail in total:
            total[tail] -= amount
    require(total == balance, "the squares do not have the balance")
    return inside


def _none(value: object, dag: CheckedDag, balance: Balances) -> int:
    """How many connected zero-sum sets there are, after refuting each."""
    inner = [
        (tail, head) for tail, head in zip(dag.tails, dag.heads, strict=True) if tail in balance and head in balance
    ]
    stated = items(value, "refutations", most=100_000)
    limit_cost(20.0 * len(stated) * (len(dag.roles) + len(dag.tails)))
    refuted = {_refutation(item, dag, balance) for item in stated}
    count, steps = 0, 0.0
    for part in _possible(inner, balance):
        if len(part) > MOST_LISTED:
            raise Unsupported(f"{len(part)} neurons could take part, more than the {MOST_LISTED} that can be listed")
        longest = lcm(*(balance[node].denominator for node in part)).bit_length()  # of a sum as an integer
        longest += max(balance[node].numerator.bit_length() for node in part)
        steps += 40.0 * 2 ** (len(part) / 2) * (1 + longest / 64)  # memory too: all sums of one half are kept
        limit_cost(steps)
        for chosen in _zero_sums(sorted(part), balance):
            steps += 1000.0 + 50.0 * len(inner)
            limit_cost(steps)
            if len(_split(set(chosen), inner)) == 1:
                require(
                    frozenset(chosen) in refuted, f"neurons {list(chosen)[:6]} sum to zero, and nothing refutes them"
                )
                count += 1
    return count


def _refutation(item: object, dag: CheckedDag, balance: Balances) -> frozenset[int]:
    """A set that cannot be cut off: on one side nothing leaves (or enters) some neurons whose balance needs it."""
    given = object_with_keys(item, "refutations", "cut_off inside blocked forward")
    cut_off = _hidden_set(given["cut_off"], "refutations.cut_off", dag)
    blocked = _hidden_set(given["blocked"], "refutations.blocked", dag)
    inside = truth(given["inside"], "refutations.inside")
    forward = truth(given["forward"], "refutations.forward")
    side = cut_off if inside else set(dag.hidden) - cut_off
    require(blocked <= side, "a refutation blocks neurons of the other side")
    open_to = cut_off if inside else set(range(len(dag.roles))) - cut_off
    ends = dag.out_of if forward else dag.into
    crossing = any(end in open_to and end not in blocked for node in blocked for end, _ in ends[node])
    total = sum((balance[node] for node in blocked), Fraction(0))
    require(not crossing and (total < 0 if forward else total > 0), "a set is not refuted")
    return frozenset(cut_off)


def _possible(inner: list[tuple[int, int]], balance: Balances) -> list[set[int]]:
    """Neurons that can be cut off: with c > 0 only below one with c < 0 inside, and the mirror image."""
    left = set(balance)
    changed, steps = True, 0.0
    while changed:
        changed = False
        steps += 50.0 * len(inner)
        limit_cost(steps)
        for sign in (1, -1):
            links = [(a, b) if sign > 0 else (b, a) for a, b in inner if a in left and b in left]
            fed = _reached({node for node in left if balance[node] * sign < 0}, links)
            starved = {node for node in left if balance[node] * sign > 0} - fed
            left -= starved
            changed = changed or bool(starved)
    return _split(left, inner)


def _reached(start: set[int], links: Iterable[tuple[int, int]]) -> set[int]:
    follow: dict[int, list[int]] = {}
    for tail, head in links:
        follow.setdefault(tail, []).append(head)
    found, waiting = set(start), list(start)
    while waiting:
        for head in follow.get(waiting.pop(), ()):
            if head not in found:
                found.add(head)
                waiting.append(head)
    return found


def _split(nodes: set[int], inner: list[tuple[int, int]]) -> list[set[int]]:
    """The connected parts of some neurons."""
    both = [(a, b) for a, b in inner if a in nodes and b in nodes]
    both += [(b, a) for a, b in both]
    parts: list[set[int]] = []
    left = set(nodes)
    while left:
        part = _reached({left.pop()}, both)
        left -= part
        parts.append(part)
    return parts


def _zero_sums(nodes: list[int], balance: Balances) -> Iterator[tuple[int, ...]]:
    """Nonempty sets whose balances sum to zero, through a table of all sums of the first half; sets are bits."""
    common = lcm(*(balance[node].denominator for node in nodes))
    units = [int(balance[node] * common) for node in nodes]
    half = len(nodes) // 2
    table: dict[int, list[int]] = {}
    for chosen, total in enumerate(_all_sums(units[:half])):
        table.setdefault(total, []).append(chosen)
    for second, total in enumerate(_all_sums(units[half:])):
        for first in table.get(-total, ()):
            chosen = first | second << half
            if chosen:
                yield tuple(node for place, node in enumerate(nodes) if chosen >> place & 1)


def _all_sums(units: list[int]) -> list[int]:
    """The sum of every subset; subset k has member j if bit j of k is set."""
    sums = [0]
    for unit in units:
        sums += [total + unit for total in sums]
    return sums
