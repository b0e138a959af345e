"""A job that goes on, on a clock of the test: whatever comes between, a table with news is run, once at a time."""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from airflow_gddl.contract.codec import to_json
from airflow_gddl.contract.errors import FatalError, GddlError
from airflow_gddl.contract.layout import desired_path
from airflow_gddl.contract.result import ErrorInfo, JobResult
from airflow_gddl.contract.spec import (
    DEFAULT_TIERS,
    Continuous,
    DesiredState,
    JobOptions,
    JobSpec,
    Roots,
    TableSpec,
    TierSpec,
)
from airflow_gddl.stores import Storage
from spark_jobs.batch.runtime import NoSpark, Runtime
from spark_jobs.batch.totals import Declined, TableOutcome, TaskOutcome
from spark_jobs.continuous.loop import POLL_SECONDS, Loop, TableThreads
from spark_jobs.continuous.schedule import ANYWAY_SECONDS, BATCHES_A_TURN, pause_seconds
from spark_jobs.job.stop import Stop
from tests.harness.examples import at_random

TABLES = {
    spec.table: spec
    for spec in (
        TableSpec(table="s.a", keys=("id",), trigger="1s"),
        TableSpec(table="s.b", keys=("id",), trigger="1s"),
        TableSpec(table="s.c", keys=("id",), trigger="1s", size="large"),
    )
}
LONGEST_TURN = 8
TROUBLE = 80
"""Seconds during which anything may happen."""
QUEUE = (len(TABLES) + 1) * 2 * LONGEST_TURN
"""No table waits longer for a hand: of the others each may have a turn and one that is declined before."""
SOON = QUEUE + POLL_SECONDS + 2
RESTS = sum(pause_seconds(n + 1) for n in range(5)) + ANYWAY_SECONDS + 2 * SOON
End = Literal["ok", "failed", "busy", "declined"]
Kind = Literal["land", "land unseen", "row", "gone", "back", "tiers", "tasks", "no tables"]


@dataclass(frozen=True)
class Event:
    at: int
    kind: Kind
    table: str


@dataclass(frozen=True)
class Turn:
    end: End
    seconds: int


@dataclass
class At:
    """A table in the hands of somebody."""

    spec: TableSpec
    sees: int
    own: set[str]
    is_light: bool
    end: End = "ok"
    ends: float | None = None


@dataclass
class World:
    """Folders, ledgers, clock and metadata; whoever waits lets time pass, and what is to happen then happens."""

    folder: str
    events: deque[Event]
    turns: Sequence[Turn]
    now: float = 0.0
    spins: int = 0
    landed: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TABLES, 0))
    taken: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TABLES, 0))
    since: dict[str, float] = field(default_factory=dict)
    hints: set[str] = field(default_factory=set)
    order: dict[str, TableSpec] = field(default_factory=lambda: dict(TABLES))
    tiers: dict[str, TierSpec] = field(default_factory=lambda: dict(DEFAULT_TIERS))
    running: dict[str, At] = field(default_factory=dict)
    begun: int = 0
    ended: list[str] = field(default_factory=list)
    asked: Callable[[], bool] = lambda: False

    def let_pass(self, seconds: float) -> None:
        self.spins = 0 if seconds > 0 else self.spins + 1
        assert self.spins < 100, "it turns in circles"
        if seconds > 0:
            self.now = round(self.now + max(seconds, 0.001), 3)
        while self.events and self.events[0].at <= self.now:
            self.happen(self.events.popleft())

    def happen(self, event: Event) -> None:
        if event.kind in ("land", "land unseen"):
            self.landed[event.table] += 1
            self.since.setdefault(event.table, self.now)
            if event.kind == "land":
                self.hints.add(event.table)
            return
        match event.kind:
            case "row" if event.table in self.order:
                self.order[event.table] = replace(self.order[event.table], owner=f"at {event.at}")
            case "gone" if len(self.order) > 1:  # without any, the job ends
                self.order.pop(event.table, None)
            case "back":
                self.order.setdefault(event.table, TABLES[event.table])
            case "tiers":
                self.tiers["small"] = replace(self.tiers["small"], cores=1 + event.at % 3)
            case "tasks":
                small = self.tiers["small"]
                self.tiers["small"] = replace(small, tasks="many" if small.in_one_task else "one")
            case "no tables":
                self.order.clear()
        self.write()

    def write(self) -> None:
        order = DesiredState(tables=tuple(self.order.values()), tiers=self.tiers)
        Storage().write(desired_path(self.folder), to_json(order).encode())

    def turn(self) -> Turn:
        """What becomes of the next one."""
        self.begun += 1
        return self.turns[self.begun % len(self.turns)]


class Hands(TableThreads):
    """Threads that are played: first come, first served, as many at once as the job says."""

    def __init__(self, world: World, job: JobSpec, runtime: Runtime, wake: Callable[[], None]) -> None:
        self.world = world
        super().__init__(job, runtime, wake)

    def _begin_one(self, own: set[str], spec: TableSpec, run: Callable[[], TaskOutcome]) -> None:  # noqa: ARG002 - it is played
        world = self.world
        assert not world.asked(), "begun after the word to stop"
        assert spec.table not in world.running, f"{spec.table} twice at once"
        world.running[spec.table] = At(spec, world.landed[spec.table], own, is_light=own is self._own[0])
        self.check_patience(spec.table)

    def check_patience(self, table: str) -> None:
        since = self.world.since.get(table)
        if since is not None and table in self.world.order:
            assert self.world.now - since < RESTS, f"{table} waited for {self.world.now - since} s"

    def finished(self) -> list[TableOutcome]:
        for at in list(self.world.running.values()):
            if (found := self.look(at)) is not None:
                self._done.put((at.own, found))
        return super().finished()

    def look(self, at: At) -> TaskOutcome | None:
        """Null while it is at work. After the time of trouble all goes well."""
        world = self.world
        if at.ends is None:
            turn = world.turn()
            at.ends, at.end = world.now + turn.seconds, turn.end
        if at.ends > world.now:
            return None
        del world.running[at.spec.table]
        if world.now >= TROUBLE or (at.end == "declined" and not at.is_light):  # Spark declines nothing
            at.end = "ok"
        return Declined(at.spec, "it is too long") if at.end == "declined" else TableOutcome(self.result(at))

    def result(self, at: At) -> JobResult:
        table, world = at.spec.table, self.world
        if at.end == "busy":
            return _failed(table, "TABLE_BUSY")
        world.ended.append(table)
        if at.end == "failed":
            return _failed(table, "BROKEN")
        batches = min(BATCHES_A_TURN, at.sees - world.taken[table])
        world.taken[table] += batches
        world.since.pop(table, None)
        if world.taken[table] < world.landed[table]:
            world.since[table] = world.now
        return JobResult(table=table, status="succeeded" if batches else "skipped", batches=batches)


def _failed(table: str, code: str) -> JobResult:
    return JobResult(table=table, status="failed", error=ErrorInfo(code=code, message="no"))


@dataclass
class Files:
    """`Streams` that tell what the world says."""

    world: World

    def follow(self, specs: Sequence[TableSpec]) -> None: ...

    def news(self) -> Collection[str]:
        found, self.world.hints = self.world.hints, set()
        return found

    def close(self) -> None: ...


class Waiting(Stop):
    """A stop whose waits let the world's time pass, and which is asked for when the play is over."""

    def __init__(self, world: World, until: float) -> None:
        super().__init__()
        self.world, self.until = world, until

    def wait(self, seconds: float) -> None:
        self.world.let_pass(seconds)
        if self.world.now >= self.until:
            self.ask("the play is over")


def play(events: Sequence[Event], turns: Sequence[Turn], until: float) -> tuple[World, list[TableOutcome], list[str]]:
    """The world after the job has ended, the job's outcomes, and the tables that it reported."""
    with tempfile.TemporaryDirectory() as folder:
        world = World(folder, deque(sorted(events, key=lambda event: event.at)), turns)
        world.write()
        world.let_pass(0)
        stop, reported = Waiting(world, until), list[str]()
        world.asked = lambda: stop.is_asked
        options = JobOptions(continuous=Continuous(folder=folder))
        roots = Roots(landing=f"{folder}/landing", lake=f"{folder}/lake")
        job = JobSpec(run_id="r", roots=roots, tables=tuple(TABLES.values()), tiers=dict(world.tiers), options=options)

        loop = Loop(
            job,
            Runtime(storage=Storage(), spark=NoSpark()),
            lambda result: reported.append(result.table),
            stop,
            now=lambda: world.now,
            streams=lambda _job, _runtime, _wake: Files(world),
            open_threads=partial(Hands, world),
        )
        return world, loop.run(), reported


KINDS: tuple[Kind, ...] = ("land", "land unseen", "row", "gone", "back", "tiers", "tasks")
EVENTS = st.lists(
    st.builds(Event, at=st.integers(0, TROUBLE), kind=st.sampled_from(KINDS), table=st.sampled_from(sorted(TABLES))),
    max_size=25,
)
TURNS = st.lists(
    st.builds(
        Turn,
        end=st.sampled_from(("ok", "ok", "ok", "failed", "busy", "declined")),
        seconds=st.integers(0, LONGEST_TURN),
    ),
    min_size=1,
    max_size=12,
)
AGAIN = [Event(TROUBLE, "back", table) for table in TABLES]


@given(EVENTS, TURNS)
@example([Event(9, "land", "s.a"), Event(9, "gone", "s.a"), Event(11, "back", "s.a")], [Turn("ok", 8)])
def test_all_files_are_ingested_and_no_table_runs_twice_at_once(events: list[Event], turns: list[Turn]) -> None:
    world, outcomes, reported = play([*events, *AGAIN], turns, until=TROUBLE + RESTS)
    assert world.taken == world.landed
    assert reported == world.ended
    assert {outcome.result.table: outcome.result.status for outcome in outcomes}.keys() == TABLES.keys()
    assert {outcome.result.status for outcome in outcomes} <= {"succeeded", "skipped"}


@settings(max_examples=at_random(30))
@given(st.lists(st.builds(Event, at=st.integers(0, 20), kind=st.just("land"), table=st.sampled_from(sorted(TABLES))),
                max_size=20))  # fmt: skip
def test_new_files_are_ingested_promptly(events: list[Event]) -> None:
    """Before the turn that each table has whatever the files say."""
    last = max((event.at for event in events), default=0)
    until = last + len(events) + 10
    assert until < ANYWAY_SECONDS
    world, _, _ = play(events, [Turn("ok", 1)], until=until)
    assert world.taken == world.landed


def test_changed_tiers_and_stop_do_not_wait_for_slow_tables() -> None:
    """The second table waits for the first one's hand; it gets one of its own, and what nobody began is not begun."""
    events = [Event(0, "tiers", "s.a"), Event(7, "tiers", "s.a")]
    world, outcomes, _ = play(events, [Turn("ok", 400)], until=20)
    assert {outcome.result.table for outcome in outcomes} == TABLES.keys()
    assert world.now < 20 + 400 + POLL_SECONDS


def test_job_without_tables_after_changed_tiers_ends() -> None:
    """A pipeline that is gone leaves an order without tables, and with the tiers of nobody."""
    world, outcomes, _ = play([Event(3, "tiers", "s.a"), Event(3, "no tables", "s.a")], [Turn("ok", 1)], until=500)
    assert world.now < 10 + POLL_SECONDS
    assert outcomes == []


def test_threads_are_opened_for_a_job_without_tables() -> None:
    roots = Roots(landing="/nowhere/landing", lake="/nowhere/lake")
    runtime = Runtime(storage=Storage(), spark=NoSpark())
    threads = TableThreads(JobSpec(run_id="r", roots=roots, tables=tuple(TABLES.values())), runtime, lambda: None)
    assert threads.fit(JobSpec(run_id="r", roots=roots, tables=(), tiers={"small": TierSpec(cores=7)})) == []
    assert not threads.is_busy


class LostSpark(NoSpark):
    """Can't be started again once a table is at work."""

    asked = 0

    @property
    def end(self) -> GddlError | None:
        self.asked += 1
        return FatalError("SPARK_GONE", "it has ended") if self.asked > 1 else None


class SlowThreads(TableThreads):
    """Threads whose tables end at the third question."""

    specs: Sequence[TableSpec] = ()
    asked = 0

    @property
    def is_busy(self) -> bool:
        return self.asked < 3

    def start(self, specs: Sequence[TableSpec]) -> None:
        self.specs = self.specs or specs

    def finished(self) -> list[TableOutcome]:
        self.asked += 1
        done = self.specs if self.asked == 3 else ()
        return [TableOutcome(JobResult(table=spec.table, status="succeeded"), retriable=False) for spec in done]


def test_a_job_whose_spark_is_lost_reports_the_tables_at_work() -> None:
    with tempfile.TemporaryDirectory() as folder:
        roots, shown = Roots(landing=f"{folder}/landing", lake=f"{folder}/lake"), list[JobResult]()
        options = JobOptions(continuous=Continuous())
        job = JobSpec(run_id="r", roots=roots, tables=tuple(TABLES.values()), options=options)
        runtime = Runtime(storage=Storage(), spark=LostSpark())
        loop = Loop(job, runtime, shown.append, Stop(), open_threads=SlowThreads)
        with pytest.raises(GddlError, match="SPARK_GONE"):
            loop.run()
    assert {result.table for result in shown} == set(TABLES)
