"""Symmetries of any PyTorch module, read from its program, and the laws that follow from them.

`demands` collects what operators ask of a motion of the weights, `solver` finds the motions that are left, `spaces`
names them by the parameters that they move, `laws` has what training conserves for each. `check` holds every generator
against gradients of the module itself, `orbit` moves weights along the group.
"""

from lawful.symmetry.module_symmetries import symmetries
from lawful.symmetry.result import Space, StructuralLaws, Symmetries

__all__ = ["Space", "StructuralLaws", "Symmetries", "symmetries"]
