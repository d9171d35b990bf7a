"""lawful: what training conserves, where it can go, how it moves, and which parameters are the same function."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lawful.errors import CertificateError, InvalidNetwork, LawfulError, Unsupported
    from lawful.fibers import same
    from lawful.flow.monitor import Monitor
    from lawful.invariant import components, rebalance
    from lawful.invariant.pruning import prune
    from lawful.laws import count_laws
    from lawful.network import Architecture, Dag, Mlp
    from lawful.network.files import read, write
    from lawful.network.modules import from_module, to_module
    from lawful.study.audit import audit

__version__ = "0.1.0"
_HOMES = {
    "lawful.errors": ("CertificateError", "InvalidNetwork", "LawfulError", "Unsupported"),
    "lawful.network": ("Architecture", "Dag", "Mlp"),
    "lawful.network.files": ("read", "write"),
    "lawful.network.modules": ("from_module", "to_module"),
    "lawful.laws": ("count_laws",),
    "lawful.invariant": ("components", "rebalance"),
    "lawful.invariant.pruning": ("prune",),
    "lawful.flow.monitor": ("Monitor",),
    "lawful.fibers": ("same",),
    "lawful.study.audit": ("audit",),
}
__all__ = [
    "Architecture", "CertificateError", "Dag", "InvalidNetwork", "LawfulError", "Mlp", "Monitor", "Unsupported",
    "audit", "components", "count_laws", "from_module", "prune", "read", "rebalance", "same", "to_module", "write",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: `import lawful` itself loads nothing heavy."""
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module 'lawful' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
