"""The state in the lake: written by several, read at once, damaged, lost, made again; on a disk and in S3."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_gddl.contract.codec import to_json
from airflow_gddl.contract.result import ErrorInfo, JobResult
from airflow_gddl.contract.spec import Roots
from airflow_gddl.runtime.state.documents import PipelineState, StageEnd, place
from airflow_gddl.runtime.state.lake_state import StateReader
from airflow_gddl.runtime.state.recording import (
    WRITE_EVERY,
    StateRecorder,
    read_records,
    rebuild,
    record_of,
    runs_folder,
    write_record,
)
from airflow_gddl.runtime.state.table_runs import KEPT_RUNS, TableHint, TablePoll, TableRecord
from airflow_gddl.stores import lake_files, open_store
from airflow_gddl.stores.lake_files import LOOSE_AT_MOST, LOOSE_LEFT
from tests.harness.s3_server import Bucket, serving
from tests.unit.test_table_status import Ending, moment, result


@pytest.fixture(params=["disk", "s3"])
def roots(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Roots]:
    if request.param == "disk":
        yield Roots(landing=str(tmp_path / "landing"), lake=str(tmp_path / "lake"))
        return
    with serving(Bucket()) as url:
        settings = {"ENDPOINT_URL": url, "ALLOW_HTTP": "true", "REGION": "eu-west-1"}
        for name, value in {**settings, "ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "b"}.items():
            monkeypatch.setenv(f"AWS_{name}", value)
        yield Roots(landing="s3://bucket/landing", lake="s3://bucket/lake")


def keep(roots: Roots, done: JobResult, name: str = "") -> None:
    started = moment_name(done.started_at)
    open_store().write(f"{runs_folder(roots, done.table)}/{name or started}-x.json", to_json(done).encode())


def moment_name(started: str) -> str:
    return started.replace("-", "").replace(":", "").replace(".", "")[:21]


def reader(roots: Roots, now: float = 5000.0) -> StateReader:
    return StateReader(roots.lake, lambda: now)


def test_writers_that_meet_lose_nothing(roots: Roots) -> None:
    def add(number: int) -> None:
        def change(before: PipelineState) -> PipelineState:
            return before.with_records({f"s.t{number}": TableRecord(commit=number)})

        StateRecorder(roots, "p", ()).change(change)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add, range(4)))
    assert {name: record.commit for name, record in reader(roots).read().records.items()} == {
        f"s.t{number}": number for number in range(4)
    }


@pytest.mark.parametrize(
    ("runs", "left"),
    [(["counts 3"], 3), (["counts 3", "failed 2"], 5), (["failed 2", "counts 3"], 3), (["counts 3", "counts 1"], 1)],
)
def test_failed_runs_add_to_what_was_counted_last(runs: list[str], left: int) -> None:
    record = TableRecord()
    for number, (word, rows) in enumerate(map(str.split, runs)):
        done = replace(result("failed" if word == "failed" else "succeeded", 100 + number), quarantined=int(rows))
        record = record.after(replace(done, in_quarantine=int(rows) if word == "counts" else None), 1000.0)
    assert record.quarantined == left
    assert record.with_runs(record.runs).quarantined == left


def test_a_result_that_no_job_kept_is_kept(roots: Roots) -> None:
    recorder = StateRecorder(roots, "p", ("shop.a",), lambda: 2000.0)
    died = JobResult(table="shop.a", status="failed", run_id="r", error=ErrorInfo(code="JOB_DIED", message="gone"))
    recorder.take(died, ("scheduled__1", "initial_load"))
    recorder.take(result("skipped", 1999))
    recorder.flush()
    (found,) = read_records(roots, "shop.a", 10).results
    assert (found.error, found.started_at) == (died.error, moment(2000))
    record = reader(roots).read().records["shop.a"]
    assert (record.failed, record.error, record.complete) == (True, "gone", 1999)
    assert [fact.airflow for fact in record.runs] == [["scheduled__1", "initial_load"]]


@pytest.mark.parametrize("damage", [None, b"{", b'{"format":0}'])
def test_lost_state_is_made_again_from_the_runs(roots: Roots, damage: bytes | None) -> None:
    for start in (1000, 1100, 1200):
        keep(roots, result("succeeded" if start < 1200 else "failed", start, start - 5 if start < 1200 else None))
    if damage is not None:
        open_store().write(place(roots.lake, "p"), damage)
        (trouble,) = reader(roots).read().troubles
        assert "p.json is damaged" in trouble.what
    recorder = StateRecorder(roots, "p", ("shop.a", "shop.never"), lambda: 2000.0)
    recorder.take(result("failed", 1200))
    recorder.flush()
    known = reader(roots).read()
    record = known.records["shop.a"]
    assert [fact.started for fact in record.runs] == [1000, 1100, 1200]
    assert (record.commit, record.complete, record.failed, record.loose) == (1095, 1100, True, 3)
    assert (known.troubles, set(known.records)) == ((), {"shop.a"})
    by_name = rebuild(roots, {"p": ("shop.a",)}, lambda: 3000.0, write=True)
    assert by_name["shop.a"] == record == reader(roots).read().records["shop.a"]


def test_an_unreadable_lake_gives_what_was_known_and_since_when(tmp_path: Path) -> None:
    roots, now = Roots(landing="/", lake=str(tmp_path / "lake")), [2000.0]
    recorder = StateRecorder(roots, "p", (), lambda: 2000.0)
    recorder.take(result("succeeded", 1000, 990))
    recorder.flush()
    asked = StateReader(roots.lake, lambda: now[0])
    assert asked.read().troubles == ()
    folder = tmp_path / "lake" / "_gddl" / "state"
    folder.rename(tmp_path / "away")
    folder.symlink_to(folder)  # a loop: neither there nor absent
    for later in (2500.0, 3000.0):
        now[0] = later
        known = asked.read()
        assert known.records["shop.a"].commit == 990
        assert [trouble.since for trouble in known.troubles] == [2000.0]
        assert "can't be read" in known.troubles[0].what
    folder.unlink()
    (tmp_path / "away").rename(folder)
    assert asked.read().troubles == ()


def test_only_what_changed_is_read_again(tmp_path: Path) -> None:
    roots = Roots(landing="/", lake=str(tmp_path / "lake"))
    for name in ("p", "q"):
        recorder = StateRecorder(roots, name, (), lambda: 2000.0)
        recorder.take(JobResult(table=f"shop.{name}", status="skipped", started_at=moment(1500)))
        recorder.flush()
    asked = reader(roots)
    assert set(asked.read().records) == {"shop.p", "shop.q"}
    path = Path(place(roots.lake, "q"))
    path.write_bytes(b"damaged")
    known = asked.read()
    assert set(known.records) == {"shop.p", "shop.q"}, "what was known of it stays"
    assert [trouble.since for trouble in known.troubles] == [2000.0]
    path.unlink()
    assert set(asked.read().records) == {"shop.p"}


def test_years_of_runs_are_put_together_and_read_the_same(roots: Roots) -> None:
    many = LOOSE_AT_MOST + 4
    for number in range(many):
        keep(roots, result("succeeded", 1000 + number, 990 + number))
    before = read_records(roots, "shop.a", 120).results
    recorder = StateRecorder(roots, "p", ("shop.a",), lambda: 9000.0)
    recorder.take(result("skipped", 8000))
    recorder.flush()
    after = read_records(roots, "shop.a", 120)
    assert after.results == before
    assert (after.loose, reader(roots).read().records["shop.a"].loose) == (LOOSE_LEFT, LOOSE_LEFT)
    assert len(read_records(roots, "shop.a", 10_000).results) == many
    keep(roots, before[-1])  # as if the putting together had been cut off before it deleted
    assert len(read_records(roots, "shop.a", 10_000).results) == many
    assert lake_files.compact(open_store(), runs_folder(roots, "shop.a")) == LOOSE_LEFT


def test_a_damaged_record_is_named_and_hides_no_other(roots: Roots) -> None:
    keep(roots, result("succeeded", 1000, 990))
    open_store().write(f"{runs_folder(roots, 'shop.a')}/2100-x.json", b'{"table": "shop.')
    found = read_records(roots, "shop.a", 10)
    assert (len(found.results), found.damaged) == (1, ("2100-x.json",))


EVENT = {"rows": 1}


def hint(mark: str = "a", run: str = "r1") -> TableHint:
    return TableHint(mark=mark, looked_at=moment(1000), run=run)


def recorder(roots: Roots, now: list[float] | None = None) -> StateRecorder:
    return StateRecorder(roots, "p", (), lambda: 2000.0 if now is None else now[0])


def loaded(table: str, start: float = 1000) -> JobResult:
    return replace(result("succeeded", start, 990), table=table)


def test_all_that_is_remembered_is_one_object(roots: Roots) -> None:
    state = PipelineState(
        tables={"s.a": TableRecord(hint=replace(hint(), announce=EVENT), poll=TablePoll(polled=1.0), seen=1.0)},
        ended=(StageEnd(stage="x", run="r", max_tries=2, events={"s.a": EVENT}),),
        notified={"s.a": ("X_Y",)},
        next_poll="{}",
        written=2000.0,
    )
    kept = recorder(roots).change(lambda _: state)
    assert recorder(roots).known == kept == state
    for damaged in (b"", b"{", b"[]", b'{"tables": 1}', b"\xff"):
        open_store().write(place(roots.lake, "p"), damaged)
        assert recorder(roots).known == PipelineState()


def test_results_are_written_now_and_then_and_at_the_end(roots: Roots) -> None:
    now = [2000.0]
    one = recorder(roots, now)
    one.take(loaded("s.a"), hint=hint())
    assert recorder(roots).known.hints == {}
    now[0] += WRITE_EVERY
    one.take(loaded("s.b"), hint=hint(), event=EVENT)
    assert sorted(recorder(roots).known.hints) == ["s.a", "s.b"]
    one.take(loaded("s.b", 1001), hint=hint("c"))
    one.flush()
    read = recorder(roots).known
    assert (read.hints["s.b"].mark, read.pending) == ("c", {"s.b": EVENT})
    assert one.take_events("s.a") == {}
    assert one.take_events("s.b") == {"s.b": EVENT}
    assert recorder(roots).known.pending == {}


def test_tasks_at_the_same_time_lose_nothing_and_send_each_event_once(roots: Roots) -> None:
    def ended(of: StateRecorder, stage: str, run: str) -> object:
        return of.take_events(end=StageEnd(stage=stage, run=run, max_tries=1))

    one, two = recorder(roots), recorder(roots)
    assert one.known == two.known == PipelineState()
    one.take(loaded("s.a"), hint=hint(run="r1"), event={"rows": 1})
    two.take(loaded("s.b"), hint=hint(run="r2"), event={"rows": 2})
    one.flush()
    two.flush()
    assert sorted(recorder(roots).known.hints) == ["s.a", "s.b"]
    assert ended(two, "increments", "r2") == {"s.a": {"rows": 1}, "s.b": {"rows": 2}}
    assert ended(one, "initial", "r1") == {}
    assert ended(recorder(roots), "increments", "r2") == {"s.a": {"rows": 1}, "s.b": {"rows": 2}}, "of a retry"
    for number in range(20):
        ended(one, "increments", f"r{number}")
    known = recorder(roots).known
    assert known.end_of("initial", "r1") is not None, "each stage keeps its newest ends"
    assert (known.end_of("increments", "r11"), known.end_of("increments", "r12") is None) == (None, False)


@pytest.mark.parametrize("there", [True, False])
def test_of_two_polls_at_once_the_second_continues_the_first(roots: Roots, there: bool) -> None:
    def poll(of: StateRecorder, polled: float) -> None:
        def change(before: PipelineState) -> PipelineState:
            record = before.record("shop.a").polled(TablePoll(polled=polled, files=3), waits=True)
            return replace(before.with_records({"shop.a": record}), next_poll=f"{before.next_poll}+{polled}")

        of.change(change)

    if there:
        poll(recorder(roots), 1.0)
    first, second = recorder(roots), recorder(roots)
    assert first.known == second.known
    poll(first, 2.0)
    poll(second, 3.0)
    known = recorder(roots).known
    seen = known.record("shop.a").poll
    assert seen is not None
    assert known.next_poll == ("+1.0+2.0+3.0" if there else "+2.0+3.0")
    assert (seen.polled, seen.since) == (3.0, 1.0 if there else 2.0)


def test_upkeep_is_among_the_runs_and_changes_no_state(roots: Roots) -> None:
    """However much of it there is: the state made again from the records is that of the loads."""
    store = open_store()
    for start in (1000, 1100):
        keep(roots, result("succeeded", start, start - 5))
    before = record_of(roots, "shop.a", 3000.0)
    for number in range(KEPT_RUNS + 3):
        ended: Ending = "failed" if number % 2 else "succeeded"
        write_record(store, roots, replace(result(ended, 1200 + number), action="verify", run_id=f"v{number}"))
    found = read_records(roots, "shop.a", 100).results
    assert [one.action for one in found] == ["verify"] * (KEPT_RUNS + 3) + ["run", "run"]
    assert replace(record_of(roots, "shop.a", 3000.0), loose=before.loose) == before
    for start in range(2000, 2300):
        keep(roots, result("succeeded", start, start - 5))
    lake_files.compact(store, runs_folder(roots, "shop.a"))
    assert len([one for one in read_records(roots, "shop.a", 1000).results if one.action == "verify"]) == KEPT_RUNS + 3
    assert {one.action for one in read_records(roots, "shop.a", 1000, loads_only=True).results} == {"run"}
