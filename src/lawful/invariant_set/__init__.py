"""Where training can go: balances, locked weights, components, paths and rebalancing (P0)."""

from lawful.invariant_set.balance import Balance, flow_residual, generic_point, sparse_point
from lawful.invariant_set.certificate import path_certificate, rebalance_certificate
from lawful.invariant_set.locks.components import (
    Components,
    Lock,
    LockedNeuron,
    OutputMeaning,
    components,
    locked_outputs,
)
from lawful.invariant_set.locks.unlock import draw, nearest_unlocked, unlock
from lawful.invariant_set.module_graph import EntryGraph, balanced_graph, entry_graph
from lawful.invariant_set.paths import Apart, Flow, Unsettled, WeightPath, find_path, flow_without, free_flows
from lawful.invariant_set.rebalance import Rebalanced

__all__ = [
    "Apart", "Balance", "Components", "EntryGraph", "Flow", "Lock", "LockedNeuron", "OutputMeaning", "Rebalanced",
    "Unsettled", "WeightPath", "balanced_graph", "components", "draw", "entry_graph",
    "find_path", "flow_residual", "flow_without", "free_flows", "generic_point", "locked_outputs", "nearest_unlocked",
    "path_certificate", "rebalance_certificate", "sparse_point", "unlock",
]  # fmt: skip
