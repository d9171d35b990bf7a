"""Claims about aligned checkpoints: what matching of neurons does for trained networks, with and without scales."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from statistics import median

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from lawful.api import demo
from lawful.checkpoints.align.align import search
from lawful.checkpoints.align.lazy_tensors import folded_tensors
from lawful.checkpoints.architecture import CheckpointArchitecture
from lawful.checkpoints.group.axis_actions import frames, move_tensors
from lawful.checkpoints.group.random_members import random_member
from lawful.checkpoints.group.spaces import OrbitGroup, UnitSpace
from lawful.checkpoints.merge import merge_pair
from lawful.checkpoints.opening import CheckpointPair, open_checkpoint
from lawful.checkpoints.read_architecture import read_architecture
from lawful.checkpoints.relations.kinship import kinship
from reproduction.claim import Outcome, Size, claim
from reproduction.claims.extremes import largest, smallest
from reproduction.claims.symmetry_counts import gpt_shape

STEPS, BATCH = 200, 64
TOKENS, LENGTH = 48, 8
RECOVERED = 1e-6  # of the size of every tensor


def _perceptron(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 48), nn.ReLU(), nn.Linear(48, 10))


def _convolutions(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 12, 3), nn.ReLU(), nn.Conv2d(12, 24, 3), nn.ReLU(),
                         nn.Flatten(), nn.Linear(24 * 16, 10))  # fmt: skip


def _trained(module: nn.Module, seed: int, images: torch.Tensor, labels: torch.Tensor, steps: int) -> nn.Module:
    generator, optimiser = torch.Generator().manual_seed(seed), torch.optim.Adam(module.parameters(), lr=3e-3)
    for _ in range(steps):
        rows = torch.randint(len(images), (BATCH,), generator=generator)
        optimiser.zero_grad()
        functional.cross_entropy(module(images[rows]), labels[rows]).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return module.eval()


def _digits() -> tuple[torch.Tensor, torch.Tensor]:
    data = demo.digits(0)[0]
    return torch.tensor(data.x, dtype=torch.float32), torch.tensor(data.y).long()


@claim(
    "p4-barrier",
    "Section 5 (orbits of permutations and scales); Ainsworth, Hayase, Srinivasa 2023, Figures 1 and 2",
    "the loss rises on the line between two networks that were trained apart; it rises less after the neurons of one "
    "are brought into the order and scales of the other, and scaling the neurons of one changes nothing of that",
    size=Size("two networks on digits, 200 steps", "two networks on digits, 800 steps", "beyond the paper"),
    criterion="ours: the barrier falls by a quarter or more; scaling moves it by less than a fifth",
    experiment=True,
)
def barrier_falls(full: bool) -> Outcome:
    """Two trainings of a perceptron and of convolutions on digits, and one of each pair in disguise."""
    images, labels = _digits()
    measured: dict[str, float] = {}
    holds = True
    for name, make in (("perceptron", _perceptron), ("convolutions", _convolutions)):
        one, two = (_trained(make(seed), seed, images, labels, 4 * STEPS if full else STEPS) for seed in (0, 1))
        found = read_architecture(one, (64,))
        wide = {key: tensor.double() for key, tensor in two.state_dict().items()}
        scaled = dict(random_member(found.group, wide, 3))
        for kind, other in (("apart", wide), ("apart and scaled", scaled)):
            line = merge_pair(
                _pair(found, one, other), inputs=[images.double()], loss=lambda out: _loss(out, labels)
            ).line
            before, after = line.barriers if line is not None else (0.0, np.inf)
            measured[f"{name}, {kind}: before"], measured[f"{name}, {kind}: after"] = before, after
            holds = holds and after < 0.75 * before
        apart, again = measured[f"{name}, apart: after"], measured[f"{name}, apart and scaled: after"]
        holds = holds and abs(apart - again) < 0.2 * largest(apart, again)
    return Outcome(holds, measured)


def _pair(found: CheckpointArchitecture, one: nn.Module, two: Mapping[str, torch.Tensor]) -> CheckpointPair:
    """Two checkpoints of an architecture that was read already."""
    return CheckpointPair(found, open_checkpoint(one, one), open_checkpoint(two, one))


def _loss(outputs: list[torch.Tensor], labels: torch.Tensor) -> float:
    return float(functional.cross_entropy(outputs[0], labels))


@claim(
    "p4-scaled-disguises",
    "Section 5 (orbits of permutations and scales); Ainsworth, Hayase, Srinivasa 2023, Section 3",
    "matching of neurons by permutations alone finds a permuted copy again, but none of twenty once neurons are "
    "scaled; matching with scales finds all twenty",
    size=Size("20 members of an orbit", "20 members of an orbit", "beyond the paper"),
    criterion="ours: all or none of twenty, to 1e-6 of every tensor",
    experiment=True,
)
def scaled_disguises(full: bool) -> Outcome:
    """Twenty random members of the orbit of a trained perceptron, with scales and without."""
    images, labels = _digits()
    module = _trained(_perceptron(0), 0, images, labels, STEPS)
    found = read_architecture(module, (64,))
    state = {name: tensor.double() for name, tensor in module.state_dict().items()}
    bare = _permutations(found.group)
    counts = {
        f"{how}, {what}": sum(_comes_back(used, state, dict(random_member(made, state, seed))) for seed in range(20))
        for how, used in (("permutations", bare), ("with scales", found.group))
        for what, made in (("permuted", bare), ("scaled", found.group))
    }
    wanted = {"permutations, permuted": 20, "permutations, scaled": 0, "with scales, permuted": 20,
              "with scales, scaled": 20}  # fmt: skip
    return Outcome(counts == wanted, counts)


def _permutations(group: OrbitGroup) -> OrbitGroup:
    """The same without scales and signs."""
    spaces = [
        replace(space, scales=0, signed=False, members=tuple(replace(rows, powers=()) for rows in space.members))
        for space in group.spaces
        if isinstance(space, UnitSpace)
    ]
    return replace(group, spaces=tuple(spaces))


def _comes_back(group: OrbitGroup, one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> bool:
    near = move_tensors(two, frames(group, search(group, one, two).moves), list(group.shapes))
    return all(float((near[name] - one[name]).norm()) < RECOVERED * float(one[name].norm()) for name in near)


@claim(
    "p4-children",
    "Section 5 (orbits), on a small language model trained here",
    "children of a model (fine-tuned, low rank, pruned by 10%, rounded to int8), each in disguise, share nearly all of "
    "its units; models that were trained on the same data from other starts share nearly none: no threshold is needed",
    size=Size("one block, five children, 2 strangers", "two blocks, five children, 20 strangers", "beyond the paper"),
    criterion="ours: shares above 0.8 for children and below 0.25 for strangers",
    experiment=True,
)
def children_apart_from_strangers(full: bool) -> Outcome:
    """A copy and four children against twenty strangers (two unless `full`)."""
    blocks = 2 if full else 1
    parent = _taught(_gpt(0, blocks), 0, 80, 3e-3)
    found = read_architecture(parent, torch.zeros(2, LENGTH, dtype=torch.int64))
    children = {
        "a copy": parent,
        "fine-tuned": _taught(copy.deepcopy(parent), 9, 30, 1e-3),
        "low rank": _changed(parent, _low_rank),
        "pruned": _changed(parent, lambda w: w * (w.abs() > w.abs().flatten().kthvalue(w.numel() // 10)[0])),
        "int8": _changed(parent, lambda w: torch.round(w / (w.abs().max() / 127)) * (w.abs().max() / 127)),
    }
    shares = {name: _share(found, parent, module, disguised=True) for name, module in children.items()}
    strangers = [
        _share(found, parent, _taught(_gpt(seed, blocks), seed, 80, 3e-3), disguised=False)
        for seed in range(1, 21 if full else 3)
    ]
    measured = {**shares, "strangers, median": median(strangers), "strangers, most": largest(strangers)}
    apart = smallest(shares.values()) > 0.8 and largest(strangers) < 0.25
    return Outcome(apart and shares["a copy"] == 1.0, measured)


def _share(found: CheckpointArchitecture, parent: nn.Module, other: nn.Module, *, disguised: bool) -> float:
    state = {name: tensor.detach().double() for name, tensor in other.named_parameters()}
    if disguised:
        twin = random_member(found.group, folded_tensors(state, found.folds), 4)
        state = {name: tensor.float() for name, tensor in twin.items()}
    seen = kinship(_pair(found, parent, state))
    return 1.0 if seen.relation == "copy" else seen.share or 0.0


def _changed(module: nn.Module, change: object) -> nn.Module:
    found = copy.deepcopy(module)
    torch.manual_seed(3)
    with torch.no_grad():
        for tensor in found.parameters():
            if tensor.ndim == 2:
                tensor.copy_(change(tensor))  # type: ignore[operator]
    return found


def _low_rank(weight: torch.Tensor) -> torch.Tensor:
    step = torch.randn(weight.shape[0], 2) @ torch.randn(2, weight.shape[1])
    return torch.add(weight, step, alpha=0.05 * float(weight.norm() / step.norm()))


def _gpt(seed: int, blocks: int) -> nn.Module:
    torch.manual_seed(seed)
    return gpt_shape(TOKENS, LENGTH, 24, 3, 48, blocks)


def _taught(module: nn.Module, seed: int, steps: int, rate: float) -> nn.Module:
    """Trained to continue sentences of a fixed random Markov chain."""
    table = torch.softmax(2.5 * torch.randn(TOKENS, TOKENS, generator=torch.Generator().manual_seed(7)), -1)
    generator, optimiser = torch.Generator().manual_seed(seed), torch.optim.AdamW(module.parameters(), rate)
    for _ in range(steps):
        words = [torch.randint(0, TOKENS, (24,), generator=generator)]
        for _ in range(LENGTH):
            words.append(torch.multinomial(table[words[-1]], 1, generator=generator)[:, 0])
        ids = torch.stack(words, 1)
        loss = functional.cross_entropy(module(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return module.eval()


CLAIMS = (barrier_falls, scaled_disguises, children_apart_from_strangers)
