"""Reading files of weights does not load PyTorch: most commands start in a fraction of a second."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from lawful.network import Mlp
from lawful.sources.files import write


def test_safetensors_npz_json_and_text_are_read_without_pytorch(tmp_path: Path) -> None:
    for ending in (".safetensors", ".npz", ".json"):
        write(Mlp([[[1.0, 2.0]], [[3.0]]]), tmp_path / f"net{ending}")
    code = (
        "import sys, lawful\n"
        "for source in ['net.safetensors', 'net.npz', 'net.json', '3-4-2 relu']:\n"
        "    lawful.open(source)\n"
        "print('torch' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=300)
    assert done.stdout.strip() == "False", done.stderr
