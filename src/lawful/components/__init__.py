"""Where training can go: balances, locked weights, components, paths and rebalancing (P0)."""

from lawful.components.avoiding import Flow, flow_without, free_flows
from lawful.components.balance import Balance, balance, flow_residual
from lawful.components.certificate import certificate, path_certificate, rebalance_certificate
from lawful.components.entries import EntryGraph, balanced_graph, entry_graph
from lawful.components.feasible import generic_point, sparse_point
from lawful.components.locked_outputs import LockedNeuron, OutputMeaning, locked_outputs
from lawful.components.locks import Components, Lock, components
from lawful.components.paths import Apart, Unsettled, WeightPath, find_path
from lawful.components.rebalance import Rebalanced, rebalance
from lawful.components.unlock import draw, nearest_unlocked, unlock

__all__ = [
    "Apart", "Balance", "Components", "EntryGraph", "Flow", "Lock", "LockedNeuron", "OutputMeaning", "Rebalanced",
    "Unsettled", "WeightPath", "balance", "balanced_graph", "certificate", "components", "draw", "entry_graph",
    "find_path", "flow_residual", "flow_without", "free_flows", "generic_point", "locked_outputs", "nearest_unlocked",
    "path_certificate", "rebalance", "rebalance_certificate", "sparse_point", "unlock",
]  # fmt: skip
