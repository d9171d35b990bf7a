"""Leaky ResNets as mechanics: representation geodesics, energies and the bottleneck (paper 3)."""

from lawful.bottleneck.instruments import BlockReadings, read_blocks
from lawful.bottleneck.landscape import (
    FlatPath,
    IdentityMinimum,
    added_neuron_gain,
    flat_path,
    minimise_identity_cost,
)
from lawful.bottleneck.mechanics import (
    IdentityCost,
    Lagrangian,
    TheoremFour,
    hamiltonian,
    identity_cost,
    integrate,
    lagrangian,
    minimal_weights,
    motion,
    stable_norm,
    stable_rank,
    theorem_four,
)
from lawful.bottleneck.model import LeakyResNet, relayered
from lawful.bottleneck.path import Balance, Energies, Path, balance, energies, trace
from lawful.bottleneck.solver import Geodesic, Progress, deepened, recipe, solve, solve_depths
from lawful.bottleneck.steps import adapted, equidistant, irregular
from lawful.bottleneck.task import Task, parse_teacher, teacher

__all__ = [
    "Balance",
    "BlockReadings",
    "Energies",
    "FlatPath",
    "Geodesic",
    "IdentityCost",
    "IdentityMinimum",
    "Lagrangian",
    "LeakyResNet",
    "Path",
    "Progress",
    "Task",
    "TheoremFour",
    "adapted",
    "added_neuron_gain",
    "balance",
    "deepened",
    "energies",
    "equidistant",
    "flat_path",
    "hamiltonian",
    "identity_cost",
    "integrate",
    "irregular",
    "lagrangian",
    "minimal_weights",
    "minimise_identity_cost",
    "motion",
    "parse_teacher",
    "read_blocks",
    "recipe",
    "relayered",
    "solve",
    "solve_depths",
    "stable_norm",
    "stable_rank",
    "teacher",
    "theorem_four",
    "trace",
]
