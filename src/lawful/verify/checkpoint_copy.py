"""That the numbers of one checkpoint are those of another, moved, scaled and mixed as listed.

The certificate lists folds (a gain into the layer that reads it, a BatchNorm into the layer before it, a bias of values
into the output of attention), then for every axis of every tensor of B a permutation, factors and matrices, then
constants that are added. All of it is carried out here on the tensors of the two files in float64, and each entry is
compared. Every matrix has to be orthogonal or the inverse transposed of another one. That what is listed leaves the
function alone is a statement about the architecture, which is not in the files: it is not checked here, and the
statement says so.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lawful.errors import CertificateError, NotACertificate
from lawful.verify.checkpoint_folds import Array, Tensors, folded, name_of
from lawful.verify.finding import Finding, short
from lawful.verify.schema import afford, listed, need, number, record, truth, whole, wholes

ULP = 2.0**-53
CHAIN = 8  # roundings of one entry besides those of its sums
CONSISTENT = 1e-9  # what two ways of adding up the same numbers may differ by
INVERSE = 1e-6


def check(body: Mapping[str, Any], files: Sequence[Mapping[str, Array]]) -> Finding:
    """Check the certificate against the tensors of two files, given in float64 by their names there."""
    parts = record(dict(body), "certificate", "tensors folds matrices frames shifts moved")
    if len(files) != 2:
        raise CertificateError("it is about the numbers of two checkpoints: give both files, A and then B")
    digests = tuple(_digest(file) for file in files)
    names = _names(parts["tensors"])
    size = sum(array.size for array in files[0].values())
    afford(float(size))
    raw = tuple(_picked(file, names, place) for place, file in enumerate(files))
    need(all(raw[0][name].shape == raw[1][name].shape for name in names), "tensors of A and B are of different sizes")
    folds = listed(parts["folds"], "folds", most=100_000)
    matrices, off = _matrices(parts["matrices"])
    frames = [_frame(each, matrices, raw[1]) for each in listed(parts["frames"], "frames", most=1_000_000)]
    need(len({(name, dims) for name, dims, *_ in frames}) == len(frames), "an axis is moved twice")
    moved_only = {name_of(each, raw[1], "moved") for each in listed(parts["moved"], "moved", most=1_000_000)}
    one, size_one, terms_one, dropped_one = folded(raw[0], folds)
    two, size_two, terms_two, dropped_two = folded(raw[1], folds)
    exact, worst, where, furthest = 0, 0.0, "", 0.0
    total = 0
    shifts = _shifts(parts["shifts"], raw[1])
    for name in names:
        total += one[name].size
        turned = _moved(two[name], name, frames, absolute=False)
        sizes = np.maximum(_moved(size_two[name], name, frames, absolute=True), size_one[name])
        terms = terms_one[name] + terms_two[name] + _terms(name, frames)
        for piece in shifts.get(name, ()):
            turned = turned + piece
            sizes = sizes + np.abs(piece)
        gap = np.abs(turned - one[name])
        need(bool(np.isfinite(gap).all()), "an entry is not finite")
        need(not bool((gap[sizes == 0] > 0).any()), "an entry differs where nothing was added up")
        share = float((gap / np.where(sizes > 0, sizes, 1.0)).max(initial=0.0)) + 4 * (terms + CHAIN) * ULP
        if name in moved_only and name not in shifts:
            plain = _moved(raw[1][name], name, frames, absolute=False)
            if np.array_equal(raw[0][name], plain):
                need(share < CONSISTENT, "what is folded into a tensor was not moved with it")
                exact += plain.size
                continue
            need(_alike(raw[0][name], plain), "a tensor that is said to be moved only is another one")
        length = float(np.linalg.norm(one[name]))
        furthest = max(furthest, float(np.linalg.norm(gap)) / length if length else 0.0)
        if share > worst:
            worst, where = share, name
    added = sum(piece.size for pieces in shifts.values() for piece in pieces), len(shifts)
    dropped = {name: max(count, dropped_two[name]) for name, count in dropped_one.items()}
    statement = _statement(digests, total, exact, worst, furthest, folds, len(names), (len(matrices), off), added)
    statement += _listed_parts(parts["tensors"], dropped)
    facts = {"tensors": len(names), "numbers": total, "moved_only": exact, "entry": worst, "tensor": where,
             "relative": furthest, "folds": len(folds), "matrices": len(matrices), "inverse": off,
             "dropped": sum(dropped.values())}  # fmt: skip
    return Finding(statement, facts, digests)


def _statement(
    digests: tuple[str, ...],
    total: int,
    exact: int,
    worst: float,
    furthest: float,
    folds: list[Any],
    tensors: int,
    matrices: tuple[int, float],
    added: tuple[int, int],
) -> str:
    lines = f"{short(digests[1])} holds the {total:,} numbers of {short(digests[0])} in {tensors} tensors, "
    lines += "permuted, scaled and mixed as the certificate lists"
    lines += f" after {len(folds)} folds" if folds else ""
    if exact == total:
        lines += ": every number exactly"
    else:
        lines += f": {exact:,} of them are merely moved and equal, each other entry is within {worst:.1e} of the sum "
        lines += f"of the absolute values of its terms, no tensor is off by more than {furthest:.1e} of its size"
    if added[0]:
        lines += f". {added[0]:,} constants are added to {added[1]} tensors"
    if matrices[0]:
        lines += f". The {matrices[0]} matrices are orthogonal or pairs of inverses up to {matrices[1]:.0e}"
    return lines + ". Not checked: that what is listed leaves the function of this architecture as it is"


def _listed_parts(names: list[Any], dropped: Mapping[str, int]) -> str:
    """What was not simply read from the files."""
    words = ""
    made = sum(isinstance(source, dict) and "parts" in source for _, *sources in names for source in sources)
    constant = sum(isinstance(source, dict) and "constant" in source for _, *sources in names for source in sources)
    if made:
        words += f". {made} tensors are joined or cut from those of a file"
    if constant:
        words += f". {constant} tensors that one file lacks are constants"
    if count := sum(dropped.values()):
        words += f". {count:,} numbers that are not zero are left out as dead: {', '.join(sorted(dropped))[:160]}"
    return words


def tensors_digest(tensors: Mapping[str, Array]) -> str:
    """Names tensors by their numbers."""
    return _digest(tensors)


def _digest(tensors: Mapping[str, Array]) -> str:
    total = hashlib.sha256()
    for key in sorted(tensors):
        array = np.ascontiguousarray(tensors[key], dtype="<f8")
        total.update(f"{key}\n{list(array.shape)}\n".encode())
        total.update(array.tobytes())
    return f"checkpoint:{total.hexdigest()[:32]}"


# Reading


Source = str | dict[str, Any]


def _names(value: object) -> dict[str, tuple[Source, Source]]:
    """For each tensor of the common form, the tensor of each file that it is, or how it is made of some."""
    found: dict[str, tuple[Source, Source]] = {}
    for each in listed(value, "tensors", most=1_000_000):
        name, *sources = listed(each, "tensors", length=3)
        if not isinstance(name, str) or not all(isinstance(part, (str, dict)) for part in sources):
            raise NotACertificate("tensors: expected a name and two sources")
        need(name not in found, "a tensor is named twice")
        found[name] = (sources[0], sources[1])
    return found


def _picked(file: Mapping[str, Array], names: dict[str, tuple[Source, Source]], place: int) -> Tensors:
    """The tensors of the common form; every number of the file has to be in them."""
    found: Tensors = {}
    used: dict[str, list[Any]] = {}  # for each tensor of the file, the rows that were taken
    budget = 4 * sum(array.size for array in file.values()) + 1_000
    for name, sources in names.items():
        source = sources[place]
        if isinstance(source, str):
            need(source in file, "a tensor of the certificate is not in the file")
            found[name] = np.asarray(file[source], dtype=np.float64)
            used.setdefault(source, []).append(None)
        elif "constant" in source:
            parts = record(source, "tensors", "constant shape")
            shape = tuple(wholes(parts["shape"], "tensors", 1, 10**9, most=8))
            need(math.prod(shape) <= budget, "a constant tensor is larger than the file")
            found[name] = np.full(shape, number(parts["constant"], "tensors"))
        else:
            found[name] = _joined(record(source, "tensors", "parts axis transposed rows"), file, used)
        budget -= found[name].size
        need(budget >= 0, "the tensors of a file are used too often")
        need(bool(np.isfinite(found[name]).all()), "a file holds numbers that are not finite")
    for key, array in file.items():
        need(key in used, "a file holds tensors that the certificate does not speak of")
        if None not in used[key]:
            count = array.shape[used[key][0][0]] if array.ndim else 1
            rows = np.unique(np.concatenate([rows for _, rows in used[key]]))
            same_axis = len({axis for axis, _ in used[key]}) == 1
            need(same_axis and len(rows) == count, "a file holds rows that the certificate does not speak of")
    return found


def _joined(parts: dict[str, Any], file: Mapping[str, Array], used: dict[str, list[Any]]) -> Array:
    """Tensors (or so many zeros) joined along an axis, then rows of that."""
    turned = truth(parts["transposed"], "tensors")
    pieces: list[Array] = []
    owners: list[tuple[str | None, int]] = []
    axis = whole(parts["axis"], "tensors", 0, 8)
    for part in listed(parts["parts"], "tensors", most=64):
        if isinstance(part, str):
            need(part in file, "a tensor of the certificate is not in the file")
            piece = np.asarray(file[part], dtype=np.float64)
            need(axis < max(piece.ndim, 1) and (not turned or piece.ndim == 2), "a tensor is joined along no axis")
            pieces.append(piece.T if turned else piece)
        else:
            pieces.append(np.zeros(whole(part, "tensors", 1, 1_000_000)))
        owners += [(part if isinstance(part, str) else None, row) for row in range(pieces[-1].shape[axis])]
    shapes = {tuple(n for d, n in enumerate(piece.shape) if d != axis) for piece in pieces}
    need(len(shapes) == 1, "tensors that are joined do not fit each other")
    whole_tensor = np.concatenate(pieces, axis)
    count = len(owners)
    rows = range(count) if parts["rows"] is None else wholes(parts["rows"], "tensors", 0, count - 1)
    need(len(set(rows)) == len(rows), "a row is taken twice")
    taken: dict[str, list[int]] = {}
    for row in rows:
        owner, place = owners[row]
        if owner is not None:
            taken.setdefault(owner, []).append(place)
    for owner, places in taken.items():
        used.setdefault(owner, []).append((1 - axis if turned else axis, np.array(places)))
    return np.take(whole_tensor, np.array(rows, dtype=int), axis)


def _unpacked(value: object, where: str, count: int) -> Array:
    if not isinstance(value, str):
        raise NotACertificate(f"{where}: expected packed numbers")
    try:
        raw = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise NotACertificate(f"{where}: packed numbers are damaged") from None
    if len(raw) != 8 * count:
        raise NotACertificate(f"{where}: expected {count} packed numbers")
    found = np.frombuffer(raw, dtype="<f8").astype(np.float64)
    need(bool(np.isfinite(found).all()), "a number of the certificate is not finite")
    return found


def _matrices(value: object) -> tuple[list[Array], float]:
    """Matrices, each orthogonal or with a partner that is its inverse transposed; and how far from that at most."""
    found, partners = [], []
    for each in listed(value, "matrices", most=1_000_000):
        parts = record(each, "matrices", "size values partner")
        size = whole(parts["size"], "matrices", 1, 100_000)
        found.append(_unpacked(parts["values"], "matrices", size * size).reshape(size, size))
        partners.append(whole(parts["partner"], "matrices", 0))
    off = 0.0
    for matrix, partner in zip(found, partners, strict=True):
        need(partner < len(found) and found[partner].shape == matrix.shape, "a matrix has no partner")
        gap = np.abs(matrix @ found[partner].T - np.eye(len(matrix))) / np.maximum(
            np.abs(matrix) @ np.abs(found[partner]).T, 1.0
        )
        off = max(off, float(gap.max()))
    need(off <= INVERSE, "a matrix is neither orthogonal nor inverse to its partner")
    return found, off


Frame = tuple[str, tuple[int, ...], "np.ndarray[Any, Any]", Array, list[tuple["np.ndarray[Any, Any]", Array]]]


def _frame(value: object, matrices: list[Array], tensors: Tensors) -> Frame:
    parts = record(value, "frames", "tensor dims source factor blocks")
    name = name_of(parts["tensor"], tensors, "frames")
    shape = tensors[name].shape
    dims = tuple(wholes(parts["dims"], "frames", 0, len(shape) - 1, most=len(shape)))
    need(len(set(dims)) == len(dims), "a dimension is named twice")
    count = int(np.prod([shape[d] for d in dims], dtype=int))
    source = np.array(wholes(parts["source"], "frames", 0, count - 1, length=count))
    need(len(np.unique(source)) == count, "the rows of an axis are not permuted")
    factor = _unpacked(parts["factor"], "frames", count)
    need(bool((factor != 0).all()), "a row is multiplied by zero")
    blocks = []
    used = np.zeros(count, dtype=bool)
    for each in listed(parts["blocks"], "frames", most=1_000_000):
        entry = record(each, "blocks", "rows matrix")
        matrix = matrices[whole(entry["matrix"], "blocks", 0, len(matrices) - 1)]
        rows = np.array([wholes(line, "blocks", 0, count - 1, length=len(matrix))
                         for line in listed(entry["rows"], "blocks", most=count)])  # fmt: skip
        need(rows.ndim == 2 and len(np.unique(rows)) == rows.size and not used[rows].any(), "rows are mixed twice")
        used[rows.reshape(-1)] = True
        need(np.linalg.matrix_rank(matrix) == len(matrix), "a matrix has no inverse")
        blocks.append((rows, matrix))
    return name, dims, source, factor, blocks


def _shifts(value: object, tensors: Tensors) -> dict[str, list[Array]]:
    found: dict[str, list[Array]] = {}
    for each in listed(value, "shifts", most=1_000_000):
        parts = record(each, "shifts", "tensor shape values")
        name = name_of(parts["tensor"], tensors, "shifts")
        shape = tuple(wholes(parts["shape"], "shifts", 1, 10**9, length=tensors[name].ndim))
        need(all(s in (1, t) for s, t in zip(shape, tensors[name].shape, strict=True)), "a shift does not fit")
        piece = _unpacked(parts["values"], "shifts", int(np.prod(shape, dtype=int))).reshape(shape)
        found.setdefault(name, []).append(piece)
    return found


# Acting


def _moved(tensor: Array, name: str, frames: list[Frame], *, absolute: bool) -> Array:
    for owner, dims, source, factor, blocks in frames:
        if owner != name:
            continue
        shape = tensor.shape
        rest = [d for d in range(tensor.ndim) if d not in dims]
        order = [*dims, *rest]
        rows = np.transpose(tensor, order).reshape(len(source), -1)[source]
        rows = rows * (np.abs(factor) if absolute else factor)[:, None]
        for table, matrix in blocks:
            for line in table:
                rows[line] = (np.abs(matrix) if absolute else matrix) @ rows[line]
        tensor = np.transpose(rows.reshape([shape[d] for d in order]), np.argsort(order))
    return tensor


def _terms(name: str, frames: list[Frame]) -> int:
    return sum(max((len(matrix) for _, matrix in blocks), default=1) for owner, *_, blocks in frames if owner == name)


def _alike(one: Array, two: Array) -> bool:
    """Equal as they are, or once both are stored as float32, float16 or bfloat16."""
    if np.array_equal(one, two):
        return True
    with np.errstate(over="ignore"):
        narrow = one.astype(np.float32), two.astype(np.float32)
        return (
            np.array_equal(*narrow)
            or np.array_equal(one.astype(np.float16), two.astype(np.float16))
            or np.array_equal(_bfloat16(narrow[0]), _bfloat16(narrow[1]))
        )


def _bfloat16(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    bits = np.ascontiguousarray(values).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
