"""How training moves: gradient flow with its kinks, discrete optimisers beside it, monitors for real training."""

from lawful.flow.dynamics import GradientFlow, HeavyBall, Riemannian
from lawful.flow.integration import integrate
from lawful.flow.problem import problem
from lawful.flow.trajectory import Kink, Reason, Stop, Trajectory

__all__ = [
    "GradientFlow",
    "HeavyBall",
    "Kink",
    "Reason",
    "Riemannian",
    "Stop",
    "Trajectory",
    "integrate",
    "problem",
]
