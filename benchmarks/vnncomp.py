"""The table of docs/distance.md: categories of VNN-COMP decided and re-checked here, beside the published results.

    python -m benchmarks.vnncomp BENCHMARKS OUT [--results RESULTS] [--time 60] [--threads 2] [CATEGORY ...]

BENCHMARKS is the folder `benchmarks` of github.com/VNN-COMP/vnncomp2025_benchmarks (mnist_fc, oval21, rl_benchmarks and
reach_prob_density: of github.com/ChristopherBrix/vnncomp2022_benchmarks), RESULTS a clone of
github.com/VNN-COMP/vnncomp2025_results (or github.com/ChristopherBrix/vnncomp2022_results). OUT
keeps what was found, so that the same command goes on. Nothing of these repositories is part of this one. Seconds are
processor seconds of one thread; `--time 0` prints the table of what was found so far.
"""

from __future__ import annotations

import argparse
import csv
import re
import statistics
import subprocess
import sys
from collections import Counter
from pathlib import Path

from lawful.api.vnncomp import InstanceResult, read_instances, read_results

CATEGORIES = (
    "acasxu_2023", "sat_relu", "cersyve", "safenlp_2024", "tllverifybench_2023", "linearizenn_2024",
    "collins_rul_cnn_2022", "dist_shift_2023", "mnist_fc",
)  # fmt: skip
HEAD = (
    "| category | instances | run | decided | re-checked | median s | re-check / find, unsat | published best | "
    "α-β-CROWN | wrong |"
)
Key = tuple[str, str]


def key_of(network: str, specification: str) -> Key:
    """An instance, wherever its files stand: names alone are not enough, folders of safenlp share them."""
    network, specification = ("/".join(Path(name).parts[-2:]) for name in (network, specification))
    return network, specification


def published(results: Path, category: str) -> dict[str, dict[Key, str]]:
    """The answers of each tool: sat, unsat, or something else."""
    found: dict[str, dict[Key, str]] = {}
    for file in sorted(results.glob(f"*/*{category}/results.csv")):  # a folder for each tool
        with file.open(newline="") as lines:
            rows = [row for row in csv.reader(lines) if len(row) >= 5]
        found[file.parts[-3]] = {key_of(row[1], row[2]): row[4] for row in rows}
    return found


def row_of(category: str, count: int, ours: list[InstanceResult], theirs: dict[str, dict[Key, str]]) -> str:
    """One line of the table."""
    decided = [each for each in ours if each.result in ("sat", "unsat")]
    certified = [each for each in decided if each.recheck_seconds >= 0]
    wrong = 0
    for each in decided:  # against what most tools say: each of them is wrong somewhere
        votes = Counter(answers.get(key_of(*each.key)) for answers in theirs.values())
        wrong += votes["sat" if each.result == "unsat" else "unsat"] > votes[each.result]
    solved = {tool: sum(answer in ("sat", "unsat") for answer in found.values()) for tool, found in theirs.items()}
    best = max(solved.items(), key=lambda pair: pair[1], default=("none", 0))
    median = statistics.median(each.seconds for each in decided) if decided else float("nan")
    unsat = [each for each in certified if each.result == "unsat"]
    share = sum(each.recheck_seconds for each in unsat) / max(sum(each.seconds for each in unsat), 1e-9)
    return (
        f"| {category} | {count} | {len(ours)} | {len(decided)} | {len(certified)} | {median:.2f} | "
        f"{share:.0%} | {best[1]} ({best[0]}) | {solved.get('alpha_beta_crown', 0)} | {wrong} |"
    )


def main() -> None:
    """Run what has not been run, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benchmarks", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("categories", nargs="*", default=CATEGORIES)
    parser.add_argument("--results", type=Path)
    parser.add_argument("--time", type=float, default=60.0)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_intermixed_args()  # categories may follow options
    given.out.mkdir(parents=True, exist_ok=True)
    print(HEAD)
    print(re.sub(r"[^|]+", " --- ", HEAD))
    for category in given.categories:
        file, kept = given.benchmarks / category / "instances.csv", given.out / f"{category}.csv"
        if not file.exists():
            print(f"missing: {file}, from github.com/VNN-COMP/vnncomp2025_benchmarks", file=sys.stderr)
            continue
        count = len(read_instances(file))
        if len(read_results(kept)) < count and given.time > 0:
            options = ["--time", str(given.time), "--threads", str(given.threads), "--out", str(kept)]
            command = [sys.executable, "-m", "lawful", "vnncomp", str(file), *options]
            subprocess.run(command, check=False, stdout=sys.stderr)
        theirs = {} if given.results is None else published(given.results, category)
        asked = {key_of(each.network, each.specification) for each in read_instances(file)}
        # The competition's files begin with a test instance that belongs to no category.
        theirs = {tool: {key: word for key, word in found.items() if key in asked} for tool, found in theirs.items()}
        print(row_of(category, count, read_results(kept), theirs))


if __name__ == "__main__":
    main()
