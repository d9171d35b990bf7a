"""Of one model file: a symmetry-transformed copy, a copy with one weight changed, its outputs beside ONNX Runtime's."""

from __future__ import annotations

import copy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lawful.errors import LawfulError

CLOSE = 1e-4  # of the largest output: float32 sums in another order
# Ours in float64 may be as many times further from ONNX Runtime than float32 is from itself: ours from ours in float64,
# and ONNX Runtime with its optimisations from ONNX Runtime without.
OWN = 4.0
IDS = 16  # token ids, below any vocabulary


def write_copy(kind: str, file: Path, out: Path) -> int:
    """Write a symmetry-transformed copy of a file ("same copy"), or one with a weight changed; an exit code."""
    try:
        write(file, out, transform(file) if kind == "same copy" else change(file))
    except LawfulError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def transform(file: Path) -> dict[str, torch.Tensor]:
    """The weights after a random member of the group that was read, in their own types."""
    from lawful.checkpoints.group.random_members import random_member
    from lawful.checkpoints.opening import open_one
    from lawful.checkpoints.read_architecture import read_architecture

    opened, module, size = open_one(str(file))
    sizes = size if size is not None else getattr(module, "input_sizes", None) or None
    architecture = read_architecture(module, sizes)
    folded = {name: tensor.double() for name, tensor in opened.state.items()}
    made = random_member(architecture.group, folded, 0, shifted=False)
    return {name: made[name].to(opened.state[name].dtype) for name in opened.state}


def change(file: Path) -> dict[str, torch.Tensor]:
    """The weights with the largest entry of the middle matrix halved."""
    from lawful.checkpoints.opening import open_one

    opened, _, _ = open_one(str(file))
    state = {name: tensor.clone() for name, tensor in opened.state.items()}
    matrices = [name for name, tensor in state.items() if tensor.ndim > 1 and tensor.is_floating_point()]
    flat = state[matrices[len(matrices) // 2]].view(-1)
    flat[int(flat.abs().argmax())] /= 2
    return state


def write(file: Path, out: Path, weights: dict[str, torch.Tensor]) -> None:
    """The same file with these weights."""
    from lawful.sources.checkpoints.save import write_weights

    write_weights(weights, out, like=file)


def evaluate(file: Path) -> int:
    """Print how far the outputs are from ONNX Runtime's, relative to the largest; 1 if that is too far."""
    import onnxruntime  # type: ignore[import-untyped]
    from onnx import helper

    from lawful.sources.opening import open_module

    try:
        module: Any = open_module(str(file)).module
    except LawfulError as error:
        print(error, file=sys.stderr)
        return 2
    if not hasattr(module, "graph"):
        print("a graph of layers", file=sys.stderr)
        return 2
    entries = {entry.name: entry for entry in module.graph.model.graph.input}
    rng, given = np.random.default_rng(0), []
    for name, said in zip(module.inputs, module.input_sizes, strict=True):
        size = tuple(int(n) for n in str(said).removesuffix(":int").split(",") if n) if isinstance(said, str) else said
        kind = np.dtype(helper.tensor_dtype_to_np_dtype(entries[name].type.tensor_type.elem_type))
        shape = tuple(size) if module.bare else (module.fixed or 1, *size)
        # A table has at least a few rows; inputs of few values make variances that cancel, and rounding all there is.
        given.append((rng.normal(size=shape) if kind.kind == "f" else rng.integers(0, IDS, shape)).astype(kind))
    fed = dict(zip(module.inputs, given, strict=True))
    for name, value in module.values.items():
        fed[name] = value.astype(helper.tensor_dtype_to_np_dtype(entries[name].type.tensor_type.elem_type))
    runs = []
    for level in (
        onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL,
        onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
    ):
        options = onnxruntime.SessionOptions()
        options.log_severity_level, options.graph_optimization_level, options.intra_op_num_threads = 3, level, 1
        try:
            session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
            runs.append(session.run(list(module.graph.outputs), fed))
        except Exception as error:
            print(f"ONNX Runtime: {str(error).splitlines()[0][:100]}", file=sys.stderr)
            return 2
    exact = copy.deepcopy(module).double()
    with torch.no_grad():
        ours = module._run([torch.from_numpy(each) for each in given])
        wide = exact._run(
            [torch.from_numpy(each.astype(np.float64) if each.dtype.kind == "f" else each) for each in given]
        )
    worst, own = 0.0, 0.0
    for one, two, plain, optimised in zip(ours, wide, *runs, strict=True):
        scale = float(np.abs(plain).max(initial=0.0)) + 1e-12
        if tuple(one.shape) != plain.shape:
            print(f"shape {tuple(one.shape)}, not {plain.shape}")
            return 1
        if not np.array_equal(np.isfinite(two.double().numpy()), np.isfinite(plain)):
            print("NaN or infinite values where ONNX Runtime has none, or the other way round: WRONG")
            return 1  # before any maximum: that of 0 and NaN is 0
        worst = max(worst, float(np.abs(two.double().numpy() - plain).max(initial=0.0)) / scale)
        own = max(own, float((one.double() - two).abs().max()) / scale if one.numel() else 0.0)
        own = max(own, float(np.abs(plain.astype(np.float64) - optimised).max(initial=0.0)) / scale)
    fine = worst <= max(CLOSE, OWN * own)
    print(f"{worst:.0e}" if own <= CLOSE else f"{worst:.0e} (float32 itself: {own:.0e})", "" if fine else "WRONG")
    return 0 if fine else 1
