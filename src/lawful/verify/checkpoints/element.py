"""The group element of a certificate: matrices with their partners, what happens to each axis, what is added."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from lawful.errors import CertificateError
from lawful.verify.checkpoints.folds import name_of
from lawful.verify.core.checkpoint import Array, Shapes, unpack
from lawful.verify.core.schema import integer, integers, items, limit_cost, object_with_keys, require

# Of Σ |m| |p|, what a product of a matrix and its partner may be off: each entry of either may be stored in float32
# (unit 2^-24, so 1.2e-7 for both), times eight for the solver that made the partner. It decides no equality: how far
# off they are is stated.
INVERSE = 1e-6
BLAS = 500.0  # products of floats that a library does in the time of one elementary step
Places = np.ndarray[Any, Any]


class ListedFrame(NamedTuple):
    """What happens along some dimensions of a tensor: rows permuted, multiplied, then mixed by matrices."""

    dims: tuple[int, ...]
    source: Places
    factor: Array
    blocks: list[tuple[Places, Array]]
    rotations: set[int]  # which of the blocks are orthogonal
    numbers: list[tuple[int, Places]]  # the number of the matrix of each block, and its rows
    quotient: tuple[Array, Array]  # the factors exactly: floats divided by floats


class Rotation(NamedTuple):
    """Rows `order` of (1 - S)(1 + S)^(-1), times signs: orthogonal, for S is skew."""

    skew: Array
    order: Places
    signs: Places

    @property
    def matrix(self) -> Array:
        """In floating point."""
        one = np.eye(len(self.skew))
        turned = np.linalg.solve((one + self.skew).T, (one - self.skew).T).T
        return np.asarray(self.signs[:, None] * turned[self.order], dtype=np.float64)


Form = Array | Rotation | int  # what a matrix is exactly: its floats, a rotation, or the inverse transposed of another


def read_matrices(value: object, most: int) -> tuple[list[Array], list[int], float, list[Form]]:
    """Matrices, each with a partner that is its inverse transposed (orthogonal ones are their own); how far their
    products with these are from 1 at most; and what each is exactly."""
    matrices: list[Array] = []
    partners: list[int] = []
    forms: list[Form] = []
    sizes: list[int] = []
    numbers = 0
    for item in items(value, "matrices", most=1_000_000):
        parts = object_with_keys(item, "matrices", "size partner", "values dual skew order signs")
        size = integer(parts["size"], "matrices", 1, 100_000)
        numbers += size * size
        sizes.append(size)
        # A matrix explains something only if it acts on more numbers than it has: before anything is unpacked.
        require(numbers <= most, "the matrices hold more numbers than the files")
        forms.append(_form(parts, size))
        partners.append(integer(parts["partner"], "matrices", 0))
    limit_cost(sum(float(size) ** 3 for size in sizes) / BLAS)
    for form in forms:
        if isinstance(form, int):
            other = forms[form] if form < len(forms) else 0
            require(not isinstance(other, int), "a matrix is the inverse of none")
            matrices.append(np.zeros((0, 0)))
        else:
            matrices.append(form.matrix if isinstance(form, Rotation) else form)
    for place, form in enumerate(forms):
        if isinstance(form, int):
            try:
                matrices[place] = np.asarray(np.linalg.inv(matrices[form]).T, dtype=np.float64)
            except np.linalg.LinAlgError:
                raise CertificateError("a matrix has no inverse") from None
    off = relative = 0.0
    for matrix, partner in zip(matrices, partners, strict=True):
        require(partner < len(matrices) and matrices[partner].shape == matrix.shape, "a matrix has no partner")
        gap = np.abs(matrix @ matrices[partner].T - np.eye(len(matrix)))
        require(
            float(gap.sum(1).max()) < 0.5, "a matrix is not inverse to its partner"
        )  # so it has one: Neumann's series
        off = max(off, float(gap.max(initial=0.0)))
        gap /= np.maximum(np.abs(matrix) @ np.abs(matrices[partner]).T, 1.0)
        relative = max(relative, float(gap.max()))
    require(relative <= INVERSE, "a matrix is neither orthogonal nor inverse to its partner")
    return matrices, partners, off, forms


def _form(parts: dict[str, Any], size: int) -> Form:
    """Floats, the number of a matrix whose inverse transposed it is, or the skew matrix of a rotation."""
    if "dual" in parts:
        return integer(object_with_keys(parts, "matrices", "size partner dual")["dual"], "matrices", 0)
    if "skew" not in parts:
        object_with_keys(parts, "matrices", "size partner values")
        return _unpack(parts["values"], "matrices", size * size).reshape(size, size)
    object_with_keys(parts, "matrices", "size partner skew order signs")
    skew = np.zeros((size, size))
    skew[np.triu_indices(size, 1)] = _unpack(parts["skew"], "matrices", size * (size - 1) // 2)
    order = np.array(integers(parts["order"], "matrices", 0, size - 1, length=size))
    signs = np.array(integers(parts["signs"], "matrices", -1, 1, length=size))
    require(len(np.unique(order)) == size and bool((signs != 0).all()), "a rotation has rows twice, or rows of zeros")
    return Rotation(skew - skew.T, order, signs)


def read_frames(
    value: object, matrices: list[Array], partners: list[int], shapes: Shapes
) -> dict[str, list[ListedFrame]]:
    """For each tensor what happens to its axes, each at most once."""
    frames: dict[str, list[ListedFrame]] = {}
    for item in items(value, "frames", most=1_000_000):
        parts = object_with_keys(item, "frames", "tensor dims source factor blocks", "divisor")
        name = name_of(parts["tensor"], shapes, "frames")
        listed = frames.setdefault(name, [])
        listed.append(_frame(parts, matrices, partners, shapes[name]))
        dims = [d for frame in listed for d in frame.dims]
        require(len(set(dims)) == len(dims), "an axis is moved twice")
    return frames


def _frame(parts: dict[str, Any], matrices: list[Array], partners: list[int], shape: tuple[int, ...]) -> ListedFrame:
    dims = tuple(integers(parts["dims"], "frames", 0, len(shape) - 1, most=len(shape)))
    require(len(set(dims)) == len(dims), "a dimension is named twice")
    count = int(np.prod([shape[d] for d in dims], dtype=int))
    source = np.array(integers(parts["source"], "frames", 0, count - 1, length=count))
    require(len(np.unique(source)) == count, "the rows of an axis are not permuted")
    top = _unpack(parts["factor"], "frames", count)
    divisor = _unpack(parts["divisor"], "frames", count) if "divisor" in parts else np.ones(count)
    require(bool((divisor != 0).all()), "a row is divided by zero")
    with np.errstate(over="ignore", under="ignore"):
        factor = top / divisor
    require(bool((factor != 0).all() and np.isfinite(factor).all()), "a row is multiplied by zero")
    blocks: list[tuple[Places, Array]] = []
    numbers: list[tuple[int, Places]] = []
    used = np.zeros(count, dtype=bool)
    for item in items(parts["blocks"], "frames", most=1_000_000):
        entry = object_with_keys(item, "blocks", "rows matrix")
        number = integer(entry["matrix"], "blocks", 0, len(matrices) - 1)
        matrix = matrices[number]
        rows = np.array([_line(line, count, len(matrix)) for line in items(entry["rows"], "blocks", most=count)])
        require(rows.ndim == 2 and len(np.unique(rows)) == rows.size and not used[rows].any(), "rows are mixed twice")
        used[rows.reshape(-1)] = True
        blocks.append((rows, matrix))
        numbers.append((number, rows))
    rotations = {place for place, (number, _) in enumerate(numbers) if partners[number] == number}
    return ListedFrame(dims, source, factor, blocks, rotations, numbers, (top, divisor))


def _line(value: object, count: int, size: int) -> list[int]:
    """Rows of a block: all of them, or the first of some that follow one another."""
    if isinstance(value, list):
        return integers(value, "blocks", 0, count - 1, length=size)
    start = integer(value, "blocks", 0, count - size)
    return list(range(start, start + size))


def read_shifts(value: object, shapes: Shapes) -> dict[str, list[Array]]:
    """For each tensor the constants that are added to it, of size 1 where they do not change."""
    shifts: dict[str, list[Array]] = {}
    for item in items(value, "shifts", most=1_000_000):
        parts = object_with_keys(item, "shifts", "tensor shape values")
        name = name_of(parts["tensor"], shapes, "shifts")
        shape = tuple(integers(parts["shape"], "shifts", 1, 10**9, length=len(shapes[name])))
        require(all(s in (1, t) for s, t in zip(shape, shapes[name], strict=True)), "a shift does not fit")
        piece = _unpack(parts["values"], "shifts", int(np.prod(shape, dtype=int))).reshape(shape)
        shifts.setdefault(name, []).append(piece)
    return shifts


def _unpack(value: object, where: str, count: int) -> Array:
    """So many finite numbers."""
    values = unpack(value, count, where).astype(np.float64)
    require(bool(np.isfinite(values).all()), "a number of the certificate is not finite")
    return values


def act(tensor: Array, frames: list[ListedFrame], *, absolute: bool = False) -> Array:
    """A tensor after all that happens to its axes (`absolute`: with the absolute values of all numbers)."""
    for frame in frames:
        tensor = _along(tensor, frame, np.abs if absolute else as_it_is, set())
    return tensor


def spread(squares: Array, frames: list[ListedFrame]) -> Array:
    """Squares of independent errors after all that happens to their axes, but for rotations: these keep sums along
    their axis, which is all that is meant."""
    for frame in frames:
        squares = _along(squares, frame, np.square, frame.rotations)
    return squares


def nonzero_after(tensor: Array, frames: list[ListedFrame]) -> Places:
    """Which entries have a term other than zero after all that happens to the axes, however small it is."""
    counts = (tensor != 0).astype(np.float64)
    for frame in frames:
        counts = _along(counts, frame, lambda values: (values != 0).astype(np.float64), set())
    return np.asarray(counts != 0)


def moves_only(tensor: Array, frames: list[ListedFrame]) -> bool:
    """Whether rows are permuted and multiplied with powers of two, and no product is rounded.

    A matrix with one number other than zero in each row does that too: its sums have one term. With up to eight factors
    of 2^-64 and more, numbers from 2^-500 on stay above 2^-1022, where doubles keep all bits.
    """
    if not tensor.any():  # zeros stay zeros
        return True
    matrices = [matrix for frame in frames for _, matrix in frame.blocks]
    if len(frames) + len(matrices) > 8 or any((np.count_nonzero(block, axis=1) != 1).any() for block in matrices):
        return False
    listed = [*(frame.factor for frame in frames), *(block[block != 0] for block in matrices)]
    factors = np.abs(np.concatenate([np.ones(1), *listed]))
    if bool((np.frexp(factors)[0] != 0.5).any()):
        return False
    sizes = np.abs(tensor[tensor != 0])
    return bool((factors == 1).all()) or (factors.min() >= 2.0**-64 and sizes.min(initial=1.0) >= 2.0**-500)


def as_it_is(values: Array) -> Array:
    """No change."""
    return values


def _along(tensor: Array, frame: ListedFrame, seen: Callable[[Array], Array], without: set[int]) -> Array:
    shape, dims = tensor.shape, frame.dims
    order = [*dims, *(d for d in range(tensor.ndim) if d not in dims)]
    rows = np.transpose(tensor, order).reshape(len(frame.source), -1)[frame.source]
    rows *= seen(frame.factor)[:, None]
    for number, (table, matrix) in enumerate(frame.blocks):
        for line in table if number not in without else ():
            rows[line] = seen(matrix) @ rows[line]
    return np.transpose(rows.reshape([shape[d] for d in order]), np.argsort(order))


def acted_on(tensor: Array, frames: list[ListedFrame]) -> Iterator[tuple[int, int]]:
    """Each matrix by its number, with how many numbers other than zero of a tensor it acts on."""
    for frame in frames:
        if frame.numbers:
            others = tuple(d for d in range(tensor.ndim) if d not in frame.dims)
            counts = np.count_nonzero(
                np.transpose(tensor, (*frame.dims, *others)).reshape(len(frame.source), -1), axis=1
            )
            for number, rows in frame.numbers:
                yield number, int(counts[frame.source][rows].sum())


def terms_of(frames: list[ListedFrame]) -> int:
    """How many terms an entry has after them."""
    return sum(max((len(matrix) for _, matrix in frame.blocks), default=1) for frame in frames)


# What a certificate of a copy brings of its own: matrices, factors and constants that any numbers would pass with.
#
# A matrix of n² numbers explains something only if it acts, with its inverse on another axis, on more numbers than n².
# A factor or a constant for each number of a tensor (a bias may have them) explains nothing of it, so such numbers do
# not count.

# Relative, of factors that are the same one: products of a few doubles differ by units of 2^-53. Two factors that only
# happen to be as near are counted as shared, which changes how many numbers the sentence counts and nothing else.
ALIKE = 1e-9

Frames = Mapping[str, list[ListedFrame]]
Shifts = Mapping[str, list[Array]]


def need_partners(frames: Frames, matrices: Sequence[Array], partners: Sequence[int], seen: Mapping[int, int]) -> None:
    """Every matrix that acts does so together with its inverse, on more numbers than it has.

    `seen` counts, for each matrix, the numbers other than zero on which it acts.
    """
    acting = Counter(
        number for listed in frames.values() for frame in listed for number, rows in frame.numbers for _ in rows
    )
    for number in acting:
        partner = partners[number]
        places = acting[number] + (acting[partner] if partner != number else 0)
        require(partner in acting and places > 1, "a matrix acts without its inverse on any other axis")
        count = seen.get(number, 0) + (seen.get(partner, 0) if partner != number else 0)
        require(count == 0 or count > matrices[number].size, "a matrix has as many numbers as it acts on")


class RowFactors(NamedTuple):
    """Of a tensor: factors of rows of several numbers, and for each frame those of rows of one."""

    shared: Array
    lone: list[Array]


def own_numbers(
    shifts: Shifts, shapes: Shapes, constants: set[str], factors: Mapping[str, RowFactors]
) -> dict[str, int]:
    """Tensors, and how many of their numbers have a factor that acts on nothing else, or a constant each.

    Tensors that are constants in one of the files tell nothing: their numbers do not count, nor do their factors make
    those of others known (a constant tensor of any shape can be listed with any factors). `factors` are of rows of
    more than one number that are not all zero: zeros are zeros times any factor.
    """
    shared = _shared_factors([alone.shared for name, alone in factors.items() if name not in constants])
    counts: dict[str, int] = {}
    for name, shape in shapes.items():
        size = int(np.prod(shape, dtype=int))
        added = shifts.get(name, [])
        alone = _own_constants(added, shape) if added else 0
        for lone in factors[name].lone:
            alone = max(alone, int((~_among(lone, shared)).sum()))
        if name in constants:
            alone = size
        if alone:
            counts[name] = alone
    return counts


def _own_constants(pieces: list[Array], shape: tuple[int, ...]) -> int:
    """How many numbers of a tensor have a constant each, which is added to no other one."""
    changed = int(np.count_nonzero(np.broadcast_to(sum(pieces), shape)))
    counts = [_constants(piece, piece.shape != shape) for piece in pieces]
    alone = changed if sum(count for count, _ in counts) >= changed else sum(once for _, once in counts)
    return min(changed, alone)


def _constants(piece: Array, repeated: bool) -> tuple[int, int]:
    """How many numbers other than zero there are in a piece, of which whole slices may be the same; how many are in a
    slice that occurs once."""
    count = int(np.count_nonzero(piece))
    once = 0 if repeated else count
    for d, size in enumerate(piece.shape):
        if 1 < size < piece.size:
            slices, counts = np.unique(piece, axis=d, return_counts=True)
            count = min(count, int(np.count_nonzero(slices)))
            once = min(once, int(np.count_nonzero(np.compress(counts == 1, slices, axis=d))))
    return count, once


def factors_of_rows(tensor: Array, frames: list[ListedFrame]) -> RowFactors:
    """Absolute factors of rows by how many numbers other than zero these have: zeros confirm no factor."""
    shared, lone = [np.zeros(0)], [np.zeros(0)]
    for frame in frames:
        others = tuple(d for d in range(tensor.ndim) if d not in frame.dims)
        rows = np.transpose(tensor, (*frame.dims, *others)).reshape(len(frame.source), -1)
        counts = np.count_nonzero(rows, axis=1)[frame.source]
        shared.append(np.abs(frame.factor)[counts > 1])
        lone.append(np.abs(frame.factor)[counts == 1])
    return RowFactors(np.concatenate(shared), lone)


def _shared_factors(factors: list[Array]) -> Array:
    """Factors and their inverses, in order."""
    values = np.unique(np.concatenate([np.ones(1), *factors]))
    return np.unique(np.concatenate([values, 1 / values]))  # with 1, which is nobody's own


def _among(values: Array, known: Array) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Which values are among those known, which are in order, up to rounding."""
    after = np.searchsorted(known, values)
    near = [known[np.clip(after + step, 0, len(known) - 1)] for step in (-1, 0)]
    return np.minimum(*(np.abs(nearest - values) for nearest in near)) <= ALIKE * values
