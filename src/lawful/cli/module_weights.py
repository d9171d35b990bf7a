"""Weights of a module into a file, and the values of its laws."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lawful.errors import LawfulError
from lawful.network.formats.writing import replacing

if TYPE_CHECKING:
    import torch

    from lawful.symmetry import Symmetries


def write_weights(weights: Mapping[str, torch.Tensor], out: Path, *, like: Path | None = None) -> None:
    """Write tensors by name, in the format of the file's ending, which is that of the file they came from."""
    suffix = out.suffix.lower()
    if suffix not in (".safetensors", ".pt", ".pth"):
        raise LawfulError(f"{out}: weights are written to .safetensors, .pt or .pth")
    if like is not None and like.is_file() and like.suffix.lower() != suffix:
        raise LawfulError(f"{out}: the weights came from {like.suffix}: write the same format")
    state = {name: tensor.cpu().contiguous().clone() for name, tensor in weights.items()}
    with replacing(out) as draft:
        import torch
        from safetensors import SafetensorError
        from safetensors.torch import save_file

        try:
            save_file(state, draft) if suffix == ".safetensors" else torch.save(state, draft)
        except (SafetensorError, RuntimeError) as error:  # their words for a full disk
            raise LawfulError(f"cannot be written: {str(error).splitlines()[0][:160]}") from None


def write_values(found: Symmetries, module: Any, out: Path) -> None:
    """All values of the laws at the module's weights, space by space: arrays `law00000`, ... and their `names`."""
    theta = dict(module.named_parameters())
    if any(tensor.is_meta for tensor in theta.values()):
        raise LawfulError("a module on the meta device has no weights: its laws have no values")
    with replacing(out) as draft, zipfile.ZipFile(draft, "w", zipfile.ZIP_STORED) as archive:
        names = []
        for number, (laws, values) in enumerate(found.laws.stream(theta)):
            names.append(" ".join(laws.parameters))
            with archive.open(f"law{number:05}.npy", "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, values, allow_pickle=False)
        with archive.open("names.npy", "w") as stream:
            np.lib.format.write_array(stream, np.array(names or [""]), allow_pickle=False)
