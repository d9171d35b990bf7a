"""A thousand calls of one function, on one machine or a cluster, nothing lost."""

from lawful.study.sweep.engine import run_sweep
from lawful.study.sweep.jobs import JOBS
from lawful.study.sweep.plan import Plan, Task, plan_from, read_plan
from lawful.study.sweep.store import Finished, Progress, Store
from lawful.study.sweep.table import write_tables

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
