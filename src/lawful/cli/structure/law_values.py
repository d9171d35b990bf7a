"""The values of a module's laws into a file."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lawful.errors import LawfulError
from lawful.formats.io.writing import replacing

if TYPE_CHECKING:
    from lawful.symmetry import Symmetries


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
