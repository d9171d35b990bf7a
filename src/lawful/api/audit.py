"""Everything we know about one network, in order of consequence, each fact with its evidence."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from lawful import fibers
from lawful.api.prune import depth_of, smallest_of
from lawful.conservation import LawCount, count_laws
from lawful.errors import LawfulError, Unsupported
from lawful.fibers.deep.identifiability import Identifiability, identifiable
from lawful.fibers.summary import describe_fiber
from lawful.formats.queries.data import Data
from lawful.invariant_set.locks.components import Components, OutputMeaning, components, locked_outputs
from lawful.invariant_set.locks.unlock import unlock
from lawful.invariant_set.rebalance import Rebalanced, rebalance
from lawful.invariant_set.singular.spectrum import Singularity, singularity
from lawful.network import Dag, Mlp
from lawful.pruning.neurons.prune import Pruning, prune
from lawful.pruning.removable.activity import settle
from lawful.pruning.removable.smallest import Smallest
from lawful.result import Shown
from lawful.sentences import audit as says
from lawful.sources.activity import LayerActivity, activity
from lawful.sources.opening import Source, open_free
from lawful.sources.provenance import with_provenance
from lawful.sources.summary import Summary, summarise
from lawful.types import Floats

if TYPE_CHECKING:
    from lawful.pruning.channels import ChannelPruning
    from lawful.pruning.channels.onnx_file import OnnxPruning
    from lawful.symmetry import Symmetries

EFFORTS = ("quick", "normal", "full")
# For an exact count of laws, whose time grows like the cube: 1 second for 2,400 parameters, 10 seconds for 6,500.
MOST_PARAMETERS = {"quick": 2500, "normal": 6000, "full": 20_000}
MOST_NEAR_PARAMETERS = {"quick": 600, "normal": 2500, "full": 20_000}  # near given weights: five times as long
MOST_DATA_PARAMETERS = {"quick": 150, "normal": 400, "full": 5000}  # for the laws of one data set
MOST_IDENTIFIABLE = {"quick": 10_000, "normal": 100_000, "full": 10**9}
DECIDE = {"quick": 2.0, "normal": 6.0, "full": 60.0}  # seconds to decide which neurons are needed, dead or linear
MOST_RECOMMENDATIONS = 5
MOST_EXAMPLES = 10
SAVED = "--out pruned.safetensors --certificate pruned.json"
WORTH_IT = 0.02  # a rescaling that shrinks the squared norm by less than this is not worth a line


@dataclass(frozen=True)
class Skipped:
    """A part that was left out, why, and how to ask for it."""

    part: str
    reason: str
    remedy: str


@dataclass(frozen=True)
class Recommendation:
    """Something to do, the command that does it, and what it was measured to bring (a share of the network)."""

    title: str
    command: str
    benefit: str
    share: float


@dataclass(frozen=True, eq=False)
class Audit(Shown):
    """All answers about one network. None means: does not apply, or skipped (then `skipped` says why).

    A network whose weights are edges of one graph has a `summary` and what is decided neuron by neuron; of any other
    module the same questions are answered from its `symmetries`, in terms of channels and entries.
    """

    source: str
    kind: str  # an architecture, or the class of a module
    parameters: int
    components: Components | None
    locked_after_rescaling: int | None  # of the weights that are locked now, if rescaling can free some
    balanced_norm: float | None  # squared norm after rescaling to balance 0 over the norm now, if that can be reached
    pruning: Pruning | ChannelPruning | OnnxPruning | None
    singularity: Singularity | None
    skipped: tuple[Skipped, ...]
    recommendations: tuple[Recommendation, ...]
    asked: str = ""  # the source and the options that reading it took, as a command takes them

    symmetries: Symmetries | None = None
    frozen: int = 0

    network: Mlp | Dag | None = None
    summary: Summary | None = None
    depth: int | None = None  # hidden layers, None for a graph with skips
    balance: Floats = field(default_factory=lambda: np.zeros(0))
    laws: LawCount | None = None
    near_laws: LawCount | None = None
    data_laws: LawCount | None = None
    outputs: tuple[OutputMeaning, ...] = ()
    unlocked: Rebalanced | None = None
    smallest: Smallest | None = None  # how many neurons any network of the same depth needs for this function
    box_pruning: Pruning | None = None
    identifiability: Identifiability | None = None
    normal_form: fibers.NormalForm | None = None
    fiber_dimension: int | None = None  # freedom beyond permutation and scaling, where paper 4's theorems give it
    activity: tuple[LayerActivity, ...] = ()
    examples: Floats | None = None  # a few inputs from the data, to show


def audit(
    network: Source,
    *,
    source: str = "network",
    asked: str = "",
    data: Data | None = None,
    loss: str = "full",
    effort: str = "normal",
) -> Audit:
    """Ask every question about a network; `effort` is quick, normal or full, and decides what is too large to ask.

    `asked` is how a command names the network: its source with the options that reading it took.

    >>> from lawful.network import Architecture
    >>> found = audit(Architecture.parse("3-6-4-1 relu bias").initialise(seed=1), source="net.pt")
    >>> found.laws.laws, found.laws.status, found.components.connected
    (10, 'proved', True)
    >>> found.recommendations[0].command
    'lawful rebalance net.pt --balance zero --out balanced.safetensors'
    """
    asked = asked or shlex.quote(source)
    if effort not in EFFORTS:
        raise LawfulError(f"unknown effort {effort!r}: choose from {', '.join(EFFORTS)}")
    network = open_free(network)
    dag = network.to_dag()
    skipped: list[Skipped] = []
    where = components(network)
    unlocked = None if where.connected else _rescale(unlock, network, "rescaling that frees signs", skipped)
    balanced = _rescale(rebalance, network, "rescaling to equal norms", skipped) if len(dag.hidden) else None
    norm = float((dag.theta**2).sum())
    reached = balanced is not None and balanced.reached and norm
    pruning = prune(network, decide=DECIDE[effort])
    box = None if data is None else (data.x.min(axis=0), data.x.max(axis=0))
    box_pruning = None if box is None else prune(network, box=box)
    left = None if unlocked is None else unlocked.locked
    ratio = float((balanced.dag.theta**2).sum()) / norm if balanced is not None and reached else None
    summary = settle(summarise(network), network, seconds=DECIDE[effort])
    laws = _laws(network, data, loss, effort, asked, skipped)
    fiber = _identifiable(network, effort, asked, skipped)
    found = Audit(
        source=source,
        kind=summary.name,
        parameters=summary.parameters,
        components=where,
        locked_after_rescaling=left,
        balanced_norm=ratio,
        pruning=pruning,
        singularity=singularity(dag),
        skipped=tuple(skipped),
        recommendations=best_first(
            [*_removals(asked, network, pruning, box_pruning, box), *rescalings(asked, where, left, ratio)]
        ),
        asked=asked,
        network=network,
        summary=summary,
        depth=depth_of(network),
        balance=dag.hidden_incidence @ dag.theta**2,
        outputs=locked_outputs(where),
        unlocked=unlocked,
        smallest=smallest_of(network, pruning),
        box_pruning=box_pruning,
        activity=() if data is None else activity(dag, data),
        examples=None if data is None else _examples(data),
        **laws,
        **fiber,
    )
    return with_provenance(found, network)


def _rescale(
    method: Callable[[Mlp | Dag], Rebalanced], network: Mlp | Dag, part: str, skipped: list[Skipped]
) -> Rebalanced | None:
    """A rescaling, or why there is none: weights of too many magnitudes must not end the other answers."""
    try:
        return method(network)
    except LawfulError as error:
        skipped.append(Skipped(part, str(error), "nothing else depends on it"))
        return None


def _examples(data: Data) -> Floats:
    """The first input of every class, or the first few."""
    if data.classes is None:
        return data.x[:MOST_EXAMPLES]
    first = [int(np.flatnonzero(data.classes == label)[0]) for label in np.unique(data.classes)[:MOST_EXAMPLES]]
    return data.x[first]


def _laws(
    network: Mlp | Dag, data: Data | None, loss: str, effort: str, asked: str, skipped: list[Skipped]
) -> dict[str, Any]:
    """Counts at the level of the architecture, near these weights, and for these data, where each is affordable."""
    size = network.parameters
    counts: dict[str, Any] = {"laws": None, "near_laws": None, "data_laws": None}
    if size > MOST_PARAMETERS[effort]:
        reason = f"{size:,} parameters; an exact count takes time like their cube"
        skipped.append(Skipped("proof that there are no other laws", reason, f"lawful laws {asked}"))
        return counts
    counts["laws"] = count_laws(network, loss=loss)
    if size > MOST_NEAR_PARAMETERS[effort]:
        reason = f"{size:,} parameters; near given weights a count takes five times as long"
        skipped.append(Skipped("laws near these weights", reason, f"lawful laws {asked} --near"))
    else:
        counts["near_laws"] = count_laws(network, level="near", loss=loss)
    if data is not None and size <= MOST_DATA_PARAMETERS[effort]:
        counts["data_laws"] = count_laws(network, level="data", data=data.x, loss=loss)
    elif data is not None:
        skipped.append(Skipped("laws of this data set", f"{size:,} parameters", f"lawful audit {asked} --full"))
    return counts


def _identifiable(network: Mlp | Dag, effort: str, asked: str, skipped: list[Skipped]) -> dict[str, Any]:
    """Paper 4's theorems, where the network has their shape."""
    answers: dict[str, Any] = {"identifiability": None, "normal_form": None, "fiber_dimension": None}
    part = "which parameters are the same function"
    if network.parameters > MOST_IDENTIFIABLE[effort]:
        skipped.append(Skipped(part, f"{network.parameters:,} parameters", f"lawful audit {asked} --full"))
    elif isinstance(network, Mlp) and len(network.slopes) == 1 and network.slopes[0] == 0.0:
        answers["normal_form"] = fibers.normal_form(network, tolerance=0.0)
        answers["fiber_dimension"] = _fiber_dimension(network)
    elif isinstance(network, Mlp) and network.slopes == (0.0, 0.0):
        try:
            answers["identifiability"] = identifiable(network)
            answers["fiber_dimension"] = _fiber_dimension(network)
        except Unsupported as error:
            skipped.append(Skipped(part, str(error), "compare two networks with lawful same"))
    else:
        skipped.append(Skipped(part, "theorems cover one or two hidden ReLU layers", "compare two with lawful same"))
    return answers


def _fiber_dimension(network: Mlp) -> int | None:
    """Continuous freedom of the parameters of this function, or None where its bounds do not meet."""
    summary = describe_fiber(network).summary
    # what can be left out has freedom of its own, not counted here
    return None if summary.removed else summary.dimension


def _removals(
    name: str, network: Mlp | Dag, pruning: Pruning, box_pruning: Pruning | None, box: tuple[Floats, Floats] | None
) -> list[Recommendation]:
    """Neurons to remove: those that no input needs, and those that inputs in the range of the data do not need."""
    advice: list[Recommendation] = []
    removed = _share_removed(network, pruning)
    if removed > 0:
        advice.append(removal(name, _count_removed(pruning), removed, pruning.rounding))
    if box is None or box_pruning is None or _share_removed(network, box_pruning) <= removed:
        return advice
    # The command takes one interval for all inputs, so it is that box which has to be worth it.
    low, high = float(box[0].min()), float(box[1].max())
    wide = prune(network, box=(np.full_like(box[0], low), np.full_like(box[1], high)))
    if (more := _share_removed(network, wide)) > removed:
        title, benefit = says.advise_box(_count_removed(wide), more, Fraction(wide.bound) + Fraction(wide.rounding))
        command = f"lawful prune {name} --box={low!r},{high!r} {SAVED}"
        advice.append(Recommendation(title, command, benefit, more))
    return advice


def removal(
    name: str, count: int, share: float, rounding: float | None, noun: str = "neuron", files: str = SAVED
) -> Recommendation:
    """Neurons or channels that change nothing; None is a rounding that was not bounded."""
    title, benefit = says.advise_pruning(count, share, rounding, noun)
    return Recommendation(title, f"lawful prune {name} {files}", benefit, share)


def rescalings(
    name: str,
    where: Components | None,
    left: int | None,
    balanced_norm: float | None,
    advise_unlocking: Callable[[int, int], tuple[str, str]] = says.advise_unlocking,
    advise_balancing: Callable[[float], tuple[str, str]] = says.advise_balancing,
) -> Iterator[Recommendation]:
    """Rescalings that keep the function: one frees signs, `left` of them staying locked, the other shrinks the norm.

    Of a module the sentences claim less: other laws than balances may lock a sign, and not all weights are rescaled.
    """
    if where is not None and left is not None and left < (locked := len(where.locked)):
        title, benefit = advise_unlocking(locked, left)
        command = f"lawful rebalance {name} --balance unlock --out unlocked.safetensors"
        yield Recommendation(title, command, benefit, (locked - left) / max(len(where.dag.hidden), 1))
    if balanced_norm is not None and (saved := 1.0 - balanced_norm) > WORTH_IT:
        title, benefit = advise_balancing(saved)
        command = f"lawful rebalance {name} --balance zero --out balanced.safetensors"
        yield Recommendation(title, command, benefit, saved)


def best_first(advice: Iterable[Recommendation]) -> tuple[Recommendation, ...]:
    """At most five things to do, by how much of the network they change for the better."""
    return tuple(sorted(advice, key=lambda each: -each.share)[:MOST_RECOMMENDATIONS])


def _count_removed(pruning: Pruning) -> int:
    """How many neurons went."""
    return pruning.neurons_before - pruning.neurons_after


def _share_removed(network: Mlp | Dag, pruning: Pruning) -> float:
    return 1.0 - pruning.network.parameters / network.parameters
