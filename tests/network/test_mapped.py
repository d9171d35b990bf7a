"""Pages of mapped files are let go, and their numbers stay."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from lawful.formats.io.reading import let_go


@pytest.mark.skipif(sys.platform != "linux", reason="pages are let go on Linux alone")
def test_numbers_of_a_mapped_file_stay_when_its_pages_go(tmp_path: Path) -> None:
    whole = torch.randn(2, 2**19)
    save_file({"a": whole}, tmp_path / "a.safetensors")
    mapped = load_file(tmp_path / "a.safetensors")["a"]
    assert torch.equal(mapped, whole)
    assert let_go(mapped)
    assert torch.equal(mapped, whole)
    assert let_go(mapped[1])  # a part of it
    assert torch.equal(mapped, whole)


def test_memory_of_no_file_is_left_alone() -> None:
    whole = torch.ones(2**20)
    assert not let_go(whole)
    assert bool((whole == 1).all())
    assert not let_go(torch.ones(3))
