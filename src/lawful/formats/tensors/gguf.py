"""`.gguf`: facts, a list of tensors, then their blocks; numbers are what llama.cpp computes with, in float32.

The header is believed only as far as the file reaches, and no number is read before a tensor is asked for. Layouts are
those of `ggml-common.h`; each block type is dequantised in the order of operations of `ggml-quants.c`, so the numbers
are the runtime's own, bit by bit.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lawful.errors import InvalidNetwork, Unsupported
from lawful.formats.io.limits import check_entries, check_numbers, check_shape
from lawful.formats.tensors.arrays import StoredArrays
from lawful.network.reading import TensorReading
from lawful.network.validity import check_names

if TYPE_CHECKING:
    import torch

MAGIC = b"GGUF"
VERSIONS = (2, 3)  # 1 counted in 32 bits, and no tool has written it since August 2023
MAX_FACTS, MAX_TEXT, MAX_LIST = 4096, 2**20, 2**20  # a vocabulary is a list of some 10^5 texts
MAX_HEADER = 256 * 2**20
FACTS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
TEXT, LIST = 8, 9
KEPT = 64  # entries of a list of facts that are kept: nothing here asks for a vocabulary
BLOCK, SUPER = 32, 256  # numbers of a block, and of a block of blocks
Bytes = NDArray[np.uint8]
Values = NDArray[np.float32]


class BlockType(NamedTuple):
    """How numbers are stored: so many in so many bytes; `step` tells the distance of neighbouring values by block."""

    name: str
    numbers: int
    bytes: int
    dequantise: Callable[[Bytes], Any]
    step: Callable[[Bytes], Any] | None = None


class BlockPlace(NamedTuple):
    """Where a tensor lies: its first byte, type and shape, the slowest axis first."""

    begin: int
    kind: int
    shape: tuple[int, ...]


def contents(path: Path) -> tuple[dict[str, BlockPlace], dict[str, Any]]:
    """The tensors and facts that the header states and the file's length confirms, without reading a number."""
    size = path.stat().st_size
    with path.open("rb") as stream:
        read = _Header(stream, size)
        if read.take(4) != MAGIC:
            raise InvalidNetwork("not a GGUF file")
        version = read.number("<I")
        if version not in VERSIONS:
            raise Unsupported(f"is of version {version} of GGUF: {' and '.join(map(str, VERSIONS))} are read")
        tensors, facts = read.number("<Q"), read.number("<Q")
        check_entries(tensors)
        if facts > MAX_FACTS:
            raise InvalidNetwork(f"{facts:,} facts, more than the {MAX_FACTS:,} that are read")
        known = {read.text(): read.fact() for _ in range(facts)}
        listed = [read.tensor() for _ in range(tensors)]
        alignment = known.get("general.alignment", 32)
        if not isinstance(alignment, int) or not 1 <= alignment <= 2**20:
            raise InvalidNetwork(f"its alignment is {str(alignment)[:20]}")
        start = -(-read.at // alignment) * alignment
    check_names(name for name, _ in listed)
    places: dict[str, BlockPlace] = {}
    for name, (offset, kind, shape) in listed:
        if name in places:
            raise InvalidNetwork(f"tensor {name[:80]!r} appears twice")
        if start + offset + stored_bytes(name, kind, shape) > size:
            raise InvalidNetwork(f"tensor {name[:80]!r} claims bytes behind the end of the file")
        places[name] = BlockPlace(start + offset, kind, shape)
    # Sorted by where they begin, two spans overlap only if two neighbours do.
    spans = sorted(
        (place.begin, place.begin + stored_bytes(name, place.kind, place.shape)) for name, place in places.items()
    )
    if any(stop > begin for (_, stop), (begin, _) in pairwise(spans)):
        raise InvalidNetwork("two of its tensors overlap")
    return places, known


def stored_bytes(name: str, kind: int, shape: tuple[int, ...]) -> int:
    """The bytes of a tensor; its rows are made of whole blocks."""
    count = check_shape(f"tensor {name[:80]!r}", shape)
    if kind not in BLOCKS:
        raise Unsupported(
            f"tensor {name[:80]!r} is of type {OTHERS.get(kind, kind)}: read are "
            f"{', '.join(block.name for block in BLOCKS.values())}; convert it to one of them with llama-quantize"
        )
    block = BLOCKS[kind]
    row = shape[-1] if shape else 1
    if row % block.numbers:
        raise InvalidNetwork(f"tensor {name[:80]!r} has rows of {row:,}, not of whole blocks of {block.numbers}")
    return count // block.numbers * block.bytes


class _Header:
    """A header as it is read: whatever it claims, no more is taken than the file has."""

    def __init__(self, stream: IO[bytes], size: int) -> None:
        self.stream, self.size, self.at = stream, min(size, MAX_HEADER), 0

    def take(self, count: int) -> bytes:
        """The next bytes."""
        if count > self.size - self.at:
            raise InvalidNetwork("its header does not end, or is cut")
        self.at += count
        return self.stream.read(count)

    def number(self, code: str) -> Any:
        """The next number."""
        (value,) = struct.unpack(code, self.take(struct.calcsize(code)))
        return value

    def text(self) -> str:
        """The next text."""
        length = self.number("<Q")
        if length > MAX_TEXT:
            raise InvalidNetwork(f"a text in its header takes {length:,} bytes")
        return self.take(length).decode("utf-8", "replace")

    def fact(self, kind: int | None = None) -> Any:
        """The next fact; of a list its first entries."""
        kind = self.number("<I") if kind is None else kind
        if kind == TEXT:
            return self.text()
        if kind == LIST:
            inner, count = self.number("<I"), self.number("<Q")
            if inner not in (*FACTS, TEXT) or count > MAX_LIST:
                raise InvalidNetwork(f"a list of {count:,} entries of type {inner} in its header")
            # A vocabulary of texts has to be walked to find its end; numbers are skipped at once.
            if inner in FACTS:
                raw = self.take(count * struct.calcsize(FACTS[inner]))
                return [
                    entry for (entry,) in struct.iter_unpack(FACTS[inner], raw[: KEPT * struct.calcsize(FACTS[inner])])
                ]
            return [self.text() for _ in range(count)][:KEPT]
        if kind not in FACTS:
            raise InvalidNetwork(f"a fact of type {kind} in its header")
        return self.number(FACTS[kind])

    def tensor(self) -> tuple[str, tuple[int, int, tuple[int, ...]]]:
        """The next entry of the list of tensors."""
        name, axes = self.text(), self.number("<I")
        if axes > 8:
            raise InvalidNetwork(f"tensor {name[:80]!r} claims {axes} dimensions")
        shape = tuple(reversed([self.number("<Q") for _ in range(axes)]))  # the fastest axis comes first in the file
        kind, offset = self.number("<I"), self.number("<Q")
        return name, (offset, kind, shape)


def layers(path: Path) -> tuple[TensorReading, ...]:
    """Names, types and shapes, without reading a number."""
    return tuple(TensorReading(name, BLOCKS[at.kind].name, at.shape) for name, at in contents(path)[0].items())


def load(path: Path) -> StoredArrays:
    """The arrays in the order of the file, dequantised."""
    places, facts = contents(path)
    for name, place in places.items():
        check_numbers(f"tensor {name[:80]!r}", place.shape)
    texts = {name: value for name, value in facts.items() if isinstance(value, str) and len(value) < 200}
    kinds = {name: BLOCKS[place.kind].name for name, place in places.items()}
    return StoredArrays({name: values(path, place) for name, place in places.items()}, kinds, metadata=texts)


def blocks_of(path: Path, place: BlockPlace) -> Bytes:
    """The bytes of a tensor, a row for each block, mapped from the file."""
    block, count = BLOCKS[place.kind], math.prod(place.shape)
    if not count:
        return np.zeros((0, block.bytes), np.uint8)
    rows = count // block.numbers
    return np.memmap(path, np.uint8, "r", place.begin, (rows, block.bytes))


def values(path: Path, place: BlockPlace) -> NDArray[Any]:
    """The numbers of a tensor."""
    return np.asarray(BLOCKS[place.kind].dequantise(blocks_of(path, place))).reshape(place.shape)


class GgufTensors(Mapping[str, "torch.Tensor"]):
    """The tensors of a file by name; each is read when it is asked for, and kept by nobody here."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.places, self.facts = contents(path)

    def __getitem__(self, name: str) -> torch.Tensor:
        import torch

        place = self.places[name]
        # Half the memory of float32, and the type that the checkpoint is written back in.
        if BLOCKS[place.kind].name == "BF16":  # NumPy knows no such type
            bits = np.array(blocks_of(self.path, place)).view("<i2").reshape(place.shape)
            return torch.from_numpy(bits).view(torch.bfloat16)
        return torch.from_numpy(np.array(values(self.path, place)))

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)


def steps(path: Path, place: BlockPlace) -> Values | None:
    """The distance of neighbouring values at every entry of a tensor in blocks; None for one of plain numbers."""
    block = BLOCKS[place.kind]
    if block.step is None:
        return None
    return np.asarray(block.step(blocks_of(path, place)), dtype=np.float32).reshape(place.shape)


def _plain(code: str) -> Callable[[Bytes], Any]:
    return lambda raw: np.ascontiguousarray(raw).view(code)


def _half(raw: Bytes) -> Values:
    """A column of half floats as float32."""
    return np.ascontiguousarray(raw).view("<f2").astype(np.float32)


def _nibbles(raw: Bytes) -> NDArray[np.uint8]:
    """The low halves of all bytes, then the high ones."""
    return np.concatenate([raw & 15, raw >> 4], axis=-1)


def _fifth_bits(raw: Bytes) -> NDArray[np.uint8]:
    """32 bits as 32 numbers, the lowest first."""
    return np.unpackbits(np.ascontiguousarray(raw), axis=-1, bitorder="little")


def _q4_0(raw: Bytes) -> Values:
    return (_nibbles(raw[:, 2:]).astype(np.int8) - 8).astype(np.float32) * _half(raw[:, :2])


def _q4_1(raw: Bytes) -> Values:
    return _nibbles(raw[:, 4:]).astype(np.float32) * _half(raw[:, :2]) + _half(raw[:, 2:4])


def _q5_0(raw: Bytes) -> Values:
    whole = (_nibbles(raw[:, 6:]) | _fifth_bits(raw[:, 2:6]) << 4).astype(np.int8) - 16
    return whole.astype(np.float32) * _half(raw[:, :2])


def _q5_1(raw: Bytes) -> Values:
    whole = _nibbles(raw[:, 8:]) | _fifth_bits(raw[:, 4:8]) << 4
    return whole.astype(np.float32) * _half(raw[:, :2]) + _half(raw[:, 2:4])


def _q8_0(raw: Bytes) -> Values:
    return np.ascontiguousarray(raw[:, 2:]).view(np.int8).astype(np.float32) * _half(raw[:, :2])


def _six_bits(raw: Bytes) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Eight scales and eight minima of six bits, in twelve bytes: the last four of each have their upper bits in the
    first eight bytes."""
    first, second, third = raw[:, 0:4], raw[:, 4:8], raw[:, 8:12]
    scales = np.concatenate([first & 63, (third & 15) | (first >> 6) << 4], axis=-1)
    minima = np.concatenate([second & 63, (third >> 4) | (second >> 6) << 4], axis=-1)
    return scales, minima


def _in_eights(raw: Bytes) -> tuple[Values, Values]:
    """Scale and minimum of each of the eight parts of a block of blocks."""
    scales, minima = _six_bits(raw[:, 4:16])
    return _half(raw[:, :2]) * scales.astype(np.float32), _half(raw[:, 2:4]) * minima.astype(np.float32)


def _pairs(raw: Bytes) -> NDArray[np.uint8]:
    """128 bytes as eight parts of 32: of each 32 bytes the low halves, then the high ones."""
    quarters = raw.reshape(len(raw), 4, 32)
    return np.stack([quarters & 15, quarters >> 4], axis=2).reshape(len(raw), 8, 32)


TWO_BITS = np.array([0, 2, 4, 6], dtype=np.uint8)[None, None, :, None]  # the four numbers of two bits in a byte


def _two_bits(raw: Bytes) -> NDArray[np.uint8]:
    """64 bytes as two halves of four rows of 32: of each 32 bytes the lowest two bits, then the next."""
    return np.asarray((raw.reshape(-1, 2, 1, 32) >> TWO_BITS) & 3, dtype=np.uint8)


def _q2_k_scales(raw: Bytes) -> Values:
    return _half(raw[:, 80:82]) * (raw[:, :16] & 15).astype(np.float32)


def _q2_k(raw: Bytes) -> Values:
    minima = _half(raw[:, 82:84]) * (raw[:, :16] >> 4).astype(np.float32)
    whole = _two_bits(raw[:, 16:80]).astype(np.float32).reshape(-1, 16, 16)
    return (_q2_k_scales(raw)[:, :, None] * whole - minima[:, :, None]).reshape(len(raw), SUPER)


def _q3_k_scales(raw: Bytes) -> Values:
    """Sixteen scales of six bits in twelve bytes: the lower four bits in eight of them, the upper two in four."""
    upper = ((raw[:, None, 104:108] >> TWO_BITS[0]) & 3).reshape(-1, 16)
    whole = (_nibbles(raw[:, 96:104]) | upper << 4).astype(np.int8) - 32
    scales: Values = _half(raw[:, 108:110]) * whole.astype(np.float32)
    return scales


def _q3_k(raw: Bytes) -> Values:
    """Bit k of the first 32 bytes belongs to the k-th row of 32; where it is 0, four is subtracted."""
    third = (raw[:, None, :32] >> np.arange(8, dtype=np.uint8)[None, :, None]) & 1
    whole = (_two_bits(raw[:, 32:96]).reshape(-1, 8, 32) | third << 2).astype(np.int8) - 4
    weights: Values = _q3_k_scales(raw)[:, :, None] * whole.astype(np.float32).reshape(-1, 16, 16)
    return weights.reshape(len(raw), SUPER)


def _q4_k(raw: Bytes) -> Values:
    scales, minima = _in_eights(raw)
    whole = _pairs(raw[:, 16:]).astype(np.float32)
    return (scales[:, :, None] * whole - minima[:, :, None]).reshape(len(raw), SUPER)


def _q5_k(raw: Bytes) -> Values:
    scales, minima = _in_eights(raw)
    fifth = (raw[:, None, 16:48] >> np.arange(8, dtype=np.uint8)[None, :, None]) & 1
    whole = (_pairs(raw[:, 48:]) | fifth << 4).astype(np.float32)
    return (scales[:, :, None] * whole - minima[:, :, None]).reshape(len(raw), SUPER)


def _q6_k_scales(raw: Bytes) -> Values:
    parts = np.ascontiguousarray(raw[:, 192:208]).view(np.int8).astype(np.float32)
    return _half(raw[:, 208:210]) * parts


def _q6_k(raw: Bytes) -> Values:
    """Two halves of 128: four rows of 32, whose lower four bits lie in two times 32 bytes, the upper two in 32."""
    lower = raw[:, :128].reshape(-1, 2, 2, 32)
    four = np.concatenate([lower & 15, lower >> 4], axis=2)
    whole = (four | _two_bits(raw[:, 128:192]) << 4).astype(np.int8).reshape(-1, 16, 16) - 32
    weights: Values = _q6_k_scales(raw)[:, :, None] * whole.astype(np.float32)
    return weights.reshape(len(raw), SUPER)


def _tq2_0(raw: Bytes) -> Values:
    """Minus one, nought or one, times one scale."""
    whole = (_two_bits(raw[:, :64]).astype(np.int8) - 1).astype(np.float32)
    weights: Values = _half(raw[:, 64:66]) * whole.reshape(len(raw), SUPER)
    return weights


# `kvalues_iq4nl` and `kvalues_mxfp4` of ggml-common.h: the values that four bits stand for; those of MXFP4 are doubled.
UNEVEN = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], dtype=np.float32)
FP4 = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], dtype=np.float32)


def _gaps(table: Values) -> Values:
    """For every value of a table, how far the farther of its two neighbours is."""
    values, places = np.unique(table, return_inverse=True)
    gaps = np.diff(values)
    farther: Values = np.maximum(np.append(gaps, gaps[-1]), np.insert(gaps, 0, gaps[0]))
    return farther[places]


def _iq4_nl(raw: Bytes, table: Values = UNEVEN) -> Values:
    return _half(raw[:, :2]) * table[_nibbles(raw[:, 2:])]


def _iq4_xs(raw: Bytes, table: Values = UNEVEN) -> Values:
    """Eight scales of six bits: two of each in two bytes, four in four bytes."""
    upper = np.ascontiguousarray(raw[:, 2:4]).view("<u2") >> np.arange(0, 16, 2, dtype=np.uint16) & 3
    lower = np.stack([raw[:, 4:8] & 15, raw[:, 4:8] >> 4], axis=-1).reshape(-1, 8)
    scales = _half(raw[:, :2]) * ((lower | upper << 4).astype(np.int8) - 32).astype(np.float32)
    weights: Values = scales[:, :, None] * table[_nibbles(raw[:, 8:].reshape(-1, 8, 16))]
    return weights.reshape(len(raw), SUPER)


def _mxfp4(raw: Bytes, table: Values = FP4) -> Values:
    """A power of two, halved as the table is doubled; the two smallest are subnormal numbers."""
    power = raw[:, :1].astype(np.uint32)
    bits = np.where(power < 2, np.uint32(0x00200000) << np.minimum(power, 1), (power - 1) << 23)
    return bits.view(np.float32) * table[_nibbles(raw[:, 1:])]


def _by_scale(raw: Bytes) -> Values:
    """The step of a block of 32 is its scale."""
    return np.repeat(np.abs(_half(raw[:, :2])), BLOCK, axis=1)


BLOCKS = {
    0: BlockType("F32", 1, 4, _plain("<f4")),
    1: BlockType("F16", 1, 2, _plain("<f2")),
    2: BlockType("Q4_0", BLOCK, 18, _q4_0, _by_scale),
    3: BlockType("Q4_1", BLOCK, 20, _q4_1, _by_scale),
    6: BlockType("Q5_0", BLOCK, 22, _q5_0, _by_scale),
    7: BlockType("Q5_1", BLOCK, 24, _q5_1, _by_scale),
    8: BlockType("Q8_0", BLOCK, 34, _q8_0, _by_scale),
    10: BlockType("Q2_K", SUPER, 84, _q2_k, lambda raw: np.repeat(np.abs(_q2_k_scales(raw)), 16, axis=1)),
    11: BlockType("Q3_K", SUPER, 110, _q3_k, lambda raw: np.repeat(np.abs(_q3_k_scales(raw)), 16, axis=1)),
    12: BlockType("Q4_K", SUPER, 144, _q4_k, lambda raw: np.repeat(np.abs(_in_eights(raw)[0]), 32, axis=1)),
    13: BlockType("Q5_K", SUPER, 176, _q5_k, lambda raw: np.repeat(np.abs(_in_eights(raw)[0]), 32, axis=1)),
    14: BlockType("Q6_K", SUPER, 210, _q6_k, lambda raw: np.repeat(np.abs(_q6_k_scales(raw)), 16, axis=1)),
    20: BlockType("IQ4_NL", BLOCK, 18, _iq4_nl, lambda raw: np.abs(_iq4_nl(raw, _gaps(UNEVEN)))),
    23: BlockType("IQ4_XS", SUPER, 136, _iq4_xs, lambda raw: np.abs(_iq4_xs(raw, _gaps(UNEVEN)))),
    24: BlockType("I8", 1, 1, _plain("i1")),
    25: BlockType("I16", 1, 2, _plain("<i2")),
    26: BlockType("I32", 1, 4, _plain("<i4")),
    27: BlockType("I64", 1, 8, _plain("<i8")),
    28: BlockType("F64", 1, 8, _plain("<f8")),
    30: BlockType("BF16", 1, 2, lambda raw: (_plain("<u2")(raw).astype(np.uint32) << 16).view(np.float32)),
    35: BlockType("TQ2_0", SUPER, 66, _tq2_0, lambda raw: np.repeat(np.abs(_half(raw[:, 64:66])), SUPER, axis=1)),
    39: BlockType("MXFP4", BLOCK, 17, _mxfp4, lambda raw: _mxfp4(raw, _gaps(FP4))),
}
OTHERS = {9: "Q8_1", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 21: "IQ3_S", 22: "IQ2_S",
          29: "IQ1_M", 34: "TQ1_0", 40: "NVFP4", 41: "Q1_0"}  # fmt: skip
