"""The recipes on docs/singular.md, each copied into a file: they end in exact zeros that `lawful prune` removes."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path

import pytest
import torch

from tests.command_line import in_process

PAGE = Path(__file__).parents[2] / "docs" / "singular.md"
TEXT = PAGE.read_text(encoding="utf-8")
MLP, CNN, TRANSFORMER, OWN_LOOP = re.findall(r"```python\n(.*?)```", TEXT, re.S)


@pytest.mark.parametrize(
    ("recipe", "name", "size", "units", "said"),
    [
        (MLP + OWN_LOOP, "model", (), "neurons", "26 of 72 neurons are left here"),
        (CNN, "cnn", ("--input", "1,8,8"), "channels", "32 of 40 channels remain"),
        (TRANSFORMER, "model", ("--input", "8,8"), "channels", "6 of 8 heads and\n71 of 128 neurons are gone"),
    ],
)
def test_a_copied_recipe_ends_in_zeros_that_the_command_line_removes(
    recipe: str,
    name: str,
    size: tuple[str, ...],
    units: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert said in TEXT
    written = f"recipe_{units}_{len(recipe)}"
    (tmp_path / f"{written}.py").write_text(recipe, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    run = in_process("prune", f"{written}:{name}", *size, "--json")
    assert run.returncode == 0, run.stderr
    answer = json.loads(run.stdout[run.stdout.index("{") :])  # the recipe prints too
    copied = importlib.import_module(written)
    assert 0 < answer[f"{units}_after"] < answer[f"{units}_before"]
    with torch.no_grad():
        hits = getattr(copied, name)(copied.x[1400:]).argmax(1) == copied.y[1400:]
    assert float(hits.double().mean()) > 0.8
    if units == "neurons":
        assert copied.small.bound == 0.0
        assert copied.small.neurons_after < copied.small.neurons_before
    if recipe is TRANSFORMER:  # whole heads leave, and single neurons
        gone = [int(unit[3].sum()) for unit in copied.units]
        blocks = copied.pruned.module.blocks
        assert sum(gone[0::2]) > 0
        assert sum(gone[1::2]) > 0
        for k, block in enumerate(blocks):
            assert block.query.out_features == 8 * max(1, 4 - gone[2 * k])  # a class has at least one head
            assert block.up.out_features <= 64 - gone[2 * k + 1]
