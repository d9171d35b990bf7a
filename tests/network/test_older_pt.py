"""`.pt` files as people have them: from before PyTorch 1.6, and inside other dicts."""

from __future__ import annotations

import sys
import types
import zipfile
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


STRANGER = """
raise SystemExit("imported")
"""


@pytest.mark.parametrize("older", [True, False])
def test_settings_of_other_people_are_left_out_and_never_imported(
    tmp_path: Path, older: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trainer's checkpoint: its settings are dicts and objects of classes that are not installed here."""
    made = types.ModuleType("stranger")
    classes = {name: type(name, (base,), {"__module__": "stranger"}) for name, base in
               (("Settings", dict), ("Metric", object))}  # fmt: skip
    vars(made).update(classes)
    monkeypatch.setitem(sys.modules, "stranger", made)
    metric = classes["Metric"]()
    metric.task = "regression"
    if not older:  # the older format stores the source of modules, which PyTorch does not read with weights alone
        metric.loss = torch.nn.MSELoss()
    settings = classes["Settings"](sizes=[3, 2], metrics=[metric], device=torch.device("cpu"))
    held = {"state_dict": STATE, "hyper_parameters": settings, "seen": {1, 2}, "type": torch.float32}
    torch.save(held, tmp_path / "a.ckpt", _use_new_zipfile_serialization=not older)
    monkeypatch.delitem(sys.modules, "stranger")
    (tmp_path / "stranger.py").write_text(STRANGER)
    monkeypatch.syspath_prepend(tmp_path)
    network = lawful.open(tmp_path / "a.ckpt")
    assert network.evaluate(np.ones((1, 3)))[0].tolist() == WANTED.tolist()
    assert "hyper_parameters (beside the weights)" in network.reading.ignored
    assert "stranger" not in sys.modules


def test_a_pickle_cannot_change_the_functions_that_it_calls(tmp_path: Path) -> None:
    """Its BUILD operation sets attributes of whatever stands on the stack, such as the defaults of a function."""
    code = (
        b"\x80\x02}(X\x01\x00\x00\x00sctorch._utils\n_rebuild_tensor_v2\n"
        b"N}X\x0c\x00\x00\x00__defaults__)s\x86bX\x01\x00\x00\x00tcstranger\nMetric\n)Ru."
    )
    before = torch._utils._rebuild_tensor_v2.__defaults__
    with zipfile.ZipFile(tmp_path / "a.pt", "w") as archive:
        archive.writestr("a/data.pkl", code)
        archive.writestr("a/version", "3\n")
    with pytest.raises(LawfulError):
        lawful.open(tmp_path / "a.pt")
    assert torch._utils._rebuild_tensor_v2.__defaults__ == before


def test_arrays_of_numpy_beside_the_weights_are_left_out(tmp_path: Path) -> None:
    """An array is filled by a tuple when it is read, not entry by entry."""
    settings = {"shift": np.arange(3.0), "scale": np.float64(2.0), "names": np.array(["a"])}
    torch.save({"model_state_dict": {"fc.weight": torch.ones(2, 3)}, "config": settings}, tmp_path / "a.pt")
    network = lawful.open(tmp_path / "a.pt")
    assert network.parameters == 6
    assert network.reading.ignored == ("config (beside the weights)",)
