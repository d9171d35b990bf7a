"""Checkpoints of one architecture: aligned, compared, told apart. Copies, children, strangers."""

from lawful.checkpoints.verbs import Aligned, align, same

__all__ = ["Aligned", "align", "same"]
