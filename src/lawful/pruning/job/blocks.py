"""Whole residual blocks as units: those that cost least once the layers behind them have taken over what they can.

A *block* is a part of a module with at least two layers that turns a tensor into one of the same size. Where it was,
its input passes on unchanged (`x + f(x)` becomes `x`), or zeros do where the sum is written outside of it; whichever
changes the outputs less. So no pattern of code has to be known, and a part that is no residual block costs so much that
it stays. Blocks are proposed by that change per cost saved, one run of the module each; the few best are repaired by
least squares and compared on samples that neither scored nor repaired. Cost: one export of the module for each of them.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from lawful.errors import LawfulError
from lawful.program.frontends.export import copy_module
from lawful.program.table import OperatorFamily
from lawful.pruning.channels.reading.domain import read_channels
from lawful.pruning.channels.state import read_arrays
from lawful.pruning.channels.weights import ChannelWeights
from lawful.pruning.job.case import JobSamples, PruningCase
from lawful.pruning.job.least_squares import repair_shortened
from lawful.pruning.job.network import ModuleSubject, RunnableProgram, module_outputs
from lawful.pruning.job.units import find_readers, layer_macs

PROPOSED = 3  # blocks that are repaired and compared: the order before repair is seldom off by more places
SAMPLES = 256  # that propose; all that fit repair


class Bypass(nn.Module):
    """Stands where a block was: its input, or zeros of that size, as the first of so many results."""

    def __init__(self, results: int = 0, *, zero: bool = False) -> None:
        super().__init__()
        self.results, self.zero = results, zero

    def forward(self, *given: Any, **named: Any) -> Any:
        """The first tensor that it is given."""
        x = _first_tensor((*given, *named.values()))
        out = torch.zeros_like(x) if self.zero else x
        return (out, *[None] * (self.results - 1)) if self.results else out

    def extra_repr(self) -> str:
        """What it hands on."""
        return "zeros" if self.zero else "its input"


@dataclass(frozen=True)
class Block:
    """A part of a module that may leave: its name, what stands there then, and the change of the outputs by that."""

    name: str
    instead: Bypass
    change: float
    saved: float

    @property
    def score(self) -> float:
        """The change per cost saved."""
        return self.change / max(self.saved, 1e-300)


def find_blocks(case: PruningCase, cost: str) -> list[Block]:
    """The blocks of a module, from the least needed on."""
    subject = case.subject
    if not isinstance(subject, ModuleSubject):
        return []
    x = subject.batch(case.fitting.x[:SAMPLES])
    wanted = _outputs(subject.module, x)
    candidates = []
    for name, results in _same_sized(subject.module, x[:2]).items():
        tried = []
        for zero in (False, True):
            instead = Bypass(results, zero=zero)
            with suppress(Exception):  # whatever a class does with what it did not expect
                gap = _outputs(_without(subject.module, name, instead), x) - wanted
                change = float(
                    (gap - gap.mean(0)).square().mean()
                )  # what all samples have in common, a bias takes over
                if math.isfinite(change):
                    tried.append(Block(name, instead, change, _cost_of(case, name, cost)))
        candidates += sorted(tried, key=lambda block: block.change)[:1]
    return sorted((block for block in candidates if block.saved > 0), key=lambda block: block.score)


def without_block(case: PruningCase, cost: str, choosing: JobSamples) -> tuple[str, ModuleSubject] | None:
    """The network without its least needed block, repaired, and that block's name; None where no block can leave."""
    best: tuple[float, str, ModuleSubject] | None = None
    for block in find_blocks(case, cost)[:PROPOSED]:
        case.tick(f"without {block.name}")
        with suppress(LawfulError):  # what is left cannot be read as a program: no block after all
            shorter = _repair_without(case, block)
            after = RunnableProgram(shorter.read(case.size, case.network.batch))
            change = output_change(case.network, after, choosing) / block.saved
            if best is None or change < best[0]:
                best = change, block.name, shorter
    return None if best is None else best[1:]


def output_change(network: RunnableProgram, other: RunnableProgram, samples: JobSamples) -> float:
    """The mean squared difference of outputs."""
    return float((other.outputs(samples.x) - network.outputs(samples.x)).double().square().mean())


def _repair_without(case: PruningCase, block: Block) -> ModuleSubject:
    """The module without a block, in which layers behind it are refitted to what they computed before."""
    subject = case.subject
    if not isinstance(subject, ModuleSubject):
        raise AssertionError("blocks are parts of modules")
    shorter = ModuleSubject(_without(subject.module, block.name, block.instead), subject.whole)
    program = shorter.read(case.size, case.network.batch)
    if not case.mend:
        return shorter
    reading = read_channels(program)
    state = ChannelWeights(reading.program, read_arrays(program, reading.program))
    before, after = find_readers(case.reading, case.state), find_readers(reading, state)
    pairs, users = {}, program.users
    for weight, reader in after.items():
        old, leaf = before.get(weight), program.parameters.get(weight)
        # a weight that is an embedding too (tied) stays: the table would change with the layer
        tied = leaf is None or not set(users[leaf]) <= set(reader.nodes)
        if old is not None and len(old.nodes) == len(reader.nodes) and not tied:
            pairs[weight] = list(zip(old.nodes, reader.nodes, strict=True))
    tensors = repair_shortened(case.network, RunnableProgram(program), state, pairs, case.fitting.x, tick=case.tick)
    return ModuleSubject(shorter.with_numbers(tensors), subject.whole)


def close_gaps(subject: ModuleSubject, names: Sequence[str], x: torch.Tensor) -> tuple[ModuleSubject, list[str]]:
    """Shorter containers instead of stand-ins, where the outputs stay the same to the bit; and what to say of it.

    Classes with a number of blocks as an argument load what is written then: later blocks have moved up.
    """
    module, notes = subject.module, []
    wanted = _outputs(module, x)
    for name in sorted(names, key=_natural, reverse=True):  # the last first: names of those before stay what they are
        parent, _, place = name.rpartition(".")
        shorter = copy.deepcopy(module)
        container = shorter.get_submodule(parent)
        if isinstance(container, (nn.Sequential, nn.ModuleList)):
            depth = len(container)
            del container[int(place)]
            with suppress(Exception):  # code that counts its blocks itself
                _set_depth(shorter, int(place), depth)
                if torch.equal(_outputs(shorter, x), wanted):
                    module = shorter
                    notes.append(f"{name} left: {parent} has {depth - 1} blocks, and those behind it moved up by one")
                    continue
        notes.append(f"{name} left: {module.get_submodule(name).extra_repr()} stands in its place")
    return ModuleSubject(module, subject.whole), notes


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (0, part) for part in name.split(".")]


def _set_depth(module: nn.Module, place: int, depth: int) -> None:
    """The number of blocks in a config of transformers, and its entries block by block."""
    configs: list[Any] = [part.config for part in module.modules() if hasattr(part, "config")]
    for config in configs:  # parts share one, whose number is another after the first
        if getattr(config, "num_hidden_layers", None) == depth:
            config.num_hidden_layers = depth - 1
            kinds = getattr(config, "layer_types", None)
            if isinstance(kinds, list) and len(kinds) == depth:
                config.layer_types = kinds[:place] + kinds[place + 1 :]


def _same_sized(module: nn.Module, x: torch.Tensor) -> dict[str, int]:
    """Parts that turn a tensor into one of its size in their only call, with their number of results (0: a tensor)."""
    watched = copy_module(module, shared=True)
    seen: dict[str, list[int | None]] = {}

    def watch(name: str) -> Any:
        def note(part: nn.Module, given: Any, named: Any, out: Any) -> None:
            x, first = _first_tensor((*given, *named.values())), out[0] if isinstance(out, tuple) else out
            same = (
                isinstance(first, torch.Tensor) and x is not None and (x.shape, x.dtype) == (first.shape, first.dtype)
            )
            seen.setdefault(name, []).append((len(out) if isinstance(out, tuple) else 0) if same else None)

        return note

    for name, part in watched.named_modules():
        layers = sum(
            any(parameter.dim() > 1 for parameter in inner.parameters(recurse=False)) for inner in part.modules()
        )
        if name and layers > 1:
            part.register_forward_hook(watch(name), with_kwargs=True)
    _outputs(watched, x)
    results_by_name = {name: calls[0] for name, calls in seen.items() if len(calls) == 1 and calls[0] is not None}
    members = [
        name for name in results_by_name
        if isinstance(module.get_submodule(name.rpartition(".")[0]), (nn.Sequential, nn.ModuleList))
    ]  # fmt: skip
    # Around a member of a stack there is the stack, inside of it are its branches: a class can lack the member alone.
    return {
        name: results for name, results in results_by_name.items()
        if not any(name.startswith(f"{member}.") or member.startswith(f"{name}.") for member in members)
    }  # fmt: skip


def _without(module: nn.Module, name: str, instead: nn.Module) -> nn.Module:
    shorter = copy_module(module, shared=True)
    shorter.set_submodule(name, instead)
    return shorter


def _cost_of(case: PruningCase, name: str, cost: str) -> float:
    """What leaves with a block: its parameters, or the multiplications of its layers."""
    inside = {parameter for parameter in case.network.program.parameters if parameter.startswith(f"{name}.")}
    if cost == "params":
        return float(sum(case.network.program.parameters[parameter].size for parameter in inside))
    return float(sum(
        layer_macs(node) for node in case.network.program.nodes if node.family is OperatorFamily.CONTRACTION
        and any(operand.attributes.get("name") in inside for operand in node.inputs)
    ))  # fmt: skip


@torch.no_grad()
def _outputs(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return module_outputs(module, x).double()


def _first_tensor(values: Sequence[Any]) -> Any:
    return next((value for value in values if isinstance(value, torch.Tensor)), None)
