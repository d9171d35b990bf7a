"""What training conserves: counted, found, and proved (P1, and P4 Section 7)."""

from lawful.laws.count import LawCount, count_laws
from lawful.laws.flow import GradientFlow, HeavyBall
from lawful.laws.known import known_laws
from lawful.laws.law import Law, LawFamily
from lawful.laws.polynomial import PolynomialLaws, polynomial_laws
from lawful.network.metric import Metric

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
