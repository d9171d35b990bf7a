"""Claims about P1's worked examples and formulas: dimensions, Lie algebras, Riemannian reductions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations

import numpy as np
import torch
from numpy.typing import NDArray

from lawful.conservation import count_laws, known_laws
from lawful.conservation.reduction import Reduction, follow, involutivity
from lawful.exact import PRIME, rank
from lawful.network import Architecture
from lawful.types import Floats
from reproduction.claim import Erratum, Outcome, Size, claim
from reproduction.claims.extremes import largest, smallest
from reproduction.formulas import polar_metric, product_metric

Shape = tuple[int, int, int]  # n, r, m


def shapes(full: bool) -> Iterator[Shape]:
    """All two-layer networks n-r-m up to a size."""
    most = 6 if full else 4
    return ((n, r, m) for n in range(1, most + 1) for r in range(1, most + 3) for m in range(1, most + 1))


def linear(shape: Shape) -> Architecture:
    """The two-layer linear network n-r-m."""
    return Architecture(shape, slope=1.0)


@claim(
    "p1-frobenius-relu",
    "Example 3.6, Proposition E.1",
    "two-layer ReLU networks without bias: V is involutive of dimension (n+m−1)r, so there are exactly r laws",
    size=Size("all n-r-m, n, m to 4, r to 6", "all n-r-m, n, m to 6, r to 8", "every n, r, m"),
)
def frobenius_relu(full: bool) -> Outcome:
    """Count exactly; involutive means that the first dimension is already the last."""
    wrong = []
    for n, r, m in shapes(full):
        count = count_laws(Architecture((n, r, m)))
        if count.dimensions != ((n + m - 1) * r,) or count.laws != r or not count.proved:
            wrong.append((n, r, m))
    return Outcome(not wrong, {"networks": len(list(shapes(full))), "wrong": wrong[:5]})


@claim(
    "p1-relu-span",
    "Proposition E.1, second step",
    "∇φ_ij is a combination of ∇φ_i1, ∇φ_1j and ∇φ_11 where φ_ij = u_i v_j",
    erratum=Erratum(
        "the last coefficient in the closing line is + v_j u_i/(u_1 v_1)",
        "it is − v_j u_i/(u_1 v_1), as in the line before it",
        "numerically, for random u and v",
    ),
    size=Size("20 random points", "100 random points", "every point"),
)
def relu_span(full: bool) -> Outcome:
    """Evaluate both sides at random points."""
    rng = np.random.default_rng(0)
    right = printed = 0.0
    for _ in range(100 if full else 20):
        n, m = rng.integers(2, 6, size=2)
        u, v = rng.normal(size=n), rng.normal(size=m)

        def gradient(i: int, j: int, u: Floats = u, v: Floats = v) -> Floats:
            found = np.zeros(len(u) + len(v))
            found[i], found[len(u) + j] = v[j], u[i]
            return found

        i, j = int(rng.integers(1, n)), int(rng.integers(1, m))
        both = v[j] / v[0] * gradient(i, 0) + u[i] / u[0] * gradient(0, j)
        last = v[j] * u[i] / (u[0] * v[0]) * gradient(0, 0)
        right = largest(right, float(np.abs(both - last - gradient(i, j)).max()))
        printed = largest(printed, float(np.abs(both + last - gradient(i, j)).max()))
    measured = {"error_with_minus": right, "error_with_plus": printed}
    return Outcome(right < 1e-9, measured, printed_holds=printed < 1e-9)


@claim(
    "p1-linear-two-steps",
    "Example 3.7, Proposition H.1",
    "two-layer linear networks close at the second step, and are not involutive if r > 1 and max(n, m) > 1",
    erratum=Erratum(
        "dim V_φ = nm − n·max(0, m − r) when n + m > r",
        "dim V_φ = (n + m)r − r² if r ≤ min(n, m), else nm; (3, 2, 3) gives 8, not 6",
        "exact rank of the fields modulo a prime",
    ),
    size=Size("all n-r-m, n, m to 4, r to 6", "all n-r-m, n, m to 6, r to 8", "every n, r, m"),
)
def linear_two_steps(full: bool) -> Outcome:
    """Exact dimensions of V_0 and V_1 for all small shapes."""
    wrong, misprinted = [], 0
    for n, r, m in shapes(full):
        count = count_laws(linear((n, r, m)))
        first = (n + m) * r - r * r if r <= min(n, m) else n * m
        involutive = len(count.dimensions) == 1 or count.dimensions[0] == count.dimensions[-1]
        expected = not (r > 1 and max(n, m) > 1)
        if count.dimensions[0] != first or len(count.dimensions) > 2 or not count.proved or involutive != expected:
            wrong.append((n, r, m, count.dimensions))
        misprinted += n + m > r and count.dimensions[0] != n * m - n * max(0, m - r)
    measured = {"wrong": wrong[:5], "shapes_where_the_printed_formula_fails": misprinted}
    return Outcome(not wrong, measured, printed_holds=misprinted == 0)


@claim(
    "p1-independent",
    "Propositions 4.2, G.1",
    "U^T U − V^T V gives rk(2r+1−rk)/2 independent laws, rk = min(n+m, r)",
    size=Size("all n-r-m, n, m to 4, r to 6", "all n-r-m, n, m to 6, r to 8", "every n, r, m"),
)
def independent(full: bool) -> Outcome:
    """Rank of the gradients of *all* r(r+1)/2 entries at a random integer point modulo a prime."""
    rng = np.random.default_rng(0)
    wrong = []
    for n, r, m in shapes(full):
        dag = linear((n, r, m)).to_dag()
        laws = known_laws(dag, every_pair=True)
        found = laws.independent(rng.integers(0, PRIME, size=dag.parameters), PRIME)
        rk = min(n + m, r)
        if len(laws) != r * (r + 1) // 2 or found != rk * (2 * r + 1 - rk) // 2:
            wrong.append((n, r, m))
    return Outcome(not wrong, {"networks": len(list(shapes(full))), "wrong": wrong[:5]})


@claim(
    "p1-independent-columns",
    "Proposition G.1, proof, first case",
    "if n + m ≤ r, some n + m of the stacked columns (U_i; V_i) are independent",
    erratum=Erratum(
        "n + m of the columns U_i, and as many of the V_i, are independent",
        "n + m of the stacked columns (U_i; V_i) are: U_i alone lives in R^n",
        "rank of random matrices",
    ),
    size=Size("10 random pairs", "50 random pairs", "every n, r, m"),
)
def independent_columns(full: bool) -> Outcome:
    """Ranks of U, V and (U; V)."""
    rng = np.random.default_rng(0)
    stacked, alone = True, True
    for _ in range(50 if full else 10):
        n, m = rng.integers(1, 5, size=2)
        r = int(n + m + rng.integers(0, 3))
        u, v = rng.normal(size=(n, r)), rng.normal(size=(m, r))
        stacked &= bool(np.linalg.matrix_rank(np.vstack([u, v])) == n + m)
        alone &= bool(np.linalg.matrix_rank(u) == n + m and np.linalg.matrix_rank(v) == n + m)
    return Outcome(stacked, {"stacked_columns": stacked, "each_alone": alone}, printed_holds=alone)


@claim(
    "p1-lie-dimension",
    "Propositions 4.3, G.5",
    "dim Lie(V_φ)(U; V) = (n+m)r − rk(2r+1−rk)/2",
    erratum=Erratum(
        "(n+m)r − (2r+1−rk)/2", "(n+m)r − rk(2r+1−rk)/2", "exact rank of brackets modulo a prime, and Proposition G.5"
    ),
    size=Size("all n-r-m, n, m to 4, r to 6", "all n-r-m, n, m to 6, r to 8", "every n, r, m"),
)
def lie_dimension(full: bool) -> Outcome:
    """Exact dimension for all small shapes, beside both formulas and both cases of Proposition G.5."""
    wrong, misprinted = [], 0
    for n, r, m in shapes(full):
        found = count_laws(linear((n, r, m))).dimensions[-1]
        rk = min(n + m, r)
        cases = (n + m) * (n + m - 1) // 2 if n + m <= r else (n + m) * r - r * (r + 1) // 2
        if not found == (n + m) * r - rk * (2 * r + 1 - rk) // 2 == cases:
            wrong.append((n, r, m))
        misprinted += 2 * found != 2 * (n + m) * r - (2 * r + 1 - rk)
    measured = {"wrong": wrong[:5], "shapes_where_the_printed_formula_fails": misprinted}
    return Outcome(not wrong, measured, printed_holds=misprinted == 0)


@claim(
    "p1-lie-algebra",
    "Proposition G.3, Remark G.4",
    "Lie(V_φ) of U V^T is I_{n,m} times the skew matrices, of dimension (n+m)(n+m−1)/2, reached with one bracket",
    size=Size("n, m to 3", "n, m to 5", "every n, m"),
)
def lie_algebra(full: bool) -> Outcome:
    """Build the matrices S_Δ, close them under commutators exactly, and compare both spaces."""
    wrong = []
    for n in range(1, 6 if full else 4):
        for m in range(1, 6 if full else 4):
            size = n + m
            base = []
            for i in range(n):
                for j in range(m):
                    matrix = np.zeros((size, size), dtype=np.int64)
                    matrix[i, n + j] = matrix[n + j, i] = 1
                    base.append(matrix)
            first = base + [a @ b - b @ a for a, b in combinations(base, 2)]
            second = first + [a @ b - b @ a for a in base for b in first]
            signs = np.diag([1] * n + [-1] * m)
            skew = [signs @ _skew(size, i, j) for i, j in combinations(range(size), 2)]
            dimensions = [_rank(space) for space in (first, second, skew, second + skew)]
            if set(dimensions) != {size * (size - 1) // 2}:
                wrong.append((n, m, dimensions))
    return Outcome(not wrong, {"wrong": wrong[:5]})


def _skew(size: int, i: int, j: int) -> NDArray[np.int64]:
    found = np.zeros((size, size), dtype=np.int64)
    found[i, j], found[j, i] = 1, -1
    return found


def _rank(matrices: list[NDArray[np.int64]]) -> int:
    return rank(np.array([matrix.ravel() for matrix in matrices]), PRIME)


@claim(
    "p1-no-more",
    "Corollaries 4.4, G.6",
    "for two-layer linear networks U^T U − V^T V holds all laws",
    size=Size("all n-r-m, n, m to 4, r to 6", "all n-r-m, n, m to 6, r to 8", "every n, r, m"),
)
def no_more(full: bool) -> Outcome:
    """Every small shape must be *proved*, and its certificate must pass the separate verifier."""
    from lawful.conservation.certificate import certificate
    from lawful.verify import verify

    unproved = []
    for shape in shapes(full):
        count = count_laws(linear(shape))
        if not count.proved:
            unproved.append(shape)
        elif sum(shape) % 4 == 0 or full:
            verify(certificate(count))
    return Outcome(not unproved, {"networks": len(list(shapes(full))), "unproved": unproved[:5]})


def polar(theta: torch.Tensor) -> torch.Tensor:
    """`(u, v) → (u‖v‖, v/‖v‖)`, P1 (24)."""
    length = theta[1:].norm()
    return torch.cat([(theta[0] * length)[None], theta[1:] / length])


@claim(
    "p1-homogeneous",
    "Example E.2, Proposition E.3",
    "φ = (u_i‖v_i‖, v_i/‖v_i‖): V is involutive of dimension r(d−1), so there are r laws, u_i² − ‖v_i‖²",
    size=Size("r to 2, d to 4", "r to 3, d to 6", "every r, d"),
)
def homogeneous(full: bool) -> Outcome:
    """Ranks of gradients and brackets in float64, and orthogonality of the laws."""
    rng = np.random.default_rng(0)
    wrong, worst, gap = [], 0.0, np.inf
    for r in range(1, 4 if full else 3):
        for d in range(3, 7 if full else 5):
            theta = rng.normal(size=r * d)

            def phi(t: torch.Tensor, r: int = r) -> torch.Tensor:
                return torch.cat([polar(part) for part in t.chunk(r)])

            found = involutivity(phi, theta)
            gap = smallest(gap, found.gap)
            if not found.involutive or found.dimension != r * (d - 1):
                wrong.append((r, d))
            fields = torch.func.jacrev(phi)(torch.as_tensor(theta)).numpy()
            signs = np.tile([1.0] + [-1.0] * (d - 1), r)
            for neuron in np.split(np.arange(r * d), r):
                worst = largest(worst, float(np.abs(fields[:, neuron] @ (signs * theta)[neuron]).max()))
    return Outcome(
        not wrong and worst < 1e-10, {"wrong": wrong, "smallest_gap": gap, "largest_product_with_a_law": worst}
    )


@claim(
    "p1-riemannian",
    "Proposition 3.8, Example 3.9",
    "z = uv follows z' = −M(z, θ_init)∇f(z) with M = ‖z‖_δ I + zz^T/‖z‖_δ; a non-involutive φ has no such flow",
    size=Size("d = 3, time 1", "d = 3, time 3", "every d"),
)
def riemannian(full: bool) -> Outcome:
    """Integrate θ and z separately; compare the closed form with the metric found from the laws alone."""
    start = np.array([1.3, 0.4, -0.7, 0.9])
    delta = (start[0] ** 2 - start[1:] @ start[1:]) / 2
    reduction = Reduction(lambda t: t[0] * t[1:], lambda t: (t[0] ** 2 - t[1:] @ t[1:])[None], start)
    gap, general = _compare(reduction, lambda z: product_metric(z, delta), np.array([0.5, 1.0, -0.3]), full)
    linear_rank_two = involutivity(lambda t: (t[:6].view(3, 2) @ t[6:].view(2, 3)).flatten(), np.arange(12) % 5 - 1.7)
    measured = {
        "largest_distance_of_trajectories": gap,
        "closed_form_against_general": general,
        "matrix_product_involutive": linear_rank_two.involutive,
    }
    return Outcome(gap < 1e-8 and general < 1e-8 and not linear_rank_two.involutive, measured)


@claim(
    "p1-riemannian-polar",
    "Example F.2",
    "z = (u‖v‖, v/‖v‖) follows z' = −M∇f with M = diag(2√(r²+δ²), P_h/(√(r²+δ²) − δ)), δ = (u² − ‖v‖²)/2",
    erratum=Erratum(
        "M = diag(√(r²+δ²), P_h/(δ + √(r²+δ²))) with δ = u² − ‖v‖²",
        "M = diag(2√(r²+δ²), P_h/(√(r²+δ²) − δ)) with δ = (u² − ‖v‖²)/2: the entries are u² + ‖v‖² and 1/‖v‖²",
        "∂φ∂φ^T by autodiff, and trajectories",
    ),
    size=Size("d = 3, time 1", "d = 3, time 3", "every d"),
)
def riemannian_polar(full: bool) -> Outcome:
    """As for Example 3.9, with the printed matrix beside the corrected one."""
    start = np.array([1.3, 0.4, -0.7, 0.9])
    delta = (start[0] ** 2 - start[1:] @ start[1:]) / 2
    reduction = Reduction(polar, lambda t: (t[0] ** 2 - t[1:] @ t[1:])[None], start)
    gap, general = _compare(reduction, lambda z: polar_metric(z, delta), np.array([0.8, 0.2, -0.5, 0.7]), full)

    def printed(z: Floats) -> Floats:
        root, h = np.sqrt(z[0] ** 2 + 4 * delta**2), z[1:]
        found = np.zeros((len(z),) * 2)
        found[0, 0] = root
        found[1:, 1:] = (np.eye(len(h)) - np.outer(h, h) / (h @ h)) / (2 * delta + root)
        return found

    z = reduction.image(start)
    off = float(np.abs(printed(z) - reduction.metric(z)).max())
    measured = {
        "largest_distance_of_trajectories": gap,
        "closed_form_against_general": general,
        "error_of_the_printed_matrix": off,
    }
    return Outcome(gap < 1e-8 and general < 1e-8, measured, printed_holds=off < 1e-8)


def _compare(
    reduction: Reduction, metric: Callable[[Floats], Floats], target: Floats, full: bool
) -> tuple[float, float]:
    """Distance of φ(θ(t)) from z(t) under the closed form, and of the closed form from the general metric."""

    def slope(z: Floats) -> Floats:
        return z - target

    def pulled_back(theta: Floats) -> Floats:
        jacobian = torch.func.jacrev(reduction.phi)(torch.as_tensor(theta)).numpy()
        return np.asarray(jacobian.T @ slope(reduction.image(theta)))

    times = np.linspace(0.0, 3.0 if full else 1.0, 12)
    outside = follow(metric, slope, reduction.image(reduction.start), list(times))
    inside = follow(lambda t: np.eye(len(t)), pulled_back, reduction.start, list(times))
    images = np.array([reduction.image(theta) for theta in inside])
    metrics = [
        float(np.abs(metric(z) - reduction.metric(z, near)).max()) for z, near in zip(images, inside, strict=True)
    ]
    return float(np.abs(images - outside).max()), largest(metrics)


CLAIMS = (
    frobenius_relu,
    relu_span,
    linear_two_steps,
    independent,
    independent_columns,
    lie_dimension,
    lie_algebra,
    no_more,
    homogeneous,
    riemannian,
    riemannian_polar,
)
