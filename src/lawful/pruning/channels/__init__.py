"""Channels of modules and files: which are redundant, and what is left without them."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lawful.pruning.channels.prune import ChannelPruning, prune_channels

__all__ = ["ChannelPruning", "prune_channels"]


def __getattr__(name: str) -> Any:
    """Imported when first used: the parts of this package are imported by what it is made of."""
    if name in __all__:
        from lawful.pruning.channels import prune

        return getattr(prune, name)
    raise AttributeError(f"module 'lawful.pruning.channels' has no attribute {name!r}")
