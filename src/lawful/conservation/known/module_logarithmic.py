"""Laws of modules beyond polynomials: `Σ c log|p| + h`, as `known.logarithmic` finds them for graphs."""

from __future__ import annotations

import numpy as np
import torch

from lawful.conservation.closure.program_brackets import free_fields
from lawful.conservation.known.logarithmic import LogarithmicLaws, search
from lawful.conservation.known.module_polynomial import ROWS
from lawful.conservation.module_count import places
from lawful.conservation.module_proof import program_of
from lawful.conservation.programs.module_function import probe
from lawful.program.core.jets import modulo
from lawful.types import Residues


def module_logarithmic_laws(
    module: torch.nn.Module,
    input_shape: tuple[int, ...] | None = None,
    degree: int = 1,
    *,
    loss: str = "full",
    mode: str = "train",
    classes_axis: int | None = None,
    seed: int = 0,
) -> LogarithmicLaws:
    """All such laws that hold on every piece of a module, whatever its functions are.

    >>> from lawful.conservation.module_wording import ModuleWording
    >>> class Detour(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.s, self.p, self.q = (torch.nn.Parameter(torch.ones(1)) for _ in range(3))
    ...     def forward(self, x):
    ...         return x * (self.s + self.p * self.q)
    >>> found = module_logarithmic_laws(Detour(), (1,))
    >>> [law.words(ModuleWording(found.places)) for law in found.laws]
    ['log|p[0] + q[0]| − s[0]', 'log|p[0] − q[0]| + s[0]']
    """
    case = probe(module, input_shape, None, loss, mode, classes_axis)
    program = program_of(case)

    def samples(prime: int, seed: int, count: int) -> tuple[Residues, Residues]:
        rng = np.random.default_rng((seed, prime))
        points = rng.integers(prime, size=(count, case.size))
        fields = []
        with modulo(prime):
            for start in range(0, count, ROWS):
                some = points[start : start + ROWS]
                drawn = free_fields(program, some, rng, case.classes, case.vocabulary or 0)
                fields.append(np.broadcast_to(drawn.gradient(np.arange(len(some)), {0: some})[0], some.shape))
        return points.T, np.concatenate(fields).T

    return LogarithmicLaws(None, degree, *search(samples, case.size, degree, seed), places(case))
