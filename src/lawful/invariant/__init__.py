"""Where training can go: balance, components, paths and rebalancing of the invariant set (paper 0)."""

from lawful.invariant.avoiding import Flow, flow_without, free_flows
from lawful.invariant.balance import Balance, balance, flow_residual
from lawful.invariant.certificate import certificate
from lawful.invariant.components import Components, Lock, components
from lawful.invariant.feasible import generic_point, sparse_point
from lawful.invariant.meaning import LockedNeuron, OutputMeaning, locked_outputs
from lawful.invariant.paths import Apart, Path, find_path
from lawful.invariant.rebalance import Rebalanced, rebalance
from lawful.invariant.unlock import draw, nearest_unlocked, unlock
from lawful.invariant.verify import verify

__all__ = [
    "Apart",
    "Balance",
    "Components",
    "Flow",
    "Lock",
    "LockedNeuron",
    "OutputMeaning",
    "Path",
    "Rebalanced",
    "balance",
    "certificate",
    "components",
    "draw",
    "find_path",
    "flow_residual",
    "flow_without",
    "free_flows",
    "generic_point",
    "locked_outputs",
    "nearest_unlocked",
    "rebalance",
    "sparse_point",
    "unlock",
    "verify",
]
