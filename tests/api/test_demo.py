"""The demo's story: the planted mistake is named, its image tells, everything else is certified."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lawful.api import conversion
from lawful.api.demo import digits
from lawful.sources.opening import open_graph


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(tmp_path_factory.mktemp("demo")) / "demo"


@pytest.fixture(scope="module")
def story(folder: Path) -> dict[str, Any]:
    from command_line import in_process

    return in_process("demo", "-o", folder, "--json").json


def test_the_demo_names_the_step_and_proves_the_others(story: dict[str, Any], folder: Path) -> None:
    assert story["wrong"] == [2]
    assert [step["verdict"] for step in story["steps"]] == ["same", "different", "same", "bounded", "same"]
    assert story["channels"][1] < story["channels"][0] - 5
    assert story["accuracy"][0] == story["accuracy"][2] > 0.95
    for page in (story["page"], story["story"]):
        assert Path(page).read_text(encoding="utf-8").startswith("<!doctype html>")


def test_the_image_is_a_digit_that_both_networks_read_differently(story: dict[str, Any], folder: Path) -> None:
    """By other code: the graphs of the files, in float64."""
    image = np.array(story["input"])
    assert ((image >= 0) & (image <= 1)).all()
    one, two = (open_graph(folder / f"{name}.onnx").evaluate(image[None])[0] for name in ("trained", "folded-wrong"))
    assert [int(one.argmax()), int(two.argmax())] == story["read_as"]
    assert one.argmax() != two.argmax()
    low, high = story["difference"]
    assert low <= abs(one - two).max() + 1e-9
    assert abs(one - two).max() <= high + 1e-9


def test_the_commands_that_it_prints_give_the_same_answers(
    story: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch, lawful: Any
) -> None:
    monkeypatch.chdir(folder)
    for step in story["steps"]:
        _, *words = shlex.split(step["command"].replace("--seconds 5", "--seconds 1"))
        lawful(*words, code=1 if step["verdict"] == "different" else 0, cwd=folder)
    lawful("verify", "pruned.json", "folded.onnx", "pruned.onnx", cwd=folder)
    lawful("verify", "pruned.json", "folded-wrong.onnx", "pruned.onnx", code=1, cwd=folder)


def test_folding_and_quantising_do_what_they_say() -> None:
    torch = pytest.importorskip("torch")
    _, unseen = digits(1)
    torch.manual_seed(0)
    place: dict[str, Any] = {}
    exec(compile(conversion.NETWORK, "digits_net.py", "exec"), place)  # noqa: S102
    module = place["digits_net"]()
    module(torch.rand(64, 1, 8, 8))  # running statistics of their own
    module.eval()
    folded = conversion.fold_batch_norms(module, conversion.EPSILON)
    assert not any(isinstance(layer, torch.nn.BatchNorm2d) for layer in folded)
    images = unseen.x[:20]
    assert (conversion.outputs(module, images) - conversion.outputs(folded, images)).abs().max() < 1e-5
    rounded = conversion.quantise(folded)
    for layer, before in zip(rounded, folded, strict=True):
        if hasattr(layer, "weight"):
            scale = before.weight.abs().flatten(1).amax(1) / 127
            levels = layer.weight.flatten(1) / scale[:, None]
            assert (levels - levels.round()).abs().max() < 1e-3
    image = conversion.read_differently(module, folded, unseen)  # rounding alone: a mixture on the edge, or nothing
    assert ((image >= 0) & (image <= 1)).all()
