"""A thousand calls of one function, on one machine or a cluster, nothing lost."""

from lawful.api.sweeps.engine import run_sweep
from lawful.api.sweeps.jobs import JOBS
from lawful.api.sweeps.plan import Plan, Task, plan_from, read_plan
from lawful.api.sweeps.store import Finished, Progress, Store
from lawful.api.sweeps.table import write_tables

__all__ = [
    "JOBS",
    "Finished",
    "Plan",
    "Progress",
    "Store",
    "Task",
    "plan_from",
    "read_plan",
    "run_sweep",
    "write_tables",
]
