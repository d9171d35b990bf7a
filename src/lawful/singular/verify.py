"""Re-check an answer about singular points without the code that found it: sums, closures and subsets by hand."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from lawful.errors import CertificateError
from lawful.network import Dag
from lawful.singular.existence import SingularPoints


def verify_points(dag: Dag, balance: Mapping[str, Fraction], found: SingularPoints) -> None:
    """Raise `CertificateError` unless the witness is a singular point, or every way to have one is refuted."""
    edges = [dag.edge_name(edge) for edge in range(dag.parameters)]
    hidden = {dag.names[node] for node in dag.hidden}
    c = {name: Fraction(balance[name]) for name in hidden}
    if found.exist:
        _check_witness(edges, hidden, c, found)
    elif found.exist is False:
        _check_none(edges, hidden, c, found)


def _check_witness(
    edges: list[tuple[str, str]], hidden: set[str], c: dict[str, Fraction], found: SingularPoints
) -> None:
    witness = found.witness
    if witness is None or not witness.cut_off or not set(witness.cut_off) <= hidden:
        raise CertificateError("no neurons are named as cut off")
    inside = set(witness.cut_off)
    total = dict.fromkeys(hidden, Fraction(0))
    for (tail, head), square in witness.squares.items():
        if (tail, head) not in set(edges) or square < 0:
            raise CertificateError(f"{tail} -> {head} is no edge, or has a negative square")
        if square and (tail in inside) != (head in inside):
            raise CertificateError(f"{tail} -> {head} still joins the cut-off neurons to the others")
        if head in total:
            total[head] += square
        if tail in total:
            total[tail] -= square
    if total != c:
        raise CertificateError("the witness is not on H(c)")
    for (tail, head), weight in zip(edges, witness.parameter, strict=True):
        expected = float(witness.squares.get((tail, head), Fraction(0)))
        if abs(weight**2 - expected) > 1e-12 * expected:
            raise CertificateError("the parameter is not the square root of the witness")


def _check_none(edges: list[tuple[str, str]], hidden: set[str], c: dict[str, Fraction], found: SingularPoints) -> None:
    inner = [(tail, head) for tail, head in edges if tail in hidden and head in hidden]
    parts = _possible(inner, hidden, c)
    if sorted(map(sorted, parts)) != sorted(map(sorted, found.candidates)):
        raise CertificateError("other neurons than stated could be cut off")
    refuted = {frozenset(refutation.cut_off): refutation for refutation in found.refutations}
    for part in parts:
        for names in _zero_sums(sorted(part), c):
            if frozenset(names) not in refuted and len(_split(set(names), inner)) == 1:
                raise CertificateError(f"the balances of {', '.join(names)} sum to zero, and nothing refutes it")
    for refutation in found.refutations:
        inside = set(refutation.cut_off)
        side = inside if refutation.inside else hidden - inside
        blocked = set(refutation.blocked)
        total = sum((c[name] for name in blocked), Fraction(0))
        outer = set() if refutation.inside else {name for edge in edges for name in edge} - hidden
        allowed = [(a, b) for a, b in edges if (a in side or a in outer) and (b in side or b in outer)]
        crossing = any((a if refutation.forward else b) in blocked and (b if refutation.forward else a) not in blocked
                       for a, b in allowed)  # fmt: skip
        if not blocked <= side or crossing or not (total < 0 if refutation.forward else total > 0):
            raise CertificateError(f"{', '.join(refutation.cut_off)} is not refuted")


def _possible(inner: list[tuple[str, str]], hidden: set[str], c: dict[str, Fraction]) -> list[set[str]]:
    """Neurons that can be inside a set cut off, by the same rule as stated but one neuron at a time."""
    left = set(hidden)
    changed = True
    while changed:
        changed = False
        for name in sorted(left):
            if c[name] and not any(
                c[other] * c[name] < 0
                and (_path(other, name, inner, left) if c[name] > 0 else _path(name, other, inner, left))
                for other in left
            ):
                left.discard(name)
                changed = True
    return _split(left, inner)


def _path(start: str, goal: str, inner: list[tuple[str, str]], left: set[str]) -> bool:
    seen = {start}
    grown = True
    while grown:
        fresh = {head for tail, head in inner if tail in seen and head in left and head not in seen}
        seen |= fresh
        grown = bool(fresh)
    return goal in seen


def _split(names: set[str], inner: list[tuple[str, str]]) -> list[set[str]]:
    parts = [{name} for name in names]
    for tail, head in inner:
        if tail in names and head in names:
            first, second = (next(part for part in parts if end in part) for end in (tail, head))
            if first is not second:
                parts.remove(second)
                first |= second
    return parts


def _zero_sums(names: list[str], c: dict[str, Fraction]) -> list[tuple[str, ...]]:
    """Nonempty zero-sum subsets through a table of exact sums of the first half."""
    half = len(names) // 2
    table: dict[Fraction, list[tuple[str, ...]]] = {}
    for total, chosen in _all_sums(names[:half], c):
        table.setdefault(total, []).append(chosen)
    pairs = ((first, chosen) for total, chosen in _all_sums(names[half:], c) for first in table.get(-total, ()))
    return [(*first, *second) for first, second in pairs if first or second]


def _all_sums(names: list[str], c: dict[str, Fraction]) -> list[tuple[Fraction, tuple[str, ...]]]:
    sums: list[tuple[Fraction, tuple[str, ...]]] = [(Fraction(0), ())]
    for name in names:
        sums += [(total + c[name], (*chosen, name)) for total, chosen in sums]
    return sums
