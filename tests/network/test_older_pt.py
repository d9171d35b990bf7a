"""`.pt` files as people have them: from before PyTorch 1.6, and inside other dicts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import lawful
from lawful.errors import LawfulError

torch = pytest.importorskip("torch")
STATE = {"0.weight": torch.arange(6.0).reshape(2, 3), "0.bias": torch.tensor([1.0, -1.0])}
WANTED = np.arange(6.0).reshape(2, 3) @ np.ones(3) + [1, -1]


@pytest.mark.parametrize("older", [True, False])
@pytest.mark.parametrize(
    "held",
    [STATE, {"state_dict": STATE}, {"step": 3, "model_state": STATE}, {"model": {"model": STATE, "args": {"a": 1}}}],
    ids=["alone", "usual key", "the only one", "nested"],
)
def test_the_state_dict_is_found(tmp_path: Path, held: object, older: bool) -> None:
    torch.save(held, tmp_path / "a.pt", _use_new_zipfile_serialization=not older)
    network = lawful.open(tmp_path / "a.pt")
    assert network.evaluate(np.ones((1, 3)))[0].tolist() == WANTED.tolist()


def test_of_several_state_dicts_none_is_chosen(tmp_path: Path) -> None:
    torch.save({"generator": STATE, "critic": STATE}, tmp_path / "a.pt")
    with pytest.raises(LawfulError, match=r"several state dicts \(generator, critic\)"):
        lawful.open(tmp_path / "a.pt")


def test_weights_of_another_library_are_named_so(tmp_path: Path) -> None:
    (tmp_path / "weight.bin").write_bytes(b"\2\0\0\0" + bytes(100))
    with pytest.raises(LawfulError, match="neither an archive nor a pickle of PyTorch"):
        lawful.open(tmp_path / "weight.bin")
