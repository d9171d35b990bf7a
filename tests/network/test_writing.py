"""The one way out: whole or not at all."""

from __future__ import annotations

import errno
import os
import resource
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from lawful.errors import LawfulError
from lawful.formats.io.writing import check_target, make_folder, new_folder, replacing, write_bytes, write_text


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_written_with_the_usual_permissions(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    write_text(tmp_path / "é ü.txt", "half a pair: \ud800")
    assert (tmp_path / "é ü.txt").read_bytes() == b"half a pair: \\ud800"
    assert (tmp_path / "é ü.txt").stat().st_mode == (tmp_path / "plain").stat().st_mode
    (tmp_path / "plain").chmod(0o640)
    write_bytes(tmp_path / "plain", b"more")
    assert stat.S_IMODE((tmp_path / "plain").stat().st_mode) == 0o640
    write_bytes(tmp_path / ("n" * 255), b"the longest name")
    assert names(tmp_path) == sorted(["n" * 255, "plain", "é ü.txt"])


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt(), ValueError()])
def test_a_failure_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")

    def fail(number: int) -> None:
        raise error

    monkeypatch.setattr(os, "fsync", fail)
    expected = LawfulError if isinstance(error, OSError) else type(error)
    with pytest.raises(expected):
        write_bytes(path, b"new")
    with pytest.raises(expected), new_folder(tmp_path / "run") as draft:
        (draft / "half").write_bytes(b"")
    assert names(tmp_path) == ["a"]
    assert path.read_bytes() == b"old"


def test_a_full_disk_is_one_line_with_the_files_name(tmp_path: Path) -> None:
    """A limit on the size of files is the nearest thing to a full disk that needs no disk."""
    code = f"from lawful.formats.io.writing import write_bytes; write_bytes({str(tmp_path / 'a')!r}, b'x' * 99999)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000)),
        capture_output=True,
        text=True,
    )
    assert done.stderr.splitlines()[-1] == f"lawful.errors.LawfulError: {tmp_path / 'a'}: file too large"
    assert names(tmp_path) == []


def test_links_are_followed_and_devices_refused(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    link.symlink_to(real)
    write_bytes(link, b"through")
    assert link.is_symlink()
    assert real.read_bytes() == b"through"
    device = tmp_path / "device"
    device.symlink_to("/dev/null")
    os.mkfifo(tmp_path / "pipe")
    for path in (device, tmp_path / "pipe"):
        with pytest.raises(LawfulError, match="not a regular file"):
            write_bytes(path, b"")
    assert not Path("/dev/null").is_file()


def test_places_that_cannot_be_written_are_named_before_the_work(tmp_path: Path) -> None:
    for path, words in (
        (tmp_path, "is a folder"),
        (tmp_path / "no" / "a", "folder does not exist"),
        (tmp_path / "a\0", "null character"),
    ):
        with pytest.raises(LawfulError, match=words):
            check_target(path)
    assert check_target(tmp_path / "a") == (tmp_path / "a").resolve()
    assert names(tmp_path) == []


def test_a_folder_appears_whole(tmp_path: Path) -> None:
    with new_folder(tmp_path / "run") as draft:
        (draft / "a").write_bytes(b"1")
        assert not (tmp_path / "run").exists()
    assert names(tmp_path) == ["run"]
    with pytest.raises(LawfulError, match="exists already"), new_folder(tmp_path / "run"):
        pass
    with pytest.raises(LawfulError, match="does not exist"), new_folder(tmp_path / "no" / "run"):
        pass
    assert make_folder(tmp_path / "x" / "y").is_dir()
    with pytest.raises(LawfulError, match="is a file"):
        make_folder(tmp_path / "run" / "a")


def test_a_library_may_write_the_draft(tmp_path: Path) -> None:
    with replacing(tmp_path / "a.svg") as draft:
        draft.unlink()
        draft.write_text("made anew")
    assert (tmp_path / "a.svg").read_text() == "made anew"
