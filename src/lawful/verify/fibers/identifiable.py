"""Whether a function determines its parameters, up to order and positive scale of the neurons.

No: other parameters of the same shape have the same function, and are no reordering and rescaling: what these leave
alone differs. Yes, one hidden ReLU layer (P4 Section 4): every hyperplane shows and belongs to one neuron, so only
orientation could change, which leaves the linear part `Σ_J a_j ⊗ w_j` (output biases absorb constants); no set J makes
that vanish; where neurons face each other, all roles are looked at. Yes, a first layer of one neuron: `_check_ramp`.
Yes, two hidden ReLU layers, the first of 2 or more neurons but no wider than the input (P4 Theorem 5): the same above
it, and a ridge fixes each neuron below, or all masked products have full rank.
"""

from __future__ import annotations

import hashlib
from itertools import combinations
from math import comb
from typing import Any

from flint import fmpq_mat, nmod_mat

from lawful.verify.core.finding import Finding
from lawful.verify.core.layers import CheckedStack, Row, compose, read_layers
from lawful.verify.core.numbers import ONE, ZERO, fraction
from lawful.verify.core.schema import integer, items, limit_sums, object_with_keys, require, spend, truth
from lawful.verify.fibers.agreement import agreement, hides

# A filter alone: sums that vanish vanish modulo it too, and those that meet by chance are compared exactly. What is
# independent modulo it is independent.
PRIME = 2**61 - 1
MOST_LISTED = 32  # neurons whose subsets are all looked at, by halves
# Of exact comparisons, which only someone who knows the multipliers can make many.
MOST_HITS = 1000
MOST_MASKED = 12  # neurons and outputs of a bottleneck whose masked products are all looked at
MOST_COUNTED = 10_000  # assignments of roles that are looked at one by one


def check(body: dict[str, Any]) -> Finding:
    """The verdict, and among which parameters it holds."""
    listing = " twins complete" if {"twins", "complete"} & set(body) else ""  # both or neither
    parts = object_with_keys(body, "certificate", f"network identifiable other witness ridges{listing}")
    net, digest = read_layers(parts["network"])
    if not truth(parts["identifiable"], "identifiable"):
        return Finding(_check_no(parts, net), (digest,))
    require(parts["other"] is None and parts["witness"] is None, "other parameters do not go with the answer yes")
    require("twins" not in parts and "complete" not in parts, "twins do not go with the answer yes")
    require(all(slope == 0 for slope in net.slopes), "the theorems are about ReLU")
    among = "all parameters of its shape"
    if len(net.layers) == 2:
        require(parts["ridges"] is None, "one hidden layer needs no ridges")
        if _facing(net.layers[0]):
            require(count_parameters(net) == 1, "neurons can have other roles")
        else:
            _check_orientation(net, 1)
    elif len(net.layers) == 3 and len(net.layers[0]) == 1:
        require(parts["ridges"] is None, "a first layer of one neuron needs no ridges")
        _check_ramp(net)
        require(any(row[0] > 0 for row in net.layers[1]), "the first layer can be reversed")
        require(any(row[0] < 0 for row in net.layers[1]), "the first layer is hidden")
    else:
        _check_bottleneck(net, parts["ridges"])
        among = "generic parameters of its shape (P4 Definition 8)"
    return Finding({"identifiable": True, "among": among}, (digest,))


def _check_no(given: dict[str, Any], net: CheckedStack) -> dict[str, Any]:
    """Other parameters of the same function; or several, and whether they are all."""
    require(given["ridges"] is None, "ridges do not go with the answer no")
    listing = "twins" in given
    if listing:
        require(given["other"] is None and given["witness"] is None, "one other parameter does not go with several")
        twins = [
            object_with_keys(twin, "twins", "other witness") for twin in items(given["twins"], "twins", most=10_000)
        ]
        require(bool(twins), "there are no other parameters")
    else:
        require("complete" not in given, "one other parameter is not all of them")
        twins = [given]
    ways, seen, biased = set(), [_invariants(net)], False
    for twin in twins:
        other = _other(twin["other"], net)
        ways.add(agreement(twin["witness"], net, other, [(None, None)] * net.inputs, ZERO))
        invariants = _invariants(other)
        require(invariants not in seen, "nothing shows that the other parameters are no reordering and rescaling")
        seen.append(invariants)
        biases = zip(given["network"]["biases"], other.layers, strict=True)
        biased |= any(bias is None and any(row[-1] for row in rows) for bias, rows in biases)
    how = ", ".join(sorted(ways))
    whole_fiber = listing and truth(given.get("complete"), "complete")
    facts: dict[str, Any] = {"identifiable": False, "by": how, "more_biases": biased}
    if listing:
        if whole_fiber:
            require(_count_all(net) == len(seen), "there are more parameters of this function, or fewer")
        facts |= {"others": len(twins), "complete": whole_fiber}
    return facts


def _count_all(net: CheckedStack) -> int:
    """How many parameters have the function: of one hidden layer, or of one first neuron that all others fall with."""
    if len(net.layers) == 2:
        return count_parameters(net)
    require(len(net.layers) == 3 and len(net.layers[0]) == 1, "nobody knows all parameters of this function")
    require(all(slope == 0 for slope in net.slopes), "the theorems are about ReLU")
    _check_ramp(net)
    require(all(row[0] < 0 for row in net.layers[1]), "the first layer cannot be reversed")
    return 2


def _check_ramp(net: CheckedStack) -> None:
    """A first layer of one neuron: the function bends once there and once for each second-layer neuron, no set of which
    can be reversed. Then its first bend is the first layer's; or its last, if the function is constant there too.
    """
    first, second, _ = net.layers
    require(any(first[0][:-1]), "the first layer is constant")
    for j, (weight, bias) in enumerate(second):
        require((weight > 0) is (bias < 0) and weight != 0 and bias != 0, f"second-layer neuron {j} does not bend")
    _check_orientation(net, 2)


def _plane(row: Row, where: str) -> tuple[Row, Any]:
    """The hyperplane of a neuron as a row whose first nonzero entry is 1, and the factor that was taken out."""
    require(any(row[:-1]), f"{where} is constant")
    pivot = next(entry for entry in row if entry)
    return [entry / pivot for entry in row], pivot


def _facing(rows: list[Row]) -> bool:
    """Whether two neurons share a hyperplane."""
    return len({tuple(_plane(row, "a neuron")[0]) for row in rows}) < len(rows)


def _other(value: object, net: CheckedStack) -> CheckedStack:
    """Other parameters, as fractions; the shape and the slopes are the network's."""
    rows = items(value, "other", length=len(net.layers))
    layers = tuple(
        [
            [fraction(entry, "other") for entry in items(row, "other", length=len(like[0]))]
            for row in items(one, "other")
        ]
        for one, like in zip(rows, net.layers, strict=True)
    )
    limit_sums((entry for layer in layers for row in layer for entry in row), 20.0 * len(net.entries))
    other = CheckedStack(net.inputs, layers, net.slopes)
    require(other.widths == net.widths, "the other parameters have another shape")
    return other


def _invariants(net: CheckedStack) -> list[Any]:
    """What reordering and positive rescaling of neurons leave alone: rows of sum 1, each layer without its order.

    What a neuron without weights and bias sends on is left out: its scale is free.
    """
    invariants: list[Any] = []
    scales = [ONE] * net.inputs
    for layer, rows in enumerate(net.layers):
        last = layer == len(net.layers) - 1
        lines, sizes = [], []
        for row in rows:
            line = [weight * scale for weight, scale in zip(row[:-1], scales, strict=True)] + [row[-1]]
            size = sum((abs(entry) for entry in line), ZERO)
            factor = ONE if last or not size else ONE / size
            scaled = [factor * entry for entry in line]
            lines.append([*(scaled[:-1] if not layer else sorted(scaled[:-1])), scaled[-1]])
            sizes.append(size)
        invariants.append(lines if last else sorted(lines))
        scales = sizes
    return invariants


def _terms(net: CheckedStack, layer: int) -> list[Row]:
    """`a_j ⊗ w_j` of every neuron of a hidden layer."""
    rows, above = net.layers[layer - 1], net.layers[layer]
    return [[head[j] * entry for head in above for entry in row[:-1]] for j, row in enumerate(rows)]


def _check_orientation(net: CheckedStack, layer: int) -> None:
    """Every hyperplane of the layer shows and belongs to one neuron, and no set of neurons can be reversed."""
    rows, above = net.layers[layer - 1], net.layers[layer]
    spend(20.0 * len(rows) ** 2 * (len(rows[0]) + len(above)))
    for j in range(len(rows)):
        require(any(head[j] for head in above), f"layer {layer}: neuron {j} reaches no output")
    require(not _facing(rows), f"layer {layer}: two neurons share a hyperplane")
    terms = _terms(net, layer)
    spend(float(len(terms)) ** 2 * len(terms[0]))
    if not _has_rank(terms, len(terms)):  # independent terms have no sum that vanishes
        _check_no_sum(terms)


def _has_rank(matrix: list[Row], rank: int) -> bool:
    """Whether a matrix has the largest rank that it can have.

    It does if its image modulo the prime does, whose rank is no larger; else rationals decide, whose digits grow.
    """
    image = nmod_mat(len(matrix), len(matrix[0]), [_residue(entry) for row in matrix for entry in row], PRIME)
    return bool(image.rank() == rank or fmpq_mat(matrix).rank() == rank)


def _residue(number: Any) -> int:
    bottom = int(number.q) % PRIME
    require(bottom != 0, "a denominator is a multiple of the prime of the check")
    return int(number.p) * pow(bottom, -1, PRIME) % PRIME


def _check_no_sum(terms: list[Row]) -> None:
    """No set of terms adds up to zero: sums of halves are compared modulo a prime, and where they meet, exactly."""
    require(len(terms) <= MOST_LISTED, f"{len(terms)} dependent neurons are too many to look at all sets of them")
    spend(200.0 * 2 ** (len(terms) / 2 + 1) + 10.0 * sum(len(term) for term in terms))
    factors = [int.from_bytes(hashlib.sha256(b"%d" % k).digest()[:7], "big") + 1 for k in range(len(terms[0]))]
    keys = [sum(f * x for f, x in zip(factors, map(_residue, term), strict=True)) % PRIME for term in terms]
    half = len(keys) // 2
    table: dict[int, list[int]] = {}
    for chosen, total in enumerate(_sums(keys[:half])):
        table.setdefault(total, []).append(chosen)
    hits = 0
    for second, total in enumerate(_sums(keys[half:])):
        for first in table.get(-total % PRIME, ()):
            members = [k for k in range(len(keys)) if (first | second << half) >> k & 1]
            if members:
                hits += 1
                require(hits <= MOST_HITS, "too many sets of neurons may be reversible")
                total_of = [sum((terms[k][place] for k in members), ZERO) for place in range(len(terms[0]))]
                require(any(total_of), "some neurons can be reversed together")


def _sums(keys: list[int]) -> list[int]:
    sums = [0]
    for key in keys:
        sums += [(total + key) % PRIME for total in sums]
    return sums


def _check_bottleneck(net: CheckedStack, value: object) -> None:
    require(len(net.layers) == 3, "the theorem is about two hidden layers")
    first, second, heads = net.layers
    require(len(first) >= 2, "the theorem does not hold for a first layer of one neuron")
    require(len(first) <= net.inputs, "the first layer is wider than the input")
    spend(20.0 * len(first) ** 2 * net.inputs + 20.0 * len(first) ** 2 * len(second) * len(heads))
    require(_has_rank([row[:-1] for row in first], len(first)), "the first layer's weights are dependent")
    for j, row in enumerate(second):
        require(any(entry < 0 for entry in row), f"second-layer neuron {j} is linear on what it sees")
        require(any(entry > 0 for entry in row), f"second-layer neuron {j} is dead")
    for i in range(len(first)):
        require(any(row[i] for row in second), f"first-layer neuron {i} is heard by nobody")
        require(not hides(net, 1, i), f"the second layer hides hyperplane {i}")
    _check_orientation(net, 2)
    if value is None:
        _check_masks(second, heads)
        return
    fixed = set()
    for item in items(value, "ridges", most=10 * len(first)):
        parts = object_with_keys(item, "ridges", "first second values")
        neuron = integer(parts["first"], "ridges.first", 0, len(first) - 1)
        bent = integer(parts["second"], "ridges.second", 0, len(second) - 1)
        point = [fraction(entry, "other") for entry in items(parts["values"], "ridges.values", length=len(first))]
        limit_sums(point, 20.0 * len(net.entries))
        require(_is_ridge(second, heads, neuron, bent, point), f"a ridge does not fix first-layer neuron {neuron}")
        fixed.add(neuron)
    require(len(fixed) == len(first), "some first-layer neuron is fixed by no ridge")


def _check_masks(second: list[Row], heads: list[Row]) -> None:
    """P4 Definition 8 for a bottleneck: all masked products of full rank, no minor of `[W2 | b2]` zero."""
    width, count, outputs = len(second), len(second[0]) - 1, len(heads)
    require(width + count + outputs <= MOST_MASKED, "masked products are too many, and there are no ridges")
    for rows in _subsets(width):
        for columns in _subsets(count + 1):
            minor = [[second[j][k] for k in columns] for j in rows]
            require(_has_rank(minor, min(len(rows), len(columns))), "a minor of the second layer vanishes")
        for columns in _subsets(count):
            for outs in _subsets(outputs):
                product = [[sum((heads[o][j] * second[j][k] for j in rows), ZERO) for k in columns] for o in outs]
                most = min(len(rows), len(columns), len(outs))
                require(_has_rank(product, most), "a masked product has less than the largest rank")


def _rank(matrix: list[Row]) -> int:
    return int(fmpq_mat(matrix).rank())


def _subsets(count: int) -> list[list[int]]:
    return [[k for k in range(count) if chosen >> k & 1] for chosen in range(1, 1 << count)]


def _is_ridge(second: list[Row], heads: list[Row], neuron: int, bent: int, point: Row) -> bool:
    """Whether one hyperplane crosses the zero set of one second-layer neuron here and nothing else, all facets bent."""
    if any((value == 0) is not (place == neuron) for place, value in enumerate(point)):
        return False
    seen = [value if value > 0 else ZERO for value in point]
    sums = [total for (total,) in compose(second, [[value] for value in seen], 0)]
    if any((total == 0) is not (place == bent) for place, total in enumerate(sums)):
        return False
    # the zero set of the second-layer neuron must be there on both sides, and make an angle
    if not second[bent][neuron] or not any(w and v for w, v in zip(second[bent][:-1], seen, strict=True)):
        return False
    active = [j for j, total in enumerate(sums) if total > 0]
    jump = [sum((head[j] * second[j][neuron] for j in active), ZERO) for head in heads]
    beyond = [a + head[bent] * second[bent][neuron] for a, head in zip(jump, heads, strict=True)]
    return any(jump) and any(beyond) and any(head[bent] for head in heads)


# How many parameters of one hidden layer have a function, up to order and positive scale of the neurons


def count_parameters(net: CheckedStack) -> int:
    """All parameters of one hidden ReLU layer with this function, itself included; rejects infinitely many.

    A function of one hidden layer is `A x + c + Σ_H w_H relu(n_H·x + t_H)` in one way only (P4 Lemma 2). In a network
    of n neurons that has it, each of the p hyperplanes has a neuron: one alone, straight or turned, leaves 0 or `w_H
    n_H` of a linear map; two that face each other leave `B n_H` with any B; two elsewhere that cancel leave a matrix
    of rank one; the others nothing. The sum must be `−A`. So sets D of facing pairs and S of turned neurons belong to
    a network exactly if `|D| + 2 r ≤ n − p`, with r the rank of `−A − Σ_S w_H n_H` modulo the span of n_D. If in all
    of them |D| = n − p, and n_D are independent, each is one network: a pair with an idle neuron would show as a
    smaller D.
    """
    require(len(net.layers) == 2 and net.slopes[0] == 0, "roles are those of one hidden ReLU layer")
    rows, heads = net.layers
    planes: dict[tuple[Any, ...], int] = {}
    normals: list[Row] = []
    jumps: list[Row] = []
    goal = [[ZERO] * net.inputs for _ in heads]
    sides: set[tuple[int, bool]] = set()
    for j, row in enumerate(rows):
        unit, pivot = _plane(row, f"neuron {j}")
        place = planes.setdefault(tuple(unit), len(planes))
        if place == len(normals):
            normals.append(unit[:-1])
            jumps.append([ZERO] * len(heads))
        require((place, pivot > 0) not in sides, f"neuron {j} is a multiple of another")
        sides.add((place, pivot > 0))
        jumps[place] = [jump + head[j] * abs(pivot) for jump, head in zip(jumps[place], heads, strict=True)]
        if pivot < 0:  # relu(-z) = relu(z) - z
            goal = [
                [g - head[j] * e for g, e in zip(line, row[:-1], strict=True)]
                for line, head in zip(goal, heads, strict=True)
            ]
    require(all(any(jump) for jump in jumps), "neurons cancel: they can be moved together")
    return _count_roles(normals, jumps, goal, len(rows) - len(normals))


def _count_roles(normals: list[Row], jumps: list[Row], goal: list[Row], extra: int) -> int:
    planes = range(len(normals))
    many = sum(2 ** (len(normals) - size) * comb(len(normals), size) for size in range(extra + 1))
    require(many <= MOST_COUNTED, f"{many} assignments of roles are too many to look at all of them")
    spend(50.0 * many * len(goal) * len(normals[0]) * (len(goal) + extra))
    terms = [[[jump * entry for entry in normals[k]] for jump in jumps[k]] for k in planes]
    count = 0
    for size in range(extra + 1):
        for facing in combinations(planes, size):
            base = [normals[k] for k in facing]
            spanned = _rank(base) if base else 0
            alone = [k for k in planes if k not in facing]
            for bits in range(1 << len(alone)):
                turned = [k for place, k in enumerate(alone) if bits >> place & 1]
                left = [
                    [entry - sum((terms[k][o][x] for k in turned), ZERO) for x, entry in enumerate(line)]
                    for o, line in enumerate(goal)
                ]
                if size + 2 * (_rank([*base, *left]) - spanned) > extra:
                    continue
                require(size == extra and spanned == size, "infinitely many parameters have this function")
                count += 1
    return count
