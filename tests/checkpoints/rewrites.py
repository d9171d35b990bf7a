"""GPT-2 and Llama written in other ways, and the rewritings of QuaRot, SliceGPT and FlashNorm done by hand.

Only matrices here: nothing of the package is used to make what it is to recognise.
"""

from __future__ import annotations

import torch
from symmetry.models import rotated
from torch import nn
from torch.nn import functional

Weights = dict[str, torch.Tensor]
VOCABULARY, LENGTH, WIDTH, HEADS, INNER, LAYERS = 40, 3, 8, 2, 12, 2


def bare_norm(width: int, epsilon: float) -> nn.Module:
    return nn.RMSNorm(width, eps=epsilon, elementwise_affine=False)


class SplitBlock(nn.Module):
    """A block of GPT-2 with a layer each for queries, keys and values."""

    def __init__(self, bare: bool, keys: bool, values: bool, epsilon: float, gelu: str) -> None:
        super().__init__()
        self.gelu = gelu
        self.n1, self.n2 = (bare_norm(WIDTH, epsilon) if bare else nn.LayerNorm(WIDTH, eps=epsilon) for _ in range(2))
        self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH, bias=bias) for bias in (True, keys, values))
        self.o, self.fc, self.pr = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, INNER), nn.Linear(INNER, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.n1(x)
        q, k, v = (part(y).unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in (self.q, self.k, self.v))
        x = x + self.o(functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.pr(functional.gelu(self.fc(self.n2(x)), approximate=self.gelu))


class SplitGpt(nn.Module):
    """GPT-2 as it is rewritten: `bare` has RMSNorm without gains, and a bias in the head."""

    def __init__(
        self, bare: bool = False, keys: bool = True, values: bool = True, epsilon: float = 1e-5, gelu: str = "none"
    ) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCABULARY, WIDTH), nn.Parameter(torch.randn(LENGTH, WIDTH))
        self.h = nn.Sequential(*(SplitBlock(bare, keys, values, epsilon, gelu) for _ in range(LAYERS)))
        self.nf = bare_norm(WIDTH, epsilon) if bare else nn.LayerNorm(WIDTH, eps=epsilon)
        self.lm = nn.Linear(WIDTH, VOCABULARY, bias=bare)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.lm(self.nf(self.h(self.wte(x) + self.wpe)))


def split(gpt: nn.Module) -> Weights:
    """The weights of `symmetry.models.Gpt` under the names of `SplitGpt`."""
    given = {name: tensor.clone() for name, tensor in gpt.state_dict().items()}
    found = {"wte.weight": given["token.weight"], "wpe": given["position"], "lm.weight": given["head.weight"]}
    for end in ("weight", "bias"):
        found[f"nf.{end}"] = given[f"last.{end}"]
        for layer in range(LAYERS):
            for number, part in enumerate("qkv"):
                rows = slice(number * WIDTH, (number + 1) * WIDTH)
                found[f"h.{layer}.{part}.{end}"] = given[f"blocks.{layer}.qkv.{end}"][rows]
            for mine, theirs in (("n1", "first"), ("n2", "second"), ("o", "out"), ("fc", "up"), ("pr", "down")):
                found[f"h.{layer}.{mine}.{end}"] = given[f"blocks.{layer}.{theirs}.{end}"]
    return {name: tensor.clone() for name, tensor in found.items()}


def without_dead_biases(weights: Weights, forgotten: bool = False) -> Weights:
    """Keys have no bias, that of values has gone into the output (or is forgotten)."""
    found = {name: tensor.clone() for name, tensor in weights.items()}
    for layer in range(LAYERS):
        if not forgotten:
            found[f"h.{layer}.o.bias"] += found[f"h.{layer}.o.weight"] @ found[f"h.{layer}.v.bias"]
        del found[f"h.{layer}.v.bias"], found[f"h.{layer}.k.bias"]
    return found


def sliced(weights: Weights, *, readers: bool = False, forgotten: str = "", seed: int = 0) -> Weights:
    """SliceGPT and QuaRot: LayerNorm becomes RMSNorm, gains and offsets go on, the stream is rotated."""
    given = {name: tensor.double() for name, tensor in weights.items()}
    turn = torch.linalg.qr(torch.randn(WIDTH, WIDTH, dtype=torch.double, generator=torch.manual_seed(seed)))[0]
    centre = torch.eye(WIDTH, dtype=torch.double) - 1 / WIDTH
    reads = centre @ turn if readers else turn
    found = {name: given[name] @ centre @ turn for name in ("wte.weight", "wpe")}
    for layer in range(LAYERS):
        for norm, parts in (("n1", "qkv"), ("n2", ("fc",))):
            gain, offset = (given[f"h.{layer}.{norm}.{end}"] for end in ("weight", "bias"))
            for part in parts:
                weight, bias = (given[f"h.{layer}.{part}.{end}"] for end in ("weight", "bias"))
                found[f"h.{layer}.{part}.weight"] = (weight * gain) @ reads
                found[f"h.{layer}.{part}.bias"] = bias if forgotten == f"{part} offset" else bias + weight @ offset
        for part in ("o", "pr"):
            weight, bias = (given[f"h.{layer}.{part}.{end}"] for end in ("weight", "bias"))
            found[f"h.{layer}.{part}.weight"] = turn.T @ centre @ weight
            found[f"h.{layer}.{part}.bias"] = turn.T @ (bias if forgotten == f"{part} centring" else centre @ bias)
    head = given["lm.weight"] * given["nf.weight"]
    found["lm.weight"] = head if forgotten == "head" else head @ reads
    found["lm.bias"] = given["lm.weight"] @ given["nf.bias"]
    return {name: tensor.float() for name, tensor in found.items()}


class FlashBlock(nn.Module):
    """A block of Llama without gains, with one layer for queries, keys, values and one for gate and up."""

    def __init__(self, width: int, heads: int, groups: int, inner: int, epsilon: float) -> None:
        super().__init__()
        self.heads, self.groups, self.head = heads, groups, width // heads
        self.norms = nn.ModuleList([bare_norm(width, epsilon) for _ in range(2)])
        self.qkv = nn.Linear(width, width + 2 * groups * self.head, bias=False)
        self.out, self.gated = nn.Linear(width, width, bias=False), nn.Linear(width, 2 * inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        sizes = (self.heads * self.head, self.groups * self.head, self.groups * self.head)
        parts = self.qkv(self.norms[0](x)).split(sizes, -1)
        q, k, v = (part.unflatten(-1, (-1, self.head)).transpose(1, 2) for part in parts)
        k, v = (part.repeat_interleave(self.heads // self.groups, 1) for part in (rotated(k), v))
        y = functional.scaled_dot_product_attention(rotated(q), k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        gate, up = self.gated(self.norms[1](x)).chunk(2, -1)
        return x + self.down(functional.silu(gate) * up)


class FlashLlama(nn.Module):
    def __init__(self, epsilon: float = 0.01) -> None:
        super().__init__()
        self.token = nn.Embedding(40, 16)
        self.blocks = nn.Sequential(*(FlashBlock(16, 4, 2, 12, epsilon) for _ in range(2)))
        self.last, self.head = bare_norm(16, epsilon), nn.Linear(16, 40, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.last(self.blocks(self.token(x))))


def flashed(llama: nn.Module, forgotten: str = "") -> Weights:
    """FlashNorm: gains into the layers after them, and these joined."""
    given = {name: tensor.clone() for name, tensor in llama.state_dict().items()}
    found = {"token.weight": given["token.weight"], "head.weight": given["head.weight"] * given["last.weight"]}
    for layer in range(2):
        for norm, parts, name in (("first", ("q", "k", "v"), "qkv"), ("second", ("gate", "up"), "gated")):
            gain = given[f"blocks.{layer}.{norm}.weight"]
            rows = [given[f"blocks.{layer}.{part}.weight"] * (1 if part == forgotten else gain) for part in parts]
            found[f"blocks.{layer}.{name}.weight"] = torch.cat(rows)
        for part in ("out", "down"):
            found[f"blocks.{layer}.{part}.weight"] = given[f"blocks.{layer}.{part}.weight"]
    return found


class FoldedNetwork(nn.Module):
    """`models.ResidualNetwork` with its BatchNorms in the convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.a1, self.b1 = (nn.Conv2d(*size, 3, padding=1) for size in ((3, 6), (6, 5), (5, 6)))
        self.down, self.a2, self.b2 = (
            nn.Conv2d(6, 8, 1, stride=2),
            *(nn.Conv2d(*size, 3, padding=1) for size in ((8, 9), (9, 8))),
        )
        self.head = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.stem(x))
        x = torch.relu(self.down(torch.relu(x + self.b1(torch.relu(self.a1(x))))))
        return self.head(torch.relu(x + self.b2(torch.relu(self.a2(x)))).mean((2, 3)))


def without_statistics(network: nn.Module, epsilon: float = 1e-5, forgotten: str = "") -> Weights:
    """BatchNorm into the convolution before it."""
    given = {name: tensor.double() for name, tensor in network.state_dict().items()}
    found = {}
    for mine, layer, norm in (("stem", "stem", "norm"), ("a1", "first.a", "first.n"), ("b1", "first.b", "first.m"),
                              ("a2", "second.a", "second.n"), ("b2", "second.b", "second.m")):  # fmt: skip
        factor = given[f"{norm}.weight"] / torch.sqrt(given[f"{norm}.running_var"] + epsilon)
        bias = given.get(f"{layer}.bias", torch.zeros_like(factor)) - given[f"{norm}.running_mean"]
        found[f"{mine}.weight"] = given[f"{layer}.weight"] * factor[:, None, None, None]
        found[f"{mine}.bias"] = given[f"{norm}.bias"] + (0 if forgotten == mine else factor * bias)
    for name in ("down.weight", "down.bias", "head.weight", "head.bias"):
        found[name] = given[name]
    return {name: tensor.float() for name, tensor in found.items()}


def loaded(module: nn.Module, weights: Weights) -> nn.Module:
    module.load_state_dict(weights)
    return module.eval()


def split_gpt() -> nn.Module:
    """For the command line: `checkpoints.rewrites:split_gpt`."""
    return SplitGpt()


def bare_gpt() -> nn.Module:
    """For the command line."""
    return SplitGpt(bare=True)
