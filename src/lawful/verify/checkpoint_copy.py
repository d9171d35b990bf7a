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
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lawful.errors import CertificateError, NotACertificate
from lawful.verify.finding import Finding, short
from lawful.verify.schema import afford, listed, need, number, record, truth, whole, wholes, word

Array = np.ndarray[Any, np.dtype[np.float64]]
Tensors = dict[str, Array]
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
    folds = listed(parts["folds"], "folds", most=100_000)
    matrices, off = _matrices(parts["matrices"])
    frames = [_frame(each, matrices, raw[1]) for each in listed(parts["frames"], "frames", most=1_000_000)]
    need(len({(name, dims) for name, dims, *_ in frames}) == len(frames), "an axis is moved twice")
    moved_only = {_name(each, raw[1], "moved") for each in listed(parts["moved"], "moved", most=1_000_000)}
    one, size_one, terms_one = _folded(raw[0], folds)
    two, size_two, terms_two = _folded(raw[1], folds)
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
    statement = _statement(digests, total, exact, worst, furthest, folds, len(names), (len(matrices), off), added)
    facts = {"tensors": len(names), "numbers": total, "moved_only": exact, "entry": worst, "tensor": where,
             "relative": furthest, "folds": len(folds), "matrices": len(matrices), "inverse": off}  # fmt: skip
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


def _names(value: object) -> dict[str, tuple[str, str]]:
    found: dict[str, tuple[str, str]] = {}
    for each in listed(value, "tensors", most=1_000_000):
        entry = listed(each, "tensors", length=3)
        if not all(isinstance(part, str) for part in entry):
            raise NotACertificate("tensors: expected three names")
        found[entry[0]] = (entry[1], entry[2])
    need(len({key for key, _ in found.values()}) == len(found), "a tensor of A is named twice")
    need(len({key for _, key in found.values()}) == len(found), "a tensor of B is named twice")
    return found


def _picked(file: Mapping[str, Array], names: dict[str, tuple[str, str]], place: int) -> Tensors:
    found = {}
    for name, keys in names.items():
        need(keys[place] in file, "a tensor of the certificate is not in the file")
        found[name] = np.asarray(file[keys[place]], dtype=np.float64)
        need(bool(np.isfinite(found[name]).all()), "a file holds numbers that are not finite")
    need(len(file) == len(names), "a file holds tensors that the certificate does not speak of")
    return found


def _name(value: object, tensors: Tensors, where: str) -> str:
    if not isinstance(value, str) or value not in tensors:
        raise NotACertificate(f"{where}: names no tensor of the certificate")
    return value


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
    name = _name(parts["tensor"], tensors, "frames")
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
        name = _name(parts["tensor"], tensors, "shifts")
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


# Folding


def _folded(raw: Tensors, folds: list[Any]) -> tuple[Tensors, Tensors, dict[str, int]]:
    """Tensors after all folds, the sums of the absolute values of their terms, and how many terms these have."""
    state, sizes, terms = dict(raw), {name: np.abs(array) for name, array in raw.items()}, dict.fromkeys(raw, 1)
    for each in folds:
        if not isinstance(each, dict):
            raise NotACertificate("folds: expected objects")
        kind = word(each.get("fold"), "folds", "gain", "statistics", "value")
        if kind == "gain":
            _gain(record(each, "folds", "fold gain offset plus readers centred"), raw, state, sizes, terms)
        elif kind == "statistics":
            _statistics(
                record(each, "folds", "fold gain offset mean variance epsilon writer"), raw, state, sizes, terms
            )
        else:
            _value(record(each, "folds", "fold bias rows columns reader"), raw, state, sizes, terms)
    return state, sizes, terms


def _reader(value: object, tensors: Tensors) -> tuple[str, int, str | None]:
    parts = record(value, "reader", "weight axis bias")
    weight = _name(parts["weight"], tensors, "reader")
    axis = whole(parts["axis"], "reader", 0, tensors[weight].ndim - 1)
    return weight, axis, None if parts["bias"] is None else _name(parts["bias"], tensors, "reader")


def _laid(vector: Array, axis: int, rank: int) -> Array:
    return vector.reshape([-1 if d == axis else 1 for d in range(rank)])


def _gain(each: dict[str, Any], raw: Tensors, state: Tensors, sizes: Tensors, terms: dict[str, int]) -> None:
    gain = None if each["gain"] is None else _name(each["gain"], raw, "folds")
    offset = None if each["offset"] is None else _name(each["offset"], raw, "folds")
    plus, centred = number(each["plus"], "folds"), truth(each["centred"], "folds")
    readers = [_reader(one, raw) for one in listed(each["readers"], "folds", most=10_000)]
    need(bool(readers), "a gain is folded into nothing")
    factor = None if gain is None else state[gain] + plus
    carried = all(bias is not None for _, _, bias in readers)
    for weight, axis, bias in readers:
        need(
            factor is None or factor.shape == (raw[weight].shape[axis],), "a gain does not fit the layer that reads it"
        )
        if offset is not None and carried and bias is not None:
            state[bias] = state[bias] + np.tensordot(state[offset], state[weight], axes=([0], [axis]))
            sizes[bias] = sizes[bias] + np.tensordot(sizes[offset], sizes[weight], axes=([0], [axis]))
            terms[bias] += raw[weight].shape[axis]
        if factor is not None:
            state[weight] = state[weight] * _laid(factor, axis, raw[weight].ndim)
            sizes[weight] = sizes[weight] * _laid(np.abs(factor), axis, raw[weight].ndim)
        if centred:
            state[weight] = state[weight] - state[weight].mean(axis, keepdims=True)
            sizes[weight] = sizes[weight] + sizes[weight].mean(axis, keepdims=True)
            terms[weight] += raw[weight].shape[axis]
    if offset is not None:
        if carried or factor is None:
            state[offset], sizes[offset] = np.zeros_like(state[offset]), np.zeros_like(state[offset])
        else:
            need(bool((factor != 0).all()), "an offset is divided by a gain of zero")
            state[offset], sizes[offset] = state[offset] / factor, sizes[offset] / np.abs(factor)
    if gain is not None:
        state[gain] = np.full_like(state[gain], 1.0 - plus)
        sizes[gain] = np.abs(state[gain])


def _statistics(each: dict[str, Any], raw: Tensors, state: Tensors, sizes: Tensors, terms: dict[str, int]) -> None:
    gain, offset, mean, variance = (_name(each[key], raw, "folds") for key in ("gain", "offset", "mean", "variance"))
    epsilon = number(each["epsilon"], "folds")
    need(bool((raw[variance] + epsilon > 0).all()), "a variance is negative")
    deviation = np.sqrt(raw[variance] + epsilon)
    factor, size = state[gain] / deviation, np.abs(state[gain]) / deviation
    centre, spread = -state[mean], np.abs(state[mean])
    if each["writer"] is not None:
        weight, axis, bias = _reader(each["writer"], raw)
        need(factor.shape == (raw[weight].shape[axis],), "statistics do not fit the layer before them")
        if bias is not None:
            centre, spread = centre + state[bias], spread + sizes[bias]
            state[bias], sizes[bias] = np.zeros_like(centre), np.zeros_like(centre)
        state[weight] = state[weight] * _laid(factor, axis, raw[weight].ndim)
        sizes[weight] = sizes[weight] * _laid(size, axis, raw[weight].ndim)
    state[offset], sizes[offset] = state[offset] + factor * centre, sizes[offset] + size * spread
    terms[offset] += 3
    state[gain] = np.ones_like(factor) if each["writer"] is not None else factor
    sizes[gain] = np.abs(state[gain])
    state[mean], sizes[mean] = np.zeros_like(centre), np.zeros_like(centre)
    state[variance] = np.full_like(centre, 1.0 - epsilon)
    sizes[variance] = np.abs(state[variance])


def _value(each: dict[str, Any], raw: Tensors, state: Tensors, sizes: Tensors, terms: dict[str, int]) -> None:
    bias = _name(each["bias"], raw, "folds")
    rows = np.array(wholes(each["rows"], "folds", 0, len(raw[bias]) - 1))
    weight, axis, target = _reader(each["reader"], raw)
    need(target is not None and target != bias, "the bias of values has no output to go to")
    for columns in listed(each["columns"], "folds", most=10_000):
        picked = np.array(wholes(columns, "folds", 0, raw[weight].shape[axis] - 1, length=len(rows)))
        parts = np.moveaxis(state[weight], axis, 0)[picked], np.moveaxis(sizes[weight], axis, 0)[picked]
        state[str(target)] = state[str(target)] + np.tensordot(state[bias][rows], parts[0], axes=([0], [0]))
        sizes[str(target)] = sizes[str(target)] + np.tensordot(sizes[bias][rows], parts[1], axes=([0], [0]))
        terms[str(target)] += len(rows)
    state[bias], sizes[bias] = state[bias].copy(), sizes[bias].copy()
    state[bias][rows] = 0
    sizes[bias][rows] = 0
