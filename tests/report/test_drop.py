"""*Try your own*: files dropped onto the page in a real browser give the library's network, or one line of refusal."""

from __future__ import annotations

import base64
import json
import shlex
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from page_checklist import faults
from safetensors.torch import save_file

from lawful.network import Architecture, Mlp
from lawful.report.page.drop import drop_page
from lawful.sources.files import read, write

Visit = Callable[..., Any]
SHOWN = "() => ({ network: given, activation: data.editedOptions, asked: data.asked })"


@pytest.fixture(scope="module")
def waiting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("drop") / "try.html"
    file.write_text(drop_page(), encoding="utf-8")
    return file


def random(text: str, seed: int = 0) -> Mlp:
    return Architecture.parse(text).initialise(seed=seed)


def dropped(visit: Visit, waiting: Path, file: Path, *, width: int = 1280) -> Any:
    """The page after a real drop event: the file travels as a DataTransfer."""
    page = visit(waiting, width=width)
    handle = page.evaluate_handle(
        "([name, bytes]) => { const made = new DataTransfer();"
        " made.items.add(new File([Uint8Array.from(atob(bytes), (c) => c.charCodeAt(0))], name)); return made; }",
        [file.name, base64.b64encode(file.read_bytes()).decode()],
    )
    page.dispatch_event("#zone", "drop", {"dataTransfer": handle})
    page.wait_for_function(
        "!document.body.classList.contains('waiting') || document.getElementById('refusal').textContent"
        " || document.getElementById('blocks').childElementCount"
    )
    return page


def plain(folder: Path, **arrays: Any) -> Path:
    np.savez_compressed(folder / "plain.npz", **arrays)
    return folder / "plain.npz"


def stored(folder: Path, kind: str) -> Path:
    """One file of each form, all of a network of three inputs."""
    import torch

    network = random("3-4-2 relu bias", 2)
    (first, second), (bias, last) = network.weights, network.biases
    if kind in ("safetensors", "npz", "json"):
        write(network, folder / f"net.{kind}")
        return folder / f"net.{kind}"
    if kind == "matrices":
        return plain(folder, W1=first, b1=bias, W2=second, b2=last)
    if kind == "transposed":
        return plain(folder, W1=first.T, b1=bias, W2=second.T, b2=last)
    if kind == "fortran":
        return plain(folder, W1=np.asfortranarray(first), W2=np.asfortranarray(second))
    if kind == "unnamed":
        np.savez(folder / "plain.npz", first, bias, second, last)
        return folder / "plain.npz"
    arrays = {"fc1.weight": first, "fc1.bias": bias, "fc2.weight": second, "fc2.bias": last}
    save_file({name: torch.tensor(array).to(getattr(torch, kind)) for name, array in arrays.items()}, folder / "net")
    return folder / "net"


FORMS = (
    "safetensors", "npz", "json", "matrices", "transposed", "fortran", "unnamed", "float32", "bfloat16", "float16",
)  # fmt: skip


@pytest.mark.parametrize("kind", FORMS)
def test_a_dropped_file_is_the_network_that_the_library_reads(
    tmp_path: Path, visit: Visit, waiting: Path, kind: str
) -> None:
    file = stored(tmp_path, kind)
    page = dropped(visit, waiting, file)
    seen = page.evaluate(SHOWN)["network"]
    wanted = read(file)
    assert isinstance(wanted, Mlp)
    assert seen["widths"] == list(wanted.widths)
    assert seen["slopes"] == list(wanted.slopes)
    for mine, theirs in zip(seen["weights"] + seen["biases"], [*wanted.weights, *wanted.biases], strict=True):
        assert np.array_equal(mine, theirs) if theirs is not None else mine is None
    assert "pieces in view" in page.inner_text("#head")


def test_nothing_is_called_proved_and_the_commands_work(
    tmp_path: Path, visit: Visit, waiting: Path, lawful: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = stored(tmp_path, "float32").rename(tmp_path / "a net.safetensors")
    page = dropped(visit, waiting, file)
    assert "✓" not in page.inner_text("body")
    assert page.locator(".chip.void").count() == 0
    assert "nothing is proved" in page.inner_text("#lead")
    page.evaluate("Live.put(0, 2); Loop.draw(); document.querySelectorAll('.chip').forEach((chip) => chip.open = true)")
    (tmp_path / "edited.safetensors").write_bytes(bytes(page.evaluate("Array.from(Evidence.bytes())")))
    monkeypatch.chdir(tmp_path)
    for command in page.locator(".chip code").all_inner_texts():
        for part in command.split(" && "):
            different = "same" in part  # the edited weights compute something else
            lawful(*shlex.split(part)[1:], code=1 if different else 0)
    assert "differ from the file's" in page.inner_text("#chips")
    assert page.locator(".chip.void").count() == 1, "what was never asked has nothing to lose"


def test_other_modules_are_listed_block_by_block(tmp_path: Path, visit: Visit, waiting: Path) -> None:
    import torch

    state = {"layer.0.conv.weight": torch.ones(4, 3, 3, 3), "layer.0.norm": torch.zeros(4), "head.w": torch.ones(2, 4)}
    save_file(state, tmp_path / "conv.safetensors")
    page = dropped(visit, waiting, tmp_path / "conv.safetensors", width=390)
    assert page.inner_text("#drop-head") == "120 numbers in 2 blocks"
    rows = page.locator("#blocks tr").all_inner_texts()
    assert ["layer.0", "2", "112", "4 (4%)", "1"] in [row.split("\t") for row in rows]
    assert "lawful audit conv.safetensors --model" in page.inner_text("#blocks code")
    assert faults(page) == []


def header(entries: object, payload: bytes = b"") -> bytes:
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text + payload


def zipped(folder: Path, name: str, content: bytes) -> bytes:
    with zipfile.ZipFile(folder / "made.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
    return (folder / "made.zip").read_bytes()


def lying_zip(folder: Path) -> bytes:
    """A member that unpacks to a megabyte and claims a hundred bytes."""
    content = bytearray(zipped(folder, "W1.npy", b"\0" * 2**20))
    place = content.index(b"PK\x01\x02")
    content[place + 24 : place + 28] = struct.pack("<I", 100)
    return bytes(content)


def hostile(folder: Path) -> dict[str, bytes]:
    np.savez(folder / "objects.npz", W1=np.array([{}], dtype=object))
    np.savez(folder / "nan.npz", W1=np.array([[np.nan]]))
    np.savez(folder / "gap.npz", W1=np.ones((3, 2)), W2=np.ones((5, 7)))
    one = {"0.weight": {"dtype": "F64", "shape": [1, 1], "data_offsets": [0, 8]}}
    return {
        "empty.safetensors": b"",
        "short.safetensors": b"\1\0",
        "long.safetensors": struct.pack("<Q", 2**62) + b"{}",
        "outside.safetensors": header(one),
        "many.safetensors": header({"0.weight": {"dtype": "F64", "shape": [2**40, 2**40], "data_offsets": [0, 8]}}),
        "type.safetensors": header({"0.weight": {"dtype": "__proto__", "shape": [1, 1], "data_offsets": [0, 8]}}),
        "negative.safetensors": header({"0.weight": {"dtype": "F64", "shape": [-1, -1], "data_offsets": [-8, 0]}}),
        "list.safetensors": header([1]),
        "deep.json": b"[" * 200_000,
        "cycle.json": b'{"inputs": ["a"], "outputs": ["y"], "edges": [["h", "y", 1], ["y", "h", 1]]}',
        "skip.json": b'{"inputs":["a"],"outputs":["y"],"edges":[["a","h",1],["h","y",1],["a","y",1]]}',
        "keys.json": b'{"weights": [[1]]}',
        "net.pt": b"PK\3\4 no unpickling here",
        "lying.npz": lying_zip(folder),
        "cut.npz": zipped(folder, "W1.npy", b"\x93NUMPY")[:-30],
        "objects.npz": (folder / "objects.npz").read_bytes(),
        "nan.npz": (folder / "nan.npz").read_bytes(),
        "gap.npz": (folder / "gap.npz").read_bytes(),
        "noise.bin.json": zlib.compress(bytes(range(256))),
    }


def test_a_hostile_file_is_refused_in_one_line(tmp_path: Path, visit: Visit, waiting: Path) -> None:
    page = visit(waiting)
    for name, content in hostile(tmp_path).items():
        page.evaluate("document.getElementById('refusal').textContent = ''")
        page.set_input_files("#file", {"name": name, "mimeType": "", "buffer": content})
        page.wait_for_function(
            "document.getElementById('refusal').textContent || document.getElementById('blocks').childElementCount"
        )
        text = page.inner_text("#refusal")
        if name == "gap.npz":  # matrices that do not fit together are no chain, and are listed
            assert "2 blocks" in page.inner_text("#drop-head")
        else:
            assert text.startswith(f"{name}: "), name
            assert "cannot be read" not in text, "each fault has a word of its own"
            assert "undefined" not in text
    assert page.evaluate("document.body.className") == "waiting"
    assert page.evaluate("({}).shape === undefined")


def test_names_are_text(tmp_path: Path, visit: Visit, waiting: Path) -> None:
    file = stored(tmp_path, "safetensors").rename(tmp_path / "<img src=x onerror=alert(1)>.safetensors")
    page = dropped(visit, waiting, file)
    assert page.inner_text("#name") == file.name
    assert page.evaluate("document.images.length") == 0


def test_the_page_can_be_saved_and_another_file_dropped(tmp_path: Path, visit: Visit, waiting: Path) -> None:
    page = dropped(visit, waiting, stored(tmp_path, "safetensors"))
    with page.expect_download() as download:
        page.click("text=Save this page")
    download.value.save_as(tmp_path / "saved.html")
    again = visit(tmp_path / "saved.html")
    assert again.evaluate(SHOWN) == page.evaluate(SHOWN)
    page.click("text=Another file")
    page.wait_for_function("document.body.classList.contains('waiting')")


@pytest.mark.parametrize("example", [0, 1, 2])
def test_the_examples_open(visit: Visit, waiting: Path, example: int) -> None:
    page = visit(waiting, width=390, dark=True)
    page.locator("[data-example]").nth(example).click()
    page.wait_for_function("typeof Loop === 'object'")
    assert faults(page) == []
    page.evaluate("Live.slide(0.4, 0); Loop.draw()")
    assert page.evaluate("Live.same()") is False


def test_the_waiting_page_meets_the_checklist(visit: Visit, waiting: Path) -> None:
    for width, height in ((320, 700), (390, 844), (800, 1000), (1400, 900)):
        assert faults(visit(waiting, width=width, dark=width == 800), height, commands=1) == []


def test_the_library_answers_the_first_command_of_the_page(lawful: Any, tmp_path: Path) -> None:
    write(random("2-3-1 relu bias"), tmp_path / "yours.safetensors")
    assert lawful("explore", tmp_path / "yours.safetensors", "--html", tmp_path / "page.html", "--json").json["page"]
