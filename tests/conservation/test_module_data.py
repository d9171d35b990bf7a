"""Laws of modules on given data: proved near the weights, with sums that no sample moves, certificates, forgeries."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from lawful import CertificateError, NotACertificate, Unsupported, verify
from lawful.conservation import LawCount, count_laws
from lawful.conservation.certificate import certificate
from lawful.report.structure.laws import count_text

REFUSED = (CertificateError, NotACertificate, Unsupported)


def numbers(*shape: int) -> Any:
    return np.random.default_rng(0).normal(size=shape)


MODULES: dict[str, tuple[Any, Any, int]] = {
    # three samples leave two sums at each of three neurons (five inputs), and with the bias a third
    "GELU": (lambda: nn.Sequential(nn.Linear(5, 3), nn.GELU(), nn.Linear(3, 2)), numbers(3, 5), 9),
    "convolutions": (lambda: nn.Sequential(nn.Conv1d(1, 2, 2), nn.ReLU(), nn.Conv1d(2, 1, 2)), numbers(2, 1, 4), 5),
    "layer norm": (lambda: nn.Sequential(nn.Linear(5, 3), nn.LayerNorm(3), nn.Linear(3, 2)), numbers(3, 5), 15),
    # tokens 4 and 5 of six do not occur: four entries rest, and the balance of two linear channels has three laws
    "embedding": (
        lambda: nn.Sequential(nn.Embedding(6, 2), nn.Flatten(), nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)),
        np.array([[0, 1], [2, 3], [1, 1]]),
        7,
    ),
    # the batch's mean is taken away: a bias rests, and of three samples two directions are left
    "batch norm": (
        lambda: nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2), nn.Tanh(), nn.Linear(2, 2)),
        numbers(4, 4),
        4,
    ),
}


def counted(name: str) -> LawCount:
    torch.manual_seed(0)
    make, data, _ = MODULES[name]
    return count_laws(make(), level="data", data=data)


@pytest.mark.parametrize("name", MODULES)
def test_counts_on_data_are_proved_near_the_weights(name: str) -> None:
    count = counted(name)
    assert (count.laws, count.independent, count.status, count.claim) == (MODULES[name][2],) * 2 + ("proved", "near")
    assert "near these weights there are no others" in " ".join(count_text(count).split())
    found = verify(certificate(count))
    assert (found.facts["laws"], found.facts["claim"]) == (count.laws, "near")
    assert f"given input{'s' if name != 'batch norm' else ''}" in found.statement


def test_a_certificate_is_about_its_data() -> None:
    """Other samples, fewer of them, a law on other weights, or a choice that takes the other side: refused."""
    good = certificate(counted("convolutions"))
    for forge in (_other_sample, _no_data, _another_law, _another_point):
        bad = copy.deepcopy(good)
        forge(bad)
        with pytest.raises(REFUSED):
            verify(bad)


def _other_sample(body: dict[str, Any]) -> None:
    body["data"].append([value + 1.0 for value in body["data"][0]])


def _no_data(body: dict[str, Any]) -> None:
    body["inputs"] = [[round(value * 2**8) for value in body["data"][sample]] for sample in body["inputs"]]
    del body["data"]


def _another_law(body: dict[str, Any]) -> None:
    sums = next(law for law in body["known"] if len(law) > 1 and all(len(edges) == 1 for edges, _ in law))
    sums[0][1] = str(2 * int(sums[0][1]))


def _another_point(body: dict[str, Any]) -> None:
    body["theta"] = [-value for value in body["theta"]]


def test_weights_on_a_boundary_are_not_proved() -> None:
    module = nn.Sequential(nn.Conv1d(1, 2, 2), nn.ReLU(), nn.Conv1d(2, 1, 2))
    for value in module[0].parameters():
        nn.init.zeros_(value)
    count = count_laws(module, level="data", data=numbers(2, 1, 4))
    assert not count.proved
    assert "boundary" in count.reason


def test_a_function_of_zero_is_not_zero() -> None:
    """exp(0) = 1: the sum of the weights behind it is moved, though its argument never changes."""

    class Shifted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(2, 2, bias=False), nn.Linear(2, 1, bias=False)

        def forward(self, batch: torch.Tensor) -> torch.Tensor:
            return self.last(torch.exp(batch) * torch.tanh(self.first(batch + 1)))

    torch.manual_seed(0)
    count = count_laws(Shifted(), level="data", data=np.array([[0.0, 0.0], [0.0, 1.0]]))
    assert (count.laws, count.status) == (0, "proved")


def test_near_its_own_weights_a_module_is_complete_there() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(2, 3), nn.LayerNorm(3), nn.GELU(), nn.Linear(3, 2))
    count = count_laws(module, level="near", input_shape=(2,))
    assert (count.status, count.claim) == ("proved", "near")
    assert count.proof is not None
    own = torch.cat([value.detach().double().flatten() for value in module.parameters()])
    assert np.array_equal(count.proof.point, own.numpy())
