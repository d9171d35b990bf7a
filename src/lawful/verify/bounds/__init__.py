"""Checkers of bounds on boxes: distances, properties, directions."""
