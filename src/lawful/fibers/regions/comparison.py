"""Compare two networks region by region, in exact arithmetic: feasible for small ones."""

from __future__ import annotations

import numpy as np

from lawful.fibers.counterexample import Pair
from lawful.fibers.layers import floating
from lawful.fibers.reduce import Reduced
from lawful.fibers.regions import comparison_proof
from lawful.fibers.regions.cell import OutOfTime
from lawful.fibers.verdict import Different, Equal, EqualityWitness

REPLAYED = "the outputs differ at this input, replayed in exact arithmetic"


def compare(pair: Pair, first: Reduced, second: Reduced, deadline: float) -> Equal | Different | str:
    """Walk all regions that the two networks cut together; or say why there is no answer."""
    try:
        proof = comparison_proof.prove_by_regions(first.stack, second.stack, pair.domain, deadline)
    except OutOfTime:
        return "not all regions were compared before the time limit"
    except comparison_proof.Disagree as error:
        if not pair.tolerance:
            found = pair.replay_exactly(error.point)
            return Different("region search", REPLAYED, found, pair.domain, pair.tolerance)
        near = floating(error.point)
        nudges = 1e-6 * np.random.default_rng(0).normal(size=(8, len(near))) * pair.scales
        for point in (near, *np.clip(near + nudges, pair.domain.low, pair.domain.high)):
            if shown := pair.replay(point):
                return Different("region search", REPLAYED, shown, pair.domain, pair.tolerance)
        return "the affine maps of a region differ, but no input in it shows more than rounding explains"
    witness = EqualityWitness(
        first.steps, second.steps, "regions", 0.0, regions=proof.regions, decisions=tuple(proof.decisions)
    )
    return Equal("region search in exact arithmetic", witness, pair.domain, pair.tolerance)
