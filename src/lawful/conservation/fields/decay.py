"""Gradient flow with weight decay: laws of the state (θ, t), which are those of gradient flow times e^(dλt).

Along `θ' = −∇L − λθ` a law h of gradient flow changes by `−λ⟨∇h, θ⟩`. If h is homogeneous of degree d that is −λdh, so
`h(t) = e^{−dλt} h(0)` whatever the data: balances decay at the rate 2λ, sums at λ. In the state (θ, t) this is a law,
`e^{dλt} h`. The fields `(∇f, 0)` and the drift `(−λθ, 1)` bound the number of all laws from above as usual. The drift
is one direction more than the brackets of gradient flow have, so there are never more laws than without decay.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lawful.conservation.fields.momentum_and_metric import Drifting
from lawful.conservation.known.law import LawFamily
from lawful.conservation.known.rank_one_subnetworks import Part
from lawful.exact import Dual, to_residues
from lawful.network import Dag
from lawful.network.dynamics import GradientFlow
from lawful.types import Residues


@dataclass(frozen=True, eq=False)
class DecayFields(Drifting):
    """Drift plus control: `a (−λθ, 1) + (∇f, 0)` with a random number a per sample."""

    flow: GradientFlow

    @property
    def size(self) -> int:
        """Weights and time."""
        return self.gradients.size + 1

    def field(self, state: Dual, sample: Residues) -> Dual:
        """The fields at (θ, t)."""
        drift = sample[-1]
        theta = state.parts[:, :-1]
        force = self.gradients.field(Dual(theta, self.prime), sample[:-1])
        rate = int(to_residues([self.flow.decay], self.prime)[0])
        moved = (force.parts - rate * (theta * drift % self.prime)) % self.prime
        return Dual(np.concatenate([moved, self.clock(state, drift)], axis=1), self.prime)


def homogeneous(laws: LawFamily) -> LawFamily:
    """The laws that decay at a rate of their own.

    >>> from lawful.conservation.known.graph_laws import known_laws
    >>> from lawful.network import Architecture
    >>> laws = known_laws(Architecture.parse("3-2-2 relu bias").to_dag())
    >>> [law.degree for law in homogeneous(laws)]
    [2, 2]
    """
    return LawFamily(tuple(law for law in laws if law.degree is not None), laws.parameters)


def even(dag: Dag, part: Part) -> bool:
    """Whether all paths through a part have the same length: then what it passes on is homogeneous in its weights."""
    lengths: dict[int, set[int]] = {node: {0} for node, _ in part.signals}
    inside = set(part.inner)
    for node in [*(node for node in np.concatenate(dag.layers).tolist() if node in inside), part.sink]:
        into = [int(dag.tails[edge]) for edge in part.edges if dag.heads[edge] == node]
        lengths[node] = {length + 1 for tail in into for length in lengths.get(tail, ())}
    return len(lengths[part.sink]) <= 1
