"""Checkpoints of one architecture: aligned, compared, told apart. Copies, children, strangers."""

from lawful.checkpoints.verbs import Aligned

__all__ = [
    "Aligned",
]
