"""Programs as calls of PyTorch: what is spelled, traced and read again is the same program."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from program.models import make
from torch import nn

from lawful.program.arrays import NUMPY
from lawful.program.backends.movement_steps import MovementStep, Value, carry_out, digits_of, spell_movement
from lawful.program.backends.torch_calls import ProgramModule, TorchProgram
from lawful.program.builder import Builder
from lawful.program.frontends.torch_export import read_module
from lawful.program.index_map import IndexMap
from lawful.program.program import Node


class Steps:
    """The steps of movements in NumPy."""

    def reshape(self, x: Any, shape: Any) -> Any:
        return x.reshape(shape)

    def permute(self, x: Any, order: Any) -> Any:
        return x.transpose(order)

    def slice(self, x: Any, cut: Any) -> Any:
        return x[(slice(None),) * cut[0] + (slice(*cut[1:]),)]

    def expand(self, x: Any, shape: Any) -> Any:
        return np.broadcast_to(x, shape)

    def flip(self, x: Any, axes: Any) -> Any:
        return np.flip(x, axes)

    def select(self, x: Any, chosen: Any) -> Any:
        return np.take(x, chosen[1], axis=chosen[0])

    def concatenate(self, parts: Any, axis: Any) -> Any:
        return np.concatenate(parts, axis)

    def pad(self, x: Any, padding: Any) -> Any:
        return np.pad(x, padding[0], constant_values=padding[1])

    def flat(self, sources: Any, positions: Any) -> Any:
        return np.concatenate([each.ravel() for each in sources])[positions]


def kinds(step: Value) -> list[str]:
    return [] if isinstance(step, int) else [*(k for each in step.operands for k in kinds(each)), step.kind]


def move(b: Builder, v: Node, y: Node, rng: np.random.Generator) -> Node:
    """One random movement."""
    axis = int(rng.integers(v.rank))
    n = v.shape[axis]
    low = int(rng.integers(n))
    halves = [d for d in range(1, n + 1) if n % d == 0]
    split = int(rng.choice(halves))
    at = np.arange(-1, n + 1)
    choices = [
        lambda: b.permute(v, [int(k) for k in rng.permutation(v.rank)]),
        lambda: b.slice(v, axis, slice(low, int(rng.integers(low + 1, n + 1)))),
        lambda: b.reshape(v, (*v.shape[:axis], split, n // split, *v.shape[axis + 1 :])),
        lambda: b.reshape(v, (math.prod(v.shape[:2]), *v.shape[2:])),
        lambda: b.expand(v, (int(rng.integers(1, 4)), *v.shape)),
        lambda: b.slice(v, axis, slice(None, None, -1)),
        lambda: b.concatenate([v, b.slice(v, axis, slice(0, 1))], axis),
        lambda: b.concatenate([v, b.expand(b.reshape(b.slice(y, 0, slice(0, 1)), (1,)), v.shape)], axis),
        lambda: b.pick(v, axis, np.where((at >= 0) & (at < n), at, -1), fill=7.0),
    ]
    return choices[int(rng.integers(len(choices)))]()


def test_movements_are_spelled_in_steps() -> None:
    """Random movements in a row, carried out by their steps; few are read at flat positions."""
    rng = np.random.default_rng(0)
    flat = spelled = 0
    for _ in range(400):
        b = Builder()
        v, y = b.input("x", tuple(int(n) for n in rng.integers(1, 5, rng.integers(1, 5)))), b.input("y", (3,))
        for _ in range(int(rng.integers(1, 5))):
            v = move(b, v, y, rng)
            if v.size > 3000 or v.rank > 6:
                break
        if v.op != "take":
            continue
        values = [each["value"] if each.op == "constant" else rng.normal(size=each.shape) for each in v.inputs]
        numbers = [
            float(x) if each.op == "constant" and (x := b.number(each)) is not None else None for each in v.inputs
        ]
        for known in (numbers, []):
            steps = spell_movement(v["map"], [each.shape for each in v.inputs], known)
            np.testing.assert_array_equal(carry_out(steps, values, Steps()), NUMPY.take(values, v["map"]))
        spelled += 1
        flat += "flat" in kinds(steps)
    assert flat < spelled / 10


def test_heads_are_spelled_as_one_writes_them() -> None:
    b = Builder()
    x = b.input("x", (2, 5, 12))
    key = b.permute(b.reshape(b.slice(x, 2, slice(4, 8)), (2, 5, 2, 2)), (0, 2, 1, 3))
    steps = spell_movement(key["map"], [x.shape])
    assert kinds(steps) == ["slice", "reshape", "permute"]
    assert isinstance(steps, MovementStep)
    assert steps.argument == (0, 2, 1, 3)


def test_digits_beyond_a_buffer() -> None:
    """`np.unravel_index` of these loses digits in NumPy 2.4."""
    at = IndexMap.affine((1, 256, 512, 1), (0, 1, 256, 0)).positions
    assert int(digits_of(at, (1, 512, 256))[2].max()) == 255


class Pools(nn.Module):
    """Pools of many kinds, biases, norms of groups, slopes."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.PReLU(4))
        self.pools = nn.ModuleList([
            nn.MaxPool2d(3, 2, 1), nn.MaxPool2d(2, ceil_mode=True), nn.MaxPool2d(3, 1, dilation=2),
            nn.AvgPool2d(3, 2, 1, count_include_pad=False), nn.AvgPool2d(2), nn.AvgPool2d((3, 1), 2, (1, 0)),
        ])  # fmt: skip
        self.norms = nn.Sequential(nn.GroupNorm(2, 4), nn.InstanceNorm2d(4, affine=True), nn.LeakyReLU(0.125))
        self.up = nn.ConvTranspose2d(4, 2, 3, stride=2, padding=1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x = self.first(x)
        return (*(self.up(self.norms(pool(x))) for pool in self.pools), torch.logsumexp(x, 1))


def filled(module: nn.Module) -> nn.Module:
    generator = torch.Generator().manual_seed(0)
    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.is_floating_point():
            tensor.data = torch.rand(tensor.shape, generator=generator, dtype=torch.float64) + 0.5
    return module.eval()


def test_pools_and_norms_are_single_calls() -> None:
    module = filled(Pools())
    x = torch.randn(2, 3, 9, 7, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    program = read_module(module, [x])
    again = ProgramModule(program)
    with torch.no_grad():
        for ours, theirs in zip(again(x), module(x), strict=True):
            torch.testing.assert_close(ours, theirs)
    calls = [str(node.target) for node in torch.export.export(again, (x,), strict=False).graph.nodes]
    count = {name: sum(f"aten.{name}" in call for call in calls) for name in ("max_pool2d", "avg_pool2d", "group_norm")}
    assert count == {"max_pool2d": 3, "avg_pool2d": 3, "group_norm": 6}
    assert sum("aten.batch_norm" in call for call in calls) == 1
    assert sum("aten.prelu" in call for call in calls) == 1
    assert sum("aten.leaky_relu" in call for call in calls) == 6
    assert not any("as_strided" in call or "index" in call for call in calls)


@pytest.mark.parametrize("name", ["lenet", "attention", "vit", "gpt2"])
def test_a_program_that_is_traced_is_itself(name: str) -> None:
    module, x = make(name)
    program = read_module(module, [x])
    assert read_module(ProgramModule(program), [x]).digest(False) == program.digest(False)


def test_what_is_used_twice_is_not_hidden() -> None:
    """A product that is an output beside the sum with its bias."""
    b = Builder()
    x, w = b.input("x", (2, 3)), b.parameter("w", np.ones((4, 3)))
    product = b.linear(x, w)
    program = b.finish([product, b.add(product, b.parameter("b", np.ones(4)))])
    tensors = {"w": torch.ones(4, 3), "b": torch.ones(4)}
    one, two = TorchProgram(program)([torch.ones(2, 3)], tensors, torch.float32)
    assert (one == 3).all()
    assert (two == 4).all()
