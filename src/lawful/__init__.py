"""lawful: what training conserves, where it can go, how it moves, and which parameters are the same function.

Every verb of the command line is a function of that name here: `lawful.laws("3-4-2 relu")`. It takes whatever
`lawful.open` takes and returns a result with `to_dict()`, `to_dataframe()` and `plot()`, which a notebook shows.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from lawful.version import __version__ as __version__

if TYPE_CHECKING:
    from lawful.checkpoints import align
    from lawful.components import components
    from lawful.errors import CertificateError, InvalidNetwork, LawfulError, NotACertificate, Unsupported
    from lawful.flow.monitor import Monitor
    from lawful.laws import count_laws
    from lawful.network import Architecture, Dag, Mlp
    from lawful.network.formats.files import read, write
    from lawful.network.modules.convert import from_module, to_module
    from lawful.network.opening import open
    from lawful.network.reading import Reading
    from lawful.study.checkpoint_index import find
    from lawful.study.checkpoint_merge import merge
    from lawful.study.demo import demo
    from lawful.study.diff import diff
    from lawful.study.explore import explore
    from lawful.study.prune import prune
    from lawful.study.reproduce import reproduce
    from lawful.study.same import same
    from lawful.study.singularity import singular
    from lawful.study.training_verbs import bottleneck, compare, drift, flow, leaky, separate, truncate, truncation_flow
    from lawful.study.verbs import (
        audit,
        canonical,
        check,
        convert,
        distance,
        fiber,
        fingerprint,
        identifiable,
        laws,
        path,
        rebalance,
        regions,
        show,
        sweep,
        symmetries,
    )
    from lawful.verify import verify

_HOMES = {  # module -> its public names, as `theirs:ours` where ours is the verb's
    "lawful.errors": "CertificateError InvalidNetwork LawfulError NotACertificate Unsupported",
    "lawful.network": "Architecture Dag Mlp",
    "lawful.network.formats.files": "read write",
    "lawful.network.modules.convert": "from_module to_module",
    "lawful.network.opening": "open",
    "lawful.network.reading": "Reading",
    "lawful.flow.monitor": "Monitor",
    "lawful.laws": "count_laws",
    "lawful.components.locks": "components",
    "lawful.study.prune": "prune",
    "lawful.checkpoints": "align",
    "lawful.study.checkpoint_index": "find",
    "lawful.study.checkpoint_merge": "merge",
    "lawful.study.demo": "demo",
    "lawful.study.diff": "diff",
    "lawful.study.explore": "explore",
    "lawful.study.reproduce": "reproduce",
    "lawful.study.same": "same",
    "lawful.study.singularity": "singular",
    "lawful.study.training_verbs": "bottleneck compare drift flow leaky separate truncate truncation_flow",
    "lawful.study.verbs": "audit canonical check convert distance fiber fingerprint identifiable laws path rebalance "
    "regions show sweep symmetries",
    "lawful.verify": "verify",
}
_PLACES = {name.rpartition(":")[2]: (home, name.partition(":")[0]) for home in _HOMES for name in _HOMES[home].split()}
# What most people need; the other verbs are functions here too, all else is in the rooms.
__all__ = [
    "Architecture", "Dag", "LawfulError", "Mlp", "Monitor", "audit", "canonical", "compare", "components",
    "convert", "diff", "distance", "explore", "fiber", "fingerprint", "flow", "identifiable", "laws", "open", "path",
    "prune", "rebalance", "regions", "same", "show", "singular", "symmetries", "to_module", "verify", "write",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: `import lawful` itself loads nothing heavy."""
    if name not in _PLACES:
        raise AttributeError(f"module 'lawful' has no attribute {name!r}")
    home, theirs = _PLACES[name]
    try:
        return getattr(import_module(home), theirs)
    except ModuleNotFoundError as error:
        from lawful.extras import missing

        raise missing(error.name or "") or error from error


def __dir__() -> list[str]:
    return __all__


def _views() -> ModuleType:
    from lawful.report import views

    return views


class _Room(ModuleType):
    """A room that has the name of a verb can be called like the verb: `lawful.components(network)`."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return __getattr__(self.__name__.removeprefix("lawful."))(*arguments, **options)


class _Package(ModuleType):
    """Python binds a room to its name when it is imported: there it becomes callable, and results get their views."""

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, ModuleType) and name in _PLACES:
            value.__class__ = _Room
        if name == "shown":
            value.Shown.views = staticmethod(_views)
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
