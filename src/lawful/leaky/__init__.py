"""Leaky ResNets as mechanics: representation geodesics, energies and the bottleneck (paper 3)."""

from lawful.leaky.hamilton import integrate
from lawful.leaky.history import BlockHistory, BlockWatch, block_lightning_callback, block_trainer_callback
from lawful.leaky.instruments import BlockReading, BlockReadings, read_blocks
from lawful.leaky.landscape import (
    FlatPath,
    IdentityMinimum,
    added_neuron_gain,
    flat_path,
    minimise_identity_cost,
)
from lawful.leaky.learned import solve_with_maps
from lawful.leaky.mechanics import (
    IdentityCost,
    Lagrangian,
    TheoremFour,
    hamiltonian,
    identity_cost,
    lagrangian,
    minimal_weights,
    motion,
    stable_norm,
    stable_rank,
    theorem_four,
)
from lawful.leaky.model import LeakyResNet, relayered
from lawful.leaky.path import Energies, EnergyBalance, RepresentationPath, balance, energies, trace
from lawful.leaky.recipe import recipe
from lawful.leaky.solver import Geodesic, SolverProgress, solve, solve_depths
from lawful.leaky.starts import deepened, regridded
from lawful.leaky.steps import adapted, equidistant, irregular
from lawful.leaky.task import TeacherTask, parse_teacher, teacher

__all__ = [
    "BlockHistory",
    "BlockReading",
    "BlockReadings",
    "BlockWatch",
    "Energies",
    "EnergyBalance",
    "FlatPath",
    "Geodesic",
    "IdentityCost",
    "IdentityMinimum",
    "Lagrangian",
    "LeakyResNet",
    "RepresentationPath",
    "SolverProgress",
    "TeacherTask",
    "TheoremFour",
    "adapted",
    "added_neuron_gain",
    "balance",
    "block_lightning_callback",
    "block_trainer_callback",
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
    "regridded",
    "relayered",
    "solve",
    "solve_depths",
    "solve_with_maps",
    "stable_norm",
    "stable_rank",
    "teacher",
    "theorem_four",
    "trace",
]
