"""Claims of P2's lemmas: Lemmas 6.1, 7.1 to 7.3, 8.1 and 8.2, Duhamel's formula, the domains of the composed flow."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.integrate import quad_vec, solve_ivp

from lawful.papers.truncation.flow.field import Maps, truncate
from lawful.types import Floats
from reproduction.claim import Erratum, Outcome, Size, claim
from reproduction.claims.extremes import largest, smallest
from reproduction.claims.truncation import rotations


@dataclass(frozen=True)
class Projections:
    """`P⁺` and `P⁻` of maps ℓ to the last at one point (P2 (5.1)-(5.3)), ℓ counted from 0."""

    turns: Floats
    active: Floats  # H^(ℓ), a row a map

    def onto(self, layer: int, kept: bool = True) -> Floats:
        """`RᵀHR` of one map, or `RᵀH^⊥R`."""
        on = self.active[layer] if kept else 1.0 - self.active[layer]
        return np.asarray(self.turns[layer].T * on @ self.turns[layer])

    def plus(self, first: int) -> Floats:
        """`P⁺` from map `first` to the last; the identity behind the last."""
        found = np.eye(self.turns.shape[1])
        for layer in range(first, len(self.turns)):
            found = self.onto(layer) @ found
        return found

    def minus(self, first: int) -> Floats:
        """`P⁻` from map `first` to the last."""
        return self.plus(first + 1) @ self.onto(first, kept=False)


def images(maps: Maps, x: Floats, first: int = 0) -> list[Floats]:
    """x, and its image after each of the maps from `first` on."""
    found = [x]
    for shift, turn in zip(maps.shifts[first:], maps.rotations[first:], strict=True):
        found.append(truncate(found[-1][None], shift, turn)[0])
    return found


def projections(maps: Maps, points: list[Floats]) -> Projections:
    """The projections at the point that each map is given."""
    active = [turn @ (x + shift) > 0 for shift, turn, x in zip(*maps, points, strict=True)]
    return Projections(maps.rotations, np.array(active, dtype=np.float64))


def random_maps(rng: np.random.Generator, size: int) -> Maps:
    """As many maps as dimensions, as in the paper, with random shifts."""
    return Maps(0.4 * rng.normal(size=(size, size)), rotations(rng, size, size))


def composed_gradients(maps: Maps, x: Floats, target: Floats) -> tuple[Floats, Floats]:
    """`∂_β` and `∂_R` of `½|τ^(Q,1)(x) − ỹ|²` by autodiff, entries of R free."""
    shifts, turns = (torch.tensor(array, requires_grad=True) for array in maps)
    at = torch.tensor(x)
    for shift, turn in zip(shifts, turns, strict=True):
        at = turn.T @ torch.relu(turn @ (at + shift)) - shift
    by_shift, by_turn = torch.autograd.grad(0.5 * (at - torch.tensor(target)).square().sum(), (shifts, turns))
    return by_shift.numpy(), by_turn.numpy()


@claim(
    "p2-lemmas",
    "Lemmas 6.1, 7.1, 7.2, 7.3, 8.1, 8.2",
    "derivative along a rotation; composed truncations as P⁺x − ΣP⁻β; gradients in β and R; decay of propagators; "
    "|AB| > √λ₀|A| if BBᵀ > λ₀",
    erratum=Erratum(
        "7.1: H^(l) is taken at τ^(l−1,1)(x) also where the composition starts at l1 > 1; 7.2 (7.11): the gradient in "
        "β is +(P⁻)ᵀ(τ − ỹ); 8.2: |AB| > √λ₀|A| for every A",
        "7.1: at τ^(l−1,l1)(x), the point that the composition has reached; 7.2: −(P⁻)ᵀ(τ − ỹ), as its own proof ends "
        "(7.14); 8.2: for A ≠ 0",
        "autodiff (6.1, 7.2, 7.3), direct composition (7.1), integrated propagators (8.1), singular values (8.2)",
    ),
    size=Size("Q = 2 to 5, six draws each", "Q = 2 to 8, forty draws each", "every Q"),
)
def lemmas(full: bool) -> Outcome:
    """Each lemma at random maps and matrices, beside the printed form where that differs."""
    rng = np.random.default_rng(0)
    errors = dict.fromkeys(("6.1", "7.1", "7.2", "7.3", "8.1", "8.2"), 0.0)
    printed = {"7.1": 0.0, "7.2": 0.0}
    for size in range(2, 9 if full else 6):
        for _ in range(40 if full else 6):
            errors["6.1"] = largest(errors["6.1"], _rotation_lemma(rng, size))
            ours, as_printed = _composition_lemma(rng, size)
            errors["7.1"], printed["7.1"] = largest(errors["7.1"], ours), largest(printed["7.1"], as_printed)
            in_beta, other_sign, in_turns = _gradient_lemmas(rng, size)
            errors["7.2"], printed["7.2"] = largest(errors["7.2"], in_beta), largest(printed["7.2"], other_sign)
            errors["7.3"] = largest(errors["7.3"], in_turns)
            a, b = rng.normal(size=(size, size)), rng.normal(size=(size, size))
            least, norm = float(np.linalg.svd(b)[1][-1]), float(np.linalg.norm(a, 2))
            errors["8.2"] = largest(errors["8.2"], (least * norm - float(np.linalg.norm(a @ b, 2))) / norm)
        errors["8.1"] = largest(errors["8.1"], _propagator_lemma(rng, size))
    holds = largest(errors.values()) < 1e-9
    zero = np.zeros((2, 2))
    strict = float(np.linalg.norm(zero @ np.eye(2), 2)) > 0.5 * float(np.linalg.norm(zero, 2))  # (8.18) at A = 0
    measured = {"errors": errors, "errors_of_the_printed": printed, "8.2_strict_at_A_zero": strict}
    return Outcome(holds, measured, printed_holds=largest(printed.values()) < 1e-9 and strict)


def _rotation_lemma(rng: np.random.Generator, size: int) -> float:
    """`∂_s f(e^{sω}) = −Tr(ω π₋(∂_R f Rᵀ))` (6.11), for a function that is not quadratic."""
    skew = torch.tensor(rng.normal(size=(size, size)))
    skew = (skew - skew.T) / 2
    left, right = torch.tensor(rng.normal(size=(2, size)))

    def value(turn: torch.Tensor) -> torch.Tensor:
        return torch.sin(left @ turn @ right) + (turn @ turn * turn).sum()

    time = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    (along,) = torch.autograd.grad(value(torch.linalg.matrix_exp(time * skew)), time)
    turn = torch.linalg.matrix_exp(0.7 * skew).requires_grad_()
    (slope,) = torch.autograd.grad(value(turn), turn)
    full = slope @ turn.T
    return float((along + torch.trace(skew @ (full - full.T) / 2)).detach().abs())


def _composition_lemma(rng: np.random.Generator, size: int) -> tuple[float, float]:
    """(7.2) with H at the point that is reached, and with H at `τ^(l−1,1)(x)` as (7.5) prints, from every map on."""
    maps, x = random_maps(rng, size), rng.normal(size=size)
    ours = printed = 0.0
    from_start = projections(maps, images(maps, x)[:-1])
    for first in range(size):
        reached = images(maps, x, first)
        padded = [x] * first + reached[:-1]
        for number, found in enumerate((projections(maps, padded), from_start)):
            sums = sum((found.minus(layer) @ maps.shifts[layer] for layer in range(first, size)), np.zeros(size))
            error = float(np.abs(found.plus(first) @ x - sums - reached[-1]).max())
            ours, printed = (largest(ours, error), printed) if number == 0 else (ours, largest(printed, error))
    return ours, printed


def _gradient_lemmas(rng: np.random.Generator, size: int) -> tuple[float, float, float]:
    """Errors of (7.14), of (7.11) as printed, and of (7.16)."""
    maps, x, target = random_maps(rng, size), rng.normal(size=size), rng.normal(size=size)
    path = images(maps, x)
    found, off = projections(maps, path[:-1]), path[-1] - target
    by_shift, by_turn = composed_gradients(maps, x, target)
    ours = printed = turned = 0.0
    for layer in range(size):
        pulled = found.minus(layer).T @ off
        ours = largest(ours, float(np.abs(by_shift[layer] + pulled).max()))
        printed = largest(printed, float(np.abs(by_shift[layer] - pulled).max()))
        place, back = path[layer] + maps.shifts[layer], found.plus(layer + 1).T @ off
        on, turn = found.active[layer][:, None], maps.rotations[layer]
        formula = on * np.outer(turn @ place, back) + on * np.outer(turn @ back, place)
        turned = largest(turned, float(np.abs(by_turn[layer] - formula).max()))
    return ours, printed, turned


def _moving(rng: np.random.Generator, size: int) -> tuple[Floats, Floats]:
    """Two matrices whose combination `B(s) = B₀ + sin(s)B₁` stays invertible with room."""
    return 2 * np.eye(size) + 0.2 * rng.normal(size=(size, size)), 0.2 * rng.normal(size=(size, size))


def _propagator_lemma(rng: np.random.Generator, size: int) -> float:
    """By how much `|U_B(s, s₀)|` exceeds `e^{−(s−s₀)λ₀}` (8.13), λ₀ the least eigenvalue of BBᵀ on the way."""
    still, moving = _moving(rng, size)

    def square(s: float) -> Floats:
        b = still + np.sin(s) * moving
        return np.asarray(b @ b.T)

    times = np.linspace(0.3, 1.3, 41)
    least = smallest(float(np.linalg.eigvalsh(square(s))[0]) for s in times)
    solved = solve_ivp(
        lambda s, u: (-u.reshape(size, size) @ square(s)).ravel(), (0.3, 1.3), np.eye(size).ravel(), "DOP853", times,
        rtol=1e-11, atol=1e-13,
    )  # fmt: skip
    norms = [float(np.linalg.norm(each.reshape(size, size), 2)) for each in solved.y.T]
    return largest(norm - float(np.exp(-(s - 0.3) * least)) for s, norm in zip(times, norms, strict=True))


@claim(
    "p2-duhamel",
    "(8.10), (8.16)-(8.17)",
    "B(s) and W(s) are what the propagators make of B(0) and W(0), less the integral of WᵀY and YBᵀ under them",
    erratum=Erratum(
        "(8.16), (8.17): plus the integrals; (8.10): ∂_s0 U_B = −BBᵀU_B and ∂_s0 U_W = −U_W WᵀW",
        "minus both integrals, since (8.6), (8.7) drive with −WᵀY and −YBᵀ; plus in (8.10). The propagators are those "
        "printed in (8.9), of BBᵀ and WᵀW, which (8.11) cannot use",
        "the flow, both propagators from every earlier time, and their slopes there, all integrated",
    ),
    size=Size("Q = 3, one start, s = 1", "Q = 2 to 5, four starts each, s = 1", "every Q"),
)
def duhamel(full: bool) -> Outcome:
    """Integrate the flow densely, each propagator from s' to the end, and the integrals over s'."""
    rng = np.random.default_rng(0)
    ours = slope = 0.0
    printed = slope_printed = np.inf
    for size in (2, 3, 4, 5) * 4 if full else (3,):
        found = _duhamel(rng, size)
        ours, printed = largest(ours, found[0]), smallest(printed, found[1])
        slope, slope_printed = largest(slope, found[2]), smallest(slope_printed, found[3])
    measured = {"error": ours, "error_with_plus": printed, "slope_error": slope,
                "slope_error_with_minus": slope_printed}  # fmt: skip
    return Outcome(ours < 1e-8 and slope < 1e-6, measured, printed < 1e-6 and slope_printed < 1e-6)


def _duhamel(rng: np.random.Generator, size: int, end: float = 1.0) -> tuple[float, float, float, float]:
    """Errors of (8.16)-(8.17) with minus and with plus, and of (8.10) with plus and with minus."""
    labels, start = rng.normal(size=(size, size)), rng.normal(size=(2, size, size))
    shape = (2, size, size)

    def field(_: float, values: Floats) -> Floats:
        b, w = values.reshape(shape)
        error = w @ b + labels
        return np.concatenate([(-w.T @ error).ravel(), (-error @ b.T).ravel()])

    flow = solve_ivp(field, (0.0, end), start.ravel(), "DOP853", dense_output=True, rtol=1e-11, atol=1e-12).sol

    # ∂_s U_B(s, s') = −U_B BBᵀ and ∂_s U_W(s, s') = −WᵀW U_W; both from s' = 0, then U(s, s') by inverting U(s', 0)
    def propagate(s: float, values: Floats) -> Floats:
        (b, w), (right, left) = flow(s).reshape(shape), values.reshape(shape)
        return np.concatenate([(-right @ b @ b.T).ravel(), (-w.T @ w @ left).ravel()])

    ones = np.array([np.eye(size)] * 2).ravel()
    dense = solve_ivp(propagate, (0.0, end), ones, "DOP853", dense_output=True, rtol=1e-12, atol=1e-13).sol

    def between(begin: float) -> tuple[Floats, Floats]:
        (right, left), (right_end, left_end) = dense(begin).reshape(shape), dense(end).reshape(shape)
        return np.linalg.solve(right, right_end), left_end @ np.linalg.inv(left)

    def integrand(s: float) -> Floats:
        (b, w), (right, left) = flow(s).reshape(shape), between(s)
        return np.array([left @ w.T @ labels, labels @ b.T @ right])

    driven = np.asarray(quad_vec(integrand, 0.0, end, epsabs=1e-11)[0])
    right, left = between(0.0)
    free, last = np.array([left @ start[0], start[1] @ right]), flow(end).reshape(shape)
    at, step = 0.4 * end, 1e-4
    (b, w), (right, left) = flow(at).reshape(shape), between(at)
    slopes = (np.array(between(at + step)) - np.array(between(at - step))) / (2 * step)
    generators = np.array([b @ b.T @ right, left @ w.T @ w])
    errors = (free - driven - last, free + driven - last, slopes - generators, slopes + generators)
    minus, plus, slope_plus, slope_minus = (float(np.abs(each).max()) for each in errors)
    return minus, plus, slope_plus, slope_minus


@claim(
    "p2-domains",
    "(5.8)-(5.13)",
    "where P⁻ of maps l to Q is not zero, map l truncates x and no later map truncates its image fully; for separated "
    "clusters every map is the identity on the other clusters, and (P⁻)ᵀP⁺τ = 0 on each",
    erratum=Erratum(
        "(5.9): every later image lies in the positive sector S⁺; (5.12): RᵀH^(l)(x)R fixes x' of another cluster for "
        "x of cluster l; (5.13) follows from Definition 3.1",
        "(5.9): outside the negative sector S⁻, which is what (5.10) says; (5.12): H^(l)(x') = 1, at the point x' "
        "itself; (5.13): if also every image stays in the later maps' positive sectors",
        "random maps in R² to R⁵, and two clusters in the plane that meet Definition 3.1",
    ),
    size=Size("Q = 2 to 5, 100 points each", "Q = 2 to 8, 2000 points each", "every Q"),
)
def domains(full: bool) -> Outcome:
    """Count points with P⁻ ≠ 0 outside each domain; then (5.12) and (5.13) for two clusters in the plane."""
    rng = np.random.default_rng(0)
    outside = outside_printed = inside = 0
    for size in range(2, 9 if full else 6):
        maps = random_maps(rng, size)
        for x in 2 * rng.normal(size=(2000 if full else 100, size)):
            found = projections(maps, images(maps, x)[:-1])
            for layer in range(size):
                if np.abs(found.minus(layer)).max() < 1e-9:
                    continue
                inside += 1
                later, truncates = found.active[layer + 1 :], not found.active[layer].all()
                outside += not (truncates and later.any(axis=1).all())
                outside_printed += not (truncates and later.all())
    planes = {kept: _two_clusters(apex) for kept, apex in ((True, 2.0), (False, 0.5))}
    (own, crossed, vanishes), (own_too, _, stays) = planes.values()
    measured = {"points_with_P_minus": inside, "outside_the_domain": outside, "outside_the_printed": outside_printed,
                "5.12_at_x'": largest(own, own_too), "5.12_as_printed": crossed, "5.13_images_kept": vanishes,
                "5.13_by_definition_3.1_alone": stays}  # fmt: skip
    holds = inside > 0 and outside == 0 and largest(own, own_too) < 1e-12 and vanishes < 1e-12
    return Outcome(holds, measured, outside_printed == 0 and crossed < 1e-9 and stays < 1e-9)


def _two_clusters(apex: float) -> tuple[float, float, float]:
    """Errors of (5.12) at x' and as printed, and `|(P⁻)ᵀP⁺τ|` of (5.13), for two maps that spare each other's cluster.

    Map 1 lifts cluster 1 from (½, 0) to (½, 1). Map 2 is the identity at (½, 0); at (½, 1) only if `apex` is 2.
    """
    clusters = [np.array([0.5, 0.0]), np.array([2.0, 8.0])]
    slanted = np.array([[np.sqrt(3), 1.0], [1.0, -np.sqrt(3)]]) / 2
    maps = Maps(np.array([[1.0, -1.0], slanted.T @ [1.0, apex]]), np.array([np.eye(2), slanted]))
    own = crossed = product = 0.0
    for layer, x in enumerate(clusters):
        other, turn, shift = clusters[1 - layer], maps.rotations[layer], maps.shifts[layer]
        on, there = ((turn @ (point + shift) > 0).astype(float) for point in (other, x))
        own = largest(own, float(np.abs(turn.T * on @ turn @ other - other).max()))
        crossed = largest(crossed, float(np.abs(turn.T * there @ turn @ other - other).max()))
        path = images(maps, x)
        found = projections(maps, path[:-1])
        product = largest(product, float(np.abs(found.minus(layer).T @ found.plus(layer) @ path[layer]).max()))
    return own, crossed, product


CLAIMS = (lemmas, duhamel, domains)
