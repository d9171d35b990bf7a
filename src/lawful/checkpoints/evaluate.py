"""What a program computes with the tensors of a checkpoint, in float64 wherever its module asks for any floating type.

What counts is the function of the weights, not the rounding of one way to compute it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch

from lawful.errors import Unsupported
from lawful.program.domains.streamed import StreamedRun, evaluate_beside
from lawful.program.program import Program


def replay_beside(
    program: Program,
    runs: Sequence[tuple[Mapping[str, torch.Tensor], Sequence[torch.Tensor]]],
    kind: torch.dtype = torch.float64,
) -> list[list[torch.Tensor]]:
    """The outputs of several runs, each with tensors and inputs of its own, carried out beside each other.

    `kind`: in what it is carried out; float64 unless rounding does not matter.
    """
    with torch.no_grad(), _nothing_random():
        outputs = evaluate_beside(program, [StreamedRun(*each) for each in runs], kind)
    return [[tensor.double() for tensor in each] for each in outputs]


@contextmanager
def _nothing_random() -> Iterator[None]:
    """Refuse what draws random numbers: two runs differ then, and say nothing of two functions."""
    with torch.random.fork_rng(devices=[]):
        before = torch.random.get_rng_state()
        yield
        if not torch.equal(before, torch.random.get_rng_state()):
            raise Unsupported("the module draws random numbers in eval mode (dropout that is always on, or noise)")
