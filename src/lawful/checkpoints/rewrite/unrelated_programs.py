"""Two modules that no rewriting brings to one form: an input may tell them apart, nothing can call them equal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import nn

from lawful.checkpoints.align.lazy_tensors import folded_tensors, rounding_unit
from lawful.checkpoints.architecture import CheckpointArchitecture, read_program
from lawful.checkpoints.compare.decide import FAR, REPLAY, TRIALS, OutputReplay, Word, gap_of, unread_words
from lawful.checkpoints.compare.settings import differing_tokens, settings_of, telling_lengths
from lawful.checkpoints.group.random_members import random_member
from lawful.checkpoints.opening import ApartPair
from lawful.checkpoints.rewrite.folds import State
from lawful.errors import InvalidNetwork, LawfulError
from lawful.program.frontends.export import export_module
from lawful.result import Shown, truth_of
from lawful.symmetry.check import random_inputs

# Two modules that agree on short inputs: does a longer one tell them apart?

MOST_TOKENS = 1_100  # of an input that is tried
ANY = 50  # tokens that are tried whatever the settings say
AGREE = 1e-9  # of the outputs' size: what one way to compute in float64 may differ by from another


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
    draws = [one.draw_inputs(seed + 100 + number) for number in range(TRIALS)] + _special_inputs(one, two, seed)
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
