"""Where training can go: balance, components, paths, singular points and pruning (paper 0)."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lawful.invariant.avoiding import Flow, flow_without, free_flows
from lawful.invariant.balance import Balance, balance, flow_residual
from lawful.invariant.certificate import certificate
from lawful.invariant.components import Components, Lock, components
from lawful.invariant.feasible import generic_point, sparse_point
from lawful.invariant.meaning import LockedNeuron, OutputMeaning, locked_outputs
from lawful.invariant.paths import Apart, Path, find_path
from lawful.invariant.pruning import Pruning, Stage, prune
from lawful.invariant.pruning_verify import verify as verify_pruning
from lawful.invariant.rebalance import Rebalanced, rebalance
from lawful.invariant.scores import largest_score, product_score, pruning_curve
from lawful.invariant.singular import Singularity, Spectrum, singularity, spectrum, subnetwork
from lawful.invariant.singular_exist import SingularPoints, exact_balance, singular_points
from lawful.invariant.singular_verify import verify_points
from lawful.invariant.unlock import draw, nearest_unlocked, unlock
from lawful.invariant.verify import verify

if TYPE_CHECKING:
    from lawful.invariant.pruning_module import prune_module
    from lawful.invariant.regulariser import NuclearPenalty, edges_of, group_penalty, l1_penalty, l2_penalty
    from lawful.invariant.trainer import SingularTrainer

_WITH_TORCH = {
    "NuclearPenalty": "regulariser",
    "SingularTrainer": "trainer",
    "edges_of": "regulariser",
    "group_penalty": "regulariser",
    "l1_penalty": "regulariser",
    "l2_penalty": "regulariser",
    "prune_module": "pruning_module",
}

__all__ = [
    "Apart",
    "Balance",
    "Components",
    "Flow",
    "Lock",
    "LockedNeuron",
    "NuclearPenalty",
    "OutputMeaning",
    "Path",
    "Pruning",
    "Rebalanced",
    "SingularPoints",
    "SingularTrainer",
    "Singularity",
    "Spectrum",
    "Stage",
    "balance",
    "certificate",
    "components",
    "draw",
    "edges_of",
    "exact_balance",
    "find_path",
    "flow_residual",
    "flow_without",
    "free_flows",
    "generic_point",
    "group_penalty",
    "l1_penalty",
    "l2_penalty",
    "largest_score",
    "locked_outputs",
    "nearest_unlocked",
    "product_score",
    "prune",
    "prune_module",
    "pruning_curve",
    "rebalance",
    "singular_points",
    "singularity",
    "sparse_point",
    "spectrum",
    "subnetwork",
    "unlock",
    "verify",
    "verify_points",
    "verify_pruning",
]


def __getattr__(name: str) -> Any:
    """What needs PyTorch is imported when first used."""
    if name in _WITH_TORCH:
        return getattr(import_module(f"lawful.invariant.{_WITH_TORCH[name]}"), name)
    raise AttributeError(f"module 'lawful.invariant' has no attribute {name!r}")
