"""What we know about a module that is no graph of scalar weights: laws, dead parameters, locks, what was pinned."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lawful.api.audit import EFFORTS, SAVED, Audit, Recommendation, Skipped, best_first, removal, rescalings
from lawful.api.prune import ByChannels, convolutional_file, example_inputs
from lawful.errors import LawfulError, Unsupported
from lawful.invariant_set.locks.components import components
from lawful.invariant_set.locks.unlock import unlock
from lawful.invariant_set.module_graph import EntryGraph, entry_graph
from lawful.invariant_set.rebalance import rebalance
from lawful.invariant_set.singular.spectrum import singularity
from lawful.sentences import symmetries as says
from lawful.symmetry import Symmetries, symmetries

if TYPE_CHECKING:
    from torch import nn

    from lawful.pruning.channels import ChannelPruning
    from lawful.pruning.channels.onnx_file import OnnxPruning

# Channels are tried one by one, with the module run in between: seconds at a million weights.
MOST_PRUNED = {"quick": 200_000, "normal": 2_000_000, "full": 10**12}
MOST_ENTRIES = {"quick": 500_000, "normal": 20_000_000, "full": 10**12}  # for the scaling graph: one edge each


def audit_module(
    module: nn.Module, input: Any = None, *, source: str = "network", asked: str = "", effort: str = "normal"
) -> Audit:
    """Ask every question that a module can answer; `input` is the size of its input without the batch.

    >>> from torch import nn
    >>> net = nn.Sequential(nn.Conv1d(2, 3, 2), nn.BatchNorm1d(3), nn.ReLU(), nn.Flatten(), nn.Linear(9, 1))
    >>> found = audit_module(net, (2, 4))
    >>> len(found.symmetries.laws), sum(part.entries for part in found.symmetries.dead)
    (6, 3)
    """
    if effort not in EFFORTS:
        raise LawfulError(f"unknown effort {effort!r}: choose from {', '.join(EFFORTS)}")
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
    return Audit(
        source=source,
        kind=type(module).__name__,
        parameters=parameters,
        components=where,
        locked_after_rescaling=after,
        balanced_norm=norm,
        pruning=pruning,
        singularity=rank,
        skipped=tuple(skipped),
        recommendations=best_first(
            [
                *_leave_out(group, pruning, asked, parameters),
                *rescalings(asked, where, after, norm, says.advise_unlocking, says.advise_balancing),
            ]
        ),
        asked=asked,
        symmetries=group,
        frozen=parameters - group.parameters,
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


def _leave_out(
    found: Symmetries, pruning: ChannelPruning | OnnxPruning | None, name: str, parameters: int
) -> Iterator[Recommendation]:
    """Channels that change nothing, and entries that no loss sees."""
    if pruning is not None and pruning.removed:
        share = 1.0 - pruning.parameters_after / pruning.parameters_before
        # An ONNX file is pruned as a file: what is written is one again.
        files = SAVED.replace(".safetensors", ".onnx") if hasattr(pruning, "model") else SAVED
        yield removal(name, len(pruning.removed), share, None, "channel", files)
    if dead := [(part.parameter, part.entries) for part in found.dead]:
        entries = sum(count for _, count in dead)
        title, benefit = says.advise_dead(entries, dead)
        yield Recommendation(title, f"lawful symmetries {name}", benefit, entries / parameters)
