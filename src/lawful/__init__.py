"""lawful: what training conserves, where it can go, how it moves, and which parameters are the same function."""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lawful.checkpoints import align
    from lawful.components import components, rebalance
    from lawful.errors import CertificateError, InvalidNetwork, LawfulError, NotACertificate, Unsupported
    from lawful.fibers import same
    from lawful.fibers.distance import distance
    from lawful.flow.monitor import Monitor
    from lawful.laws import count_laws
    from lawful.network import Architecture, Dag, Mlp
    from lawful.network.formats.files import read, write
    from lawful.network.modules.convert import from_module, to_module
    from lawful.network.opening import open
    from lawful.network.reading import Reading
    from lawful.pruning import prune
    from lawful.study.audit import audit
    from lawful.symmetry import symmetries
    from lawful.verify import verify

__version__ = "0.2.0"
_HOMES = {
    "lawful.errors": ("CertificateError", "InvalidNetwork", "LawfulError", "NotACertificate", "Unsupported"),
    "lawful.network": ("Architecture", "Dag", "Mlp"),
    "lawful.network.formats.files": ("read", "write"),
    "lawful.network.modules.convert": ("from_module", "to_module"),
    "lawful.network.opening": ("open",),
    "lawful.network.reading": ("Reading",),
    "lawful.laws": ("count_laws",),
    "lawful.components.locks": ("components",),
    "lawful.components.rebalance": ("rebalance",),
    "lawful.pruning.prune": ("prune",),
    "lawful.flow.monitor": ("Monitor",),
    "lawful.fibers": ("same",),
    "lawful.checkpoints": ("align",),
    "lawful.fibers.distance": ("distance",),
    "lawful.study.audit": ("audit",),
    "lawful.symmetry": ("symmetries",),
    "lawful.verify": ("verify",),
}
__all__ = [
    "Architecture", "CertificateError", "Dag", "InvalidNetwork", "LawfulError", "Mlp", "Monitor", "NotACertificate",
    "Reading", "Unsupported", "align", "audit", "components", "count_laws", "distance", "from_module", "open", "prune",
    "read", "rebalance", "same", "symmetries", "to_module", "verify", "write",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: `import lawful` itself loads nothing heavy."""
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module 'lawful' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__


class _Room(ModuleType):
    """A room that has the name of a verb can be called like the verb: `lawful.components(network)`."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return __getattr__(self.__name__.removeprefix("lawful."))(*arguments, **options)


class _Package(ModuleType):
    """Python binds a room to its name when it is imported: there it becomes callable."""

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, ModuleType) and name in __all__:
            value.__class__ = _Room
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
