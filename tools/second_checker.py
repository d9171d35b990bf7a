#!/usr/bin/env python3
"""A second checker of certificates, written from their specification (docs/certificates) alone.

One file, the standard library, integers and fractions; it shares no line and no library with `lawful verify`, and runs
wherever Python does: `python tools/second_checker.py CERTIFICATE.json`. (It is Python, and not a language in which less
can go wrong, because every user of the first checker can run and read it.) It prints `verified`, or why not. Exit codes
are those of the specification: 0 verified, 1 rejected, 2 not a certificate or too large; and 3: a kind, or a form of
networks, that it does not cover. Covered: components, path, rebalance, singular and truncation-separation.
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

VERSIONS = {"components": 2, "path": 2, "rebalance": 1, "singular": 1, "truncation-separation": 1}
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


# ---------------------------------------------------------------------------------------------------- JSON and numbers


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
            for each in locked:
                edge = check_lock(one, each, balance, apart)
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


KINDS = {"components": components, "path": path, "rebalance": rebalance, "singular": singular,
         "truncation-separation": separation}  # fmt: skip


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
