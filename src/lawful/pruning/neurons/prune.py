"""Remove neurons, with a certified bound on how far any output moves; by default only what moves none.

Each `Stage` takes one kind of neuron out of a `Dag` and keeps the two networks and the evidence, so that
`lawful verify` can replay it in rational arithmetic. Folded weights are computed exactly and rounded once; what
that rounding can do is bounded apart from what the pruning itself approximates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike

from lawful.errors import LawfulError, Unsupported
from lawful.network import Dag, Mlp
from lawful.network.reading import carrying
from lawful.pruning.neurons import rules
from lawful.pruning.neurons.bounds import Box, PruningRegion, box_of_samples, defect_bound, make_box
from lawful.pruning.neurons.rules import rebuilt, rounding_defects
from lawful.pruning.neurons.surrogates import Clock, Search, near_samples, samples
from lawful.pruning.removable.dependent_neurons import Decided, take_out
from lawful.result import Shown
from lawful.sources.opening import Source, open_graph
from lawful.sources.provenance import with_provenance
from lawful.types import Floats

UNIT_BOX = (-1.0, 1.0)


@dataclass(frozen=True)
class Stage:
    """One step of a pruning: neurons of one `kind` leave `before`, and `after` computes what it did.

    `evidence` maps each removed neuron to what justifies it: `(partner, factor)` for a duplicate, the constant that
    replaces a neuron, the factor of a linear one; `carriers` are neurons rewritten to speak for removed ones (whom they
    feed, the shift that keeps them active, and the factor that they were linear with). `bound` is what the step
    approximates (0: nothing), `rounding`
    what storing the folded weights as float64 does; both bound every output on the box.
    """

    kind: str
    before: Dag
    after: Dag
    evidence: Mapping[str, object]
    bound: float
    rounding: float
    carriers: Mapping[str, tuple[str, Fraction, Fraction]] = field(default_factory=dict)

    @property
    def removed(self) -> tuple[str, ...]:
        """Names of the neurons that left."""
        gone = self.evidence if self.kind == "replaced" else self.before.names  # a layered network numbers anew
        return tuple(name for name in gone if self.kind == "replaced" or name not in self.after.index)


@dataclass(frozen=True)
class Pruning(Shown):
    """A smaller network and why it is the same function, or how far from it.

    `box` is None when the bound holds for every input. Rounding is then bounded for inputs in [−1, 1]. With `around`
    the bound holds for inputs of the box that differ from one of the `near` samples by at most that in every entry.
    """

    original: Mlp | Dag
    network: Mlp | Dag
    stages: tuple[Stage, ...]
    box: Box | None
    compared: tuple[float, ...] | None = None  # per output, rounding included, where the two were compared as a whole
    around: float | None = None
    near: Floats | None = None
    decided: Decided | None = None  # which of the neurons that are left are needed, where that was asked

    @property
    def cut_off(self) -> bool:
        """Whether the box leaves out inputs that are within `around` of a sample."""
        if self.box is None or self.near is None or self.around is None:
            return False
        low, high = box_of_samples(self.near, self.around)
        return bool((low < self.box[0]).any() or (high > self.box[1]).any())

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
        return sum(stage.bound for stage in self.stages) if self.compared is None else max(self.compared)

    @property
    def rounding(self) -> float:
        """Largest change of any output that storing weights can cause, on the box or on [−1, 1]."""
        return sum(stage.rounding for stage in self.stages) if self.compared is None else 0.0

    @property
    def bounds(self) -> tuple[float, ...]:
        """Largest change of each output, in its units, rounding included."""
        outputs = len(self.original.to_dag().outputs)
        return self.compared or (self.bound + self.rounding,) * outputs

    def change_on(self, batch: Floats) -> float:
        """Largest change seen on given inputs."""
        return float(np.abs(self.original.evaluate(batch) - self.network.evaluate(batch)).max(initial=0.0))

    def measured(self, count: int = 1000, seed: int = 0) -> float:
        """Largest change seen on random inputs from the box (or from [−1, 1])."""
        return self.change_on(self.batch(count, seed))

    def batch(self, count: int, seed: int = 0) -> Floats:
        """Random inputs from the box (or from [−1, 1]), or from around the samples."""
        low, high = self.box or make_box(self.original.to_dag(), UNIT_BOX)
        if self.around is not None and self.near is not None:
            return near_samples(self.near, self.around, (low, high), seed)[:count]
        low, high = np.maximum(low, -1e6), np.minimum(high, 1e6)
        return np.random.default_rng(seed).uniform(low, high, (count, len(low)))


def prune(
    network: Source,
    *,
    tolerance: float | Floats = 0.0,
    relative: bool = False,
    keep: int | None = None,
    box: tuple[ArrayLike, ArrayLike] | None = None,
    data: Floats | None = None,
    around: float | None = None,
    replayable: bool = False,
    skips: bool = False,
    decide: float = 0.0,
    seconds: float = 60.0,
    tick: Callable[[str], None] = lambda words: None,
) -> Pruning:
    """Remove every neuron that a rule proves redundant; with a tolerance also what moves outputs by less than that.

    Without a box only what changes nothing for any input goes; a box allows neurons that are dead or linear on it. A
    tolerance (one number, or one per output; `relative` to the range of each output on the data or on samples) and
    `keep`, which asks for the smallest bound with so many neurons left, need a box: by default the data's, or [−1, 1].
    With `around` their bound need not hold on all of the box, but within that distance of each sample of the data:
    the data's box is wider by that, and a box that is given may leave some of it out.
    A layered network stays layered, unless `skips` lets edges pass layers: then more neurons can go, and the answer is
    a graph. `replayable` forgoes what a replay in rational arithmetic does not follow: linear
    relaxations, and stand-ins that are sums of neurons. With `decide` (seconds), a layered network, and no box, the
    others of a layer stand exactly for a neuron wherever they can, and `decided` says of each neuron that is left
    whether it is needed (`lawful.pruning.removable.decide`). After `seconds` the search for stand-ins
    takes the best that it has; what it states is bounded all the same. `tick` hears how far it is.

    >>> mlp = Mlp([[[1.0], [0.0], [2.0]], [[1.0, 3.0, -0.5]]], [[0.0, 2.0, 0.0], [0.0]])
    >>> pruned = prune(mlp)
    >>> [stage.kind for stage in pruned.stages], pruned.bound
    (['constant', 'duplicate', 'silent'], 0.0)
    >>> pruned.network.evaluate([[5.0]])
    array([[6.]])
    """
    network = open_graph(network).to_dag() if skips else open_graph(network)
    start = network.to_dag()
    layered = not skips and _is_layered(network)
    allowed = _check_tolerance(start, tolerance)
    if keep is not None and keep < 0:
        raise LawfulError(f"a number of neurons to keep is at least 0, not {keep}")
    approximate = bool(allowed.any()) or keep is not None
    if not seconds > 0:
        raise LawfulError(f"a time limit is a number of seconds above 0, not {seconds}")
    if around is not None and (data is None or not (approximate and around >= 0) or replayable):
        raise LawfulError(
            "a distance around the data is at least 0, and needs data and a tolerance or a number to keep"
        )
    if box is None and data is not None:
        box = box_of_samples(data, around)
    region = make_box(start, UNIT_BOX if box is None and approximate else box)
    if relative and approximate:
        allowed = allowed * output_range(network, samples(region, 0) if data is None else data)
    everywhere = box is None and not approximate
    for_rounding = make_box(start, UNIT_BOX) if everywhere else region
    within = PruningRegion(region, relaxed=not (replayable or everywhere))
    stages = _exact(start, within, for_rounding, layered)
    if skips and _is_layered(start):  # what keeps layers may take neurons that what passes them does not see
        exact_stages = _exact(start, within, for_rounding, True)
        if decide > 0 and everywhere:
            exact_stages, _ = _decide(start, exact_stages, within, for_rounding, decide)
        other = [*exact_stages, *_exact(exact_stages[-1].after if exact_stages else start, within, for_rounding, False)]
        stages = min(stages, other, key=lambda way: len((way[-1].after if way else start).hidden))
    decided = None
    if decide > 0 and everywhere and layered:
        stages, decided = _decide(start, stages, within, for_rounding, decide)
    latest = stages[-1].after if stages else start
    if keep is not None and (replayable or not layered):
        raise Unsupported("a number of neurons to keep is for layered networks, and not for a replay")
    ways = [stages]
    for share in (0.5, 1.0) if allowed.any() else ():
        if (nearly := _near(latest, region, share * float(allowed.min()))) is not None:
            ways.append([*stages, nearly, *_exact(nearly.after, within, for_rounding, layered)])
    candidates = [_finish(network, way, None if everywhere else region) for way in ways]
    if approximate and layered and not replayable:
        chosen = ways if around is None else ways[:1]
        further = [
            _replace(network, way, region, allowed, keep, data, around, Clock(seconds / len(chosen), tick))
            for way in chosen
        ]
        candidates += [pruning for pruning in further if pruning is not None]
    if keep is not None:
        candidates = [pruning for pruning in candidates if pruning.neurons_after <= keep] or candidates
    best = min(candidates, key=lambda pruning: (pruning.neurons_after if keep is None else 0, pruning.bound))
    reading = network.reading if network.reading is None or not best.stages else network.reading.of_other_weights()
    return with_provenance(replace(best, network=carrying(best.network, reading), decided=decided), network)


def _is_layered(network: Mlp | Dag) -> bool:
    try:
        return isinstance(network, Mlp) or bool(Mlp.from_dag(network))
    except Unsupported:
        return False


def _finish(network: Mlp | Dag, stages: list[Stage], box: Box | None) -> Pruning:
    if not stages:
        return Pruning(network, network, (), box)
    last = stages[-1].after
    return Pruning(network, Mlp.from_dag(last) if isinstance(network, Mlp) else last, tuple(stages), box)


def output_range(network: Mlp | Dag, batch: Floats) -> Floats:
    """How far apart the values of each output are on a batch."""
    return np.asarray(np.ptp(network.evaluate(batch), axis=0))


def _check_tolerance(dag: Dag, tolerance: float | Floats) -> Floats:
    limits = np.asarray(tolerance, dtype=np.float64)
    if limits.shape not in ((), (len(dag.outputs),)) or not (limits >= 0).all() or not np.isfinite(limits).all():
        raise LawfulError(f"a tolerance is a number of at least 0, or one for each output, not {str(tolerance)[:60]}")
    return np.broadcast_to(limits, len(dag.outputs))


def _replace(
    network: Mlp | Dag,
    stages: list[Stage],
    region: Box,
    allowed: Floats,
    keep: int | None,
    data: Floats | None,
    around: float | None,
    clock: Clock,
) -> Pruning | None:
    """Fewer neurons than the stages leave; what the stages and the stand-ins change at most adds up."""
    latest = stages[-1].after if stages else network.to_dag()
    spent = float(np.nextafter(sum(stage.bound + stage.rounding for stage in stages), np.inf)) if stages else 0.0
    search = Search(Mlp.from_dag(latest), region, data=data, around=around, clock=clock)
    hidden = len(latest.hidden)
    if keep is None:
        replacement = search.within(np.nextafter(allowed - spent, 0.0))
    elif hidden - keep > search.most:
        raise LawfulError(f"{keep} neurons are fewer than the {hidden - search.most} layers, each of which keeps one")
    else:
        replacement = search.without(max(hidden - keep, 0))
    if replacement is None:
        return None
    names = [latest.names[latest.hidden[latest.levels[latest.hidden] == 1 + k][n]] for k, n in replacement.removed]
    stage = Stage("replaced", latest, replacement.network.to_dag(), dict.fromkeys(names), replacement.bound, 0.0)
    bounds = np.nextafter(replacement.bounds + spent, np.inf)
    small = replacement.network if isinstance(network, Mlp) else replacement.network.to_dag()
    near = None if around is None else data
    return Pruning(network, small, (*stages, stage), region, tuple(bounds.tolist()), around, near)


RULES = (rules.silent, rules.constant, rules.dead, rules.duplicate, rules.opposite, rules.linear)


def _exact(dag: Dag, region: PruningRegion, for_rounding: Box, layered: bool) -> list[Stage]:
    """Apply every rule until none finds anything."""
    stages: list[Stage] = []
    fired = True
    while fired:
        fired = False
        for rule in RULES:
            try:
                change = rule(dag, region, layered)
                after, errors = rebuilt(dag, change) if change.evidence else (dag, {})
            except OverflowError:  # a folded weight would not fit into a float: leave these neurons
                continue
            if change.evidence:
                rounding = defect_bound(after, rounding_defects(dag, after, errors, for_rounding))
                stages.append(Stage(change.kind, dag, after, change.evidence, 0.0, rounding, change.carriers))
                dag, fired = after, True
    return stages


def _decide(
    start: Dag, stages: list[Stage], region: PruningRegion, for_rounding: Box, seconds: float
) -> tuple[list[Stage], Decided]:
    """The stages and those of neurons that others of their layer can stand for; what is known of all that are left."""
    extended = list(stages)

    def apply(dag: Dag, change: rules.Change) -> Dag:
        try:
            after, errors = rebuilt(dag, change)
        except OverflowError:
            return dag
        rounding = defect_bound(after, rounding_defects(dag, after, errors, for_rounding))
        extended.append(Stage(change.kind, dag, after, change.evidence, 0.0, rounding))
        extended.extend(_exact(after, region, for_rounding, True))
        return extended[-1].after

    _, decided = take_out(stages[-1].after if stages else start, seconds, apply)
    return extended, decided


def _near(dag: Dag, region: Box, tolerance: float) -> Stage | None:
    """As many neurons as the tolerance pays for, cheapest first, each replaced by a constant or by a near twin."""
    options = rules.replacements(dag, region)
    count = int((np.cumsum([option.cost for option in options]) <= tolerance).sum())
    while count:
        change, defects = rules.combine(dag, options[:count])
        after, errors = rebuilt(dag, change)
        placed = np.zeros(len(after.names))
        for name, defect in defects.items():
            if name in after.index:
                placed[after.index[name]] += defect
        bound = defect_bound(after, placed)
        rounding = defect_bound(after, rounding_defects(dag, after, errors, region))
        if bound + rounding <= tolerance:
            return Stage(change.kind, dag, after, change.evidence, bound, rounding)
        count -= max(1, count // 8)
    return None
