"""Mutations of channel-pruning certificates: whatever is still verified is true of the modules with those weights."""

from __future__ import annotations

import base64
import copy
import json
import random
from typing import Any

import numpy as np
import pytest
import torch
from forging import signed
from torch import Tensor, nn

from lawful.errors import LawfulError
from lawful.pruning.channels import prune_channels
from lawful.pruning.channels.certificate import certificate
from lawful.verify import verify

Proof = dict[str, Any]


class Mixed(nn.Module):
    """Convolutions with a border, a product of two branches, a skip, and a linear layer at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.left, self.right = nn.Conv2d(2, 5, 3), nn.Conv2d(5, 4, 3, padding=1), nn.Conv2d(5, 4, 1)
        self.norm, self.mix, self.head = nn.BatchNorm2d(4), nn.Conv2d(4, 4, 1), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.stem(x))
        y = torch.tanh(self.norm(self.left(x))) * torch.abs(self.right(x))
        return self.head((y + self.mix(y)).amax((2, 3)))


@torch.no_grad()
def pruned() -> Any:
    torch.manual_seed(0)
    model = Mixed().eval()
    model.stem.weight[1], model.stem.bias[1] = 2 * model.stem.weight[0], 2 * model.stem.bias[0]
    model.stem.weight[2], model.stem.bias[2] = 0.0, -1.0
    model.stem.weight[4], model.stem.bias[4] = 0.0, 0.0
    for part in (model.left, model.right, model.norm, model.mix):
        part.weight[1], part.bias[1] = part.weight[0], part.bias[0]
    model.left.weight[1], model.left.bias[1] = -model.left.weight[0], -model.left.bias[0]
    model.norm.bias.zero_()
    return prune_channels(model, [(2, 2, 6, 6)])


def mutate(proof: Proof, rng: random.Random) -> None:
    """One number, one move, one factor or one channel is another."""
    kind = rng.choice(["number", "number", "both", "move", "factor", "gone", "padded"])
    if kind in ("number", "both"):
        name = rng.choice(sorted(set(proof["before"]) & set(proof["after"])))
        factor = rng.choice([-1.0, 0.0, 2.0, 1.5])
        for side in ("before", "after") if kind == "both" else (rng.choice(["before", "after"]),):
            values = np.frombuffer(base64.b64decode(proof[side][name]["data"]), np.float32).copy()
            values[rng.randrange(len(values))] *= factor
            proof[side][name]["data"] = base64.b64encode(values.tobytes()).decode()
    elif kind == "padded":
        step = rng.choice(proof["program"])
        step["padded"] = not step["padded"]
    elif kind == "factor" and proof["moves"]:
        move = rng.choice([each for each in proof["moves"] if len(each) == 4] or [["", 0, 0, [[0, "1"]]]])
        move[3][0][1] = rng.choice(["2", "-1", "1/2", "0"])
    elif kind == "move" and proof["moves"]:
        place = rng.randrange(len(proof["moves"]))
        choice = rng.randrange(3)
        if choice == 0:
            proof["moves"].pop(place)
        else:
            proof["moves"][place][1 if choice == 1 else 2] = rng.randrange(5)
    elif proof["gone"]:
        rng.choice(proof["gone"])[1] = rng.randrange(5)


def loaded(module: nn.Module, tensors: Proof) -> nn.Module:
    found = copy.deepcopy(module).double()
    state = found.state_dict()
    for name, tensor in tensors.items():
        state[name] = torch.tensor(np.frombuffer(base64.b64decode(tensor["data"]), np.float32).copy()).double()
        state[name] = state[name].reshape(tensor["shape"])
    found.load_state_dict(state)
    return found


@pytest.mark.parametrize("seed", range(3))
@torch.no_grad()
def test_what_is_still_verified_is_true(seed: int) -> None:
    check_mutations(random.Random(seed), 60)  # noqa: S311


def check_mutations(rng: random.Random, count: int) -> None:
    """Mutate a certificate so often, and run the modules wherever it is still verified."""
    found = pruned()
    assert {gone.kind for gone in found.removed} >= {"duplicate"}
    genuine = json.dumps(certificate(found))
    verify(genuine)
    accepted = 0
    for _ in range(count):
        proof = json.loads(genuine)
        for _ in range(rng.choice([1, 1, 2])):
            mutate(proof, rng)
        try:
            verify(signed(proof))
        except LawfulError:
            continue
        accepted += 1
        one, two = loaded(found.original, proof["before"]), loaded(found.module, proof["after"])
        x = torch.randn(3, 2, 6, 6, dtype=torch.float64) * 3
        assert torch.allclose(one(x), two(x), rtol=1e-4, atol=1e-5), proof["moves"]
    assert accepted < count / 2
