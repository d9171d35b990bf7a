"""The grounded Laplacian `L = B̃ diag(θ²) B̃ᵀ` of a network, and what of its inverse square root training needs.

`J Jᵀ = 4L`, so the nuclear norm is `‖J‖_* = 2 tr √L`. Its gradient is `ω_e θ_e` with `ω_e = 2 b_eᵀ L^{-1/2} b_e`, an L2
penalty with one weight per edge, and its value is `Σ_e ω_e θ_e²`. Only entries of `L^{-1/2}` on edges are needed; the
`|Ṽ|×|E|` matrix J is never formed. In a layered network L is block tridiagonal, and those entries follow from a few
shifted block solves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.linalg as linalg
import scipy.sparse as sparse
import scipy.special as special
from threadpoolctl import threadpool_limits

from lawful.errors import Unsupported
from lawful.network import Dag, Role
from lawful.types import Floats

EIGEN_LIMIT = 400  # hidden neurons up to which one dense eigendecomposition is at least as fast as block solves
LARGEST_DENSE = 6000
RELATIVE_FLOOR = 1e-7  # of the largest singular value: what block solves can resolve


@dataclass(frozen=True)
class EdgeWeights:
    """`ω_e` for every edge of a graph, within a relative `error`, and `‖J‖_*`.

    A floor f smooths the norm: each singular value σ counts as `√(σ² + f²) − f`, and ω belongs to that.
    """

    values: Floats
    norm: float
    error: float


@dataclass(frozen=True)
class LayeredWeights:
    """`ω` of every weight matrix and bias of a layered network, in their shapes, and `‖J‖_*`.

    `floor` is what smoothed the norm: at least what was asked for, and what block solves can resolve.
    """

    weights: tuple[Floats, ...]
    biases: tuple[Floats | None, ...]
    norm: float
    error: float
    floor: float


@dataclass(frozen=True)
class Rational:
    """`x^{-1/2} ≈ Σ_j c_j / (x + s_j)` on an interval, with the largest relative error found on a fine grid."""

    factors: Floats
    shifts: Floats
    error: float


def grounded_laplacian(dag: Dag, theta: Floats | None = None) -> sparse.csr_array:
    """`B̃ diag(θ²) B̃ᵀ`, sparse.

    >>> from lawful.network import Mlp
    >>> grounded_laplacian(Mlp([[[3.0]], [[1.0]], [[2.0]]]).to_dag()).toarray()
    array([[10., -1.],
           [-1.,  5.]])
    """
    incidence = dag.hidden_incidence
    return sparse.csr_array(incidence @ sparse.diags_array((dag.theta if theta is None else theta) ** 2) @ incidence.T)


def inverse_root(low: float, high: float, tolerance: float = 1e-6, largest: int = 60) -> Rational:
    """Poles and residues for `x^{-1/2}` on `[low, high]`: the trapezium rule after an elliptic change of variable.

    Hale, Higham and Trefethen (2008), method 3: the error falls like `exp(−2π²N/(log(high/low) + 3))`.

    >>> rational = inverse_root(1e-8, 1.0)
    >>> len(rational.shifts) < 20, rational.error < 1e-6
    (True, True)
    """
    ratio = low / high
    quarter = float(special.ellipkm1(ratio))
    grid = np.geomspace(low, high, 2000)
    poles = max(2, int(np.ceil(-np.log(tolerance) * (np.log(high / low) + 3) / (2 * np.pi**2))))
    while True:
        sine, cosine, delta = _jacobi((np.arange(poles) + 0.5) * quarter / poles, quarter, ratio)
        shifts = low * (sine / cosine) ** 2
        factors = 2 * quarter * np.sqrt(low) / (np.pi * poles) * delta / cosine**2
        approximation = (factors / (grid[:, None] + shifts)).sum(axis=1)
        error = float(np.abs(approximation * np.sqrt(grid) - 1.0).max())
        if error <= tolerance or poles >= largest:
            return Rational(factors, shifts, error)
        poles += 1


def _jacobi(arguments: Floats, quarter: float, complement: float) -> tuple[Floats, Floats, Floats]:
    """sn, cn and dn of parameter `1 − complement` to full relative precision, by reflection past half the quarter."""
    late = arguments > quarter / 2
    sine, cosine, _, _ = special.ellipj(np.where(late, quarter - arguments, arguments), 1.0 - complement)
    delta = np.sqrt(cosine**2 + complement * sine**2)
    root = np.sqrt(complement)
    return (
        np.where(late, cosine / delta, sine),
        np.where(late, root * sine / delta, cosine),
        np.where(late, root / delta, delta),
    )


def dag_edge_weights(dag: Dag, theta: Floats | None = None, floor: float = 0.0) -> EdgeWeights:
    """`ω` and `‖J‖_*` of any graph by one eigendecomposition: the reference.

    At a singular parameter the pseudo-inverse is taken, which gives the subgradient of least norm.

    >>> from lawful.network import Mlp
    >>> dag_edge_weights(Mlp([[[3.0, 0.0]], [[4.0]]]).to_dag()).norm
    10.0
    """
    values = dag.theta if theta is None else theta
    if len(dag.hidden) > LARGEST_DENSE:
        raise Unsupported(f"{len(dag.hidden)} hidden neurons without layers: at most {LARGEST_DENSE} are supported")
    root, norm = _dense_root(grounded_laplacian(dag, values).toarray(), (floor / 2) ** 2)
    place = np.full(len(dag.names), -1)
    place[dag.hidden] = np.arange(len(dag.hidden))
    tails, heads = place[dag.tails], place[dag.heads]
    from_hidden, to_hidden = dag.roles[dag.tails] == Role.HIDDEN, dag.roles[dag.heads] == Role.HIDDEN
    diagonal = np.append(np.diag(root), 0.0)  # position -1: not a hidden neuron
    both = from_hidden & to_hidden
    omega = diagonal[tails] + diagonal[heads]
    omega[both] -= 2 * root[tails[both], heads[both]]
    return EdgeWeights(2 * omega, norm, 0.0)


def layered_edge_weights(
    weights: Sequence[Floats],
    biases: Sequence[Floats | None],
    *,
    floor: float = 0.0,
    tolerance: float = 1e-6,
    eigen: bool | None = None,
) -> LayeredWeights:
    """The same for a layered network, straight from its matrices; `eigen` forces or forbids the eigendecomposition.

    >>> found = layered_edge_weights([np.array([[3.0, 0.0]]), np.array([[4.0]])], [None, None])
    >>> found.norm, found.weights[0]
    (10.0, array([[0.4, 0.4]]))
    """
    squares = [weight.astype(np.float64) ** 2 for weight in weights]
    diagonals = [below.sum(axis=1) + above.sum(axis=0) for below, above in pairwise(squares)]
    for diagonal, bias in zip(diagonals, biases[:-1], strict=True):
        diagonal += 0.0 if bias is None else bias.astype(np.float64) ** 2
    couplings = [square.T for square in squares[1:-1]]
    smooth, error = (floor / 2) ** 2, 0.0
    sides: list[Floats] = []
    if len(diagonals) == 1:  # a shallow network: L is diagonal
        corners = [_inverse_roots(diagonals[0], smooth)]
    elif eigen or (eigen is None and sum(map(len, diagonals)) <= EIGEN_LIMIT):
        corners, sides = _eigen_entries(diagonals, couplings, smooth)
    else:
        largest = 2.0 * max(float(diagonal.max()) for diagonal in diagonals)  # Gershgorin
        smooth = max(smooth, RELATIVE_FLOOR**2 * largest)
        with threadpool_limits(limits=1, user_api="blas"):  # blocks of a few hundred: threads only wait for each other
            corners, sides, error = _rational_entries(diagonals, couplings, smooth, largest, tolerance)
    ends = [np.zeros(squares[0].shape[1]), *corners, np.zeros(len(squares[-1]))]
    omegas = [2 * (below + above[:, None]) for below, above in pairwise(ends)]
    for omega, side in zip(omegas[1:-1], sides, strict=True):
        omega -= 4 * side.T
    vectors = [None if bias is None else 2 * end for bias, end in zip(biases, ends[1:], strict=True)]
    norm = sum(float(np.vdot(omega, square)) for omega, square in zip(omegas, squares, strict=True))
    norm += sum(
        float(omega @ bias.astype(np.float64) ** 2)
        for omega, bias in zip(vectors, biases, strict=True)
        if omega is not None and bias is not None
    )
    # tr √(L + s) = tr L (L + s)^{-1/2} + s tr (L + s)^{-1/2}, less what it is at θ = 0
    norm += 2 * sum(float((smooth * corner - smooth**0.5).sum()) for corner in corners)
    return LayeredWeights(tuple(omegas), tuple(vectors), norm, error, 2 * smooth**0.5)


def selected_inverse(diagonals: Sequence[Any], couplings: Sequence[Any], shift: float) -> tuple[list[Any], list[Any]]:
    """Diagonals and first off-diagonal blocks of `(L + shift)^{-1}`, L block tridiagonal with diagonal blocks.

    Block l of L is `diag(diagonals[l])`, block (l, l + 1) is `−couplings[l]`. One elimination down, one sweep back.
    """
    transfers: list[Any] = []
    inverses: list[Any] = []
    shift = diagonals[0].dtype.type(shift)
    first = 1.0 / (diagonals[0] + shift)
    complement = np.empty(0)
    for diagonal, coupling in zip(diagonals[1:], couplings, strict=True):
        inverse = _inverse(complement) if inverses else np.diag(first)  # the first block is diagonal
        transfer = inverse @ coupling if inverses else first[:, None] * coupling
        inverses.append(inverse)
        transfers.append(transfer)
        complement = np.diag(diagonal + shift) - coupling.T @ transfer
    block = _inverse(complement)
    corners, sides = [np.diag(block).copy()], []
    for inverse, transfer in zip(reversed(inverses), reversed(transfers), strict=True):
        side = transfer @ block
        sides.append(side)
        corners.append(np.diag(inverse) + np.einsum("ij,ij->i", side, transfer))
        if len(corners) < len(diagonals):
            block = inverse + side @ transfer.T
    return corners[::-1], sides[::-1]


def _inverse(matrix: Any) -> Any:
    """Inverse of a symmetric positive definite matrix, in its own precision."""
    factorise, invert = linalg.get_lapack_funcs(("potrf", "potri"), (matrix,))
    factor, failed = factorise(matrix, lower=1)
    if failed:  # rounding has made the last pivots of a nearly singular matrix negative
        return np.asarray(linalg.pinvh(matrix))
    half, _ = invert(factor, lower=1, overwrite_c=1)
    whole = half + half.T  # LAPACK fills the lower half; the upper one is zero
    whole.flat[:: len(whole) + 1] *= 0.5
    return whole


def _rational_entries(
    diagonals: Sequence[Floats], couplings: Sequence[Floats], smooth: float, largest: float, tolerance: float
) -> tuple[list[Floats], list[Floats], float]:
    if largest == 0.0:
        return [np.zeros_like(diagonal) for diagonal in diagonals], [np.zeros_like(c) for c in couplings], 0.0
    rational = inverse_root(smooth, largest + smooth, 0.7 * tolerance)
    error = rational.error
    corners = [np.zeros_like(diagonal) for diagonal in diagonals]
    sides = [np.zeros_like(coupling) for coupling in couplings]
    small = [part.astype(np.float32) for part in diagonals], [part.astype(np.float32) for part in couplings]
    for factor, shift in zip(rational.factors, rational.shifts, strict=True):
        # A solve loses about the condition number times the unit roundoff: far from the origin, single will do.
        loss = float(np.finfo(np.float32).eps) * (largest / (shift + smooth) + 1)
        enough = 4 * loss < tolerance
        error = max(error, rational.error + loss) if enough else error
        blocks: tuple[Sequence[Any], Sequence[Any]] = small if enough else (diagonals, couplings)
        parts = selected_inverse(*blocks, shift + smooth)
        for total, part in zip((*corners, *sides), (*parts[0], *parts[1]), strict=True):
            total += factor * part
    return corners, sides, error


def _eigen_entries(
    diagonals: Sequence[Floats], couplings: Sequence[Floats], smooth: float
) -> tuple[list[Floats], list[Floats]]:
    starts = np.concatenate([[0], np.cumsum([len(diagonal) for diagonal in diagonals])])
    laplacian = np.diag(np.concatenate(diagonals))
    blocks = [slice(begin, end) for begin, end in pairwise(starts)]
    for below, above, coupling in zip(blocks, blocks[1:], couplings, strict=False):
        laplacian[below, above] = -coupling
        laplacian[above, below] = -coupling.T
    root, _ = _dense_root(laplacian, smooth)
    pairs = list(pairwise(blocks))
    return [np.diag(root)[block].copy() for block in blocks], [root[below, above] for below, above in pairs]


def _dense_root(laplacian: Floats, smooth: float) -> tuple[Floats, float]:
    """`(L + smooth)^{-1/2}` and the norm `2 Σ (√(λ + smooth) − √smooth)`."""
    values, vectors = linalg.eigh(laplacian, check_finite=False, driver="evd")
    values = np.maximum(values, 0.0)
    norm = float(2 * (np.sqrt(values + smooth) - smooth**0.5).sum())
    return (vectors * _inverse_roots(values, smooth)) @ vectors.T, norm


def _inverse_roots(values: Floats, smooth: float) -> Floats:
    """`(λ + smooth)^{-1/2}`; without smoothing, null directions are left out."""
    null = values <= len(values) * np.finfo(np.float64).eps * values.max(initial=0.0)
    if smooth > 0:
        null = np.zeros_like(null)
    return np.where(null, 0.0, 1.0 / np.sqrt(np.where(null, 1.0, values + smooth)))
