"""Leaky ResNets as mechanics: representation geodesics, energies and the bottleneck (paper 3)."""

from lawful.papers.leaky.landscape import (
    FlatPath,
    IdentityMinimum,
    added_neuron_gain,
    flat_path,
    minimise_identity_cost,
)
from lawful.papers.leaky.mechanics import (
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
from lawful.papers.leaky.model import (
    LeakyResNet,
    TeacherTask,
    adapt_steps,
    change_layers,
    equidistant,
    irregular,
    parse_teacher,
    teacher,
)
from lawful.papers.leaky.path import Energies, EnergyBalance, RepresentationPath, balance, energies, trace
from lawful.papers.leaky.solver.geodesic import Geodesic, SolverProgress, change_grid, deepen, solve, solve_depths
from lawful.papers.leaky.solver.learned_maps import solve_with_maps
from lawful.papers.leaky.solver.paper_recipe import recipe
from lawful.papers.leaky.streams.history import (
    BlockHistory,
    BlockWatch,
    block_lightning_callback,
    block_trainer_callback,
)
from lawful.papers.leaky.streams.instruments import BlockReading, BlockReadings, read_blocks

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
    "adapt_steps",
    "added_neuron_gain",
    "balance",
    "block_lightning_callback",
    "block_trainer_callback",
    "change_grid",
    "change_layers",
    "deepen",
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
    "solve",
    "solve_depths",
    "solve_with_maps",
    "stable_norm",
    "stable_rank",
    "teacher",
    "theorem_four",
    "trace",
]
