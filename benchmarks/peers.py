"""The same questions to other packages: `pip install relucent rebasin`, then `python -m benchmarks.peers`.

Times are of the processor, children included, in one run. Nothing of theirs is needed to use or test this project.
"""

from __future__ import annotations

import copy
import importlib
import resource
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from itertools import pairwise
from typing import Any

import torch
from torch import nn

import lawful

REGIONS = ([2, 10, 5, 1], [2, 16, 16, 1], [3, 10, 8, 1], [2, 20, 20, 1])
SEEDS = 20


def processor() -> float:
    """Seconds of this process and of its ended children."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """What it gives, and how long it took."""
    start = processor()
    found = work()
    return found, processor() - start


def layers(widths: list[int], seed: int) -> nn.Sequential:
    """A ReLU network in float64."""
    torch.manual_seed(seed)
    parts = [part for below, above in pairwise(widths) for part in (nn.Linear(below, above), nn.ReLU())]
    return nn.Sequential(*parts[:-1]).double()


def regions(relucent: Any) -> None:
    """All linear regions of the plane or of space."""
    lawful.regions(layers([2, 3, 1], 0))  # imports are nobody's time
    for widths in REGIONS:
        network = layers(widths, 0)
        cells = relucent.Complex(network)
        _, theirs = timed(partial(cells.bfs, nworkers=1))
        found, ours = timed(partial(lawful.regions, network))
        words = f"{len(cells)} in {theirs:.2f} s, ours {found.regions} in {ours:.2f} s: {theirs / ours:.1f}x"
        print(f"regions of {'-'.join(map(str, widths))}: {words}")


def disguised(network: nn.Sequential, seed: int, scaled: bool) -> nn.Sequential:
    """The same function: neurons permuted and, if wanted, rescaled by e^N(0, 1)."""
    draw, made = torch.Generator().manual_seed(seed), copy.deepcopy(network)
    with torch.no_grad():
        for number in range(0, len(made) - 2, 2):
            below, above = (part for part in (made[number], made[number + 2]) if isinstance(part, nn.Linear))
            order = torch.randperm(below.out_features, generator=draw)
            scale = torch.exp(scaled * torch.randn(below.out_features, generator=draw, dtype=torch.float64))
            below.weight.copy_(below.weight[order] * scale[:, None])
            below.bias.copy_(below.bias[order] * scale)
            above.weight.copy_(above.weight[:, order] / scale)
    return made


def disguises(rebasin: Any) -> None:
    """Is this network a permuted, or permuted and rescaled, copy?"""
    for scaled in (False, True):
        theirs = ours = 0
        for seed in range(SEEDS):
            network = layers([16, 32, 24, 5], seed)
            other = disguised(network, seed, scaled)
            moved = copy.deepcopy(other)
            sample = torch.randn(4, 16, dtype=torch.float64)
            rebasin.PermutationCoordinateDescent(network, moved, input_data_b=sample).rebasin()
            pairs = zip(network.parameters(), moved.parameters(), strict=True)
            theirs += all(torch.allclose(one, two, rtol=1e-9) for one, two in pairs)
            ours += lawful.same(network, other).verdict == "equal"
        kind = "permuted and rescaled" if scaled else "permuted"
        print(f"{kind} copies found: {theirs} of {SEEDS}, ours {ours} of {SEEDS}")


def main() -> None:
    """Every peer that is here."""
    for name, ask in (("relucent", regions), ("rebasin", disguises)):
        try:
            peer = importlib.import_module(name)
        except ImportError as error:
            print(f"{name}: not here ({error})")
            continue
        print(f"{name} {version(name)}")
        ask(peer)


if __name__ == "__main__":
    main()
