"""Count the laws of any PyTorch module in float64: several generic points, ranks with their gap, known laws checked.

Idea: at a random point the fields of training, and then their brackets, are computed by nested automatic
differentiation until their span stagnates. Laws that the graph gives away are kept if every sampled field is orthogonal
to their gradients, and words are found for what is left.

Invariant: nothing here is definite. A count is *numerical* only if two points agree and each rank is separated by a
gap, else *undecided*; `module_count_proof` turns it into *proved* by arithmetic of its own, or leaves it.

Points: where a channel happens to be dead, more is conserved. So the points whose gradients span most are used, which
is decided by a first look at several (`_generic`), and only the largest dimension that was reached counts (`_largest`).

Cost: a bracket of level k is k + 1 nested derivatives of the module; the ranks are singular values of D × D matrices.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch

from lawful.conservation.closure.float_rank import Rank, rank_with_gap
from lawful.conservation.closure.lie_closure import SPARE, refuse_if_too_large
from lawful.conservation.fields.flows import Flow, homogeneous
from lawful.conservation.fields.module_gradient import AGREEMENT, brackets, contradiction
from lawful.conservation.known.law import Law, LawFamily
from lawful.conservation.known.module_laws import conserved_laws, read_symmetries, square_laws, structural_laws
from lawful.conservation.law_count import LawCount, LawQuestion
from lawful.conservation.module_count_proof import ProofSearch
from lawful.conservation.programs.module_function import Probe, probe
from lawful.errors import LawfulError
from lawful.network.dynamics import GradientFlow, HeavyBall, Metric
from lawful.outward import at_least
from lawful.types import Floats

# These decide how long is looked, and what float64 may call clear; none makes a count definite.
SEEDS = 2  # points that have to agree
MOST_SEEDS = 5
CANDIDATES = ((100, 32), (400, 12), (6000, 6))  # up to so many parameters: points, the most generic of which are used
FURTHER = ((100, 24), (400, 6))  # up to so many parameters: more points, if laws are left without an explicit form
GAP = 1e3  # a smaller ratio between neighbouring singular values decides nothing
# How far, relative to its length, a bracket may lean towards the gradient of a law and be called rounding. A larger one
# leaves the count undecided; a smaller one that is no rounding is found by `ProofSearch`, which asks for identities.
LEAVES = 1e-6
DEEPEST = 5
ELIMINATED = 6000  # parameters up to which brackets are eliminated
NEXT_TO = 0.05  # how far points near the weights are, relative to them


def count_module(module: torch.nn.Module, question: LawQuestion) -> LawCount:
    """The count for any module: several random points must agree, each with a clear gap, or it stays undecided.

    Level "phi" moves every parameter by about its own size, "near" and "data" by a twentieth of it. What is proved is
    complete near the point of the proof, which may take so many `seconds` of a processor.
    """
    flow, level, data, loss, seed = question.flow, question.level, question.data, question.loss, question.seed
    if isinstance(flow, GradientFlow) and flow.decay:
        plain = count_module(module, replace(question, flow=GradientFlow()))
        if plain.proved and len(homogeneous(plain.known)) == len(plain.known):
            dimensions = tuple(size + 1 for size in plain.dimensions)
            return replace(plain, flow=flow, states=plain.states + 1, dimensions=dimensions)
    case = probe(module, question.input_shape, data, loss, question.mode, question.classes_axis)
    if case.size > ELIMINATED and flow == GradientFlow() and data is None:
        return _at_least(case, level, loss)
    refuse_if_too_large(case.size)
    search = ProofSearch(case, question.seconds) if data is not None and flow == GradientFlow() else None
    near = list(range(seed, seed + SEEDS))
    spread, most = (1.0, MOST_SEEDS) if level == "phi" else (NEXT_TO, SEEDS)
    spread = search.spread(near) if search is not None else spread
    seeds, structural = near, _structural(case, flow)
    runs: list[BracketRun] = []
    for number in near if level == "phi" else ():
        runs.append(_run(case, flow, number, spread, structural, deepest=0))
        if not _spans_all(runs[-1], structural, _states(case.size, flow)):
            seeds, runs = _generic(case, flow, seed, spread), []
            break
    while len(_largest(runs)) < SEEDS and len(runs) < most:
        run = _run(case, flow, seeds[len(runs)], spread, structural)
        if run.dimensions[-1] > case.size - len(run.laws) and flow == GradientFlow():
            search = search or ProofSearch(case, question.seconds)
            run = _within(run, case.size, search)
        runs.append(run)
    best = _largest(runs)
    reached = {number: run.dimensions[-1] for number, run in zip(seeds, runs, strict=False)}
    seeds = sorted(reached, key=lambda number: -reached[number])
    dimensions, gap, words, laws, _ = min(best, key=lambda run: run.gap)
    reason = next((run.doubt for run in runs if run.doubt), "")
    if not reason and len(best) < SEEDS:
        reason = f"seeds disagree: {', '.join(str(run.dimensions) for run in runs)}"
        reason = search.why if search is not None and search.on_boundary else reason
    if not reason and gap < GAP:
        reason = f"the smallest gap between singular values is {at_least(gap, 2)}, less than {GAP:g}"
    states = _states(case.size, flow)
    if not reason and flow == GradientFlow() and data is None and len(laws) < states - dimensions[-1]:
        again = _run(case, flow, seeds[0], spread, (*structural, *square_laws(case, seed, spread)))
        if again.dimensions[-1] == dimensions[-1] and not again.doubt and len(again.laws) > len(laws):
            words, laws = again.words, again.laws
    count = LawCount(
        case.size, states, dimensions, LawFamily(tuple(laws), case.size), len(laws),
        "undecided" if reason else "numerical", level, flow, loss, arithmetic="float64", gap=gap, reason=reason,
        words=tuple(words), mode=question.mode if case.has_modes else None,
        claim="somewhere", places=case.places, assumed=case.assumed,
    )  # fmt: skip
    if flow != GradientFlow():
        return count
    search = search or ProofSearch(case, question.seconds)
    count = search.with_proof(count, seeds, spread)
    missing = search.program is not None and len(count.known) < count.laws
    return _further(case, count, search, seeds) if level == "phi" and case.piecewise and missing else count


def _further(case: Probe, count: LawCount, search: ProofSearch, seen: list[int]) -> LawCount:
    """The count where the fields and their brackets span most, if more points show more than those seen.

    Near most weights of a module with kinks few of its pieces may occur, and there more is conserved.
    """
    looks = next((points for size, points in FURTHER if case.size <= size), 0)
    for seed in range(max(seen) + 1, max(seen) + 1 + looks):
        run = _run(case, GradientFlow(), seed, 1.0, count.known.laws)
        if run.dimensions[-1] > count.dimensions[-1] and run.gap >= GAP:
            wider = replace(count, dimensions=run.dimensions, gap=run.gap, status="numerical", reason="")
            count = search.with_proof(wider, [seed], 1.0)
            if len(count.known) == count.laws:
                break
    return count


def _at_least(case: Probe, level: str, loss: str) -> LawCount:
    """The laws of a module too large for elimination: those that its graph gives away."""
    symmetric = read_symmetries(case, check=None)
    kinds: dict[str, int] = {}
    for space in symmetric.spaces:
        if (
            space.laws is not None
            and space.count
            and case.gradient
            and not set(space.laws.parameters) & set(case.padded)
        ):
            kinds[space.group] = kinds.get(space.group, 0) + space.count
    words = [f"{laws:,} laws of hidden spaces on which {group} acts" for group, laws in kinds.items()]
    words += [
        f"every entry of {name}, which the function never reads: {size:,}" for name, size in symmetric.laws.unused
    ]
    pinned = ", ".join(part.operation for part in symmetric.pinned)
    reason = f"{case.size:,} parameters are too many to look for more than the graph gives away"
    reason += f"; not understood and taken to have none: {pinned}" if pinned else ""
    reason += f"; training does not follow the gradient of the function: {case.unlike}" if case.unlike else ""
    laws = sum(kinds.values()) + sum(size for _, size in symmetric.laws.unused)
    return LawCount(
        case.size, case.size, (case.size - laws,), LawFamily((), case.size), laws, "at least", level, GradientFlow(),
        loss, arithmetic="graph", reason=reason, words=tuple(words), mode=case.mode if case.has_modes else None,
        claim="near", assumed=case.assumed,
    )  # fmt: skip


class BracketRun(NamedTuple):
    """Dimensions, the smallest gap, the known laws in words and as polynomials, and what speaks against all that."""

    dimensions: tuple[int, ...]
    gap: float
    words: list[str]
    laws: list[Law]
    doubt: str = ""


def _largest(runs: list[BracketRun]) -> list[BracketRun]:
    """The runs that reached the largest dimension."""
    most = max((run.dimensions[-1] for run in runs), default=0)
    return [run for run in runs if run.dimensions[-1] == most]


def _spans_all(run: BracketRun, structural: tuple[Law, ...], states: int) -> bool:
    """Whether gradients at a point span all that the graph's laws leave free: no point is more generic then.

    Other laws that hold at a point may be accidents of it: a channel that is dead there.
    """
    accidental = set(map(id, run.laws)) - set(map(id, structural))
    return not run.doubt and not accidental and run.gap >= GAP and run.dimensions[-1] + len(run.laws) == states


def _within(run: BracketRun, size: int, search: ProofSearch) -> BracketRun:
    """A run with more directions than its laws leave: if these are identities, the last directions are rounding."""
    most = size - len(run.laws)
    if search.program is not None and not search.are_identities(run.laws):
        return run
    doubt = f"{run.dimensions[-1]} directions beside {len(run.laws)} laws, of {size}: rounding can tell neither"
    less = tuple(min(dimension, most) for dimension in run.dimensions)
    return run._replace(dimensions=less, doubt="" if search.program is not None else doubt)


def _states(size: int, flow: Flow) -> int:
    if isinstance(flow, HeavyBall):
        return 2 * size + (not flow.autonomous)
    return size + (isinstance(flow, GradientFlow) and flow.decay > 0)


def _start(case: Probe, flow: Flow, seed: int, spread: float) -> torch.Tensor:
    """A random state: parameters and, with momentum, velocities and time."""
    generator = torch.Generator().manual_seed(seed)
    extra = torch.randn(_states(case.size, flow) - case.size, generator=generator, dtype=torch.float64)
    return torch.cat([case.theta(seed, spread), extra])


def _generic(case: Probe, flow: Flow, seed: int, spread: float) -> list[int]:
    """Seeds of random points, those first whose fields span most: where a channel is dead, more is conserved."""
    if not case.piecewise or case.size > CANDIDATES[-1][0]:
        return list(range(seed, seed + MOST_SEEDS))
    ranked = []
    for number in range(seed, seed + next(points for size, points in CANDIDATES if case.size <= size)):
        state = _start(case, flow, number, spread)
        rows = brackets(case, flow, state, 0, len(state) + SPARE, number)
        ranked.append((-rank_with_gap(rows).rank, number))
    return [number for _, number in sorted(ranked)]


def _structural(case: Probe, flow: Flow) -> tuple[Law, ...]:
    """The laws that the graph gives away, if it can be read."""
    if flow != GradientFlow():
        return ()
    try:
        return tuple(structural_laws(case))
    except LawfulError:
        return ()


def _run(
    case: Probe, flow: Flow, seed: int, spread: float, structural: tuple[Law, ...] = (), deepest: int = DEEPEST
) -> BracketRun:
    """One random point: close the fields under brackets until the dimension stagnates or meets the known laws."""
    state = _start(case, flow, seed, spread)
    states = len(state)
    span: Rank | None = None
    slopes = np.zeros((0, states))
    dimensions: list[int] = []
    gaps: list[float] = []
    words: list[str] = []
    laws: list[Law] = []
    nearly = False  # whether some of the laws hold to rounding only: there are more directions than they leave
    while len(dimensions) <= deepest:
        level, before = len(dimensions), dimensions[-1] if dimensions else 0
        rows = brackets(case, flow, state, level, states - before + SPARE, seed)
        if not dimensions and states == case.size and not isinstance(flow, Metric):
            theta = state[: case.size]
            known = conserved_laws(case.unflatten(theta), rows, structural)
            words, laws, slopes = known.words, known.laws, known.basis
        doubt = _doubt(case, flow, state, level, seed, rows, slopes)
        span = rank_with_gap(rows if span is None else np.concatenate([span.basis, rows]))
        dimensions.append(span.rank)
        gaps.append(span.gap)
        if doubt:
            return BracketRun(tuple(dimensions), 0.0, words, laws, doubt)
        nearly = nearly or span.rank > states - len(laws)
        if span.rank == before or (span.rank >= states - len(laws) and not nearly):
            return BracketRun(tuple(dimensions), min(gaps), words, laws)
    return BracketRun(tuple(dimensions), 0.0, words, laws)


def _doubt(case: Probe, flow: Flow, state: torch.Tensor, level: int, seed: int, rows: Floats, slopes: Floats) -> str:
    """Why the brackets of a level cannot be trusted, if so: they leave the laws, or differ from differences."""
    lean = float(np.abs(rows @ slopes.T).max(initial=0.0))
    if lean > LEAVES:
        return f"brackets of level {level} leave the known laws by {lean:.1g} of their length"
    off = contradiction(case, flow, state, level, seed) if level else 0.0
    if off > AGREEMENT:
        return f"PyTorch's derivatives of order {level + 1} differ from differences by {off:.1g} of their size"
    return ""


def module_laws(module: torch.nn.Module, input_shape: tuple[int, ...] | None = None, *, seed: int = 0) -> LawFamily:
    """The known laws of a module, in its trainable parameters laid end to end: values, gradients, number.

    >>> _ = torch.manual_seed(0)
    >>> module = torch.nn.Sequential(torch.nn.Conv1d(1, 2, 3), torch.nn.ReLU(), torch.nn.Conv1d(2, 1, 3))
    >>> laws = module_laws(module, (1, 8))
    >>> theta = torch.cat([value.detach().flatten() for value in module.parameters()])
    >>> len(laws), laws.values(theta).shape, laws.gradients(theta).shape
    (2, (2,), (2, 15))
    """
    case = probe(module, input_shape)
    theta = case.theta(seed, 1.0)
    rows = brackets(case, GradientFlow(), theta, 0, case.size + SPARE, seed)
    structural = _structural(case, GradientFlow())
    return LawFamily(tuple(conserved_laws(case.unflatten(theta), rows, structural).laws), case.size)
