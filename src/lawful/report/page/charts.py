"""The figure of each kind of result: the first picture that one would draw of it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from lawful.errors import Unsupported
from lawful.figure import COLOURS, Figure, Panel, Series, Style
from lawful.outward import at_most
from lawful.report.audit.neurons import neurons_of
from lawful.sentences import components as lock_says
from lawful.sentences import laws as law_says

if TYPE_CHECKING:
    from lawful.api.audit import Audit
    from lawful.api.checkpoints.diff import Diff
    from lawful.api.invariant_set import SingularityReport
    from lawful.bounds.result import Distance
    from lawful.conservation import LawCount
    from lawful.conservation.known.flow_box import LevelSets
    from lawful.invariant_set import Components, WeightPath
    from lawful.papers.leaky import BlockReadings
    from lawful.papers.truncation.flow.motion import TruncationRun
    from lawful.pruning.neurons.prune import Pruning
    from lawful.sources.summary import Summary
    from lawful.symmetry.result import Symmetries


def sorted_values(values: Any, title: str, x: str, y: str, log_y: bool = False) -> Panel:
    """All values from the largest to the smallest: a curve that shows gaps and outliers without bins."""
    ranked = np.sort(np.asarray(values, dtype=float).ravel())[::-1]
    style: Style = "points" if len(ranked) <= 60 else "line"
    marks = [] if log_y or not len(ranked) or ranked[-1] >= 0 else [0.0]
    return Panel(
        [Series(ranked, np.arange(1, len(ranked) + 1), style=style)], title, x, y, log_y=log_y, horizontal=marks
    )


def audit(found: Audit) -> Figure:
    """Balances, and what can be removed; of a module its laws."""
    if found.symmetries is not None:
        return symmetries(found.symmetries)
    facts = neurons_of(found)
    kinds = [("stay", facts.pruning.neurons_after), ("can go", facts.removed)]
    neurons = Panel(
        [Series([count], [place], f"{name}: {count:,}", "bars") for place, (name, count) in enumerate(kinds)],
        "hidden neurons",
    )
    return Figure("Every neuron's balance, largest first, and how many neurons can go without any change.",
                  [sorted_values(found.balance, "balances", "neuron, by rank", "balance"), neurons])  # fmt: skip


def laws(count: LawCount) -> Figure:
    """How the reached directions grow until they stop: what is left over is conserved."""
    reached = Series(
        list(count.dimensions), list(range(len(count.dimensions))), "directions that training can take", "points"
    )
    if count.proved:
        caption = law_says.directions(count.laws, count.states)
    else:
        caption = law_says.not_reached(count.laws, count.states, count.status)
    panel = Panel([reached], "closure under brackets", "brackets", "dimension", horizontal=[float(count.states)])
    return Figure(caption, [panel])


def level_sets(found: LevelSets) -> Figure:
    """Lines in the plane of two weights that training does not leave while the others stay."""
    lines = [Series(y, x, "", "line", colour=COLOURS[0]) for _, x, y in found.lines]
    middle = len(found.x) // 2
    here = Series([found.y[middle]], [found.x[middle]], "the weights", "points", colour=COLOURS[1])
    panel = Panel([*lines, here], f"{found.names[2]} at level {found.level:.4g}", found.names[0], found.names[1])
    caption = (
        f"Level sets of a law without a closed form: {found.names[2]} where the line of training passes on "
        f"{found.level:.4g} (off by less than {at_most(found.error, 1)})."
    )
    return Figure(caption, [panel])


def locks(found: Components) -> Figure:
    """How far from zero the locked weights stay."""
    if not found.locked:
        balances = sorted_values(
            [float(value) for value in found.balance.fractions], "balances", "neuron, by rank", "balance"
        )
        lead = "Whether a weight is locked is left open by the tolerance" if found.marginal else lock_says.no_lock()
        return Figure(f"{lead}: every balance, largest first.", [balances])
    now = [abs(float(found.dag.theta[lock.edge])) if found.dag.weights is not None else np.nan for lock in found.locked]
    order = np.argsort([-lock.barrier for lock in found.locked])[:200]
    ranks = np.arange(1, len(order) + 1)
    series = [
        Series([found.locked[k].barrier for k in order], ranks, "never below", "bars"),
        Series([now[k] for k in order], ranks, "size now", "points"),
    ]
    return Figure(lock_says.never_below(),
                  [Panel(series, "locked weights", "weight, by rank", "size")])  # fmt: skip


def path(found: WeightPath) -> Figure:
    """The weights along the path."""
    times = np.linspace(0, 1, 61)
    weights = np.stack([found.at(float(time)) for time in times])
    chosen = np.argsort(-np.abs(weights).max(axis=0), kind="stable")[:24]
    curves = [Series(weights[:, edge], times) for edge in chosen]
    return Figure(
        "The largest weights along the path; the balances do not move.",
        [Panel(curves, "weights", "along the path", "θ", horizontal=[0.0])],
    )


def diff(found: Diff) -> Figure:
    """How far each balance moved."""
    return Figure("How far the balance of each neuron moved: gradient flow would keep all at 0.",
                  [sorted_values(found.drift, "drift of balances", "neuron, by rank", "drift")])  # fmt: skip


def distance(found: Distance) -> Figure:
    """Lower and upper bounds of every output."""
    outputs = found.per_output[:60]
    places = [part.output for part in outputs]
    series = [
        Series([part.upper for part in outputs], places, "at most", "bars"),
        Series([part.lower_float for part in outputs], places, "at least", "points"),
    ]
    return Figure(
        "How far apart the two networks are on the box, output by output.",
        [Panel(series, "largest difference", "output", "|g − f|")],
    )


def pruning(found: Pruning) -> Figure:
    """What was removed, by kind."""
    counts: dict[str, int] = {}
    for stage in found.stages:
        counts[stage.kind] = counts.get(stage.kind, 0) + len(stage.removed)
    series = [
        Series([count], [place], f"{kind}: {count:,}", "bars") for place, (kind, count) in enumerate(counts.items(), 1)
    ]
    series.insert(0, Series([found.neurons_after], [0], f"left: {found.neurons_after:,}", "bars"))
    return Figure("Hidden neurons that are left, and those that went, by reason.", [Panel(series, "hidden neurons")])


def singular(found: SingularityReport) -> Figure:
    """The singular values of J."""
    if found.spectrum is None:
        raise Unsupported("too many neurons: the singular values were not computed")
    values = np.maximum(found.spectrum.values, 1e-17)
    return Figure("Singular values of J: those near zero belong to neurons about to be cut off.",
                  [sorted_values(values, "singular values of J", "number", "σ", log_y=True)])  # fmt: skip


def layers(found: Summary) -> Figure:
    """Neurons and parameters of each layer."""
    places = list(range(len(found.layers)))
    panels = [Panel([Series([layer.width for layer in found.layers], places, style="bars")], "neurons", "layer")]
    parameters = [layer.parameters for layer in found.layers if layer.parameters is not None]
    if len(parameters) < len(found.layers):  # weights that several neurons share belong to no single layer of the graph
        return Figure("Neurons, layer by layer.", panels)
    panels.append(Panel([Series(parameters, places, style="bars")], "parameters", "layer"))
    return Figure("Neurons and parameters, layer by layer.", panels)


def symmetries(found: Symmetries) -> Figure:
    """How many laws each kind of group gives."""
    kinds: Counter[str] = Counter()
    for space in found.spaces:
        kinds[space.group] += space.count
    largest = kinds.most_common(8)
    series = [
        Series([max(count, 0.5)], [place], f"{kind}: {count:,}", "bars") for place, (kind, count) in enumerate(largest)
    ]
    return Figure("Conservation laws by the group that they come from.", [Panel(series, "laws", log_y=True)])


def blocks(found: BlockReadings) -> Figure:
    """Effective dimension and movement of every block."""
    places = list(range(1, len(found.blocks) + 1))
    panels = [
        Panel(
            [Series([block.dimension for block in found.blocks], places, style="line")], "effective dimension", "block"
        ),
        Panel([Series([block.distance for block in found.blocks], places, style="bars")], "distance moved", "block"),
    ]
    return Figure("A dip of the effective dimension is a bottleneck.", panels)


def truncation(run: TruncationRun) -> Figure:
    """The cost along the flow."""
    return Figure("The Euclidean cost along the flow.", [Panel([Series(run.costs, run.times)], "cost", "s", "C")])
