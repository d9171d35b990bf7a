"""Coverage-guided inputs for the verifier, where atheris is installed: `python tests/fuzz/guided.py --count 10000`.

It starts from real certificates and keeps what reaches new lines of `lawful.verify`. Every input has to end in a
statement or in one of our own errors; anything else stops the run with the input that did it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

SECONDS, MEGABYTES = 30, 4096  # for one input


def main() -> int:
    """Run, or say that there is no atheris."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    try:
        import atheris
    except ImportError:
        print("atheris is not installed: no coverage-guided inputs (pip install atheris)")
        return 0
    with atheris.instrument_imports(include=["lawful.verify"]):
        from lawful.errors import LawfulError
        from lawful.verify import verify

    def check(data: bytes) -> None:
        try:
            verify(data)
        except LawfulError:
            return

    with tempfile.TemporaryDirectory() as place:
        files, corpus = Path(place) / "files", Path(place) / "corpus"
        files.mkdir()
        corpus.mkdir()
        planting = "import sys; from pathlib import Path; from seeds import plant; plant(Path(sys.argv[1]))"
        here = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
        subprocess.run([sys.executable, "-c", planting, str(files)], check=True, env=here, stdout=subprocess.DEVNULL)
        for number, path in enumerate(sorted(files.rglob("*.json"))):
            if path.stat().st_size < 200_000:
                (corpus / str(number)).write_bytes(path.read_bytes())
        limits = [f"-timeout={SECONDS}", f"-rss_limit_mb={MEGABYTES}", "-max_len=200000"]
        runs = [f"-runs={asked.count}", f"-seed={asked.seed + 1}"]
        atheris.Setup([sys.argv[0], *runs, *limits, str(corpus)], check)
        atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
