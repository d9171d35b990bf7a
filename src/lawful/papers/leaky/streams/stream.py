"""Residual streams of any module: the values that the adds `x + f(x)` of its program carry."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lawful.errors import LawfulError
from lawful.papers.leaky.streams.residual_blocks import ResidualAdd, residual_adds
from lawful.program.domains.evaluate import evaluate
from lawful.program.frontends.export import in_mode
from lawful.program.frontends.torch_export import read_module
from lawful.program.program import Program
from lawful.sources.modules.functional_call import as_taken
from lawful.types import Floats

CHUNK = 16  # inputs at a time


@dataclass(frozen=True, eq=False)
class StreamStates:
    """What one block read and wrote: a row per neuron, a column per sample (the same samples in both)."""

    name: str
    before: Floats
    after: Floats
    projected: bool


def as_inputs(module: nn.Module, samples: Floats, where: str = "", hint: str = "") -> torch.Tensor:
    """Samples as a module takes them (`as_taken`), of its own type, tried on one.

    >>> as_inputs(nn.Embedding(5, 2), np.array([[0.0, 3.0]]))
    tensor([[0, 3]])
    """
    own = next((parameter.dtype for parameter in module.parameters()), torch.float64)
    inputs = as_taken(module, samples, own, where)
    try:
        with torch.no_grad(), in_mode(module, training=False):
            module(inputs[:1])
    except Exception as error:  # the module is the user's own code
        raise LawfulError(f"the network does not run on these samples: {str(error)[:150]}{hint}") from None
    return inputs


def stream_states(module: nn.Module, inputs: Tensor, *, most: int, seed: int = 0) -> tuple[StreamStates, ...]:
    """Run the module in eval mode and keep at most so many samples (pixels, tokens) of every residual add."""
    chunks = [inputs[start : start + CHUNK] for start in range(0, len(inputs), CHUNK)]
    programs: dict[int, tuple[Program, tuple[ResidualAdd, ...]]] = {}
    kept: dict[str, list[tuple[Floats, Floats]]] = {}
    projected: dict[str, bool] = {}
    rng = np.random.default_rng(seed)
    share = -(-most // len(chunks))
    for chunk in chunks:
        if len(chunk) not in programs:
            whole = read_module(module, [chunk], _keywords(module))
            blocks = residual_adds(whole)
            ends = dict.fromkeys(each for block in blocks for each in (block.skip, block.result))
            # what follows, such as the scores of a vocabulary, is not asked for
            programs[len(chunk)] = Program.of(whole.inputs, ends, whole.tensors), blocks
        program, blocks = programs[len(chunk)]
        with torch.no_grad():
            values = dict(zip(program.outputs, evaluate(program, chunk, real=_real(module)), strict=True))
        for block in blocks:
            pair = [columns(values[each], block.channels) for each in (block.skip, block.result)]
            chosen = _some(pair[0].shape[1], share, rng)
            kept.setdefault(block.name, []).append((pair[0][:, chosen], pair[1][:, chosen]))
            projected[block.name] = block.projected
    return tuple(
        StreamStates(
            name,
            np.concatenate([before for before, _ in pairs], axis=1),
            np.concatenate([after for _, after in pairs], axis=1),
            projected[name],
        )
        for name, pairs in kept.items()
    )


def _keywords(module: nn.Module) -> dict[str, bool]:
    """A language model that keeps a cache returns what no graph can hold: it is called without."""
    return {"use_cache": False} if "use_cache" in inspect.signature(module.forward).parameters else {}


def columns(value: Tensor, channels: int) -> Floats:
    """A row per neuron, a column per pixel or token: in single precision, if the module has no more."""
    flat = value.detach().movedim(channels, 0).reshape(value.shape[channels], -1)
    return np.asarray((flat if flat.dtype == torch.float64 else flat.float()).cpu().numpy())


def _some(count: int, most: int, rng: np.random.Generator) -> Any:
    return slice(None) if count <= most else np.sort(rng.choice(count, most, replace=False))


def _real(module: nn.Module) -> torch.dtype:
    """The type in which a module computes."""
    kinds = (tensor.dtype for tensor in (*module.parameters(), *module.buffers()) if tensor.is_floating_point())
    return next(kinds, torch.float64)
