"""Claims of paper 3 about the network as it is discretised: its symmetries and its layer steps."""

from __future__ import annotations

import numpy as np
import torch

from lawful.papers.leaky import LeakyResNet, irregular
from reproduction.claim import Erratum, Outcome, Size, claim
from reproduction.claims.extremes import largest
from reproduction.mechanics import change_layers

DEPTH = 2.5


def _network(layers: int, seed: int, bias: bool = True) -> LeakyResNet:
    net = LeakyResNet.random(width=10, layers=layers, effective_depth=DEPTH, inputs=6, outputs=6, seed=seed, scale=1.0)
    if not bias:
        weights = net.weights.detach().clone()
        weights[:, :, -1] = 0
        net = net.replaced(weights)
    return net


def _inputs(seed: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(20, 6)))


@claim(
    "p3-integration-range",
    "Section 2.1",
    "stretching the path to [0, c] with weights W/c and leakage L/c keeps the activations and divides the cost by c",
    size=Size("8 networks", "50 networks"),
)
def integration_range(full: bool) -> Outcome:
    """Stretch random networks; the discrete symmetry is exact."""
    worst = cost = 0.0
    for seed in range(50 if full else 8):
        net, c = _network(12, seed), float(np.random.default_rng(seed).uniform(0.3, 4))
        stretched, _ = change_layers(net, c * net.steps.numpy(), DEPTH / c)
        before, after = net(_inputs(seed)).detach(), stretched(_inputs(seed)).detach()
        worst = largest(worst, float((after - before).abs().max() / before.abs().max()))
        cost = largest(cost, abs(float((stretched.parameter_cost() * c / net.parameter_cost()).detach()) - 1))
    return Outcome(worst < 1e-12 and cost < 1e-12, {"relative_change_of_outputs": worst, "error_of_cost_ratio": cost})


@claim(
    "p3-output-scaling",
    "Section 2.1",
    "without bias, raising the leakage by c scales the path by exp(-c p); exact for layers with a discrete factor, "
    "which tends to exp(-c)",
    size=Size("50 to 200 layers", "50 to 400 layers", "the continuous limit"),
)
def output_scaling(full: bool) -> Outcome:
    """Keep the weights, raise the leakage: the error must fall with the number of layers; the layer form is exact."""
    c, errors = 1.5, []
    counts = (50, 100, 200, 400) if full else (50, 100, 200)
    for layers in counts:
        net = _network(10, 0, bias=False)
        weights = np.repeat(net.weights.detach().numpy(), layers // 10, axis=0)
        fine = LeakyResNet(weights, DEPTH, into=net.into.detach(), out=net.out.detach())  # type: ignore[union-attr]
        leakier = fine.replaced(weights, effective_depth=DEPTH + c)
        before, after = fine(_inputs(1)).detach(), leakier(_inputs(1)).detach()
        errors.append(float((after - np.exp(-c) * before).norm() / after.norm()))
    exact, scale = change_layers(net, effective_depth=DEPTH + c)
    states = zip(scale, net.path(_inputs(2)), exact.path(_inputs(2)), strict=True)
    discrete = largest(float((b - s * a).detach().abs().max()) for s, a, b in states)
    order = float(np.log2(errors[-2] / errors[-1]))
    return Outcome(
        discrete < 1e-12 and 0.8 < order < 1.3,
        {"errors_by_layers": dict(zip(counts, errors, strict=True)), "order": order, "discrete_error": discrete},
    )


@claim(
    "p3-irregular-steps",
    "Section 4, irregular",
    "the irregular steps, once normalised, sum to 1 for every number of layers",
    erratum=Erratum(
        "ρ_ℓ = 1/L + (a/L)(1/4 - |ℓ/L - 1/2|) with Σ ρ_ℓ = 1",
        "the sum is 1 - O(1/L²) for odd L: divide by it",
        "arithmetic for L = 1 … 60",
    ),
    size=Size("L = 1 to 60", "L = 1 to 399", "every L"),
)
def irregular_steps(full: bool) -> Outcome:
    """Sum both rules."""
    ours = even = odd = 0.0
    for layers in range(1, 400 if full else 61):
        printed = sum(1 / layers + 0.9 / layers * (0.25 - abs(k / layers - 0.5)) for k in range(1, layers + 1))
        ours = largest(ours, abs(float(irregular(layers, 0.9).sum()) - 1))
        if layers % 2:
            odd = largest(odd, abs(printed - 1))
        else:
            even = largest(even, abs(printed - 1))
    return Outcome(
        ours < 1e-12,
        {"error": ours, "printed_even": even, "printed_odd": odd},
        printed_holds=largest(even, odd) < 1e-12,
    )


CLAIMS = (integration_range, output_scaling, irregular_steps)
