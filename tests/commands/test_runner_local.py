"""The local runner against a real child process; only the job inside is a stand-in."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from airflow_gddl.contract.actions import Rebuild
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions, JobSpec, Roots, TableSpec, TierSpec
from airflow_gddl.runners.interface import JobOutcome, ProgressEvent
from airflow_gddl.runners.this_machine import (
    KEPT_AT_LEAST,
    KEPT_AT_MOST,
    KEPT_DAYS,
    JobLog,
    LocalRunner,
    expired,
    open_log,
)
from tests.harness.waiting import is_alive, wait_for

FAKE = Path(__file__).with_name("fake_job.py")


@dataclass
class Heard:
    """A listener that remembers."""

    events: list[ProgressEvent] = field(default_factory=list)
    results: list[JobResult] = field(default_factory=list)

    def on_progress(self, event: ProgressEvent) -> None:
        self.events.append(event)

    def on_result(self, result: JobResult) -> None:
        self.results.append(result)


def fake_java(folder: Path, says: str, status: int = 0) -> Path:
    """A JAVA_HOME whose `java -version` says so."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{says}' >&2\nexit {status}\n")
    java.chmod(0o755)
    return folder


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return fake_java(tmp_path / "java", 'openjdk version "17.0.15" 2025-04-15')


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


def spec_of(lake: Path, *tables: str) -> JobSpec:
    rows = tuple(TableSpec(table=table, keys=("id",)) for table in tables)
    roots = Roots(landing=str(lake.parent / "landing"), lake=str(lake))
    tiers = {"small": TierSpec(tasks="many")}
    options = JobOptions(action=Rebuild())
    return JobSpec(run_id="20240101T000000-aa", roots=roots, tables=rows, tiers=tiers, options=options)


def runner_of(home: Path, orders: dict[str, object], grace: float = 5.0) -> LocalRunner:
    environ = {**os.environ, "GDDL_WITHOUT_SPARK": "", "JAVA_HOME": str(home), "FAKE_JOB": json.dumps(orders)}
    return LocalRunner(command=(sys.executable, str(FAKE)), environ=environ, grace_seconds=grace)


def errors(outcome: JobOutcome) -> dict[str, str | None]:
    return {result.table: result.error.code if result.error else None for result in outcome.results}


def test_results_progress_and_log_reach_where_they_belong(home: Path, lake: Path) -> None:
    event = {"table": "a.b", "step": "replica", "batch": 2, "batches": None, "rows": 7}
    orders = {
        "results": {"a.b": {"rows_read": 7, "main": {"inserted": 7, "rows": 7}}, "a.c": {"status": "skipped"}},
        "progress": [event],
        "log": ["Spark says hello", "GDDL-PROGRESS not json", 'GDDL-PROGRESS {"table": 1}'],
        "noise": ["a library prints", '{"not": "a result"}'],
        "dump": str(lake.parent / "dump.json"),
    }
    heard = Heard()
    outcome = runner_of(home, orders).run(spec_of(lake, "a.b", "a.c"), heard)
    assert [(r.table, r.status, r.rows_read, r.main.rows) for r in outcome.results] == [
        ("a.b", "succeeded", 7, 7),
        ("a.c", "skipped", 0, None),
    ]
    assert heard.results == list(outcome.results)
    assert heard.events == [ProgressEvent(table="a.b", step="replica", batch=2, batches=None, rows=7)]
    assert outcome.exit_status == 0
    assert outcome.log == str(lake / "_gddl" / "logs" / "jobs" / "20240101T000000-aa.log")
    log = Path(outcome.log).read_text()
    for line in ("Spark says hello", "GDDL-PROGRESS not json", "a library prints", '{"not": "a result"}'):
        assert line in log.splitlines()
    assert "replica" not in log
    dumped = json.loads((lake.parent / "dump.json").read_text())
    assert dumped["spec"]["options"]["action"] == {"name": "rebuild"}
    assert [table["table"] for table in dumped["spec"]["tables"]] == ["a.b", "a.c"]
    assert dumped["argv"][0] == "--spec"
    assert dumped["argv"][2:] == ["--progress", "--parent", str(os.getpid())]
    assert not Path(dumped["argv"][1]).exists(), "the order's file goes with the job"


def test_a_crashed_job_fails_its_tables_without_a_result(home: Path, lake: Path) -> None:
    orders = {"results": {"a.b": {}}, "log": [f"line {n}" for n in range(20)], "kill": signal.SIGKILL}
    heard = Heard()
    outcome = runner_of(home, orders).run(spec_of(lake, "a.b", "a.c", "a.d"), heard)
    assert errors(outcome) == {"a.b": None, "a.c": "JOB_DIED", "a.d": "JOB_DIED"}
    assert [result.table for result in heard.results] == ["a.b", "a.c", "a.d"]
    assert outcome.exit_status == 137
    message = outcome.results[1].error.message if outcome.results[1].error else ""
    assert "SIGKILL" in message
    assert message.endswith("\n".join(f"line {n}" for n in range(10, 20)))
    assert "line 9" not in message


def test_exit_status_and_missing_output_are_reported(home: Path, lake: Path) -> None:
    outcome = runner_of(home, {"exit": 3}).run(spec_of(lake, "a.b"), Heard())
    assert outcome.exit_status == 3
    assert outcome.results[0].error is not None
    assert outcome.results[0].error.message == (
        "the job ended with exit status 3 before this table was done; it wrote no log"
    )


def send_when(ready: Path, *numbers: int) -> threading.Thread:
    """Signals this process once the job says that it is ready."""

    def send() -> None:
        wait_for(ready.exists)
        os.kill(os.getpid(), numbers[0])
        for number in numbers[1:]:
            wait_for(lambda: not ready.exists(), "the job to get the signal before")
            os.kill(os.getpid(), number)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    return thread


def test_sigterm_lets_the_job_answer(home: Path, lake: Path, tmp_path: Path) -> None:
    orders = {"results": {"a.b": {}}, "on_term": "answer", "ready": str(tmp_path / "ready"), "sleep": 60}
    before = signal.getsignal(signal.SIGTERM)
    send_when(tmp_path / "ready", signal.SIGTERM)
    outcome = runner_of(home, orders).run(spec_of(lake, "a.b", "a.c"), Heard())
    assert errors(outcome) == {"a.b": None, "a.c": "STOPPED"}
    assert (outcome.cancelled_by, outcome.exit_status) == (signal.SIGTERM, 1)
    assert signal.getsignal(signal.SIGTERM) is before, "handlers are put back"


def test_sigint_ends_a_job_that_does_not_answer(home: Path, lake: Path, tmp_path: Path) -> None:
    orders = {"ready": str(tmp_path / "ready"), "sleep": 60}
    send_when(tmp_path / "ready", signal.SIGINT)
    outcome = runner_of(home, orders).run(spec_of(lake, "a.b"), Heard())
    assert errors(outcome) == {"a.b": "JOB_CANCELLED"}
    assert (outcome.cancelled_by, outcome.exit_status) == (signal.SIGINT, 130)


@pytest.mark.parametrize("numbers", [(signal.SIGTERM,), (signal.SIGTERM, signal.SIGTERM)])
def test_a_job_that_will_not_end_is_killed(home: Path, lake: Path, tmp_path: Path, numbers: tuple[int, ...]) -> None:
    orders = {"ready": str(tmp_path / "ready"), "sleep": 60, "on_term": "ignore"}
    send_when(tmp_path / "ready", *numbers)
    grace = 0.5 if len(numbers) == 1 else 40.0
    started = time.monotonic()
    outcome = runner_of(home, orders, grace).run(spec_of(lake, "a.b"), Heard())
    assert time.monotonic() - started < 20
    assert errors(outcome) == {"a.b": "JOB_CANCELLED"}
    assert (outcome.cancelled_by, outcome.exit_status) == (signal.SIGTERM, 137)


def test_a_job_without_its_packages_names_the_one_it_lacks(home: Path, lake: Path) -> None:
    orders = {"log": ["Traceback:", "ModuleNotFoundError: No module named 'pyarrow'"], "exit": 1}
    outcome = runner_of(home, orders).run(spec_of(lake, "a.b"), Heard())
    assert errors(outcome) == {"a.b": "PACKAGE_MISSING"}
    (error,) = (result.error for result in outcome.results)
    assert error is not None
    assert "pyarrow" in error.message
    assert error.fatal, "Airflow's retries would end with the same error"


@pytest.mark.parametrize(
    ("code", "status", "fatal"),
    [("PACKAGE_MISSING", 2, True), ("SPEC_INVALID", 2, True), ("S3_UNREACHABLE", 75, False)],
)
def test_a_job_that_refuses_to_start_is_retried_if_that_helps(
    home: Path, lake: Path, code: str, status: int, fatal: bool
) -> None:
    outcome = runner_of(home, {"log": [f"[{code}] no. Remedy: yes"], "exit": status}).run(spec_of(lake, "a.b"), Heard())
    assert errors(outcome) == {"a.b": code}
    assert [result.error.fatal for result in outcome.results if result.error] == [fatal]


def test_processes_left_by_a_crashed_job_are_killed(home: Path, lake: Path, tmp_path: Path) -> None:
    orders = {"child": str(tmp_path / "pid"), "kill": signal.SIGKILL}
    outcome = runner_of(home, orders, 0.5).run(spec_of(lake, "a.b"), Heard())
    assert errors(outcome) == {"a.b": "JOB_DIED"}
    pid = int((tmp_path / "pid").read_text())
    wait_for(lambda: not is_alive(pid), "the end of a process of the job's group")


def test_a_command_that_does_not_exist(home: Path, lake: Path) -> None:
    runner = LocalRunner(command=("/nowhere/job",), environ={"JAVA_HOME": str(home)})
    with pytest.raises(FatalError, match="/nowhere/job") as caught:
        runner.run(spec_of(lake, "a.b"), Heard())
    assert caught.value.code == "JOB_NOT_STARTED"


def test_a_lake_that_can_not_be_written(home: Path, tmp_path: Path) -> None:
    (tmp_path / "lake").write_text("a file")
    with pytest.raises(FatalError) as caught:
        runner_of(home, {}).run(spec_of(tmp_path / "lake", "a.b"), Heard())
    assert caught.value.code == "LAKE_NOT_WRITABLE"
    assert str(tmp_path / "lake") in str(caught.value)


def test_logs_of_a_table_are_kept_whatever_others_write(home: Path, lake: Path) -> None:
    logs = lake / "_gddl" / "logs"
    for group in ("a.b", "other.table"):
        (logs / group).mkdir(parents=True)
        for n in range(KEPT_AT_LEAST + 5):
            path = logs / group / f"2023{n:04d}T000000-aa.log"
            path.touch()
            os.utime(path, (1_700_000_000, 1_700_000_000))
    runner_of(home, {"results": {"a.b": {}}}).run(spec_of(lake, "a.b"), Heard())
    kept = {group: sorted(path.name for path in (logs / group).iterdir()) for group in ("a.b", "other.table")}
    assert (len(kept["a.b"]), len(kept["other.table"])) == (KEPT_AT_LEAST, KEPT_AT_LEAST + 5)
    assert (kept["a.b"][0], kept["a.b"][-1]) == ("20230006T000000-aa.log", "20240101T000000-aa.log")


def test_logs_go_by_their_age() -> None:
    day = 86_400.0
    now = 400 * day
    by_day = {f"2024{n:04d}.log": n * day for n in range(400)}
    found = expired(by_day, now)
    kept = sorted(by_day.keys() - set(found))
    assert kept == [f"2024{n:04d}.log" for n in range(400 - KEPT_DAYS, 400)]
    assert expired(dict.fromkeys(kept[:KEPT_AT_LEAST], 0.0), now) == []
    young = dict.fromkeys(by_day, now)
    assert sorted(young.keys() - set(expired(young, now))) == [f"2024{n:04d}.log" for n in range(200, 400)]
    assert expired({f"{n}.txt": 0.0 for n in range(50)}, now) == []


@pytest.mark.parametrize(
    ("origin", "tables", "group"),
    [
        (("gddl.s.a", "run", "task"), ("s.a",), "gddl.s.a"),
        (("gddl_pack.x", "run", "task"), ("s.a", "s.b"), "gddl_pack.x"),
        ((), ("s.a",), "s.a"),
        ((), ("s.a", "s.b"), "jobs"),
    ],
)
def test_a_log_is_among_those_of_who_ordered_it(
    lake: Path, origin: tuple[str, ...], tables: tuple[str, ...], group: str
) -> None:
    order = replace(spec_of(lake, *tables), options=JobOptions(origin=origin))
    with closing(open_log(order)) as log:
        assert log.path == lake / "_gddl" / "logs" / group / f"{order.run_id}.log"


@pytest.mark.parametrize(
    ("says", "status", "code", "shown"),
    [
        ('java version "1.8.0_392"', 0, "JAVA_MISSING", "Java 8"),
        ('openjdk version "11.0.2" 2019-01-15', 0, "JAVA_MISSING", "Java 11"),
        ("The operation could not be completed", 1, "JAVA_MISSING", "could not be completed"),
        ("something else", 0, "JAVA_MISSING", "not a working Java"),
    ],
)
def test_java_that_spark_can_not_use(tmp_path: Path, lake: Path, says: str, status: int, code: str, shown: str) -> None:
    runner = runner_of(fake_java(tmp_path / "old", says, status), {"results": {"a.b": {}}})
    with pytest.raises(FatalError) as caught:
        runner.run(spec_of(lake, "a.b"), Heard())
    assert caught.value.code == code
    assert shown in str(caught.value)
    assert "adoptium.net" in caught.value.remedy
    assert not lake.exists(), "nothing is started or written"


@pytest.mark.parametrize("says", ['openjdk version "21-ea" 2023-09-19', 'openjdk version "25" 2025-09-16'])
def test_newer_java_is_good(tmp_path: Path, lake: Path, says: str) -> None:
    runner = runner_of(fake_java(tmp_path / "new", says), {"results": {"a.b": {}}})
    assert errors(runner.run(spec_of(lake, "a.b"), Heard())) == {"a.b": None}


@pytest.mark.parametrize(
    ("environ", "shown"),
    [({"PATH": "/nowhere"}, "no `java` on PATH"), ({"JAVA_HOME": "/nowhere/jdk"}, "JAVA_HOME is '/nowhere/jdk'")],
)
def test_a_job_on_spark_without_java_is_refused(lake: Path, environ: dict[str, str], shown: str) -> None:
    with pytest.raises(FatalError) as caught:
        LocalRunner(command=("unused",), environ=environ).run(spec_of(lake, "a.b"), Heard())
    assert caught.value.code == "JAVA_MISSING"
    assert shown in str(caught.value)


def test_a_job_without_spark_needs_no_java(lake: Path) -> None:
    environ = {"PATH": "/nowhere", "GDDL_WITHOUT_SPARK": "1"}
    with pytest.raises(FatalError) as caught:
        LocalRunner(command=("/nowhere/job",), environ=environ).run(spec_of(lake, "a.b"), Heard())
    assert caught.value.code == "JOB_NOT_STARTED", "it looked for Java"


def test_small_tables_need_no_java_before_they_have_work(lake: Path) -> None:
    """The job starts Spark when a table has new files."""
    order = replace(spec_of(lake, "a.b"), tiers={"small": TierSpec(tasks="one")})
    with pytest.raises(FatalError) as caught:
        LocalRunner(command=("/nowhere/job",), environ={"PATH": "/nowhere"}).run(order, Heard())
    assert caught.value.code == "JOB_NOT_STARTED", "it looked for Java"


def test_a_job_that_outlives_its_log_keeps_its_last_lines(tmp_path: Path) -> None:
    """Two hundred jobs that came after it have theirs in the same folder."""
    with closing(JobLog(tmp_path, "20260101T000000-old")) as old:
        old.write("begun")
        for number in range(KEPT_AT_MOST):
            JobLog(tmp_path, f"20260102T{number:06d}-new").close()
        assert not old.path.exists()
        old.write("why it died")
    assert old.path.read_text() == "why it died\n"
    assert old.tail == "begun\nwhy it died"
