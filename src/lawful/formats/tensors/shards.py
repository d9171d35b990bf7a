"""Checkpoints in several files: an index says which file holds a tensor, and a folder keeps them together."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from lawful.errors import InvalidNetwork, Unsupported
from lawful.formats.io.reading import naming, read_object
from lawful.formats.io.writing import new_folder
from lawful.network.reading import list_names

# In the order of `transformers`: many folders hold the same weights in both formats, and some of them others.
WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
MOST_BESIDE = 64 * 2**20  # bytes of a file that is copied because it lies beside the weights
SHARD = re.compile(r"-(\d+)-of-(\d+)\.\w+$")

Encode = Callable[[Sequence[str], Path], None]
Shard = TypeVar("Shard")


def weights_in(folder: Path) -> Path:
    """The index or the one file of weights in a folder: of several, the one that `transformers` loads."""
    weights = next((folder / name for name in WEIGHTS if (folder / name).is_file()), None)
    if weights is None:
        raise InvalidNetwork(f"a folder without {', '.join(WEIGHTS)}")
    return weights


def folder_of(path: Path) -> Path | None:
    """The folder of Hugging Face whose weights a file is: the one that is loaded of those beside a `config.json`."""
    if path.name not in WEIGHTS or not path.is_file() or not path.with_name("config.json").is_file():
        return None
    return path.parent if weights_in(path.parent).name == path.name else None


def weight_map(index: Path) -> dict[str, str]:
    """Which file beside the index holds each tensor."""
    homes = read_object(index).get("weight_map")
    if not isinstance(homes, dict) or not all(isinstance(name, str) for name in homes.values()):
        raise InvalidNetwork("an index of shards needs a map 'weight_map' from tensors to files")
    for name in homes.values():
        if name.endswith(".index.json"):  # which could name the first one again
            raise InvalidNetwork(f"the shard {name[:80]!r} is an index itself")
        if Path(name).name != name or name in ("", ".", ".."):
            raise InvalidNetwork(f"the shard {name[:80]!r} lies in another folder: it is not followed")
    return homes


def read_shards(index: Path, read: Callable[[Path], Shard], names_of: Callable[[Shard], Iterable[str]]) -> list[Shard]:
    """What each shard of an index holds: every tensor that the index names, each in one shard."""
    homes = weight_map(index)
    shards: list[Shard] = []
    known: set[str] = set()
    for name in sorted(set(homes.values())):
        file = index.with_name(name)
        if not file.is_file():
            raise InvalidNetwork(f"the shard {name[:80]} is missing")
        shards.append(read(file))
        names = set(names_of(shards[-1]))
        if twice := known & names:
            raise InvalidNetwork(f"{min(twice)[:80]!r} is in two shards")
        known |= names
    if missing := set(homes) - known:
        raise InvalidNetwork(f"no shard holds {list_names(sorted(missing), 3)}")
    return shards


def refuse_lone_shard(path: Path) -> None:
    """One shard of several is no network, though its layers may look like one.

    >>> refuse_lone_shard(Path("model-00001-of-00002.safetensors"))
    Traceback (most recent call last):
    lawful.errors.Unsupported: is shard 1 of 2: give the index (model.safetensors.index.json), or the folder
    """
    matched = SHARD.search(path.name)
    if matched is not None and int(matched[2]) > 1:
        ending = path.suffix
        index = f"{path.name[: matched.start()]}{ending}.index.json"
        raise Unsupported(f"is shard {int(matched[1])} of {int(matched[2])}: give the index ({index}), or the folder")


def write_folder(
    source: Path,
    out: Path,
    names: Sequence[str],
    sizes: Mapping[str, int],
    encode: Encode,
    changed: Mapping[str, bytes | None] = MappingProxyType({}),
) -> None:
    """A new folder like the one of `source` (its index, or its one file of weights): the same shards, the same files
    beside them, other numbers. `names` are the tensors, `sizes` their bytes, `encode` writes some of them to a file.
    Files beside them that are `changed` have another content, or none: then they are left out.
    """
    with naming(source):
        homes = weight_map(source) if source.name.endswith(".index.json") else {}
        last = max(homes.values()) if homes else source.name
        # A bias that pruning made lies beside its weight.
        placed = {name: homes.get(name) or homes.get(re.sub(r"bias$", "weight", name)) or last for name in names}
    files = sorted(set(placed.values()))
    with new_folder(out) as draft:
        for beside in sorted(source.absolute().parent.iterdir()):
            if _goes_along(beside, {*files, *homes.values(), source.name}):
                if beside.name not in changed:
                    shutil.copyfile(beside, draft / beside.name)
                elif (content := changed[beside.name]) is not None:
                    (draft / beside.name).write_bytes(content)
        for file in files:
            encode([name for name in names if placed[name] == file], draft / file)
        if homes:
            old = read_object(source)
            metadata: Any = old.get("metadata") if isinstance(old.get("metadata"), dict) else {}
            index = {"metadata": {**metadata, "total_size": sum(sizes.values())}, "weight_map": placed}
            (draft / source.name).write_text(json.dumps(index, indent=2) + "\n")


def _goes_along(file: Path, written: set[str]) -> bool:
    """Settings and tokenizers do; other weights, hidden files, folders and large files stay behind."""
    if file.name in written or file.name.startswith(".") or not file.is_file():
        return False
    other = file.suffix in (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".onnx", ".gguf")
    return not other and not file.name.endswith(".index.json") and file.stat().st_size <= MOST_BESIDE
