"""Which parameters are the same function (P4)."""

from lawful.fibers.cell import Cell
from lawful.fibers.cells import cells
from lawful.fibers.domain import Domain
from lawful.fibers.same import same
from lawful.fibers.shallow import NormalForm, minimal_network, normal_form
from lawful.fibers.stack import Stack
from lawful.fibers.symmetry import flip, translate
from lawful.fibers.verdict import Different, Equal, Undecided

__all__ = [
    "Cell", "Different", "Domain", "Equal", "NormalForm", "Stack", "Undecided", "cells", "flip", "minimal_network",
    "normal_form", "same", "translate",
]  # fmt: skip
