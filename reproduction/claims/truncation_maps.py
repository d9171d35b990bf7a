"""Claims of P2 about truncation maps at rest: what they fix, how they compose (Sections 2, 3.1 and 6)."""

from __future__ import annotations

import numpy as np

from lawful.network import Mlp
from lawful.papers.truncation.cumulative import Chain, TruncationMap
from lawful.papers.truncation.flow.field import Maps, truncate
from lawful.papers.truncation.flow.motion import compose_maps
from reproduction.claim import Erratum, Outcome, Size, claim
from reproduction.claims.extremes import largest, smallest
from reproduction.claims.truncation import rotations


@claim(
    "p2-chain",
    "(2.9), (2.16)-(2.18)",
    "a ReLU network with invertible square layers is a chain of truncation maps followed by an affine map",
    erratum=Erratum(
        "x^(l) = W^(l) τ^(l,1)(x), and x^(L+1) = W^(L+1) τ^(L,1)(x)",
        "x^(l) = W^(l) τ^(l,1)(x) + b^(l), likewise in the output layer; with widths that never grow it also holds",
        "direct evaluation of random networks",
    ),
    size=Size("9 networks, widths to 8", "60 networks, widths to 8", "every width"),
)
def chain(full: bool) -> Outcome:
    """Evaluate networks and chains; also with shrinking layers, and without the bias as printed."""
    rng = np.random.default_rng(0)
    worst, printed = 0.0, np.inf
    for widths in [(4, 4, 4, 4), (6, 5, 3, 2), (8, 8, 8, 8, 8, 3)] * (20 if full else 3):
        shapes = list(zip(widths[1:], widths, strict=False))
        network = Mlp([rng.normal(size=shape) for shape in shapes], [rng.normal(size=shape[0]) for shape in shapes])
        points = rng.normal(size=(200, widths[0]))
        read = Chain.of(network)
        output = network.evaluate(points)
        worst = largest(worst, float(np.abs(read(points) - output).max() / np.abs(output).max()))
        without = read.images(points)[-1] @ read.weight.T
        printed = smallest(printed, float(np.abs(without - output).max() / np.abs(output).max()))
    return Outcome(worst < 1e-8, {"relative_residual": worst, "printed_residual": printed}, printed < 1e-6)


@claim(
    "p2-fixed-points",
    "(2.14), (2.15)",
    "τ is the identity exactly on the positive sector, and −β on the negative",
    size=Size("Q = 2 to 6", "Q = 2 to 11", "every Q"),
)
def fixed_points(full: bool) -> Outcome:
    """Sample sectors of random maps; a mixed sector must move its points and must not collapse them."""
    rng = np.random.default_rng(0)
    identity = point = 0.0
    moved = np.inf
    for size in range(2, 12 if full else 7):
        weight = rng.normal(size=(size, size))
        map_ = TruncationMap(weight, rng.normal(size=size))
        signs = rng.exponential(size=(50, size)) + 0.1
        back = np.linalg.inv(weight)
        plus, minus = (signs - map_.bias) @ back.T, (-signs - map_.bias) @ back.T
        signs[:, 0] *= -1
        mixed = (signs - map_.bias) @ back.T
        identity = largest(identity, float(np.abs(map_(plus) - plus).max()))
        point = largest(point, float(np.abs(map_(minus) + map_.shift).max()))
        moved = smallest(moved, float(np.linalg.norm(map_(mixed) - mixed, axis=1).min()))
    measured = {"positive_sector": identity, "negative_sector": point, "mixed_sector_moves_at_least": moved}
    return Outcome(largest(identity, point) < 1e-8 and moved > 1e-3, measured)


@claim(
    "p2-aligned",
    "(6.2)",
    "for W = W_* R with W_* diagonal, the truncation map does not depend on W_*",
    size=Size("Q = 2 to 7", "Q = 2 to 19", "every Q"),
)
def aligned(full: bool) -> Outcome:
    """Change a diagonal W_* and compare; a symmetric |W| that is not diagonal must make a difference."""
    rng = np.random.default_rng(0)
    same, different = 0.0, np.inf
    for size in range(2, 20 if full else 8):
        turn, shift = rotations(rng, 1, size)[0], rng.normal(size=size)
        points = rng.normal(size=(100, size))
        expected = truncate(points, shift, turn)
        diagonal = np.diag(np.exp(rng.normal(size=size))) @ turn
        skew = rotations(rng, 1, size)[0]
        general = skew.T @ np.diag(np.arange(1.0, size + 1)) @ skew @ turn
        same = largest(same, float(np.abs(TruncationMap(diagonal, diagonal @ shift)(points) - expected).max()))
        other = TruncationMap(general, general @ shift)
        different = smallest(different, float(np.abs(other(points) - expected).max()))
        same = largest(same, TruncationMap(diagonal, diagonal @ shift).misalignment)
    return Outcome(same < 1e-10 and different > 1e-3, {"aligned": same, "misaligned": different})


@claim(
    "p2-composition",
    "Definition 3.1, (3.4)",
    "if also each image stays in the later maps' positive sectors, the composed maps act on a cluster as its own map",
    erratum=Erratum(
        "it suffices that τ^(l) is the identity on all other clusters",
        "a later map must also fix what an earlier one made of its cluster: τ^(1)(X_1) is no longer cluster 1",
        "two maps in the plane, each the identity on the other's cluster",
    ),
    size=Size("two clusters in the plane", "two clusters in the plane", "every Q"),
)
def composition(full: bool) -> Outcome:
    """A counterexample to (3.4), and the same with the extra condition."""
    clusters = [np.array([[0.0, 0.0], [0.2, 0.0]]), np.array([[3.0, 0.0], [3.2, 0.0]])]
    turn = np.array([[1.0, 1.0], [1.0, -1.0]]) / np.sqrt(2)
    others_kept, equal = [], []
    for apexes in ((2.5, 1.0), (1.0, 2.0)):  # the first map's apex lies beyond the second's, or before it
        maps = Maps(np.array([[-apexes[0], 0.0], [-apexes[1], 0.0]]), np.array([turn, -turn]))
        alone = [truncate(points, shift, own) for points, shift, own in zip(clusters, *maps, strict=True)]
        others_kept.append(
            largest(float(np.abs(truncate(clusters[1 - k], maps.shifts[k], maps.rotations[k]) - clusters[1 - k]).max())
                for k in (0, 1))
        )  # fmt: skip
        equal.append(largest(float(np.abs(compose_maps(clusters[k], maps) - alone[k]).max()) for k in (0, 1)))
    measured = {"others_moved": largest(others_kept), "difference_without": equal[0], "difference_with": equal[1]}
    return Outcome(largest(others_kept) < 1e-12 and equal[1] < 1e-12, measured, equal[0] < 1e-9)


CLAIMS = (chain, fixed_points, aligned, composition)
