"""The evidence that two checkpoints are different functions: the steps from their numbers to one output of each.

An input is found in float64, where errors are estimated. What a module does at that input is a short list of exact
steps on the numbers of its file (the programs that proofs of laws use), which `lawful verify` carries out in balls.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from flint import arb

from lawful.checkpoints.architecture import CheckpointArchitecture
from lawful.checkpoints.certificate import digest
from lawful.checkpoints.opening import ApartPair, CheckpointPair, OpenCheckpoint
from lawful.checkpoints.same import OutputReplay
from lawful.errors import Unsupported
from lawful.laws.certificate import program_json
from lawful.laws.lowering import lower_function
from lawful.laws.program import Program
from lawful.laws.sampled import Sampled
from lawful.program.arrays import TorchArrays
from lawful.program.domains.evaluate import Evaluation
from lawful.program.domains.interpret import interpret
from lawful.types import Floats

KIND, VERSION = "outputs-differ", 1
MOST_NUMBERS = 1_000_000  # of a checkpoint that are used: every one of them is a ball in the check
MOST_ENTRIES = 4_000_000  # of all arrays together
AGREE = 1e-6  # of the gap, how far the steps may be from what was replayed


@dataclass(frozen=True, eq=False)
class RetracedOutput:
    """One output of a checkpoint as steps on the numbers of some of its tensors."""

    checkpoint: OpenCheckpoint
    program: Program
    names: tuple[str, ...]
    value: float


def retrace(pair: CheckpointPair | ApartPair, replay: OutputReplay) -> tuple[RetracedOutput, RetracedOutput]:
    """The output at which two checkpoints differ most, for both; `Unsupported` if there are no such steps.

    >>> from torch import nn
    >>> from lawful.checkpoints.opening import open_checkpoints
    >>> from lawful.checkpoints.verbs import decide
    >>> one, two = (nn.Sequential(nn.Linear(2, 3), nn.SiLU(), nn.Linear(3, 1)) for _ in range(2))
    >>> pair, found = decide(open_checkpoints(one, two, input=(2,)))
    >>> a, b = retrace(pair, found.replay)
    >>> np.allclose((a.value, b.value), found.replay.outputs)
    True
    """
    own = pair if isinstance(pair, ApartPair) else pair.as_written or pair
    both = own.architectures if isinstance(own, ApartPair) else (own.architecture, own.architecture)
    one, two = (
        _retraced(architecture, checkpoint, replay)
        for architecture, checkpoint in zip(both, (own.first, own.second), strict=True)
    )
    gap = abs(replay.outputs[0] - replay.outputs[1])
    for found, right in zip((one, two), replay.outputs, strict=True):
        if not abs(found.value - right) <= AGREE * gap:
            raise Unsupported("the module's operations, one by one, have another output than the module")
    return one, two


def outputs_certificate(one: RetracedOutput, two: RetracedOutput) -> dict[str, Any]:
    """What a separate program needs to compute both outputs again; half of the gap is claimed."""
    both = one, two
    steps = [program_json(each.program) for each in both]
    return {
        "kind": KIND,
        "version": VERSION,
        "about": [digest(each.checkpoint) for each in both],
        "steps": steps[:1] if steps[0] == steps[1] else steps,
        "tensors": [[each.checkpoint.keys[name] for name in each.names] for each in both],
        "apart": abs(one.value - two.value) / 2,
    }


def _retraced(architecture: CheckpointArchitecture, checkpoint: OpenCheckpoint, replay: OutputReplay) -> RetracedOutput:
    computed, state = architecture.program, checkpoint.state
    if computed is None or architecture.virtual:
        raise Unsupported("the module's graph is not made of calls alone")
    leaves = {**computed.parameters, **computed.buffers}
    names = tuple(name for name in leaves if name in checkpoint.keys and state[name].is_floating_point())
    if sum(state[name].numel() for name in names) > MOST_NUMBERS:
        raise Unsupported(f"more than {MOST_NUMBERS:,} numbers make the output")
    own = {name: state.get(name, computed.tensors[name]).detach() for name in leaves}
    inputs = {node["name"]: given.detach() for node, given in zip(computed.inputs, replay.inputs, strict=True)}

    def output(parts: list[torch.Tensor]) -> torch.Tensor:
        tensors = {**own, **dict(zip(names, parts, strict=True))}
        values = interpret(computed, Evaluation(TorchArrays(), inputs, tensors))
        every = [values[node].double().reshape(-1) for node in computed.outputs]
        return torch.cat(every)[replay.place : replay.place + 1]

    with torch.no_grad():
        program = lower_function(output, [state[name].shape for name in names], MOST_ENTRIES)
    theta = np.concatenate([np.zeros(0), *(state[name].double().reshape(-1).numpy() for name in names)])
    return RetracedOutput(checkpoint, program, names, _value(program, theta))


def _value(program: Program, theta: Floats) -> float:
    """The output in float64; in balls where that overflows, as exponentials of large scores do."""
    none, first = np.zeros((1, 0)), np.zeros(1, dtype=np.intp)
    with np.errstate(all="ignore"):
        found = Sampled(program, theta, none, none).values(first, {0: theta[None]})[-1]
    value = float(found[0].ravel()[0]) if 0 in found else 0.0
    if math.isfinite(value):
        return value
    balls = np.array([arb(float(each)) for each in theta], dtype=object)
    try:
        found = Sampled(program, balls, none, none).values(first, {0: balls[None]})[-1]
    except (ValueError, ArithmeticError):  # a sign that its ball does not tell
        return math.nan
    return float(found[0].ravel()[0].mid()) if 0 in found else 0.0
