"""The evidence that two checkpoints are different functions: the steps from their numbers to one output of each.

An input is found in float64, where errors are estimated. What a module does at that input is a short list of exact
steps on the numbers of its file (the programs that proofs of laws use), which
`lawful verify` evaluates in ball arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from flint import arb
from torch import fx

from lawful.checkpoints.architecture import CheckpointArchitecture
from lawful.checkpoints.compare.certificate import digest
from lawful.checkpoints.compare.decide import OutputReplay
from lawful.checkpoints.opening import ApartPair, CheckpointPair, OpenCheckpoint
from lawful.conservation.certificate import program_json
from lawful.conservation.closure.program_brackets import Sampled
from lawful.conservation.programs.lowering import lower_function
from lawful.errors import Unsupported
from lawful.program.core.straight_line import StraightLineProgram
from lawful.program.frontends.export import ExportedModule, operator_name
from lawful.symmetry.check import tensors_in
from lawful.types import Floats

KIND, VERSION = "outputs-differ", 2
MOST_NUMBERS = 1_000_000  # of a checkpoint that are used: every one of them is a ball in the check
MOST_ENTRIES = 4_000_000  # of all arrays together
FLOATS = {torch.float16, torch.bfloat16, torch.float32, torch.float64}
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
    >>> from lawful.checkpoints.pair import decide
    >>> one, two = (nn.Sequential(nn.Linear(2, 3), nn.SiLU(), nn.Linear(3, 1)) for _ in range(2))
    >>> pair, found = decide(open_checkpoints(one, two, input=(2,)))
    >>> a, b = retrace(pair, found.replay)
    >>> np.allclose((a.value, b.value), found.replay.outputs)
    True
    """
    own = pair if isinstance(pair, ApartPair) else pair.as_written or pair
    both = own.architectures if isinstance(own, ApartPair) else (own.architecture, own.architecture)
    one, two = (
        _retrace_output(architecture, checkpoint, replay)
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


def _retrace_output(
    architecture: CheckpointArchitecture, checkpoint: OpenCheckpoint, replay: OutputReplay
) -> RetracedOutput:
    exported, state = architecture.exported, checkpoint.state
    kinds = {node.op for node in exported.graph.nodes}
    if not kinds <= {"placeholder", "call_function", "output"} or architecture.virtual:
        raise Unsupported("the module's graph is not made of calls alone")
    used = {given for node in exported.graph.nodes for given in node.all_input_nodes if given.op == "placeholder"}
    own = {node: exported.names.get(node.name, "") for node in used if node.name not in exported.inputs}
    in_file = (name for name in own.values() if name in checkpoint.keys and state[name].is_floating_point())
    names = tuple(dict.fromkeys(in_file))
    if sum(state[name].numel() for name in names) > MOST_NUMBERS:
        raise Unsupported(f"more than {MOST_NUMBERS:,} numbers make the output")

    def output(parts: list[torch.Tensor]) -> torch.Tensor:
        given = dict(zip(names, parts, strict=True))
        values: dict[fx.Node, Any] = {}
        for node in exported.graph.nodes:
            if node in own:
                held = given.get(own[node])
                values[node] = (
                    _to_float64(_stored_tensor(exported, state, node), torch.float64) if held is None else held
                )
            elif node.op == "placeholder" and node in used:
                values[node] = _to_float64(replay.inputs[exported.inputs.index(node.name)], torch.float64)
            elif node.op == "call_function":
                # a view of what attention returns may need a copy where attention is carried out in another way
                target = torch.ops.aten.reshape.default if operator_name(node.target) == "view" else node.target
                values[node] = target(*_substitute(node.args, values), **_substitute(node.kwargs, values))
            elif node.op == "output":
                every = [tensor.double().reshape(-1) for tensor in tensors_in(_substitute(node.args[0], values))]
                return torch.cat(every)[replay.place : replay.place + 1]
        raise AssertionError("a graph without an output")

    with torch.no_grad():
        program = lower_function(output, [state[name].shape for name in names], MOST_ENTRIES)
    theta = np.concatenate([np.zeros(0), *(state[name].double().reshape(-1).numpy() for name in names)])
    return RetracedOutput(checkpoint, program, names, _value(program, theta))


def _value(program: StraightLineProgram, theta: Floats) -> float:
    """The output in float64; in ball arithmetic where that overflows, as exponentials of large scores do."""
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


def _stored_tensor(exported: ExportedModule, tensors: Mapping[str, torch.Tensor], node: fx.Node) -> torch.Tensor:
    """A parameter or buffer; buffers that no checkpoint holds are the module's own."""
    name = exported.names.get(node.name)
    own = name is None or (node.name not in exported.trained and name not in tensors)
    return exported.tensors[node.name] if own else tensors[str(name)]


def _to_float64(tensor: torch.Tensor, kind: torch.dtype = torch.float64) -> torch.Tensor:
    """A tensor in the type that is used, unless it holds whole numbers or truth values."""
    return tensor.detach().to(kind) if tensor.dtype in FLOATS else tensor.detach()


def _substitute(given: Any, values: Mapping[fx.Node, Any], kind: torch.dtype = torch.float64) -> Any:
    """Arguments with nodes replaced by values, and floating types by the one that is used."""

    def as_used(each: Any) -> Any:
        return kind if isinstance(each, torch.dtype) and each in FLOATS else each

    return fx.node.map_aggregate(fx.node.map_arg(given, lambda node: values[node]), as_used)
