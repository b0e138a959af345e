"""When rows of older generations may vanish."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from spark_jobs.plan.planned_batch import BatchPlan, HeldSweep, TableState
from spark_jobs.plan.sweeps import RELEASED, SweepRule, held_sweep, sweep_state, with_sweep
from spark_jobs.plan.waiting_files import Discovery
from tests.harness.landed import planned_file

LOADED = datetime(2024, 1, 1, 12, tzinfo=UTC)
RULE = SweepRule(after=3600.0, limit=0.34)
AT_ONCE = SweepRule(after=0.0, limit=1.0)
STATE = TableState(batch=5, generation=3, swept=2, loaded_at=LOADED.isoformat())
OLDER = Discovery(older_loads=("LOAD00000002",))


def held(rows: int = 50) -> TableState:
    return replace(STATE, held=HeldSweep(generation=3, rows=rows, live=100, since=STATE.loaded_at or ""))


@pytest.mark.parametrize("state", [TableState(), TableState(generation=1), replace(STATE, swept=3)])
def test_there_is_nothing_to_sweep(state: TableState) -> None:
    assert sweep_state(state, OLDER, AT_ONCE, LOADED) == "none"


@pytest.mark.parametrize(("minutes", "expected"), [(0, "pending"), (59, "pending"), (60, "due")])
def test_partial_reload_is_complete_after_a_time(minutes: int, expected: str) -> None:
    assert sweep_state(STATE, OLDER, RULE, LOADED + timedelta(minutes=minutes)) == expected
    assert sweep_state(STATE, Discovery(), RULE, LOADED) == "due"


LEFT = {
    "a load file waits": Discovery(waiting=(planned_file("LOAD00000001.csv"),)),
    "a file is still written": Discovery(unsettled=("LOAD00000001.csv",)),
    "a load file can't be read": Discovery(unreadable_loads=("LOAD00000001.csv",)),
}


@pytest.mark.parametrize("what", LEFT)
def test_unloaded_files_prevent_the_sweep(what: str) -> None:
    for rule in (RULE, AT_ONCE, RELEASED):
        assert sweep_state(STATE, LEFT[what], rule, LOADED + timedelta(days=9)) == "pending"


def test_a_held_sweep_waits_for_a_release_or_another_limit() -> None:
    later = LOADED + timedelta(days=9)
    assert sweep_state(held(), Discovery(), RULE, later) == "held"
    assert sweep_state(held(), OLDER, RELEASED, LOADED) == "due"
    assert sweep_state(held(), Discovery(), replace(RULE, limit=0.5), later) == "due"
    assert sweep_state(replace(held(), generation=4), Discovery(), RULE, later) == "due", "another reload since"


PLAN = BatchPlan(
    number=6, mode="incremental", planned_at=LOADED.isoformat(), generation=3, files=(planned_file("LOAD1.csv", 3),),
    sweep=True,
)  # fmt: skip


def test_the_batch_with_the_last_load_file_sweeps_if_the_load_is_whole_then() -> None:
    assert with_sweep(PLAN, Discovery(), RULE).sweep
    assert not with_sweep(PLAN, OLDER, RULE).sweep
    assert with_sweep(PLAN, OLDER, AT_ONCE).sweep
    assert not with_sweep(PLAN, LEFT["a file is still written"], AT_ONCE).sweep
    assert not with_sweep(replace(PLAN, sweep=False), Discovery(), AT_ONCE).sweep


@pytest.mark.parametrize(("rows", "live", "is_held"), [(0, 0, False), (34, 100, False), (35, 100, True), (1, 1, True)])
def test_a_large_share_is_held(rows: int, live: int, is_held: bool) -> None:
    found = held_sweep(PLAN, rows, live, RULE)
    assert (found is not None) == is_held
    assert held_sweep(replace(PLAN, released=True), rows, live, RULE) is None
    if found is not None:
        assert (found.generation, found.rows, found.live) == (3, rows, live)
