"""Weights of a module from a file and into a file, and the values of its laws."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from lawful.errors import InvalidNetwork, LawfulError
from lawful.network.formats import pt, safetensors
from lawful.network.formats.reading import naming
from lawful.network.formats.writing import replacing, write_bytes
from lawful.symmetry.result import Symmetries

FILES: dict[str, Any] = {".safetensors": safetensors, ".pt": pt, ".pth": pt}


def load_weights(module: nn.Module, path: Path) -> None:
    """Put the tensors of a file into a module; names and sizes have to fit."""
    if path.suffix.lower() not in FILES:
        raise LawfulError(f"{path}: weights are read from {', '.join(FILES)}")
    with naming(path):
        arrays, _ = FILES[path.suffix.lower()].load(path)
        state = {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}
        try:
            lost = module.load_state_dict(state, strict=False)
        except RuntimeError as error:
            raise InvalidNetwork(" ".join(str(error).split())[:300]) from None
        tied = _tied(module)
        missing = [name for name in lost.missing_keys if not any(twin in state for twin in tied.get(name, ()))]
        if missing or lost.unexpected_keys:
            raise InvalidNetwork(
                f"does not fit the module: {len(missing)} tensors are missing ({', '.join(missing[:3])}), "
                f"{len(lost.unexpected_keys)} are not its own ({', '.join(lost.unexpected_keys[:3])})"
            )


def _tied(module: nn.Module) -> dict[str, tuple[str, ...]]:
    """For each name the other names of the same tensor."""
    names: dict[int, list[str]] = {}
    for name, tensor in module.named_parameters(remove_duplicate=False):
        names.setdefault(id(tensor), []).append(name)
    return {name: tuple(each for each in found if each != name) for found in names.values() for name in found}


def write_weights(weights: Mapping[str, torch.Tensor], out: Path, *, like: Path | None = None) -> None:
    """Write tensors by name, in the format of the file's ending."""
    suffix = out.suffix.lower()
    if suffix not in FILES:
        raise LawfulError(f"{out}: weights are written to {', '.join(FILES)}")
    if like is not None and like.suffix.lower() != suffix:
        raise LawfulError(f"{out}: the weights came from {like.suffix}: write the same format")
    write_bytes(out, FILES[suffix].dump({name: tensor.cpu().numpy() for name, tensor in weights.items()}, None))


def write_values(found: Symmetries, module: Any, out: Path) -> None:
    """All values of the laws at the module's weights, family by family: arrays `law00000`, ... and their `names`."""
    if not isinstance(module, nn.Module):
        from lawful.network.modules.convert import to_module

        module = to_module(module)
    theta = dict(module.named_parameters())
    if any(tensor.device.type == "meta" for tensor in theta.values()):
        raise LawfulError("a module on the meta device has no weights: its laws have no values")
    import zipfile

    with replacing(out) as draft, zipfile.ZipFile(draft, "w", zipfile.ZIP_STORED) as archive:
        names = []
        for number, (family, values) in enumerate(found.laws.stream(theta)):
            names.append(" ".join(family.parameters))
            with archive.open(f"law{number:05}.npy", "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, values, allow_pickle=False)
        with archive.open("names.npy", "w") as stream:
            np.lib.format.write_array(stream, np.array(names or [""]), allow_pickle=False)
