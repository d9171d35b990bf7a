"""Two modules that agree on short inputs: does a longer one tell them apart?

A common form is tried at the size of the inputs that were given. A window of attention that is larger than that does
nothing there. Settings name the lengths from which such things act (`settings.telling_lengths`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from lawful.checkpoints.architecture import CheckpointArchitecture, read_program
from lawful.checkpoints.compare.decide import OutputReplay, gap_of
from lawful.checkpoints.compare.settings import settings_of, telling_lengths
from lawful.checkpoints.opening import ApartPair
from lawful.checkpoints.rewrite.unrelated_programs import apart
from lawful.errors import LawfulError
from lawful.program.frontends.export import export_module
from lawful.symmetry.check import random_inputs

MOST_TOKENS = 1_100  # of an input that is tried
ANY = 50  # tokens that are tried whatever the settings say
AGREE = 1e-9  # of the outputs' size: what one way to compute in float64 may differ by from another


@dataclass(frozen=True, eq=False)
class LongerTrials:
    """The lengths at which two modules were run, those that are too long for it, and where they differ, if they do."""

    tried: tuple[int, ...]
    too_long: tuple[int, ...]
    told: tuple[ApartPair, OutputReplay] | None = None

    @property
    def words(self) -> str:
        """What was seen, where nothing was."""
        found = f"with {' and '.join(f'{size:,}' for size in self.tried)} tokens they agree" if self.tried else ""
        if self.too_long:
            least = self.too_long[0]
            found += f"{'; ' if found else ''}inputs of {least:,} tokens or more were not tried "
            found += f"(--input {least}:int tries them)"
        return found


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
            found = apart(there, seed=seed)
        except (LawfulError, IndexError, RuntimeError, ValueError):  # one of them takes no inputs as long as that
            continue
        if found.verdict == "different":
            return LongerTrials(tuple(tried), (), (there, found.replay))
        tried.append(size)  # up to what rounding of the weights may explain
    return LongerTrials(tuple(tried), tuple(size for size in lengths if size > MOST_TOKENS))


def _agree(pair: ApartPair, longer: list[torch.Tensor], seed: int) -> bool:
    """Whether the outputs are the same at one random input of these sizes, but for the arithmetic of float64."""
    one, two = pair.architectures
    inputs = random_inputs(longer, one.exported, torch.Generator().manual_seed(seed))
    outputs = one.outputs(pair.first.state, inputs), two.outputs(pair.second.state, inputs)
    size = max((float(tensor.abs().max()) for tensor in outputs[0]), default=0.0)
    return gap_of(*outputs)[0] <= AGREE * size


def _longer(given: CheckpointArchitecture, inputs: list[torch.Tensor]) -> CheckpointArchitecture:
    exported = export_module(given.module, inputs)
    program = read_program(given.module, exported)
    return replace(given, exported=exported, program=program, inputs=tuple(inputs))
