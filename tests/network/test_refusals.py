"""Hostile and broken files: one clear line, exit code 2, nothing executed, little memory."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from hostile_files import HOSTILE
from network_instances import all_networks

from lawful.errors import LawfulError
from lawful.network import Dag
from lawful.sources.files import read, write

LAWFUL = Path(sys.executable).with_name("lawful")
GIGABYTE = 2**30
# The command line sees every kind of refusal and every bomb, not every file.
COMMANDS = """
cycle.json, into input.json, out of output.json, useless.json, nan.json, twice.json, sigmoid.json, deep.json, bomb.json,
pipe.json, lying header.safetensors, long header.safetensors, beyond the end.safetensors, bomb.npz, lying sizes.npz,
lying header.npz, pickle.npz, truncated.npz, mismatch.npz, too large.npz, payload.pt, bytearray.pt, packed.pt,
expanded.pt, outside.onnx, bomb.onnx, truncated.onnx
"""
FORKS = """
import json, os, resource, sys
from lawful.cli import main

def lawful(*words):
    sys.argv = ["lawful", *words]
    try:
        main()
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0

for ending in ("json", "npz", "safetensors", "pt", "onnx"):
    assert lawful("convert", "2-2-1 relu", f"warm.{ending}") == 0
    assert lawful("convert", f"warm.{ending}", "again.json") == 0
codes = []
for folder, name, limit in json.load(sys.stdin):
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        for number, stream in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(os.path.join(folder, stream), os.O_WRONLY | os.O_CREAT), number)
        code = lawful("convert", os.path.join(folder, name), os.path.join(folder, "out.json"))
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(json.dumps(codes))
"""


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused_in_one_line_with_little_memory(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    words = HOSTILE[name](path)
    size = path.stat().st_size
    tracemalloc.start()
    with pytest.raises(LawfulError, match=words) as caught:
        read(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)
    assert len(str(caught.value)) < 600 + len(str(path))
    assert peak < 64 * 2**20 + 2 * (size if size < GIGABYTE else 0)
    assert not path.with_name("executed").exists()


def test_the_command_line_refuses_them_too(tmp_path: Path) -> None:
    """One process loads everything once; each file gets a fork of it with little memory."""
    names = COMMANDS.strip().replace("\n", " ").split(", ")
    words, jobs = {}, []
    for name in names:
        folder = tmp_path / name.replace(" ", "-")
        folder.mkdir()
        words[name] = HOSTILE[name](folder / name)
        jobs.append([str(folder), name, (8 if name.endswith(".pt") else 2) * GIGABYTE])  # PyTorch reserves more
    done = subprocess.run(
        [sys.executable, "-c", FORKS], input=json.dumps(jobs), capture_output=True, text=True, timeout=600, check=True,
        cwd=tmp_path,
    )  # fmt: skip
    codes = json.loads(done.stdout.splitlines()[-1])
    for (folder, name, _), code in zip(jobs, codes, strict=True):
        said, error = ((Path(folder) / stream).read_text() for stream in ("stdout", "stderr"))
        assert code == 2, (name, error)
        assert said == "", name
        assert error.count("\n") == 1, (name, error)
        assert re.search(words[name], error), name
        assert not (Path(folder) / "out.json").exists(), name
        assert not (Path(folder) / "executed").exists(), name


@pytest.mark.parametrize("suffix", [".safetensors", ".pt", ".onnx", ".json", ".npz"])
def test_damaged_files_are_read_or_refused_but_never_crash(suffix: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    networks = list(all_networks().values())
    refused = 0
    for number in range(60):
        path = tmp_path / f"net{suffix}"
        write(networks[number % len(networks)], path)
        content = bytearray(path.read_bytes())
        for place in rng.integers(len(content), size=1 + number % 5):
            how = rng.integers(3)
            content[place : place + (how > 0) + 9 * (how == 1)] = rng.bytes(0 if how == 1 else 1)
        path.write_bytes(content)
        try:
            read(path)
        except LawfulError:  # anything else fails the test
            refused += 1
    assert refused > 20


def test_the_payloads_are_real(tmp_path: Path) -> None:
    """What is refused above would run if it were unpickled."""
    import pickle

    path = tmp_path / "old payload.pt"
    HOSTILE[path.name](path)
    pickle.loads(path.read_bytes())  # noqa: S301
    assert (tmp_path / "executed").exists()


def test_useless_nodes_can_be_dropped(tmp_path: Path) -> None:
    path = tmp_path / "useless.json"
    HOSTILE[path.name](path)
    assert isinstance(dag := read(path, drop_useless=True), Dag)
    assert dag.names == ("a", "h", "y")
    done = subprocess.run([LAWFUL, "convert", path, tmp_path / "out.npz", "--drop-useless"], check=False)
    assert done.returncode == 0
    assert read(tmp_path / "out.npz").to_dag().names == ("a", "h", "y")


def test_the_command_line_names_an_ending_it_cannot_write(tmp_path: Path) -> None:
    done = subprocess.run(
        [LAWFUL, "convert", "2-2-1 relu", tmp_path / "a.txt"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "unknown ending '.txt'" in done.stderr


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.keras", b"PK", "a Keras file: export the model to ONNX"),
        ("a.h5", b"\x89HDF\r\n", "a Keras or HDF5 file"),
        ("a.msgpack", b"\x81\xa6params", "Flax .msgpack.: save it as .safetensors"),
        ("a.xml", b"<?xml version='1.0'?><net/>", "OpenVINO"),
        ("a.tflite", b"\x1c\0\0\0TFL3", "TensorFlow Lite"),
        ("a.ort", b"\x20\0\0\0ORTM", "ONNX Runtime in its own format: give the .onnx file"),
        ("ggml.bin", b"lmgg\0\0", "GGML from before GGUF"),
        ("a.pdparams", b"\x80\x02}q\x00.", "PaddlePaddle"),
    ],
)
def test_files_of_other_tools_are_refused_by_name(name: str, content: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content + bytes(100))
    with pytest.raises(LawfulError, match=words):
        read(tmp_path / name)
