"""The closed form for the number of laws of a layered network: proved for two layers, checked beyond."""

from __future__ import annotations

from lawful.network import Architecture


def predicted_laws(architecture: Architecture) -> int | None:
    """How many laws the formulas predict, or None where there is none (skips, linear networks with biases).

    ReLU networks: one law per hidden neuron. Linear ones: `Σ_i rk_i (2 n_i + 1 − rk_i) / 2` over the hidden layers,
    `rk_i = min(n_i, n_{i−1} + n_{i+1})`; P1 Proposition 4.2 is the case of one hidden layer, the sum is our conjecture
    for more (it has met no exception in the atlas of all small networks).

    >>> predicted_laws(Architecture.parse("6-5-6-4-3-6 linear")), predicted_laws(Architecture.parse("4-5-3 relu bias"))
    (52, 5)
    """
    widths = architecture.widths
    if architecture.skips:
        return None
    if architecture.slope != 1.0:
        return sum(widths[1:-1])
    if architecture.bias:
        return None
    ranks = [min(widths[i], widths[i - 1] + widths[i + 1]) for i in range(1, len(widths) - 1)]
    return sum(rank * (2 * width + 1 - rank) // 2 for rank, width in zip(ranks, widths[1:-1], strict=True))
