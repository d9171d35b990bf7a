"""Certificates of large prunings hold tensors by their digests, and read them from the networks that are given."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from forging import signed
from safetensors.torch import save_file
from torch import nn

from lawful import CertificateError, LawfulError, NotACertificate, Unsupported
from lawful.formats.tensors.safetensors import contents
from lawful.pruning.channels import ChannelPruning, certificate, prune_channels
from lawful.verify import verify
from lawful.verify.core.tensors import SafeTensors, weights_digest

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture
def pruned(monkeypatch: pytest.MonkeyPatch) -> tuple[ChannelPruning, dict[str, Any]]:
    """A network with one constant channel, certified as if it were large."""
    monkeypatch.setattr(certificate, "MOST_NUMBERS", 10)
    monkeypatch.setattr(certificate, "MOST_INLINE", 6)
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 2)
    )
    with torch.no_grad():
        model[0].weight[1] = 0.0
    found = prune_channels(model, [(3, 2)])
    return found, certificate.certificate(found)


def test_they_are_read_from_what_is_given(pruned: tuple[ChannelPruning, dict[str, Any]], tmp_path: Path) -> None:
    found, proof = pruned
    assert set(proof["before"]["4.weight"]) == {"line"}
    assert set(proof["before"]["2.bias"]) == {"dtype", "shape", "data"}
    assert proof["before"]["4.weight"] == proof["after"]["4.weight"], "nothing left this layer"
    assert verify(proof, found.original, found.module).given == (0, 1)
    files = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    for file, module in zip(files, (found.original, found.module), strict=True):
        save_file(module.state_dict(), file)
    assert verify(proof, *map(SafeTensors, files)).facts["channels_after"] == 14
    with pytest.raises(Unsupported, match="give both networks"):
        verify(proof)
    with pytest.raises(Unsupported, match="give both networks"):
        verify(proof, found.original)


def test_other_numbers_are_refused(pruned: tuple[ChannelPruning, dict[str, Any]]) -> None:
    found, proof = pruned
    for name in ("0.weight", "2.weight", "4.weight", "6.weight"):
        other = copy.deepcopy(found.module)
        with torch.no_grad():
            other.state_dict()[name].view(-1)[0] += 1e-3
        with pytest.raises((CertificateError, Unsupported)):
            verify(proof, found.original, other)


def test_forged_digests_are_refused(pruned: tuple[ChannelPruning, dict[str, Any]]) -> None:
    """A smaller network with other numbers, its digests all right: the replay sees every number that may differ."""
    found, proof = pruned
    for name in ("0.weight", "2.weight", "4.weight", "6.weight"):
        other = copy.deepcopy(found.module)
        with torch.no_grad():
            other.state_dict()[name].view(-1)[0] += 1e-3
        forged = copy.deepcopy(proof)
        forged["after"][name] = certificate.certificate(
            ChannelPruning(**{**found.__dict__, "module": other})
        )["after"][name]  # fmt: skip
        with pytest.raises(CertificateError, match=r"has changed|is not what follows"):
            verify(signed(forged), found.original, other)


@pytest.mark.parametrize(
    "line", ["", "float32 [2] " + "0" * 63, "int64 [2] " + "0" * 64, "float32 [-1] " + "0" * 64, 3]
)
def test_what_is_no_line(pruned: tuple[ChannelPruning, dict[str, Any]], line: Any) -> None:
    found, proof = pruned
    forged = copy.deepcopy(proof)
    forged["before"]["4.weight"] = {"line": line}
    with pytest.raises(NotACertificate):
        verify(forged, found.original, found.module)


def test_names_that_look_like_lines_are_other_weights() -> None:
    assert weights_digest({"a": "b"}) != weights_digest({"a b": ""})


ENTRY = '"w": {"dtype": "F32", "shape": [2], "data_offsets": [%s]}'


@pytest.mark.parametrize(
    "header",
    [
        f"{{{ENTRY % '0, 8'}, {ENTRY % '8, 16'}}}",
        f'{{{(ENTRY % "0, 8")[:-1]}, "dtype": "I32"}}}}',
        f'{{{ENTRY % "0, 8"}, "__metadata__": {{"a": "b", "a": "c"}}}}',
        f"{{{ENTRY % '0.0, 8.0'}}}",
        f"{{{(ENTRY % '0, 8').replace('[2]', '[-1, -2]')}}}",
    ],
    ids=["tensor twice", "field twice", "metadata twice", "offsets no integers", "negative shape"],
)
def test_headers_that_readers_may_read_in_two_ways_are_refused(header: str, tmp_path: Path) -> None:
    """Of a name that is there twice one reader takes the first tensor, another the last."""
    path = tmp_path / "a.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header.encode() + bytes(16))
    with pytest.raises(LawfulError, match="not a safetensors file, or damaged"):
        SafeTensors(path)
    with pytest.raises(LawfulError):
        contents(path)
    good = "{%s}" % (ENTRY % "0, 8")
    path.write_bytes(len(good).to_bytes(8, "little") + good.encode() + bytes(8))
    assert list(SafeTensors(path)) == ["w"]
