"""Of many activation patterns those whose gradients span what all of them span, each as often as it is needed.

A field that sums a few random patterns rarely meets the one that alone moves some weights. At almost all weights the
gradients of the others are combinations of those kept, with functions of the weights as factors, so that brackets reach
no further with them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from lawful.conservation.fields.gradient import MIXED, Gradients
from lawful.conservation.regions.near import Region
from lawful.exact import Dual, independent_rows, residues

SPANNING = 2**33  # label of the random point, inputs and output weights
FIRST = 32  # more patterns than dimensions are looked at first
ROUNDS = 64  # gradients of each pattern at most


def spanning(region: Region, gradients: Gradients, most: int) -> Region:
    """The region with a row for every dimension that a pattern adds; itself where data or few patterns are given.

    `most` is a dimension that gradients cannot exceed.

    >>> from lawful.exact import PRIME
    >>> from lawful.conservation.regions.near import near
    >>> from lawful.network import Architecture
    >>> dag = Architecture.parse("3-6-7-10-9 relu").initialise(seed=0).to_dag()
    >>> region = near(dag)
    >>> len(region.patterns), len(spanning(region, Gradients(dag, PRIME), 197).patterns)
    (330, 189)
    """
    if region.groups is not None or region.on_data is not None or len(region.patterns) <= MIXED:
        return region
    dag, prime = gradients.dag, gradients.prime
    point = residues(gradients.seed, (SPANNING,), [0], dag.parameters, prime)[0]
    gates = region.gates(prime).T
    order = np.random.default_rng(gradients.seed).permutation(len(region.patterns))
    basis, kept = np.zeros((0, dag.parameters), dtype=np.int64), order[:0]
    for number in range(ROUNDS):
        rows = order[: most + FIRST] if number == 0 else order
        sample = gradients.draw((SPANNING, number), rows)
        sample[dag.hidden] = gates[:, rows]
        state = Dual.constant(np.repeat(point[:, None], len(rows), axis=1), prime)
        every = np.concatenate([basis, gradients.field(state, sample).real.T])
        found = independent_rows(every, prime)
        if len(found) == len(basis):
            break
        basis, kept = every[found], np.append(kept, rows)[found]
        if len(basis) >= most:
            break
    return replace(region, patterns=region.patterns[kept], witnesses=region.witnesses[kept])
