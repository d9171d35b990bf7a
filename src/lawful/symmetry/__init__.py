"""Symmetries of any PyTorch module, read from its exported graph, and the laws that follow from them."""

from lawful.symmetry.read import symmetries
from lawful.symmetry.result import Space, StructuralLaws, Symmetries

__all__ = ["Space", "StructuralLaws", "Symmetries", "symmetries"]
