"""Counting and finding laws: exact arithmetic beside FLINT, path enumeration and dense systems; cost against D."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import combinations, pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
from flint import nmod_mat

from benchmarks.harness import Row, best_of, compare
from lawful.api.figure_file import save
from lawful.conservation import count_laws
from lawful.conservation.closure.lie_closure import POINT, brackets
from lawful.conservation.fields.gradient import Gradients
from lawful.conservation.known.polynomial import polynomial_laws
from lawful.conservation.near_random_weights import training_laws
from lawful.exact import PRIME, rank, residues
from lawful.figure import Figure, Panel, Series
from lawful.network import Architecture
from reproduction.claims.laws import appendix_i

CURVE = (8, 12, 17, 24, 34)  # widths of n-n-n relu bias: D from 144 to 2380


def rows() -> Iterator[Row]:
    """The counts of P1 Appendix I, single large networks, polynomial laws, a module, and the cost curve."""
    texts = appendix_i(50, False, 1, depths=(2, 5), widths=(2, 10))
    texts += appendix_i(50, True, 2, depths=(2, 5), widths=(2, 6))
    yield compare("count and prove 100 architectures (P1 Appendix I)", lambda: [count_laws(text) for text in texts])
    yield compare("and find weights with exactly these laws, where there are gates", lambda: witnessed(texts), repeat=1)
    shape = (4, 4, 4)
    yield compare(
        "count 4-4-4 relu", lambda: count_laws("4-4-4 relu"), "enumerated paths", lambda: enumerated(shape), repeat=2
    )
    yield compare("count 10-10-10-10-10-10 relu bias (D = 550)", lambda: count_laws("10-10-10-10-10-10 relu bias"))
    yield compare("count 30-30-30-30 relu bias (D = 2790)", lambda: count_laws("30-30-30-30 relu bias"), repeat=1)
    yield compare("count 40-40-40-40 linear (D = 4800)", lambda: count_laws("40-40-40-40 linear"), repeat=1)
    matrix = np.random.default_rng(0).integers(0, PRIME, (1500, 1500))
    yield compare(
        "rank of 1500 x 1500 mod p", lambda: rank(matrix, PRIME), "FLINT, list included", lambda: flint(matrix)
    )
    yield compare("degree-2 laws of 5-5-5-5 linear", lambda: polynomial_laws("5-5-5-5 linear", 2))
    yield compare("degree-2 laws of 10-10-10-10-10 relu (D = 400)", lambda: polynomial_laws("10-10-10-10-10 relu", 2))
    yield compare(
        "degree-2 laws of 3-4-3 linear",
        lambda: polynomial_laws("3-4-3 linear", 2),
        "one dense system",
        lambda: dense("3-4-3 linear"),
    )
    yield module_row()
    yield from cost_curve()


def witnessed(texts: list[str]) -> int:
    """How many architectures have weights near which training conserves exactly what φ does."""
    found = [training_laws(count_laws(text)) for text in texts]
    return sum(one is not None and one.witness is not None for one in found)


def flint(matrix: Any) -> int:
    """The rank by FLINT, from a NumPy array."""
    return int(nmod_mat(*matrix.shape, matrix.ravel().tolist(), PRIME).rank())


def enumerated(widths: tuple[int, ...]) -> int:
    """D − dim (V + [V, V]) of a ReLU network from the gradient of every path and the bracket of every two."""
    starts = np.cumsum([0, *(a * b for a, b in pairwise(widths))])
    theta = residues(0, (0,), [0], int(starts[-1]), PRIME)[0].tolist()
    paths = [
        [int(starts[layer]) + a * widths[layer + 1] + b for layer, (a, b) in enumerate(pairwise(path))]
        for path in product(*(range(width) for width in widths))
    ]
    fields = [[_rest(theta, path, (edge,)) if edge in path else 0 for edge in range(len(theta))] for path in paths]
    turned = list(fields)
    for (p, x), (q, y) in combinations(list(zip(paths, fields, strict=True)), 2):
        line = [0] * len(theta)
        for path, other, sign in ((p, y, 1), (q, x, -1)):
            for a in path:
                line[a] += sign * sum(_rest(theta, path, (a, b)) * other[b] for b in path if b != a)
        turned.append([value % PRIME for value in line])
    return len(theta) - flint(np.array(turned))


def _rest(theta: list[int], path: list[int], without: tuple[int, ...]) -> int:
    total = 1
    for edge in path:
        if edge not in without:
            total = total * theta[edge] % PRIME
    return total


def dense(text: str) -> int:
    """The number of laws of degree 2 from one system for all monomials."""
    from lawful.exact import Dual

    dag = Architecture.parse(text).to_dag()
    pairs = [(a, b) for a in range(dag.parameters) for b in range(a, dag.parameters)]
    numbers = np.arange(len(pairs) + 3)
    family = Gradients(dag, PRIME)
    points = residues(0, (5,), numbers, dag.parameters, PRIME).T.copy()
    fields = family.field(Dual.constant(points, PRIME), family.draw((6,), numbers)).real
    system = np.array([points[a] * fields[b] + points[b] * fields[a] for a, b in pairs]) % PRIME
    return len(pairs) - flint(system)


def module_row() -> Row:
    """A module that is no graph, with about a thousand parameters."""
    import torch

    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.SiLU(), torch.nn.Linear(30, 12))
    return compare("count a SiLU module in float64 (D = 1002)", lambda: count_laws(module), repeat=1)


def cost_curve() -> Iterator[Row]:
    """Seconds of the fields and of the rank against D; the picture goes to out/laws-cost.svg."""
    sizes, field_times, rank_times = [], [], []
    for width in CURVE:
        dag = Architecture((width, width, width), bias=True).to_dag()
        family = Gradients(dag, PRIME)
        point = residues(0, (POINT,), [0], dag.parameters, PRIME)[0]
        start = time.perf_counter()
        values = brackets(family, point, 0, dag.parameters - width + 4)
        field_times.append(time.perf_counter() - start)
        rank_times.append(best_of(lambda values=values: rank(values, PRIME), 1))  # type: ignore[misc]
        sizes.append(dag.parameters)
        note = f"of which fields {field_times[-1]:.2g} s"
        yield Row(f"n-n-n relu bias, D = {sizes[-1]}", field_times[-1] + rank_times[-1], note=note)
    out = Path("out")
    out.mkdir(exist_ok=True)
    series = [Series(field_times, sizes, "fields"), Series(rank_times, sizes, "rank")]
    panel = Panel(series, x="parameters D", y="seconds", log_x=True, log_y=True)
    save(Figure("Cost of an exact count against D: the rank dominates.", [panel]), out / "laws-cost.svg")
