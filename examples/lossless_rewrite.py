"""Is this rewrite lossless? A small GPT-2 with LayerNorm becomes one with RMSNorm, rotated, its gains folded.

Yes, and `same` says which folds it used. The same rewrite with the offset of one LayerNorm forgotten is different, and
the tensor is named.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from lawful import same

WIDTH, TOKENS = 8, 30
Weights = dict[str, torch.Tensor]


class Block(nn.Module):
    """Tokens, one layer on a residual stream, and logits; `bare` norms have no gains and take no mean away."""

    def __init__(self, bare: bool) -> None:
        super().__init__()
        self.token = nn.Embedding(TOKENS, WIDTH)
        self.norm, self.last = (
            nn.RMSNorm(WIDTH, eps=1e-5, elementwise_affine=False) if bare else nn.LayerNorm(WIDTH) for _ in range(2)
        )
        self.up, self.down = nn.Linear(WIDTH, 20), nn.Linear(20, WIDTH)
        self.head = nn.Linear(WIDTH, TOKENS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits of token ids."""
        stream = self.token(x)
        stream = stream + self.down(functional.gelu(self.up(self.norm(stream))))
        logits: torch.Tensor = self.head(self.last(stream))
        return logits


def rewritten(given: Weights, *, forget: bool) -> Weights:
    """Gains and offsets into the layers after them, means out of the layers before them, the stream rotated."""
    turn = torch.linalg.qr(torch.randn(WIDTH, WIDTH, dtype=torch.float64))[0].float()
    centre = torch.eye(WIDTH) - 1 / WIDTH
    found = {"token.weight": given["token.weight"] @ centre @ turn}
    for layer, norm in (("up", "norm"), ("head", "last")):
        weight, gain, offset = given[f"{layer}.weight"], given[f"{norm}.weight"], given[f"{norm}.bias"]
        found[f"{layer}.weight"] = (weight * gain) @ turn
        found[f"{layer}.bias"] = given[f"{layer}.bias"] + (0 if forget and layer == "up" else weight @ offset)
    found["down.weight"] = turn.T @ centre @ given["down.weight"]
    found["down.bias"] = turn.T @ centre @ given["down.bias"]
    return found


def run() -> tuple[str, str]:
    """Rewrite twice, once with a step forgotten; return both verdicts."""
    torch.manual_seed(0)
    mine = Block(bare=False)
    with torch.no_grad():
        for tensor in (*mine.norm.parameters(), *mine.last.parameters()):
            tensor.add_(0.3 * torch.randn(WIDTH))
    verdicts = []
    for forget in (False, True):
        other = Block(bare=True)
        other.load_state_dict(rewritten({n: t.detach() for n, t in mine.state_dict().items()}, forget=forget))
        found = same(mine, other, input="4:int")
        verdicts.append(found.verdict)
        print(found)
    assert verdicts == ["equal", "different"]
    return verdicts[0], verdicts[1]


if __name__ == "__main__":
    run()
