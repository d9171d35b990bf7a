"""One function a subcommand: each takes whatever `lawful.open` takes and returns a frozen result.

In: networks, checkpoints and questions as a user says them. Out: results that `report` shows and `cli` prints.
Parameters that have a `Help` (`inputs.py`) are options of the subcommand too. These modules load nothing heavy
until a function is called, because the command line reads their signatures when it starts.
"""

from importlib import import_module
from typing import Any

HOMES = {  # module -> its public functions, as `theirs:ours` where ours is the subcommand's
    "lawful.api.prune": "prune",
    "lawful.api.checkpoints.index": "find",
    "lawful.api.checkpoints.alignment": "align merge",
    "lawful.api.demo": "demo",
    "lawful.api.checkpoints.diff": "diff",
    "lawful.api.explore": "explore",
    "lawful.api.same": "same",
    "lawful.api.training.flows": "compare drift flow",
    "lawful.api.training.truncation": "separate truncate truncation_flow",
    "lawful.api.training.leaky_resnets": "bottleneck leaky",
    "lawful.api.bounds": "check distance",
    "lawful.api.conservation": "laws symmetries",
    "lawful.api.fibers": "canonical fiber fingerprint identifiable regions",
    "lawful.api.invariant_set": "components path rebalance singular",
    "lawful.api.networks": "audit convert show",
    "lawful.api.sweeps": "run_sweep:sweep",
}
PLACES = {name.rpartition(":")[2]: (home, name.partition(":")[0]) for home in HOMES for name in HOMES[home].split()}


def load(name: str) -> Any:
    """The public function of this name."""
    home, theirs = PLACES[name]
    return getattr(import_module(home), theirs)
