"""What training conserves: counted, found, and proved (P1, and P4 Section 7)."""

from lawful.laws.count import count_laws
from lawful.laws.known import known_laws
from lawful.laws.law import Law, LawFamily
from lawful.laws.law_count import LawCount
from lawful.laws.polynomial import PolynomialLaws, polynomial_laws
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
