"""Certified bounds of piecewise linear networks on boxes: relaxations, splitting, and what they decide."""
