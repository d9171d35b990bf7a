"""Are two open checkpoints the same function? In one form by their weights, else by inputs that tell them apart.

Two modules that no rewriting brings to one form can be told apart by an input, and nothing can call them equal. Two
that agree on short inputs are run on longer ones, at lengths from which some setting may act.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import nn

from lawful.checkpoints.align.lazy_tensors import (
    folded_tensors,
    rounding_unit,
)
from lawful.checkpoints.architecture import CheckpointArchitecture, read_program
from lawful.checkpoints.compare.decide import (
    FAR,
    REPLAY,
    CheckpointVerdict,
    OutputReplay,
    Word,
    draw_trials,
    gap_of,
    same_checkpoints,
    unread_words,
)
from lawful.checkpoints.compare.uniqueness import decide_by_uniqueness, smooth_shape
from lawful.checkpoints.group.random_members import random_member
from lawful.checkpoints.opening import ApartPair, CheckpointPair
from lawful.checkpoints.rewrite.common_form import agreement
from lawful.checkpoints.rewrite.folds import State
from lawful.checkpoints.rewrite.same_program import differing_tokens, settings_of, telling_lengths
from lawful.errors import InvalidNetwork, LawfulError
from lawful.program.frontends.export import export_module
from lawful.result import Shown, truth_of
from lawful.symmetry.check import random_inputs

# Of an input that is tried: a little more than 1024, the commonest window and number of positions.
MOST_TOKENS = 1_100
ANY = 50  # tokens that are tried whatever the settings say
# Of the outputs' size: two ways to compute one function in float64 differ by less. What differs by more is not called
# different for that, only looked at more closely.
AGREE = 1e-9


@dataclass(frozen=True, eq=False)
class LongerTrials:
    """The lengths at which two modules were run, those that are too long for it, and where they differ, if they do."""

    tried: tuple[int, ...]
    too_long: tuple[int, ...]
    difference: tuple[ApartPair, OutputReplay] | None = None

    @property
    def words(self) -> str:
        """What was seen, where nothing was."""
        words = f"with {' and '.join(f'{size:,}' for size in self.tried)} tokens they agree" if self.tried else ""
        if self.too_long:
            least = self.too_long[0]
            words += f"{'; ' if words else ''}inputs of {least:,} tokens or more were not tried "
            words += f"(--input {least}:int tries them)"
        return words


def try_longer(pair: ApartPair, *, seed: int = 0) -> LongerTrials:
    """Run both checkpoints, each in its own module, at lengths from which some setting may act."""
    one, two = pair.architectures
    whole = [not tensor.is_floating_point() and tensor.ndim > 1 for tensor in one.inputs]
    settings = settings_of(one.module), settings_of(two.module)
    if not any(whole) or settings == (None, None):
        return LongerTrials((), ())
    tokens = max(tensor.shape[-1] for tensor, is_tokens in zip(one.inputs, whole, strict=True) if is_tokens)
    lengths = telling_lengths(settings[0] or {}, settings[1] or {}, tokens)
    if one.large or two.large:
        return LongerTrials((), tuple(lengths))
    short = sorted({*(size for size in lengths if size <= MOST_TOKENS), ANY} - set(range(tokens + 1)))
    tried: list[int] = []
    for size in short:
        longer = [
            tensor.new_zeros((*tensor.shape[:-1], size)) if is_tokens else tensor
            for tensor, is_tokens in zip(one.inputs, whole, strict=True)
        ]
        try:
            if _agree(pair, longer, size):
                tried.append(size)
                continue
            there = replace(pair, architectures=(_longer(one, longer), _longer(two, longer)))
            verdict = apart(there, seed=seed)
        except (LawfulError, IndexError, RuntimeError, ValueError):  # one of them takes no inputs as long as that
            continue
        if verdict.verdict == "different":
            return LongerTrials(tuple(tried), (), (there, verdict.replay))
        tried.append(size)  # up to what rounding of the weights may explain
    return LongerTrials(tuple(tried), tuple(size for size in lengths if size > MOST_TOKENS))


def _agree(pair: ApartPair, longer: list[torch.Tensor], seed: int) -> bool:
    """Whether the outputs are the same at one random input of these sizes, but for the arithmetic of float64."""
    one, two = pair.architectures
    inputs = random_inputs(longer, one.exported, torch.Generator().manual_seed(seed))
    outputs = one.outputs(pair.first.state, inputs), two.outputs(pair.second.state, inputs)
    size = max((float(tensor.abs().max()) for tensor in outputs[0]), default=0.0)
    return gap_of(*outputs)[0] <= AGREE * size


def _longer(architecture: CheckpointArchitecture, inputs: list[torch.Tensor]) -> CheckpointArchitecture:
    exported = export_module(architecture.module, inputs)
    program = read_program(architecture.module, exported)
    return replace(architecture, exported=exported, program=program, inputs=tuple(inputs))


MOST_SPECIAL = 4  # tokens that are tried


@dataclass(frozen=True, eq=False)
class ApartVerdict(Shown):
    """Different with an input, or undecided; `reason` says why there is no common form."""

    verdict: Word
    reason: str
    replay: OutputReplay
    within: None = None
    seconds: float = 0.0
    retraced: bool = False  # whether the steps to the outputs can be listed, for others to carry out

    @property
    def certified(self) -> bool:
        """Whether there is something to re-check."""
        return self.retraced

    def __bool__(self) -> bool:
        return truth_of(self.verdict, self.reason)


def apart(pair: ApartPair, *, seed: int = 0) -> ApartVerdict:
    """Replay both modules at random inputs in float64."""
    one, two = pair.architectures
    unread = tuple(dict.fromkeys((*one.unread, *two.unread)))
    states = pair.first.state, pair.second.state
    draws = draw_trials(one, seed) + _special_inputs(one, two, seed)
    trials = [_trial(one, two, *states, inputs, seed) for inputs in draws]
    replay = max(trials, key=lambda trial: trial.gap / trial.rounding)
    words = f"no way to write one as the other: {pair.reason}"
    if unread:
        return ApartVerdict("undecided", unread_words(unread), replay)
    if replay.gap > FAR * replay.rounding and replay.gap > REPLAY * replay.error:
        return ApartVerdict("different", words, replay)
    words += f"; at {len(draws)} random inputs outputs differ by {replay.gap:.1e}, which rounding may explain"
    return ApartVerdict("undecided", words, replay)


def _special_inputs(one: CheckpointArchitecture, two: CheckpointArchitecture, seed: int) -> list[list[torch.Tensor]]:
    """Random inputs that end with a token whose meaning differs (padding, say): few random ones have it at all."""
    settings = settings_of(one.module) or {}, settings_of(two.module) or {}
    special = []
    for token in differing_tokens(*settings)[:MOST_SPECIAL]:
        inputs = one.draw_inputs(seed + 200 + token)
        for tensor in inputs:
            if not tensor.is_floating_point() and tensor.ndim > 1 and token < int(settings[0].get("vocab_size") or 0):
                tensor[..., tensor.shape[-1] // 2 :] = token
        special.append(inputs)
    return special


def _without_head(first: nn.Module, second: nn.Module) -> str:
    """How to compare a model of `transformers` with a head and one without: by the part that both have."""
    for headed, bare, letter in ((first, second, "A"), (second, first, "B")):
        body = getattr(headed, str(getattr(headed, "base_model_prefix", "")), None)
        family = getattr(type(bare), "family", None)
        if family is not None and type(body) is family:
            return (
                f". {letter} has a head, and the other is a {family.__name__}, as it has inside: "
                f"AutoModel.from_pretrained({letter}).save_pretrained(FOLDER) of transformers writes that part"
            )
    return ""


def _trial(
    one: CheckpointArchitecture,
    two: CheckpointArchitecture,
    first: State,
    second: State,
    inputs: Sequence[torch.Tensor],
    seed: int,
) -> OutputReplay:
    outputs = one.replays(first, [inputs])[0], two.replays(second, [inputs])[0]
    shapes = [[tuple(tensor.shape) for tensor in tensors] for tensors in outputs]
    if shapes[0] != shapes[1]:
        sizes = f"the outputs are of different sizes: {shapes[0]} and {shapes[1]}"[:300]
        raise InvalidNetwork(sizes + _without_head(one.module, two.module))
    size = max((float(tensor.abs().max()) for tensor in outputs[0]), default=0.0) or 1.0
    gap, where, place = gap_of(*outputs)
    error = rounding = 1e-16
    for architecture, state, expected in ((one, first, outputs[0]), (two, second, outputs[1])):
        twin = random_member(architecture.group, folded_tensors(state, architecture.folds), seed)
        error = max(error, gap_of(expected, architecture.replays(twin, [inputs])[0])[0] / size)
        kinds = {state[name].dtype for name in architecture.group.shapes} | {torch.float64}
        coarse = max(kinds, key=rounding_unit)
        rounded = {n: t.to(coarse) if t.is_floating_point() else t for n, t in twin.items()}
        rounding = max(rounding, gap_of(expected, architecture.replays(rounded, [inputs])[0])[0] / size)
    return OutputReplay(tuple(inputs), gap / size, error, rounding, where, place)


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
    if pair.is_tried and verdict.within == "exactly":  # of weights that is so; a factor of 1 + 1e-13 no trial sees
        verdict = replace(verdict, within="weight by weight")
    tried = f"tried with inputs of size {sizes}{more}"
    tried += (
        f", where they agree to {agreement(*pair.as_written.architectures):.0e} of the outputs" if pair.is_tried else ""
    )
    return pair, replace(verdict, reason=f"{verdict.reason} (the modules were {tried})")


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
