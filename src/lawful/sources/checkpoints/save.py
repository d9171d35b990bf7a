"""Weights of a module back into a checkpoint like the one they came from: its names, types, metadata and files."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from lawful.errors import LawfulError
from lawful.formats.io.detect_format import kind_of
from lawful.formats.io.reading import naming
from lawful.formats.io.writing import replacing, write_bytes
from lawful.formats.tensors.arrays import stored_names
from lawful.formats.tensors.shards import weights_in, write_folder
from lawful.network.mlp import Mlp
from lawful.sources import files
from lawful.sources.checkpoints.load import fitting, onnx_state, state_for, state_of

if TYPE_CHECKING:
    import torch

PICKLED = (".pt", ".pth", ".ckpt", ".bin")


def write_weights(
    weights: Mapping[str, torch.Tensor],
    out: Path,
    *,
    like: Path | None = None,
    changed: Mapping[str, bytes | None] = MappingProxyType({}),
    whole: bool = False,
) -> None:
    """Write a module's weights: a file by its ending, or a new folder if they came from a folder or an index.

    With the source at hand, names (`module.` and such prefixes too) and types are the source's. A source that is no
    checkpoint, such as `module:factory`, has none. Weights that are no dict are made when their turn comes, and have
    the shapes of the source. Files of a folder that are `changed` have another content there, or are left out (None).
    If the weights are the `whole` network, tensors of its class that are not among them have left.
    """
    source = None if like is None or not like.exists() else weights_in(like) if like.is_dir() else like
    # Names and types are taken from state dicts only.
    if source is not None and source.suffix.lower() not in (".safetensors", ".json", *PICKLED):
        source = None
    # Before anything is written: what cannot be written back is refused here.
    named = _as_they_are(weights) if source is None else _as_stored(weights, source, like, whole)
    if out.suffix.lower() == ".onnx":
        write_bytes(out, _onnx_bytes(weights, like, out))
        return
    suffix, folder = out.suffix.lower(), source is not None and (source != like or kind_of(source) == "index")
    if suffix not in (".safetensors", *PICKLED):
        if not folder or source is None:
            raise LawfulError(f"{out}: weights are written to .safetensors, .pt, .pth, .ckpt or .bin")
        inner = ".safetensors" if "safetensors" in source.name else ".bin"
        sizes = {name: math.prod(tensor.shape) * tensor.kind.itemsize for name, tensor in named.items()}
        write_folder(
            source,
            out,
            list(named),
            sizes,
            lambda names, file: _write({n: named[n] for n in names}, inner, source, file),
            changed,
        )
        return
    if source is not None and not folder and (source.suffix.lower() in PICKLED) != (suffix in PICKLED):
        raise LawfulError(f"{out}: the weights came from {source.suffix}: write the same format")
    with replacing(out) as draft:
        _write(named, suffix, source, draft)


@dataclass(frozen=True, eq=False)
class _Outgoing:
    """A tensor on its way: of what type and shape, and how it is made."""

    kind: torch.dtype
    shape: tuple[int, ...]
    make: Callable[[], torch.Tensor]


def _as_they_are(weights: Mapping[str, torch.Tensor]) -> dict[str, _Outgoing]:
    outgoing = {}
    for name, tensor in weights.items():
        outgoing[name] = _Outgoing(tensor.dtype, tuple(tensor.shape), tensor.detach)
    return outgoing


def _onnx_bytes(weights: Mapping[str, torch.Tensor], like: Path | None, out: Path) -> bytes:
    if like is None or not like.is_file() or kind_of(like) != "onnx":
        raise LawfulError(f"{out}: weights alone are no ONNX file: write .safetensors or .pt")
    from lawful.sources.onnx.module import OnnxModule
    from lawful.sources.onnx.network import refill_file
    from lawful.sources.onnx.reader import load_model

    with naming(like):
        model = load_model(like)
        return refill_file(model, OnnxModule(model, like.parent), weights)


def _as_stored(
    weights: Mapping[str, torch.Tensor], source: Path, folder: Path | None, whole: bool
) -> dict[str, _Outgoing]:
    """The weights under the names and in the types of their source; a bias that is new comes last."""
    state, _, _ = state_of(source)
    names, prefix = fitting(list(state), set(weights))
    unknown = [name for name in names if name not in weights]
    module = None if folder is None else _own_module(folder)
    if module is not None and weights.keys() <= set(module.state_dict()):
        from lawful.sources.checkpoints.translation import is_translated, translation_of

        if unknown or is_translated(module, list(state)):
            with naming(source):
                return _as_they_are(translation_of(module, state).back(weights, whole=whole))
    if unknown:
        layers = _layer_names(source)
        if {layers.get(name, name) for name in state} <= weights.keys():
            names, unknown = [layers.get(name, name) for name in state], []
    if unknown:
        raise LawfulError(
            f"{source}: its name {unknown[0][:80]} is none of the module's, so it cannot be written back under its "
            "own names: write one .safetensors or .pt file from a module that was loaded with --model module:factory"
        )
    outgoing = {}
    for name, new in zip(state, names, strict=True):
        shape = (weights[new] if isinstance(weights, dict) else state[name]).shape
        outgoing[name] = _Outgoing(state[name].dtype, tuple(shape), partial(weights.__getitem__, new))
    tied = set() if module is None else _other_names(module, set(names))
    for new in weights.keys() - set(names) - tied:
        if not any(_one_tensor(weights[new], weights[other]) for other in names):
            outgoing |= _as_they_are({prefix + new: weights[new]})
    return outgoing


def _layer_names(source: Path) -> dict[str, str]:
    """What the tensors of a file of linear layers are called in the module that it is opened as, a `Sequential`."""
    try:
        network = files.read(source)
    except LawfulError:
        return {}
    pairs = stored_names(network.reading, len(network.weights)) if isinstance(network, Mlp) else None
    return {
        stored: f"{2 * number}.{part}"
        for number, (weight, bias, _) in enumerate(pairs or ())
        for stored, part in ((weight, "weight"), (bias, "bias"))
    }


def _other_names(module: torch.nn.Module, names: set[str]) -> set[str]:
    """Names under which the module holds a tensor that is among those names already."""
    state = module.state_dict(keep_vars=True)
    tensors = {id(tensor) for name, tensor in state.items() if name in names}
    return {name for name, tensor in state.items() if id(tensor) in tensors}


def translated_state(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of a checkpoint; those of a folder of Hugging Face under the names that its module has today."""
    if path.is_file() and kind_of(path) == "onnx":
        return onnx_state(path)
    module = _own_module(path)
    return state_of(path)[0] if module is None else state_for(module, path)


def _own_module(folder: Path) -> Any:
    """The module that a folder's settings describe, without numbers; None if they describe none."""
    from lawful.sources.checkpoints.hugging_face import module_of

    try:
        return module_of(folder, 0)[0] if (folder / "config.json").is_file() else None
    except LawfulError:  # a folder of somebody's own module
        return None


def _one_tensor(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two names of a module stand for one tensor, which its source may hold once."""
    import torch

    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return one.data_ptr() == other.data_ptr() or (one.ndim > 1 and torch.equal(one, other))


def _write(named: Mapping[str, _Outgoing], suffix: str, source: Path | None, file: Path) -> None:
    """A file of some tensors; those of `.safetensors` are made one by one."""
    if suffix == ".safetensors":
        from lawful.formats.tensors.safetensors import write_tensors

        described = {name: (tensor.kind, tensor.shape) for name, tensor in named.items()}
        write_tensors(file, described, lambda name: named[name].make(), _metadata(source))
        return
    import torch

    whole = {
        name: tensor.make().detach().cpu().to(tensor.kind, copy=True).contiguous() for name, tensor in named.items()
    }
    torch.save(whole, buffer := io.BytesIO())
    file.write_bytes(buffer.getbuffer())  # a full disk is an OSError here, and whatever PyTorch makes of it there


def _metadata(source: Path | None) -> dict[str, str] | None:
    """The texts in the header of the source, or of its first shard."""
    from lawful.formats.tensors import safetensors
    from lawful.formats.tensors.shards import weight_map

    if source is None or "safetensors" not in source.name:
        return None
    file = source.with_name(min(weight_map(source).values())) if kind_of(source) == "index" else source
    return safetensors.contents(file)[1] or None
