"""Which parameters are the same function (P4)."""

from lawful.fibers.layers import Stack
from lawful.fibers.regions.cell import Cell
from lawful.fibers.regions.cells import cells
from lawful.fibers.regions.domain import Domain
from lawful.fibers.reparametrisations import flip, translate
from lawful.fibers.shallow.normal_form import NormalForm, minimal_network, normal_form
from lawful.fibers.verdict import Different, Equal, Undecided

__all__ = [
    "Cell", "Different", "Domain", "Equal", "NormalForm", "Stack", "Undecided", "cells", "flip", "minimal_network",
    "normal_form", "translate",
]  # fmt: skip
