"""The evidence that two checkpoints are different functions: the steps from their numbers to one output of each.

An input is found in float64, where errors are estimated. What a module does at that input is a short list of exact
steps on the numbers of its file (the programs that proofs of laws use), which
`lawful verify` evaluates in ball arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from flint import arb

from lawful.checkpoints.architecture import CheckpointArchitecture
from lawful.checkpoints.compare.certificate import digest
from lawful.checkpoints.compare.decide import OutputReplay
from lawful.checkpoints.opening import ApartPair, CheckpointPair, OpenCheckpoint
from lawful.conservation.certificate import program_json
from lawful.conservation.closure.program_brackets import Sampled
from lawful.errors import Unsupported
from lawful.program.builder import Builder
from lawful.program.core.straight_line import StraightLineProgram
from lawful.program.domains.straighten import straighten
from lawful.program.frontends.torch_export import read_exported
from lawful.program.passes.rebuild import rebuild
from lawful.program.program import Node, Program
from lawful.types import Floats

KIND, VERSION = "outputs-differ", 2
MOST_NUMBERS = 1_000_000  # of a checkpoint that are used: every one of them is a ball in the check
MOST_ENTRIES = 4_000_000  # of all arrays together
AGREE = 1e-6  # of the gap, how far the steps may be from what was replayed


@dataclass(frozen=True, eq=False)
class RetracedOutput:
    """One output of a checkpoint as steps on the numbers of some of its tensors."""

    checkpoint: OpenCheckpoint
    program: StraightLineProgram
    names: tuple[str, ...]
    value: float


def retrace(pair: CheckpointPair | ApartPair, replay: OutputReplay) -> tuple[RetracedOutput, RetracedOutput]:
    """The output at which two checkpoints differ most, for both; `Unsupported` if there are no such steps.

    >>> from torch import nn
    >>> from lawful.checkpoints.opening import open_checkpoints
    >>> from lawful.checkpoints.verdict import decide
    >>> one, two = (nn.Sequential(nn.Linear(2, 3), nn.SiLU(), nn.Linear(3, 1)) for _ in range(2))
    >>> pair, found = decide(open_checkpoints(one, two, input=(2,)))
    >>> a, b = retrace(pair, found.replay)
    >>> np.allclose((a.value, b.value), found.replay.outputs)
    True
    """
    stored = pair if isinstance(pair, ApartPair) else pair.as_written or pair
    both = stored.architectures if isinstance(stored, ApartPair) else (stored.architecture, stored.architecture)
    one, two = (
        _retrace_output(architecture, checkpoint, replay)
        for architecture, checkpoint in zip(both, (stored.first, stored.second), strict=True)
    )
    gap = abs(replay.outputs[0] - replay.outputs[1])
    for retraced, right in zip((one, two), replay.outputs, strict=True):
        if not abs(retraced.value - right) <= AGREE * gap:
            raise Unsupported("the module's operations, one by one, have another output than the module")
    return one, two


def outputs_certificate(one: RetracedOutput, two: RetracedOutput) -> dict[str, Any]:
    """What a separate program needs to compute both outputs again; half of the gap is claimed."""
    both = one, two
    steps = [program_json(side.program) for side in both]
    return {
        "kind": KIND,
        "version": VERSION,
        "about": [digest(side.checkpoint) for side in both],
        "steps": steps[:1] if steps[0] == steps[1] else steps,
        "tensors": [[side.checkpoint.keys[name] for name in side.names] for side in both],
        "apart": abs(one.value - two.value) / 2,
    }


def _retrace_output(
    architecture: CheckpointArchitecture, checkpoint: OpenCheckpoint, replay: OutputReplay
) -> RetracedOutput:
    exported, state = architecture.exported, checkpoint.state
    if architecture.virtual:
        raise Unsupported("the module's graph is not made of calls alone")
    program = read_exported(exported, held=state, exact=True)
    leaves = {**program.parameters, **program.buffers}
    names = tuple(name for name, leaf in leaves.items() if name in checkpoint.keys and leaf.kind == "f")
    if sum(state[name].numel() for name in names) > MOST_NUMBERS:
        raise Unsupported(f"more than {MOST_NUMBERS:,} numbers make the output")
    known = {name: _numbers(state.get(name, program.tensors[name])) for name in leaves if name not in names}
    inputs = {name: _numbers(tensor) for name, tensor in zip(exported.inputs, replay.inputs, strict=True)}
    shapes = {name: leaves[name].shape for name in names}
    steps = straighten(_one_output(program, names, known | inputs, replay.place), shapes, most=MOST_ENTRIES)
    theta = np.concatenate([np.zeros(0), *(state[name].double().reshape(-1).numpy() for name in names)])
    return RetracedOutput(checkpoint, steps, names, _value(steps, theta))


def _one_output(program: Program, names: Collection[str], known: Mapping[str, Floats], place: int) -> Program:
    """One entry of all outputs laid end to end, of the tensors of these names; every other leaf is a constant."""

    def rule(b: Builder, node: Node, operands: tuple[Node, ...]) -> Node | None:
        if node.op not in ("input", "buffer", "parameter"):
            return None
        name = node["name"]
        return b.parameter(name, program.tensors[name]) if name in names else b.constant(known[name], node.kind)

    def choose(b: Builder, outputs: Sequence[Node]) -> list[Node]:
        reals = [b.reshape(node, (node.size,)) for node in outputs if node.kind == "f"]
        return [b.slice(b.concatenate(reals, 0), 0, slice(place, place + 1))]

    return rebuild(program, rule, exact=True, outputs=choose)


def _numbers(tensor: torch.Tensor) -> Floats:
    """The numbers of a tensor, in float64 where they are real."""
    return (tensor.detach().double() if tensor.is_floating_point() else tensor.detach()).cpu().numpy()


def _value(program: StraightLineProgram, theta: Floats) -> float:
    """The output in float64; in ball arithmetic where that overflows, as exponentials of large scores do."""
    none, first = np.zeros((1, 0)), np.zeros(1, dtype=np.intp)
    with np.errstate(all="ignore"):
        outputs = Sampled(program, theta, none, none).values(first, {0: theta[None]})[-1]
    value = float(outputs[0].ravel()[0]) if 0 in outputs else 0.0
    if math.isfinite(value):
        return value
    balls = np.array([arb(float(weight)) for weight in theta], dtype=object)
    try:
        outputs = Sampled(program, balls, none, none).values(first, {0: balls[None]})[-1]
    except (ValueError, ArithmeticError):  # a sign that its ball does not tell
        return math.nan
    return float(outputs[0].ravel()[0].mid()) if 0 in outputs else 0.0
