"""What we know about a module that is no graph of scalar weights: laws, dead parameters, locks, what was pinned."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lawful.api.audit import SAVED, WORTH_IT, Recommendation, Skipped
from lawful.api.prune import ByChannels, convolutional_file, example_inputs
from lawful.errors import LawfulError, Unsupported
from lawful.invariant_set.locks.components import Components, components
from lawful.invariant_set.locks.unlock import unlock
from lawful.invariant_set.module_graph import EntryGraph, entry_graph
from lawful.invariant_set.rebalance import rebalance
from lawful.invariant_set.singular.spectrum import Singularity, singularity
from lawful.result import Shown
from lawful.sentences import audit as of_networks
from lawful.sentences import symmetries as says
from lawful.symmetry import Symmetries, symmetries

if TYPE_CHECKING:
    from torch import nn

    from lawful.pruning.channels import ChannelPruning
    from lawful.pruning.channels.onnx_file import OnnxPruning

# Channels are tried one by one, with the module run in between: seconds at a million weights.
MOST_PRUNED = {"quick": 200_000, "normal": 2_000_000, "full": 10**12}
MOST_ENTRIES = {"quick": 500_000, "normal": 20_000_000, "full": 10**12}  # for the scaling graph: one edge each


@dataclass(frozen=True, eq=False)
class ModuleAudit(Shown):
    """The answers about a module; None means: skipped, and `skipped` says why."""

    source: str
    kind: str
    parameters: int
    frozen: int
    symmetries: Symmetries
    pruning: ChannelPruning | OnnxPruning | None
    components: Components | None
    singularity: Singularity | None
    locked_after_rescaling: int | None
    balanced_norm: float | None
    skipped: tuple[Skipped, ...]
    recommendations: tuple[Recommendation, ...]
    asked: str = ""  # the source and the options that reading it took, as a command takes them


def audit_module(
    module: nn.Module, input: Any = None, *, source: str = "network", asked: str = "", effort: str = "normal"
) -> ModuleAudit:
    """Ask every question that a module can answer; `input` is the size of its input without the batch.

    >>> from torch import nn
    >>> net = nn.Sequential(nn.Conv1d(2, 3, 2), nn.BatchNorm1d(3), nn.ReLU(), nn.Flatten(), nn.Linear(9, 1))
    >>> found = audit_module(net, (2, 4))
    >>> len(found.symmetries.laws), sum(part.entries for part in found.symmetries.dead)
    (6, 3)
    """
    if effort not in MOST_ENTRIES:
        raise LawfulError(f"unknown effort {effort!r}: choose from {', '.join(MOST_ENTRIES)}")
    group = symmetries(module, input)
    asked = asked or _as_command(source, input)
    skipped: list[Skipped] = []
    where, rank, after, norm = None, None, None, None
    parameters = sum(tensor.numel() for tensor in module.parameters())
    if parameters > MOST_ENTRIES[effort]:
        skipped.append(Skipped("where training can go", f"{parameters:,} entries", f"lawful audit {asked} --full"))
    else:
        try:
            graph = entry_graph(module, input)
            where = components(graph)
            rank = singularity(graph)
            after = None if not where.locked else unlock(graph).locked
            norm = _norm_at_balance(graph)
        except (Unsupported, LawfulError) as error:
            skipped.append(Skipped("where training can go", str(error), f"lawful symmetries {asked}"))
    pruning = None
    if parameters > MOST_PRUNED[effort]:
        skipped.append(Skipped("pruning by channels", f"{parameters:,} weights", f"lawful prune {asked}"))
    else:
        try:
            pruning = _prune(module, input, source)
        except LawfulError as error:
            skipped.append(Skipped("pruning by channels", str(error), f"lawful prune {asked}"))
    return ModuleAudit(
        source=source,
        kind=type(module).__name__,
        parameters=parameters,
        frozen=parameters - group.parameters,
        symmetries=group,
        pruning=pruning,
        components=where,
        singularity=rank,
        locked_after_rescaling=after,
        balanced_norm=norm,
        skipped=tuple(skipped),
        recommendations=_advice(group, pruning, where, after, norm, asked, parameters),
        asked=asked,
    )


def _prune(module: nn.Module, input: Any, source: str) -> ChannelPruning | OnnxPruning:
    """What `lawful prune` of the same source would do, so that its command brings what the audit says."""
    if source.endswith(".onnx") and (file := convolutional_file(Path(source))) is not None:
        return ByChannels(file).prune()
    return ByChannels(None, module, tuple(example_inputs(module, input, 0))).prune()


def _norm_at_balance(graph: EntryGraph) -> float | None:
    """The squared norm of all entries in the graph after rescaling to balance 0, over that now."""
    if not len(graph.hidden):
        return None
    done = rebalance(graph)
    before = float(np.square(graph.theta).sum())
    return float(np.square(done.dag.theta).sum()) / before if done.reached and before else None


def _as_command(source: str, input: Any) -> str:
    """How the user names the module on the command line."""
    return shlex.quote(source) + (f" --input {shlex.quote(input)}" if isinstance(input, str) else "")


def _advice(
    found: Symmetries,
    pruning: ChannelPruning | OnnxPruning | None,
    where: Components | None,
    after: int | None,
    norm: float | None,
    name: str,
    parameters: int,
) -> tuple[Recommendation, ...]:
    advice = []
    if pruning is not None and pruning.removed:
        share = 1.0 - pruning.parameters_after / pruning.parameters_before
        title, benefit = of_networks.advise_pruning(len(pruning.removed), share, None, "channel")
        # An ONNX file is pruned as a file: what is written is one again.
        files = SAVED.replace(".safetensors", ".onnx") if hasattr(pruning, "model") else SAVED
        advice.append(Recommendation(title, f"lawful prune {name} {files}", benefit, share))
    if dead := [(part.parameter, part.entries) for part in found.dead]:
        entries = sum(count for _, count in dead)
        title, benefit = says.advise_dead(entries, dead)
        advice.append(Recommendation(title, f"lawful symmetries {name}", benefit, entries / parameters))
    if where is not None and after is not None and after < len(where.locked):
        title, benefit = says.advise_unlocking(len(where.locked), after)
        command = f"lawful rebalance {name} --balance unlock --out unlocked.safetensors"
        share = (len(where.locked) - after) / max(len(where.dag.hidden), 1)
        advice.append(Recommendation(title, command, benefit, share))
    saved = 1.0 - (1.0 if norm is None else norm)
    if saved > WORTH_IT:
        title, benefit = says.advise_balancing(saved)
        command = f"lawful rebalance {name} --balance zero --out balanced.safetensors"
        advice.append(Recommendation(title, command, benefit, saved))
    return tuple(sorted(advice, key=lambda each: -each.share))
