"""PyTorch modules and networks, both ways."""

from lawful.network.modules.convert import from_module, to_module

__all__ = ["from_module", "to_module"]
