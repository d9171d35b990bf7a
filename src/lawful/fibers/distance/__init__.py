"""How far apart two networks are on a box (certified bounds from both sides)."""

from lawful.fibers.distance.distance import bound_of_difference, distance
from lawful.fibers.distance.result import Distance, OutputDistance

__all__ = ["Distance", "OutputDistance", "bound_of_difference", "distance"]
