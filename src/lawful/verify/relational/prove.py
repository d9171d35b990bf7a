"""The assignments that are run: random tensors, the same after folds, and these after the group element.

Nothing here looks at the numbers of a file: what is shown holds for all tensors of these shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from flint import nmod_mat

from lawful.errors import CertificateError, NotACertificate, Unsupported
from lawful.verify.checkpoints.element import Form, ListedFrame, Rotation
from lawful.verify.checkpoints.folds import (
    Fold,
    ListedDrop,
    ListedGain,
    ListedMove,
    ListedStatistics,
    ListedValue,
)
from lawful.verify.core.residues import LANES, LEAST_BITS, PRIMES, Collision, Lanes, NotCovered, Residues
from lawful.verify.core.schema import check_clock, printable, require
from lawful.verify.relational.contraction import ExactFrame, Leaf, Weight, draw_weight
from lawful.verify.relational.growth import Degrees, largest, measure, parameter_growth, words_of
from lawful.verify.relational.operators import Runs
from lawful.verify.relational.program import ListedProgram, program_digest, read_program

MOST_ELIMINATED = 2 * 10**10  # steps of eliminations modulo one prime: a rotation of 2,700 coordinates

Shapes = Mapping[str, tuple[int, ...]]
Powers = dict[tuple[str, float], dict[bytes, Residues]]


class Assignment:
    """Tensors by name, and the degree of each in those that have several factors."""

    def __init__(self, field: Lanes, tensors: dict[str, Weight], degrees: dict[str, Degrees]) -> None:
        self.field, self.tensors, self.degrees = field, tensors, degrees
        self.powers: Powers = {}

    def copy(self) -> Assignment:
        """Another one to be changed."""
        return Assignment(
            self.field, dict(self.tensors), {name: dict(degrees) for name, degrees in self.degrees.items()}
        )

    def leaves(self) -> dict[str, Leaf]:
        """As the program reads them."""
        return dict(self.tensors)

    def vector(self, name: str) -> Residues:
        """A tensor of one axis, written out."""
        values = self.tensors[name].write_out(self.field)
        require(values.ndim == 2, "what is folded is no vector")
        return values

    def put_vector(self, name: str, values: Residues) -> None:
        """Another vector in its place."""
        self.tensors[name] = Weight(self.tensors[name].shape, ((0,),), (values[:, None],))

    def clear(self, name: str) -> None:
        """Zeros in its place."""
        weight = self.tensors[name]
        self.tensors[name] = Weight(
            weight.shape, weight.groups, tuple(np.zeros_like(factor) for factor in weight.factors)
        )
        self.degrees[name] = {}

    def add_degree(self, name: str, *others: str) -> None:
        """The degree of a sum with products of others."""
        for other in others:
            for key, degree in self.degrees[other].items():
                self.degrees[name][key] = self.degrees[name].get(key, 0) + degree

    # Folds, as `checkpoints/folds.py` reads them and carries them out on numbers

    def fold(self, folds: Sequence[Fold]) -> None:
        """Carry out all folds."""
        for fold in folds:
            check_clock()
            match fold:
                case ListedGain():
                    self._gain(fold)
                case ListedStatistics():
                    self._statistics(fold)
                case ListedValue():
                    self._value(fold)
                case ListedMove(source, target):
                    self.put_vector(target, self.field.reduce(self.vector(target) + self.vector(source)))
                    self.add_degree(target, source)
                    self.clear(source)
                case ListedDrop(name):
                    self.clear(name)
                case _:
                    raise NotCovered("a fold of LayerNorm and RMSNorm into each other")

    def _constant(self, value: float | Fraction, like: Residues) -> Residues:
        return np.broadcast_to(self.field.rational(Fraction(value))[:, None], like.shape)

    def _gain(self, fold: ListedGain) -> None:
        field, gain, offset, factor = self.field, fold.gain, fold.offset, None
        if gain is not None:
            vector = self.vector(gain)
            factor = field.reduce(vector + self._constant(fold.plus, vector))
        for weight, axis, bias in fold.readers:
            check_clock()
            if offset is not None and fold.has_biased_readers and bias is not None:
                self._add(bias, self.vector(offset), weight, axis)
                self.add_degree(bias, offset, weight)
            if factor is not None:
                self.tensors[weight] = self.tensors[weight].multiply(field, axis, factor)
                self.add_degree(weight, str(gain))
            if fold.centred:
                self.tensors[weight] = self.tensors[weight].centre(field, axis)
        if offset is not None and fold.has_biased_readers:
            self.clear(offset)
        elif offset is not None and factor is not None:
            self._need_vector(gain)
            self.put_vector(offset, field.times(self.vector(offset), field.inverse(factor)))
        if gain is not None:
            self.put_vector(gain, self._constant(1 - Fraction(fold.plus), self.vector(gain)))

    def _add(self, bias: str, vector: Residues, weight: str, axis: int) -> None:
        image = self.tensors[weight].apply(self.field, axis, vector)
        before = self.vector(bias)
        require(image.shape == before.shape, "a bias does not fit its layer")
        self.put_vector(bias, self.field.reduce(before + image))

    def _statistics(self, fold: ListedStatistics) -> None:
        field = self.field
        gain, offset, mean, variance, epsilon, writer = fold
        self._need_vector(variance)
        spread = self.vector(variance)
        inner = field.reduce(spread + self._constant(epsilon, spread))
        factor = field.times(self.vector(gain), self._root(inner))
        centre = field.reduce(-self.vector(mean))
        if writer is not None:
            if writer.bias is not None:
                centre = field.reduce(centre + self.vector(writer.bias))
                self.add_degree(offset, writer.bias)
                self.clear(writer.bias)
            self.tensors[writer.weight] = self.tensors[writer.weight].multiply(field, writer.axis, factor)
            self.add_degree(writer.weight, gain)
        self.add_degree(offset, gain, mean)
        self.put_vector(offset, field.reduce(self.vector(offset) + field.times(factor, centre)))
        self.put_vector(gain, self._constant(1, factor) if writer is not None else factor)
        self.clear(mean)
        self.put_vector(variance, self._constant(1 - Fraction(epsilon), factor))

    def _need_vector(self, name: str | None) -> None:
        """Quotients and roots have no degree in what a tensor of several factors was multiplied into."""
        if name is not None and self.degrees[name]:
            raise NotCovered("a quotient or a root of what was made of a matrix")

    def _root(self, values: Residues) -> Residues:
        """A variable for x^(-1/2) of each value: the same that the program's own function gets."""
        memory = self.powers.setdefault(("power", -0.5), {})
        roots = self.field.draw((values.shape[1],))
        for place, column in enumerate(np.ascontiguousarray(values.T)):
            roots[:, place] = memory.setdefault(column.tobytes(), roots[:, place].copy())
        return roots

    def _value(self, fold: ListedValue) -> None:
        before = self.vector(fold.bias)
        spread = self.field.zeros((self.tensors[fold.weight].shape[fold.axis],))
        for columns in fold.columns:
            spread[:, columns] += before[:, fold.rows]
        self._add(fold.target, self.field.reduce(spread), fold.weight, fold.axis)
        self.add_degree(fold.target, fold.bias, fold.weight)
        left = before.copy()
        left[:, fold.rows] = 0
        self.put_vector(fold.bias, left)


def draw_assignment(field: Lanes, shapes: Shapes, moved: Mapping[str, list[tuple[int, ...]]], terms: int) -> Assignment:
    """Random tensors."""
    tensors = {name: draw_weight(field, shape, moved.get(name, []), terms) for name, shape in shapes.items()}
    return Assignment(
        field, tensors, {name: {name: 1} if len(weight.groups) > 1 else {} for name, weight in tensors.items()}
    )


# The group element modulo the primes, exactly


def exact_frames(
    field: Lanes, listed_frames: Mapping[str, list[ListedFrame]], forms: list[Form]
) -> dict[str, list[ExactFrame]]:
    """What happens to the axes of each tensor; the certificate's floats are taken for the numbers that they are."""
    sizes = [
        len(form.skew) if isinstance(form, Rotation) else 0 if isinstance(form, int) else len(form) for form in forms
    ]
    work = [
        sizes[form] if isinstance(form, int) else size * isinstance(form, Rotation)
        for form, size in zip(forms, sizes, strict=True)
    ]
    if sum(size**3 for size in work) > MOST_ELIMINATED:
        raise NotCovered("matrices of such a size")
    exact = _matrices(field, forms)
    frames: dict[str, list[ExactFrame]] = {}
    for name, listed in listed_frames.items():
        for frame in listed:
            top, divisor = frame.quotient
            factor = None
            if not (top == divisor).all():
                factor = field.times(field.floats(top), field.inverse(field.floats(divisor)))
                for one, two in {*zip(top.tolist(), divisor.tolist(), strict=True)}:
                    field.know(Fraction(one) / Fraction(two))
                    field.know(Fraction(two) / Fraction(one))
            blocks = tuple((rows, exact[number]) for number, rows in frame.numbers)
            frames.setdefault(name, []).append(ExactFrame(frame.dims, frame.source, factor, blocks))
    return frames


def _matrices(field: Lanes, forms: list[Form]) -> list[Residues]:
    matrices: dict[int, Residues] = {}
    for place, form in enumerate(forms):
        if isinstance(form, Rotation):
            matrices[place] = _cayley(field, form)
        elif not isinstance(form, int):
            matrices[place] = field.floats(form)
    for place, form in enumerate(forms):
        if isinstance(form, int):
            matrices[place] = _for_each_prime(field, matrices[form], lambda m, p: _rows(_inverse(m)).T)
    return [matrices[place] for place in range(len(forms))]


def _cayley(field: Lanes, rotation: Rotation) -> Residues:
    upper = field.floats(np.triu(rotation.skew, 1))
    skew = field.reduce(upper - upper.swapaxes(1, 2))
    one = np.eye(len(rotation.skew), dtype=np.int64)

    def turn(s: Any, p: int) -> np.ndarray[Any, Any]:
        entries = _rows(s)
        return _rows(_matrix((one - entries) % p, p) * _inverse(_matrix((one + entries) % p, p)))

    return field.reduce(
        _for_each_prime(field, skew, turn)[:, rotation.order] * rotation.signs.astype(np.int64)[None, :, None]
    )


def _for_each_prime(field: Lanes, matrix: Residues, change: Any) -> Residues:
    """A function of a matrix modulo each prime; the same at both points."""
    tiles = [change(_matrix(matrix[lane], int(field.p[lane])), int(field.p[lane])) for lane in range(PRIMES)]
    return np.stack([*tiles, *tiles][:LANES])


def _matrix(entries: np.ndarray[Any, Any], p: int) -> Any:
    return nmod_mat(len(entries), len(entries), entries.reshape(-1).tolist(), p)


def _rows(matrix: Any) -> np.ndarray[Any, Any]:
    return np.array([int(entry) for entry in matrix.entries()], dtype=np.int64).reshape(matrix.nrows(), matrix.ncols())


def _inverse(matrix: Any) -> Any:
    try:
        return matrix.inv()
    except ZeroDivisionError:
        raise NotACertificate("matrices: one has no inverse") from None


# That a program computes one function before and after the folds and the group element of a certificate.


class Proof(NamedTuple):
    """What was shown, or why nothing was."""

    digest: str
    nodes: int
    unread: tuple[str, ...]  # tensors of the certificate that no output depends on
    open: str  # what no rule follows; empty if the function was shown to be the same
    bits: int = 0  # the chance of an error is below 2 to the power of minus this


def prove(*claim: Any) -> Proof:
    """What `run` shows; once more with other primes where two values shared a hash."""
    for _ in range(3):
        try:
            return run(*claim)
        except Collision:
            continue
    raise Unsupported("random points collide again and again")


def run(
    listed_program: object,
    shapes: Mapping[str, tuple[int, ...]],
    folds: list[Fold],
    listed_frames: Mapping[str, list[ListedFrame]],
    shifts: Mapping[str, list[np.ndarray[Any, Any]]],
    forms: list[Form],
    numbers: Callable[[str], tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]],
) -> Proof:
    """Run the program with random tensors, with these after the folds, and with those after the element.

    Rejects the certificate if outputs differ, and names the first node where a function meets a value of its own.
    """
    digest, nodes, unread, bits = "", 0, tuple[str, ...](), 0
    try:
        digest = program_digest(listed_program)
        program = read_program(listed_program, dict(shapes))
        nodes = len(program.nodes)
        unread = tuple(name for name in shapes if name not in _read(program))
        field = Lanes()  # primes and points are drawn here, when all has been read
        frames = exact_frames(field, listed_frames, forms)
        moved = {name: [frame.dims for frame in listed] for name, listed in frames.items()}
        drawn = draw_assignment(field, shapes, moved, 1)
        folded_once = drawn.copy()
        folded_once.fold(folds)
        # A fold may clear a tensor: the run before the folds has its degree all the same.
        products = {name: largest([drawn.degrees[name], folded_once.degrees[name]]) for name in shapes}
        leaves = parameter_growth(shapes, folds, listed_frames, shifts, forms, products)
        constants = {node.attributes["name"] for node in program.nodes if node.op == "held"}
        words = {name: words_of(numbers(name)[0]) for name in constants}
        terms, generic, bits = measure(program, leaves, words, 3)
        if bits < LEAST_BITS:
            raise NotCovered("products of so many values")
        first = draw_assignment(field, shapes, moved, terms)
        sides = [first]
        if folds:
            folded = first.copy()
            folded.fold(folds)
            sides.append(folded)
        last = sides[-1].copy()
        for name, listed in frames.items():
            for frame in listed:
                last.tensors[name] = last.tensors[name].act(field, frame)
        for name, pieces in shifts.items():
            for piece in pieces:
                check_clock()
                last.tensors[name] = last.tensors[name].add(field, piece)
        sides.append(last)

        def held(name: str) -> np.ndarray[Any, Any]:
            """Numbers that both files have and nothing moves are constants of the program."""
            one, two = numbers(name)
            still = (
                name not in frames
                and name not in shifts
                and all(side.tensors[name] is first.tensors[name] for side in sides)
            )
            require(still and np.array_equal(one, two), "a tensor that the program takes for a constant is moved")
            return one

        runs = Runs(field, program, [side.leaves() for side in sides], generic, held)
        for side in sides:
            for key, values in side.powers.items():
                runs.known.setdefault(key, {}).update(values)
        if not runs.outputs_agree():
            where = printable(str(runs.parted))[:80] if runs.parted else "an output"
            raise CertificateError(
                f"the program computes another function with what is listed: its values part at {where}"
            )
    except NotCovered as reason:
        return Proof(digest, nodes, unread, printable(str(reason))[:120])
    return Proof(digest, nodes, unread, "", bits)


def _read(program: ListedProgram) -> set[str]:
    """The tensors on which the outputs depend: a program that leaves them out says nothing of them."""
    live = set(program.outputs)
    for node in reversed(program.nodes):
        if node.number in live:
            live.update(node.operands)
    leaves = [node for node in program.nodes if node.number in live and node.op in ("parameter", "held")]
    return {node.attributes["name"] for node in leaves}
