"""Files that hold a constant metric on the weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lawful.errors import LawfulError
from lawful.formats.io.reading import naming, read_json
from lawful.formats.tensors import npz as npz_format
from lawful.network.dynamics import Metric
from lawful.types import Floats, Indices

FORMATS = (".npz", ".json")
NEEDED = "`diagonal`, `matrix`, or `blocks` of `weights` and a `matrix` each"


def read_metric(path: Path, parameters: int) -> Metric:
    """Read M from a file, and check that it is positive and fits so many parameters.

    JSON: `{"diagonal": [...]}`, `{"matrix": [[...]]}` (all of M) or `{"blocks": [{"weights": [0, 1], "matrix": ...}]}`.
    `.npz`: one vector (the diagonal), one square matrix (all of M), or arrays `weights0`, `matrix0`, `weights1`, ...
    """
    if path.suffix.lower() not in FORMATS:
        raise LawfulError(f"{path}: a metric comes as {' or '.join(FORMATS)}")
    with naming(path):
        metric = metric_from(_npz(path) if path.suffix.lower() == ".npz" else read_json(path), parameters)
        metric.check(parameters)
    return metric


def metric_from(body: Any, parameters: int) -> Metric:
    """A metric from the object of `metric_json`, or from one that holds all of M as `matrix`."""
    if not isinstance(body, Mapping) or len(body) != 1:
        raise LawfulError(f"a metric file holds {NEEDED}")
    match dict(body):
        case {"diagonal": values}:
            return Metric(_numbers("diagonal", values, 1))
        case {"matrix": values}:
            matrix = _numbers("matrix", values, 2)
            if matrix.shape != (parameters, parameters):
                raise LawfulError(f"the matrix is {'×'.join(map(str, matrix.shape))}, for {parameters} parameters")
            return Metric(blocks=((np.arange(parameters), matrix),))
        case {"blocks": list(blocks)}:
            return Metric(blocks=tuple(_block(number, block) for number, block in enumerate(blocks)))
    raise LawfulError(f"a metric file holds {NEEDED}")


def metric_json(metric: Metric) -> dict[str, Any]:
    """The object that `metric_from` reads."""
    if metric.diagonal is not None:
        return {"diagonal": np.asarray(metric.diagonal).tolist()}
    blocks = [{"weights": np.asarray(where).tolist(), "matrix": np.asarray(m).tolist()} for where, m in metric.blocks]
    return {"blocks": blocks}


def _block(number: int, block: Any) -> tuple[Indices, Floats]:
    if not isinstance(block, Mapping) or set(block) != {"weights", "matrix"}:
        raise LawfulError(f"block {number} needs `weights` and `matrix`")
    where = _numbers(f"weights of block {number}", block["weights"], 1)
    if not np.array_equal(where, np.round(where)) or np.abs(where).max(initial=0.0) > 2**53:
        raise LawfulError(f"the weights of block {number} are not numbers of parameters, counted from 0")
    return where.astype(np.intp), _numbers(f"matrix of block {number}", block["matrix"], 2)


def _numbers(name: str, values: Any, dimensions: int) -> Floats:
    try:
        array = np.asarray(values)
        if array.dtype.kind not in "iuf" or array.ndim != dimensions:
            raise ValueError
    except ValueError:
        raise LawfulError(f"{name} is not {'a list' if dimensions == 1 else 'a matrix'} of numbers") from None
    return array.astype(np.float64)


def _npz(path: Path) -> dict[str, Any]:
    arrays = npz_format.load_arrays(path)
    if len(arrays) == 1:
        (array,) = arrays.values()
        return {"diagonal" if array.ndim == 1 else "matrix": array}
    count = len(arrays) // 2
    if not arrays or set(arrays) != {f"{kind}{number}" for number in range(count) for kind in ("weights", "matrix")}:
        raise LawfulError(f"needs one array, or weights0, matrix0, weights1, ...; it has {', '.join(arrays)[:100]}")
    return {"blocks": [{"weights": arrays[f"weights{n}"], "matrix": arrays[f"matrix{n}"]} for n in range(count)]}
