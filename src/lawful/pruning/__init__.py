"""What can be removed from a network, with a bound on what that changes (P0 and beyond).

In comes a graph of scalar neurons (`neurons/`) or the program of a module or ONNX file (`channels/`). Out comes the
smaller network with a certificate for every step; `removable/` decides single neurons, `job/` prunes to a size or
within a tolerance, and `trainer` trains towards networks that can be pruned.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lawful.pruning.neurons.measure import SizePoint, size_curve
from lawful.pruning.neurons.prune import Pruning, Stage

if TYPE_CHECKING:
    from lawful.pruning.channels import prune_channels
    from lawful.pruning.trainer import SingularTrainer

_WITH_TORCH = {"SingularTrainer": "trainer", "prune_channels": "channels"}
__all__ = [
    "Pruning", "SingularTrainer", "SizePoint", "Stage", "prune_channels", "size_curve",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """What needs PyTorch is imported when first used."""
    if name in _WITH_TORCH:
        return getattr(import_module(f"lawful.pruning.{_WITH_TORCH[name]}"), name)
    raise AttributeError(f"module 'lawful.pruning' has no attribute {name!r}")
