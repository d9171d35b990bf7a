"""How close a network is to losing neurons: the rank of J, its nuclear norm, and steps that get there (P0)."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lawful.invariant_set.singular.existence import SingularPoints, exact_balance, singular_points
from lawful.invariant_set.singular.spectrum import (
    Singularity,
    Spectrum,
    largest_score,
    product_score,
    pruning_curve,
    singularity,
    subnetwork,
)

if TYPE_CHECKING:
    from lawful.invariant_set.singular.regulariser import (
        NuclearPenalty,
        edges_of,
        group_penalty,
        l1_penalty,
        l2_penalty,
    )

_WITH_TORCH = {
    "NuclearPenalty": "regulariser",
    "edges_of": "regulariser",
    "group_penalty": "regulariser",
    "l1_penalty": "regulariser",
    "l2_penalty": "regulariser",
}

__all__ = [
    "NuclearPenalty", "SingularPoints", "Singularity", "Spectrum", "edges_of", "exact_balance",
    "group_penalty", "l1_penalty", "l2_penalty", "largest_score", "product_score", "pruning_curve", "singular_points",
    "singularity", "subnetwork",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """What needs PyTorch is imported when first used."""
    if name in _WITH_TORCH:
        return getattr(import_module(f"lawful.invariant_set.singular.{_WITH_TORCH[name]}"), name)
    raise AttributeError(f"module 'lawful.invariant_set.singular' has no attribute {name!r}")
