"""What is made of runs and polls, against an oracle that knows when each file landed."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from airflow_gddl.contract.codes import DEPENDENCY_FAILED, FRESHNESS_MISSED
from airflow_gddl.contract.result import ErrorInfo, Freshness, JobResult, MainCounts, RunWarning
from airflow_gddl.runtime.state.documents import PipelineState, decode, encode
from airflow_gddl.runtime.state.table_runs import KEPT_RUNS, RunningJob, TableHint, TablePoll, TableRecord, merged
from airflow_gddl.runtime.state.table_status import STATES, heartbeat_of, judge
from airflow_gddl.runtime.table_directory import TableRow
from tests.harness.examples import at_random

ALLOWED, GRACE = 30, 50
ROW = TableRow(table="shop.a", source="shop", tier="small", priority="normal", freshness=ALLOWED, grace=GRACE)
Event = Literal["land", "poll", "load", "fail", "wait"]


Ending = Literal["succeeded", "failed", "skipped"]


def moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds")


def result(status: Ending, start: float, commit: float | None = None) -> JobResult:
    error = ErrorInfo(code="X_Y", message="broken") if status == "failed" else None
    lag = Freshness() if commit is None else Freshness(commit_ts=moment(commit), lag_seconds=float(start - commit))
    counts = {"rows_read": 300, "changes_written": 299, "quarantined": 1} if status == "succeeded" else {}
    return JobResult(
        table="shop.a",
        status=status,
        started_at=moment(start),
        freshness=lag,
        error=error,
        run_id=f"r{start}",
        main=MainCounts(rows=10**6 + int(start)),
        **counts,
    )


def stored(record: TableRecord) -> TableRecord:
    """As the lake has it."""
    return decode(encode(PipelineState(tables={"shop.a": record}))).tables["shop.a"]


def test_codes_of_the_register_are_stored_as_text() -> None:
    error, record = ErrorInfo(code=DEPENDENCY_FAILED, message="broken"), TableRecord()
    for start in (1.0, 2.0):
        record = record.after(replace(result("failed", start), error=error), start)
    assert [run.error for run in stored(record).runs] == [DEPENDENCY_FAILED] * 2
    notified = {"shop.a": (FRESHNESS_MISSED,)}
    assert decode(encode(PipelineState(notified=notified))).notified == notified


def known(record: TableRecord | None = None, **facts: Any) -> TableRecord:
    """Of a table with these facts beside those of its runs."""
    return replace(record or TableRecord(), **facts)


@dataclass
class World:
    """The truth: files land at the moment of their commit. And what the state's writers keep of what they see."""

    now: float = 1000.0
    landed: list[float] = field(default_factory=list)
    applied: int = 0
    last_run_failed: bool = False
    knows: float | None = None
    polled: float | None = None
    ever: bool = False
    taken: float | None = None
    record: TableRecord = field(default_factory=TableRecord)

    def happen(self, event: Event) -> None:
        self.now += 7
        waiting = len(self.landed) > self.applied
        if event == "land":
            self.landed.append(self.now)
        elif event == "poll":
            self.see()
        elif event == "fail":
            self.take(result("failed", self.now))
            self.last_run_failed = True
        elif event == "load":  # which Airflow starts only after a poll
            polled = self.see()
            self.now += 1
            self.take(result("succeeded", self.now, self.landed[-1]) if waiting else result("skipped", self.now))
            self.applied, self.last_run_failed, self.knows, self.taken = len(self.landed), False, self.now, polled
            self.ever = self.ever or waiting

    def see(self) -> float:
        waiting = len(self.landed) > self.applied
        if self.taken is not None:
            self.record = self.record.loaded(TableHint(mark="", looked_at=moment(self.taken), run="r"), None)
        poll = TablePoll(polled=self.now, files=len(self.landed))
        self.record = stored(self.record.polled(poll, waits=waiting))
        self.knows = self.knows if waiting else self.now
        self.polled = self.now if self.polled is None else self.polled
        return self.now

    def take(self, done: JobResult) -> None:
        record = self.record.after(done, self.now)
        self.record = stored(record.after(done, self.now))  # told twice, it counts once
        assert self.record == record


DAY = 86_400.0


def changed_daily(runs: int, record: TableRecord | None = None, first: float = 0.0, rows: int = 10**6) -> TableRecord:
    """A table after so many daily runs, each kept as the state keeps it."""
    record = record or TableRecord()
    for day in range(runs):
        done = replace(result("succeeded", first + day * DAY, first + day * DAY), main=MainCounts(rows=rows))
        idle = result("skipped", first + day * DAY + 60)
        record = stored(record.after(done, 0).after(done, 0).after(idle, 0))
    return record


def attention_of(record: TableRecord, now: float) -> tuple[str, ...]:
    poll = TablePoll(polled=now, clear=now)
    return judge(replace(ROW, freshness=None), known(record, poll=poll), now).attention


def test_a_large_table_that_nobody_maintains_is_named() -> None:
    assert attention_of(changed_daily(99), 99 * DAY) == (), "few runs leave little behind"
    record = changed_daily(100)
    assert attention_of(record, 100 * DAY) == ("MAINTENANCE_DUE",)
    assert attention_of(changed_daily(100, rows=199_999), 100 * DAY) == (), "small tables tidy up by themselves"
    failed = replace(result("failed", 100 * DAY), action="maintain")
    assert attention_of(record.after(failed, 0), 101 * DAY) == ("MAINTENANCE_DUE",)
    done = record.after(replace(result("skipped", 100 * DAY), action="maintain", status="succeeded"), 0)
    assert (attention_of(done, 101 * DAY), done.maintained) == ((), 100 * DAY)
    assert attention_of(done, 400 * DAY) == (), "a table that does not change needs none"
    assert attention_of(changed_daily(100, done, 101 * DAY), 202 * DAY) == ("MAINTENANCE_DUE",)


def test_maintenance_that_another_writer_recorded_counts() -> None:
    """Loads are recorded by a pipeline, and a maintenance by a command."""
    loads = changed_daily(150)
    command = TableRecord().after(replace(result("skipped", 149 * DAY), action="maintain", status="succeeded"), 0)
    for both in (merged(loads, command), merged(command, loads)):
        assert both.maintained == 149 * DAY
        assert attention_of(both, 155 * DAY) == ()
        assert attention_of(both, 170 * DAY) == ("MAINTENANCE_DUE",)


@settings(max_examples=at_random(300))
@given(st.lists(st.sampled_from(["land", "poll", "load", "fail", "wait"]), max_size=40))
def test_judged_as_the_truth_is(events: list[Event]) -> None:
    world = World()
    for event in events:
        world.happen(event)
        poll = world.record.poll
        state = judge(ROW, known(world.record), world.now)
        missing = world.landed[world.applied :]
        is_due = world.ever or (world.polled is not None and world.now - world.polled > GRACE)
        if missing and world.now - missing[0] > ALLOWED and is_due:
            assert state.late, "a change that landed too long ago is not there, and nobody says so"
        expected = None if world.knows is None or not world.ever else world.now - world.knows
        assert state.behind == pytest.approx(expected)
        if world.polled is not None:
            assert state.late == (is_due and (expected is None or expected > ALLOWED))
            assert world.record.seen == world.polled, "the first poll is remembered"
        assert state.failed == world.last_run_failed
        if poll is not None and poll.polled == world.now and missing:
            assert state.waiting == len(missing), "the poll has just counted them"
            assert poll.since is not None
            assert poll.since >= missing[0]
        if not missing:
            assert state.waiting == 0
        if state.state == "fresh":
            assert world.ever
            assert not state.late
        if state.state == "new":
            assert not world.ever
        applied = world.landed[: world.applied]
        assert state.lag == pytest.approx(world.now - applied[-1] if applied else None)


OUTCOMES = ("succeeded", "failed", "skipped", "stale", "settled", "lost", "different", "equal")
Outcome = Literal["succeeded", "failed", "skipped", "stale", "settled", "lost", "different", "equal"]


def warned(done: JobResult, code: str) -> JobResult:
    return replace(done, warnings=(RunWarning(code=code, message="x"),))


def verified(start: float, buckets: int = 0, source: int | None = None) -> JobResult:
    """A verification, of the source too where its differences are given."""
    different = buckets or source
    code = "VERIFY_DIFFERENT" if buckets else "SOURCE_DIFFERENT"
    details = {"rows": 5, "expected_rows": 5, "buckets_different": buckets, "source": source}
    details["source"] = None if source is None else {"different": source}
    error = ErrorInfo(code=code, message="differs") if different else None
    return replace(
        result("failed" if different else "skipped", start),
        action="verify",
        status="failed" if different else "succeeded",
        error=error,
        details=details,
    )


def made(start: int, outcome: Outcome) -> JobResult:
    commit = start - 1
    if outcome == "stale":
        return replace(warned(result("succeeded", start, commit), "QUARANTINE_STALE"), in_quarantine=9)
    if outcome == "settled":
        return replace(result("succeeded", start, commit), in_quarantine=0)
    if outcome == "lost":
        return warned(result("skipped", start), "FOLDER_MISSING")
    if outcome in ("different", "equal"):
        return verified(start, int(outcome == "different"), int(outcome == "different"))
    return result(outcome, start, commit if outcome == "succeeded" else None)


@example([(0, "stale")])
@given(st.lists(st.tuples(st.integers(0, 40), st.sampled_from(OUTCOMES)), max_size=40))
def test_the_order_of_telling_does_not_matter(runs: list[tuple[int, Outcome]]) -> None:
    reported = {start: made(start, outcome) for start, outcome in runs}
    forth = back = TableRecord()
    for start in sorted(reported):
        forth = forth.after(reported[start], 50)
    for start in sorted(reported, reverse=True):
        back = back.after(reported[start], 50)
    assert back == forth
    halves = [TableRecord(), TableRecord()]
    for start, done in reported.items():
        halves[start % 2] = halves[start % 2].after(done, 50)
    assert merged(*halves) == merged(*reversed(halves)) == forth
    newest = {
        outcome: max((at for at, one in dict(runs).items() if one == outcome), default=-1) for outcome in OUTCOMES
    }
    assert forth.holds("QUARANTINE_STALE") == (newest["stale"] > newest["settled"])
    for code in ("VERIFY_DIFFERENT", "SOURCE_DIFFERENT"):
        assert forth.holds(code) == (newest["different"] > newest["equal"])
    ran = max(newest[one] for one in ("succeeded", "skipped", "stale", "settled"))
    assert forth.holds("FOLDER_MISSING") == (newest["lost"] > ran)
    assert len(forth.runs) <= KEPT_RUNS


def test_a_source_without_changes_is_fresh_as_long_as_it_is_polled() -> None:
    record = TableRecord().after(result("succeeded", 1000, 990), 1001)
    seen = TablePoll(polled=5000, files=1, clear=5000)
    state = judge(ROW, known(record, poll=seen), 5010)
    assert (state.state, state.lag, state.behind, state.as_of) == ("fresh", 4020, 10, 5000)
    assert judge(ROW, known(record, poll=seen), 5031).state == "late", "no sensor polls any more"
    assert judge(replace(ROW, freshness=None), known(record, poll=seen), 9999).state == "fresh"


def test_a_folder_that_vanished_is_no_proof_that_nothing_is_new() -> None:
    def poll(before: TableRecord, polled: float, *, missing: bool = False) -> TableRecord:
        return stored(before.polled(TablePoll(polled=polled, missing=missing), waits=False))

    record = TableRecord().after(result("succeeded", 1000, 990), 1001)
    there = poll(TableRecord(), 1010)
    lost = poll(poll(there, 1020, missing=True), 1030, missing=True)
    state = judge(ROW, known(record, poll=lost.poll), 1031)
    assert (state.state, state.attention, state.as_of) == ("attention", ("FOLDER_MISSING",), 1010)
    idle = replace(result("skipped", 1032), warnings=(RunWarning(code="FOLDER_MISSING", message="x"),))
    assert record.after(idle, 1033).complete == 1000
    assert judge(ROW, known(record.after(idle, 1033), poll=lost.poll), 1041).state == "late"
    back = poll(lost, 1050)
    assert judge(ROW, known(record, poll=back.poll), 1051).state == "fresh"
    new = judge(ROW, known(poll=lost.poll, seen=1010), 1031)
    assert (new.state, new.attention, new.as_of) == ("attention", ("FOLDER_MISSING",), None), "its name may be misspelt"
    empty = judge(ROW, known(poll=back.poll, seen=1045), 1051)
    assert (empty.state, empty.attention, empty.as_of) == ("new", (), None), "nothing was ever loaded"


def test_a_stale_row_needs_attention_until_the_quarantine_is_settled() -> None:
    stale = replace(warned(result("succeeded", 10, 5), "QUARANTINE_STALE"), in_quarantine=1)
    record = TableRecord().after(stale, 11)
    good = replace(result("succeeded", 20, 15), quarantined=0, in_quarantine=1)
    record = record.after(good, 21)
    assert attention_of(record, 22) == ("QUARANTINE_STALE",), "a good change of another key settles nothing"
    replay = replace(result("succeeded", 30, 25), action="errors_replay", quarantined=1, in_quarantine=1)
    assert attention_of(record.after(replay, 31), 32) == (), "all that is left went through it"
    part = replace(replay, in_quarantine=2)
    assert attention_of(record.after(part, 31), 32) == ("QUARANTINE_STALE",)
    again = warned(replay, "QUARANTINE_STALE")
    assert attention_of(record.after(again, 31), 32) == ("QUARANTINE_STALE",)
    dismissed = replace(result("skipped", 30), action="errors_dismiss", status="succeeded", in_quarantine=0)
    assert attention_of(record.after(dismissed, 31), 32) == ()


def test_a_difference_needs_attention_until_a_verification_of_its_kind_finds_none() -> None:
    loaded = TableRecord().after(result("succeeded", 10, 5), 11)
    record = loaded.after(verified(20, buckets=3, source=2), 21)
    assert attention_of(record, 22) == ("SOURCE_DIFFERENT", "VERIFY_DIFFERENT")
    assert attention_of(record.after(result("succeeded", 25, 24), 26), 27) == ("SOURCE_DIFFERENT", "VERIFY_DIFFERENT")
    record = record.after(verified(30), 31)
    assert attention_of(record, 32) == ("SOURCE_DIFFERENT",), "the source was not compared"
    died = replace(result("failed", 35), action="verify")
    unfinished = replace(verified(36, source=0), error=ErrorInfo(code="BATCH_UNFINISHED", message="x"))
    assert attention_of(record.after(died, 37).after(unfinished, 37), 38) == ("SOURCE_DIFFERENT",)
    assert attention_of(record.after(verified(40, source=0), 41), 42) == ()
    by_hand = TableRecord().after(verified(20, buckets=3), 21)
    for both in (merged(loaded, by_hand), merged(by_hand, loaded)):
        assert attention_of(both, 22) == ("VERIFY_DIFFERENT",)


def test_a_run_that_misses_the_folder_counts_as_a_poll_does() -> None:
    calm = replace(ROW, freshness=None)
    loaded = TableRecord().after(result("succeeded", 1000, 990), 1001)
    lost = TableRecord().after(warned(result("skipped", 1020), "FOLDER_MISSING"), 1021)  # of another writer
    for record in (merged(loaded, lost), merged(lost, loaded)):
        state = judge(calm, known(record), 1022)
        assert (state.state, state.attention, state.as_of) == ("attention", ("FOLDER_MISSING",), 1000)
        before, after = TablePoll(polled=1010, clear=1010), TablePoll(polled=1030, clear=1030)
        assert judge(calm, known(record, poll=before), 1031).attention == ("FOLDER_MISSING",)
        assert judge(calm, known(record, poll=after), 1031).state == "fresh"
        back = record.after(result("skipped", 1025), 1026)
        assert judge(calm, known(back), 1027).state == "fresh"
        missed = TablePoll(polled=1022, missing=True)
        assert judge(calm, known(back, poll=missed), 1027).state == "fresh", "the run was later"
    new = judge(ROW, known(lost), 1031)
    assert (new.state, new.attention, new.as_of) == ("attention", ("FOLDER_MISSING",), None), "never loaded"


def test_what_is_most_urgent_is_shown() -> None:
    failed = TableRecord().after(result("failed", 1000), 1001)
    state = judge(ROW, known(failed, seen=1000), 2000)
    assert (state.state, state.late, state.failed) == ("failed", True, True)
    off = judge(replace(ROW, enabled=False), known(failed), 2000)
    assert (off.state, off.late, off.failed) == ("disabled", False, False)
    calm = replace(ROW, freshness=None)
    assert judge(calm, known(), 2000).state == "new"
    waits = TablePoll(polled=1990, files=4, waiting=3, since=1500, held_by=("shop.b",))
    assert judge(calm, known(poll=waits), 2000).state == "waiting"
    works = known(poll=waits, running=RunningJob(since=1950, until=2001))
    assert (judge(calm, works, 2000).state, judge(calm, works, 2000).running) == ("running", 1950)
    assert judge(calm, works, 2001).state == "waiting", "nobody has reported of the job for too long"
    again = judge(ROW, known(failed, poll=waits, running=works.running, seen=1000), 2000)
    assert (again.state, again.running) == ("failed", 1950)


def test_a_new_table_is_not_late_before_its_first_load_is_due() -> None:
    assert (judge(ROW, known(), 9999).state, judge(ROW, known(), 9999).late) == ("new", False)
    met = known(seen=1000)
    assert [judge(ROW, met, now).state for now in (1000, 1000 + GRACE, 1001 + GRACE)] == ["new", "new", "late"]
    found_nothing = known(poll=TablePoll(polled=1010, files=0, clear=1010), seen=1000)
    assert judge(ROW, found_nothing, 1045).state == "new", "its freshness alone would be over"
    assert judge(ROW, found_nothing, 1051).state == "late"
    by_hand = known(TableRecord().after(result("skipped", 1000), 1001))
    assert [judge(ROW, by_hand, now).state for now in (1040, 1051)] == ["new", "late"]
    loaded = known(TableRecord().after(result("succeeded", 1000, 1000), 1001), seen=1000)
    assert judge(ROW, loaded, 1031).state == "late", "the period is for the first load alone"


def test_a_broken_row_keeps_the_state_that_its_runs_give() -> None:
    broken = replace(ROW, problems=("a.yaml:3: [X_Y] wrong",))
    record = TableRecord().after(result("succeeded", 1000, 990), 1001)
    state = judge(broken, known(record), 1010)
    assert (state.state, state.last_state, state.behind) == ("broken_row", "fresh", 10)
    failed = judge(broken, known(record.after(result("failed", 1005), 1006)), 1010)
    assert (failed.state, failed.last_state, failed.failed) == ("broken_row", "failed", True)


def test_a_run_that_loses_rows_does_not_add_up() -> None:
    good = TableRecord().after(result("succeeded", 10, 5), 11)
    bad = good.after(replace(result("succeeded", 20, 15), rows_read=4), 21)
    assert [fact.adds_up for fact in bad.runs] == [True, False]


@pytest.mark.parametrize("data", [b"", b"[]", b"\xff", b'{"format":2}', b'{"tables":{"a.b":[1]}}'])
def test_damage_is_noticed(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode(data)


def test_a_run_with_warnings_needs_attention_until_the_next_run() -> None:
    late = RunWarning(code="BATCH_LATE", message="late", count=3)
    done = replace(result("succeeded", 10, 5), warnings=(late, RunWarning(code="SEQUENCE_TIE", message="tie")))
    calm = replace(ROW, freshness=None)
    record = TableRecord().after(replace(done, late_ignored=3), 11)
    state = judge(calm, known(record), 12)
    assert (state.state, state.attention, record.late_ignored) == ("attention", ("BATCH_LATE",), 3)
    idle = record.after(result("skipped", 20), 21)
    assert judge(calm, known(idle), 22).state == "attention", "nothing new came"
    assert judge(calm, known(idle.after(result("succeeded", 30, 25), 31)), 32).state == "fresh"
    assert judge(replace(calm, enabled=False), known(record), 12).attention == ()


@settings(max_examples=at_random(500))
@given(
    st.lists(st.tuples(st.integers(1, 500), st.sampled_from(("run", "poll", "fail"))), min_size=1, max_size=10),
    st.integers(0, 5000),
)
def test_a_quiet_table_is_late_only_if_its_source_stood_still(
    steps: list[tuple[int, Literal["run", "poll", "fail"]]], pause: int
) -> None:
    """Its heartbeat comes each 5 s, and is loaded or polled at any time, or not for long."""
    row = replace(ROW, heartbeat="shop.beat", freshness=20)
    beat, now = TableRecord(), 1000.0
    for after, step in steps:
        now += after
        if step == "run":
            beat = beat.after(result("succeeded", now, now // 5 * 5), now)
        elif step == "fail":
            beat = beat.after(result("failed", now), now)
        else:
            beat = beat.polled(TablePoll(polled=now, files=9), waits=True)
    quiet = TableRecord().after(result("succeeded", now, 10), now)
    shown = judge(row, quiet, now, heartbeat_of(beat))
    assert (shown.state, shown.attention) == ("fresh", ())
    facts = heartbeat_of(beat.polled(TablePoll(polled=now + 21 + pause, files=9), waits=False))
    polled = TablePoll(polled=now + 21 + pause, clear=now + 21 + pause)
    shown = judge(row, replace(quiet, poll=polled), now + 21 + pause, facts)
    if beat.commit is not None:
        assert (shown.state, shown.late, shown.attention) == ("late", True, ("SOURCE_STOPPED",))


def test_fields_of_a_later_release_are_ignored() -> None:
    state = PipelineState(tables={"shop.a": TableRecord().after(result("succeeded", 10, 5), 11)})
    newer = json.loads(encode(state))
    newer["tables"]["shop.a"]["of a later release"] = 1
    assert decode(json.dumps(newer).encode()) == state


def test_the_page_of_states_has_each_of_them_in_the_order_of_urgency() -> None:
    page = (Path(__file__).parents[2] / "docs" / "operate.md").read_text(encoding="utf-8")
    table = page.partition("| state | meaning | check |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == list(STATES)
