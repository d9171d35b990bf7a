"""Networks in files: one reader and one writer, chosen by the file's ending."""

from __future__ import annotations

import math
import os
from pathlib import Path

from lawful.errors import InvalidNetwork, LawfulError, Unsupported
from lawful.network.dag import Dag
from lawful.network.formats import arrays, json_graph
from lawful.network.formats.limits import check_bytes
from lawful.network.mlp import Mlp

FORMATS = (".safetensors", ".pt", ".pth", ".onnx", ".json", ".npz")


def read(
    path: str | Path,
    *,
    activation: str | None = None,
    drop_useless: bool = False,
    input_shape: tuple[int, ...] | None = None,
) -> Mlp | Dag:
    """Read a network; a file that is broken, hostile or beyond what is supported is refused in one line.

    `activation` is for files that name none (ReLU otherwise), `input_shape` (without the batch) for ONNX files that do
    not state it; `drop_useless` removes hidden nodes on no path from input to output instead of refusing them.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write(Mlp([[[1.0, 2.0]]]), Path(folder) / "small.npz")
    ...     read(Path(folder) / "small.npz").evaluate([[3.0, 4.0]])
    array([[11.]])
    """
    path = Path(path)
    suffix = _suffix(path)
    try:
        _check_file(path)
        network = _read(path, suffix, activation, drop_useless, input_shape)
        if input_shape is not None and math.prod(input_shape) != (inputs := len(network.to_dag().inputs)):
            raise InvalidNetwork(f"has {inputs} inputs, not {'×'.join(map(str, input_shape))}")
    except LawfulError as error:
        raise type(error)(f"{path}: {error}") from None
    return network


def write(network: Mlp | Dag, path: str | Path) -> None:
    """Write a network whole or not at all: a file that exists is replaced only once the new one is complete."""
    path = Path(path)
    suffix = _suffix(path)
    if path.is_dir():
        raise LawfulError(f"{path}: is a folder, not a file")
    if not path.parent.is_dir():
        raise LawfulError(f"{path}: its folder does not exist")
    try:
        content = _encode(network, suffix)
    except LawfulError as error:
        raise type(error)(f"{path}: {error}") from None
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        draft.write_bytes(content)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _suffix(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix not in FORMATS:
        raise Unsupported(f"{path}: unknown ending {suffix!r}; networks are {', '.join(FORMATS)}")
    return suffix


def _check_file(path: Path) -> None:
    if path.is_dir():
        raise InvalidNetwork("is a folder, not a file")
    if not path.exists():
        raise InvalidNetwork("no such file")
    if not path.is_file():
        raise InvalidNetwork("is not a regular file")
    if not os.access(path, os.R_OK):
        raise InvalidNetwork("cannot be read: permission denied")
    if (size := path.stat().st_size) == 0:
        raise InvalidNetwork("is empty")
    check_bytes("the file", size)


def _read(
    path: Path, suffix: str, activation: str | None, drop_useless: bool, input_shape: tuple[int, ...] | None
) -> Mlp | Dag:
    if suffix == ".json":
        check_bytes("the file", path.stat().st_size, json_graph.MAX_TEXT)
        return json_graph.decode(path.read_bytes(), activation=activation, drop_useless=drop_useless)
    if suffix == ".onnx":
        from lawful.network.formats import onnx_reader

        if activation is not None:
            raise LawfulError("an ONNX file states its activations: leave out --activation")
        return onnx_reader.load(path, input_shape=input_shape, drop_useless=drop_useless)
    if suffix == ".npz":
        from lawful.network.formats.npz import load
    elif suffix == ".safetensors":
        from lawful.network.formats.safetensors import load
    else:
        from lawful.network.formats.pt import load
    found, slopes = load(path)
    return arrays.network_of(
        found,
        recorded=slopes,
        activation=activation,
        drop_useless=drop_useless,
        in_order=suffix != ".safetensors",  # which sorts its tensors
    )


def _encode(network: Mlp | Dag, suffix: str) -> bytes:
    if suffix == ".json":
        return json_graph.encode(network)
    if suffix == ".onnx":
        from lawful.network.formats import onnx_writer

        return onnx_writer.dump(network)
    if suffix == ".npz":
        from lawful.network.formats.npz import dump
    elif suffix == ".safetensors":
        from lawful.network.formats.safetensors import dump
    else:
        from lawful.network.formats.pt import dump
    return dump(arrays.arrays_of(network), network.slopes if isinstance(network, Mlp) else None)
