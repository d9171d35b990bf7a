"""Of one model file: a copy with one weight changed, and its outputs beside ONNX Runtime's."""

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
ABSOLUTE = 1e-7  # ONNX Runtime's sigmoid is off by up to 6e-8, and 0 where ours is 4e-9
# For frames of 400 samples ONNX Runtime's STFT is off by 1e-3 from NumPy's Fourier transform, and ours by 4e-14.
TRANSFORM, TRANSFORM_ERROR = "STFT", 2e-4
IDS = (16, 8, 3)  # token ids below these: the first that is below every table and length of the file


def write_changed(file: Path, out: Path) -> int:
    """Write the file with the largest entry of its middle matrix halved; an exit code."""
    from lawful.checkpoints.opening import open_one
    from lawful.sources.checkpoints.save import write_weights

    try:
        opened, _, _ = open_one(str(file))
        state = {name: tensor.clone() for name, tensor in opened.state.items()}
        matrices = [name for name, tensor in state.items() if tensor.ndim > 1 and tensor.is_floating_point()]
        if not matrices:
            raise LawfulError("no matrix to change")
        flat = state[matrices[len(matrices) // 2]].view(-1)
        flat[int(flat.abs().argmax())] /= 2
        write_weights(state, out, like=file)
    except LawfulError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def kinds(module: Any) -> dict[str, Any]:
    """The types of the inputs of a file."""
    from onnx import helper

    inputs = module.graph.model.graph.input
    return {each.name: np.dtype(helper.tensor_dtype_to_np_dtype(each.type.tensor_type.elem_type)) for each in inputs}


def draw(module: Any, ids: int) -> list[Any]:
    """Random inputs. Those of few values make variances that cancel, and rounding all there is: ids are many."""
    rng, inputs = np.random.default_rng(0), []
    for name, said in zip(module.inputs, module.input_sizes, strict=True):
        size = tuple(int(n) for n in said.removesuffix(":int").split(",") if n) if isinstance(said, str) else said
        shape = tuple(size) if module.bare else (module.fixed or 1, *size)
        whole = name in module.graph.whole
        numbers = rng.integers(1, ids, shape) if whole else rng.normal(size=shape)
        inputs.append(numbers.astype(kinds(module)[name]))
    return inputs


def run_runtime(onnxruntime: Any, module: Any, file: Path, given: list[Any]) -> list[Any]:
    """The outputs of ONNX Runtime without and with its optimisations."""
    fed = dict(zip(module.inputs, given, strict=True))
    fed |= {name: value.astype(kinds(module)[name]) for name, value in module.values.items()}
    levels = onnxruntime.GraphOptimizationLevel
    runs = []
    for level in (levels.ORT_DISABLE_ALL, levels.ORT_ENABLE_ALL):
        options = onnxruntime.SessionOptions()
        options.log_severity_level, options.graph_optimization_level, options.intra_op_num_threads = 3, level, 1
        session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
        runs.append(session.run(list(module.graph.outputs), fed))
    return runs


def evaluate(file: Path) -> int:
    """Print how far the outputs are from ONNX Runtime's, relative to the largest; 1 if that is too far."""
    import onnxruntime  # type: ignore[import-untyped]

    from lawful.sources.opening import open_module

    try:
        module: Any = open_module(str(file)).module
    except LawfulError as error:
        print(error, file=sys.stderr)
        return 2
    if not hasattr(module, "graph"):
        print("a graph of layers", file=sys.stderr)
        return 2
    reason = ""
    for ids in IDS:
        given = draw(module, ids)
        try:
            runs = run_runtime(onnxruntime, module, file, given)
            break
        except Exception as error:  # the runtime has errors of its own
            reason = f"ONNX Runtime: {str(error).splitlines()[0][:100]}"
    else:
        print(reason, file=sys.stderr)
        return 2
    exact = copy.deepcopy(module).double()
    with torch.no_grad():
        ours = module._run([torch.from_numpy(each) for each in given])
        wide = exact._run(
            [torch.from_numpy(each.astype(np.float64) if each.dtype.kind == "f" else each) for each in given]
        )
    transforms = any(node.op_type == TRANSFORM for node in module.graph.model.graph.node)
    worst, own = 0.0, TRANSFORM_ERROR if transforms else 0.0
    for one, two, plain, optimised in zip(ours, wide, *runs, strict=True):
        scale = float(np.abs(plain).max(initial=0.0)) + 1e-12
        if tuple(one.shape) != plain.shape:
            print(f"shape {tuple(one.shape)}, not {plain.shape}")
            return 1
        if not np.array_equal(np.isfinite(two.double().numpy()), np.isfinite(plain)):
            print("NaN or infinite values where ONNX Runtime has none, or the other way round: WRONG")
            return 1  # before any maximum: that of 0 and NaN is 0
        apart = float(np.abs(two.double().numpy() - plain).max(initial=0.0))
        worst = max(worst, max(apart - ABSOLUTE, 0.0) / scale)
        own = max(own, float((one.double() - two).abs().max()) / scale if one.numel() else 0.0)
        own = max(own, float(np.abs(plain.astype(np.float64) - optimised).max(initial=0.0)) / scale)
    fine = worst <= max(CLOSE, OWN * own)
    print(f"{worst:.0e}" if own <= CLOSE else f"{worst:.0e} (float32 itself: {own:.0e})", "" if fine else "WRONG")
    return 0 if fine else 1
