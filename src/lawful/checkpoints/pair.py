"""The verbs: align B to A, and decide whether they are the same function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from lawful.checkpoints.align.lazy_tensors import MadeTensors, fold_clusters, working_types
from lawful.checkpoints.compare.decide import CheckpointVerdict, OutputReplay, Word, same_checkpoints
from lawful.checkpoints.compare.entries import WeightComparison, compare
from lawful.checkpoints.compare.uniqueness import decide_by_uniqueness, smooth_shape
from lawful.checkpoints.opening import ApartPair, CheckpointPair, Model, Source, open_both, open_checkpoints
from lawful.checkpoints.rewrite.folds import PART, undo_folds
from lawful.checkpoints.rewrite.unrelated_programs import ApartVerdict, apart, try_longer
from lawful.errors import Unsupported
from lawful.result import Shown
from lawful.symmetry.inputs import Input


@dataclass(frozen=True, eq=False)
class Aligned(Shown):
    """B in A's place: `weights` under the names of B's file, in its type of numbers, and what is left between them."""

    weights: Mapping[str, torch.Tensor]
    comparison: WeightComparison
    before: float  # ‖B − A‖/‖A‖ over all parameters
    after: float


def align(
    first: Source,
    second: Source,
    *,
    model: Model | None = None,
    model_b: Model | None = None,
    input: Input | Sequence[Input] | None = None,
) -> Aligned:
    """The member of B's orbit that is nearest to A: the same function as B, with A's order of units, scales and axes.

    >>> from torch import nn
    >>> one = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> turned = {"0.weight": 3 * one[0].weight.flip(0), "0.bias": 3 * one[0].bias.flip(0),
    ...           "2.weight": one[2].weight.flip(1) / 3, "2.bias": one[2].bias}
    >>> found = align(one, turned, input=(3,))
    >>> found.before > 0.5, found.after < 1e-6, torch.allclose(found.weights["0.weight"], one[0].weight)
    (True, True, True)
    """
    return align_pair(open_checkpoints(first, second, model=model, model_b=model_b, input=input))


def align_pair(pair: CheckpointPair) -> Aligned:
    """Align two checkpoints that are open already; the weights of a large module are made when they are asked for."""
    one, two = pair.first.state, pair.second.state
    comparison = compare(pair.architecture, one, two)
    parameters = set(dict(pair.architecture.module.named_parameters()))
    keys = written_names(pair)
    near = bring_into_place(pair, comparison)
    before = after = size = 0.0
    for cluster in dict.fromkeys(fold_clusters(one, pair.architecture.folds).values()):
        for name in cluster.names:
            if name in parameters:
                before += _square_apart(two[name], one[name])
                after += _square_apart(near[name], one[name])
                size += _square_apart(one[name])
    names = {key: name for name, key in keys.items()}
    weights = MadeTensors(names, lambda key: {key: near[names[key]].to(two[names[key]].dtype)})
    shown = weights if pair.architecture.large else dict(weights)
    return Aligned(shown, comparison, *((off / size) ** 0.5 if size else 0.0 for off in (before, after)))


def bring_into_place(pair: CheckpointPair, comparison: WeightComparison) -> MadeTensors:
    """B's tensors in A's place by the names of the module, with folds undone as A has them; made when asked for."""
    one, two = pair.first.state, pair.second.state
    clusters, kinds = fold_clusters(one, pair.architecture.folds), working_types(one, two)

    def make(name: str) -> dict[str, torch.Tensor]:
        cluster = clusters[name]
        if not cluster.folds:
            return {name: comparison.aligned[name]}
        single = any(kinds.get(member) == torch.float32 for member in cluster.names)
        kind = torch.float32 if single else torch.float64
        like = {member: one[member].to(kind) for member in cluster.names}
        return undo_folds(
            {member: comparison.aligned[member].to(kind) for member in cluster.names}, cluster.folds, like
        )

    return MadeTensors(one, make)


def _square_apart(one: torch.Tensor, two: torch.Tensor | None = None) -> float:
    """`‖one − two‖²`, or `‖one‖²`, part by part: large tensors are not widened as a whole."""
    total = 0.0
    others = None if two is None else torch.split(two.reshape(-1), PART)
    for number, part in enumerate(torch.split(one.reshape(-1), PART)):
        apart = part.double() if others is None else part.double() - others[number].double()
        total += float(torch.linalg.vector_norm(apart)) ** 2
    return total


def written_names(pair: CheckpointPair) -> Mapping[str, str]:
    """The names under which B is written in A's place: those of its file, or A's if B is written in another way."""
    if not pair.rewritten:
        return pair.second.keys
    missing = [name for name, _ in pair.architecture.module.named_parameters() if name not in pair.first.keys]
    if missing:
        raise Unsupported(
            "B cannot be written in the form of A; A can be written in that of B: give them in that order"
        )
    return pair.first.keys


def same(
    first: Source,
    second: Source,
    *,
    model: Model | None = None,
    model_b: Model | None = None,
    input: Input | Sequence[Input] | None = None,
    seed: int = 0,
) -> CheckpointVerdict | ApartVerdict:
    """Are two checkpoints of one architecture, perhaps written in two ways, the same function?

    >>> from torch import nn
    >>> one = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    >>> turned = {"0.weight": -one[0].weight.flip(0), "0.bias": -one[0].bias.flip(0),
    ...           "2.weight": -one[2].weight.flip(1), "2.bias": one[2].bias}
    >>> found = same(one, turned, input=(3,))
    >>> found.verdict, found.within
    ('equal', 'exactly')
    """
    pair = open_both(first, second, model=model, model_b=model_b, input=input)
    return decide_apart(pair, seed=seed)[1] if isinstance(pair, ApartPair) else decide(pair, seed=seed)[1]


def decide_apart(pair: ApartPair, *, seed: int = 0) -> tuple[ApartPair, ApartVerdict]:
    """The verdict on two modules without a common form, and the pair at the size of inputs that tells."""
    verdict = apart(pair, seed=seed)
    if verdict.verdict != "undecided" or any(architecture.unread for architecture in pair.architectures):
        return pair, verdict
    trials = try_longer(pair, seed=seed)
    if trials.difference is not None:
        return trials.difference[0], ApartVerdict(
            "different", _longer_words(pair, trials.difference[1]), trials.difference[1]
        )
    return pair, replace(verdict, reason=f"{verdict.reason}; {trials.words}") if trials.words else verdict


def _longer_words(pair: ApartPair, replay: OutputReplay) -> str:
    tokens = max(tensor.shape[-1] for tensor in replay.inputs if not tensor.is_floating_point())
    settings = "; ".join(pair.architectures[0].unsettled) or "no setting that both have says why"
    return f"an input of {tokens:,} tokens tells them apart ({settings})"


def decide(pair: CheckpointPair, *, seed: int = 0) -> tuple[CheckpointPair, CheckpointVerdict]:
    """The verdict, and the form in which it was found."""
    verdict = same_checkpoints(pair.architecture, pair.first.state, pair.second.state, seed=seed)
    if not verdict.comparison.fits:
        for other in pair.others:
            again = same_checkpoints(other.architecture, other.first.state, other.second.state, seed=seed)
            if again.comparison.fits:
                return _at_any_length(other, again, seed)
    pair, verdict = _at_any_length(pair, verdict, seed)
    return pair, by_theorem(pair, verdict)


def _at_any_length(
    pair: CheckpointPair, verdict: CheckpointVerdict, seed: int
) -> tuple[CheckpointPair, CheckpointVerdict]:
    """Two modules were tried at one size of inputs: a longer one may tell them apart."""
    if pair.as_written is None or not verdict.comparison.fits or pair.architecture.unread:
        return pair, verdict
    trials = try_longer(pair.as_written, seed=seed)
    if trials.difference is not None:
        there, replay = trials.difference
        reason = _longer_words(there, replay)
        verdict = replace(verdict, verdict="different", within=None, epsilon=None, reason=reason, replay=replay)
        return replace(pair, as_written=there), verdict
    if verdict.verdict != "equal":
        return pair, replace(verdict, reason=f"{verdict.reason}; {trials.words}") if trials.words else verdict
    sizes = ", ".join("x".join(map(str, tensor.shape[1:])) for tensor in pair.as_written.architectures[0].inputs)
    more = "".join(f", {size}" for size in trials.tried)
    return pair, replace(verdict, reason=f"{verdict.reason} (the modules were tried with inputs of size {sizes}{more})")


def by_theorem(pair: CheckpointPair, verdict: CheckpointVerdict) -> CheckpointVerdict:
    """The verdict of a uniqueness theorem where there is one, unless weights are equal up to their rounding."""
    if verdict.comparison.fits or pair.rewritten or pair.architecture.unread or pair.architecture.unsettled:
        return verdict
    program = pair.architecture.program
    shape = None if program is None else smooth_shape(program)
    decided = None if shape is None else decide_by_uniqueness(shape, pair.first.state, pair.second.state)
    if decided is None:
        return verdict
    word: Word = "equal" if decided.equal else "different"
    within, epsilon = ("exactly", 0.0) if decided.equal else (None, None)
    replay = None if decided.equal else verdict.replay
    return replace(verdict, verdict=word, within=within, epsilon=epsilon, reason=decided.words, replay=replay,
                   theorem=decided)  # fmt: skip
