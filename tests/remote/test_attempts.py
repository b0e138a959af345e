"""Never two runs at once; a lost worker's run is taken up; a real failure is submitted again (A11)."""

from __future__ import annotations

import os
import signal
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from airflow_gddl.contract.actions import Action, Erase, Explain, ResyncRows, Verify
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.layout import spec_path
from airflow_gddl.contract.spec import Continuous, JobOptions
from airflow_gddl.runners.interface import JobOutcome
from airflow_gddl.runners.remote import Submission
from tests.remote.heard import Heard
from tests.remote.world import KEY, LAKE, TABLES, Fuse, MemoryRun, World, spec_of

FUSES = st.one_of(st.just(Fuse()), st.builds(Fuse, left=st.integers(1, 25), after=st.booleans(), burnt=st.just(0)))


def codes(world: World) -> dict[str, str]:
    return {result.table: result.error.code if result.error else result.status for result in world.reported}


def to_the_end(world: World, *, good: bool = True, state: str = "succeeded") -> None:
    """The job answers for every table, and its run ends."""
    run = world.platform.active
    assert run is not None
    for table in run.spec.tables:
        world.platform.answer(table.table, good=good)
    run.state = state  # type: ignore[assignment] # one of the states


def the_rest_succeeds(world: World, run: int) -> None:
    """This run has all tables but the first, and completes the task."""
    assert [table.table for table in world.platform.runs[run].spec.tables] == ["s.b", "s.c"]
    to_the_end(world)
    assert world.work()
    assert world.done == set(TABLES)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("step", range(1, 30))
def test_a_worker_lost_at_any_step_leaves_one_run_to_the_next(step: int, after: bool) -> None:
    world = World()
    world.work(Fuse(left=step, after=after))
    for _ in range(6):
        if world.platform.active:
            to_the_end(world)
        if world.work():
            break
    assert len(world.platform.runs) == 1
    assert world.done == set(TABLES)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("step", range(1, 30))
def test_a_worker_lost_while_it_collects_leaves_the_results_to_the_next(step: int, after: bool) -> None:
    world = World()
    world.work()
    to_the_end(world)
    for _ in range(6):
        if world.work(Fuse(left=step, after=after)) or world.work():
            break
    assert len(world.platform.runs) == 1
    assert world.done == set(TABLES)


def test_a_worker_lost_while_it_marks_attempts_as_taken_leaves_the_last_one_to_the_next() -> None:
    """Its results count once; a table that is cleared, and that the last attempt did not have, runs again."""
    world = World()
    world.work()
    world.platform.answer("s.a", good=True)
    first = world.platform.active
    assert first is not None
    world.stop_task()
    first.state = "cancelled"
    world.work()
    second = world.platform.active
    assert second is not None
    second.state = "failed"
    assert not world.work(Fuse(left=11, after=True))
    assert [attempt.ended for attempt in world.attempts.all()] == [True, False]
    world.done.clear()
    assert not world.work()
    assert [[t.table for t in run.spec.tables] for run in world.platform.runs[1:]] == [["s.b", "s.c"], ["s.a"]]
    to_the_end(world)
    assert world.work()
    assert codes(world) == {"s.a": "succeeded", "s.b": "REMOTE_RUN_FAILED", "s.c": "REMOTE_RUN_FAILED"}
    assert all(attempt.ended for attempt in world.attempts.all())


@pytest.mark.parametrize("succeeds_later", [False, True])
def test_a_failure_that_is_seen_while_the_run_goes_on_keeps_its_error(succeeds_later: bool) -> None:
    """Of a caller that waits; unless the platform starts the run again and the table succeeds."""
    world = World()

    def end() -> None:
        run = world.platform.active
        assert run is not None
        run.state = "failed"

    steps = iter(
        [
            lambda: world.platform.answer("s.a", good=False),
            lambda: world.platform.answer("s.b", good=True),
            lambda: world.platform.answer("s.a", good=True) if succeeds_later else None,
            lambda: None,
            end,
        ]
    )
    runner = replace(world.runner(), patient=True, sleep=lambda _: next(steps)())
    heard = Heard()
    runner.run(spec_of(TABLES, "j"), heard)
    wanted = "succeeded" if succeeds_later else "SCHEMA_REFUSED"
    assert heard.states == {"s.a": wanted, "s.b": "succeeded", "s.c": "REMOTE_RUN_FAILED"}
    assert len(heard.results) == len(TABLES)


def test_a_failure_is_reported_once_and_the_next_try_runs_the_remaining_tables() -> None:
    world = World()
    world.work()
    for table in TABLES[:2]:
        world.platform.answer(table, good=table != "s.a")
    run = world.platform.active
    assert run is not None
    run.state = "failed"
    assert world.work()
    assert codes(world) == {"s.a": "SCHEMA_REFUSED", "s.b": "succeeded", "s.c": "REMOTE_RUN_FAILED"}
    (unanswered,) = (result for result in world.reported if result.table == "s.c")
    assert unanswered.error is not None
    assert "as told" in unanswered.error.message
    assert "https://runs/0" in unanswered.error.message
    world.work()
    assert [[t.table for t in run.spec.tables] for run in world.platform.runs] == [list(TABLES), ["s.a", "s.c"]]
    assert len({run.token for run in world.platform.runs}) == 2
    assert all(len(run.token) <= 64 for run in world.platform.runs)


def test_a_run_cancelled_on_the_platform_fails_its_tables_but_a_stopped_one_does_not() -> None:
    world = World()
    world.work()
    first = world.platform.active
    assert first is not None
    first.state = "cancelled"
    assert world.work()
    assert set(codes(world).values()) == {"REMOTE_RUN_CANCELLED"}
    world.work()
    second = world.platform.active
    assert second is not None
    world.platform.answer("s.a", good=True)
    world.stop_task()
    assert second.stopping
    # The next try waits until it is gone, keeps what it did, and has the rest done.
    world.work()
    assert world.platform.active is second
    second.state = "cancelled"
    assert not world.work()
    the_rest_succeeds(world, run=2)


def timed_out() -> World:
    """A task that has reached its time limit with the first of its tables done."""
    world = World()
    world.work()
    world.platform.answer("s.a", good=True)
    world.time_out()
    (run,) = world.platform.runs
    assert run.stopping
    run.state = "cancelled"
    return world


def test_a_run_at_its_time_limit_is_collected_and_the_next_try_runs_the_rest() -> None:
    world = timed_out()
    assert world.work()
    assert codes(world) == {"s.a": "succeeded", "s.b": "RUN_TIMEOUT", "s.c": "RUN_TIMEOUT"}
    assert len(world.platform.runs) == 1, "a run after it would have a whole new limit"
    world.work()
    the_rest_succeeds(world, run=1)


def test_what_a_lost_worker_left_at_its_time_limit_costs_the_next_try_nothing() -> None:
    world = timed_out()
    world.begun = None  # the worker died before it could collect: Airflow starts the next try
    assert not world.work()
    the_rest_succeeds(world, run=1)


def test_a_run_that_can_t_be_cancelled_at_its_time_limit_is_waited_for() -> None:
    world = World()
    world.work()
    world.platform.refuses_cancel = True
    with pytest.raises(FatalError, match="PLATFORM_REFUSED"):
        world.time_out()
    assert not world.work(), "the run has not ended"
    to_the_end(world)
    assert world.work()
    assert world.done == set(TABLES)
    assert len(world.platform.runs) == 1


def test_a_run_that_the_platform_broke_is_started_again_under_its_handle() -> None:
    world = World()
    world.work()
    (run,) = world.platform.runs
    run.state, run.restartable = "failed", True
    assert not world.work()
    assert (run.restarted, run.state, world.waiting is not None) == (1, "running", True)


def test_where_starting_again_is_refused_the_run_has_failed() -> None:
    world = World()
    world.work()
    (run,) = world.platform.runs
    run.state, run.restartable, world.platform.refuses_restart = "failed", True, True
    assert world.work()
    assert set(codes(world).values()) == {"REMOTE_RUN_FAILED"}


@pytest.mark.parametrize("code", ["CONTRACT_VERSION", "SPEC_INVALID", "S3_BUCKET_MISSING", "PACKAGE_MISSING"])
def test_a_rejected_spec_is_reported_with_its_code(code: str) -> None:
    """A wheel of another version, or a role that reaches no order: the same for each table, and nothing was written."""
    world = World()
    world.work()
    (run,) = world.platform.runs
    run.state, run.message = "failed", f"RUN_EXECUTION_ERROR: FatalError: [{code}] the words. Remedy: do this"
    assert world.work()
    assert set(codes(world).values()) == {code}
    error = world.reported[0].error
    assert error is not None
    assert all(part in error.message for part in ("ended before its first table", "Remedy: do this", "https://runs/0"))


def test_foreign_text_in_brackets_is_not_read_as_a_code() -> None:
    world = World()
    world.work()
    (run,) = world.platform.runs
    run.state, run.message = "failed", "[PATH_NOT_FOUND] of Spark"
    assert world.work()
    assert set(codes(world).values()) == {"REMOTE_RUN_FAILED"}


def test_a_lost_run_fails_its_tables() -> None:
    world = World()
    world.work()
    world.platform.runs[0].state = "lost"
    assert world.work()
    assert set(codes(world).values()) == {"REMOTE_RUN_LOST"}


def test_two_workers_with_the_same_task_share_one_run() -> None:
    world = World()
    one, other = world.runner(), world.runner()
    assert one.attempts_of_try() == other.attempts_of_try() == []
    mine = one.attempts.begin(1, Submission(run_id="j1-1", size="small", tables=TABLES))
    theirs = other.attempts.begin(1, Submission(run_id="j2-1", size="small", tables=TABLES[:1]))
    assert mine == theirs


def test_how_far_an_attempt_came_is_remembered() -> None:
    world = World()
    world.work()
    (attempt,) = world.attempts.all()
    assert attempt.handle is not None
    assert (attempt.handle.run, attempt.stopped, attempt.ended) == ("0", False, False)
    world.stop_task()
    assert world.attempts.all()[0].stopped
    to_the_end(world)
    world.work()
    assert world.attempts.all()[0].ended


def test_a_command_that_is_stopped_cancels_its_run_and_says_what_was_done() -> None:
    world, sleeps = World(), []

    def sleep(_: float) -> None:
        world.platform.answer("s.a", good=True)
        sleeps.append(1)
        if len(sleeps) == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    runner = replace(world.runner(), patient=True, sleep=sleep)
    heard = Heard()
    outcome = runner.run(spec_of(TABLES, "j"), heard)
    found = {r.table: r.error.code if r.error else r.status for r in heard.results}
    assert found == {"s.a": "succeeded", "s.b": "JOB_CANCELLED", "s.c": "JOB_CANCELLED"}
    assert (outcome.cancelled_by, outcome.exit_status) == (signal.SIGTERM, 143)
    assert world.platform.runs[0].stopping


def test_a_worker_that_is_killed_while_it_has_a_run_cancels_it() -> None:
    world = World()
    runner = world.runner()
    runner.stop()
    assert world.platform.runs == []
    runner.run(spec_of(TABLES, "j"), Heard())
    runner.stop()
    assert world.platform.runs[0].stopping
    assert world.attempts.all()[0].stopped


def test_a_damaged_record_is_reported_with_its_path() -> None:
    world = World()
    path = f"{LAKE}/_gddl/submissions/p/{KEY.digest}/000001-submission.json"
    world.store.objects[path] = b"{"
    with pytest.raises(FatalError, match=r"ATTEMPTS_DAMAGED.*000001-submission"):
        world.runner().attempts_of_try()


def test_tables_of_two_tiers_have_a_run_each() -> None:
    world = World()
    spec = spec_of(TABLES, "j")
    large = type(spec.tables[0])(table="s.l", keys=("id",), size="large")
    runner = world.runner()
    both = type(spec)(run_id="j", roots=spec.roots, tables=(*spec.tables, large))
    for _ in range(4):
        if world.platform.active:
            to_the_end(world)
        if runner.run(both, _Deaf()).waiting is None:
            break
    assert [[t.table for t in run.spec.tables] for run in world.platform.runs] == [list(TABLES), ["s.l"]]


class _Deaf:
    def on_progress(self, _: object) -> None: ...

    def on_result(self, _: object) -> None: ...


class Machine(RuleBasedStateMachine):
    """Workers, people and the platform, each doing what they like; `MemoryPlatform` refuses a second run at once."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.accounted: set[int] = set()

    @rule(fuse=FUSES)
    def work(self, fuse: Fuse) -> None:
        before = list(self.world.platform.runs)
        was_ended = [not run.is_active for run in before]
        finished = self.world.work(Fuse(left=fuse.left, after=fuse.after))
        runs = self.world.platform.runs
        for run in runs[len(before) :]:
            # A new run has a reason: the ones before are over, and each of its tables was in none, or in one that was
            # stopped on request or taken account of.
            assert all(was_ended)
            unaccounted = {
                table.table
                for number, earlier in enumerate(before)
                if not earlier.stopping and number not in self.accounted
                for table in earlier.spec.tables
            }
            assert not unaccounted & {table.table for table in run.spec.tables}
        if finished:
            self.accounted = set(range(len(runs)))
        ends = [attempt.number for attempt in self.world.attempts.all() if attempt.ended]
        self.accounted |= {number - 1 for number in ends}

    @precondition(lambda self: self.world.platform.active is not None)
    @rule(which=st.sampled_from(TABLES), good=st.booleans())
    def answer(self, which: str, good: bool) -> None:
        run = self.world.platform.active
        assert run is not None
        if which in {table.table for table in run.spec.tables} - set(run.answered):
            self.world.platform.answer(which, good=good)

    @precondition(lambda self: self.world.platform.active is not None)
    @rule(state=st.sampled_from(["succeeded", "failed", "cancelled", "lost"]), restartable=st.booleans())
    def end(self, state: str, restartable: bool) -> None:
        run = self.world.platform.active
        assert run is not None
        run.state = state  # type: ignore[assignment] # one of the states
        run.restartable = restartable and state == "failed" and run.restarted == 0

    @precondition(lambda self: self.world.waiting is not None)
    @rule(fuse=FUSES)
    def stop(self, fuse: Fuse) -> None:
        self.world.stop_task(Fuse(left=fuse.left, after=fuse.after))

    @precondition(lambda self: self.world.begun is None)
    @rule()
    def clear(self) -> None:
        self.world.done.clear()

    @invariant()
    def one_token_one_run(self) -> None:
        tokens = [run.token for run in self.world.platform.runs]
        assert len(set(tokens)) == len(tokens)

    @invariant()
    def what_is_done_was_done(self) -> None:
        good = {table for run in self.world.platform.runs for table, fine in run.answered.items() if fine}
        assert self.world.done <= good


Machine.TestCase.settings = settings(stateful_step_count=25, suppress_health_check=[HealthCheck.too_slow])
TestMachine = Machine.TestCase


@pytest.mark.parametrize(
    ("action", "stays"),
    [
        (Erase(key={"id": "7"}), False), (Explain(key={"id": "7"}), False), (ResyncRows(keys=({"id": "7"},)), False),
        (Verify(), True),
    ],
)  # fmt: skip
def test_a_specification_with_keys_of_rows_goes_when_its_run_has_ended(action: Action, stays: bool) -> None:
    world = World()
    job = replace(spec_of(TABLES, "j1"), options=JobOptions(action=action))
    assert world.runner(0).run(job, Heard()).waiting is not None
    run = world.platform.active
    assert run is not None
    path = spec_path(LAKE, run.spec.run_id)
    assert world.store.read(path)
    to_the_end(world)
    assert world.runner(0).run(job, Heard()).waiting is None
    assert [item.path for item in world.store.list(path.rpartition("/")[0])] == ([path] if stays else [])


def going_on(world: World) -> tuple[JobOutcome, Heard]:
    """What a try makes of its job that goes on."""
    job, heard = spec_of(TABLES, f"j{world.tries}"), Heard()
    options = JobOptions(continuous=Continuous(folder="s3://lake/_gddl/continuous/p", seconds=60))
    runner = world.runner(0)
    outcome = runner.run(replace(job, options=options), heard)
    world.waiting = outcome.waiting
    return outcome, heard


def after_a_turn() -> tuple[World, MemoryRun]:
    """A job that goes on, and one of its tables has had a turn."""
    world = World()
    going_on(world)
    world.platform.answer("s.a", good=True)
    run = world.platform.active
    assert run is not None
    return world, run


@pytest.mark.parametrize("state", ["failed", "cancelled", "lost"])
def test_a_crashed_continuous_job_fails_although_every_table_succeeded(state: str) -> None:
    """Else the next run would follow at once, again and again, and nobody would be told."""
    world = World()
    assert going_on(world)[0].waiting is not None
    to_the_end(world, state=state)
    outcome, heard = going_on(world)
    assert set(heard.states.values()) == {"succeeded"}
    assert (outcome.exit_status, outcome.waiting) == (1, None)
    assert outcome.log == "https://runs/0"


def test_a_table_that_had_no_turn_before_its_job_s_time_was_over_has_not_failed() -> None:
    world, run = after_a_turn()
    run.state = "succeeded"
    outcome, heard = going_on(world)
    assert (heard.states, outcome.exit_status) == ({"s.a": "succeeded"}, 0)


def test_a_stopped_continuous_job_is_not_restarted_for_remaining_tables() -> None:
    world, run = after_a_turn()
    world.stop_task()
    run.state = "cancelled"
    outcome, heard = going_on(world)
    assert (outcome.waiting, outcome.exit_status) == (None, 0)
    assert heard.states == {"s.a": "succeeded"}
    assert len(world.platform.runs) == 1
