"""What kind of file this is: its content decides, its ending only where the content could be anything."""

from __future__ import annotations

import zipfile
from pathlib import Path

from lawful.errors import InvalidNetwork, Unsupported

ENDINGS = {
    ".safetensors": "safetensors",
    ".pt": "pt",
    ".pth": "pt",
    ".ckpt": "pt",
    ".bin": "pt",
    ".onnx": "onnx",
    ".json": "json",
    ".npz": "npz",
    ".nnet": "nnet",
    ".gguf": "gguf",
}
KNOWN = ", ".join(ENDINGS)
OTHERS = {
    b"\x89HDF": "a Keras or HDF5 file: export the model to ONNX (tf2onnx, or model.export(format='onnx'))",
    b"TFL3": "a TensorFlow Lite file: export the original model to ONNX",
    b"ORTM": "a file of ONNX Runtime in its own format: give the .onnx file that it was made of",
    b"lmgg": "a file of GGML from before GGUF: convert the original model to .gguf again",
}
TO_ONNX = "export the original model to ONNX"
OTHER_ENDINGS = {  # where the content is no more than bytes, text or an archive
    ".keras": "a Keras file: export the model to ONNX (tf2onnx, or model.export(format='onnx'))",
    ".msgpack": "a file of Flax (msgpack): save it as .safetensors (safetensors.flax.save_file)",
    ".xml": f"the graph of an OpenVINO model: {TO_ONNX}, which OpenVINO reads too",
    ".mlmodel": f"a Core ML file: {TO_ONNX}",
    ".pb": f"a TensorFlow graph: {TO_ONNX} (tf2onnx)",
    ".pdparams": f"a file of PaddlePaddle: {TO_ONNX} (paddle2onnx)",
    ".pdmodel": f"a file of PaddlePaddle: {TO_ONNX} (paddle2onnx)",
    ".param": f"the graph of an ncnn model: {TO_ONNX}",
    ".caffemodel": f"a Caffe file: {TO_ONNX}",
    ".engine": f"a TensorRT engine, made for one machine: {TO_ONNX}",
    ".joblib": "a pickle of Python objects, which is not read: export the model to ONNX (skl2onnx)",
}


def kind_of(path: Path) -> str:
    """One of `safetensors`, `pt`, `onnx`, `json`, `index`, `npz`, `nnet`, `gguf`.

    A file that is clearly of another kind than its ending says is taken for what it is; an unclear one for its ending.
    """
    if path.name.lower().endswith(".onnx.gz"):
        return "onnx"
    with path.open("rb") as stream:
        start = stream.read(4096)
    # Some of these marks stand behind a length of four bytes.
    for mark, what in OTHERS.items():
        if start[: len(mark)] == mark or start[4 : 4 + len(mark)] == mark:
            raise Unsupported(f"is {what}")
    if path.suffix.lower() in OTHER_ENDINGS:
        raise Unsupported(f"is {OTHER_ENDINGS[path.suffix.lower()]}")
    by_ending = ENDINGS.get(path.suffix.lower())
    by_content = _by_content(path, start)
    if by_content is None and by_ending is None:
        raise Unsupported(f"unsupported file type; read are {KNOWN}")
    kind = by_content or by_ending or ""
    return "index" if kind == "json" and path.name.endswith(".index.json") else kind


def _by_content(path: Path, start: bytes) -> str | None:
    # From the surest sign to the weakest: what ONNX files begin with is also a plausible start of others.
    if start[:4] == b"GGUF":
        return "gguf"
    if start[:2] == b"PK":
        try:
            with zipfile.ZipFile(path) as archive:
                names = archive.namelist()
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
            return None
        if any(name.endswith("/data.pkl") or name == "data.pkl" for name in names):
            return "pt"
        return "npz" if names and all(name.endswith(".npy") for name in names) else None
    if len(start) > 8 and start[8:9] == b"{" and 0 < int.from_bytes(start[:8], "little") <= path.stat().st_size - 8:
        return "safetensors"
    if start[:1] == b"\x80" and len(start) > 1 and start[1] <= 5:
        return "pt"  # a bare pickle, which is refused there with the way out
    if start.lstrip()[:1] == b"{":
        return "json"
    if start[:2] == b"//":
        return "nnet"
    if (
        start[:1] == b"\x08"
        and len(start) > 2
        and start[1] < 64
        and start[2:3] in (b"\x12", b"\x1a", b"\x22", b"\x3a", b"\x42")
    ):
        return "onnx"  # the version of the format, then the producer, a domain or the graph
    return None


def check_ending(path: Path) -> str:
    """The kind that a file to be written has by its ending."""
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        raise Unsupported(f"{path}: unknown ending {ending!r}; networks are {KNOWN}")
    if ENDINGS[ending] in ("nnet", "gguf"):
        raise InvalidNetwork(f"{path}: {ending} files are read, not written; use .onnx or .safetensors")
    return ENDINGS[ending]
