"""`python -m lawful.verify` runs with python-flint alone, starts at once, and loads the checker of one kind."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from real import MAKERS, real
from safetensors.numpy import save_file

from lawful.verify import KINDS
from lawful.verify import verify as check
from lawful.verify.core.checkpoint import tensors_digest

RATIONAL = ("components", "path", "rebalance", "singular", "truncation-separation", "pruning", "same", "regions",
            "removable", "identifiable")  # fmt: skip
BLOCKED = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        ground = ("lawful", "lawful.errors", "lawful.outward", "lawful.version")
        own = name in ground or name.split(".")[:2] == ["lawful", "verify"]
        top = name.split(".")[0]
        if not (own or top == "flint" or top in sys.stdlib_module_names or top in {allowed!r}):
            raise ImportError(f"{{name}} is blocked")

sys.meta_path.insert(0, Blocked())
from lawful.verify.__main__ import main
code = main(sys.argv[1:])
loaded = {{name.split(".")[2] for name in sys.modules if name.count(".") > 1 and name.startswith("lawful.verify.")}}
print(sorted(loaded - {{"core", "sentences", "__main__"}}))
sys.exit(code)
"""


def run(*words: object, allowed: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    script = BLOCKED.format(allowed=allowed)
    return subprocess.run([sys.executable, "-c", script, *map(str, words)], capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("kind", RATIONAL)
def test_flint_is_enough(kind: str, tmp_path: Path) -> None:
    name = next(name for name in MAKERS if real(name)["kind"] == kind)
    (tmp_path / "c.json").write_text(json.dumps(real(name)))
    done = run(tmp_path / "c.json")
    assert done.returncode == 0, done.stderr
    said, *_, loaded = done.stdout.splitlines()
    assert said == f"verified: {check(real(name)).statement}"
    assert loaded == f"[{KINDS[kind].checker.split('.')[0]!r}]", "one family of kinds and the core"


def test_networks_are_given_as_certificates_write_them(tmp_path: Path) -> None:
    proof, net, other = (tmp_path / name for name in ("c.json", "net.json", "other.json"))
    held = real("rebalance")
    proof.write_text(json.dumps(held))
    net.write_text(json.dumps(held["after"]))
    other.write_text(json.dumps(held["after"] | {"weights": [1.0] * len(held["after"]["weights"])}))
    assert f"is {net}" in run(proof, net).stdout
    done = run(proof, other)
    assert (done.returncode, done.stdout.splitlines()[0][:9]) == (1, "REJECTED:")
    assert str(other) in done.stdout
    assert json.loads(run(proof, net, "--json").stdout.splitlines()[0])["valid"] is True


def test_files_of_tensors(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    first, second = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    tensors = {"w": rng.normal(size=(3, 4)), "h": rng.normal(size=2).astype(np.float16), "n": np.arange(3)}
    save_file(tensors, first)
    save_file(dict(reversed(tensors.items())), second)
    floats = {name: array.astype(np.float64) for name, array in tensors.items() if name != "n"}
    body = {
        "kind": "checkpoint-copy", "version": 2, "about": [tensors_digest(floats)] * 2,
        "tensors": [[name, name, name] for name in floats], "folds": [], "matrices": [], "frames": [], "shifts": [],
        "moved": list(floats),
    }  # fmt: skip
    (tmp_path / "c.json").write_text(json.dumps(body))
    done = run(tmp_path / "c.json", first, second, allowed=("numpy", "charset_normalizer"))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("content", [b"", b"\x00" * 7, b"\xff" * 64, b"\x02\0\0\0\0\0\0\0{}", b"\x04\0\0\0\0\0\0\0nul"])
def test_damaged_files(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text(json.dumps(real("rebalance")))
    (tmp_path / "a.safetensors").write_bytes(content)
    done = run(tmp_path / "c.json", tmp_path / "a.safetensors")
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("words", [(), ("--help",), ("missing.json",), ("c.json", "net.onnx")])
def test_misuse_is_one_line(words: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text(json.dumps(real("rebalance")))
    done = run(*(tmp_path / word if "." in word else word for word in words))
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


def test_it_loads_little() -> None:
    """What makes a start slow is what is loaded: no NumPy, no other package, and at most forty files of ours."""
    script = "import sys, lawful.verify, lawful.verify.fibers.same\nprint(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout.split()
    assert not {"numpy", "torch", "scipy", "typer"} & set(loaded)
    assert len([name for name in loaded if name.startswith("lawful")]) <= 40
