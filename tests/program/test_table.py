"""The table as a whole: each name once, arguments refused by name, and a new operator is one entry alone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import nn

from lawful.errors import Unsupported
from lawful.program import Refused
from lawful.program.domains.dependence import leaves_of_outputs, read_entries
from lawful.program.domains.evaluate import evaluate
from lawful.program.domains.interpret import AbstractDomain, interpret
from lawful.program.domains.intervals import bounds
from lawful.program.frontends.torch_export import read_module
from lawful.program.passes.core import lower
from lawful.program.table import ATEN, ATEN_MOVEMENTS, ONNX, OPERATORS, OperatorFamily, Traits, aten, define


def test_names_stand_once() -> None:
    assert not ATEN_MOVEMENTS & set(ATEN)
    with pytest.raises(ValueError, match="stands in the table already"):
        define("relu", OperatorFamily.ELEMENTWISE, "", lambda arrays, a, x: x)
    with pytest.raises(ValueError, match="stands in the table already"):
        aten("linear")(lambda b, x: x)


def test_names_are_those_of_the_libraries() -> None:
    """An entry under a name that nobody calls would never be tested."""
    import onnx

    names = {name.partition(".")[0] for name in (*ATEN, *ATEN_MOVEMENTS)}
    assert {name for name in names if not hasattr(torch.ops.aten, name)} == {"grouped_mm_fallback"}  # of transformers
    known = {schema.name for schema in onnx.defs.get_all_schemas_with_history()}
    contributed = {name for name in ONNX if ":" in name} | {"SimplifiedLayerNormalization"}  # of ONNX Runtime
    assert set(ONNX) - contributed <= known


@pytest.fixture
def toy() -> Iterator[object]:
    """An operator that PyTorch does not have, and its one entry."""
    library = torch.library.Library("lawful_toy", "DEF")
    library.define("bend(Tensor x, float by=1.0) -> Tensor")
    library.impl("bend", lambda x, by=1.0: x / (by + x.abs()), "CompositeExplicitAutograd")
    torch.library.register_fake("lawful_toy::bend", lambda x, by=1.0: torch.empty_like(x))
    define("bend", OperatorFamily.ELEMENTWISE, "x / (1 + |x|)", lambda arrays, a, x: x / (1 + arrays.abs(x)),
           Traits(odd=True, monotone=1, zero=True, range=(-1.0, 1.0)))  # fmt: skip
    aten("bend")(lambda b, x: b.function("bend", x))
    yield torch.ops.lawful_toy.bend
    del OPERATORS["bend"], ATEN["bend"]
    library._destroy()


class Bent(nn.Module):
    def __init__(self, by: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.by = nn.Linear(3, 4), nn.Linear(4, 2), by

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(torch.ops.lawful_toy.bend(self.a(x), self.by))


def test_a_new_operator_is_one_entry(toy: object) -> None:
    module = Bent(1.0).double()
    program = read_module(module, [(2, 3)])
    assert [node.op for node in program.nodes].count("bend") == 1
    assert program.opaque == []
    x = torch.randn(2, 3, dtype=torch.float64)
    truth = module(x).detach()
    for each in (program, lower(program)):
        torch.testing.assert_close(evaluate(each, x)[0].detach(), truth)
        np.testing.assert_allclose(evaluate(each, x.numpy())[0], truth.numpy())
    assert leaves_of_outputs(program) == [{"x", "a.weight", "a.bias", "b.weight", "b.bias"}]
    assert all(entries.all() for entries in read_entries(program).values())
    low, high = bounds(program, {"x": (x.numpy() - 0.1, x.numpy() + 0.1)})[0]
    assert ((low <= truth.numpy()) & (truth.numpy() <= high)).all()
    assert (high - low).max() < 1  # that it rises is all that bounds need


def test_an_argument_that_an_entry_does_not_know_makes_the_call_opaque(toy: object) -> None:
    module = Bent(2.0).double()
    program = read_module(module, [(2, 3)])
    assert program.opaque == ["bend"]
    assert "argument by=2.0" in next(node["detail"] for node in program.nodes if node.op == "opaque")
    x = torch.randn(2, 3, dtype=torch.float64)
    torch.testing.assert_close(evaluate(program, x)[0], module(x))
    with pytest.raises(Refused, match="cannot follow"):
        interpret(program, AbstractDomain())


def test_opaque_calls_are_never_merged() -> None:
    class Twice(nn.Module):
        def forward(self, x):
            return torch.erfinv(x) + torch.erfinv(x)

    assert read_module(Twice(), [(2, 3)]).opaque == ["erfinv", "erfinv"]


def test_results_that_an_entry_leaves_out_are_opaque_only_if_somebody_reads_them() -> None:
    pool = nn.MaxPool1d(2, return_indices=True)

    class First(nn.Module):
        def forward(self, x):
            return pool(x)[0]

    x = torch.randn(2, 3, 6, dtype=torch.float64)
    assert read_module(First(), [x]).opaque == []
    assert read_module(First(), [x]).notes["opaque: max_pool1d_with_indices"] == 0
    both = read_module(pool, [x])
    assert len(both.opaque) == 1
    for ours, theirs in zip(evaluate(both, x), pool(x), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_strides_are_not_read() -> None:
    class Strided(nn.Module):
        def forward(self, x):
            return x.t().as_strided((2, 2), (1, 2))

    with pytest.raises(Unsupported, match="not contiguous"):
        read_module(Strided(), [(2, 3)])


def test_a_view_of_bits_is_no_movement() -> None:
    class Bits(nn.Module):
        def forward(self, x):
            return x.view(torch.int32)

    assert read_module(Bits(), [(2, 3)]).opaque == ["view"]


def test_complex_numbers_are_pairs_or_opaque_and_still_run() -> None:
    class Spectrum(nn.Module):
        def forward(self, x):
            return torch.fft.fft(x).abs().square().sum(-1)

    class Angles(nn.Module):
        def forward(self, x):
            return torch.fft.rfft(x).angle().sum(-1)

    x = torch.randn(2, 8, dtype=torch.float64)
    program = read_module(Angles(), [(2, 8)])
    assert program.opaque == ["complex", "angle"]
    assert torch.allclose(evaluate(program, x)[0], Angles()(x))
    program = read_module(Spectrum(), [(2, 8)])
    assert not program.opaque
    torch.testing.assert_close(evaluate(program, x)[0], Spectrum()(x))


def test_the_core_loads_without_pytorch_and_onnx() -> None:
    code = (
        "import sys, lawful.program, lawful.program.frontends.layers, lawful.program.passes.core, "
        "lawful.program.domains.evaluate; assert not {'torch', 'onnx'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
