"""`python -m benchmarks.operators [aten|onnx]`: every entry of the table against PyTorch's and ONNX's own samples.

PyTorch's `op_db` has sample inputs for some 600 operators, ONNX a test of every node: each is read as a program,
evaluated, and compared. A case *agrees*, is *opaque* (no entry, or an argument that the entry does not know), is
*refused* (a size that depends on data, types that hold no numbers), or is *wrong*, which is a defect.
"""

from __future__ import annotations

import contextlib
import sys
import time
import types
import unittest
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from lawful.errors import LawfulError
from lawful.program import Program, Refused
from lawful.program.domains.evaluate import evaluate

# results that are rounded, random, or what was in memory: no two runs need agree
LOOSE = {"bfloat16": 0.05, "float16": 0.01}
UNDEFINED = ("empty", "empty_like", "new_empty", "new_empty_strided", "empty_strided", "empty_permuted")


@dataclass(frozen=True)
class Case:
    """What became of one sample: `agrees`, `opaque`, `refused`, `wrong` or `no sample`."""

    operator: str
    outcome: str
    detail: str = ""


def aten_cases(names: set[str] | None = None, samples: int = 3) -> Iterator[Case]:
    """The samples of PyTorch's own tests, for operators of these names."""
    import torch
    from torch.utils._pytree import tree_flatten, tree_unflatten

    # its tests import a package for expected outputs that is not installed, and that nothing here calls
    stub: Any = types.ModuleType("expecttest")
    stub.TestCase, stub.assert_expected_inline, stub.ACCEPT = unittest.TestCase, None, False
    sys.modules.setdefault("expecttest", stub)
    from torch.testing._internal.common_methods_invocations import op_db

    from lawful.program.frontends.torch_export import read_module

    for info in op_db:
        name = info.name + (f".{info.variant_test_name}" if info.variant_test_name else "")
        if (names is not None and info.name not in names) or not info.supports_dtype(torch.float32, "cpu"):
            continue
        if info.name in UNDEFINED:
            continue
        torch.manual_seed(0)
        try:
            drawn = list(info.sample_inputs("cpu", torch.float32, requires_grad=False))[:samples]
        except Exception as error:  # samples may need hardware or packages that are not here
            yield Case(name, "no sample", type(error).__name__)
            continue
        for sample in drawn:
            leaves, spec = tree_flatten((sample.input, sample.args, sample.kwargs))
            tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]

            class Call(torch.nn.Module):
                def forward(self, *given: Any, info: Any = info, leaves: Any = leaves, spec: Any = spec) -> Any:
                    left = iter(given)
                    filled = [next(left) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
                    first, arguments, keywords = tree_unflatten(filled, spec)
                    return info(first, *arguments, **keywords)

            try:
                expected = [each for each in tree_flatten(Call()(*tensors))[0] if isinstance(each, torch.Tensor)]
            except Exception as error:
                yield Case(name, "no sample", type(error).__name__)
                continue
            try:
                program = read_module(Call(), tensors)
            except LawfulError as error:
                yield Case(name, "refused", str(error)[:100])
                continue
            except Exception as error:  # a defect of an entry
                yield Case(name, "wrong", f"{type(error).__name__}: {error}"[:160])
                continue
            loose = max((LOOSE.get(str(each.dtype).split(".")[-1], 0.0) for each in expected), default=0.0)
            try:
                dense = [_dense(each) for each in expected]
            except (TypeError, RuntimeError) as error:  # quantised, nested
                yield Case(name, "no sample", type(error).__name__)
                continue
            with torch.no_grad():
                yield _compare(name, program, tensors, dense, loose)


def _dense(tensor: Any) -> Any:
    tensor = tensor.detach().resolve_conj().resolve_neg().to_dense()
    exact = tensor.cfloat() if tensor.is_complex() else tensor.float() if tensor.is_floating_point() else tensor
    return exact.numpy() if str(tensor.dtype) not in ("torch.float64", "torch.complex128") else tensor.numpy()


def onnx_cases(names: set[str] | None = None) -> Iterator[Case]:
    """ONNX's own tests of nodes, for operators of these names; expanded functions are tests of several nodes."""
    import onnx
    from onnx import numpy_helper
    from onnx.backend.test.loader import load_model_tests

    from lawful.program.frontends.onnx import read_onnx

    with contextlib.suppress(KeyError), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tests = load_model_tests(kind="node")
    for test in tests:
        model = test.model
        if model is None or not test.data_sets:
            continue
        nodes = model.graph.node
        operator = nodes[0].op_type if len(nodes) == 1 and "_expanded" not in test.name else "several nodes"
        if names is not None and operator not in names:
            continue
        given, expected = (
            [numpy_helper.to_array(each) if isinstance(each, onnx.TensorProto) else each for each in part]
            for part in test.data_sets[0]
        )
        if not all(isinstance(each, (np.ndarray, np.generic)) for each in (*given, *expected)):
            yield Case(operator, "refused", f"{test.name}: sequences and optional values")
            continue
        feeds = {entry.name: np.asarray(array) for entry, array in zip(model.graph.input, given, strict=False)}
        try:
            program = read_onnx(model, {name: array.shape for name, array in feeds.items()}, _known(operator, feeds))
        except LawfulError as error:
            yield Case(operator, "refused", f"{test.name}: {error}"[:120])
            continue
        arrays = (*feeds.values(), *map(np.asarray, expected))
        loose = max((LOOSE.get(each.dtype.name, 0.0) for each in arrays), default=0.0)
        inputs = [feeds[node["name"]] for node in program.inputs]
        yield _compare(operator, program, inputs, [np.asarray(each) for each in expected], loose, test.name)


def _known(operator: str, feeds: dict[str, Any]) -> dict[str, Any]:
    """The inputs that are constants in any real file: sizes, axes, positions; but never all of them."""
    sizes = {name: array for name, array in feeds.items() if array.dtype.kind in "iub"}
    if operator in ("Resize", "Upsample", "OneHot", "Range"):
        sizes.update({name: array for name, array in feeds.items() if array.ndim <= 1})
    if len(sizes) == len(feeds) and len(feeds) > 1 and operator != "Range":
        sizes.pop(next(iter(feeds)))
    return {} if len(sizes) == len(feeds) and operator in ("Abs", "Neg", "Not") else sizes


def _compare(
    name: str, program: Program, inputs: list[Any], expected: list[Any], loose: float, detail: str = ""
) -> Case:
    if program.opaque:
        return Case(name, "opaque", f"{detail} {program.opaque[0]}".strip())
    try:
        results = [np.asarray(each) for each in evaluate(program, *inputs)]
    except Refused as error:
        return Case(name, "refused", str(error))
    except Exception as error:  # a defect of an operator's meaning
        return Case(name, "wrong", f"{detail} {type(error).__name__}: {error}"[:160])
    same = len(results) == len(expected) and all(
        ours.shape == theirs.shape
        and np.allclose(_wide(ours), _wide(theirs), 1e-3 + loose, 1e-4 + loose, equal_nan=True)
        for ours, theirs in zip(results, expected, strict=True)
    )
    return Case(name, "agrees" if same else "wrong", detail)


def _wide(array: Any) -> Any:
    return np.asarray(array).astype(np.complex128 if np.iscomplexobj(array) else np.float64)


def summary(cases: Iterator[Case]) -> tuple[Counter[str], dict[str, Counter[str]], list[Case]]:
    """Cases by outcome; operators by their outcomes; what is wrong."""
    totals: Counter[str] = Counter()
    operators: dict[str, Counter[str]] = defaultdict(Counter)
    wrong = []
    for case in cases:
        totals[case.outcome] += 1
        operators[case.operator][case.outcome] += 1
        if case.outcome == "wrong":
            wrong.append(case)
    return totals, operators, wrong


def main() -> None:
    """Print the summary of one or both."""
    warnings.simplefilter("ignore")
    for which in sys.argv[1:] or ("aten", "onnx"):
        start = time.perf_counter()
        totals, operators, wrong = summary(aten_cases() if which == "aten" else onnx_cases())
        whole = sum(set(each) == {"agrees"} for each in operators.values())
        part = sum("agrees" in each for each in operators.values()) - whole
        print(f"{which}: {dict(totals)} in {time.perf_counter() - start:.0f} s")
        print(f"  {len(operators)} operators: {whole} agree entirely, {part} in part")
        for case in wrong:
            print(f"  wrong: {case.operator} {case.detail}")
        for outcome in ("opaque", "refused"):
            print(f"  {outcome}:", " ".join(sorted(name for name, each in operators.items() if outcome in each)))


if __name__ == "__main__":
    main()
