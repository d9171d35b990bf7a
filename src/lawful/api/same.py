"""Are two networks the same function? Graphs exactly, checkpoints of modules by their symmetries."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Unpack

from lawful.api.inputs import AskedBox, Help, PairOptions, Seconds, Seed, takes
from lawful.errors import LawfulError, Unsupported
from lawful.result import with_evidence

if TYPE_CHECKING:
    from collections.abc import Callable

    from lawful.api.two_networks import TwoNetworks
    from lawful.checkpoints.compare.decide import CheckpointVerdict
    from lawful.checkpoints.opening import ApartPair, CheckpointPair
    from lawful.checkpoints.verdict import ApartVerdict
    from lawful.fibers.verdict import Verdict
    from lawful.sources.opening import Source

    Sameness = Verdict | CheckpointVerdict | ApartVerdict


@takes(PairOptions)
def same(
    first: Source,
    second: Source,
    *,
    box: AskedBox = None,
    exact: Annotated[bool, Help("Weights are the rationals that floats are.")] = False,
    tolerance: Annotated[float | None, Help("Relative rounding of weights that is excused.")] = None,
    within: Annotated[float | None, Help("Ask for outputs this close on the box instead.")] = None,
    seconds: Seconds = 60.0,
    seed: Seed = 0,
    **reading: Unpack[PairOptions],
) -> Sameness:
    """Decide whether two networks are the same function: *equal*, *different* or *undecided*, and within what.

    Networks of ReLU and linear layers are decided as functions (`lawful.fibers.same`), on all inputs or on a box. Other
    modules, and large ones, are checkpoints: equal if a symmetry of the module carries one to the other.

    >>> same("3-4-2 relu", "3-4-2 relu").verdict
    'equal'
    >>> from torch import nn
    >>> one = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    >>> turned = {"0.weight": -one[0].weight.flip(0), "0.bias": -one[0].bias.flip(0),
    ...           "2.weight": -one[2].weight.flip(1), "2.bias": one[2].bias}
    >>> answer = same(one, turned, model=one, input=(3,))
    >>> answer.verdict, answer.within
    ('equal', 'exactly')
    """
    if not seconds > 0:
        raise LawfulError(f"a time limit is a positive number of seconds, not {seconds}")
    from lawful.api.two_networks import TwoNetworks
    from lawful.fibers.same import same as same_graphs
    from lawful.fibers.verdict import certificate, is_certified
    from lawful.formats.queries.box import box_of
    from lawful.sources.provenance import read_as

    networks = TwoNetworks(first, second, **reading)
    started = time.perf_counter()
    plain = box is None and tolerance is None and within is None and not exact
    if plain and networks.are_checkpoints():
        return _compare_weights(networks, seed, started)
    graphs = networks.graphs(seed=seed, drop_useless=True)
    where = box_of(box, graphs[0]) if isinstance(box, str) else box
    verdict = same_graphs(
        *graphs, seconds=seconds, seed=seed, box=where, exact=exact, tolerance=tolerance, within=within
    )
    if plain and (other := _other_answer(networks, verdict, seed, started)) is not None:
        return other
    read_as(verdict, *(reading.in_exact_terms() for reading in verdict.readings))
    return with_evidence(verdict, (lambda: certificate(verdict, *graphs)) if is_certified(verdict) else None)


def _other_answer(networks: TwoNetworks, verdict: Verdict, seed: int, started: float) -> Sameness | None:
    """What the weights say where the graphs leave it open, or differ as a copy does whose weights were rounded.

    Asked of every pair that graphs tell apart, in whatever form it came: one pair has one answer.
    """
    if verdict.verdict == "equal":
        return None
    from lawful.checkpoints.compare.decide import CheckpointVerdict

    try:
        copy = _compare_weights(networks, seed, started)
    except LawfulError:  # they are graphs, and no modules
        return None
    if verdict.verdict == "undecided":
        return None if copy.verdict == "undecided" else copy
    if not isinstance(copy, CheckpointVerdict):
        return None
    # Weights of graphs may be computed (batch norms folded), so that graphs tell float32 roundings of a copy apart.
    computed = any(reading.computed for reading in verdict.readings)
    if copy.verdict == "equal" and copy.within == "exactly" and not computed:
        raise AssertionError("the same weights up to a symmetry, and an input at which exact outputs differ")
    return copy if copy.is_copy else None


def _compare_weights(networks: TwoNetworks, seed: int, started: float) -> CheckpointVerdict | ApartVerdict:
    """The answer for checkpoints: a symmetry carries one to the other, or an input shows that none does."""
    from lawful.api.checkpoints.quantisation import quantisation_words
    from lawful.checkpoints.compare.certificate import copy_certificate
    from lawful.checkpoints.opening import ApartPair
    from lawful.checkpoints.verdict import decide, decide_apart
    from lawful.sources.provenance import read_as

    pair, readings = networks.checkpoints()
    answer: CheckpointVerdict | ApartVerdict
    if isinstance(pair, ApartPair):
        answer, evidence = _retrace_input(*decide_apart(pair, seed=seed))
    else:
        form, verdict = decide(pair, seed=seed)
        worded = replace(verdict, rewritten=form.rewritten)
        if verdict.verdict != "equal" and (words := quantisation_words(pair, networks.first, networks.second)):
            worded = replace(worded, reason=f"{worded.reason}; {words}")
        if worded.certified:
            answer, evidence = worded, lambda: copy_certificate(form, verdict)
        else:
            answer, evidence = _retrace_input(form, worded)
    return with_evidence(read_as(replace(answer, seconds=time.perf_counter() - started), *readings), evidence)


def _retrace_input(
    pair: CheckpointPair | ApartPair, verdict: CheckpointVerdict | ApartVerdict
) -> tuple[CheckpointVerdict | ApartVerdict, Callable[[], dict[str, Any]] | None]:
    """A difference that an input shows, with the steps to the outputs there if they can be listed."""
    from lawful.api.checkpoints.outputs_differ import outputs_certificate, retrace

    replay = verdict.replay
    if verdict.verdict != "different" or replay is None:
        return verdict, None
    try:
        one, two = retrace(pair, replay)
    except Unsupported:
        return verdict, None
    return replace(verdict, retraced=True), lambda: outputs_certificate(one, two)
