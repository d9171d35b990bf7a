"""A network of channels and the smaller one that replaces it, replayed in rationals and balls.

In every sweep cells leave together: a silent one is heard by no row that is left, a constant one has one value wherever
it is read, a duplicate is a positive multiple of a cell that stays. What their readers take over is computed exactly;
the smaller network must hold it, each number rounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from math import prod
from typing import Any

from flint import ctx

from lawful.verify.channels.compare import compare, read_tidied
from lawful.verify.channels.dependent import dependent_sweep
from lawful.verify.channels.facts import ChannelFacts
from lawful.verify.channels.heads import joined
from lawful.verify.channels.program import ChangedWeights, ChannelStep, read_program
from lawful.verify.channels.values import Value, exact, is_zero, plus, size_of
from lawful.verify.core.balls import BITS
from lawful.verify.core.finding import Finding, short
from lawful.verify.core.schema import integers, items, limit_cost, object_with_keys, require, word
from lawful.verify.core.tensors import Tensor, finder, read_tensor, weights_digest

Cell = tuple[int, int]


def check(body: dict[str, Any], networks: Sequence[Any] = ()) -> Finding:
    """How many channels went while the function stayed, up to rounding; tensors held by digest are in `networks`."""
    given = object_with_keys(
        body, "certificate", "program results before after others added folded dropped lost sweeps"
    )
    find = finder(networks)
    before, after = (
        {str(name): read_tensor(each, str(name), find) for name, each in record_of(given[key], key).items()}
        for key in ("before", "after")
    )
    others = {str(name): line for name, line in record_of(given["others"], "others").items()}
    require(all(isinstance(line, str) and len(line) < 400 for line in others.values()), "others: expected texts")
    require(not set(others) & (set(before) | set(after)), "a tensor is both read and not read")
    lost = {word(name, "lost", *others) for name in items(given["lost"], "lost", most=len(others))}
    kept = {name: line for name, line in others.items() if name not in lost}
    digests = tuple(
        weights_digest({name: tensor.line for name, tensor in tensors.items()} | rest)
        for tensors, rest in ((before, others), (after, kept))
    )
    steps = read_program(given["program"], before)
    turned: set[str] = set()
    for item in given["program"]:
        name = str(item["tensors"].get("weight"))
        if "transposed" in item and name not in turned:
            turned.add(name)
            require(name in after, "a tensor is missing")
            after[name] = after[name].turned()
    results = integers(given["results"], "results", 0, len(steps) - 1, most=1000)
    _need_outputs(steps, results)
    sweeps = items(given["sweeps"], "sweeps", most=10_000)
    size = sum(prod(tensor.shape) for tensor in before.values())
    limit_cost(2.0 * size)  # comparing them, mostly in runs; sweeps count their own work
    tidied = read_tidied(given["added"], given["folded"], given["dropped"], steps, results)
    with ctx.workprec(BITS):
        replay = ChannelReplay(steps, before, results)
        for sweep in sweeps:
            replay.sweep(sweep)
        compare(replay, after, tidied)
    layers = [at for at, step in enumerate(steps) if step.kind == "layer" and step.first is None]
    hidden = [cell for at in layers for cell in replay.cells[at] if cell not in replay.pinned]
    gone = sum(cell not in replay.alive for cell in hidden)
    tidy = f", {len(tidied.folded)} normalisations folded" if tidied.folded else ""
    tidy += f", {len(tidied.dropped)} biases that nobody sees dropped" if tidied.dropped else ""
    words = (
        f"{gone} of {len(hidden)} hidden channels of {short(digests[0])} are gone in {short(digests[1])}{tidy}: "
        "the same "
        "function of real numbers, for the program written in the certificate, but for the rounding of folded weights"
    )
    return Finding(words, {"channels_before": len(hidden), "channels_after": len(hidden) - gone}, digests)


def _need_outputs(steps: list[ChannelStep], results: list[int]) -> None:
    """Every weight leads to a result: a function without outputs, or with fewer, is the same as any other."""
    leads = set(results)
    for at in reversed(range(len(steps))):
        if at in leads:
            leads |= set(steps[at].sources)
    require(all(at in leads for at, step in enumerate(steps) if step.tensors), "weights lead to none of the results")


def record_of(value: object, where: str) -> dict[str, Any]:
    """An object with any keys."""
    return object_with_keys(value, where, "", " ".join(value) if isinstance(value, dict) else "")


class ChannelReplay:
    """Cells of channels that leave together, and the weights as they change."""

    def __init__(self, steps: list[ChannelStep], tensors: Mapping[str, Tensor], results: list[int]) -> None:
        self.steps, self.weights = steps, ChangedWeights(steps, tensors)
        parent: dict[Cell, Cell] = {}

        def root(cell: Cell) -> Cell:
            while parent[cell] != cell:
                parent[cell] = parent[parent[cell]]
                cell = parent[cell]
            return cell

        def join(one: Cell, two: Cell) -> None:
            parent[root(two)] = root(one)

        places: list[list[Cell]] = []
        fixed: list[Cell] = []
        for at, step in enumerate(steps):
            if step.kind in ("input", "other", "layer"):
                mine = [(at, place) for place in range(step.channels)]
                parent |= {cell: cell for cell in mine}
            elif step.kind == "attend" and step.heads is not None:
                mine = [places[step.sources[2]][place] for place in step.heads.written]
            elif step.kind == "cat":
                mine = [cell for source in step.sources for cell in places[source]]
            elif step.kind == "part":
                mine = places[step.sources[0]][step.start : step.start + step.channels]
            else:
                mine = [cell for cell in places[step.sources[0]] for _ in range(step.width)]
            for source in step.sources[1:] if step.kind in ("add", "sub", "mul") else ():
                for one, two in zip(mine, places[source], strict=True):
                    join(one, two)
            if step.heads is not None:
                joined(step.heads, places[step.sources[0]], places[step.sources[1]], join)
            if step.first is not None:
                for ours, theirs in (
                    (mine, places[step.first]),
                    (places[step.sources[0]], places[steps[step.first].sources[0]]),
                ):
                    for one, two in zip(ours, theirs, strict=True):
                        join(one, two)
            if step.kind in ("input", "other"):
                fixed += [*mine, *(cell for source in step.sources for cell in places[source])]
            places.append(mine)
        fixed += [cell for result in results for cell in places[result]]
        self.cells = [[root(cell) for cell in mine] for mine in places]
        self.pinned = {root(cell) for cell in fixed}
        self.alive = {cell for mine in self.cells for cell in mine}
        self.readers: dict[Cell, dict[int, list[int]]] = {}
        self.uses: dict[int, list[int]] = {}  # of a layer: most have one
        for at, step in enumerate(steps):
            self.uses.setdefault(at if step.first is None else step.first, []).append(at)
            if step.kind == "layer" and step.first is None:
                for column, cell in enumerate(self.cells[step.sources[0]]):
                    self.readers.setdefault(cell, {}).setdefault(at, []).append(column)
        again = {at for uses in self.uses.values() if len(uses) > 1 for at in uses}
        self.used_again = {cell for at in again for each in (at, *steps[at].sources) for cell in self.cells[each]}
        self.work = 0.0  # of all sweeps so far, in weights that were looked at
        self.scoring: dict[Cell, set[tuple[int, int]]] = {}  # attentions and their groups
        for at, step in enumerate(steps):
            for group, row in enumerate(() if step.heads is None else step.heads.keys):
                for key in row:
                    self.scoring.setdefault(self.cells[step.sources[1]][key], set()).add((at, group))

    def sweep(self, value: object) -> None:
        """Cells that leave at once: all is checked before anything changes."""
        known = ChannelFacts(self.weights)
        self._count_work(value)
        if any(isinstance(item, list) and "dependent" in item[1:2] for item in items(value, "sweeps")):
            dependent_sweep(self, known, value)
            return
        rows = {at: self.rows(at) for at, step in enumerate(self.steps) if step.kind == "layer"}
        reasons = self._reasons(value)
        updates: list[tuple[int, int, int | None, list[Value]]] = []
        for cell, (kind, leader) in reasons.items():
            require(cell in self.alive and cell not in self.pinned, "a channel that must stay leaves, or leaves twice")
            if cell in self.scoring:
                self._scores(known, cell, kind, set(reasons))
                continue
            require(kind != "unscored", "a channel of no query or key leaves as one")
            for at, columns in self.readers.get(cell, {}).items():
                twins = self.readers.get(leader, {}).get(at, []) if leader is not None else columns
                require(len(twins) == len(columns), "a twin is read elsewhere")
                left = rows[at] if kind != "silent" else [row for row in rows[at] if self.cells[at][row] not in reasons]
                for column, twin in zip(columns, twins, strict=True):
                    heard = [row for row in left if self.weights.hears(at, row, column)]
                    updates += self._taken_over(known, kind, at, column, twin, heard)
        for at, row, target, terms in updates:
            self.add(at, row, target, terms)
        for cell in reasons:
            self.forget(cell, rows)
        self.alive -= set(reasons)

    def _count_work(self, value: object) -> None:
        """A cell that leaves costs the weights that read it and those that write it, for each cell it is compared with.

        Facts about what is behind those weights are found once in a sweep: at most every weight once.
        """
        sizes = [prod(self.weights.tensors[str(step.tensors["weight"])].shape) if step.kind in ("layer", "depthwise")
                 else step.channels for step in self.steps]  # fmt: skip
        shares = [size / max(1, step.channels) for size, step in zip(sizes, self.steps, strict=True)]
        for item in items(value, "sweeps"):
            require(isinstance(item, list) and len(item) > 1, "a removal is not understood")
            cell = self.cell(item[0])
            others = len(item[3]) if len(item) > 3 and isinstance(item[3], list) else 1
            read = sum(sizes[at] * len(columns) / max(1, len(self.cells[self.steps[at].sources[0]]))
                       for at, columns in self.readers.get(cell, {}).items())  # fmt: skip
            self.work += (1 + others) * (read + shares[cell[0]])
        self.work += sum(sizes) / 20
        limit_cost(20.0 * self.work)

    def rows(self, at: int) -> list[int]:
        """The channels of a step that are left."""
        return [row for row, cell in enumerate(self.cells[at]) if cell in self.alive]

    def _scores(self, known: ChannelFacts, cell: Cell, kind: str, gone: set[Cell]) -> None:
        """An inner channel of queries and keys leaves: no score needs it, or all values of its group leave."""
        require(cell not in self.readers, "a channel of queries and keys is read elsewhere")
        require(kind in ("unscored", "silent"), "a channel of queries and keys leaves like another")
        for at, group in self.scoring[cell]:
            step = self.steps[at]
            if step.heads is None:
                raise AssertionError("scores belong to attention")
            values = {self.cells[step.sources[2]][place] for place in step.heads.values[group]}
            if kind == "silent":
                require(not (values & self.alive) - gone, "the values of a head are still there")
                continue
            require(not step.heads.fixed, "an inner channel leaves that must stay")
            for query, key in step.heads.products(group):
                mine = self.cells[step.sources[1]][key] == cell
                require(not mine or known.unscored(at, query, key), "a score needs a channel that leaves")

    def _reasons(self, value: object) -> dict[Cell, tuple[str, Cell | None]]:
        found: dict[Cell, tuple[str, Cell | None]] = {}
        for item in items(value, "sweeps"):
            require(isinstance(item, list) and len(item) in (2, 3), "a removal is not understood")
            kind = word(item[1], "sweeps", "silent", "constant", "duplicate", "unscored")
            require((len(item) == 3) is (kind == "duplicate"), "a removal is not understood")
            cell = self.cell(item[0])
            require(cell not in found, "a channel leaves twice")
            found[cell] = kind, self.cell(item[2]) if kind == "duplicate" else None
        stay = {leader for _, leader in found.values() if leader is not None}
        require(not stay & set(found) and stay <= self.alive, "a twin leaves as well")
        return found

    def cell(self, value: object) -> Cell:
        """A cell, named by one of its channels."""
        at, place = integers(value, "sweeps", 0, length=2)
        require(at < len(self.steps) and place < len(self.cells[at]), "a channel is not there")
        return self.cells[at][place]

    def _taken_over(
        self, known: ChannelFacts, kind: str, at: int, column: int, twin: int, heard: list[int]
    ) -> Iterable[tuple[int, int, int | None, list[Value]]]:
        if not heard:
            if kind == "duplicate":
                require(self._ratio(known, at, column, twin) is not None, "a channel is no multiple")
            return
        require(kind != "silent", "a silent channel is heard")
        if kind == "constant":
            value, *others = (known.read(use, column) for use in self.uses[at])
            require(value is not None, "a channel is not constant wherever it is read")
            require(not others or all(map(exact, (value, *others))), "a layer that is used again reads no rationals")
            require(all(other == value for other in others), "a layer that is used again reads another constant")
            for row in () if is_zero(value) else heard:
                yield at, row, None, [plus([(tap, value)], Fraction(0)) for tap in self.weights.kernel(at, row, column)]
            return
        ratio = self._ratio(known, at, column, twin)
        require(ratio is not None, "a channel is no multiple of its twin")
        for row in heard:
            yield at, row, twin, [ratio * tap for tap in self.weights.kernel(at, row, column)]  # type: ignore[operator]

    def _ratio(self, known: ChannelFacts, at: int, column: int, twin: int) -> Fraction | None:
        """By which factor two channels differ, the same in all uses of the layer that reads them."""
        found = {known.ratio(self.steps[use].sources[0], column, twin) for use in self.uses[at]}
        return found.pop() if len(found) == 1 else None

    def add(self, at: int, row: int, column: int | None, terms: list[Value]) -> None:
        """Add to a bias, or tap by tap to a kernel."""
        weights, names = self.weights, self.steps[at].tensors
        if column is not None:
            name, stored = str(names["weight"]), weights.places(at, row, column)
            require(len(stored) == len(terms), "a weight lies between two groups")
            places = [(weights.changed, (name, place), [term]) for place, term in zip(stored, terms, strict=True)]
        elif names["bias"] is not None:
            places = [(weights.changed, (str(names["bias"]), row), terms)]
        else:
            places = [(weights.added, (at, row), terms)]  # type: ignore[list-item]
        for table, key, parts in places:
            old = table.get(key)
            if old is None:
                first = weights.entry(*key) if table is weights.changed else Fraction(0)
                old = first, abs(first)
            size = old[1] + sum((size_of(part) for part in parts), Fraction(0))
            table[key] = plus([(Fraction(1), part) for part in parts], old[0]), size

    def forget(self, cell: Cell, rows: Mapping[int, list[int]]) -> None:
        """No row hears it any more."""
        for at, columns in self.readers.get(cell, {}).items():
            name = str(self.steps[at].tensors["weight"])
            for row in rows[at]:
                for column in columns:
                    if self.weights.hears(at, row, column):
                        zeros = ((name, place) for place in self.weights.places(at, row, column))
                        self.weights.changed |= dict.fromkeys(zeros, (Fraction(0), Fraction(0)))
