"""A flow that is killed and taken up again ends with the same bytes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lawful.errors import LawfulError
from lawful.network import Architecture
from lawful.training import HeavyBall, integrate, problem
from lawful.training.integration.trajectory import FlowState, read_checkpoint, write_checkpoint


def training(seed: int = 3) -> Any:
    rng = np.random.default_rng(seed)
    network = Architecture.parse("3-5-2 relu bias").initialise(seed=seed)
    x = rng.normal(size=(8, 3))
    return problem(network, x, np.abs(x[:, :2]) + x[:, 1:])


@pytest.mark.parametrize("options", [{}, {"dynamics": HeavyBall(0.5)}])
def test_every_checkpoint_leads_to_the_same_end(options: dict[str, Any], tmp_path: Path) -> None:
    kept: list[FlowState] = []
    whole = integrate(training(), 4.0, snapshots=21, keep=kept.append, relative=1e-6, **options)
    assert len(kept) >= 6
    if not options:
        assert any(state.pinned for state in kept) or any(kink.kind == "pinned" for kink in whole.kinks)
    for state in kept[2:8:5]:
        write_checkpoint(state, tmp_path / "part.npz", "this flow")
        again = read_checkpoint(tmp_path / "part.npz", "this flow")
        resumed = integrate(training(), 4.0, snapshots=21, keep=lambda _: None, resume=again, relative=1e-6, **options)
        for name in ("times", "theta", "losses", "gradient_norms"):
            np.testing.assert_array_equal(getattr(resumed, name), getattr(whole, name))
        assert resumed.kinks == whole.kinks
        assert resumed.stop == whole.stop


def test_the_command_goes_on_where_it_was_killed(
    tmp_path: Path, lawful: Any, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    from lawful.training.integration import trajectory

    words = ["flow", "3-5-2 relu bias", "--until", "1", "--snapshots", "21", "--tolerance", "1e-6", "--out"]
    lawful(*words, tmp_path / "whole")
    written = 0

    class Killed(BaseException):
        pass

    def dying(found: FlowState, path: Path, about: str) -> None:
        nonlocal written
        write_checkpoint(found, path, about)
        written += 1
        if written == 4:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(trajectory, "write_checkpoint", dying)
        with pytest.raises(Killed):
            lawful(*words, tmp_path / "killed")
    assert (tmp_path / "killed.part.npz").exists()
    assert not (tmp_path / "killed").exists()
    refused = lawful(*words[:1], "3-5-3 relu bias", *words[2:], tmp_path / "killed", code=2)
    assert "is of another flow" in refused.stderr
    said = lawful(*words, tmp_path / "killed")
    assert "going on from" in said.stderr
    for name in ("trajectory.npz", "run.json", "network.json"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert not (tmp_path / "killed.part.npz").exists()


def test_other_data_under_the_same_name_are_another_flow(tmp_path: Path, lawful: Any) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(9, 3)), rng.normal(size=(9, 2))
    data = tmp_path / "data.npz"
    np.savez(data, x=x, y=y)
    words = ["flow", "3-5-2 relu bias", "--data", data, "--until", "1", "--snapshots", "21", "--tolerance", "1e-6"]
    lawful(*words, "--out", tmp_path / "whole")
    lawful(*words, "--out", tmp_path / "run", "--max-evaluations", "40", code=3)
    np.savez(data, x=x, y=y + 1e-3)
    refused = lawful(*words, "--out", tmp_path / "run", code=2)
    assert "is of another flow" in refused.stderr
    np.savez(data, x=x, y=y)
    lawful(*words, "--out", tmp_path / "run")  # a larger budget extends what it ended
    for name in ("trajectory.npz", "run.json", "network.json"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert "exists already" in lawful(*words, "--out", tmp_path / "run", code=2).stderr


def test_damaged_checkpoints_are_refused(tmp_path: Path) -> None:
    kept: list[FlowState] = []
    integrate(training(), 1.0, snapshots=11, keep=kept.append, relative=1e-6)
    path = tmp_path / "part.npz"
    for broken in (replace(kept[0], rows=kept[0].rows[:, :3]), replace(kept[0], state=np.full(3, np.nan))):
        write_checkpoint(broken, path, "x")
        with pytest.raises(LawfulError, match="damaged"):
            read_checkpoint(path, "x")
    np.savez(path, about=np.array("x"))
    with pytest.raises(LawfulError, match="damaged"):
        read_checkpoint(path, "x")
    with pytest.raises(LawfulError, match="another network"):
        integrate(training(), 1.0, snapshots=11, resume=replace(kept[0], gates=np.zeros(3)))


def test_compare_says_what_is_subtracted(lawful: Any, tmp_path: Path) -> None:
    words = ["compare", "2-3-1 relu", "--until", "0.5", "--optimizers"]
    assert "drift is c(t) - c(0)" in lawful(*words, "flow,sgd:0.1").stdout
    text = lawful(*words, "flow,sgd:0.1:decay=0.2", "--html", tmp_path / "page.html").stdout
    assert "e^(-2 decay t) c(0)" in text
    assert "e^(−2 decay t) c(0)" in (tmp_path / "page.html").read_text()
    import json

    found = json.loads(lawful(*words, "flow,sgd:0.1:decay=0.2,sgd:0.1:batch=8", "--json").stdout)
    assert [row["subtracted"] for row in found["optimizers"]] == ["c(0)", "e^(-0.4 t) c(0)", "c(0)"]
