"""By which scheme of quantisation each weight of a checkpoint is stored, and how far neighbouring values are apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from lawful.formats.io.detect_format import kind_of
from lawful.formats.tensors import gguf
from lawful.formats.tensors.quantised import is_quantised, read_schemes
from lawful.sources.checkpoints import gguf_names
from lawful.sources.checkpoints.load import settings_beside, stored_state


@dataclass(frozen=True, eq=False)
class StoredScheme:
    """A weight's scheme, and the distance of neighbouring values at each entry, made when it is asked for."""

    scheme: str
    step: Callable[[], torch.Tensor]


def schemes_of(path: Path) -> Iterator[tuple[str, StoredScheme]]:
    """The quantised weights of a checkpoint, under the names that its module has; none if there are none."""
    if path.is_file() and kind_of(path) == "gguf":
        yield from _of_gguf(path)
    elif path.is_dir() or kind_of(path) in ("safetensors", "index", "pt"):
        state, _, _ = stored_state(path)
        if is_quantised(state):
            for name, weight in read_schemes(state, settings_beside(path)):
                yield name, StoredScheme(weight.scheme, lambda found=weight: found.step)  # type: ignore[misc]


def _of_gguf(path: Path) -> Iterator[tuple[str, StoredScheme]]:
    tensors = gguf.GgufTensors(path)
    renamed = gguf_names.is_named_by_llama_cpp(tensors)
    names = gguf_names.translated_names(tensors) if renamed else {name: name for name in tensors}
    for old, new in names.items():
        place = tensors.places[old]
        if gguf.BLOCKS[place.kind].step is not None:
            yield new, StoredScheme(gguf.BLOCKS[place.kind].name, _steps(tensors, old, renamed))


def _steps(tensors: gguf.GgufTensors, name: str, renamed: bool) -> Callable[[], torch.Tensor]:
    def read() -> torch.Tensor:
        distances = torch.from_numpy(gguf.steps(tensors.path, tensors.places[name]))
        return gguf_names.in_order(distances, name, tensors.facts) if renamed else distances

    return read
