"""`.pt` state dicts: the archive and the names its pickle asks for are checked before PyTorch loads weights only.

Files from before PyTorch 1.6 are five pickles and raw numbers instead of an archive; their pickles are checked alike.
"""

from __future__ import annotations

import io
import pickletools
import sys
import tempfile
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import ZIP_STORED, BadZipFile

import numpy as np
from numpy.typing import NDArray

from lawful.errors import InvalidNetwork, Unsupported
from lawful.formats.io.limits import MAX_BYTES, check_bytes, check_entries, check_numbers, open_zip
from lawful.formats.tensors.arrays import StoredArrays
from lawful.network.validity import check_names

if TYPE_CHECKING:
    import torch

MAX_PICKLE = 8 * 2**20
NUMBERS = ("Double", "Float", "Half", "BFloat16", "Long", "Int", "Short", "Char", "Byte", "Bool")
BUILTIN = ("set", "frozenset", "list", "dict", "tuple", "int", "long", "float", "complex", "str", "bool", "object")
PLAIN = ("device", "float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool")
ALLOWED = {
    "collections OrderedDict",
    "torch._utils _rebuild_tensor",
    "torch._utils _rebuild_tensor_v2",
    "torch._utils _rebuild_parameter",
    "torch Size",
    *(f"torch {name}" for name in PLAIN),
    *(f"torch {kind}Storage" for kind in NUMBERS),
}
# Settings that trainers store beside the weights are read as objects without any behaviour, and then ignored: those of
# other people's classes, and these of the standard library. Any other name of the library is an attack, or as good as.
INERT = {
    "argparse Namespace",
    "pathlib PosixPath",
    "pathlib WindowsPath",
    "collections defaultdict",
    "functools partial",
    "types SimpleNamespace",
    "datetime datetime",
    "uuid UUID",
    "_codecs encode",
    "typing Any",
    *(f"{home} {name}" for home in ("__builtin__", "builtins") for name in BUILTIN),
}
MODULES = ("torch.nn.", "torch.optim.")  # of PyTorch's own classes that may be among the settings
WRAPPERS = ("state_dict", "model_state_dict", "model")  # the usual keys of checkpoints
MAX_WRAPPERS = 4  # dicts around the state dict
MAGIC = 0x1950A86A20F9469CFC6C  # the number that the older format begins with
OLDER_PICKLES = 5  # that number, a version, facts of the machine, the object, the keys of its storages
WAY_OUT = "save its weights with torch.save(module.state_dict(), 'weights.pt')"


class _Foreign:
    """Makes what stands for an object of someone else's class, which is never imported: a dict that says its name.

    PyTorch's reader of weights alone puts entries into plain dicts only, so no class of ours would do.
    """

    name = ""

    def __new__(cls, *arguments: Any) -> Any:
        ordered: OrderedDict[Any, Any] = OrderedDict()
        ordered.foreign = cls.name  # type: ignore[attr-defined]
        return ordered


class _ForeignArray:
    """Makes what stands for an array of NumPy, or for its type: they are filled by a tuple, which no dict takes."""

    name = ""

    def __new__(cls, *arguments: Any) -> Any:
        array = object.__new__(cls)
        array.foreign = cls.name  # type: ignore[attr-defined]
        return array

    def __setstate__(self, state: Any) -> None:
        """Nothing of it is wanted."""


def _foreign_class(held: Any) -> str:
    """The name of the class that an object of a file had, if it was someone else's."""
    return str(getattr(held, "foreign", ""))


def load(path: Path) -> StoredArrays:
    """The tensors of a state dict in its order, and the slopes it states, if any."""
    state, ignored = load_tensors(path)
    seen: dict[Any, NDArray[Any]] = {}  # what is one tensor in the file stays one, in whatever type
    arrays = {name: seen.setdefault(_place(tensor), _array(name, tensor)) for name, tensor in state.items()}
    dtypes = {name: str(tensor.dtype).removeprefix("torch.") for name, tensor in state.items()}
    return StoredArrays(arrays, dtypes, _slopes(state), ignored)


def load_tensors(path: Path, limit: int = MAX_BYTES) -> tuple[dict[str, torch.Tensor], tuple[str, ...]]:
    """The tensors themselves, and the names of what else a checkpoint holds."""
    inert = _check_archive(path, limit)
    import torch

    try:
        # PyTorch looks names up among these before it would import them: nothing of the file's choice is imported.
        foreign: list[Any] = [
            (type(name, (_ForeignArray if name.startswith("numpy.") else _Foreign,), {"name": name}), name)
            for name in inert
        ]
        with torch.serialization.safe_globals(foreign):  # names that lead to these, and to no import
            loaded = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # whatever a broken pickle makes of PyTorch
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise InvalidNetwork(f"PyTorch cannot load it as weights: {lines[0][:160]}; {WAY_OUT}") from None
    state, others = _find_state(loaded)
    check_entries(len(state))
    for name, tensor in state.items():
        if not isinstance(name, str):
            raise Unsupported(f"entry {str(name)[:80]} has no name, but a key of type {type(name).__name__}: {WAY_OUT}")
        if not isinstance(tensor, torch.Tensor):
            raise Unsupported(f"entry {str(name)[:80]!r} is a {type(tensor).__name__}, not a tensor: {WAY_OUT}")
    check_names([*state, *map(str, others)])
    twins = [name for name, value in others.items() if isinstance(value, dict) and value.keys() == state.keys()]
    words = {name: "other weights of the same names" if name in twins else "beside the weights" for name in others}
    return state, tuple(f"{str(name)[:80]} ({word})" for name, word in words.items())


def _find_state(loaded: Any) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """The state dict of a checkpoint, under a usual key or the only one that holds tensors; and what lies beside it."""
    import torch

    others: dict[str, Any] = {}
    for _ in range(MAX_WRAPPERS):
        if not isinstance(loaded, dict) or _foreign_class(loaded):
            raise Unsupported(f"holds {_what(loaded)}, not a state dict: where you trust it, {WAY_OUT}")
        if any(isinstance(value, torch.Tensor) for value in loaded.values()):
            break
        dicts = {key: value for key, value in loaded.items() if isinstance(value, dict) and not _foreign_class(value)}
        states = [key for key, value in dicts.items() if _holds_tensors(value)]
        key = next((key for key in WRAPPERS if key in dicts), states[0] if len(states) == 1 else None)
        if key is None:
            if not states:
                objects = [value for value in loaded.values() if _foreign_class(value)]
                if objects:
                    raise Unsupported(f"holds {_what(objects[0])} and no state dict: where you trust it, {WAY_OUT}")
                break
            names = ", ".join(str(state)[:40] for state in states[:4])
            raise Unsupported(f"holds several state dicts ({names}), and does not say which is meant: save that one")
        others |= {str(name): value for name, value in loaded.items() if name != key}
        loaded = loaded[key]
    return loaded, others


def _what(held: Any) -> str:
    """An object of a pickle, in words."""
    foreign = _foreign_class(held)
    return f"a whole object of {foreign[:80]}" if foreign else f"a {type(held).__name__}"


def _is_inert(name: str) -> bool:
    """Whether a name that a pickle asks for may be an object of which nothing is wanted."""
    module = name.partition(" ")[0]
    known = module.partition(".")[0]
    of_torch = known == "torch" and (f"{module}.".startswith(MODULES) or name == "torch.torch_version TorchVersion")
    return name in INERT or of_torch or (known not in sys.stdlib_module_names and known not in ("torch", "__builtin__"))


def _holds_tensors(held: Mapping[Any, Any]) -> bool:
    import torch

    return bool(held) and all(isinstance(n, str) and isinstance(value, torch.Tensor) for n, value in held.items())


def dump(
    arrays: Mapping[str, NDArray[Any]], dtypes: Mapping[str, str], slopes: tuple[float, ...] | None, stem: str
) -> bytes:
    """The bytes of a file of this name that holds the arrays; the slopes go where `load_state_dict` ignores them."""
    import torch

    state: OrderedDict[str, torch.Tensor] = OrderedDict()
    for name, array in arrays.items():
        state[name] = torch.from_numpy(np.array(array)).to(getattr(torch, dtypes.get(name, str(array.dtype))))
    if slopes is not None:
        state._metadata = OrderedDict({"": {"version": 1, "lawful.slopes": list(slopes)}})  # type: ignore[attr-defined]
    # The same network gives the same bytes only under the same name of the file.
    with tempfile.TemporaryDirectory() as folder:  # PyTorch repeats the name of the file in every entry
        path = Path(folder) / f"{stem}.pt"
        torch.save(state, path)
        return path.read_bytes()


def _check_archive(path: Path, limit: int) -> list[str]:
    """Refuse bombs, other people's pickles, and those that ask for anything but tensors; which inert settings it
    asks for."""
    with path.open("rb") as stream:
        start = stream.read(2)
        if start[:1] == b"\x80":
            return _check_older(start + stream.read(MAX_PICKLE))
        if start != b"PK":
            raise InvalidNetwork(
                "is neither an archive nor a pickle of PyTorch: if it holds weights of another library, give the ONNX "
                "file, or the .safetensors file, that this library writes"
            )
    with open_zip(path, limit) as archive:
        members = archive.infolist()
        if any("/code/" in member.filename or member.filename.endswith("/constants.pkl") for member in members):
            raise InvalidNetwork(f"TorchScript is not read: it is a program; load it with torch.jit.load and {WAY_OUT}")
        # A small archive that unpacks to a large one has entries that are packed, or that share their bytes.
        packed = [member for member in members if member.compress_type != ZIP_STORED]
        if packed or sum(member.file_size for member in members) > path.stat().st_size:
            raise InvalidNetwork("its entries are packed or overlap, as PyTorch never writes them")
        pickles = [member for member in members if member.filename.endswith(".pkl")]
        if len(pickles) != 1 or not pickles[0].filename.endswith("/data.pkl"):
            raise InvalidNetwork(f"holds no state dict (one data.pkl was expected): {WAY_OUT}")
        check_bytes("its pickle", pickles[0].file_size, MAX_PICKLE)
        try:
            code = archive.read(pickles[0])
        except (BadZipFile, EOFError, OSError, ValueError, NotImplementedError) as error:
            raise InvalidNetwork(f"its pickle cannot be read: {error}") from None
    return _check_pickle(code)


def _check_older(start: bytes) -> list[str]:
    """Check the pickles of a file from before PyTorch 1.6; storages follow them as raw numbers."""
    stream = io.BytesIO(start)
    first = _operations(stream)
    if not any(operation.name.startswith("LONG") and argument == MAGIC for operation, argument, _ in first):
        asked = next((str(argument) for operation, argument, _ in first if operation.name == "GLOBAL"), "")
        what = f" (it asks for {asked[:60]!r})" if asked else ""
        raise InvalidNetwork(f"is a pickle of Python objects{what}, which is not read; where you trust it, {WAY_OUT}")
    imports = set()
    for _ in range(OLDER_PICKLES - 1):
        imports |= set(_check_operations(_operations(stream)))
    return sorted(imports)


def _operations(stream: io.BytesIO) -> list[Any]:
    """The operations of the pickle that begins here; the stream is then behind it."""
    try:
        return list(pickletools.genops(stream))
    except (ValueError, UnicodeError, EOFError, IndexError) as error:
        raise InvalidNetwork(f"its pickle is broken, or too large: {str(error)[:120]}") from None


def _check_pickle(code: bytes) -> list[str]:
    """Check the one pickle of an archive."""
    return _check_operations(_operations(io.BytesIO(code)))


def _check_operations(operations: list[Any]) -> list[str]:
    """Every name that the pickle would import must be a tensor's or a dict's; the inert ones it also names."""
    inert = set()
    for operation, argument, _ in operations:
        if operation.name == "GLOBAL" and argument not in ALLOWED:
            if _is_inert(str(argument)):
                inert.add(str(argument).replace(" ", "."))
                continue
            raise InvalidNetwork(
                f"its pickle asks for {str(argument)[:80]!r}: only tensors are read. Where you trust it, {WAY_OUT}"
            )
        # These take a name from the stack, where a list of operations does not show it: what they import is not known.
        if operation.name in ("STACK_GLOBAL", "INST", "OBJ", "EXT1", "EXT2", "EXT4"):
            raise InvalidNetwork(
                f"its pickle uses {operation.name}, as PyTorch never does for weights: where you trust it, {WAY_OUT}"
            )
    return sorted(inert)


def _array(name: str, tensor: Any) -> NDArray[Any]:
    import torch

    check_numbers(f"tensor {name[:80]!r}", tensor.shape)
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.device.type != "cpu":
        raise Unsupported(f"tensor {name[:80]!r} is {tensor.layout} on {tensor.device}: only dense tensors are read")
    plain = tensor.detach()
    return np.asarray((plain.float() if plain.dtype == torch.bfloat16 else plain).numpy())


def _place(tensor: torch.Tensor) -> Any:
    """Where a tensor lies, and how; a number of its own if it is empty."""
    how = (tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype)
    return how if tensor.numel() else id(tensor)


def _slopes(state: Mapping[str, Any]) -> list[float] | None:
    metadata = getattr(state, "_metadata", None)
    stored = metadata.get("") if isinstance(metadata, dict) else None
    slopes = stored.get("lawful.slopes") if isinstance(stored, dict) else None
    if slopes is None:
        return None
    if not isinstance(slopes, list) or not all(isinstance(slope, float) for slope in slopes):
        raise InvalidNetwork("its metadata 'lawful.slopes' is not a list of numbers")
    return slopes
