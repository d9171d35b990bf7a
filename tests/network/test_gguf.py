"""GGUF files: the numbers that llama.cpp computes with, by its own Python package, and headers that claim too much."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

import lawful
from lawful.errors import LawfulError
from lawful.formats.tensors.gguf import BLOCKS, contents, load, steps

gguf = pytest.importorskip("gguf")
QUANTISED = [kind for kind, block in BLOCKS.items() if block.step is not None]
NUMBERS = np.random.default_rng(0).normal(size=(3, 512)).astype(np.float32)


def write(path: Path, tensors: dict[str, tuple[np.ndarray, int]], facts: dict[str, str] | None = None) -> Path:
    writer = gguf.GGUFWriter(path, "llama")
    for name, text in (facts or {}).items():
        writer.add_string(name, text)
    for name, (raw, kind) in tensors.items():
        writer.add_tensor(name, raw, raw_dtype=gguf.GGMLQuantizationType(kind))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("kind", QUANTISED, ids=lambda kind: BLOCKS[kind].name)
def test_random_blocks_are_what_the_runtime_makes_of_them(tmp_path: Path, kind: int) -> None:
    """Any bytes are blocks, so random ones try every bit of a layout; halves that are no numbers are left out."""
    block = BLOCKS[kind]
    assert gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(kind)] == (block.numbers, block.bytes)
    raw = np.random.default_rng(kind).integers(0, 256, (40, block.bytes * 2), dtype=np.uint8)
    with np.errstate(all="ignore"):
        wanted = gguf.dequantize(raw, gguf.GGMLQuantizationType(kind))
        found = load(write(tmp_path / "a.gguf", {"x": (raw, kind)})).arrays["x"]
    fine = np.isfinite(wanted)
    assert fine.mean() > 0.5
    assert found.shape == wanted.shape
    assert np.array_equal(found[fine], wanted[fine])  # bit by bit


@pytest.mark.parametrize("kind", [2, 3, 6, 7, 8, 35, 39])
def test_a_quantised_weight_is_within_half_a_step(tmp_path: Path, kind: int) -> None:
    raw = gguf.quantize(NUMBERS, gguf.GGMLQuantizationType(kind))
    path = write(tmp_path / "a.gguf", {"x": (raw, kind)})
    found, step = load(path).arrays["x"], steps(path, contents(path)[0]["x"])
    # Scales are rounded to half floats, and the grid of the 4- and 5-bit types ends one step early on one side.
    assert step is not None
    assert (np.abs(found - NUMBERS) <= 1.02 * step).all()
    assert (np.abs(found - NUMBERS) <= 0.51 * step).mean() > 0.95


def test_a_gguf_file_is_a_network(tmp_path: Path) -> None:
    weights = {"0.weight": np.arange(6, dtype=np.float32).reshape(2, 3), "2.weight": np.ones((1, 2), np.float32)}
    path = write(tmp_path / "a.gguf", {name: (each, 0) for name, each in weights.items()})
    network = lawful.open(path)
    assert network.evaluate(np.ones((1, 3))).tolist() == [[15.0]]
    assert [layer.dtype for layer in network.reading.layers] == ["F32", "F32"]


def header(tensors: int = 0, facts: bytes = b"", count: int = 0, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, count) + facts


def named(name: str, shape: tuple[int, ...], kind: int = 0, offset: int = 0) -> bytes:
    text = struct.pack("<Q", len(name)) + name.encode()
    return text + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


TEXT = struct.pack("<Q", 1) + b"k"
HOSTILE = {
    "cut": (b"GGUF\3\0\0", "is cut"),
    "version 1": (header(version=1), "version 1"),
    "many tensors": (header(10**9), "entries"),
    "many facts": (header(count=2**40), "facts"),
    "endless text": (header(count=1, facts=struct.pack("<Q", 2**60)), "text in its header"),
    "endless list": (header(count=1, facts=TEXT + struct.pack("<IIQ", 9, 4, 2**60)), "list of"),
    "list of lists": (header(count=1, facts=TEXT + struct.pack("<IIQ", 9, 9, 1)), "list of"),
    "long list, short file": (header(count=1, facts=TEXT + struct.pack("<IIQ", 9, 10, 2**20)), "is cut"),
    "unknown fact": (header(count=1, facts=TEXT + struct.pack("<I", 99)), "fact of type 99"),
    "huge tensor": (header(1, named("x", (2**40, 2**20)) + bytes(64)), "behind the end"),
    "half a block": (header(1, named("x", (33,), 8) + bytes(64)), "whole blocks"),
    "no axis": (header(1, named("x", (), 8) + bytes(64)), "whole blocks"),
    "rare type": (header(1, named("x", (256,), 16) + bytes(64)), "IQ2_XXS"),
    "many axes": (header(1, struct.pack("<Q", 1) + b"x" + struct.pack("<I", 99)), "99 dimensions"),
    "twice": (header(2, named("x", (1,)) * 2 + bytes(64)), "appears twice"),
    "overlap": (header(2, named("x", (8,)) + named("y", (8,), 0, 4) + bytes(128)), "overlap"),
    "far away": (header(1, named("x", (1,), 0, 2**63) + bytes(64)), "behind the end"),
    "odd alignment": (
        header(count=1, facts=struct.pack("<Q", 17) + b"general.alignment" + struct.pack("<IQ", 10, 2**40)),
        "alignment",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_header_is_believed_as_far_as_the_file_reaches(tmp_path: Path, name: str) -> None:
    content, words = HOSTILE[name]
    (tmp_path / "a.gguf").write_bytes(content)
    with pytest.raises(LawfulError, match=words):
        contents(tmp_path / "a.gguf")
    with pytest.raises(LawfulError, match=r"a\.gguf"):
        lawful.open(tmp_path / "a.gguf")
