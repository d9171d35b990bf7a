"""Claims about connectedness: Theorem 1, its corollaries, and the number of components (P0 Section 3.2)."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from lawful.invariant_set import Apart, Components, WeightPath, components, find_path, generic_point
from lawful.invariant_set.locks.bottlenecks import Side
from lawful.network import Architecture, Dag
from reproduction.claim import Erratum, Outcome, Size, claim
from reproduction.claims.components_graphs import chained_graph, dense_graph, least_square, some_balance, some_graph
from reproduction.claims.extremes import largest


@claim(
    "p0-theorem-1",
    "Theorem 1, Proposition 12",
    "H(c) is connected iff no stable set of pure ancestors (descendants) of a bottleneck has a negative "
    "(positive) balance",
    size=Size("60 graphs of at most 11 hidden nodes", "600 graphs of at most 11 hidden nodes", "every DAG"),
)
def theorem_1(full: bool) -> Outcome:
    """Enumerate pure ancestors and stable sets from their definitions on small graphs, and ask a linear program too."""
    wrong = linear = connected = graphs = 0
    for seed in range(600 if full else 60):
        rng = np.random.default_rng(seed)
        graph = dense_graph(rng) if seed % 2 else chained_graph(rng, hidden=7, reach=4)
        if not len(graph.hidden):
            continue
        c = [unit if rng.random() < 0.4 else 0 for unit in some_balance(graph, seed)]
        found = components(graph, c)
        by_definition = _stable_sets_allow(graph, c, 1) and _stable_sets_allow(graph, c, -1)
        graphs += 1
        connected += found.connected
        wrong += found.connected != by_definition
        linear += by_definition != all(least_square(graph, c, edge) < 1e-7 for edge in range(graph.parameters))
    measured = {"graphs": graphs, "connected": connected, "wrong_verdicts": wrong, "theorem_against_lp": linear}
    return Outcome(wrong == linear == 0 and 0 < connected < graphs, measured)


def _stable_sets_allow(graph: Dag, c: list[int], sign: int) -> bool:
    """P0 Definition 2 and Theorem 1, word by word; `sign` −1 reverses edges and balance."""
    near, far = (graph.tails, graph.heads) if sign > 0 else (graph.heads, graph.tails)
    after: dict[int, list[int]] = {}
    for tail, head in zip(near.tolist(), far.tolist(), strict=True):
        after.setdefault(tail, []).append(head)
    hidden = graph.hidden.tolist()
    value = dict(zip(hidden, c, strict=True))

    def escapes(node: int, bottleneck: int) -> bool:
        """Whether some path from the node reaches the end without the bottleneck."""
        if node == bottleneck:
            return False
        return node not in value or any(escapes(head, bottleneck) for head in after[node])

    for bottleneck in (node for node in hidden if len(after[node]) == 1):
        pure = [node for node in hidden if not escapes(node, bottleneck)]
        for size in range(1, len(pure) + 1):
            for chosen in combinations(pure, size):
                stable = all(head in chosen for node in chosen if node != bottleneck for head in after[node])
                if stable and sign * sum(value[node] for node in chosen) < 0:
                    return False
    return True


@claim(
    "p0-components",
    "beyond Theorem 1",
    "H(c) has exactly 2^k components, k the number of locked edges: paths join two parameters exactly when "
    "the signs of all locked edges agree",
    size=Size("15 graphs, 66 pairs of points each", "120 graphs, 66 pairs of points each", "beyond the paper"),
    criterion="ours: the statement is not in the paper",
)
def count_components(full: bool) -> Outcome:
    """Draw parameters of every sign pattern, join them by explicit paths, and count the classes that remain."""
    joined = apart = wrong = pairs = 0
    residual = 0.0
    for seed in range(120 if full else 15):
        graph = some_graph(seed)
        c = some_balance(graph, seed)
        found = components(graph, c)
        points = [generic_point(graph, c, seed=draw) for draw in range(12)]
        for first, second in combinations(points, 2):
            path = find_path(first, second, tolerance=1e-9)
            pairs += 1
            wrong += isinstance(path, WeightPath) != _same_signs(found, first, second)
            if isinstance(path, WeightPath):
                joined += 1
                size = largest(float(sizes.max()) ** 2 for sizes in path.sizes)
                residual = largest(residual, path.residual(9) / size)
            else:
                apart += 1
                wrong += not isinstance(path, Apart) or not path.edges
    classes, expected = _classes(full)
    measured = {
        "pairs": pairs,
        "joined": joined,
        "apart": apart,
        "wrong": wrong,
        "relative_residual_on_paths": residual,
        "classes_found": classes,
        "two_to_the_k": expected,
    }
    return Outcome(wrong == 0 and joined > 0 < apart and residual < 1e-12 and classes == expected, measured)


def _same_signs(found: Components, first: Dag, second: Dag) -> bool:
    return all(first.theta[lock.edge] * second.theta[lock.edge] > 0 for lock in found.locked)


def _classes(full: bool) -> tuple[list[int], list[int]]:
    """For small networks, how many classes paths leave among parameters drawn with all signs, and 2^k."""
    classes, expected = [], []
    for text, c in (("2-3-2", [1, -2, 3]), ("2-2-1", [-1, 2]), ("2-3-1", [-1, -2, 1]), ("1-2-1", [3, -2])):
        graph = Architecture.parse(text).to_dag()
        kept: list[Dag] = []
        for draw in range(150 if full else 40):
            point = generic_point(graph, c, seed=draw)
            if all(isinstance(find_path(point, other), Apart) for other in kept):
                kept.append(point)
        classes.append(len(kept))
        expected.append(2 ** components(graph, c).log2_components)
    return classes, expected


@claim(
    "p0-corollary-1",
    "Corollary 1",
    "without bottleneck neurons H(c) is connected for every c",
    size=Size("12 networks without bottlenecks", "100 networks without bottlenecks", "every DAG without bottlenecks"),
)
def corollary_1(full: bool) -> Outcome:
    """Layered networks without a layer of width one, random balances, each edge deleted in a linear program."""
    disconnected = stuck = tried = 0
    for seed in range(100 if full else 12):
        rng = np.random.default_rng(seed)
        widths = rng.integers(2, 5, size=rng.integers(3, 6)).tolist()
        graph = Architecture(tuple(widths)).to_dag()
        c = rng.normal(size=len(graph.hidden)) * 10
        disconnected += not components(graph, c).connected
        edge = int(rng.integers(graph.parameters))
        stuck += least_square(graph, c, edge) > 1e-6
        tried += 1
    control = components(Architecture.parse("2-2-1").to_dag(), [-1, 1]).connected
    measured = {"balances": tried, "disconnected": disconnected, "edges_that_cannot_vanish": stuck}
    return Outcome(disconnected == stuck == 0 and not control, measured)


@claim(
    "p0-corollary-2",
    "Corollary 2",
    "for a fully connected MLP with hidden layers of two or more neurons the signs of c at the bottlenecks decide",
    size=Size("30 perceptrons", "300 perceptrons", "every perceptron with wider hidden layers"),
)
def corollary_2(full: bool) -> Outcome:
    """Compare with the general algorithm and with linear programs on the bottleneck edges."""
    wrong = connected = tried = linear = 0
    for seed in range(300 if full else 30):
        rng = np.random.default_rng(seed)
        widths = rng.integers(2, 6, size=rng.integers(1, 4)).tolist()
        ends = ((1, 1), (3, 1), (1, 3), (2, 2))[seed % 4]
        graph = Architecture((ends[0], *widths, ends[1])).to_dag()
        c = rng.integers(-1, 3, len(graph.hidden)) * rng.choice([-1, 1])
        out = graph.out_degree[graph.hidden] == 1
        into = graph.in_degree[graph.hidden] == 1
        by_signs = bool((c[out] >= 0).all() and (c[into] <= 0).all())
        found = components(graph, c.tolist())
        wrong += found.connected != by_signs
        linear += any(
            abs(least_square(graph, c.tolist(), edge) - least) > 1e-7 for edge, least in list(found.minima.items())[:3]
        )
        connected += by_signs
        tried += 1
    measured = {"networks": tried, "connected": connected, "wrong": wrong, "against_lp": linear}
    return Outcome(wrong == linear == 0 and 0 < connected < tried, measured)


def _pure_ancestors(side: Side, bottleneck: int) -> list[int]:
    """The pure ancestors of a bottleneck (pure descendants on the `in` side), itself first."""
    members = [bottleneck]
    for member in members:
        members.extend(side.children.get(member, ()))
    return members


@claim(
    "p0-lemma-1-cases",
    "Lemma 1, proof, case 3",
    "an edge from an out-bottleneck v to an in-bottleneck w needs both of their sets, which are disjoint; its least "
    "square is the larger of the two bounds",
    erratum=Erratum(
        "the third case is a single neuron that is in- and out-bottleneck, with both of its sets meeting in it alone",
        "the third case is an edge whose tail is an out-bottleneck and whose head is an in-bottleneck",
        "edges of random graphs counted case by case; pure ancestors and descendants intersected; linear programs",
    ),
    size=Size("60 random graphs", "300 random graphs", "every DAG"),
)
def lemma_1_cases(full: bool) -> Outcome:
    """Count the edges that no printed case covers, and check the corrected case on them."""
    uncovered = meeting = wrong = between = 0
    for seed in range(300 if full else 60):
        graph = some_graph(seed)
        c = some_balance(graph, seed)
        out, into = Side(graph, "out"), Side(graph, "in")
        place = {node: number for number, node in enumerate(graph.hidden.tolist())}
        minima = components(graph, c).minima
        for edge, (tail, head) in enumerate(zip(graph.tails.tolist(), graph.heads.tolist(), strict=True)):
            above, below = place.get(tail), place.get(head)
            if above is None or below is None or not (out.bottleneck[above] and into.bottleneck[below]):
                continue
            between += 1
            uncovered += not into.bottleneck[above]
            meeting += bool(set(_pure_ancestors(out, above)) & set(_pure_ancestors(into, below)))
            wrong += abs(least_square(graph, c, edge) - minima[edge]) > 1e-7
    measured = {
        "edges_between_two_bottlenecks": between,
        "covered_by_no_printed_case": uncovered,
        "sets_that_meet": meeting,
        "wrong_barriers": wrong,
    }
    return Outcome(between > 0 and meeting == wrong == 0, measured, printed_holds=uncovered == 0)


CLAIMS = (theorem_1, count_components, corollary_1, corollary_2, lemma_1_cases)
