"""Sweeps: plans, durability under real kills, and the same results whichever way they ran."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet
import pytest

from lawful import LawfulError
from lawful.network import Architecture
from lawful.study.sweep import Plan, Store, plan_from, read_plan, run_sweep

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def jobs_are_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(HERE)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")])))


def sweep_file(path: Path, n: int, milliseconds: float, log: Path) -> Path:
    text = (
        f'job = "sweep_jobs:square"\n[grid]\nn = {{range = [0, {n}]}}\nmilliseconds = {milliseconds}\nlog = "{log}"\n'
    )
    path.write_text(text)
    return path


def start(*arguments: object) -> subprocess.Popen[str]:
    command = [str(Path(sys.executable).with_name("lawful")), "sweep", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def wait_for(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)


def numbers_in(folder: Path) -> set[int]:
    """The inputs of the finished calls, as another process sees them."""
    try:
        return {int(row.inputs["n"]) for row in Store(folder, write=False).rows()}
    except LawfulError:
        return set()


def children(pid: int) -> list[int]:
    """Processes whose ancestor is `pid`, deepest first."""
    table = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parents = {int(line.split()[0]): int(line.split()[1]) for line in table.splitlines()}
    found, frontier = [], {pid}
    while frontier:
        frontier = {child for child, parent in parents.items() if parent in frontier}
        found += sorted(frontier)
    return found[::-1]


def test_killing_the_driver_and_workers_loses_nothing(tmp_path: Path) -> None:
    """kill -9 at random moments, several times; the end is the undisturbed run's, and no finished call ran again."""
    log, out = tmp_path / "log", tmp_path / "out"
    log.touch()
    file = sweep_file(tmp_path / "sweep.toml", 60, 25, log)
    rng = random.Random(0)  # noqa: S311
    for victim in ("driver", "worker", "driver"):
        finished = numbers_in(out)
        log.write_text("")
        process = start(file, "--out", out)
        wait_for(lambda finished=finished: len(numbers_in(out)) > len(finished))  # type: ignore[misc]
        time.sleep(rng.uniform(0.0, 0.3))
        if victim == "worker":
            os.kill(children(process.pid)[0], signal.SIGKILL)
            time.sleep(0.5)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert finished < numbers_in(out)
        assert not finished & set(map(int, log.read_text().split())), "a finished call ran again"
    done = subprocess.run(
        [Path(sys.executable).with_name("lawful"), "sweep", file, "--out", out, "--json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    calm = run_sweep(read_plan(file), tmp_path / "calm", workers=1)
    assert (calm.finished, calm.failed) == (60, 0)
    assert json.loads(done.stdout)["digest"] == Store(tmp_path / "calm", write=False).digest()


def test_a_bad_call_is_recorded_and_the_rest_goes_on(tmp_path: Path) -> None:
    plan = Plan("sweep_jobs:nasty", {"n": list(range(8))}, seconds=3.0, memory=600 * 2**20)
    progress = run_sweep(plan, tmp_path, workers=2, csv=True)
    rows = {row.inputs["n"]: row for row in Store(tmp_path, write=False).rows()}
    assert progress.failed == 4
    assert {n: row.outputs["square"] for n, row in rows.items() if row.status == "ok"} == {0: 0, 5: 25, 6: 36, 7: 49}
    assert rows[1].error == "ValueError: one is bad"
    assert "longer than 3 s" in rows[2].error
    assert "worker died" in rows[3].error
    assert "worker died" in rows[4].error
    table = pyarrow.parquet.read_table(tmp_path / "results.parquet").to_pylist()
    assert [row["n"] for row in table] == list(range(8))
    assert {"square", "status", "error", "version", "seconds", "job"} <= set(table[0])
    assert len((tmp_path / "results.csv").read_text().splitlines()) == 9


def test_a_running_cluster_gives_the_same_bytes(tmp_path: Path) -> None:
    from distributed import LocalCluster

    plan = Plan("sweep_jobs:square", {"n": list(range(40))})
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None) as cluster:
        run_sweep(plan, tmp_path / "cluster", scheduler=cluster.scheduler_address)
    run_sweep(plan, tmp_path / "local", workers=1)
    digests = {Store(tmp_path / name, write=False).digest() for name in ("cluster", "local")}
    assert len(digests) == 1
    tables = [
        pyarrow.parquet.read_table(tmp_path / name / "results.parquet").drop_columns(["seconds"])
        for name in ("cluster", "local")
    ]
    assert tables[0].equals(tables[1])


def test_ctrl_c_stops_cleanly_and_status_sees_it(tmp_path: Path, lawful) -> None:  # type: ignore[no-untyped-def]
    out = tmp_path / "out"
    process = start(sweep_file(tmp_path / "s.toml", 5000, 50, tmp_path / "log"), "--out", out)
    wait_for(lambda: bool(numbers_in(out)))
    assert "another sweep is writing" in lawful("sweep", tmp_path / "s.toml", "--out", out, code=2).stderr
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "go on" in errors
    assert "Traceback" not in errors
    status = lawful("sweep", "status", out, "--json").json
    assert 0 < status["finished"] < status["planned"] == 5000
    assert "calls finished" in lawful("sweep", "status", out).stdout
    assert Path(lawful("sweep", "report", out, "--json").json["report"]).read_text().count("<table") == 1


def test_a_full_disk_keeps_what_was_finished(tmp_path: Path) -> None:
    """A limit on file size stands for the disk: the write fails, the message says so, rows before it are readable."""
    out = tmp_path / "out"
    code = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from lawful.study.sweep import Plan, Store, Finished\n"
        "from lawful.errors import LawfulError\n"
        f"store = Store(Path({str(out)!r}), write=True)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))\n"
        "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "plan = Plan('claim', {'n': list(range(3000))})\n"
        "kept = 0\n"
        "try:\n"
        "    store.set_plan(plan)\n"
        "    for task in plan.tasks():\n"
        "        store.add([Finished(task.key, 'claim', dict(task.inputs), 'ok', {'text': 'x' * 500}, '', '0', 0.0)])\n"
        "        kept += 1\n"
        "except LawfulError as error:\n"
        "    print(kept, error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    kept = int(done.stdout.split()[0])
    assert "is kept" in done.stdout
    assert 0 < kept < 3000
    assert len(numbers_in(out)) == kept


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"job": "claim"}, r"\[grid\]"),
        ({"job": "claim", "grid": {}, "x": 1}, "not 'x'"),
        ({"job": "claim", "grid": {"id": []}}, "no values"),
        ({"job": "claim", "grid": {"id": {"odd": 1}}}, "give a value"),
        ({"job": "claim", "grid": {"id": {"range": [0]}}}, "ValueError"),
        ({"job": "claim", "grid": {"id": {"random": 3}}}, "KeyError: 'low'"),
        ({"job": "claim", "grid": {"id": {"range": [0, 1], "low": 2}}}, "not 'low'"),
        ({"job": "claim", "grid": {"id": ["a"]}, "limits": {"seconds": -1}}, "positive"),
    ],
)
def test_bad_plans_are_refused(table: dict[str, object], words: str) -> None:
    with pytest.raises(LawfulError, match=words):
        plan_from(table)


def test_bad_jobs_are_refused_before_anything_runs(tmp_path: Path, lawful) -> None:  # type: ignore[no-untyped-def]
    for job, words in (
        ("nothing", "choose from"),
        ("no_module:f", "cannot import"),
        ("sweep_jobs:HERE", "cannot import"),
    ):
        with pytest.raises(LawfulError, match=words):
            run_sweep(Plan(job, {"n": [1]}), tmp_path / "out")
    with pytest.raises(LawfulError, match="takes id, full"):
        run_sweep(Plan("claim", {"name": ["x"]}), tmp_path / "out")
    bad = tmp_path / "bad.toml"
    bad.write_text("job = ")
    assert "not a TOML file" in lawful("sweep", bad, "--out", tmp_path / "o", code=2).stderr
    assert "--out" in lawful("sweep", bad, code=2).stderr
    assert "not a sweep's folder" in lawful("sweep", "status", tmp_path, code=2).stderr
    assert not (tmp_path / "out").exists()


def test_families_of_values() -> None:
    grid = {
        "a": {"random_architectures": 30, "depth": [2, 4], "width": [2, 5], "activation": "linear", "seed": 3},
        "rate": {"random": 20, "low": 1e-4, "high": 0.1, "log": True},
    }
    plan = plan_from({"job": "claim", "grid": grid})
    assert plan.values == plan_from({"job": "claim", "grid": grid}).values
    widths = [Architecture.parse(str(text)).widths for text in plan.values["a"]]
    assert all(3 <= len(w) <= 5 and min(w) >= 2 and max(w) <= 5 for w in widths)
    assert all(1e-4 <= float(rate) <= 0.1 for rate in plan.values["rate"])
    everything = plan_from(
        {"job": "claim", "grid": {"a": {"all_architectures": ["relu"], "parameters": 12, "depth": 3}}}
    )
    found = {Architecture.parse(str(text)).widths for text in everything.values["a"]}
    brute = {
        w
        for count in (3, 4)
        for w in itertools.product(range(1, 13), repeat=count)
        if sum(a * b for a, b in itertools.pairwise(w)) <= 12
    }
    assert found == brute
