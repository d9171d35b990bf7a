"""`.safetensors`: a length, a JSON header, then raw numbers; the header is believed only as far as the file reaches."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lawful.errors import InvalidNetwork, Unsupported
from lawful.extras import needed
from lawful.formats.io.limits import check_entries, check_numbers, check_shape
from lawful.formats.io.reading import refuse_duplicates
from lawful.formats.tensors.arrays import StoredArrays
from lawful.network.reading import TensorReading
from lawful.network.validity import check_names

if TYPE_CHECKING:
    import torch

MAX_HEADER = 16 * 2**20
TYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2",
    "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1", "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1",
    "BOOL": "?", "F8_E4M3": "u1", "F8_E5M2": "u1",
}  # fmt: skip
NARROW = {"BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2"}  # types that NumPy has not
DTYPES = {kind: np.dtype(code).name for kind, code in TYPES.items()} | NARROW
KINDS = {f"torch.{name}": kind for kind, name in DTYPES.items()}


class Place(NamedTuple):
    """Where a tensor lies in the file: first and last byte, type and shape."""

    begin: int
    end: int
    kind: str
    shape: tuple[int, ...]


def contents(path: Path) -> tuple[dict[str, Place], dict[str, str]]:
    """What the header says and the file's length confirms, without reading a number; and its metadata."""
    size = path.stat().st_size
    with path.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if size < 8 or length > size - 8:
            raise InvalidNetwork(f"its header claims {length:,} bytes, but the file has {size:,}")
        if length > MAX_HEADER:
            raise InvalidNetwork(f"its header takes {length:,} bytes, more than the {MAX_HEADER:,} that are read")
        header = _header(stream.read(length))
    metadata = header.pop("__metadata__", None)
    texts = metadata if isinstance(metadata, dict) and all(isinstance(text, str) for text in metadata.values()) else {}
    start = 8 + length
    check_entries(len(header))
    check_names(header)
    places: dict[str, Place] = {}
    reached = 0
    # In the order of their bytes each tensor begins where the last ended: gaps and overlaps are the same comparison.
    for (begin, stop, kind, shape), name in sorted((_entry(name, entry), name) for name, entry in header.items()):
        count = check_shape(f"tensor {name[:80]!r}", shape)
        if begin != reached or stop - begin != count * np.dtype(TYPES[kind]).itemsize or start + stop > size:
            raise InvalidNetwork(
                f"tensor {name[:80]!r} claims bytes {begin} to {stop} for shape {shape} of {kind}, "
                f"which does not fit (it follows byte {reached} of {size - start})"
            )
        reached = stop
        places[name] = Place(start + begin, start + stop, kind, shape)
    if reached != size - start:
        raise InvalidNetwork(f"its tensors take {reached:,} bytes, but {size - start:,} follow the header")
    return places, texts


def load(path: Path) -> StoredArrays:
    """The arrays of the file in the order of their bytes, and the slopes it states, if any."""
    places, metadata = contents(path)
    arrays: dict[str, NDArray[Any]] = {}
    for name, place in places.items():
        count = check_numbers(f"tensor {name[:80]!r}", place.shape)
        kind = np.dtype(TYPES[place.kind])
        flat = np.memmap(path, kind, "r", place.begin, (count,)) if count else np.zeros(0, kind)
        arrays[name] = (_widen(place.kind, flat) if place.kind in NARROW else flat).reshape(place.shape)
    kinds = {name: DTYPES[place.kind] for name, place in places.items()}
    return StoredArrays(arrays, kinds, _slopes(metadata), metadata=metadata)


def load_tensors(path: Path) -> dict[str, torch.Tensor]:
    """The tensors themselves, mapped from the file."""
    from safetensors.torch import load_file

    contents(path)
    return dict(load_file(path))


def layers(path: Path) -> tuple[TensorReading, ...]:
    """Names, types and shapes, without reading a number."""
    return tuple(TensorReading(name, DTYPES[at.kind], at.shape) for name, at in contents(path)[0].items())


def dump(
    arrays: Mapping[str, NDArray[Any]],
    dtypes: Mapping[str, str],
    slopes: tuple[float, ...] | None,
    metadata: Mapping[str, str] | None = None,
) -> bytes:
    """The bytes of a file that holds the arrays, with the metadata of the file they came from."""
    stated = {} if slopes is None else {"lawful.slopes": json.dumps(slopes)}
    described = {**(metadata or {}), **stated} or None
    if "bfloat16" not in dtypes.values():
        from safetensors.numpy import save as save_arrays

        rounded = {
            name: np.array(array, dtypes.get(name, array.dtype.name), order="C") for name, array in arrays.items()
        }
        return save_arrays(rounded, described)
    torch = needed("torch")
    from safetensors.torch import save

    tensors = {name: torch.from_numpy(np.array(array, order="C")) for name, array in arrays.items()}
    stored = {
        name: tensor.to(getattr(torch, dtypes.get(name, "float64"))) if name in dtypes else tensor
        for name, tensor in tensors.items()
    }
    return save(stored, described)


def write_tensors(
    path: Path,
    described: Mapping[str, tuple[torch.dtype, tuple[int, ...]]],
    tensor: Callable[[str], torch.Tensor],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write tensors one by one, each asked for when its turn comes; their types and shapes are known before.

    Wide types come first, so that every tensor begins at a multiple of its type's size.
    """
    import torch

    # Sizes are known before any tensor is made, so the header can be written first and one tensor held at a time.
    order = sorted(described, key=lambda name: (-described[name][0].itemsize, name))
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    reached = 0
    for name in order:
        kind, shape = described[name]
        if str(kind) not in KINDS:
            raise Unsupported(f"tensor {name[:80]!r}: {kind} is not written to .safetensors")
        begin, reached = reached, reached + math.prod(shape) * kind.itemsize
        header[name] = {"dtype": KINDS[str(kind)], "shape": list(shape), "data_offsets": [begin, reached]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        for name in order:
            kind, shape = described[name]
            numbers = tensor(name).detach().cpu().to(kind).contiguous()
            if tuple(numbers.shape) != shape:
                raise InvalidNetwork(f"tensor {name[:80]!r} is of shape {tuple(numbers.shape)}, not {shape}")
            stream.write(numbers.reshape(-1).view(torch.uint8).numpy().data if numbers.numel() else b"")


def _header(text: bytes) -> dict[str, Any]:
    try:
        header = json.loads(text, object_pairs_hook=refuse_duplicates)
    except (ValueError, RecursionError) as error:
        raise InvalidNetwork(f"its header is not JSON: {str(error)[:120]}") from None
    if not isinstance(header, dict):
        raise InvalidNetwork("its header is not a JSON object")
    return header


def _entry(name: str, entry: Any) -> tuple[int, int, str, tuple[int, ...]]:
    """Begin, end, type and shape that the header gives for a tensor."""
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise InvalidNetwork(f"tensor {name[:80]!r} needs exactly dtype, shape and data_offsets")
    kind, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    whole = (
        [*shape, *offsets] if isinstance(shape, list) and isinstance(offsets, list) and len(offsets) == 2 else [None]
    )
    if not all(type(number) is int and number >= 0 for number in whole):
        raise InvalidNetwork(f"tensor {name[:80]!r} needs a shape and two offsets made of whole numbers")
    if not isinstance(kind, str) or kind not in TYPES:
        raise Unsupported(f"tensor {name[:80]!r} has type {str(kind)[:20]}: supported are {', '.join(TYPES)}")
    return offsets[0], offsets[1], kind, tuple(shape)


def _slopes(metadata: Mapping[str, str]) -> list[float] | None:
    if "lawful.slopes" not in metadata:
        return None
    try:
        slopes = json.loads(metadata["lawful.slopes"])
        return [float(slope) for slope in slopes]
    except (TypeError, ValueError, RecursionError):
        raise InvalidNetwork("its metadata 'lawful.slopes' is not a list of numbers") from None


def _widen(kind: str, bits: NDArray[Any]) -> NDArray[Any]:
    """Types that NumPy has not, as float32: bfloat16 is the upper half of one, float8_e5m2 that of a half float."""
    if kind == "BF16":
        return np.asarray((bits.astype(np.uint32) << 16).view(np.float32))
    if kind == "F8_E5M2":
        return np.asarray((bits.astype(np.uint16) << 8).view(np.float16).astype(np.float32))
    return np.asarray(FLOAT8[bits])


def _float8_values() -> NDArray[np.float32]:
    """What the 256 bit patterns of float8_e4m3fn stand for: no infinity; NaN where all bits are set."""
    bits = np.arange(256)
    exponent, fraction = (bits >> 3) & 15, bits & 7
    size = np.where(exponent, np.ldexp(8.0 + fraction, exponent - 10), np.ldexp(1.0 * fraction, -9))
    size[(bits & 127) == 127] = np.nan
    signed: NDArray[np.float64] = np.where(bits & 128, -1.0, 1.0) * size
    return signed.astype(np.float32)


FLOAT8 = _float8_values()
