"""Leaky ResNets as mechanics: representation geodesics, energies and the bottleneck (paper 3)."""

from lawful.papers.leaky.model import (
    LeakyResNet,
    TeacherTask,
    adapt_steps,
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
    "Geodesic",
    "LeakyResNet",
    "RepresentationPath",
    "SolverProgress",
    "TeacherTask",
    "adapt_steps",
    "balance",
    "block_lightning_callback",
    "block_trainer_callback",
    "change_grid",
    "deepen",
    "energies",
    "equidistant",
    "irregular",
    "parse_teacher",
    "read_blocks",
    "recipe",
    "solve",
    "solve_depths",
    "solve_with_maps",
    "teacher",
    "trace",
]
