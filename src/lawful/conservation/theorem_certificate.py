"""A count that rests on a theorem, with the hypotheses that `lawful verify` checks again."""

from __future__ import annotations

from typing import Any

from lawful.conservation.law_count import LawCount
from lawful.errors import Unsupported
from lawful.network import Architecture
from lawful.network.assemble import as_mlp
from lawful.network.digest import digest


def theorem_certificate(count: LawCount) -> dict[str, Any]:
    """Widths, biases and slope of one hidden layer.

    >>> from lawful.conservation import count_laws
    >>> proof = theorem_certificate(count_laws("60-90-10 relu bias"))
    >>> proof["widths"], proof["biases"], proof["laws"]
    ([60, 90, 10], [True, True], 90)
    """
    if count.architecture is not None:
        source = Architecture.parse(count.architecture)
        widths, biases, slope = source.widths, [source.bias] * 2, source.slope
        graph = source.to_dag()
    else:
        mlp = None if count.dag is None else as_mlp(count.dag)
        if mlp is None or len(mlp.widths) != 3:
            raise Unsupported("no certificate: the network is too large to be written down")
        widths, biases, slope = mlp.widths, [bias is not None for bias in mlp.biases], mlp.slopes[0]
        graph = mlp.to_dag()
    return {
        "kind": "laws-by-theorem",
        "version": 1,
        "about": [digest(graph, weights=False)],
        "widths": list(widths),
        "biases": biases,
        "slope": slope,
        "laws": count.laws,
    }
