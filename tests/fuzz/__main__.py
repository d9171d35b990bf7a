"""`make fuzz`: damaged files of every kind against the command line, in children with limits; ends with counts.

    python tests/fuzz --count 10000 --seed 0

The input number k of a seed is always the same: `--only k` runs it alone and shows what was said.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unicodedata
from collections import Counter
from pathlib import Path
from typing import IO

sys.path.insert(0, str(Path(__file__).parent))

BATCH = 400
SECONDS = 20  # of processor time for one input
SILENCE = 240.0  # seconds without a word from a child
MEMORY = 2 * 2**30  # that a child may take beyond what it has when it starts


def child(folder: Path, seed: int, first: int, last: int, keep: Path | None) -> None:
    """Run inputs one after another and say, a line for each, what became of it."""
    import contextlib

    from damage import damaged
    from seeds import TARGETS, run

    say = os.fdopen(os.dup(1), "w")
    with tempfile.TemporaryDirectory() as place:
        own = Path(place) / "files"
        shutil.copytree(folder, own)
        _limit_memory()
        for number in range(first, last):
            rng = random.Random(f"{seed}:{number}")  # noqa: S311
            target = rng.choice(TARGETS)
            path = own / target.file
            before = path.read_bytes()
            path.write_bytes(damaged(before, path.name, rng))
            more = ("--json",) if rng.random() < 0.5 else ()
            print(json.dumps([number, "begins", target.file, " ".join(target.command)]), file=say, flush=True)
            _limit_seconds()
            code, out, err = run(own, (*target.command, *more))
            fault = _fault(code, out, err, bool(more))
            if fault and keep is not None:
                shutil.copy(path, keep / f"{number}-{path.name}")
            print(json.dumps([number, fault or f"exit {code}", err[-300:] if fault else ""]), file=say, flush=True)
            path.write_bytes(before)
            for extra in ("results.sqlite-wal", "results.sqlite-shm", "report.html"):
                with contextlib.suppress(FileNotFoundError):
                    (own / "sweep" / extra).unlink()


def _fault(code: int, out: str, err: str, as_json: bool) -> str:
    """What is wrong with an answer; the judge of escapes is not the code that removes them."""
    if code not in (0, 1, 2, 3):
        return f"EXIT {code}"
    if "Traceback" in err or len(err.splitlines()) > 2:
        return "TRACEBACK"
    if any(unicodedata.category(letter) in ("Cc", "Cf", "Cs") and letter != "\n" for letter in out + err):
        return "ESCAPE"
    if as_json:
        try:
            found = json.loads(out)
        except ValueError:
            return "NO JSON"
        if code == 2 and set(found) != {"error", "hint", "exit"}:
            return "NO ERROR OBJECT"
    return ""


def _limit_memory() -> None:
    import resource

    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _limit_seconds() -> None:
    import resource

    used = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + SECONDS, hard))


def fuzz(count: int, seed: int, keep: Path | None = None, only: int | None = None) -> tuple[Counter[str], list[str]]:
    """Run `count` inputs; how often each thing happened, and a line for each fault."""
    from seeds import plant

    counts: Counter[str] = Counter()
    faults: list[str] = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "seeds"
        folder.mkdir()
        plant(folder)
        at, end = (0, count) if only is None else (only, only + 1)
        while at < end:
            at = _batch(folder, seed, at, min(at + BATCH, end), keep, counts, faults)
            print(f"{at} of {end}: {sum(counts.values())} done, {len(faults)} faults", file=sys.stderr)
    return counts, faults


def _batch(
    folder: Path, seed: int, first: int, last: int, keep: Path | None, counts: Counter[str], faults: list[str]
) -> int:
    """One child; where to go on: behind the last input, or behind the one that ended the child."""
    command = [sys.executable, __file__, "--child", str(folder), "--seed", str(seed), "--from", str(first)]
    command += ["--count", str(last), *(["--keep", str(keep)] if keep is not None else [])]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment)
    lines: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_listen, args=(process.stdout, lines), daemon=True).start()
    number, what, running = first - 1, "", False
    while True:
        try:
            line = lines.get(timeout=SILENCE)
        except queue.Empty:
            process.kill()
            break
        if not line:
            break
        number, word, *rest = json.loads(line)
        running = word == "begins"
        if running:
            what = f"{rest[0]}: lawful {rest[1]}"
            continue
        counts[word] += 1
        if not word.startswith("exit"):
            faults.append(f"{number} {word} {what} {rest[0].strip()}")
    code = process.wait()
    if code and not running:
        raise RuntimeError(f"the child died by itself after input {number}: see {' '.join(command)}")
    if running:
        word = "HANG" if code in (-24, -9) else f"DIED {code}"
        counts[word] += 1
        faults.append(f"{number} {word} {what}")
        return number + 1
    return last


def _listen(stream: IO[str], lines: queue.Queue[str]) -> None:
    for line in stream:
        lines.put(line)
    lines.put("")


def main() -> int:
    """Parse, run, count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="run this input alone")
    parser.add_argument("--keep", type=Path, help="a folder for the files that caused a fault")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--from", dest="first", type=int, default=0, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child is not None:
        child(given.child, given.seed, given.first, given.count, given.keep)
        return 0
    if given.keep is not None:
        given.keep.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    counts, faults = fuzz(given.count, given.seed, given.keep, given.only)
    for line in faults:
        print(line)
    print(f"{sum(counts.values())} inputs, seed {given.seed}, {time.monotonic() - start:.0f} s: ", end="")
    print(", ".join(f"{word} {number}" for word, number in sorted(counts.items())) + f"; {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
