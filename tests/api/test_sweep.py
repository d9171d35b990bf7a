"""Sweeps: plans, durability under real kills, and the same results whichever way they ran."""

from __future__ import annotations

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
from effort import trials

from lawful import LawfulError
from lawful.api.sweeps import Finished, Plan, Store, read_plan, run_sweep, write_tables

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


KILLS = trials(2, 8)
CALLS = 75 * KILLS  # more than the interrupted runs can finish
SPARE = 40  # calls that no kill waits for: the last run needs some


def start(*arguments: object) -> subprocess.Popen[str]:
    command = [str(Path(sys.executable).with_name("lawful")), "sweep", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def wait_for(condition: Callable[[], bool], seconds: float = 300.0) -> None:
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


def running() -> dict[int, int]:
    """All processes, each with its parent."""
    table = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    return {int(line.split()[0]): int(line.split()[1]) for line in table.splitlines()}


def children(pid: int) -> list[int]:
    """Processes whose ancestor is `pid`, deepest and youngest first."""
    parents = running()
    found, frontier = [], {pid}
    while frontier:
        frontier = {child for child, parent in parents.items() if parent in frontier}
        found += sorted(frontier)
    return found[::-1]


def test_killing_the_driver_and_workers_loses_nothing(tmp_path: Path) -> None:
    """kill -9 at random moments; the end is the undisturbed run's, and no finished call ran again.

    Half of the kills come at any moment since the start, half while calls run; the last run loses a worker and ends.
    """
    log, out = tmp_path / "log", tmp_path / "out"
    file = sweep_file(tmp_path / "sweep.toml", CALLS, 25, log)
    rng = random.Random(0)  # noqa: S311
    for kill in range(KILLS):
        finished = numbers_in(out)
        if len(finished) > CALLS - SPARE:  # a quick machine: something has to be left for the last run
            break
        log.write_text("")
        process = start(file, "--out", out)
        if kill % 2:
            wait_for(lambda finished=finished: len(numbers_in(out)) > len(finished))  # type: ignore[misc]
        end = time.monotonic() + rng.uniform(0.0, 0.3 if kill % 2 else 4.0)
        while time.monotonic() < end and len(numbers_in(out)) <= CALLS - SPARE:
            time.sleep(0.02)
        workers = children(process.pid)
        process.kill()  # the driver alone: its workers must go by themselves
        process.communicate()
        wait_for(lambda workers=workers: not set(workers) & set(running()))  # type: ignore[misc]
        assert finished < numbers_in(out) if kill % 2 else finished <= numbers_in(out)
        assert not finished & set(map(int, log.read_text().split())), "a finished call ran again"
    finished = numbers_in(out)
    assert 0 < len(finished) < CALLS, "nothing is left to run"
    log.write_text("")
    process = start(file, "--out", out, "--json")
    wait_for(lambda: len(numbers_in(out)) > len(finished))
    os.kill(children(process.pid)[0], signal.SIGKILL)
    answer, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    assert not finished & set(map(int, log.read_text().split())), "a finished call ran again"
    calm = run_sweep(read_plan(file), tmp_path / "calm", workers=1)
    assert (calm.finished, calm.failed) == (CALLS, 0)
    assert json.loads(answer)["digest"] == Store(tmp_path / "calm", write=False).digest()


def test_a_bad_call_is_recorded_and_the_rest_goes_on(tmp_path: Path) -> None:
    plan = Plan("sweep_jobs:nasty", {"n": list(range(8))}, seconds=10.0, memory=600 * 2**20)
    progress = run_sweep(plan, tmp_path, workers=2, csv=True)
    rows = {row.inputs["n"]: row for row in Store(tmp_path, write=False).rows()}
    assert progress.failed == 4
    assert {n: row.outputs["square"] for n, row in rows.items() if row.status == "ok"} == {0: 0, 5: 25, 6: 36, 7: 49}
    assert rows[1].error == "ValueError: one is bad"
    assert "longer than 10 s" in rows[2].error
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


def test_only_the_call_that_hangs_is_lost_and_soon(tmp_path: Path) -> None:
    """Quick calls travel by the hundred: the limit of one call holds for each, not for all of them together."""
    plan = Plan("sweep_jobs:slow_once", {"n": range(300)}, seconds=2.0)
    start_time = time.monotonic()
    progress = run_sweep(plan, tmp_path, workers=2)
    assert time.monotonic() - start_time < 200.0  # the limit of a whole chunk would be longer
    assert (progress.finished, progress.failed) == (300, 1)
    (bad,) = [row for row in Store(tmp_path, write=False).rows() if row.status == "failed"]
    assert (bad.inputs["n"], bad.error) == (150, "took longer than 2 s")


def test_a_call_named_twice_runs_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    plan = Plan("sweep_jobs:square", {"n": [3, 3, 4, 3], "log": [str(log)]})
    assert run_sweep(plan, tmp_path / "out", workers=1).finished == 4
    assert sorted(log.read_text().split()) == ["3", "4"]
    assert [row.inputs["n"] for row in Store(tmp_path / "out", write=False).rows()] == [3, 3, 4, 3]


def test_an_edited_plan_keeps_what_it_still_names(tmp_path: Path) -> None:
    log, out = tmp_path / "log", tmp_path / "out"
    for numbers, ran in (([1, 2, 3], 3), ([5, 2, 1], 4), ([3], 4), ([1, 2, 3], 4)):
        run_sweep(Plan("sweep_jobs:square", {"n": numbers, "log": [str(log)]}), out, workers=1)
        assert len(log.read_text().split()) == ran
        assert pyarrow.parquet.read_table(out / "results.parquet")["n"].to_pylist() == numbers


def test_failed_calls_run_again_when_asked(tmp_path: Path) -> None:
    switch = tmp_path / "switch"
    plan = Plan("sweep_jobs:needs", {"n": [1, 2], "path": [str(switch)]})
    assert run_sweep(plan, tmp_path / "out", workers=1).failed == 2
    switch.touch()
    assert run_sweep(plan, tmp_path / "out", workers=1).failed == 2
    assert run_sweep(plan, tmp_path / "out", workers=1, retry_failed=True).failed == 0


def test_the_table_has_types_of_its_own(tmp_path: Path) -> None:
    """Mixed, nested, huge and missing values, and names that are taken."""
    rows: list[dict[str, object]] = [
        {"whole": 1, "real": 1, "mixed": 1, "huge": 2**80, "list": [1], "none": None, "n": 5, "status": True},
        {"whole": 2, "real": 0.5, "mixed": "a", "huge": 1, "list": None, "none": None, "late": "ä"},
    ]
    store = Store(tmp_path, write=True)
    plan = Plan("claim", {"n": [0, 1]})
    store.set_plan(plan)
    store.add([Finished(t.key, "claim", t.inputs, "ok", rows[t.position], "", "0", 0.5) for t in plan.tasks()])
    table = pyarrow.parquet.read_table(write_tables(store, csv=True)).to_pydict()
    assert table == {
        "n": [0, 1], "huge": [str(2**80), "1"], "list": ["[1]", None], "mixed": ["1", "a"], "output_n": [5, None],
        "none": [None, None], "real": [1.0, 0.5], "output_status": [True, None], "whole": [1, 2], "late": [None, "ä"],
        "job": ["claim"] * 2, "status": ["ok"] * 2, "error": [""] * 2, "version": ["0"] * 2, "seconds": [0.5] * 2,
    }  # fmt: skip
    assert (tmp_path / "results.csv").read_text().splitlines()[0].startswith('"n",')
    assert not list(tmp_path.glob("*.part"))


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
    assert pyarrow.parquet.read_table(out / "results.parquet").num_rows == status["finished"]
    assert 0 < status["finished"] < status["planned"] == 5000
    assert "calls finished" in lawful("sweep", "status", out).stdout
    assert Path(lawful("sweep", "report", out, "--json").json["report"]).read_text().count("<table") == 1


def test_a_full_disk_keeps_what_was_finished(tmp_path: Path) -> None:
    """A limit on file size stands for the disk: the write fails, the message says so, rows before it are readable."""
    out = tmp_path / "out"
    code = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from lawful.api.sweeps import Plan, Store, Finished\n"
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
