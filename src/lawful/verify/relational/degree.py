"""How often a program multiplies a parameter with itself between two functions that are no polynomials.

What is compared is a polynomial in the entries of parameters; functions such as ReLU give new variables for it. Its
degree in each parameter is at most what is counted here, and so many products are enough (`weights.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from lawful.verify.relational.program import ListedNode, ListedProgram

K = TypeVar("K", str, int)
N = TypeVar("N", int, float)
Degree = dict[str, int]
MOST = 12


def count_degree(program: ListedProgram, leaves: Mapping[str, Degree]) -> tuple[int, list[bool]]:
    """The largest degree of what is compared, and which nodes hold no parameter of several factors.

    `leaves` are the degrees of parameters after folds.
    """
    values: list[Degree] = []
    most = 1
    for node in program.nodes:
        inside = [values[k] for k in node.operands]
        most = max(most, *(2 * each if node.op == "normalise" else each for one in inside for each in one.values()), 1)
        values.append(_degree(node, inside, leaves))
        most = max(most, *values[-1].values(), 1)
    return most, [not each for each in values]


def _degree(node: ListedNode, inside: list[Degree], leaves: Mapping[str, Degree]) -> Degree:
    if node.op == "parameter":
        return dict(leaves[node.attributes["name"]])
    if node.op in ("take", "add", "sum", "cast", "detach", "normalise", "not"):
        return largest(inside)
    if node.op in ("mul", "contract", "conv", "and", "xor", "or"):
        return total(inside)
    if node.op == "where":
        return total([inside[0], largest(inside[1:])])
    if node.op == "lookup":
        return dict(inside[0])  # positions are variables of their own
    if node.op == "power" and _is_whole(node.attributes["exponent"]):
        return {name: int(node.attributes["exponent"]) * each for name, each in inside[0].items()}
    return {}


def _is_whole(exponent: float) -> bool:
    return exponent == int(exponent) and 0 <= exponent <= 64


def largest(several: Sequence[Mapping[K, N]]) -> dict[K, N]:
    """The largest number of each key: of sums."""
    found: dict[K, N] = {}
    for each in several:
        for key, value in each.items():
            found[key] = max(found.get(key, value), value)
    return found


def total(several: Sequence[Mapping[K, N]]) -> dict[K, N]:
    """The sum of the numbers of each key: of products."""
    found: dict[K, N] = {}
    for each in several:
        for key, value in each.items():
            found[key] = found[key] + value if key in found else value
    return found
