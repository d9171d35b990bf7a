"""How training moves: gradient flow with its kinks, and discrete optimisers beside it.

Monitors for real training are in `lawful.flow.monitor` and `lawful.flow.lightning`, which load PyTorch.
"""

from lawful.flow.comparison import Comparison, compare
from lawful.flow.integration import integrate
from lawful.flow.optimizers import Optimizer
from lawful.flow.problem import problem
from lawful.flow.quantities import (
    Quantities,
    balance_projection,
    balances,
    known_laws,
    layer_matrix,
    linear_laws,
    named,
    singular_values,
)
from lawful.flow.trajectory import Kink, Reason, Stop, Trajectory
from lawful.network.dynamics import GradientFlow, HeavyBall, Riemannian

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
    "named",
    "problem",
    "singular_values",
]
