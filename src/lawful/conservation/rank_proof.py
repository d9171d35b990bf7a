"""Prove how many laws a module has: brackets enclosed in balls bound the number from above.

At one rational point θ* float64 chooses brackets and coordinates, ball arithmetic (FLINT's arb) encloses the square
matrix M of their values, and `‖I − M X‖_∞ < 1` for an approximate inverse X proves M invertible. So the brackets have
at least that rank at θ*, and by continuity near it: near θ* there are at most D − rank laws.
"""

from __future__ import annotations

import math
from dataclasses import replace
from time import process_time
from typing import Any

import numpy as np
import scipy.linalg
import torch
from numpy.typing import NDArray

from lawful.conservation.closure.program_brackets import Sampled, independent_modulo, is_polynomial
from lawful.conservation.law_count import RankProof
from lawful.conservation.programs.module_function import MIXED, Probe, lower
from lawful.conservation.regions.module_data import BALLS, SeenData
from lawful.errors import Unsupported
from lawful.program.core.jets import lift
from lawful.program.core.straight_line import StraightLineProgram
from lawful.sources.modules.randomness import Draw, sample_draws
from lawful.types import Floats, Indices

LARGEST = 1500  # parameters
DEEPEST = 4
SPARE = 8
MORE = 100  # brackets tried beyond those needed: many pairs of fields live on pieces that do not meet
PIECES = 4  # times more fields for modules that are smooth in pieces only: all their pieces have to be seen
MANY = 500  # and at least so many
THETA_BITS, SAMPLE_BITS = 16, 8
THRESHOLD = 1e-7  # a pivot that float64 trusts
ROUNDING = 1e-13  # a bracket so much shorter than others may be nothing but rounding
PRECISIONS = (128, 256, 512)
TIMED_FIRST = 4  # gradients enclosed before any are chosen: what takes hours is known in seconds
TIMED_ROWS = 16  # enclosed at once: then the time that all rows will take is known within a few per cent
COMPARED = 4  # samples at which gradients of a module and of its steps are compared
SAME = 1e-6  # how far, relative to their size, gradients of a module and of its steps may be apart


def program_of(case: Probe) -> StraightLineProgram:
    """The program of a module that a proof can be tried for."""
    if case.size > LARGEST:
        raise Unsupported(f"{case.size:,} parameters are more than {LARGEST:,}: no proof was tried")
    if not case.gradient or case.padded:
        raise Unsupported(f"training does not follow the gradient of what the module computes: {case.unlike}")
    if case.iterated:
        raise Unsupported(f"training moves the vectors of power iterations ({', '.join(case.iterated)})")
    if case.random and case.data is not None:
        raise Unsupported(f"{', '.join(case.random)}: on given data random numbers were sampled only")
    program = lower(case, program_batch(case))
    if not _same_gradients(case, program):
        raise Unsupported("the module's operations, one by one, have other gradients than the module")
    return program


def _same_gradients(case: Probe, program: StraightLineProgram) -> bool:
    """Whether the steps have the gradients that PyTorch computes, at a random point.

    At inputs that are large an exponential may overflow here and not in PyTorch: those say nothing.
    """
    generator = torch.Generator().manual_seed(1)
    rows, theta = len(program_batch(case)), case.theta(1, 0.5)
    inputs = _inputs(case, program, COMPARED, rows, generator) / 2.0**SAMPLE_BITS
    weights = torch.randn((COMPARED, rows, *case.output_shape), generator=generator, dtype=torch.float64)
    fields = Sampled(program, theta.numpy(), inputs, weights.reshape(COMPARED, -1).numpy())
    stepped = fields.brackets(np.arange(COMPARED)[:, None])
    finite = np.asarray(np.isfinite(stepped).all(axis=1))
    batches, numbers = (torch.as_tensor(part) for part in np.split(inputs, [program.given], axis=1))
    if case.vocabulary is not None:
        batches = batches.reshape(COMPARED, -1, case.vocabulary).argmax(dim=-1)
    slope = torch.func.grad(case.value)
    for number, batch in enumerate(batches.reshape(COMPARED, rows, *case.input_shape)):
        right = slope(theta, batch, weights[number], numbers[number]).numpy()
        if finite[number] and not np.linalg.norm(stepped[number] - right) <= SAME * np.linalg.norm(right) + 1e-12:
            return False
    return bool(finite.any())


def prove_rank(
    case: Probe,
    program: StraightLineProgram,
    at_most: int,
    theta: Floats,
    seed: int,
    seen: SeenData | None = None,
    budget: ProofBudget | None = None,
) -> RankProof | None:
    """A proof that brackets reach at least `at_most` dimensions near a point, or None if none was found.

    The point is θ itself, if its numbers are not of too different sizes. On data the inputs are the samples.
    """
    whole, bits = _binary(theta)
    at = whole / 2.0**bits
    exact = is_polynomial(program)
    # A piece that few inputs see needs many fields, and most modules need no more than their size.
    for count in (case.size + SPARE, max(PIECES * case.size, MANY) + SPARE)[: 2 if case.piecewise else 1]:
        picked, drawn, points, ends = _sample_fields(case, program, count, seed, seen)
        floats = at, points, ends / 2.0**SAMPLE_BITS
        if budget is not None and not exact and not _is_affordable(program, *floats, at_most, budget):
            return None
        if chosen := _choose(Sampled(program, *floats), case.size, at_most, len(points), seed):
            break
    else:
        return None
    words, columns, dimensions = chosen
    used = sorted({field for word in words for field in word})
    rename = {field: number for number, field in enumerate(used)}
    words = [tuple(rename[field] for field in word) for word in words]
    ends, points = ends[used], points[used]
    proof = RankProof(
        program, whole, bits, drawn[used], ends, SAMPLE_BITS, tuple(words), tuple(columns), dimensions, 0.0,
        PRECISIONS[0], case.classes, case.vocabulary or 0, exact=True, data=None if seen is None else seen.inputs,
        samples=() if seen is None else tuple(int(picked[field]) for field in used),
    )  # fmt: skip
    floats = at, points, ends / 2.0**SAMPLE_BITS
    if not words or (exact and independent_modulo(program, *floats, words, columns)):
        return proof
    for precision in PRECISIONS:
        enclosed = enclose_brackets(program, *floats, words, precision, budget)
        if budget is not None and budget.refused:  # more bits take longer
            return None
        if enclosed is None:
            continue
        bound = inverse_bound(enclosed[:, columns], precision)
        if bound is not None and bound < 1:
            return replace(proof, bound=bound, precision=precision, exact=False)
    return None


def _sample_fields(
    case: Probe, program: StraightLineProgram, count: int, seed: int, seen: SeenData | None
) -> tuple[Indices, Indices, Floats, Indices]:
    """So many fields: which sample each is of, its drawn inputs (none on data), its inputs and its output weights."""
    generator = torch.Generator().manual_seed(seed)
    rows = len(program_batch(case))
    if seen is None:
        picked, drawn = np.arange(count), _inputs(case, program, count, rows, generator)
        points = drawn / 2.0**SAMPLE_BITS
    else:
        picked = np.arange(max(count, 2 * len(seen.inputs))) % len(seen.inputs)
        drawn, points = np.zeros((len(picked), 0), dtype=np.intp), seen.inputs[picked]
    weights = torch.randn((len(picked), rows, *case.output_shape), generator=generator, dtype=torch.float64)
    ends = _whole(weights.reshape(len(picked), -1).numpy(), SAMPLE_BITS)
    return picked, drawn, points, _summing_to_zero(ends, case.classes) if case.classes else ends


def _is_affordable(
    program: StraightLineProgram, theta: Floats, inputs: Floats, weights: Floats, rows: int, budget: ProofBudget
) -> bool:
    """Whether so many gradients fit into a budget, by the time that a few of them take; brackets take longer."""
    few = list(range(min(TIMED_FIRST, len(inputs))))
    started = process_time()
    enclose_brackets(program, theta, inputs[few], weights[few], [(row,) for row in few], PRECISIONS[0])
    return not few or budget.fits(started, len(few), rows)


def _binary(theta: Floats) -> tuple[Indices, int]:
    """Whole numbers and the binary places by which they are too large: θ, as nearly as 61 bits allow."""
    bits = int(min(64, 61 - np.ceil(np.log2(max(float(np.abs(theta).max(initial=0.0)), 2.0**-3)))))
    whole = _whole(theta, bits)
    used = int(np.bitwise_or.reduce(np.abs(whole), initial=0))
    spare = min((used & -used).bit_length() - 1, bits) if used else bits
    return np.asarray(whole >> max(spare, 0), dtype=np.intp), bits - max(spare, 0)


def round_point(theta: Floats) -> Floats:
    """A point of few binary places."""
    return np.asarray(np.round(theta * 2.0**THETA_BITS) / 2.0**THETA_BITS)


def program_batch(case: Probe) -> torch.Tensor:
    """Inputs of the size that the program takes: several where they are mixed in training."""
    rows = 1 if not case.mixes else MIXED if case.data is None else len(case.data)
    return torch.zeros((rows, *case.input_shape), dtype=torch.int64 if case.vocabulary else torch.float64)


def _inputs(case: Probe, program: StraightLineProgram, count: int, rows: int, generator: torch.Generator) -> Indices:
    """Random inputs of the program, the random numbers that it draws behind them."""
    runs = [Draw(kind, size, "") for kind, size in program.draws]
    numbers = _whole(sample_draws(runs, count, generator).numpy(), SAMPLE_BITS)
    return np.concatenate([_draw_inputs(case, count, rows, generator), numbers], axis=1)


def _draw_inputs(case: Probe, count: int, rows: int, generator: torch.Generator) -> Indices:
    shape = (count, rows, *case.input_shape)
    if case.vocabulary is not None:
        tokens = torch.randint(case.vocabulary, shape, generator=generator)
        units = torch.nn.functional.one_hot(tokens, case.vocabulary)
        return np.asarray(units.reshape(count, -1).numpy() * 2**SAMPLE_BITS, dtype=np.intp)
    sizes = case.sizes((count, 1), generator)
    drawn = torch.randn(shape, generator=generator, dtype=torch.float64).reshape(count, -1)
    return _whole((drawn * sizes).numpy(), SAMPLE_BITS)


def _whole(values: Floats, bits: int) -> Indices:
    return np.asarray(np.round(values * 2.0**bits), dtype=np.intp)


def _summing_to_zero(weights: Indices, outputs: int) -> Indices:
    table = weights.reshape(len(weights), -1, outputs)
    table[:, :, -1] = -table[:, :, :-1].sum(axis=2)
    return table.reshape(len(weights), -1)


# Choosing brackets in float64


def _choose(
    fields: Sampled, size: int, at_most: int, count: int, seed: int
) -> tuple[list[tuple[int, ...]], list[int], tuple[int, ...]] | None:
    """Brackets and coordinates: each level is exhausted before the next, since deep brackets cost most."""
    rng = np.random.default_rng(seed)
    basis = np.zeros((size, 0))
    words: list[tuple[int, ...]] = []
    spanning: list[Floats] = []
    dimensions: list[int] = []
    for level in range(DEEPEST + 1):
        fresh = (
            np.arange(count)[:, None]
            if level == 0
            else _words(rng, count, level, min(size, at_most - len(words) + MORE))
        )
        values = fields.brackets(fresh)
        lengths = np.linalg.norm(values, axis=1)
        usable = np.isfinite(lengths)
        usable &= lengths > ROUNDING * lengths.max(where=usable, initial=0.0)
        fresh, units = fresh[usable], values[usable] / lengths[usable, None]
        rest = units.T - basis @ (basis.T @ units.T)
        rest -= basis @ (basis.T @ rest)
        turned, triangle, order = scipy.linalg.qr(rest, mode="economic", pivoting=True)
        new = min(int((np.abs(np.diag(triangle)) > THRESHOLD).sum()), at_most - len(words))
        part = turned[:, :new] - basis @ (basis.T @ turned[:, :new])
        basis = np.concatenate([basis, np.linalg.qr(part)[0] if new else part], axis=1)
        words += [tuple(int(field) for field in fresh[row]) for row in order[:new]]
        spanning += [units[row] for row in order[:new]]
        dimensions.append(len(words))
        if len(words) == at_most:
            columns = (
                scipy.linalg.qr(np.array(spanning), mode="economic", pivoting=True)[2][:at_most] if spanning else []
            )
            return words, [int(column) for column in columns], tuple(dimensions)
        if level and not new:
            return None
    return None


def _words(rng: np.random.Generator, count: int, level: int, missing: int) -> Indices:
    words = rng.integers(0, count, size=(2 * missing + SPARE, level + 1))
    words[:, -1] = np.where(words[:, -1] == words[:, -2], (words[:, -1] + 1) % count, words[:, -1])  # not [X, X]
    return np.asarray(words, dtype=np.intp)


# Proving in balls


class ProofBudget:
    """Processor seconds that enclosures in ball arithmetic may take in all.

    Their time is known after a few rows, since every row of one length costs the same: one that does not fit is left
    at once, instead of after hours.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds, self.left = seconds, seconds
        self.refused = 0.0  # how long the first that did not fit would have taken, at least

    def fits(self, started: float, done: int, rows: int) -> bool:
        """Whether an enclosure fits that has done so many of its rows since it started."""
        estimate = (process_time() - started) * rows / done
        if estimate > self.left and not self.refused:
            self.refused = estimate
        return estimate <= self.left

    def spend(self, started: float) -> None:
        """Count an enclosure that ended."""
        self.left -= process_time() - started


def enclose_brackets(
    program: StraightLineProgram,
    theta: Floats,
    inputs: Floats,
    weights: Floats,
    words: list[tuple[int, ...]],
    precision: int,
    budget: ProofBudget | None = None,
) -> NDArray[Any] | None:
    """Balls that contain the brackets' values, a row each; None where a sign or a quotient cannot be told.

    None, too, if the budget does not allow it: `budget.refused` then says what it would take.
    """
    import flint

    budget = budget or ProofBudget(math.inf)
    started, done = process_time(), 0

    before = flint.ctx.prec
    flint.ctx.prec = precision
    try:
        fields = Sampled(program, lift(theta, BALLS), lift(inputs, BALLS), lift(weights, BALLS))
        rows = np.empty((len(words), program.parameters), dtype=object)
        for length in sorted({len(word) for word in words}):
            where = [number for number, word in enumerate(words) if len(word) == length]
            for part in (where[start : start + TIMED_ROWS] for start in range(0, len(where), TIMED_ROWS)):
                rows[part] = fields.brackets(np.array([words[number] for number in part], dtype=np.intp))
                done += len(part)
                if not budget.fits(started, done, len(words)):
                    return None
    except (ArithmeticError, ValueError):
        return None
    finally:
        flint.ctx.prec = before
        budget.spend(started)
    return rows


def inverse_bound(matrix: NDArray[Any], precision: int) -> float | None:
    """An upper bound of `‖I − M X‖_∞` with X the float64 inverse of M's midpoint; None if there is none."""
    from flint import arb, arb_mat, ctx

    size = len(matrix)
    if not size:
        return 0.0
    before = ctx.prec
    ctx.prec = precision
    try:
        middle = np.array([[float(value.mid()) for value in row] for row in matrix])
        if not np.isfinite(middle).all():
            return None
        rows = 2.0 ** -np.round(np.log2(np.maximum(np.abs(middle).max(axis=1), 1e-300)))
        columns = 2.0 ** -np.round(np.log2(np.maximum(np.abs(middle * rows[:, None]).max(axis=0), 1e-300)))
        try:
            inverse = np.linalg.inv(middle * rows[:, None] * columns)
        except np.linalg.LinAlgError:
            return None
        entries = [matrix[i, j] * float(rows[i] * columns[j]) for i in range(size) for j in range(size)]
        if not np.isfinite(inverse).all():
            return None
        product = arb_mat(size, size, entries) * arb_mat(size, size, [float(value) for value in inverse.ravel()])
        worst = 0.0
        for i in range(size):
            total = sum((abs(product[i, j] - int(i == j)) for j in range(size)), arb(0))
            if not total < 1:
                return None
            worst = max(worst, float(total.upper()))
    finally:
        ctx.prec = before
    return worst
