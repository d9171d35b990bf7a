"""Is this checkpoint a copy of mine, with its neurons permuted and rescaled?

Yes, and the group element says how: which neuron went where, and by what it was multiplied.
"""

from __future__ import annotations

import torch
from torch import nn

from lawful import align, same


def run() -> float:
    """Disguise a small network, align it back, and compare the two; return the distance that is left."""
    torch.manual_seed(0)
    mine = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 3))
    weights = mine.state_dict()
    order, scales = torch.randperm(16), torch.exp(torch.randn(16))
    theirs = {
        "0.weight": scales[:, None] * weights["0.weight"][order],
        "0.bias": scales * weights["0.bias"][order],
        "2.weight": weights["2.weight"][:, order] / scales,
        "2.bias": weights["2.bias"],
    }
    found = align(mine, theirs, input=(5,))
    verdict = same(mine, theirs, input=(5,))
    print(f"{found.before:.2f} apart, {found.after:.1e} after alignment")
    print(verdict)
    assert verdict.verdict == "equal"
    assert found.after < 1e-6
    return found.after


if __name__ == "__main__":
    run()
