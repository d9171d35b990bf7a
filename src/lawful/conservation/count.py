"""Count the conservation laws of a network, and say whether the count is proved."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from lawful.conservation.closure.error_probability import ENOUGH, MOST_RUNS, miss, random_prime
from lawful.conservation.closure.lie_closure import POINT, Closure, Watch, close, refuse_if_too_large
from lawful.conservation.fields.flows import (
    DecayFields,
    Flow,
    MetricFields,
    Momentum,
    check_flow,
    even,
    homogeneous,
    independent_of_momentum,
    laws_of_momentum,
    under_metric,
)
from lawful.conservation.fields.gradient import Family, Gradients, Pieces
from lawful.conservation.known.graph_laws import known_laws
from lawful.conservation.known.law import LawFamily
from lawful.conservation.known.rank_one_subnetworks import Part, bound_directions, one_field_parts
from lawful.conservation.law_count import LawCount, LawQuestion, RankWitness
from lawful.conservation.regions.near_weights import Region, any_side, at_data, clear, near, spanning
from lawful.conservation.theorems import count_by_theorem
from lawful.errors import InvalidNetwork, LawfulError, Unsupported
from lawful.exact import PRIME, check_prime, rank, residues, to_residues
from lawful.network import Architecture, Dag, Mlp, Role
from lawful.network.dynamics import GradientFlow, HeavyBall, Metric, output_gradients
from lawful.sources.opening import Source, open, open_trained
from lawful.sources.provenance import read_as, with_provenance
from lawful.types import Residues

LEVELS = ("phi", "near", "data")
EXTRA_SEEDS = 2
SIDES = 24  # of a boundary that are looked at, until one leaves only laws that hold on all
MOST_MIXED = 64  # patterns that one field can sum
OTHER_MODE = "eval mode: in train mode the module computes something else, which is what training follows"
PROOF_SECONDS = 120.0  # of a processor, for a proof in ball arithmetic: a minute or two is what people wait for
# Each run multiplies the probability of a mistake by its own (`miss`); runs of large networks take long.
RUNS = ((150, MOST_RUNS), (600, 4), (2000, 1))  # up to so many variables: runs that test a count


def count_laws(
    network: Source,
    *,
    level: str = "phi",
    data: ArrayLike | None = None,
    loss: str = "full",
    flow: Flow | None = None,
    prime: int = PRIME,
    seed: int = 0,
    input_shape: tuple[int, ...] | tuple[tuple[int, ...], ...] | None = None,
    mode: str | None = None,
    classes_axis: int | None = None,
    seconds: float = PROOF_SECONDS,
    progress: Watch | None = None,
    ids: bool = False,
) -> LawCount:
    """`D − dim Lie(V)(θ)`: the number of independent functions that training keeps constant (P1 Corollary 3.5).

    Levels: "phi" (any weights, any data), "near" (near the given weights, any data), "data" (near the given weights,
    for these inputs and any labels). Losses: "full" (mean squared error and any other whose output gradients span),
    or "cross-entropy", whose classes are the axis `classes_axis` of a module's output (1, as in PyTorch; the last of a
    module that reads tokens). A graph or perceptron is counted exactly modulo a prime; other modules in float64, in the
    `mode` "train" (as training runs them: batch norms use the statistics of the batch, dropout draws its masks) or
    "eval". A module with several inputs takes their sizes: `input_shape=((3,), (2, 4))`. Where inputs are
    said to be `ids`, a module that does not show which whole numbers it reads is refused: real ones are none.
    The proof of a module's count may take so many `seconds` of a processor; what it would take is known early.

    >>> count = count_laws("6-5-6-4-3-6 linear")
    >>> count.laws, count.parameters, count.dimensions, count.status
    (52, 114, (27, 61, 62), 'proved')
    """
    if level not in LEVELS:
        raise LawfulError(f"unknown level {level!r}: choose from {', '.join(LEVELS)}")
    loss = output_gradients(loss)
    if (level == "data") != (data is not None):
        raise LawfulError("the level 'data' and a data set go together")
    flow = GradientFlow() if flow is None else check_flow(flow)
    shape: tuple[int, ...] | None
    if input_shape is not None and any(isinstance(size, tuple) for size in input_shape):
        from lawful.conservation.programs.single_tensor import with_one_input

        network, shape = with_one_input(network, input_shape)
    else:
        shape = tuple(size for size in input_shape if isinstance(size, int)) if input_shape is not None else None
    opened = open(network, input_shape=shape)
    trained: Any = open_trained(opened)
    if shape is None and len(several := getattr(trained, "input_sizes", ())) > 1:  # a module that states its inputs
        from lawful.conservation.programs.single_tensor import with_one_input

        trained, shape = with_one_input(trained, several)
    if shape is None and isinstance(opened, Mlp) and opened is not trained:
        shape = _vector_size(opened, trained)
    if ids and data is None:
        _refuse_unknown_ids(trained, shape)
    question = LawQuestion(
        flow, level, data, loss, mode or "train", classes_axis, shape, check_prime(prime), seed, seconds, progress
    )
    count = with_provenance(_count(trained, question), opened, trained=mode or "")
    return read_as(count, *(reading.assuming(*count.assumed) for reading in count.readings)) if count.assumed else count


def _refuse_unknown_ids(source: Any, shape: tuple[int, ...] | None) -> None:
    """Ids are drawn from a vocabulary; files round their whole inputs themselves, whatever is drawn."""
    if isinstance(source, (Architecture, Mlp, Dag)) or shape is None or hasattr(source, "input_sizes"):
        return
    from lawful.sources.modules.classes import vocabulary_of

    if vocabulary_of(source, shape) is None:
        raise Unsupported(
            f"which ids {type(source).__name__} reads is not known: it looks up no table with its input, and compares "
            "it with no range of numbers; laws for real inputs are counted without :int"
        )


def _vector_size(network: Mlp, module: Any) -> tuple[int, ...] | None:
    """The size of the inputs that were read, if the module behind the network takes vectors."""
    from lawful.sources.modules.convert import input_shapes

    size = (network.widths[0],)
    return size if size in input_shapes(module) else None


def _count(source: Any, question: LawQuestion) -> LawCount:
    level, data, loss, flow, seed = question.level, question.data, question.loss, question.flow, question.seed
    if not isinstance(source, (Architecture, Mlp, Dag)):
        graph = as_graph(source, question.input_shape, question.mode)
        if graph is None:
            from lawful.conservation.module_count import count_module

            return count_module(source, question)
        if question.mode == "eval" and not _one_mode(source, question.input_shape):
            count = _count(graph, question)
            return replace(count, mode="eval", assumed=(*count.assumed, OTHER_MODE))
        source = graph
    architecture = str(source) if isinstance(source, Architecture) else None
    if level == "phi" and (settled := count_by_theorem(source, loss, flow)) is not None:
        return settled
    refuse_if_too_large(source.parameters)
    dag = source.to_dag()
    job = _Job(dag, level, loss, flow, question.prime, None, question.progress)
    if level != "phi":
        return replace(_count_near(job, data, seed), architecture=architecture)
    best = _count_at_points(job, seed)
    return replace(best, architecture=architecture)


def _count_at_points(job: _Job, seed: int) -> LawCount:
    """The count at a random point, and at more if it is not proved: an unlucky point can only miss directions.

    Where patterns were chosen, gradients that span as much at the point as at the one of that choice are luck enough.
    """
    region, job = job.region, job.with_spanning(seed)
    best = job.run(seed)
    lucky = best.parameters if job.region is None or job.region is region else len(job.region.patterns)
    for other in range(seed + 1, seed + EXTRA_SEEDS):
        if best.status == "proved" or (best.states == best.parameters and best.dimensions[0] >= lucky):
            break
        again = job.run(other)
        best = max(best, again, key=lambda count: (count.status != "undecided", count.dimensions[-1]))
    return job.test_modulo_primes(best, seed) if best.status == "numerical" else best


def _count_near(job: _Job, data: ArrayLike | None, seed: int) -> LawCount:
    """The count near weights.

    On a boundary between patterns a law has to hold in all regions that meet there: the fewest laws of several of them
    bound the number from above, and from below only those count that hold whatever the gates in question.
    """
    counts: list[LawCount] = []
    for side in range(seed, seed + SIDES):
        region = near(job.dag, side) if data is None else at_data(job.dag, data, job.prime, side)
        if region.nudged and data is None and not counts and (away := clear(job.dag, seed)) is not None:
            count = _count_at_points(replace(job, region=away), seed)
            if count.proved:
                return count
        if region.nudged:
            region = any_side(job.dag, region, data, job.prime)
        counts.append(_count_at_points(replace(job, dag=job.dag.with_theta(region.theta), region=region), seed))
        if not region.nudged or counts[-1].proved:
            break
    return min(counts, key=lambda count: count.laws)


@dataclass(frozen=True, eq=False)
class _Job:
    dag: Dag
    level: str
    loss: str
    flow: Flow
    prime: int
    region: Region | None
    progress: Watch | None

    def run(self, seed: int) -> LawCount:
        """Bound the laws from below by explicit ones and from above by brackets."""
        family = self.family(seed)
        point = residues(seed, (POINT,), [0], family.size, self.prime)[0]
        known, independent = self.explicit(point)
        parts, bound = self.bound(known, independent, point)
        closure = close(family, family.size - bound, self.progress)
        status, reason = self._status(closure, family.size - bound)
        witness = RankWitness(self.prime, seed, closure.point, closure.rows)
        return LawCount(
            self.dag.parameters, family.size, closure.dimensions, known, independent, status, self.level, self.flow,
            self.loss, dag=self.dag, witness=witness, region=self.region, reason=reason, claim=self.claim,
            parts=parts if bound > independent else (),
        )  # fmt: skip

    def with_spanning(self, seed: int) -> _Job:
        """The same with the patterns that matter."""
        if self.region is None:
            return self
        point = residues(seed, (POINT,), [0], self.dag.parameters, self.prime)[0]
        laws = replace(self, flow=GradientFlow()).explicit(point)[1]
        gradients = Gradients(self.dag, self.prime, seed, self.loss)
        chosen = spanning(self.region, gradients, self.dag.parameters - laws)
        return replace(self, region=chosen) if len(chosen.patterns) else self  # no pattern lets any weight move

    def bound(self, known: LawFamily, independent: int, point: Residues) -> tuple[tuple[Part, ...], int]:
        """The parts that pass one number on, and how many laws are independent with those that they imply."""
        flow = self.flow
        if isinstance(flow, HeavyBall) or (isinstance(flow, Metric) and flow.diagonal is None):
            return (), independent
        gates = np.where(self.dag.slopes == 1.0, 1.0, np.nan) if self.region is None else self.region.fixed
        parts = one_field_parts(self.dag, gates, None if self.region is None else self.region.on_data)
        if isinstance(flow, GradientFlow) and flow.decay:
            parts = tuple(part for part in parts if even(self.dag, part))
        point = point[: self.dag.parameters]
        if not parts:
            return (), independent
        exact = to_residues(np.nan_to_num(gates, nan=1.0), self.prime)
        speeds = to_residues(flow.diagonal, self.prime) if isinstance(flow, Metric) and flow.diagonal is not None else 1
        speed = np.broadcast_to(speeds, self.dag.parameters)
        rows = [bound_directions(self.dag, exact, part, point, speed, self.prime) for part in parts]
        return parts, rank(np.concatenate([known.gradients_modulo(point, self.prime), *rows]), self.prime)

    def test_modulo_primes(self, count: LawCount, seed: int) -> LawCount:
        """A count that is not proved, again modulo random primes: with the probability that all of them failed.

        Where not all patterns are known, or neurons lie on a boundary, no probability says that nothing was missed.
        """
        region = self.region
        known = region is None or (region.on_data is not None and not region.nudged)
        if not known or (region is not None and len(region.patterns) > MOST_MIXED):
            return count
        runs = next((runs for size, runs in RUNS if count.states <= size), 0)
        error = 1.0
        for number in range(runs):
            prime = random_prime(seed, number)
            again = replace(self, prime=prime, region=None if region is None else region.modulo(prime, self.dag))
            rerun = again.run(seed + EXTRA_SEEDS + number)
            if rerun.status == "undecided":
                continue
            if rerun.dimensions[-1] > count.dimensions[-1]:
                count, error = rerun, 1.0
            if count.proved:
                return count
            error *= miss(self.dag, len(rerun.dimensions), self.flow, None if region is None else region.numbers)
            if error <= ENOUGH:
                break
        return replace(count, error=error) if error < 1 else count

    @property
    def claim(self) -> str:
        """What a proof would be about; without gates the fields of φ are those of training."""
        gated = ((self.dag.roles == Role.HIDDEN) & (self.dag.slopes != 1.0)).any()
        return "phi" if self.level == "phi" and gated else "near"

    def _status(self, closure: Closure, bound: int) -> tuple[str, str]:
        if closure.dimensions[-1] == bound:
            return "proved", ""
        if not closure.stagnated:
            return "undecided", "the brackets kept finding new directions"
        if self.region is not None and self.region.together:
            names = " and ".join(self.region.together[0])
            return "undecided", f"{names} switch at inputs that float64 cannot tell apart"
        unsure = self.region.unsure if self.region is not None else ()
        seen = f"; only one gate was seen of {', '.join(unsure[:5])}" if unsure else ""
        if self.region is not None and self.region.nudged:
            seen += "; the weights lie on a boundary between patterns, where more laws may hold on one side only"
        return "numerical", f"{closure.dimensions[-1]} directions found, {bound} are possible" + seen

    def family(self, seed: int) -> Family:
        """The fields of this flow."""
        free = Gradients(self.dag, self.prime, seed, self.loss)
        region = self.region
        gradients: Gradients | Pieces = free
        if region is not None:
            gradients = Pieces(free, region.gates(self.prime), region.spans, region.mixed)
        match self.flow:
            case HeavyBall():
                return Momentum(gradients, self.flow)
            case Metric():
                return MetricFields(gradients, self.flow)
            case GradientFlow(decay) if decay:
                return DecayFields(gradients, self.flow)
        return gradients

    def explicit(self, point: Residues) -> tuple[LawFamily, int]:
        """The laws that structure gives, and how many are independent at the point."""
        region = self.region
        if region is None:
            laws = known_laws(self.dag, loss=self.loss)
        else:
            seen = region.on_data
            resting, still = (None, ()) if seen is None else (seen.resting, seen.still)
            laws = known_laws(self.dag, loss=self.loss, fixed=region.fixed, alike=region.alike, at_rest=resting)
            laws = LawFamily((*laws, *still), laws.parameters)
        match self.flow:
            case HeavyBall():
                momentum_laws = laws_of_momentum(laws, self.flow)
                return momentum_laws, independent_of_momentum(momentum_laws, self.flow, point, self.prime)
            case Metric():
                laws = under_metric(laws, self.flow)
            case GradientFlow(decay) if decay:
                laws = homogeneous(laws)
        return laws, laws.independent(point[: self.dag.parameters], self.prime)


def as_graph(module: Any, input_shape: tuple[int, ...] | None, mode: str = "train") -> Mlp | Dag | None:
    """A module of linear layers and homogeneous activations, no weight used twice, is a graph and counted exactly.

    One that computes something else in train mode (dropout, a branch on `training`) is none.
    """
    import torch

    from lawful.conservation.programs.module_function import probe
    from lawful.sources.modules.convert import from_module

    if not isinstance(module, torch.nn.Module):
        raise LawfulError(f"cannot count the laws of a {type(module).__name__}: give a network, a module or a string")
    if mode != "eval" and not _one_mode(module, input_shape):
        return None  # a graph is read in eval mode
    if not all(parameter.requires_grad for parameter in module.parameters()):
        return None
    try:
        graph = from_module(module, input_shape)
    except (Unsupported, InvalidNetwork):  # of the second kind are pools that leave out a row
        return None
    if graph.reading is not None and (graph.reading.entangled or graph.reading.tail):
        return None  # a convolution is a graph too, but one whose weights move together
    if graph.parameters != sum(parameter.numel() for parameter in module.parameters()):
        return None
    return graph if probe(module, input_shape, mode=mode).gradient else None


def _one_mode(module: Any, input_shape: tuple[int, ...] | None) -> bool:
    """Whether the calls of a module are the same in both modes, none of them random."""
    from lawful.program.frontends.export import same_in_both_modes
    from lawful.sources.modules.convert import input_shapes

    shape = input_shape if input_shape is not None else next(iter(input_shapes(module)), None)
    return shape is not None and same_in_both_modes(module, shape)
