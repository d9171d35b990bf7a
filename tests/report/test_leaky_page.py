"""Pages of residual streams."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from lawful.papers.leaky import BlockWatch, read_blocks
from lawful.report.training.leaky import blocks_page, history_page


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(5, 5)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inner(x.relu())


@pytest.mark.parametrize(("width", "dark"), [(360, True), (1280, False)])
def test_pages_of_blocks_and_of_training(
    width: int, dark: bool, tmp_path: Path, visit: Callable[..., Any], poor_contrast: Callable[[Any], list[str]]
) -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(Block(), Block(), Block()), torch.from_numpy(np.eye(5, dtype=np.float32)).repeat(4, 1)
    watch = BlockWatch(x, every=1)
    for _ in range(3):
        watch.step(model)
    texts = blocks_page(read_blocks(model, x), "<b>x</b>"), history_page(watch.history, "<b>x</b>")
    assert "<title>1, step 2: " in texts[1]  # what a cell is, where one points at it
    for number, text in enumerate(texts):
        assert "<b>x</b>" not in text
        (tmp_path / f"{number}.html").write_text(text)
        page = visit(tmp_path / f"{number}.html", width=width, dark=dark)
        assert page.locator("figure svg").count() >= 3
        assert page.locator("tbody tr").count() in (3, 12)
        assert page.locator("h4", has_text="stable Hamiltonian").count() == 1 + number
        assert poor_contrast(page) == []


@pytest.mark.parametrize("dark", [False, True])
def test_the_page_of_a_run(
    dark: bool, tmp_path: Path, lawful: Callable[..., Any], visit: Callable[..., Any],
    poor_contrast: Callable[[Any], list[str]],
) -> None:  # fmt: skip
    file = tmp_path / "page.html"
    lawful(
        "leaky", "--teacher", "4-2-4", "--depth", "8", "--width", "8", "--samples", "20", "--effective-depth", "2,4",
        "--tolerance", "0.05", "--out", str(tmp_path / "run"), "--html", str(file), code=0,
    )  # fmt: skip
    for width in (390, 800, 1400):
        page = visit(file, width=width, dark=dark)
        assert page.locator("figure svg").count() >= 5
        assert page.locator("tbody tr").count() == 2
        assert poor_contrast(page) == []
