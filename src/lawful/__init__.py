"""lawful: what training conserves, where it can go, how it moves, and which parameters are the same function.

Every subcommand is a function of that name here: `lawful.laws("3-4-2 relu")`. It takes whatever
`lawful.open` takes and returns a result with `to_dict()`, `to_dataframe()` and `plot()`, which a notebook shows.
"""

import sys
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from lawful.version import __version__ as __version__

if TYPE_CHECKING:
    from lawful.api.bounds import check, distance
    from lawful.api.checkpoints.alignment import align, merge
    from lawful.api.checkpoints.diff import diff
    from lawful.api.checkpoints.index import find
    from lawful.api.conservation import laws, symmetries
    from lawful.api.demo import demo
    from lawful.api.explore import explore
    from lawful.api.fibers import canonical, fiber, fingerprint, identifiable, regions
    from lawful.api.invariant_set import components, path, rebalance, singular
    from lawful.api.networks import audit, convert, show
    from lawful.api.prune import prune
    from lawful.api.same import same
    from lawful.api.sweeps import run_sweep as sweep
    from lawful.api.training.flows import compare, drift, flow
    from lawful.api.training.leaky_resnets import bottleneck, leaky
    from lawful.api.training.truncation import separate, truncate, truncation_flow
    from lawful.cli.bounds import run_instances as vnncomp
    from lawful.conservation import count_laws
    from lawful.errors import CertificateError, InvalidNetwork, LawfulError, NotACertificate, Unsupported
    from lawful.network import Architecture, Dag, Mlp
    from lawful.network.reading import Reading
    from lawful.sources.files import read, write
    from lawful.sources.modules.convert import from_module, to_module
    from lawful.sources.opening import open
    from lawful.training.monitor.monitor import Monitor
    from lawful.verify import verify
    from reproduction.run import reproduce

_HOMES = {  # module -> its public names beside the subcommands, as `theirs:ours` where ours is the subcommand's
    "lawful.errors": "CertificateError InvalidNetwork LawfulError NotACertificate Unsupported",
    "lawful.network": "Architecture Dag Mlp",
    "lawful.sources.files": "read write",
    "lawful.sources.modules.convert": "from_module to_module",
    "lawful.sources.opening": "open",
    "lawful.network.reading": "Reading",
    "lawful.training.monitor.monitor": "Monitor",
    "lawful.conservation": "count_laws",
    "reproduction.run": "reproduce",
    "lawful.cli.bounds": "run_instances:vnncomp",
    "lawful.verify": "verify",
}
# What most people need; the other subcommands are functions here too, all else is in the packages.
__all__ = [
    "Architecture", "Dag", "LawfulError", "Mlp", "Monitor", "audit", "canonical", "compare", "components",
    "convert", "diff", "distance", "explore", "fiber", "fingerprint", "flow", "identifiable", "laws", "open", "path",
    "prune", "rebalance", "regions", "same", "show", "singular", "symmetries", "to_module", "verify", "write",
]  # fmt: skip


@cache
def _places() -> dict[str, tuple[str, str]]:
    """Public name -> its module, and its name there."""
    from lawful.api import HOMES

    homes = HOMES | _HOMES
    return {name.rpartition(":")[2]: (home, name.partition(":")[0]) for home in homes for name in homes[home].split()}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: `import lawful` itself loads nothing heavy."""
    if name == "verify":  # the kernel works where no other package is installed
        from lawful.verify import verify

        return verify
    if name not in _places():
        raise AttributeError(f"module 'lawful' has no attribute {name!r}")
    home, theirs = _places()[name]
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


class _Verify(ModuleType):
    """The kernel is a package of its own, `python -m lawful.verify`, and `lawful.verify(certificate)` a function.

    It is the one name that means both; every other package has a name that no function has.
    """

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return __getattr__("verify")(*arguments, **options)


class _Package(ModuleType):
    """Python binds a package to its name when it is imported: there results get their views."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "verify":
            value.__class__ = _Verify
        if name == "result":
            value.Shown.views = staticmethod(_views)
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
