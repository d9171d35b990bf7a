"""Re-check a certificate of components with plain integer arithmetic; nothing here knows how it was found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lawful.errors import CertificateError

INPUT, HIDDEN, OUTPUT, CONSTANT = range(4)


def statement(locked: int) -> str:
    """What a certificate with this many locked edges says."""
    if not locked:
        return "the invariant set is connected: no edge is locked"
    edges = "1 edge is" if locked == 1 else f"{locked} edges are"
    return f"the invariant set has exactly 2^{locked} connected components: {edges} locked"


def verify(certificate: Mapping[str, Any]) -> None:
    """Raise `CertificateError` unless the certificate proves its statement.

    Locked: the set T sends nothing out except by the locked edge e, so summing `B̃x = c` over T gives
    `x_e ≥ −Σ_T c > 0` (or the mirror image). Free: a flow `x ≥ 0` of balance c, to within the tolerance, has `x_e = 0`.
    Any other edge leaves a neuron with other ways out and enters one with other ways in (P0 Propositions 3 and 4).
    """
    try:
        roles, edges, balance = _graph(certificate)
        locked = _locked(certificate, roles, edges, balance)
        freed = _freed(certificate, edges, balance)
        out_degree, in_degree = [0] * len(roles), [0] * len(roles)
        for tail, head in edges:
            out_degree[tail] += 1
            in_degree[head] += 1
        for number, (tail, head) in enumerate(edges):
            single = (roles[tail] == HIDDEN and out_degree[tail] == 1) or (
                roles[head] == HIDDEN and in_degree[head] == 1
            )
            _need(number in locked or number in freed or not single, f"edge {number} is neither locked nor freed")
        _need(not locked & freed, "an edge is both locked and freed")
        _need(certificate["log2_components"] == len(locked), f"{len(locked)} edges are locked, not the number stated")
        _need(certificate["connected"] is (not locked), "the stated answer does not follow")
        _need(certificate["statement"] == statement(len(locked)), "the statement does not follow")
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise CertificateError(f"the certificate is malformed: {type(error).__name__} {error}") from None


def _need(condition: bool, otherwise: str) -> None:
    if not condition:
        raise CertificateError(otherwise)


def _whole(value: Any) -> int:
    _need(isinstance(value, int) and not isinstance(value, bool), f"{str(value)[:40]!r} is not a whole number")
    return int(value)


def _graph(certificate: Mapping[str, Any]) -> tuple[list[int], list[tuple[int, int]], dict[int, int]]:
    """Roles, edges and balance by node; the graph must be acyclic and every hidden node have a way in and out."""
    roles = [_whole(role) for role in certificate["roles"]]
    edges = [(_whole(tail), _whole(head)) for tail, head in certificate["edges"]]
    _need(len(set(certificate["nodes"])) == len(certificate["nodes"]) == len(roles), "nodes and roles do not match")
    _need(all(0 <= role <= CONSTANT for role in roles), "an unknown role")
    _need(all(0 <= end < len(roles) for edge in edges for end in edge), "an edge names a node that does not exist")
    _need(len(set(edges)) == len(edges), "an edge appears twice")
    _need(all(roles[head] in (HIDDEN, OUTPUT) and roles[tail] != OUTPUT for tail, head in edges), "a wrong edge")
    hidden = [node for node, role in enumerate(roles) if role == HIDDEN]
    _need({tail for tail, _ in edges} >= set(hidden) <= {head for _, head in edges}, "a hidden node is cut off")
    _acyclic(len(roles), edges)
    units = [_whole(unit) for unit in certificate["balance"]]
    _need(len(units) == len(hidden), f"{len(hidden)} hidden nodes but {len(units)} balances")
    _need(_whole(certificate["denominator"]) > 0, "the denominator is not positive")
    _need(_whole(certificate["tolerance"]) >= 0, "the tolerance is negative")
    return roles, edges, dict(zip(hidden, units, strict=True))


def _acyclic(count: int, edges: Sequence[tuple[int, int]]) -> None:
    waiting = [0] * count
    leaving: list[list[int]] = [[] for _ in range(count)]
    for tail, head in edges:
        waiting[head] += 1
        leaving[tail].append(head)
    done = [node for node in range(count) if not waiting[node]]
    for node in done:
        for head in leaving[node]:
            waiting[head] -= 1
            if not waiting[head]:
                done.append(head)
    _need(len(done) == count, "the graph has a cycle")


def _locked(
    certificate: Mapping[str, Any], roles: list[int], edges: list[tuple[int, int]], balance: dict[int, int]
) -> set[int]:
    out_of: dict[int, list[int]] = {}
    into: dict[int, list[int]] = {}
    for number, (tail, head) in enumerate(edges):
        out_of.setdefault(tail, []).append(number)
        into.setdefault(head, []).append(number)
    found = set()
    for lock in certificate["locked"]:
        edge, side, nodes = _whole(lock["edge"]), lock["side"], {_whole(node) for node in lock["nodes"]}
        _need(side in ("out", "in") and edge >= 0 and edge not in found, f"lock of edge {edge} is malformed")
        _need(all(roles[node] == HIDDEN for node in nodes), f"edge {edge}: a node of the stable set is not hidden")
        near, far, sign = (out_of, 1, -1) if side == "out" else (into, 0, 1)
        crossing = {other for node in nodes for other in near[node] if edges[other][far] not in nodes}
        _need(crossing == {edge}, f"edge {edge}: the set is not stable, other edges cross it")
        least = sign * sum(balance[node] for node in nodes)
        _need(least == _whole(lock["minimum"]), f"edge {edge}: the stable set gives another minimum")
        _need(least > certificate["tolerance"], f"edge {edge}: the minimum is not above the tolerance")
        found.add(edge)
    return found


def _freed(certificate: Mapping[str, Any], edges: list[tuple[int, int]], balance: dict[int, int]) -> set[int]:
    found: set[int] = set()
    for number, flow in enumerate(certificate["flows"]):
        squares = {_whole(edge): _whole(amount) for edge, amount in flow["squares"]}
        missing = dict(balance)
        for edge, amount in squares.items():
            _need(0 <= edge < len(edges) and amount >= 0, f"flow {number} has a negative square")
            tail, head = edges[edge]
            if head in missing:
                missing[head] -= amount
            if tail in missing:
                missing[tail] += amount
        wrong = sum(abs(amount) for amount in missing.values())
        _need(wrong <= certificate["tolerance"], f"flow {number} does not have the stated balance")
        frees = [_whole(edge) for edge in flow["frees"]]
        _need(all(0 <= edge < len(edges) and not squares.get(edge) for edge in frees), f"flow {number} is not zero")
        found.update(frees)
    return found
