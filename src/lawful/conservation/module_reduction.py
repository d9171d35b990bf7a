"""Gradient flow of a module seen from z = φ(θ) alone, where its pieces are polynomials (P1 Proposition 3.8).

φ need not be written down: the fields span what its gradients span. Without choices g_θ(x) is linear in φ(θ), so the
outputs at enough inputs are coordinates of φ, and M is their tangent kernel.
"""

from __future__ import annotations

from math import ceil

import numpy as np
import torch
from torch.func import jacrev

from lawful.conservation.closure.float_rank import rank_with_gap
from lawful.conservation.closure.polynomial_pieces import is_polynomial
from lawful.conservation.closure.program_brackets import free_fields
from lawful.conservation.factorisation import MOST_COORDINATES, NetworkReduction
from lawful.conservation.module_proof import program_of
from lawful.conservation.programs.module_function import Probe, probe
from lawful.errors import Unsupported
from lawful.exact import PRIME, rank
from lawful.sources.modules.functional_call import call_with

SPARE = 8


def reduce_module(
    module: torch.nn.Module, input_shape: tuple[int, ...] | None = None, *, mode: str = "train", seed: int = 0
) -> NetworkReduction:
    """The Riemannian reduction of a module at its own weights, the dimensions exact modulo a prime.

    >>> _ = torch.manual_seed(0)
    >>> shared = torch.nn.Sequential(torch.nn.Conv1d(1, 1, 2, bias=False), torch.nn.Conv1d(1, 1, 1, bias=False))
    >>> found = reduce_module(shared, (1, 3))
    >>> found.involutive, found.dimension, found.rank
    (True, 2, 2)
    """
    case = probe(module, input_shape, None, "full", mode)
    if case.random:
        raise Unsupported(f"--reduction is of one flow, and {', '.join(case.random)} draws another at every step")
    program = program_of(case)
    if not is_polynomial(program):
        raise Unsupported("--reduction is for modules whose φ is a polynomial: this one has other functions or divides")
    rng = np.random.default_rng(seed)
    point = rng.integers(PRIME, size=case.size)
    count = case.size + SPARE
    fields = free_fields(program, np.broadcast_to(point, (2 * count, case.size)), rng, 0, case.vocabulary or 0)
    first = fields.brackets(np.arange(count)[:, None])
    second = fields.brackets(np.stack([np.arange(count), count + np.arange(count)], axis=1))
    dimension, both = rank(first, PRIME), rank(np.concatenate([first, second]), PRIME)
    theta = torch.cat([value.detach().flatten() for value in _own(case)])
    start = theta.numpy()
    if dimension != both:
        reason = f"the fields span {dimension} directions, with brackets {both}: z does not determine its own velocity"
        return NetworkReduction(dimension, both, start, reason=reason)
    if any(step.kind == "choose" for step in program.steps):
        why = "φ of a module with choices (ReLU, max) is not listed"
        return NetworkReduction(dimension, both, start, reason=why)
    outputs = int(np.prod(case.output_shape, dtype=int))
    samples = ceil(dimension / outputs) + 1
    if samples * outputs > MOST_COORDINATES:
        why = f"z has more than {MOST_COORDINATES} coordinates"
        return NetworkReduction(dimension, both, start, reason=why)
    inputs = case.draw(seed, samples)[0][:, 0]

    def image(weights: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = call_with(case.module, case.unflatten(weights), (inputs,))
        return found.reshape(-1)

    slopes = jacrev(image)(theta).detach().numpy()
    metric = slopes @ slopes.T
    names = tuple(f"g(x{sample})[{output}]" for sample in range(samples) for output in range(outputs))
    z = image(theta).detach().numpy()
    return NetworkReduction(dimension, both, start, z, names, metric, rank_with_gap(metric).rank)


def _own(case: Probe) -> list[torch.Tensor]:
    own = dict(case.module.named_parameters())
    return [own[name] for name in case.names]
