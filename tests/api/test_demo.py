"""The demo's story: most neurons disconnect (P0 Section 3.3), and removing them is proved lossless."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from lawful.sources.files import read


def test_the_demo_proves_its_story(tmp_path: Path, lawful) -> None:  # type: ignore[no-untyped-def]
    got = lawful("demo", "--out", tmp_path / "demo", "--json").json
    assert got["verdict"] == "equal"
    assert got["audit"]["waste"]["removable_neurons"] >= 18
    assert got["audit"]["waste"]["bound"] == 0.0
    assert got["accuracy"][0] == got["accuracy"][1] > 0.93
    trained, pruned = (read(tmp_path / "demo" / f"{name}.safetensors") for name in ("trained", "pruned"))
    batch = np.random.default_rng(0).normal(size=(100, 64))
    np.testing.assert_allclose(pruned.evaluate(batch), trained.evaluate(batch), rtol=1e-12, atol=1e-11)
    assert Path(got["page"]).stat().st_size < 1_000_000
    assert "neurons" in got["verified"]
    networks = [tmp_path / "demo" / f"{name}.safetensors" for name in ("trained", "pruned")]
    assert lawful("verify", got["certificate"], *networks).stdout.startswith("verified")
    assert Path(got["explorer"]).read_text(encoding="utf-8").startswith("<!doctype html>")
