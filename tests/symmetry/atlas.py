"""The atlas: random small modules of all kinds of blocks, laws stated beside laws counted by the Lie closure.

`python tests/symmetry/atlas.py 300` counts them all and prints the page's table; the tests take a sample.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).parent))

from closure import drawing, lie_laws
from models import Function, rotated

from lawful.symmetry import symmetries

LARGEST = 60  # parameters: the closure differentiates six times
POINTS = 6
ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "ReLU": torch.relu, "GELU": functional.gelu, "SiLU": functional.silu, "tanh": torch.tanh, "abs": torch.abs,
    "square": lambda x: x * x, "ReLU squared": lambda x: torch.relu(x) ** 2, "linear": lambda x: x,
}  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """A module of the atlas: what it is made of, its input, and the kinds of its blocks."""

    seed: int
    module: nn.Module
    given: Any
    words: str


def entry(seed: int) -> Entry:
    """One or two blocks on a stream of width 3, between what writes it and what reads it."""
    choose = random.Random(seed)  # noqa: S311
    torch.manual_seed(seed)
    tokens = choose.random() < 0.3
    bias = choose.random() < 0.5
    parts: list[nn.Module] = [nn.Embedding(4, 3) if tokens else nn.Linear(2, 3, bias=bias)]
    words = ["embedding" if tokens else "linear"]
    for _ in range(choose.choice([1, 1, 2])):
        kind = choose.choice(list(BLOCKS))
        part, name = BLOCKS[kind](choose)
        if choose.random() < 0.3:
            part, name = nn.Sequential(_norm(choose), part), f"norm, {name}"
        if choose.random() < 0.35 and kind != "recurrent":
            part, name = Function(lambda self, x: x + self.inner(x), inner=part), f"skip({name})"
        parts.append(part)
        words.append(name)
    head = nn.Linear(3, 4 if tokens else 2, bias=choose.random() < 0.5)
    if tokens and choose.random() < 0.3:
        head.weight = parts[0].weight  # type: ignore[assignment]
        words.append("tied")
    return Entry(seed, nn.Sequential(*parts, head), "3:int" if tokens else (3, 2), " - ".join([*words, "linear"]))


def _norm(choose: random.Random) -> nn.Module:
    kind = choose.choice([nn.LayerNorm, nn.RMSNorm])
    return kind(3, eps=0.05, elementwise_affine=choose.random() < 0.7)


def _mlp(choose: random.Random) -> tuple[nn.Module, str]:
    name = choose.choice(list(ACTIVATIONS))
    act, inner, bias = ACTIVATIONS[name], choose.choice([1, 2, 3]), choose.random() < 0.5
    middle = Function(lambda self, x: act(x))
    return nn.Sequential(nn.Linear(3, inner, bias=bias), middle, nn.Linear(inner, 3)), f"{name} MLP"


def _gated(choose: random.Random) -> tuple[nn.Module, str]:
    name = choose.choice(["SiLU", "ReLU", "linear"])
    act, bias = ACTIVATIONS[name], choose.random() < 0.5
    layers = {"a": nn.Linear(3, 2, bias=bias), "b": nn.Linear(3, 2, bias=bias), "c": nn.Linear(2, 3, bias=bias)}
    return Function(lambda self, x: self.c(act(self.a(x)) * self.b(x)), **layers), f"{name} gate"


def _heads(choose: random.Random) -> tuple[nn.Module, str]:
    heads, softmax = choose.choice([1, 2]), choose.random() < 0.75
    rotary, bias = heads == 1 and choose.random() < 0.3, choose.random() < 0.4

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (part(x).unflatten(-1, (heads, -1)).transpose(1, 2) for part in (self.q, self.k, self.v))
        if rotary:
            q, k = rotated(q), rotated(k)
        y = functional.scaled_dot_product_attention(q, k, v) if softmax else q @ k.transpose(-1, -2) @ v
        return self.o(y.transpose(1, 2).flatten(2))

    layers = {key: nn.Linear(3, 2, bias=bias) for key in "qkv"}
    words = f"{heads} {'rotary ' if rotary else ''}head{'s' * (heads > 1)}{'' if softmax else ' without softmax'}"
    return Function(forward, **layers, o=nn.Linear(2, 3, bias=bias)), words


def _convolution(choose: random.Random) -> tuple[nn.Module, str]:
    groups, bias = choose.choice([1, 3]), choose.random() < 0.5
    name = choose.choice(["ReLU", "GELU", "linear"])
    act = ACTIVATIONS[name]
    kind = choose.choice([nn.Conv1d, nn.ConvTranspose1d])
    layer = kind(3, 3, 1 if groups == 1 else 3, padding=0 if groups == 1 else 1, groups=groups, bias=bias)
    words = (
        f"{'transposed ' if kind is nn.ConvTranspose1d else ''}{'grouped ' if groups > 1 else ''}convolution, {name}"
    )
    return Function(lambda self, x: act(self.c(x.transpose(1, 2)).transpose(1, 2)), c=layer), words


def _linear(choose: random.Random) -> tuple[nn.Module, str]:
    return nn.Linear(3, 3, bias=choose.random() < 0.5), "linear"


def _gain(choose: random.Random) -> tuple[nn.Module, str]:
    return Function(lambda self, x: x * self.g, g=(3,)), "gain"


def _parallel(choose: random.Random) -> tuple[nn.Module, str]:
    name = choose.choice(["tanh", "linear", "ReLU"])
    act = ACTIVATIONS[name]
    layers = {"a": nn.Linear(3, 3, bias=choose.random() < 0.5), "b": nn.Linear(3, 3, bias=False)}
    return Function(lambda self, x: act(self.a(x) + self.b(x)), **layers), f"two maps, {name}"


def _recurrent(choose: random.Random) -> tuple[nn.Module, str]:
    layer = nn.RNN(3, 3, batch_first=True, nonlinearity="relu", bias=choose.random() < 0.5)
    return Function(lambda self, x: self.r(x)[0], r=layer), "ReLU recurrence"


BLOCKS: dict[str, Callable[[random.Random], tuple[nn.Module, str]]] = {
    "mlp": _mlp, "gated": _gated, "heads": _heads, "convolution": _convolution, "linear": _linear, "gain": _gain,
    "parallel": _parallel, "recurrent": _recurrent,
}  # fmt: skip


def small_entries(count: int) -> Iterator[Entry]:
    """The first entries with few enough parameters."""
    seed = found = 0
    while found < count:
        each = entry(seed)
        seed += 1
        if sum(tensor.numel() for tensor in each.module.parameters()) <= LARGEST:
            found += 1
            yield each


def counted(each: Entry) -> tuple[int, int]:
    """Laws stated, and the fewest that the closure leaves near some points (rounding can only add to a rank)."""
    stated = len(symmetries(each.module, each.given).laws)
    draw, fewest = drawing(each.module, each.given, 4), None
    for point in range(POINTS):  # where a ReLU never switches more is conserved: look on
        try:
            found = lie_laws(each.module, draw, point, stated)
        except torch.linalg.LinAlgError:  # derivatives of the sixth order that overflow
            continue
        fewest = found if fewest is None or found >= stated > fewest or stated <= found < fewest else fewest
        if fewest == stated:
            break
    return stated, stated if fewest is None else fewest


def main(count: int) -> None:
    """Count them all; print how many agree, and the others."""
    outcomes: Counter[str] = Counter()
    for each in small_entries(count):
        stated, left = counted(each)
        outcomes["equal" if stated == left else "more" if stated < left else "FEWER"] += 1
        if stated != left:
            print(f"| {each.seed} | {each.words} | {stated} | {left} |", flush=True)
        if sum(outcomes.values()) % 10 == 0:
            print(dict(outcomes), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
