"""One load task's share of a run: what a retry takes, what clearing does, what order and failures do."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from airflow_gddl.contract.actions import HandleErrors, Rebuild, Reload, Run, Verify
from airflow_gddl.contract.result import ErrorInfo, JobResult
from airflow_gddl.contract.spec import DEFAULT_TIERS, JobSpec, Roots, TableSpec
from airflow_gddl.reporting.results import explained, summary
from airflow_gddl.runners.interface import Handle, JobOutcome, Listener, ProgressEvent, WaitPolicy
from airflow_gddl.runtime.compiled.documents import PipelineDocument
from airflow_gddl.runtime.landing.load_task import CLAIM_WAIT_SECONDS, Loading
from airflow_gddl.runtime.landing.run_request import RunRequestForm, What
from airflow_gddl.runtime.landing.tables_with_work import PipelineWork, Stage
from airflow_gddl.runtime.state.documents import PipelineState, StageEnd
from airflow_gddl.runtime.state.lake_state import StateReader
from airflow_gddl.runtime.state.recording import RUNNING_FOR, StateRecorder, read_records
from airflow_gddl.runtime.state.table_runs import RunningJob, TableRecord, extra_of
from airflow_gddl.topology.pipelines import arrange

NAMES = tuple(f"s.t{n:02d}" for n in range(50))
BAD = ("s.t07", "s.t21", "s.t42")


@dataclass
class ListRunner:
    """Answers for every table of a job at once, and remembers the jobs."""

    failing: set[str] = field(default_factory=set)
    unfinished: set[str] = field(default_factory=set)
    jobs: list[JobSpec] = field(default_factory=list)
    stops: bool = False

    def run(self, spec: JobSpec, listener: Listener) -> JobOutcome:
        self.jobs.append(spec)
        for table in spec.tables:
            bad = table.table in self.failing
            error = ErrorInfo(code="SCHEMA_REFUSED", message="a column is text now. Remedy: widen it.") if bad else None
            status = "failed" if bad else "succeeded"
            result = JobResult(table=table.table, status=status, error=error, version=1, rows_read=2)
            listener.on_result(replace(result, revisit=table.table in self.unfinished))
        return JobOutcome(results=(), exit_status=0, log="/log", cancelled_by=15 if self.stops else None)

    @property
    def loaded(self) -> list[list[str]]:
        return [sorted(table.table for table in job.tables) for job in self.jobs]


class Quiet:
    """Hears, and says nothing."""

    def on_progress(self, event: ProgressEvent) -> None: ...

    def on_result(self, result: JobResult) -> None: ...


def document(lake: Path, *specs: TableSpec) -> PipelineDocument:
    specs = specs or tuple(TableSpec(table=name, keys=("id",), source="s") for name in NAMES)
    (pipeline,) = arrange(specs, DEFAULT_TIERS).pipelines
    roots = Roots(landing="/l", lake=str(lake))
    return PipelineDocument(pipeline=pipeline, roots=roots, runner="local", specs=specs, tiers=DEFAULT_TIERS)


def recorder(made: PipelineDocument, run: str = "") -> StateRecorder:
    return StateRecorder(made.roots, made.pipeline.dag_id, made.pipeline.tables, run=run)


def events_of(state: StateRecorder, stage: Stage, run: str, max_tries: int = 0) -> Mapping[str, Mapping[str, Any]]:
    return state.take_events(end=StageEnd(stage=stage, run=run, max_tries=max_tries))


def attempt(
    made: PipelineDocument,
    runner: ListRunner,
    run: str = "r1",
    stage: Stage = "initial",
    asked: RunRequestForm | None = None,
    max_tries: int = 3,
    *,
    again: bool = True,
) -> Loading:
    """One try of a task whose sensor found every table; not `again`: because of new files."""
    marks = {spec.table: "m" for spec in made.specs}
    work = PipelineWork(
        looked_at="2024-01-01T00:00:00.000000+00:00",
        initial=marks if stage == "initial" else {},
        increments=marks if stage == "increments" else {},
        form=asked or RunRequestForm(),
        again=tuple(marks) if again else (),
    )
    loading = Loading(
        document=made,
        work=work,
        stage=stage,
        state=recorder(made, run),
        listener=Quiet(),
        run=run,
        job_id="j",
        max_tries=max_tries,
    )
    specs = loading.todo()
    if specs:
        loading.load(runner, specs, loading.marks)
    if not loading.failed and not loading.stopped:
        events_of(loading.state, stage, run, max_tries)
    return loading


def test_a11_a_retry_loads_only_the_remaining_tables(tmp_path: Path) -> None:
    made, runner = document(tmp_path), ListRunner(set(BAD))
    first = attempt(made, runner)
    assert [result.table for result in first.failed] == sorted(BAD)
    assert len(first.results) == 50
    attempt(made, runner)
    runner.failing.clear()
    attempt(made, runner)
    assert runner.loaded == [list(NAMES), sorted(BAD), sorted(BAD)]
    assert len({job.run_id for job in runner.jobs}) == 2  # the operator adds the try


def test_a11_clearing_a_successful_task_loads_all_tables_again(tmp_path: Path) -> None:
    made, runner = document(tmp_path), ListRunner()
    attempt(made, runner)
    runner.failing = {"s.t01"}
    attempt(made, runner, max_tries=4)
    runner.failing.clear()
    attempt(made, runner, max_tries=4)
    assert [len(job.tables) for job in runner.jobs] == [50, 50, 1]
    attempt(made, runner, run="r2")
    assert len(runner.jobs[-1].tables) == 50
    attempt(made, runner, run="r2", max_tries=4)
    attempt(made, runner, run="r2", max_tries=8)
    assert [len(job.tables) for job in runner.jobs[-2:]] == [50, 50], "cleared twice"


def test_a_retry_after_an_unreported_success_sends_events_without_a_job(tmp_path: Path) -> None:
    """A worker that is lost between the end of its job and its report: Airflow tries the task again."""
    made, runner = document(tmp_path), ListRunner()
    attempt(made, runner)
    again = attempt(made, runner)
    assert (len(runner.jobs), again.results) == (1, [])
    events = events_of(recorder(made), "initial", "r1", 3)
    assert (sorted(events), events["s.t00"]["version"]) == (sorted(NAMES), 1)
    assert events_of(recorder(made), "initial", "r2", 3) == {}, "of another run"


def test_a_table_with_unfinished_work_has_work_without_new_files(tmp_path: Path) -> None:
    """Files may still be written, or a reload is not whole: no sensor sees that."""
    made = document(tmp_path)
    attempt(made, ListRunner(unfinished={"s.t05"}))
    assert {name for name, hint in stored(made).hints.items() if hint.mark != "m"} == {"s.t05"}


def test_a02_a_failed_full_refresh_resumes(tmp_path: Path) -> None:
    made, runner = document(tmp_path), ListRunner(set(BAD))
    asked = RunRequestForm(action="rebuild")
    attempt(made, ListRunner(), run="before")
    attempt(made, runner, asked=asked)
    attempt(made, runner, asked=asked)
    assert runner.loaded == [list(NAMES), sorted(BAD)]
    assert {job.options.action for job in runner.jobs} == {Rebuild()}
    assert all(job.options.wait_seconds == CLAIM_WAIT_SECONDS for job in runner.jobs)


def test_a02_a_window_lists_in_full(tmp_path: Path) -> None:
    made, runner = document(tmp_path), ListRunner()
    attempt(made, runner, stage="increments", asked=RunRequestForm(start="2024-01-01"))
    assert [job.options.full_listing for job in runner.jobs] == [True]


def test_a_reload_of_a_window_reads_its_files_alone(tmp_path: Path) -> None:
    """Of a usual run the window only chooses tables."""
    made, runner = document(tmp_path), ListRunner()
    bounds = {"start": "2024-01-01", "end": "2024-01-02T00:00Z"}
    for number, action in enumerate(("run", "reload")):
        attempt(
            made, runner, stage="increments", run=f"manual__{number}", asked=RunRequestForm(action=action, **bounds)
        )
    asked = [job.options.action for job in runner.jobs]
    assert asked == [Run(), Reload(landed_since=bounds["start"], landed_until=bounds["end"])]


def test_a_manual_run_lists_in_full(tmp_path: Path) -> None:
    made, runner = document(tmp_path), ListRunner()
    started = ("manual__2024", "by_hand", "scheduled__2024", "asset_triggered__2024", "backfill__2024")
    for run in started:
        attempt(made, runner, run=run)
    assert [job.options.full_listing for job in runner.jobs] == [True, True, False, False, False]


def test_events_of_done_tables_outlive_a_failed_try(tmp_path: Path) -> None:
    made, runner = document(tmp_path), ListRunner(set(BAD))
    attempt(made, runner)
    pending = events_of(recorder(made), "initial", "r1")
    assert sorted(pending) == sorted(set(NAMES) - set(BAD))
    assert pending["s.t00"]["version"] == 1


def test_a_table_is_not_loaded_when_one_that_it_depends_on_failed(tmp_path: Path) -> None:
    specs = (
        TableSpec(table="s.a", keys=("id",), source="s", depends_on=("s.b",)),
        TableSpec(table="s.b", keys=("id",), source="s", depends_on=("s.c",)),
        TableSpec(table="s.c", keys=("id",), source="s"),
        TableSpec(table="s.d", keys=("id",), source="s"),
    )
    made, runner = document(tmp_path, *specs), ListRunner({"s.c"})
    loading = attempt(made, runner)
    assert runner.loaded == [["s.c", "s.d"]]
    codes = {result.table: result.error.code if result.error else None for result in loading.results}
    assert codes == {"s.a": "DEPENDENCY_FAILED", "s.b": "DEPENDENCY_FAILED", "s.c": "SCHEMA_REFUSED", "s.d": None}
    runner.failing.clear()
    attempt(made, runner)
    assert runner.loaded[1:] == [["s.c"], ["s.b"], ["s.a"]]


def test_a_job_that_was_stopped_is_not_followed_by_another(tmp_path: Path) -> None:
    specs = (
        TableSpec(table="s.a", keys=("id",), source="s", depends_on=("s.b",)),
        TableSpec(table="s.b", keys=("id",), source="s"),
    )
    runner = ListRunner(stops=True)
    assert attempt(document(tmp_path, *specs), runner).stopped
    assert runner.loaded == [["s.b"]]


def test_critical_tables_start_first_within_a_job(tmp_path: Path) -> None:
    # A pack holds one priority, so that only names order it; dependencies order its jobs.
    runner = ListRunner()
    attempt(document(tmp_path), runner)
    assert [table.table for table in runner.jobs[0].tables] == list(NAMES)


def test_a_failure_names_every_table_with_code_and_remedy(tmp_path: Path) -> None:
    loading = attempt(document(tmp_path), ListRunner(set(BAD)))
    text = explained(loading.failed, len(loading.results))
    assert text.startswith("3 of 50 tables failed")
    (line,) = [line for line in text.splitlines() if line.startswith("- ")]
    names, _, why = line.removeprefix("- ").partition(": ")
    assert set(names.split(", ")) == set(BAD)
    assert why == "[SCHEMA_REFUSED] a column is text now. Remedy: widen it."


def test_the_first_failure_reasons_are_reported_in_full() -> None:
    failed = [
        JobResult(table=f"s.t{n}", status="failed", error=ErrorInfo(code="A_CODE", message=f"no c{n}. Remedy: none"))
        for n in range(30)
    ]
    text = explained(failed, 50)
    assert all(result.table in text for result in failed)
    assert text.count("Remedy") == 20


def test_a_summary_is_bounded() -> None:
    counts = summary([JobResult(table=f"s.t{n}", status="succeeded", rows_read=2) for n in range(1000)])
    assert (counts["tables"], counts["succeeded"], counts["rows_read"], counts["failed_tables"]) == (
        1000,
        1000,
        2000,
        [],
    )
    failed = JobResult(table="s.bad", status="failed", error=ErrorInfo(code="A_CODE", message="no"))
    assert len(str(summary([failed] * 1000))) < 1000


@pytest.mark.parametrize(("status", "version"), [("skipped", 3), ("failed", 3), ("succeeded", None)])
def test_only_changed_tables_have_events(status: str, version: int | None) -> None:
    assert extra_of(JobResult(table="s.a", status=status, version=version)) is None  # type: ignore[arg-type] # one of three


def kept(tmp_path: Path) -> dict[str, TableRecord]:
    return dict(StateReader(str(tmp_path), lambda: 0.0).read().records)


def test_the_state_names_every_run_and_its_task(tmp_path: Path) -> None:
    made, runner = document(tmp_path), ListRunner({BAD[0]})
    attempt(made, runner)
    records = kept(tmp_path)
    assert sorted(records) == sorted(NAMES)
    assert {name for name, record in records.items() if record.failed} == {BAD[0]}
    assert {fact.airflow[0] for record in records.values() for fact in record.runs} == {"r1"}
    assert [result.status for result in read_records(made.roots, BAD[0], 5).results] == ["failed"], "no job kept it"


@pytest.mark.parametrize("what", ["verify", "replay", "dismiss"])
def test_verify_replay_and_dismissal_do_not_count_as_loads(tmp_path: Path, what: What) -> None:
    made, runner = document(tmp_path), ListRunner(set(BAD))
    attempt(made, ListRunner(), run="before")
    hints_before, records_before = stored(made), kept(tmp_path)
    codes, reason = () if what == "verify" else ("OP_UNKNOWN",), "gone" if what == "dismiss" else ""
    asked = RunRequestForm(action=what, codes=codes, reason=reason)
    loading = attempt(made, runner, stage="increments", asked=asked)
    assert [result.table for result in loading.failed] == sorted(BAD)
    action = {
        "verify": Verify(),
        "replay": HandleErrors(mode="replay", codes=codes),
        "dismiss": HandleErrors(mode="dismiss", codes=codes, reason=reason),
    }[what]
    assert [job.options.action for job in runner.jobs] == [action]
    assert {name: hint.mark for name, hint in stored(made).hints.items()} == {
        name: hint.mark for name, hint in hints_before.hints.items()
    }
    records = kept(tmp_path)
    assert {name: record.complete for name, record in records.items()} == {
        name: record.complete for name, record in records_before.items()
    }
    assert sorted(name for name in records if records[name].failed) == ([] if what == "verify" else sorted(BAD))


@dataclass
class WatchedRunner(ListRunner):
    """Asks, while its job works, which tables count as running; then it may leave the job to run elsewhere."""

    lake: str = ""
    elsewhere: bool = False
    seen: list[list[str]] = field(default_factory=list)

    def run(self, spec: JobSpec, listener: Listener) -> JobOutcome:
        self.seen.append(sorted(running(self.lake)))
        if self.elsewhere:
            handle = Handle(run="1", page="")
            return JobOutcome(results=(), exit_status=0, waiting=WaitPolicy(number=1, handle=handle))
        return super().run(spec, listener)


def running(lake: str, later: float = 0.0) -> set[str]:
    """Tables whose job counts as running, so many seconds from now."""
    now = time.time() + later
    return {name for name, job in jobs_of(lake).items() if job.until > now}


def jobs_of(lake: object) -> dict[str, RunningJob]:
    records = StateReader(str(lake), time.time).read().records
    return {name: record.running for name, record in records.items() if record.running is not None}


def test_tables_count_as_running_while_their_job_works(tmp_path: Path) -> None:
    made = document(tmp_path, *(TableSpec(table=name, keys=("id",), source="s") for name in NAMES[:3]))
    runner = WatchedRunner({NAMES[1]}, lake=str(tmp_path))
    attempt(made, runner)
    assert runner.seen == [list(NAMES[:3])]
    assert running(str(tmp_path)) == set(), "one that failed has ended, too"
    away = WatchedRunner(lake=str(tmp_path), elsewhere=True)
    attempt(made, away, run="r2")
    hours = made.pipeline.run_timeout
    assert running(str(tmp_path), hours - 60) == set(NAMES[:3]), "nobody reports while the triggerer waits"
    assert running(str(tmp_path), hours + 60) == set()
    attempt(made, ListRunner(), run="r2")
    assert running(str(tmp_path)) == set()


@dataclass
class BesideRunner(ListRunner):
    """While its job runs, another run of the same pipeline with the same listing begins and ends."""

    made: PipelineDocument | None = None
    other: ListRunner = field(default_factory=ListRunner)
    asked: RunRequestForm | None = None
    again: bool = False

    def run(self, spec: JobSpec, listener: Listener) -> JobOutcome:
        assert self.made is not None
        attempt(self.made, self.other, run="other", asked=self.asked, again=self.again)
        return super().run(spec, listener)


FAMILY = (
    TableSpec(table="s.a", keys=("id",), source="s"),
    TableSpec(table="s.b", keys=("id",), source="s"),
    TableSpec(table="s.c", keys=("id",), source="s", depends_on=("s.b",)),
    TableSpec(table="s.d", keys=("id",), source="s", depends_on=("s.c",)),
)


def test_of_runs_that_overlap_one_loads_a_table(tmp_path: Path) -> None:
    made = document(tmp_path, *FAMILY)
    runner = BesideRunner(made=made)
    first = attempt(replace(made, specs=FAMILY[1:2]), runner, again=False)
    assert runner.other.loaded == [["s.a"]], "without what depends on a table that another run loads"
    assert first.state.known.hints["s.b"].run == "r1"
    assert not jobs_of(tmp_path)
    late = ListRunner()
    attempt(made, late, run="late", again=False)
    assert late.loaded == [["s.c"], ["s.d"]], "the others were loaded since they were listed"
    attempt(made, late, run="later", again=False)
    assert late.loaded[2:] == []


@pytest.mark.parametrize(("asked", "again"), [(None, True), (RunRequestForm(tables=("s.b",)), False)])
def test_a_table_that_is_loaded_again_waits_for_no_other_run(
    tmp_path: Path, asked: RunRequestForm | None, again: bool
) -> None:
    made = document(tmp_path, *FAMILY[:2])
    runner = BesideRunner(made=made, asked=asked, again=again)
    attempt(made, runner, again=False)
    assert runner.loaded == runner.other.loaded == [["s.a", "s.b"]], "its job waits for the other one's claim"


def test_a_table_that_changed_since_another_run_loaded_it_is_loaded(tmp_path: Path) -> None:
    made, runner = document(tmp_path, *FAMILY[:2]), ListRunner(unfinished={"s.b"})
    attempt(made, runner, again=False)
    attempt(made, runner, run="r2", again=False)
    assert runner.loaded == [["s.a", "s.b"], ["s.b"]], "one with files left counts as changed"


def test_runs_that_begin_at_once_share_the_tables(tmp_path: Path) -> None:
    roots = Roots(landing="/l", lake=str(tmp_path))
    runs = [StateRecorder(roots, "p", NAMES, run=f"r{n}") for n in range(6)]
    with ThreadPoolExecutor(len(runs)) as threads:
        left = list(threads.map(lambda one: one.begin(NAMES, leave=NAMES), runs))
    taken = [set(NAMES) - one for one in left]
    assert sorted(name for one in taken for name in one) == sorted(NAMES)
    held = jobs_of(tmp_path)
    assert {f"r{n}": one for n, one in enumerate(taken) if one} == {
        run: {name for name, job in held.items() if job.run == run} for run in {job.run for job in held.values()}
    }
    for one in runs:
        one.end()
    assert running(str(tmp_path)) == set()


def test_a_lost_job_counts_as_running_for_minutes(tmp_path: Path) -> None:
    now = [1000.0]
    one = StateRecorder(Roots(landing="/l", lake=str(tmp_path)), "p", (), lambda: now[0])
    one.begin(["s.a"])
    for _ in range(20):
        now[0] += 30
        one.renew()
    (job,) = jobs_of(tmp_path).values()
    assert (job.since, job.until) == (1000.0, now[0] + RUNNING_FOR)


def stored(made: PipelineDocument) -> PipelineState:
    return recorder(made).known
