"""The tensors of a checkpoint, without reading their numbers: names, types and shapes."""

from __future__ import annotations

from pathlib import Path

from lawful.errors import LawfulError
from lawful.formats.io.detect_format import kind_of
from lawful.formats.io.limits import MAX_BYTES, MAX_MAPPED
from lawful.formats.io.reading import read_json
from lawful.formats.tensors.shards import weights_in
from lawful.network.reading import Reading, TensorReading
from lawful.sources import files


def contents(path: Path) -> Reading | None:
    """What a file, an index of shards or a folder holds, if it is a checkpoint that can be trusted to be one."""
    try:
        if path.is_dir():
            path = weights_in(path)
        files.check_file(path, MAX_MAPPED)
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
        shards = [path.with_name(Path(name).name) for name in sorted(set(read_json(path)["weight_map"].values()))]
        found = [_layers(shard, kind_of(shard)) for shard in shards]
        return None if None in found else tuple(layer for shard in found for layer in shard or ())
    if kind == "pt" and path.stat().st_size <= MAX_BYTES:
        from lawful.formats.tensors import pt

        state, _ = pt.load_tensors(path)
        return tuple(
            TensorReading(name, str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))
            for name, tensor in state.items()
        )
    if kind == "npz":
        stored = files.load_arrays(path, kind)
        return tuple(stored.layer(name) for name in stored.arrays)
    return None
