"""Sentences about two checkpoints, tried on pairs of perceptrons with three hidden units."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import permutations
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from checkpoints.conftest import same_by_weights as same
from falsification import Trial
from safetensors.torch import save_file
from torch import nn

import lawful
from lawful import align
from lawful.api.checkpoints.index import find, index_folder
from lawful.checkpoints.compare.decide import CheckpointVerdict
from lawful.checkpoints.placement import Aligned
from lawful.report.checkpoints.checkpoints import aligned_text, verdict_text
from lawful.report.checkpoints.relatives import found_json, found_text, representative_text
from lawful.sentences import checkpoints as says

State = dict[str, torch.Tensor]


def _net(state: State | None = None, seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)).eval()
    if state is not None:
        net.to(next(iter(state.values())).dtype).load_state_dict(state)
    return net


def _moved(state: State, scale: float) -> State:
    order = [2, 0, 1]
    return {"0.weight": scale * state["0.weight"][order], "0.bias": scale * state["0.bias"][order],
            "2.weight": state["2.weight"][:, order] / scale, "2.bias": state["2.bias"].clone()}  # fmt: skip


@cache
def _pairs() -> tuple[tuple[str, State, State], ...]:
    """A checkpoint, and copies, rounded copies, neighbours and strangers of it."""
    whole = {name: tensor.detach().clone() for name, tensor in _net(seed=1).state_dict().items()}
    coarse = {name: tensor.bfloat16().float() for name, tensor in whole.items()}
    dead = {name: tensor.clone() for name, tensor in coarse.items()}
    dead["0.weight"][0] = torch.tensor([0.1, 0.3])  # no bfloat16, and no output sees it
    dead["2.weight"][:, 0] = 0.0
    twins = {name: tensor.clone() for name, tensor in whole.items()}
    twins["0.weight"][1], twins["0.bias"][1] = twins["0.weight"][0], twins["0.bias"][0]
    changed = {name: tensor.clone() for name, tensor in whole.items()}
    changed["0.weight"][1, 1] *= 1.001
    other = {name: tensor.detach().clone() for name, tensor in _net(seed=2).state_dict().items()}

    def cast(state: State) -> State:
        return {name: tensor.bfloat16() for name, tensor in state.items()}

    return (
        ("itself", whole, dict(whole)),
        ("permuted", whole, _moved(whole, 1.0)),
        ("twice as large", whole, _moved(whole, 2.0)),
        ("three times as large", whole, _moved(whole, 3.0)),
        ("twins, three times as large", twins, _moved(twins, 3.0)),
        ("a cast", whole, cast(whole)),
        ("a cast that loses nothing", coarse, cast(coarse)),
        ("a cast that loses what nobody sees", dead, cast(dead)),
        ("three times as large, in 16 bits", cast(coarse), cast(_moved(coarse, 3.0))),
        ("one weight changed", whole, changed),
        ("a stranger", whole, other),
        ("scales of 1e9", _moved(whole, 1e9), _moved(whole, 1e-9)),
    )


@cache
def _verdicts() -> tuple[tuple[str, State, State, CheckpointVerdict], ...]:
    return tuple((about, a, b, same(_net(a), b, input=(2,))) for about, a, b in _pairs())  # type: ignore[misc]


def _gap(a: State, b: State) -> float:
    """Of the largest output, how far outputs are apart at most at 400 inputs, in float64."""
    x = 3 * torch.randn(400, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    one, two = (_net({name: t.double() for name, t in each.items()})(x).detach() for each in (a, b))
    return float((one - two).abs().max() / one.abs().max())


def _weights_apart(a: State, b: State) -> float:
    """The least over all orders and scales of the units of the largest relative difference of a weight."""
    one, two = ({name: tensor.double() for name, tensor in each.items()} for each in (a, b))
    rows = [torch.cat([each["0.weight"], each["0.bias"][:, None]], 1) for each in (one, two)]
    best = float("inf")
    for order in permutations(range(3)):
        moved, heads = rows[1][list(order)], two["2.weight"][:, list(order)]
        scales = moved.norm(dim=1) / rows[0].norm(dim=1)
        pairs = ((moved / scales[:, None], rows[0]), (heads * scales, one["2.weight"]), (two["2.bias"], one["2.bias"]))
        best = min(best, max(float(((x - y).abs() / y.abs().clamp_min(1e-300)).max()) for x, y in pairs))
    return best


def exactly() -> Iterator[Trial]:
    for about, a, b, found in _verdicts():
        yield Trial(about, "EQUAL exactly" in verdict_text(found), _gap(a, b) < 1e-12)


def within() -> Iterator[Trial]:
    for about, a, b, found in _verdicts():
        said = bool(re.match(r"EQUAL(:| weight)", verdict_text(found)))
        yield Trial(about, said, said and _weights_apart(a, b) <= 3 * (found.epsilon or 0.0) + 1e-15)


def rounded() -> Iterator[Trial]:
    for about, a, b, found in _verdicts():
        near = _weights_apart(a, b) <= 3 * (found.epsilon or 0.0)
        yield Trial(about, verdict_text(found).startswith("ROUNDED COPY"), near and _gap(a, b) > 1e-9)


def apart() -> Iterator[Trial]:
    for about, a, b, found in _verdicts():
        stated = re.search(r"and B \S+ (\S+) of the largest output apart", " ".join(verdict_text(found).split()))
        share = float(stated[1]) if stated is not None else 1e-9
        gap = _gap(a, b)
        if stated is not None and found.replay is not None:
            x = found.replay.inputs[0].double()
            one, two = (_net({name: t.double() for name, t in each.items()})(x).detach() for each in (a, b))
            gap = float((one - two).abs().max() / one.abs().max())
        yield Trial(about, stated is not None, gap >= share * (1 - 1e-9))


def aligned() -> Iterator[Trial]:
    for about, a, b in _pairs():
        found: Aligned = align(_net(a), b, input=(2,))
        unit = max(torch.finfo(tensor.dtype).eps for tensor in b.values())
        near = _gap(b, {name: tensor.double() for name, tensor in found.weights.items()})
        yield Trial(f"{about}, written", "B in A's place" in aligned_text(found, "out"), near < 20 * unit)
        yield Trial(f"{about}, not written", "B in A's place" in aligned_text(found, None), _gap(a, b) < 1e-12)


def identical() -> Iterator[Trial]:
    """Files beside an indexed one: the same numbers, permuted ones, one weight changed, another type of numbers."""
    with TemporaryDirectory() as folder:
        stored = Path(folder, "stored")
        stored.mkdir()
        for about, a, b in _pairs():
            for old in stored.iterdir():
                old.unlink()
            save_file({name: tensor.contiguous() for name, tensor in a.items()}, stored / "a.safetensors")
            save_file({name: tensor.contiguous() for name, tensor in b.items()}, Path(folder, "b.safetensors"))
            index = Path(folder, f"{about}.index")
            index_folder([stored], index, model=_net(), input=(2,))
            found = find(Path(folder, "b.safetensors"), index, model=_net(), input=(2,))
            same_numbers = all(torch.equal(a[name].double(), b[name].double()) for name in a)
            yield Trial(about, says.identical() in found_text(found_json(found)), same_numbers)


def representative() -> Iterator[Trial]:
    """The balanced member of an orbit beside the checkpoint that it was made of, by outputs in float64."""
    for about, a, _ in _pairs():
        if any(tensor.dtype != torch.float32 for tensor in a.values()):
            continue
        found = lawful.rebalance(_net(a), objective="norm", input=(2,))
        text = representative_text(found)
        for verdict, within in (("equal", "exactly"), ("equal", "weight by weight")):
            said = says.representative(verdict, within, None) in text
            gap = _gap(a, {name: tensor.double() for name, tensor in found.weights.items()})
            yield Trial(f"{about} {within}", said, gap < (1e-15 if within == "exactly" else 1e-5))


FALSIFIERS = {
    "checkpoints.identical": identical,
    "checkpoints.representative": representative,
    "checkpoints.equal": exactly,
    "checkpoints.equal-within": within,
    "checkpoints.rounded": rounded,
    "checkpoints.apart": apart,
    "checkpoints.aligned": aligned,
}
