#!/usr/bin/env python3
"""A second checker of certificates, written from their specification (docs/certificates) alone.

One file, the standard library, integers and fractions; it shares no line and no library with `lawful verify`, and runs
wherever Python does: `python tools/second_checker.py CERTIFICATE.json`. (It is Python, and not a language in which less
can go wrong, because every user of the first checker can run and read it.) It prints `verified`, or why not. Exit codes
are those of the specification: 0 verified, 1 rejected, 2 not a certificate or too large; and 3: a kind, or a form of
networks, that it does not cover. Covered: components, path, pruning, rebalance, same, singular,
truncation-separation.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import struct
import sys
from fractions import Fraction
from itertools import pairwise

VERSIONS = {"components": 2, "path": 2, "pruning": 2, "rebalance": 1, "same": 2, "singular": 1,
            "truncation-separation": 1}  # fmt: skip
MOST_BYTES, MOST_DEPTH, MOST_DIGITS, MOST_STEPS = 50_000_000, 12, 4_000, 10**9
TEXT = re.compile(r"-?[0-9]{1,4000}(/[1-9][0-9]{0,3999})?")


class Rejected(Exception):
    """A condition fails."""


class Malformed(Exception):
    """Not a certificate."""


class NotCovered(Exception):
    """Left to the first checker."""


def must(fact, why):
    if not fact:
        raise Rejected(why)


def shape(fact, why):
    if not fact:
        raise Malformed(why)


# ----------------------------------------------------------------------------------------------------- JSON and numbers


class Double(float):
    """A number with a fraction or an exponent in the file."""


def parse(text):
    shape(len(text) <= MOST_BYTES, "too many bytes")

    def once(pairs):
        shape(len({key for key, _ in pairs}) == len(pairs), "a key twice")
        return dict(pairs)

    def real(word):
        shape(math.isfinite(float(word)), "a number overflows")
        return Double(float(word))

    def integer(word):
        shape(len(word) <= MOST_DIGITS, "an integer of too many digits")
        return int(word)

    def refuse(word):
        raise Malformed(f"{word} is no number")

    try:
        found = json.loads(text, object_pairs_hook=once, parse_float=real, parse_int=integer, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise Malformed("no JSON") from error
    level = [found]
    for _ in range(MOST_DEPTH):
        level = [each for outer in level for each in (outer.values() if isinstance(outer, dict) else outer)
                 if isinstance(each, (dict, list))]  # fmt: skip
    shape(not level, "nested too deeply")
    shape(isinstance(found, dict), "no object")
    return found


def record(value, *keys):
    shape(isinstance(value, dict) and set(value) == set(keys), f"no object with the keys {', '.join(keys)}")
    return [value[key] for key in keys]


def items(value, count=None):
    shape(isinstance(value, list) and (count is None or len(value) == count), "no list, or one of another length")
    return value


def whole(value, low=None, high=None):
    shape(type(value) is int, "no integer")
    shape((low is None or value >= low) and (high is None or value <= high), "an integer out of range")
    return value


def truth(value):
    shape(isinstance(value, bool), "neither true nor false")
    return value


def double(value):
    if type(value) is int:
        try:
            held = float(value)
        except OverflowError:
            raise Malformed("an integer that no double holds") from None
        shape(int(held) == value, "an integer that no double holds")
        return held
    shape(isinstance(value, Double), "no number")
    return float(value) + 0.0


def fraction(value):
    shape(isinstance(value, str) and TEXT.fullmatch(value) is not None, "no fraction")
    return Fraction(value)


def afford(steps):
    shape(steps <= MOST_STEPS, "too large")


# ------------------------------------------------------------------------------------------------------------- networks


class Graph:
    """A network of scalar weights."""

    def __init__(self, value):
        self.by_itself, self.places, self.other_laws = True, None, False
        roles, edges, slopes, weights = record(value, "roles", "edges", "slopes", "weights")
        self.roles = [whole(each, 0, 3) for each in items(roles)]
        count = len(self.roles)
        self.edges = [tuple(whole(end, 0, count - 1) for end in items(each, 2)) for each in items(edges)]
        self.hidden = [v for v, role in enumerate(self.roles) if role == 1]
        self.slopes = [double(each) for each in items(slopes, len(self.hidden))]
        self.weights = None if weights is None else [double(each) for each in items(weights, len(self.edges))]
        shape(0 in self.roles and 2 in self.roles and self.roles.count(3) <= 1, "no input, no output, or two constants")
        shape(len(set(self.edges)) == len(self.edges), "an edge twice")
        self.into = [[] for _ in self.roles]
        self.out = [[] for _ in self.roles]
        for number, (tail, head) in enumerate(self.edges):
            shape(self.roles[head] in (1, 2) and self.roles[tail] != 2, "an edge points the wrong way")
            self.into[head].append(number)
            self.out[tail].append(number)
        shape(all(self.into[v] and self.out[v] for v in self.hidden), "a hidden node that is no tail or no head")
        self.level = self._levels()

    def _levels(self):
        level, left = [0] * len(self.roles), [len(each) for each in self.into]
        ready, seen = [v for v, count in enumerate(left) if not count], 0
        while ready:
            v = ready.pop()
            seen += 1
            for edge in self.out[v]:
                head = self.edges[edge][1]
                level[head] = max(level[head], level[v] + 1)
                left[head] -= 1
                if not left[head]:
                    ready.append(head)
        shape(seen == len(self.roles), "a cycle")
        return level

    def digest(self):
        def place_of(role):
            return [v for v, each in enumerate(self.roles) if each == role]

        hidden = sorted(self.hidden, key=lambda v: (self.level[v], v))
        constant = [v for v in place_of(3) if self.out[v]]
        order = [*place_of(0), *hidden, *place_of(2), *constant]
        place = {v: number for number, v in enumerate(order)}
        slope = dict(zip(self.hidden, self.slopes, strict=True))
        edges = sorted((place[head], place[tail], number) for number, (tail, head) in enumerate(self.edges))
        counts = (len(place_of(0)), len(hidden), len(place_of(2)), len(constant), len(edges))
        data = b"lawful network 1\n" + b"".join(struct.pack("<q", each) for each in counts)
        data += b"".join(struct.pack("<d", slope[v] + 0.0) for v in hidden)
        data += b"".join(struct.pack("<qq", head, tail) for head, tail, _ in edges)
        if self.weights is None:
            return "architecture:" + hashlib.sha256(data).hexdigest()
        data += b"".join(struct.pack("<d", self.weights[number] + 0.0) for _, _, number in edges)
        return "network:" + hashlib.sha256(data).hexdigest()

    def flow(self, squares):
        """What squares of weights leave at each hidden node: those in less those out."""
        return {v: sum(squares[e] for e in self.into[v]) - sum(squares[e] for e in self.out[v]) for v in self.hidden}

    def squares(self):
        return [Fraction(weight) ** 2 for weight in self.weights]

    def balance(self):
        return self.flow(self.squares())

    def same_as(self, other):
        mine = self.roles, self.edges, self.slopes, self.places
        return mine == (other.roles, other.edges, other.slopes, other.places)


class Entries(Graph):
    """Entries of a module's tensors as edges: nodes 1 to n scale; parallel edges and circles are allowed."""

    def __init__(self, value):
        nodes, more, others, tensors = record(value, "nodes", "other_laws", "others", "tensors")
        count = whole(nodes, 0, 5_000_000)
        self.by_itself, self.other_laws = False, truth(more)
        self.roles = [0, *[1] * count, 2]
        self.hidden, self.slopes = list(range(1, count + 1)), [0.0] * count
        self.edges, self.weights, self.places, lines = [], [], [], {}
        shape(isinstance(others, dict), "no object of other tensors")
        for each in items(tensors):
            name, tensor, positions, tails, heads = record(each, "name", "tensor", "positions", "tails", "heads")
            shape(isinstance(name, str) and name not in lines, "a tensor without a name, or twice")
            lines[name], numbers = read_tensor(tensor)
            spots = [whole(spot, 0, len(numbers) - 1) for spot in items(positions)]
            shape(len(set(spots)) == len(spots), "an entry is an edge twice")
            ends = ([whole(end, 0, count + 1) for end in items(side, len(spots))] for side in (tails, heads))
            self.edges += list(zip(*ends, strict=True))
            self.places += [(name, spot) for spot in spots]
            self.weights += [numbers[spot] for spot in spots]
        shape(all(isinstance(line, str) and len(line) < 400 for line in others.values()), "tensors that are no lines")
        shape(not set(others) & set(lines), "a tensor twice")
        lines.update(others)
        self.name = hashlib.sha256(b"lawful weights 2\n")
        for name in sorted(lines):
            self.name.update(json.dumps([name, lines[name]]).encode() + b"\n")
        self.into = [[] for _ in self.roles]
        self.out = [[] for _ in self.roles]
        for number, (tail, head) in enumerate(self.edges):
            wrong = tail == count + 1 or head == 0 or (tail, head) == (0, count + 1)
            shape(not wrong, "an edge points the wrong way")
            self.into[head].append(number)
            self.out[tail].append(number)

    def digest(self):
        return "weights:" + self.name.hexdigest()


def read_tensor(value):
    """What stands for a tensor in a digest, and its numbers."""
    if isinstance(value, dict) and "line" in value:
        raise NotCovered("tensors that are held by their digests")
    dtype, sizes, data = record(value, "dtype", "shape", "data")
    kinds = {"float16": (2, "e"), "bfloat16": (2, None), "float32": (4, "f"), "float64": (8, "d")}
    shape(isinstance(dtype, str) and dtype in kinds, "an unknown type of numbers")
    sizes = [whole(each, 0, 10**7) for each in items(sizes)]
    shape(len(sizes) <= 8, "too many axes")
    try:
        raw = base64.b64decode(data, validate=True)
    except (TypeError, ValueError) as error:
        raise Malformed("no base64") from error
    width, code = kinds[dtype]
    count = math.prod(sizes)
    shape(len(raw) == count * width, "a tensor has other sizes than its data")
    if code is None:  # the upper half of a float32
        raw_wide = b"".join(b"\0\0" + raw[k : k + 2] for k in range(0, len(raw), 2))
        numbers = struct.unpack(f"<{count}f", raw_wide)
    else:
        numbers = struct.unpack(f"<{count}{code}", raw)
    shape(all(math.isfinite(each) for each in numbers), "a number that is not finite")
    return f"{dtype} {sizes} {hashlib.sha256(raw).hexdigest()}", numbers


def read_graph(value):
    return Entries(value) if isinstance(value, dict) and "tensors" in value else Graph(value)


def listed_squares(graph, value, read):
    """Amounts by edge; those not listed are 0."""
    found = [Fraction(0)] * len(graph.edges)
    named = set()
    for each in items(value):
        edge, amount = items(each, 2)
        edge, amount = whole(edge, 0, len(graph.edges) - 1), read(amount)
        must(edge not in named, "an edge twice")
        must(amount >= 0, "a square is negative")
        named.add(edge)
        found[edge] = Fraction(amount)
    return found


def check_lock(graph, value, balance, tolerance):
    """The edge of a set of hidden nodes that has no other way out (or in), and too much to keep."""
    edge, side, nodes = record(value, "edge", "side", "nodes")
    edge = whole(edge, 0, len(graph.edges) - 1)
    shape(side in ("out", "in"), "neither out nor in")
    inside = {whole(each, 0, len(graph.roles) - 1) for each in items(nodes)}
    must(all(graph.roles[v] == 1 for v in inside), "a node of a set is not hidden")
    if side == "out":
        crossing = {e for v in inside for e in graph.out[v] if graph.edges[e][1] not in inside}
    else:
        crossing = {e for v in inside for e in graph.into[v] if graph.edges[e][0] not in inside}
    must(crossing == {edge}, "other edges cross the set, or none")
    total = sum(balance[v] for v in inside)
    must((-total if side == "out" else total) > tolerance, "the edge may be zero")
    return edge


# ---------------------------------------------------------------------------------------------------------------- kinds


def components(body):
    network, denominator, units, tolerance, locked, flows, connected, log2 = record(
        body, "network", "denominator", "balance", "tolerance", "locked", "flows", "connected", "log2_components"
    )
    graph = read_graph(network)
    denominator, tolerance = whole(denominator, 1), whole(tolerance, 0)
    units = dict(zip(graph.hidden, [whole(each) for each in items(units, len(graph.hidden))], strict=True))
    if graph.weights is not None:
        actual = graph.balance()
        must(all(actual[v] * denominator == units[v] for v in graph.hidden), "the balance is not that of the weights")
    locks, freed = set(), set()
    for each in items(locked):
        edge = check_lock(graph, each, units, tolerance)
        must(edge not in locks, "an edge is locked twice")
        locks.add(edge)
    for each in items(flows):
        amounts, frees = record(each, "squares", "frees")
        squares = listed_squares(graph, amounts, whole)
        off = graph.flow(squares)
        must(sum(abs(units[v] - off[v]) for v in graph.hidden) <= tolerance, "a flow misses the balance")
        for edge in items(frees):
            edge = whole(edge, 0, len(graph.edges) - 1)
            must(squares[edge] == 0, "a flow is not zero where it frees")
            freed.add(edge)
    must(not locks & freed, "an edge is locked and free")
    for number, (tail, head) in enumerate(graph.edges):
        alone = (
            not graph.by_itself
            or (graph.roles[tail] == 1 and len(graph.out[tail]) == 1)
            or (graph.roles[head] == 1 and len(graph.into[head]) == 1)
        )
        settled = number in locks or number in freed or not alone or graph.other_laws
        must(settled, "an edge is neither locked nor free")
    log2 = whole(log2, 0)
    shape(connected is None or isinstance(connected, bool), "connected is no truth value")
    must(log2 == len(locks), "the number of components")
    must(connected is (False if locks else None if tolerance or graph.other_laws else True), "connected or not")
    return [graph.digest()]


def path(body):
    start, stop, joined, signs, waypoints, drift, locked = record(
        body, "start", "stop", "joined", "signs", "waypoints", "drift", "locked"
    )
    one, two = read_graph(start), read_graph(stop)
    shape(one.weights is not None and two.weights is not None, "no weights")
    must(one.same_as(two), "two graphs")
    balance, other = one.balance(), two.balance()
    if truth(joined):
        must(not one.other_laws and not two.other_laws, "a module has more laws")
        shape(locked is None, "locks of a path that is there")
        rows = [[whole(each, -1, 1) for each in items(row, len(one.edges))] for row in items(signs)]
        must(rows and all(each for row in rows for each in row), "no pieces, or a sign that is 0")
        points = [listed_squares(one, each, fraction) for each in items(waypoints, len(rows) - 1)]
        reach = fraction(drift)
        for graph, row in ((one, rows[0]), (two, rows[-1])):
            fits = all(weight * sign >= 0 for weight, sign in zip(graph.weights, row, strict=True))
            must(fits, "an end has other signs")
        for (before, after), point in zip(pairwise(rows), points, strict=True):
            turned = [e for e in range(len(one.edges)) if before[e] != after[e]]
            must(all(point[e] == 0 for e in turned), "a sign turns where the weight is not zero")
        for point in (one.squares(), *points, two.squares()):
            off = one.flow(point)
            must(sum(abs(off[v] - balance[v]) for v in one.hidden) <= reach, "a point is further off than the drift")
    else:
        shape(signs is None and waypoints is None and drift is None, "a path that is not there")
        apart = sum(abs(balance[v] - other[v]) for v in one.hidden)
        if locked is None:
            must(apart > 0, "one balance")
        else:
            must(items(locked), "no locks")
            seen = set()
            for each in locked:
                edge = check_lock(one, each, balance, apart)
                must(edge not in seen, "an edge is locked twice")
                seen.add(edge)
                must(opposite(one.weights[edge], two.weights[edge]), "one sign")
    return [one.digest(), two.digest()]


def opposite(a, b):
    """Strictly different signs; a product might underflow."""
    return (a < 0 < b) or (b < 0 < a)


def rebalance(body):
    before, after, factors, rounding, target, left_out, residual = record(
        body, "before", "after", "factors", "rounding", "target", "except", "residual"
    )
    one, two = Graph(before), Graph(after)
    shape(one.weights is not None and two.weights is not None, "no weights")
    must(one.same_as(two), "two graphs")
    count = len(one.hidden)
    listed = [Fraction(double(each)) for each in items(factors, count)]
    wanted = [Fraction(double(each)) for each in items(target, count)]
    skipped = {whole(each, 0, count - 1) for each in items(left_out)}
    rounding, residual = Fraction(double(rounding)), Fraction(double(residual))
    must(all(each > 0 for each in listed), "a factor is not positive")
    must(0 <= rounding < 1, "a rounding of 1")
    must(residual >= 0, "a residual below 0")
    factor = dict(zip(one.hidden, listed, strict=True))
    for (tail, head), old, new in zip(one.edges, one.weights, two.weights, strict=True):
        right = Fraction(old) * factor.get(head, 1) / factor.get(tail, 1)
        must(abs(Fraction(new) - right) <= rounding * abs(right), "a weight is not rescaled")
    balance = two.balance()
    for place, v in enumerate(two.hidden):
        must(place in skipped or abs(balance[v] - wanted[place]) <= residual, "the balance is not the target")
    return [one.digest(), two.digest()]


def singular(body):
    network, balance, exist, cut_off, squares, refutations = record(
        body, "network", "balance", "exist", "cut_off", "squares", "refutations"
    )
    graph = Graph(network)
    shape((balance is None) == (graph.weights is not None), "a balance beside weights, or none")
    c = (
        graph.balance()
        if balance is None
        else dict(zip(graph.hidden, [fraction(each) for each in items(balance, len(graph.hidden))], strict=True))
    )

    def nodes_of(value):
        found = [whole(each, 0, len(graph.roles) - 1) for each in items(value)]
        must(
            len(set(found)) == len(found) and all(graph.roles[v] == 1 for v in found),
            "nodes that are not hidden, or twice",
        )
        return frozenset(found)

    if truth(exist):
        shape(refutations is None, "refutations of a point that is there")
        cut = nodes_of(cut_off)
        must(cut, "nothing is cut off")
        amounts = listed_squares(graph, squares, fraction)
        for number, (tail, head) in enumerate(graph.edges):
            must(amounts[number] == 0 or (tail in cut) == (head in cut), "an edge joins the two sides")
        off = graph.flow(amounts)
        must(all(off[v] == c[v] for v in graph.hidden), "the balance is another one")
    else:
        shape(cut_off is None and squares is None, "a point that is not there")
        refuted = set()
        for each in items(refutations):
            own, inside, blocked, forward = record(each, "cut_off", "inside", "blocked", "forward")
            w, inside, b, forward = nodes_of(own), truth(inside), nodes_of(blocked), truth(forward)
            usable = w if inside else set(graph.hidden) - w
            others = w if inside else set(range(len(graph.roles))) - w
            must(b <= usable, "blocked nodes of the other side")
            reached = {
                graph.edges[e][1 if forward else 0] for v in b for e in (graph.out if forward else graph.into)[v]
            }
            must(not reached & (others - b), "a way out")
            total = sum(c[v] for v in b)
            must(total < 0 if forward else total > 0, "what is blocked may be there")
            refuted.add(w)
        for candidate in zero_sets(graph, c):
            must(candidate in refuted, "a set that is not refuted")
    return [graph.digest()]


def zero_sets(graph, c):
    """All connected sets of hidden nodes with balances that add up to zero, but for nodes that are in none."""
    inner = [(tail, head) for tail, head in graph.edges if graph.roles[tail] == 1 and graph.roles[head] == 1]
    left = set(graph.hidden)
    while True:
        fed = reach([v for v in left if c[v] < 0], inner, left)
        drained = reach([v for v in left if c[v] > 0], [(head, tail) for tail, head in inner], left)
        gone = {v for v in left if (c[v] > 0 and v not in fed) or (c[v] < 0 and v not in drained)}
        if not gone:
            break
        left -= gone
    beside = {v: set() for v in left}
    for tail, head in inner:
        if tail in left and head in left:
            beside[tail].add(head)
            beside[head].add(tail)
    waiting = set(left)
    while waiting:
        part = reach([min(waiting)], [(v, w) for v in beside for w in beside[v]], left)
        waiting -= part
        shape(len(part) <= 40, "too large")
        afford(40 * 2 ** (len(part) / 2))
        yield from connected_zero_sets(sorted(part), beside, c)


def reach(start, edges, allowed):
    out = {}
    for tail, head in edges:
        out.setdefault(tail, []).append(head)
    seen, waiting = set(start), list(start)
    while waiting:
        for head in out.get(waiting.pop(), ()):
            if head in allowed and head not in seen:
                seen.add(head)
                waiting.append(head)
    return seen


def connected_zero_sets(part, beside, c):
    """Every connected subset once: grown from its least node, each neighbour taken or left out for good."""
    steps = 0
    for root in part:
        later = {v for v in part if v > root}
        stack = [(frozenset([root]), c[root], frozenset(beside[root]) & later, frozenset())]
        while stack:
            chosen, total, border, left_out = stack.pop()
            steps += 1
            if steps > 2_000_000:
                raise NotCovered("too many connected sets")
            if not border:
                if total == 0:
                    yield chosen
                continue
            v = min(border)
            stack.append((chosen, total, border - {v}, left_out | {v}))
            more = (frozenset(beside[v]) & later) - chosen - left_out - {v}
            stack.append((chosen | {v}, total + c[v], (border - {v}) | more, left_out))


def separation(body):
    points, labels, answers = record(body, "points", "labels", "answers")
    table = [[Fraction(double(each)) for each in items(row)] for row in items(points)]
    shape(table and table[0] and len({len(row) for row in table}) == 1, "no points, or of several dimensions")
    labels = [whole(each, 0) for each in items(labels, len(table))]
    answers = items(answers)
    shape(len(answers) >= 2, "one cluster alone")
    must(set(labels) == set(range(len(answers))), "labels leave a number out")
    afford(20 * len(table) * len(table[0]) * (len(answers) + len(table[0]) * sum(
        isinstance(each, dict) and each.get("answer") == "frame" for each in answers)))  # fmt: skip
    for cluster, answer in enumerate(answers):
        inside = [row for row, label in zip(table, labels, strict=True) if label == cluster]
        outside = [row for row, label in zip(table, labels, strict=True) if label != cluster]
        check_answer(answer, inside, outside, len(table[0]))
    data = b"lawful numbers 1\n"
    for rows in (table, [[each] for each in labels]):
        data += struct.pack("<qq", len(rows), len(rows[0]))
        data += b"".join(struct.pack("<d", float(each) + 0.0) for row in rows for each in row)
    return []


def dot(u, v):
    return sum(a * b for a, b in zip(u, v, strict=True))


def parts(normal, inside, outside):
    return max(dot(normal, x) for x in inside) < min(dot(normal, y) for y in outside)


def check_answer(answer, inside, outside, size):
    shape(isinstance(answer, dict) and isinstance(answer.get("answer"), str), "no answer")
    kind = answer["answer"]
    if kind == "hyperplane":
        normal = [fraction(each) for each in items(record(answer, "answer", "normal")[1], size)]
        must(parts(normal, inside, outside), "a hyperplane does not part")
    elif kind == "common point":
        _, one, two = record(answer, "answer", "inside", "outside")
        made = []
        for given, side in ((one, inside), (two, outside)):
            shares = [fraction(each) for each in items(given, len(side))]
            must(all(each >= 0 for each in shares) and sum(shares) == 1, "no convex combination")
            made.append([dot(shares, column) for column in zip(*side, strict=True)])
        must(made[0] == made[1], "two points")
    elif kind == "frame":
        rows = [
            [Fraction(double(each)) for each in items(row, size)]
            for row in items(record(answer, "answer", "rotation")[1], size)
        ]
        basis = []
        for row in rows:
            for other in basis:
                share = dot(row, other) / dot(other, other)
                row = [a - share * b for a, b in zip(row, other, strict=True)]
            must(any(row), "no basis")
            basis.append(row)
            must(parts(row, inside, outside), "a vector of the frame does not part")
    elif kind == "obtuse pair":
        _, one, two = record(answer, "answer", "inside", "outside")
        i, j = (
            [whole(each, 0, len(side) - 1) for each in items(given, 2)]
            for given, side in ((one, inside), (two, outside))
        )
        u, v = ([a - b for a, b in zip(outside[j[k]], inside[i[k]], strict=True)] for k in (0, 1))
        must(dot(u, v) <= 0, "an acute angle")
    else:
        shape(kind == "undecided", "no known answer")
        record(answer, "answer")


# ----------------------------------------------------------------------------------------------- ranges, as (low, high)
# An end is None where there is no bound.


def times(weight, span):
    low, high = span if weight > 0 else span[::-1]
    return None if low is None else weight * low, None if high is None else weight * high


def plus(one, two):
    return tuple(None if a is None or b is None else a + b for a, b in zip(one, two, strict=True))


def image(span, slope):
    """What max(z, 0) + slope min(z, 0) makes of a range."""
    low, high = span
    if low is not None and low >= 0:
        return span
    if high is not None and high <= 0:
        return times(slope, span) if slope else (Fraction(0), Fraction(0))
    end = None if low is None else slope * low
    if slope > 0:
        return end, high
    if slope == 0:
        return Fraction(0), high
    return Fraction(0), None if high is None or end is None else max(high, end)


def combine(terms, start):
    """The range of a sum of weight times signal."""
    total = start
    for weight, span in terms:
        if weight != 0:
            total = plus(total, times(weight, span))
    return total


def furthest(span):
    must(span[0] is not None and span[1] is not None, "an unbounded value")
    return max(abs(span[0]), abs(span[1]))


# --------------------------------------------------------------------------------------------------- networks as layers


class Layers:
    """Rows of weights with the bias last, layer by layer, and the slopes of hidden layers."""

    def __init__(self, inputs, rows, slopes):
        self.inputs, self.rows, self.slopes = inputs, rows, slopes

    def width(self, layer):
        """The width of a layer; 0 is the input."""
        return len(self.rows[layer - 1]) if layer else self.inputs

    def size(self):
        return sum(len(row) for layer in self.rows for row in layer)

    def at(self, point):
        values = point
        for number, layer in enumerate(self.rows):
            values = [dot(row[:-1], values) + row[-1] for row in layer]
            if number < len(self.slopes):
                values = [z if z > 0 else self.slopes[number] * z for z in values]
        return values

    def ranges(self, domain, layer):
        """Of the values that enter a layer (from 1)."""
        values = domain
        for number in range(layer - 1):
            values = [image(self.sum_range(row, values), self.slopes[number]) for row in self.rows[number]]
        return values

    @staticmethod
    def sum_range(row, values):
        return combine(zip(row[:-1], values, strict=True), (row[-1], row[-1]))


def read_layers(value):
    """A network that is written as layers, and its graph."""
    weights, biases, slopes = record(value, "weights", "biases", "slopes")
    tables = [[[double(each) for each in items(row)] for row in items(table)] for table in items(weights)]
    shape(tables and all(table and table[0] for table in tables), "an empty layer")
    shape(all(len({len(row) for row in table}) == 1 for table in tables), "rows of several lengths")
    shape(all(len(a) == len(b[0]) for a, b in pairwise(tables)), "layers that do not fit")
    offsets = [
        None if each is None else [double(entry) for entry in items(each, len(table))]
        for each, table in zip(items(biases, len(tables)), tables, strict=True)
    ]
    slopes = [double(each) for each in items(slopes, len(tables) - 1)]
    sizes = [len(tables[0][0]), *(len(table) for table in tables)]
    first = [sum(sizes[:k]) for k in range(len(sizes) + 1)]
    biased = any(each is not None for each in offsets)
    roles = [0] * sizes[0] + [1] * sum(sizes[1:-1]) + [2] * sizes[-1] + [3] * biased
    edges, flat = [], []
    for layer, (table, offset) in enumerate(zip(tables, offsets, strict=True)):
        for head, row in enumerate(table):
            for tail, weight in enumerate(row):
                edges.append([first[layer] + tail, first[layer + 1] + head])
                flat.append(Double(weight))
        for head, bias in enumerate(offset or ()):
            edges.append([first[-1], first[layer + 1] + head])
            flat.append(Double(bias))
    leaks = [Double(slope) for slope, count in zip(slopes, sizes[1:-1], strict=True) for _ in range(count)]
    graph = Graph({"roles": roles, "edges": edges, "slopes": leaks, "weights": flat})
    rows = [
        [[*map(Fraction, row), Fraction(0 if offset is None else offset[k])] for k, row in enumerate(table)]
        for table, offset in zip(tables, offsets, strict=True)
    ]
    return Layers(sizes[0], rows, [Fraction(each) for each in slopes]), graph


def graph_as_layers(graph):
    """Level by level; a value that is needed later is carried, alone if it is never negative, else as a pair."""
    slope = dict(zip(graph.hidden, map(Fraction, graph.slopes), strict=True))
    depth = 1 + max((graph.level[v] for v in graph.hidden), default=0)
    level = [depth if role == 2 else graph.level[v] for v, role in enumerate(graph.roles)]
    until = [max((level[graph.edges[e][1]] for e in graph.out[v]), default=0) for v in range(len(level))]
    inputs = [v for v, role in enumerate(graph.roles) if role == 0]
    holds = {v: {place: Fraction(1)} for place, v in enumerate(inputs)}  # a value as a sum of the layer below
    width, rows, slopes, entries = len(inputs), [], [], 0
    for height in range(1, depth + 1):
        own = [v for v, role in enumerate(graph.roles) if level[v] == height and role == (2 if height == depth else 1)]
        leaks = {slope[v] for v in own} if height < depth else {Fraction(1)}
        must(len(leaks) == 1, "a level with two slopes")
        (leak,) = leaks
        table, now = [], {}
        for v in own:
            row = [Fraction(0)] * (width + 1)
            for e in graph.into[v]:
                tail = graph.edges[e][0]
                for place, share in ({width: Fraction(1)} if graph.roles[tail] == 3 else holds[tail]).items():
                    row[place] += share * Fraction(graph.weights[e])
            now[v] = {len(table): Fraction(1)}
            table.append(row)
        for v, shares in holds.items():
            if height < depth and until[v] > height:
                row = [shares.get(place, Fraction(0)) for place in range(width + 1)]
                if slope.get(v) == 0:
                    now[v] = {len(table): Fraction(1)}
                    table.append(row)
                else:
                    must(leak != -1, "nothing carries a value through the absolute value")
                    now[v] = {len(table): 1 / (1 + leak), len(table) + 1: -1 / (1 + leak)}
                    table += [row, [-entry for entry in row]]
        entries += len(table) * (width + 1)
        shape(entries <= 4_000_000, "too large")
        rows.append(table)
        slopes.append(leak)
        holds, width = now, len(table)
    return Layers(len(inputs), rows, slopes[:-1])


def read_network(value):
    """Layers and the digest of a network in either form."""
    if isinstance(value, dict) and "roles" in value:
        graph = Graph(value)
        must(graph.weights is not None, "no weights")
        return graph_as_layers(graph), graph.digest()
    layers, graph = read_layers(value)
    return layers, graph.digest()


def walk(decisions, nets, domain):
    """The affine maps of all networks in each region that the decisions lead to."""
    n = nets[0].inputs
    given = iter(items(decisions))
    identity = [[Fraction(int(i == k)) for i in range(n + 1)] for k in range(n)]
    walls = []
    for k, (low, high) in enumerate(domain):
        for sign, end in ((1, low), (-1, high)):
            if end is not None:
                walls.append([Fraction(sign * int(i == k)) for i in range(n)] + [-sign * end])

    def compose(row, values):
        total = [Fraction(0)] * n + [row[-1]]
        for weight, value in zip(row[:-1], values, strict=True):
            if weight:
                total = [a + weight * b for a, b in zip(total, value, strict=True)]
        return total

    # a state: half-spaces, maps of networks that are done, the layer, what enters it, its sums, the sides so far
    def enter(spaces, maps, layer, values):
        net = nets[len(maps)]
        return spaces, maps, layer, [compose(row, values) for row in net.rows[layer]], []

    stack, steps = [enter(walls, [], 0, identity)], 0
    while stack:
        spaces, maps, layer, sums, sides = stack.pop()
        net = nets[len(maps)]
        steps += net.size() * (n + 1) if len(sides) == len(sums) else 1
        afford(steps)
        if layer == len(net.rows) - 1:
            done = [*maps, sums]
            if len(done) == len(nets):
                yield done
            else:
                stack.append(enter(spaces, done, 0, identity))
            continue
        slope = net.slopes[layer]
        if slope == 1:
            sides = [True] * len(sums)
        if len(sides) == len(sums):
            after = [row if on else [slope * entry for entry in row] for row, on in zip(sums, sides, strict=True)]
            stack.append(enter(spaces, maps, layer + 1, after))
            continue
        row = sums[len(sides)]
        if not any(row[:-1]):
            stack.append((spaces, maps, layer, sums, [*sides, row[-1] > 0]))
            continue
        must((decision := next(given, None)) is not None, "too few decisions")
        opposite_row = [-entry for entry in row]
        if decision == "both":
            stack.append(([*spaces, opposite_row], maps, layer, sums, [*sides, False]))
            stack.append(([*spaces, row], maps, layer, sums, [*sides, True]))
            continue
        side, support = items(decision, 2)
        shape(side == "on" or side == "off", "neither on nor off")
        table = [*spaces, opposite_row if side == "on" else row]
        chosen = [table[whole(each, 0, len(table) - 1)] for each in items(support)]
        shape(len(chosen) <= n + 1, "a support of too many")
        must(no_common_point(chosen), "a side that may not be empty")
        stack.append((spaces, maps, layer, sums, [*sides, side == "on"]))
    must(next(given, None) is None, "decisions are left over")


def no_common_point(rows):
    """Farkas: one combination y >= 0 of the half-spaces, unique up to a factor, is `0 x + c > 0` with c <= 0."""
    if not rows:
        return False
    count, width = len(rows), len(rows[0]) - 1
    table = [[row[k] for row in rows] for k in range(width)]  # an equation a line, an unknown y a column
    pivots = []
    for column in range(count):
        line = next((k for k in range(len(pivots), width) if table[k][column]), None)
        if line is None:
            continue
        spot = len(pivots)
        table[spot], table[line] = table[line], table[spot]
        table[spot] = [entry / table[spot][column] for entry in table[spot]]
        for k in range(width):
            if k != spot and table[k][column]:
                table[k] = [a - table[k][column] * b for a, b in zip(table[k], table[spot], strict=True)]
        pivots.append(column)
    if len(pivots) != count - 1:
        return False
    (free,) = set(range(count)) - set(pivots)
    y = [Fraction(0)] * count
    y[free] = Fraction(1)
    for spot, column in enumerate(pivots):
        y[column] = -table[spot][free]
    return all(each >= 0 for each in y) and sum(a * row[-1] for a, row in zip(y, rows, strict=True)) <= 0


def check_same_maps(decisions, one, two, domain):
    for ours, theirs in walk(decisions, (one, two), domain):
        must(ours == theirs, "two maps in one region")


# ----------------------------------------------------------------------------------------------------------------- same


def rational(value):
    return fraction(value) if isinstance(value, str) else Fraction(double(value))


def read_side(net, layer, neuron):
    return whole(neuron, 0, net.width(layer) - 1)


def apply_step(net, step, domain):
    """The network after a step that keeps its function."""
    shape(isinstance(step, dict), "no step")
    do = step.get("do")
    keys = {"reorder": ["order"], "rescale": ["factors"], "drop": ["neuron"], "merge": ["keep", "drop"], "collapse": [],
            "translate": ["neuron", "shift"], "lift": ["neuron", "shift"], "flip": ["neuron", "flipped"]}  # fmt: skip
    shape(isinstance(do, str) and do in keys, "an unknown step")
    _, layer, *rest = record(step, "do", "layer", *keys[do])
    layer = whole(layer, 1, len(net.rows) - 1)
    rows, above = [list(row) for row in net.rows[layer - 1]], [list(row) for row in net.rows[layer]]
    leak, count = net.slopes[layer - 1], len(rows)
    if do == "reorder":
        order = [whole(each) for each in items(rest[0], count)]
        must(sorted(order) == list(range(count)), "no order")
        rows, above = [rows[k] for k in order], [[*(row[k] for k in order), row[-1]] for row in above]
    elif do == "rescale":
        factors = [rational(each) for each in items(rest[0], count)]
        must(all(each > 0 for each in factors), "a factor that is not positive")
        rows = [[f * entry for entry in row] for f, row in zip(factors, rows, strict=True)]
        above = [[*(w / f for w, f in zip(row[:-1], factors, strict=True)), row[-1]] for row in above]
    elif do == "drop":
        i = read_side(net, layer, rest[0])
        value = Fraction(0)
        if any(row[i] for row in above):
            low, high = image(net.sum_range(rows[i], net.ranges(domain, layer)), leak)
            must(low is not None and low == high, "a neuron that is read and not constant")
            value = low
        rows.pop(i)
        for row in above:
            row[-1] += row[i] * value
            row.pop(i)
    elif do == "merge":
        i, j = (read_side(net, layer, each) for each in rest)
        must(i != j, "a neuron with itself")
        pivot = next((k for k, entry in enumerate(rows[i]) if entry), None)
        must(pivot is not None, "a row of zeros")
        factor = rows[j][pivot] / rows[i][pivot]
        must(factor > 0 and rows[j] == [factor * entry for entry in rows[i]], "no positive multiple")
        rows.pop(j)
        for row in above:
            row[i] += factor * row[j]
            row.pop(j)
    elif do == "collapse":
        if leak != 1:
            values = net.ranges(domain, layer)
            lows = [net.sum_range(row, values)[0] for row in rows]
            must(all(low is not None and low >= 0 for low in lows), "a layer that bends")
        joined = []
        for head in above:
            row = [sum((head[k] * low[place] for k, low in enumerate(rows)), Fraction(0))
                   for place in range(net.width(layer - 1) + 1)]  # fmt: skip
            row[-1] += head[-1]
            joined.append(row)
        return Layers(net.inputs, [*net.rows[: layer - 1], joined, *net.rows[layer + 1 :]],
                      [*net.slopes[: layer - 1], *net.slopes[layer:]])  # fmt: skip
    elif do == "lift":
        i, shift = read_side(net, layer, rest[0]), rational(rest[1])
        low = net.sum_range(rows[i], net.ranges(domain, layer))[0]
        must(low is not None and low >= 0 and low + shift >= 0, "a neuron that is not always active")
        rows[i][-1] += shift
        for row in above:
            row[-1] -= shift * row[i]
    else:
        i = read_side(net, layer, rest[0])
        must(layer <= len(net.rows) - 2 and leak == 0 and net.slopes[layer] == 0 and above, "nothing is hidden here")
        for row in above:
            hidden = row[i] > 0 and all(entry <= 0 for k, entry in enumerate(row) if k != i)
            must(hidden, "a neuron that is not hidden")
        if do == "translate":
            shift = rational(rest[1])
            rows[i][-1] += shift
            for row in above:
                row[-1] -= shift * row[i]
                must(row[-1] <= 0, "a shift that uncovers")
        else:
            flipped = [whole(each, 0, count - 1) for each in items(rest[1])]
            must(len(set(flipped)) == len(flipped) and i not in flipped and len(above) == 1, "no flip")
            for k in flipped:
                share = above[0][k] / above[0][i]
                rows[i] = [a + share * b for a, b in zip(rows[i], rows[k], strict=True)]
                rows[k] = [-entry for entry in rows[k]]
    return Layers(net.inputs, [*net.rows[: layer - 1], rows, above, *net.rows[layer + 1 :]], net.slopes)


def same(body):
    networks, box, verdict, within, witness, example = record(
        body, "networks", "box", "verdict", "within", "witness", "counterexample"
    )
    (one, first), (two, second) = (read_network(each) for each in items(networks, 2))
    domain = [(None, None)] * one.inputs
    if box is not None:
        corners = [[Fraction(double(each)) for each in items(corner, one.inputs)] for corner in items(box, 2)]
        domain = list(zip(*corners, strict=True))
        must(all(low < high for low, high in domain), "an empty box")
    shape(isinstance(verdict, str) and verdict in ("equal", "different"), "no verdict")
    if verdict == "different":
        must(witness is None and within is None, "a witness")
        if example is None:
            must((one.inputs, len(one.rows[-1])) != (two.inputs, len(two.rows[-1])), "equal sizes")
        else:
            must(one.inputs == two.inputs, "inputs of two sizes")
            (values,) = record(example, "input")
            point = [rational(each) for each in items(values, one.inputs)]
            inside = all((low is None or low <= x) and (high is None or x <= high)
                         for x, (low, high) in zip(point, domain, strict=True))  # fmt: skip
            must(inside, "an input outside of the box")
            ours, theirs = one.at(point), two.at(point)
            shape(len(ours) == len(theirs), "outputs of two sizes")
            must(ours != theirs, "equal outputs")
        return [first, second]
    must(example is None, "a counterexample")
    kind, share = record(within, "kind", "value")
    shape(isinstance(kind, str) and kind in ("exactly", "weights"), "no kind of agreement")
    share = Fraction(double(share))
    must(share == 0 if kind == "exactly" else 0 < share < 1, "no share")
    must(one.inputs == two.inputs, "inputs of two sizes")
    check_agreement(witness, one, two, domain, share)
    return [first, second]


def check_agreement(witness, one, two, domain, share):
    shape(isinstance(witness, dict), "no witness")
    more = {"weights": [], "normal form": ["groups"], "regions": ["decisions"]}
    ending = witness.get("ending")
    shape(isinstance(ending, str) and ending in more, "no ending")
    ours, theirs, _, *rest = record(witness, "first", "second", "ending", *more[ending])
    ends, work = [], 0
    for net, steps in ((one, ours), (two, theirs)):
        for step in items(steps):
            net = apply_step(net, step, domain)
            work += 5 * net.size() * (1 + longest(net) / 64) ** 1.5
            afford(work)
        ends.append(net)
    one, two = ends
    must(len(one.rows[-1]) == len(two.rows[-1]), "outputs of two numbers")
    if ending == "regions":
        must(share == 0, "regions are compared exactly")
        check_same_maps(rest[0], one, two, domain)
        return
    must(len(one.rows) == len(two.rows), "two depths")
    common = len(one.rows) if ending == "weights" else max(len(one.rows) - 2, 0)
    must(one.slopes[:common] == two.slopes[:common], "two slopes")
    for ours, theirs in zip(one.rows[:common], two.rows[:common], strict=True):
        must(len(ours) == len(theirs), "two widths")
        for a, b in zip(ours, theirs, strict=True):
            must(alike(a, b, share), "other weights")
    if ending == "normal form":
        groups = [[tuple(whole(each, 0) for each in items(member, 2)) for member in items(group)]
                  for group in items(rest[0])]  # fmt: skip
        must(all(side < 2 for group in groups for side, _ in group), "a third network")
        (affine, bends), (other, others) = (
            normal_form(net, [[i for where, i in group if where == side] for group in groups], domain)
            for side, net in enumerate((one, two))
        )
        must(all(alike(a, b, share) for a, b in zip(affine, other, strict=True)), "two affine parts")
        for a, b in zip(bends, others, strict=True):
            if a is not None and b is not None:
                must(alike(a[0], b[0], share) and alike(a[1], b[1], share), "two bends or two planes")
            else:
                must(not any((a or b or ((), ()))[1]), "a bend that is left")


def longest(net):
    entries = [entry for layer in net.rows for row in layer for entry in row]
    return max((max(abs(e.numerator), e.denominator).bit_length() for e in entries), default=0)


def alike(a, b, share):
    return len(a) == len(b) and all(
        x == y or abs(x - y) <= share * min(abs(x), abs(y)) for x, y in zip(a, b, strict=True)
    )


def normal_form(net, groups, domain):
    """Above the last common layer: the affine part, and a plane and a bend for each group with neurons here."""
    if len(net.rows) == 1:
        must(not any(groups), "no neurons to group")
        return net.rows[0], [None] * len(groups)
    rows, heads, leak = net.rows[-2], net.rows[-1], net.slopes[-1]
    width = len(rows[0]) if rows else net.width(len(net.rows) - 2) + 1
    affine = [[Fraction(0)] * (width - 1) + [head[-1]] for head in heads]
    bends, seen = [], set()

    def add(neuron, share):
        for place, head in enumerate(heads):
            affine[place] = [a + head[neuron] * share * b for a, b in zip(affine[place], rows[neuron], strict=True)]

    for group in groups:
        must(all(i < len(rows) and i not in seen for i in group), "a neuron twice, or none")
        must(len(set(group)) == len(group), "a neuron twice")
        seen |= set(group)
        if not group:
            bends.append(None)
            continue
        lead = rows[group[0]]
        size = sum(abs(entry) for entry in lead[:-1])
        must(size > 0, "a neuron without weights")
        pivot = next(k for k, entry in enumerate(lead) if entry)
        plane = [entry / (size if lead[pivot] > 0 else -size) for entry in lead]
        bend = [Fraction(0)] * len(heads)
        for i in group:
            factor = rows[i][pivot] / plane[pivot]
            must(factor != 0 and rows[i] == [factor * entry for entry in plane], "two planes in a group")
            bend = [b + abs(factor) * (1 - leak) * head[i] for b, head in zip(bend, heads, strict=True)]
            add(i, leak if factor > 0 else Fraction(1))
        bends.append((plane, bend))
    values = net.ranges(domain, len(net.rows) - 1)
    for i in set(range(len(rows))) - seen:
        low, high = net.sum_range(rows[i], values)
        on, off = low is not None and low >= 0, high is not None and high <= 0
        must(on or off or leak == 1, "a neuron that bends, in no group")
        add(i, Fraction(1) if on else leak)
    return affine, bends


# -------------------------------------------------------------------------------------------------------------- pruning

ONE_SIGNAL = "bias"


class Sums:
    """A network by labels: what each hidden node and output adds up, without zeros."""

    def __init__(self, inputs, outputs, slopes, sums, order):
        self.inputs, self.outputs, self.slopes, self.sums, self.order = inputs, outputs, slopes, sums, order

    def ranges(self, domain):
        values = dict(domain) | {ONE_SIGNAL: (Fraction(1), Fraction(1))}
        for label in self.order:
            span = sum_of(self.sums[label], values)
            values[label] = image(span, self.slopes[label]) if label in self.slopes else span
        return values

    def gain(self, label):
        return max(Fraction(1), abs(self.slopes.get(label, Fraction(0))))


def sum_of(row, values, error=Fraction(0)):
    return combine(((weight, values[tail]) for tail, weight in row.items()), (-error, error))


def with_labels(graph, labels):
    slopes = {labels[v]: Fraction(slope) for v, slope in zip(graph.hidden, graph.slopes, strict=True)}
    inputs, outputs = ([labels[v] for v, role in enumerate(graph.roles) if role == kind] for kind in (0, 2))
    sums = {label: {} for label in (*slopes, *outputs)}
    for (tail, head), weight in zip(graph.edges, graph.weights, strict=True):
        if weight:
            sums[labels[head]][ONE_SIGNAL if graph.roles[tail] == 3 else labels[tail]] = Fraction(weight)
    order = [labels[v] for v in sorted(graph.hidden, key=lambda v: graph.level[v])] + outputs
    return Sums(inputs, outputs, slopes, sums, order)


def pruning(body):
    original, box, stages, before_count, after_count, bound, rounding = record(
        body,
        "original",
        "box",
        "stages",
        "neurons_before",
        "neurons_after",
        "max_output_change_bound",
        "rounding_bound",
    )
    graph = last = Graph(original)
    shape(graph.weights is not None, "no weights")
    shape(len(items(stages)) <= 1000, "too many stages")
    afford(40 * (1 + max(graph.level) / 20) * (len(stages) + 2) * len(graph.edges))
    net = with_labels(graph, list(range(len(graph.roles))))
    domain = dict.fromkeys(net.inputs, (None, None))
    unit = dict.fromkeys(net.inputs, (Fraction(-1), Fraction(1)))
    if box is not None:
        corners = [[None if each is None else Fraction(double(each)) for each in items(corner, len(net.inputs))]
                   for corner in items(box, 2)]  # fmt: skip
        domain = unit = dict(zip(net.inputs, zip(*corners, strict=True), strict=True))
        must(all(a is None or b is None or a <= b for a, b in domain.values()), "an empty box")
    moved = rounded = Fraction(0)
    for stage in stages:
        last, net, more, off = check_stage(stage, net, domain, unit)
        moved, rounded = moved + more, rounded + off
    must(whole(before_count, 0) == len(graph.hidden) and whole(after_count, 0) == len(last.hidden), "other counts")
    must(Fraction(double(bound)) >= moved and Fraction(double(rounding)) >= rounded, "a bound is too small")
    return [graph.digest(), last.digest()]


def read_reason(value):
    if value is None or isinstance(value, dict) or (isinstance(value, str) and value in ("on", "off")):
        return value
    if isinstance(value, list):
        partner, factor = items(value, 2)
        return whole(partner, 0), fraction(factor)
    return fraction(value)


def check_stage(stage, before, domain, unit):
    after, labels, evidence, carriers = record(stage, "after", "labels", "evidence", "carriers")
    graph = Graph(after)
    shape(graph.weights is not None, "no weights")
    labels = [whole(each, 0) for each in items(labels, len(graph.roles))]
    must(len(set(labels)) == len(labels), "a label twice")
    net = with_labels(graph, labels)
    must(net.inputs == before.inputs and net.outputs == before.outputs, "other inputs or outputs")
    reasons = {}
    for each in items(evidence):
        label, reason = items(each, 2)
        must(whole(label, 0) in before.slopes and label not in reasons, "evidence of no neuron, or twice")
        reasons[label] = read_reason(reason)
    for label, reason in list(reasons.items()):
        if isinstance(reason, dict):
            before = replace_by_surrogate(before, label, reason)
            del reasons[label]
    values = before.ranges(domain)
    forms = {}
    work = [0]

    def substitute(row):
        total, error = {}, Fraction(0)
        for tail, weight in row.items():
            form, off = forms.get(tail, ({tail: Fraction(1)}, Fraction(0)))
            work[0] += 40 * len(form)
            afford(work[0])
            for source, factor in form.items():
                total[source] = total.get(source, 0) + weight * factor
            error += abs(weight) * off
        return {tail: weight for tail, weight in total.items() if weight}, error

    for label in before.order:
        reason = reasons.get(label)
        if reason is None:
            continue
        slope, row = before.slopes[label], before.sums[label]
        form, error = substitute(row)
        if isinstance(reason, tuple):
            partner, factor = reason
            must(factor != 0 and partner != label and partner in before.slopes, "no partner")
            must(reasons.get(partner) is None and before.slopes[partner] == slope, "a partner that cannot stand for it")
            theirs = before.sums[partner]
            gaps = {tail: row.get(tail, 0) - factor * theirs.get(tail, 0) for tail in {*row, *theirs}}
            off = before.gain(label) * sum(abs(gap) * furthest(values[tail]) for tail, gap in gaps.items() if gap)
            if factor > 0 or slope == 1:
                forms[label] = {partner: factor}, off
            else:
                total = {tail: (1 + slope) * weight for tail, weight in form.items()}
                total[partner] = total.get(partner, 0) - factor
                forms[label] = total, off + abs(1 + slope) * error
            continue
        spans = sum_of(row, values), sum_of(form, values, error)
        lows, highs = ([end for end in ends if end is not None] for ends in zip(*spans, strict=True))
        low, high = max(lows, default=None), min(highs, default=None)
        if reason == "on":
            must(slope == 1 or (low is not None and low >= 0), "a neuron that is not always active")
            forms[label] = form, error
        elif reason == "off":
            must(slope == 1 or (high is not None and high <= 0), "a neuron that can be active")
            forms[label] = {tail: slope * weight for tail, weight in form.items()}, abs(slope) * error
        else:
            low, high = image((low, high), slope)
            must(low is not None and high is not None, "a neuron that is unbounded")
            forms[label] = {ONE_SIGNAL: reason}, max(high - reason, reason - low)

    feeds = {}
    for each in items(carriers):
        carrier, follower, shift = items(each, 3)
        carrier, follower, shift = whole(carrier, 0), whole(follower, 0), fraction(shift)
        must(carrier in net.slopes and carrier not in before.sums and carrier not in before.inputs, "no new neuron")
        must(follower in net.sums and follower in before.sums and follower not in feeds, "no follower of its own")
        must(carrier not in {other for other, _ in feeds.values()}, "a carrier twice")
        feeds[follower] = carrier, shift
    new = {carrier for carrier, _ in feeds.values()}
    stays = {label: slope for label, slope in before.slopes.items() if label not in reasons}
    must(stays == {label: slope for label, slope in net.slopes.items() if label not in new}, "other neurons")
    wanted, errors = {}, {}
    for label in (*stays, *before.outputs):
        row = before.sums[label]
        carrier, shift = feeds.get(label, (None, Fraction(0)))
        linear = {t: w for t, w in row.items() if carrier is not None and reasons.get(t) in ("on", "off")}
        rest, errors[label] = substitute({t: w for t, w in row.items() if t not in linear})
        if carrier is not None:
            part, more = substitute(linear)
            part[ONE_SIGNAL] = part.get(ONE_SIGNAL, 0) + shift
            rest[ONE_SIGNAL] = rest.get(ONE_SIGNAL, 0) - shift
            rest[carrier] = Fraction(1)
            wanted[carrier], errors[carrier] = part, Fraction(0)
            errors[label] += more
        wanted[label] = rest
    for carrier in new:
        low = sum_of(wanted[carrier], values)[0]
        must(net.slopes[carrier] == 1 or (low is not None and low >= 0), "a carrier that is not always active")
    gaps = {}
    for label, row in wanted.items():
        must(not any(weight and tail in reasons for tail, weight in row.items()), "a neuron that is gone is read")
        for tail in {*row, *net.sums[label]}:
            meant, stored = row.get(tail, Fraction(0)), net.sums[label].get(tail, Fraction(0))
            if meant != stored:
                must(is_rounding(meant, stored), "another weight")
                gaps.setdefault(label, {})[tail] = abs(meant - stored)
    off = {}
    if gaps:
        seen = before.ranges(unit)
        seen |= {carrier: sum_of(wanted[carrier], seen) for carrier in new}
        off = {label: sum(gap * furthest(seen[tail]) for tail, gap in row.items()) for label, row in gaps.items()}
    return graph, net, spread(net, errors), spread(net, off)


def is_rounding(meant, stored):
    gap = abs(meant - stored)
    half = abs(stored) <= Fraction(1, 2**14) and (stored * 2**24).denominator == 1 and gap <= Fraction(1, 2**25)
    return gap * 256 <= abs(meant) or gap <= Fraction(1, 2**150) or half


def spread(net, errors):
    """How far an output moves at most."""
    moved = {}
    for label in net.order:
        total = errors.get(label, Fraction(0)) + sum(abs(w) * moved.get(t, 0) for t, w in net.sums[label].items())
        moved[label] = net.gain(label) * total
    return max(moved[label] for label in net.outputs)


def replace_by_surrogate(net, name, value):
    factors, constant, layers, decisions = record(value, "factors", "constant", "layers", "decisions")
    form = {}
    for each in items(factors):
        label, factor = items(each, 2)
        form[whole(label, 0)] = fraction(factor)
    layers = [[whole(each, 0) for each in items(layer)] for layer in items(layers)]
    shape(len(layers) <= 1000, "too many layers")
    homes = [layer for layer in layers if name in layer]
    must(homes and set(form) <= set(homes[0]) - {name}, "a stand-in of another layer")
    form[ONE_SIGNAL] = fraction(constant)
    sums = {}
    for label, row in net.sums.items():
        if label != name:
            total = {tail: weight for tail, weight in row.items() if tail != name}
            for tail, factor in form.items():
                total[tail] = total.get(tail, 0) + row.get(name, 0) * factor
            sums[label] = {tail: weight for tail, weight in total.items() if weight}
    without = [[label for label in layer if label != name] for layer in layers]
    pair = sums_as_layers(net, net.sums, layers), sums_as_layers(net, sums, without)
    check_same_maps(decisions, *pair, [(None, None)] * len(net.inputs))
    slopes = {label: slope for label, slope in net.slopes.items() if label != name}
    return Sums(net.inputs, net.outputs, slopes, sums, [label for label in net.order if label != name])


def sums_as_layers(net, sums, layers):
    named = [label for layer in layers for label in layer]
    must(len(set(named)) == len(named) and {*named, *net.outputs} == set(sums), "layers that miss a neuron")
    below, rows, slopes = net.inputs, [], []
    for layer in (*layers, net.outputs):
        must(all(set(sums[label]) <= {*below, ONE_SIGNAL} for label in layer), "a neuron reads past its layer")
        rows.append([[sums[label].get(tail, Fraction(0)) for tail in (*below, ONE_SIGNAL)] for label in layer])
        below = layer
    for layer in layers:
        must(all(label in net.slopes for label in layer), "an output in a layer")
        kinds = {net.slopes[label] for label in layer} or {Fraction(1)}
        must(len(kinds) == 1, "two slopes in a layer")
        slopes += kinds
    return Layers(len(net.inputs), rows, slopes)


KINDS = {"components": components, "path": path, "pruning": pruning, "rebalance": rebalance, "same": same,
         "singular": singular, "truncation-separation": separation}  # fmt: skip


def check(text):
    """Raises `Rejected`, `Malformed` or `NotCovered`; else the certificate is verified."""
    found = parse(text)
    shape(isinstance(found.get("kind"), str) and type(found.get("version")) is int, "no kind or version")
    if found["kind"] not in KINDS:
        raise NotCovered("this kind")
    shape(found["version"] == VERSIONS[found["kind"]], "another version")
    about = items(found.get("about"))
    shape(all(isinstance(each, str) for each in about), "digests that are no text")
    body = {key: value for key, value in found.items() if key not in ("kind", "version", "about")}
    must(KINDS[found["kind"]](body) == about, "it is about another network")


def main(arguments):
    if len(arguments) != 1:
        print("usage: second_checker.py CERTIFICATE.json")
        return 2
    try:
        with open(arguments[0], "rb") as file:
            check(file.read(MOST_BYTES + 1).decode("utf-8"))
    except Rejected as error:
        print(f"rejected: {error}")
        return 1
    except (Malformed, OSError, UnicodeError) as error:
        print(f"not a certificate: {error}")
        return 2
    except NotCovered as error:
        print(f"not covered: {error}")
        return 3
    print("verified")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
