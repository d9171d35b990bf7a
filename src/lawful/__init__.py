"""lawful: what training conserves, where it can go, how it moves, and which parameters are the same function."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lawful.errors import CertificateError, InvalidNetwork, LawfulError, Unsupported
    from lawful.flow.monitor import Monitor
    from lawful.network import Architecture, Dag, Mlp

__version__ = "0.1.0"
_HOMES = {
    "lawful.errors": ("CertificateError", "InvalidNetwork", "LawfulError", "Unsupported"),
    "lawful.flow.monitor": ("Monitor",),
    "lawful.network": ("Architecture", "Dag", "Mlp"),
}
__all__ = ["Architecture", "CertificateError", "Dag", "InvalidNetwork", "LawfulError", "Mlp", "Monitor", "Unsupported"]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: `import lawful` itself loads nothing heavy."""
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module 'lawful' has no attribute {name!r}")
