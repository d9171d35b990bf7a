"""How training moves: gradient flow with its kinks, and discrete optimisers beside it.

Monitors for real training are in `lawful.training.monitor`, which loads PyTorch.
"""

from lawful.network.dynamics import GradientFlow, HeavyBall, Riemannian
from lawful.training.comparison import Comparison, Optimizer, compare
from lawful.training.integration.integrate import integrate
from lawful.training.integration.trajectory import Kink, Reason, Stop, Trajectory
from lawful.training.problems.problem import problem
from lawful.training.quantities import (
    Quantities,
    balance_projection,
    balances,
    known_laws,
    layer_matrix,
    linear_laws,
    quantities_of,
    singular_values,
)

__all__ = [
    "Comparison",
    "GradientFlow",
    "HeavyBall",
    "Kink",
    "Optimizer",
    "Quantities",
    "Reason",
    "Riemannian",
    "Stop",
    "Trajectory",
    "balance_projection",
    "balances",
    "compare",
    "integrate",
    "known_laws",
    "layer_matrix",
    "linear_laws",
    "problem",
    "quantities_of",
    "singular_values",
]
