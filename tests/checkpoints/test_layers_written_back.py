"""Weights of linear layers come back under the names of their file, whatever these are."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from command_line import in_process


@pytest.mark.parametrize("names", [("fc1", "fc2"), ("net.3", "net.7"), ("0", "2")])
def test_a_transformed_copy_keeps_the_names_of_its_file(tmp_path: Path, names: tuple[str, str]) -> None:
    generator = torch.Generator().manual_seed(0)
    first, second = names
    state = {
        f"{first}.weight": torch.randn((4, 3), generator=generator),
        f"{first}.bias": torch.randn(4, generator=generator),
        f"{second}.weight": torch.randn((2, 4), generator=generator),
    }
    torch.save(state, tmp_path / "a.pt")
    assert in_process("symmetries", "a.pt", "--apply", "1", "--out", "b.pt", cwd=tmp_path).returncode == 0
    copy = torch.load(tmp_path / "b.pt", weights_only=True)
    assert {name: tensor.shape for name, tensor in copy.items()} == {name: t.shape for name, t in state.items()}
    assert not torch.equal(copy[f"{first}.weight"], state[f"{first}.weight"])
    assert in_process("same", "a.pt", "b.pt", cwd=tmp_path).returncode == 0
