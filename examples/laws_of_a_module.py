"""What does training conserve in my own PyTorch module?

Any module is counted in float64: brackets by automatic differentiation, ranks with the gap that decided them. Attention
conserves two matrices per head, smooth activations conserve nothing, and momentum breaks almost everything.
"""

from __future__ import annotations

import torch
from torch import nn

from lawful.conservation import HeavyBall, count_laws


class Attention(nn.Module):
    """One head with separate queries, keys, values and outputs."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(width, inner, bias=False) for _ in range(3))
        self.output = nn.Linear(inner, width, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Tokens (batch, length, width)."""
        scores = torch.softmax(self.query(tokens) @ self.key(tokens).transpose(-1, -2), dim=-1)
        found: torch.Tensor = self.output(scores @ self.value(tokens))
        return found


def run() -> tuple[int, int]:
    """Count the laws of attention and of a GELU perceptron; then with momentum."""
    torch.manual_seed(0)
    attention = count_laws(Attention(4, 3), input_shape=(5, 4))
    print(f"attention, inner width 3: {attention.laws} laws (gap {attention.gap:.0e})")
    for line in attention.words:
        print("  ", line)
    smooth = count_laws(nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 3)), input_shape=(4,))
    print(f"GELU perceptron: {smooth.laws} laws")
    momentum = count_laws("3-3-2 linear", flow=HeavyBall())
    print(f"3-3-2 linear: {count_laws('3-3-2 linear').laws} laws of gradient flow, {momentum.laws} with momentum")
    assert attention.laws == 3 * 4
    assert smooth.laws == 0
    assert momentum.laws == 3
    return attention.laws, smooth.laws


if __name__ == "__main__":
    run()
