"""Files larger than memory are described without reading their numbers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SHOW = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (8 * 2**30, 8 * 2**30))
sys.argv = ["lawful", "show", sys.argv[1], "--json"]
from lawful.cli import main
try:
    main()
except SystemExit as stop:
    peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))  # of this program alone
    print(int(peak.split()[1]) // 1024, stop.code or 0, file=sys.stderr)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="measures memory as Linux reports it")
def test_two_gigabytes_are_shown_in_little_memory(tmp_path: Path) -> None:
    """A sparse file with the header of a transformer: 2 GB of numbers that take no space on the disk."""
    width, header, reached = 4096, {}, 0
    for block in range(8):
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            size = width * width * 4
            place = {"dtype": "F32", "shape": [width, width], "data_offsets": [reached, reached + size]}
            header[f"model.layers.{block}.self_attn.{name}.weight"] = place
            reached += size
    text = json.dumps(header).encode()
    path = tmp_path / "large.safetensors"
    with path.open("wb") as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
    os.truncate(path, 8 + len(text) + reached)
    assert path.stat().st_size > 2 * 10**9
    done = subprocess.run([sys.executable, "-c", SHOW, str(path)], capture_output=True, text=True, timeout=300)
    megabytes, code = map(int, done.stderr.split()[-2:])
    assert code == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found["reading"]["layers"]) == 32
    assert megabytes < 500
