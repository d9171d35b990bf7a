"""Are two networks the same function? Graphs exactly, checkpoints of modules by their symmetries."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike

from lawful.api.two_networks import TwoNetworks
from lawful.errors import LawfulError, Unsupported
from lawful.fibers.regions.domain import Domain
from lawful.fibers.same import same as same_graphs
from lawful.fibers.verdict import Verdict, certificate, certified
from lawful.formats.queries.box import box_of
from lawful.sources.opening import Model, Source
from lawful.sources.provenance import read_as

if TYPE_CHECKING:
    from lawful.checkpoints.compare.decide import CheckpointVerdict
    from lawful.checkpoints.opening import ApartPair, CheckpointPair
    from lawful.checkpoints.rewrite.unrelated_programs import ApartVerdict
    from lawful.symmetry.inputs import Input

    Sameness = Verdict | CheckpointVerdict | ApartVerdict
Evidence = Callable[[], dict[str, Any]]


def same(
    first: Source,
    second: Source,
    *,
    model: Model | Any = None,
    model_b: Model | Any = None,
    input: Input | Sequence[Input] | None = None,
    activation: str | None = None,
    order: str | None = None,
    box: str | tuple[ArrayLike, ArrayLike] | Domain | None = None,
    exact: bool = False,
    tolerance: float | None = None,
    within: float | None = None,
    seconds: float = 60.0,
    seed: int = 0,
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
    >>> found = same(one, turned, model=one, input=(3,))
    >>> found.verdict, found.within
    ('equal', 'exactly')
    """
    pair = TwoNetworks(first, second, model, model_b, input, activation, order)
    question = {"box": box, "exact": exact, "tolerance": tolerance, "within": within}
    return same_with_evidence(pair, seconds=seconds, seed=seed, **question)[0]


def same_with_evidence(
    networks: TwoNetworks, *, seconds: float = 60.0, seed: int = 0, **question: Any
) -> tuple[Sameness, Evidence | None]:
    """The verdict, and what makes its certificate, if it has one."""
    if not seconds > 0:
        raise LawfulError(f"a time limit is a positive number of seconds, not {seconds}")
    started = time.perf_counter()
    plain = not any(value is not None and value is not False for value in question.values())
    if plain and networks.are_checkpoints():
        return _by_weights(networks, seed, started)
    graphs = networks.graphs(seed=seed, drop_useless=True)
    if isinstance(question.get("box"), str):
        question["box"] = box_of(question["box"], graphs[0])
    found = same_graphs(*graphs, seconds=seconds, seed=seed, **question)
    if plain and (other := _other_answer(networks, found, seed, started)) is not None:
        return other
    read_as(found, *(each.in_exact_terms() for each in found.readings))
    return found, (lambda: certificate(found, *graphs)) if certified(found) else None


def _other_answer(
    networks: TwoNetworks, found: Verdict, seed: int, started: float
) -> tuple[Sameness, Evidence | None] | None:
    """What the weights say where the graphs leave it open, or differ as a copy does whose weights were rounded.

    Asked of every pair that graphs tell apart, in whatever form it came: one pair has one answer.
    """
    if found.verdict == "equal":
        return None
    from lawful.checkpoints.compare.decide import CheckpointVerdict

    try:
        copy, evidence = _by_weights(networks, seed, started)
    except LawfulError:  # they are graphs, and no modules
        return None
    if found.verdict == "undecided":
        return None if copy.verdict == "undecided" else (copy, evidence)
    if not isinstance(copy, CheckpointVerdict):
        return None
    # Weights of graphs may be computed (batch norms folded), so that graphs tell float32 roundings of a copy apart.
    computed = any(each.computed for each in found.readings)
    if copy.verdict == "equal" and copy.within == "exactly" and not computed:
        raise AssertionError("the same weights up to a symmetry, and an input at which exact outputs differ")
    return (copy, evidence) if copy.is_copy else None


def _by_weights(networks: TwoNetworks, seed: int, started: float) -> tuple[Sameness, Evidence | None]:
    from lawful.api.checkpoints.quantisation import quantisation_words
    from lawful.checkpoints.compare.certificate import copy_certificate
    from lawful.checkpoints.opening import ApartPair
    from lawful.checkpoints.pair import decide, decide_apart

    pair, readings = networks.checkpoints()
    found: Sameness
    if isinstance(pair, ApartPair):
        found, evidence = _retrace_input(*decide_apart(pair, seed=seed))
        return read_as(replace(found, seconds=time.perf_counter() - started), *readings), evidence
    form, verdict = decide(pair, seed=seed)
    told = replace(verdict, rewritten=form.rewritten)
    if verdict.verdict != "equal" and (words := quantisation_words(pair, networks.first, networks.second)):
        told = replace(told, reason=f"{told.reason}; {words}")
    found, evidence = (
        _retrace_input(form, told) if not told.certified else (told, lambda: copy_certificate(form, verdict))
    )
    return read_as(replace(found, seconds=time.perf_counter() - started), *readings), evidence


def _retrace_input(
    pair: CheckpointPair | ApartPair, found: CheckpointVerdict | ApartVerdict
) -> tuple[CheckpointVerdict | ApartVerdict, Evidence | None]:
    """A difference that an input shows, with the steps to the outputs there if they can be listed."""
    from lawful.api.checkpoints.outputs_differ import outputs_certificate, retrace

    replay = found.replay
    if found.verdict != "different" or replay is None:
        return found, None
    try:
        one, two = retrace(pair, replay)
    except Unsupported:
        return found, None
    return replace(found, retraced=True), lambda: outputs_certificate(one, two)
