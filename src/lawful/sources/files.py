"""Networks in files: one reader that looks at the content, and one writer that follows the ending."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lawful.errors import InvalidNetwork, LawfulError, Unsupported
from lawful.formats.graphs import json_graph
from lawful.formats.io.detect_format import ENDINGS, check_ending, kind_of
from lawful.formats.io.limits import MAX_BYTES, MAX_MAPPED, check_bytes
from lawful.formats.io.reading import naming, open_file, read_bytes
from lawful.formats.io.writing import check_target, write_bytes
from lawful.formats.tensors import arrays
from lawful.formats.tensors.arrays import layers_of
from lawful.formats.tensors.shards import read_shards, refuse_lone_shard, weights_in, write_folder
from lawful.network.dag import Dag
from lawful.network.mlp import Mlp
from lawful.network.reading import Reading, TensorReading, carrying
from lawful.outward import at_most

EXACT = "float64"
GROWTH, SPARE = 1.05, 4096  # how much larger than its source a file may become, for names
FORMATS = tuple(ending for ending in ENDINGS if ending not in (".nnet", ".gguf"))  # those that are written too


def read(
    path: str | Path,
    *,
    activation: str | None = None,
    order: Sequence[str] | None = None,
    drop_useless: bool = False,
    input_shape: tuple[int, ...] | None = None,
) -> Mlp | Dag:
    """Read a network; a file that is broken, hostile or beyond what is supported is refused in one line.

    `activation` is for files that name none (ReLU is assumed otherwise, and the network's `reading` says so), `order`
    names the layers of a state dict from input to output, `input_shape` (without the batch) is for ONNX files that do
    not state it; `drop_useless` removes hidden nodes on no path from input to output instead of refusing them.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = write(Mlp([[[1.0, 2.0]]]), Path(folder) / "small.npz")
    ...     read(Path(folder) / "small.npz").evaluate([[3.0, 4.0]])
    array([[11.]])
    """
    path = Path(path)
    with naming(path):
        try:
            check_file(path)
            kind = kind_of(path)
            network = _read(path, kind, activation, order, drop_useless, input_shape)
            if input_shape is not None and math.prod(input_shape) != (inputs := len(network.to_dag().inputs)):
                raise InvalidNetwork(f"has {inputs} inputs, not {'×'.join(map(str, input_shape))}")
        except LawfulError as error:
            raise type(error)(f"{path}: {error}".replace(f"{path}: {path}: ", f"{path}: ")) from None
    reading = network.reading
    return carrying(network, None if reading is None else replace(reading, source=str(path), size=path.stat().st_size))


def check_file(path: Path, limit: int = MAX_BYTES) -> None:
    """Refuse what is not a regular file of bounded size."""
    try:
        with open_file(path, limit) as file:
            if not file.read(1):
                raise InvalidNetwork("is empty")
    except LawfulError as error:
        raise InvalidNetwork(str(error).removeprefix(f"{path}: ")) from None


def _read(
    path: Path,
    kind: str,
    activation: str | None,
    order: Sequence[str] | None,
    drop_useless: bool,
    input_shape: tuple[int, ...] | None,
) -> Mlp | Dag:
    if kind in ("json", "onnx", "nnet") and order is not None:
        raise LawfulError("the file states the order of its layers: leave out --order")
    if kind == "json":
        check_bytes("the file", path.stat().st_size, json_graph.MAX_TEXT)
        content = read_bytes(path, json_graph.MAX_TEXT)
        return json_graph.decode(content, activation=activation, drop_useless=drop_useless)
    if kind in ("onnx", "nnet") and activation is not None:
        raise LawfulError("the file states its activations: leave out --activation")
    if kind == "onnx":
        from lawful.sources.onnx import reader

        return reader.load(path, input_shape=input_shape, drop_useless=drop_useless)
    if kind == "nnet":
        from lawful.formats.graphs import nnet

        return nnet.load(path)
    stored = load_arrays(path, kind)
    kind = kind if kind != "index" else "safetensors" if "safetensors" in path.name else "pt"
    return arrays.network_of(stored, kind, activation=activation, order=order, drop_useless=drop_useless)


def load_arrays(path: Path, kind: str) -> arrays.StoredArrays:
    """The named arrays of a `.safetensors`, `.pt` or `.npz` file, or of all shards of an index."""
    if kind == "index":
        return _join_shards(path)
    refuse_lone_shard(path)
    return _load_file(path, kind)


def _join_shards(index: Path) -> arrays.StoredArrays:
    def read_shard(file: Path) -> arrays.StoredArrays:
        check_file(file)
        return _load_file(file, kind_of(file))

    shards = read_shards(index, read_shard, lambda shard: shard.arrays)
    return arrays.StoredArrays(
        {name: array for part in shards for name, array in part.arrays.items()},
        {name: kind for part in shards for name, kind in part.dtypes.items()},
        next((part.slopes for part in shards if part.slopes is not None), None),
        tuple(text for part in shards for text in part.ignored),
        shards[0].metadata if shards else {},
    )


def _load_file(path: Path, kind: str) -> arrays.StoredArrays:
    if kind == "npz":
        from lawful.formats.tensors.npz import load as load_npz

        stored, slopes = load_npz(path)
        plain = None if "dag.names" in stored else layers_of(stored)
        return (
            arrays.StoredArrays(stored, slopes=slopes)
            if plain is None
            else arrays.StoredArrays(plain[0], slopes=slopes, assumed=plain[1])
        )
    if kind == "safetensors":
        from lawful.formats.tensors.safetensors import load
    elif kind == "gguf":
        from lawful.formats.tensors.gguf import load
    else:
        from lawful.formats.tensors.pt import load
    return load(path)


@dataclass(frozen=True)
class Written:
    """A file that was written: its type of numbers, by how much storing changed any weight, and what limits it."""

    path: str
    dtype: str
    rounding: float
    relative: float
    note: str = ""

    def __str__(self) -> str:
        path = f"{self.path} ({self.note})" if self.note else self.path
        if not self.rounding:
            return path
        return (
            f"{path} (weights stored as {self.dtype}, each rounded by at most {at_most(self.relative, 1)} "
            f"of itself, {at_most(self.rounding, 1)} at most)"
        )


def write(network: Mlp | Dag, path: str | Path, like: Reading | None = None, dtype: str | None = None) -> Written:
    """Write a network whole or not at all: a file that exists is replaced only once the new one is complete.

    An `Mlp` keeps the names and types of `like` (else of the source it was read from); `dtype` stores all numbers in
    another type. What that rounds is in the answer.
    """
    path = Path(path)
    like = network.reading if like is None else like
    if like is not None and path.suffix.lower() not in ENDINGS and (source := _folder_source(like)) is not None:
        return _write_folder(network, path, like, source, dtype)
    kind = check_ending(path)
    check_target(path)
    with naming(path):
        # Made in memory before the target is touched, so that a refusal leaves what was there.
        content, stored, exact = _encode(network, kind, like, dtype, path.stem[:40])
        # A convolution that is written out as a matrix can be a thousand times its file.
        size = like.size if like is not None and like.format == kind and dtype is None else 0
        if size and len(content) > GROWTH * size + SPARE:
            raise Unsupported(
                f"it would take {len(content):,} bytes where its source took {size:,}, because shared weights are "
                "written out: choose another format, or say --dtype"
            )
        write_bytes(path, content)
    return describe_rounding(path, stored, exact)


def stored_type(network: Mlp | Dag, path: str | Path, like: Reading | None = None) -> str | None:
    """The type of numbers in which `write` would store a network, if it is one for all of them and one that rounds."""
    kind, like = Path(path).suffix.lower(), network.reading if like is None else like
    if kind == ".json" or (kind not in ENDINGS and not isinstance(network, Mlp)):
        return None
    if kind == ".onnx":
        _, types, exact = _encode(network, "onnx", like, None, "")
    else:
        exact = arrays.arrays_of(network, like)
        types = _types(network, exact, like, None)
    kinds = {types.get(name, EXACT) for name, array in exact.items() if array.dtype.kind == "f"}
    return kinds.pop() if len(kinds) == 1 and kinds != {EXACT} else None


def _folder_source(like: Reading) -> Path | None:
    """The index or the file of weights of a checkpoint that is a folder."""
    source = Path(like.source)
    if like.source and source.is_dir():
        return weights_in(source)
    return source if source.name.endswith(".index.json") and source.is_file() else None


def _write_folder(network: Mlp | Dag, folder: Path, like: Reading, source: Path, dtype: str | None) -> Written:
    """The same files in a new folder."""
    if not isinstance(network, Mlp):
        raise Unsupported(f"{folder}: a graph is written to one file: name one, such as {folder}.safetensors")
    exact = arrays.arrays_of(network, like)
    types = _types(network, exact, like, dtype)
    slopes = network.slopes if like.states_activations else None

    def encode(names: Sequence[str], file: Path) -> None:
        part, kinds = {name: exact[name] for name in names}, {name: types[name] for name in names}
        if like.format == "safetensors":
            from lawful.formats.tensors.safetensors import dump

            texts = {key: text for key, text in like.metadata.items() if key != "lawful.slopes"}
            file.write_bytes(dump(part, kinds, slopes, texts))
        else:
            from lawful.formats.tensors.pt import dump as dump_pt

            file.write_bytes(dump_pt(part, kinds, slopes, "pytorch_model"))

    bits = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}
    sizes = {name: exact[name].size * bits[types[name]] for name in exact}
    write_folder(source, folder, list(exact), sizes, encode)
    return describe_rounding(folder, types, exact)


def _encode(
    network: Mlp | Dag, kind: str, like: Reading | None, dtype: str | None, stem: str
) -> tuple[bytes, dict[str, str], dict[str, NDArray[Any]]]:
    """The file, and for each tensor its type and its numbers."""
    if kind == "json":
        if dtype not in (None, EXACT):
            raise LawfulError("a JSON graph keeps every digit: leave out --dtype")
        return json_graph.encode(network), {}, {}
    if kind == "onnx":
        from lawful.sources.onnx import writer

        content, types, exact = writer.dump(network, like, dtype)
        for name, array in exact.items():
            check_range(name, array, types[name])
        return content, types, exact
    exact = arrays.arrays_of(network, like)
    types = _types(network, exact, like, dtype)
    known = isinstance(network, Mlp) and (like is None or like.states_activations)
    slopes = network.slopes if isinstance(network, Mlp) and known else None
    if kind == "npz":
        from lawful.formats.tensors.npz import dump as dump_npz

        rounded = {name: array.astype(_numpy_type(types.get(name, str(array.dtype)))) for name, array in exact.items()}
        types = {name: str(array.dtype) for name, array in rounded.items()}
        return dump_npz(rounded, slopes), types, exact
    if kind == "safetensors":
        from lawful.formats.tensors.safetensors import dump

        texts = {} if like is None else dict(like.metadata)
        texts.pop("lawful.slopes", None)
        return dump(exact, types, slopes, texts), types, exact
    from lawful.formats.tensors.pt import dump as dump_pt

    return dump_pt(exact, types, slopes, stem), types, exact


def _types(
    network: Mlp | Dag, found: dict[str, NDArray[Any]], like: Reading | None, dtype: str | None
) -> dict[str, str]:
    """In which type each tensor of real numbers is stored."""
    real = [name for name, array in found.items() if array.dtype.kind == "f"]
    floats = [layer for layer in (like.layers if like else ()) if layer.dtype.startswith(("float", "bfloat"))]
    if dtype is not None:
        types = dict.fromkeys(real, dtype)
    elif isinstance(network, Dag) or not floats:
        types = dict.fromkeys(real, EXACT)
    else:
        stated = {layer.name: layer.dtype for layer in floats}
        types = {name: stated.get(name, floats[0].dtype) for name in real}
    for name, kind in types.items():
        check_range(name, found[name], kind)
    return types


def _numpy_type(name: str) -> Any:
    return np.dtype("float32" if name == "bfloat16" else name)


def check_range(name: str, array: NDArray[Any], dtype: str) -> None:
    """Refuse numbers that overflow in this type."""
    if not np.isfinite(stored_as(array, dtype)).all():
        raise LawfulError(f"{name} has a number that {dtype} cannot hold: store it with --dtype float64")


def stored_as(array: NDArray[Any], dtype: str) -> NDArray[np.float64]:
    """The numbers that a file of this type gives back."""
    with np.errstate(over="ignore"):
        if dtype == "bfloat16":
            import torch

            return np.asarray(torch.from_numpy(np.array(array)).to(torch.bfloat16).double().numpy())
        try:
            return np.asarray(array.astype(np.dtype(dtype)).astype(np.float64))
        except TypeError:
            raise LawfulError(
                f"numbers are stored as float64, float32, float16 or bfloat16, not {dtype[:40]!r}"
            ) from None


def describe_rounding(path: Path, types: dict[str, str], exact: dict[str, NDArray[Any]], note: str = "") -> Written:
    """What was written, and by how much its types change the exact numbers."""
    changes, parts = [0.0], [0.0]
    for name, array in exact.items():
        if array.dtype.kind == "f" and array.size and types.get(name, EXACT) != EXACT:
            change = np.abs(stored_as(array, types[name]) - array)
            changes.append(float(change.max()))
            parts.append(float((change / np.where(array == 0, 1.0, np.abs(array))).max()))
    kinds = sorted({types.get(name, EXACT) for name, array in exact.items() if array.dtype.kind == "f"})
    return Written(str(path), ", ".join(kinds) or EXACT, max(changes), max(parts), note)


def contents(path: Path) -> Reading | None:
    """What a file, an index of shards or a folder holds, if it is a checkpoint that can be trusted to be one."""
    try:
        if path.is_dir():
            path = weights_in(path)
        check_file(path, MAX_MAPPED)
        kind = kind_of(path)
        layers = _layers(path, kind)
    except (LawfulError, OSError):
        return None
    return None if layers is None else Reading(kind, layers, source=str(path), states_activations=False)


def _layers(path: Path, kind: str) -> tuple[TensorReading, ...] | None:
    if kind == "safetensors":
        from lawful.formats.tensors import safetensors

        return safetensors.layers(path)
    if kind == "gguf":
        from lawful.formats.tensors import gguf

        return gguf.layers(path)
    if kind == "index":
        shards = read_shards(
            path, lambda shard: _layers(shard, kind_of(shard)) or (), lambda tensors: (t.name for t in tensors)
        )
        return tuple(tensor for tensors in shards for tensor in tensors)
    if kind == "pt" and path.stat().st_size <= MAX_BYTES:
        from lawful.formats.tensors import pt

        state, _ = pt.load_tensors(path)
        return tuple(
            TensorReading(name, str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))
            for name, tensor in state.items()
        )
    if kind == "npz":
        stored = load_arrays(path, kind)
        return tuple(stored.layer(name) for name in stored.arrays)
    return None
