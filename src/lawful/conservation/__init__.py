"""What training conserves: counted, found, and proved (P1, and P4 Section 7)."""

from lawful.conservation.count import count_laws
from lawful.conservation.known.graph_laws import known_laws
from lawful.conservation.known.law import Law, LawFamily
from lawful.conservation.known.polynomial import PolynomialLaws, polynomial_laws
from lawful.conservation.law_count import LawCount
from lawful.network.dynamics import GradientFlow, HeavyBall, Metric

__all__ = [
    "GradientFlow",
    "HeavyBall",
    "Law",
    "LawCount",
    "LawFamily",
    "Metric",
    "PolynomialLaws",
    "count_laws",
    "known_laws",
    "polynomial_laws",
]
