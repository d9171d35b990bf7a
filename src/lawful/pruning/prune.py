"""Remove neurons, with a certified bound on how far any output moves; by default only what moves none.

Each `Stage` takes one kind of neuron out of a `Dag` and keeps the two networks and the evidence, so that
`lawful verify` can replay it in rational arithmetic. Folded weights are computed exactly and rounded once; what
that rounding can do is bounded apart from what the pruning itself approximates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike

from lawful.errors import LawfulError
from lawful.network import Dag, Mlp, Role, useful_dag
from lawful.pruning import linear, near
from lawful.pruning import rules as rules
from lawful.pruning.bounds import Box, defect_bound, make_box, ranges
from lawful.pruning.rules import Change
from lawful.types import Floats

UNIT_BOX = (-1.0, 1.0)


@dataclass(frozen=True)
class Stage:
    """One step of a pruning: neurons of one `kind` leave `before`, and `after` computes what it did.

    `evidence` maps each removed neuron to what justifies it: `(partner, factor)` for a duplicate, the constant that
    replaces a neuron, the factor of a linear one; `carriers` are neurons rewritten to speak for removed ones (whom they
    feed, and the shift that keeps them active). `bound` is what the step approximates (0: nothing), `rounding`
    what storing the folded weights as float64 does; both bound every output on the box.
    """

    kind: str
    before: Dag
    after: Dag
    evidence: Mapping[str, object]
    bound: float
    rounding: float
    carriers: Mapping[str, tuple[str, Fraction]] = field(default_factory=dict)

    @property
    def removed(self) -> tuple[str, ...]:
        """Names of the neurons that left."""
        return tuple(name for name in self.before.names if name not in self.after.index)


@dataclass(frozen=True)
class Pruning:
    """A smaller network and why it is the same function, or how far from it.

    `box` is None when the bound holds for every input. Rounding is then bounded for inputs in [−1, 1].
    """

    original: Mlp | Dag
    network: Mlp | Dag
    stages: tuple[Stage, ...]
    box: Box | None

    @property
    def neurons_before(self) -> int:
        """Hidden neurons of the original."""
        return len(self.original.to_dag().hidden)

    @property
    def neurons_after(self) -> int:
        """Hidden neurons that are left."""
        return len(self.network.to_dag().hidden)

    @property
    def bound(self) -> float:
        """Largest change of any output that pruning can cause, on the box or anywhere."""
        return sum(stage.bound for stage in self.stages)

    @property
    def rounding(self) -> float:
        """Largest change of any output that storing folded weights as float64 can cause, on the box or on [−1, 1]."""
        return sum(stage.rounding for stage in self.stages)

    def measured(self, samples: int = 1000, seed: int = 0) -> float:
        """Largest change seen on random inputs from the box (or from [−1, 1])."""
        low, high = self.box or make_box(self.original.to_dag(), UNIT_BOX)
        low, high = np.maximum(low, -1e6), np.minimum(high, 1e6)
        batch = np.random.default_rng(seed).uniform(low, high, (samples, len(low)))
        return float(np.abs(self.original.evaluate(batch) - self.network.evaluate(batch)).max())


def prune(network: Mlp | Dag, *, tolerance: float = 0.0, box: tuple[ArrayLike, ArrayLike] | None = None) -> Pruning:
    """Remove every neuron that a rule proves redundant; with a tolerance also what moves outputs by less than that.

    Without a box only what changes nothing for any input goes; a box allows neurons that are dead or linear on it.
    A tolerance needs a box, and takes [−1, 1] if none is given. An `Mlp` stays an `Mlp`.

    >>> mlp = Mlp([[[1.0], [0.0], [2.0]], [[1.0, 3.0, -0.5]]], [[0.0, 2.0, 0.0], [0.0]])
    >>> pruned = prune(mlp)
    >>> [stage.kind for stage in pruned.stages], pruned.bound
    (['constant', 'duplicate', 'silent'], 0.0)
    >>> pruned.network.evaluate([[5.0]])
    array([[6.]])
    """
    if not tolerance >= 0:
        raise LawfulError(f"a tolerance is at least 0, not {tolerance}")
    start = network.to_dag()
    region = make_box(start, UNIT_BOX if box is None and tolerance else box)
    everywhere = box is None and not tolerance
    for_rounding = make_box(start, UNIT_BOX) if everywhere else region
    layered = isinstance(network, Mlp)
    stages = _exact(start, region, for_rounding, layered)
    if tolerance:
        latest = stages[-1].after if stages else start
        near = _near(latest, region, tolerance)
        if near is not None:
            stages += [near, *_exact(near.after, region, for_rounding, layered)]
    final = stages[-1].after if stages else start
    result = network if not stages else Mlp.from_dag(final) if isinstance(network, Mlp) else final
    return Pruning(network, result, tuple(stages), None if everywhere else region)


RULES = (rules.silent, rules.constant, rules.dead, rules.duplicate, linear.opposite, linear.linear)


def _exact(dag: Dag, region: Box, for_rounding: Box, layered: bool) -> list[Stage]:
    """Apply every rule until none finds anything."""
    stages: list[Stage] = []
    found = True
    while found:
        found = False
        for rule in RULES:
            try:
                change = rule(dag, region, layered)
                after, errors = rebuilt(dag, change) if change.evidence else (dag, {})
            except OverflowError:  # a folded weight would not fit into a float: leave these neurons
                continue
            if change.evidence:
                rounding = defect_bound(after, _rounding_defects(dag, after, errors, for_rounding))
                stages.append(Stage(change.kind, dag, after, change.evidence, 0.0, rounding, change.carriers))
                dag, found = after, True
    return stages


def _near(dag: Dag, region: Box, tolerance: float) -> Stage | None:
    """As many neurons as the tolerance pays for, cheapest first, each replaced by a constant or by a near twin."""
    options = near.replacements(dag, region)
    count = int((np.cumsum([option.cost for option in options]) <= tolerance).sum())
    while count:
        change, defects = near.combined(dag, options[:count])
        after, errors = rebuilt(dag, change)
        placed = np.zeros(len(after.names))
        for name, defect in defects.items():
            if name in after.index:
                placed[after.index[name]] += defect
        bound = defect_bound(after, placed)
        rounding = defect_bound(after, _rounding_defects(dag, after, errors, region))
        if bound + rounding <= tolerance:
            return Stage(change.kind, dag, after, change.evidence, bound, rounding)
        count -= max(1, count // 8)
    return None


def rebuilt(dag: Dag, change: Change) -> tuple[Dag, dict[tuple[str, str], Fraction]]:
    """The network after a change, its new weights rounded to float64, and the exact error of each rounding."""
    names, roles, slopes = list(dag.names), list(dag.roles), list(dag.slopes)
    if rules.BIAS in {tail for tail, _ in change.weights} and dag.constant is None:
        names.append(rules.free_name(dag))
        roles.append(Role.CONSTANT)
        slopes.append(1.0)
    bias = next((name for name, role in zip(names, roles, strict=True) if role == Role.CONSTANT), "")
    number = {name: place for place, name in enumerate(names)}
    weights = {(bias if tail == rules.BIAS else tail, head): value for (tail, head), value in change.weights.items()}
    rounded = {ends: float(value) for ends, value in weights.items()}
    errors = {ends: Fraction(rounded[ends]) - value for ends, value in weights.items() if rounded[ends] != value}
    theta = dag.theta.copy()
    added = dict(rounded)
    touched = {number[tail] for tail, _ in rounded}
    for edge in np.flatnonzero(np.isin(dag.tails, list(touched))):
        ends = dag.edge_name(int(edge))
        if ends in rounded:
            theta[edge] = added.pop(ends)
    keep = np.ones(len(names), dtype=bool)
    keep[[dag.index[name] for name in change.removed]] = False
    tails = np.concatenate([dag.tails, np.array([number[tail] for tail, _ in added], dtype=np.intp)])
    heads = np.concatenate([dag.heads, np.array([number[head] for _, head in added], dtype=np.intp)])
    theta = np.concatenate([theta, np.array(list(added.values()))])
    edges = keep[tails] & keep[heads]
    place = np.cumsum(keep) - 1
    after = useful_dag(
        [name for name, kept in zip(names, keep, strict=True) if kept], np.array(roles)[keep],
        place[tails[edges]], place[heads[edges]], theta[edges], np.array(slopes)[keep],
    )  # fmt: skip
    return after, errors


def _rounding_defects(before: Dag, after: Dag, errors: Mapping[tuple[str, str], Fraction], region: Box) -> Floats:
    """Per node of `after`, the error of its sum when every new weight is off by its rounding error."""
    defects = np.zeros(len(after.names))
    if errors:
        _, _, low, high = ranges(before, region)
        size = np.maximum(np.abs(low), np.abs(high))
        for (tail, head), error in errors.items():
            if tail in after.index and head in after.index:
                value = size[before.index[tail]] if tail in before.index else 1.0
                defects[after.index[head]] += np.nextafter(float(abs(error)), np.inf) * value
    return defects
