"""The bytes of an ONNX file: its structure is bounded before it is parsed, its tensors before they are read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lawful.errors import InvalidNetwork, Unsupported
from lawful.formats.io.limits import MAX_ENTRIES, check_bytes, check_numbers
from lawful.formats.io.reading import read_unpacked

MAX_STRUCTURE = 16 * 2**20  # everything but the initializers' numbers
MAX_FIELDS = 10 * MAX_ENTRIES
GRAPH, INITIALIZER, RAW = 7, 5, 9  # field numbers in ModelProto, GraphProto and TensorProto
BLOCKS = (4, 5, 7, RAW, 10, 11)  # a tensor's numbers, packed: float, int32, int64, raw, double, uint64


def parse(path: Path) -> Any:
    """The model, without following references to other files."""
    import onnx

    content = read_unpacked(path)
    check_structure(memoryview(content))
    try:
        return onnx.load_model_from_string(content)
    except Exception as error:  # protocol buffers have errors of their own
        raise InvalidNetwork(f"not an ONNX file, or a truncated one ({str(error)[:120]})") from None


def opset_of(model: Any) -> int:
    """The version of the standard operators."""
    return max((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), default=1)


def complete(model: Any, folder: Path) -> Any:
    """The model with all numbers inside, for those who would look for them elsewhere."""
    from onnx import TensorProto, numpy_helper

    if not any(tensor.data_location == TensorProto.EXTERNAL for tensor in model.graph.initializer):
        return model
    twin = type(model)()
    twin.CopyFrom(model)
    for tensor in twin.graph.initializer:
        if tensor.data_location == TensorProto.EXTERNAL:  # the others keep their types, bfloat16 too
            tensor.CopyFrom(numpy_helper.from_array(array(tensor, folder), tensor.name))
    return twin


def check_structure(content: memoryview) -> None:
    """Refuse files that a few bytes would blow up into millions of objects."""
    # An empty node takes two bytes in the file and hundreds as an object, so what is counted is entries, not bytes.
    fields, numbers = 0, 0
    for field, begin, end in _fields(content, 0, len(content)):
        fields += 1
        for part, start, stop in _fields(content, begin, end) if field == GRAPH else ():
            fields += 1
            for inner, low, high in _fields(content, start, stop) if part == INITIALIZER else ():
                fields += 1
                numbers += high - low if inner in BLOCKS else 0
                _check_fields(fields)
            _check_fields(fields)
        _check_fields(fields)
    check_bytes("the graph without its numbers", len(content) - numbers, MAX_STRUCTURE)


def array(proto: Any, folder: Path) -> NDArray[Any]:
    """The numbers of a tensor, in their own type."""
    from onnx import TensorProto, numpy_helper

    name = f"tensor {proto.name[:80]!r}"
    count = check_numbers(name, proto.dims)
    # The library itself would look for it wherever the file says.
    if proto.data_location == TensorProto.EXTERNAL:
        return _external(proto, count, folder)
    if proto.HasField("segment"):
        raise Unsupported(f"{name} is stored in segments")
    try:
        numbers = numpy_helper.to_array(proto)
    except (ValueError, TypeError, KeyError) as error:
        raise InvalidNetwork(f"{name} cannot be read: {str(error)[:120]}") from None
    return np.asarray(numbers.astype(np.float32) if numbers.dtype.name == "bfloat16" else numbers)


def _external(proto: Any, count: int, folder: Path) -> NDArray[Any]:
    """Numbers in a second file, which must lie in the first one's folder and be long enough."""
    from onnx import helper

    entries = {entry.key: entry.value for entry in proto.external_data}
    location = entries.get("location", "")
    where = f"tensor {proto.name[:80]!r} lies in another file {location[:80]!r}"
    try:
        kind = np.dtype(helper.tensor_dtype_to_np_dtype(proto.data_type))
        offset = int(entries.get("offset", "0"))
        length = int(entries.get("length", str(count * kind.itemsize)))
        path = (folder / location).resolve()
        inside = bool(location) and path.is_relative_to(folder.resolve())
    except (ValueError, KeyError, OSError, TypeError):
        raise InvalidNetwork(f"{where} with a place that makes no sense") from None
    if not inside:
        raise InvalidNetwork(f"{where}, which is outside the folder: it is not followed")
    if kind.name not in ("float64", "float32", "float16", "int64", "int32", "int8", "uint8"):
        raise Unsupported(f"{where} as {kind.name}: save the model in one file")
    if not path.is_file():
        raise InvalidNetwork(f"{where}, which does not exist")
    if offset < 0 or length != count * kind.itemsize or offset + length > path.stat().st_size:
        raise InvalidNetwork(f"{where}, which has no {length:,} bytes for it at byte {offset:,}")
    return np.fromfile(path, dtype=kind.newbyteorder("<"), count=count, offset=offset).reshape(tuple(proto.dims))


def _check_fields(count: int) -> None:
    if count > MAX_FIELDS:
        raise InvalidNetwork(f"more than {MAX_FIELDS:,} entries: not a network that can be read")


def _fields(content: memoryview, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Field number, begin and end of each entry of a protocol buffer message; entries of fixed size are empty."""
    while at < end:
        key, at = _varint(content, at, end)
        kind, begin = key & 7, at
        if kind == 0:
            _, at = _varint(content, at, end)
            begin = at
        elif kind == 2:
            length, begin = _varint(content, at, end)
            at = begin + length
        elif kind in (1, 5):
            at = begin = at + (8 if kind == 1 else 4)
        else:
            raise InvalidNetwork("not an ONNX file")
        if at > end:
            raise InvalidNetwork("not an ONNX file, or a truncated one")
        yield key >> 3, begin, at


def _varint(content: memoryview, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end and shift < 70:
        byte = content[at]
        value, at, shift = value | (byte & 127) << shift, at + 1, shift + 7
        if byte < 128:
            return value, at
    raise InvalidNetwork("not an ONNX file, or a truncated one")
