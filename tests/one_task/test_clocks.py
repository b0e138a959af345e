"""A clock that jumps by hours, between runs and within them, changes neither rows nor results."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from airflow_gddl.runtime.state.recording import read_records, record_of
from spark_jobs.batch.runtime import Clock, utc_now
from spark_jobs.batch.totals import TableOutcome
from tests.harness.lake import Lake, spec_of

_HOURS = 20

Seen = tuple[list[str], list[tuple[str, str | None, tuple[str, ...], int]]]


def jumping(seed: int) -> Clock:
    """By up to 20 hours in either direction, at one reading of seven."""
    rng, ahead = random.Random(seed), [timedelta(0)]  # noqa: S311 - no secret

    def clock() -> datetime:
        if rng.random() < 1 / 7:
            ahead[0] = timedelta(hours=rng.uniform(-_HOURS, _HOURS))
        return datetime.now(UTC) + ahead[0]

    return clock


def play(root: Path, seed: int, clock: Clock) -> Seen:
    """The replica's rows, and of each run its status, error, warnings and changes: loads, a reload, late changes."""
    rng, lake = random.Random(seed), Lake(root)  # noqa: S311 - no secret
    spec = spec_of(settle="0s", history=True, sweep_after="0s", sweep_limit=1.0, delete=rng.choice(["hard", "soft"]))
    seen = []

    def run() -> None:
        found = lake.run(spec, clock=clock)
        assert isinstance(found, TableOutcome)
        result = found.result
        codes = tuple(sorted(warning.code for warning in result.warnings))
        seen.append((result.status, result.error and result.error.code, codes, result.changes_written))

    lake.load(spec, 5)
    run()
    for number in range(1, 10):
        of = number if rng.random() < 0.8 else 1000 - number
        lake.change(spec, of, [(rng.choice("IUD"), rng.randrange(8), f"{number}") for _ in range(4)])
        if number == 6:
            lake.load(spec, 4)
        run()
        if rng.random() < 0.3:
            run()
    rows = pa.table(DeltaTable(lake.layout(spec).replica).scan()).drop_columns("_gddl").to_pylist()
    return sorted(map(str, rows)), seen


def agree(root: Path, seed: int) -> None:
    steady, jumped = play(root / "steady", seed, utc_now), play(root / "jumping", seed, jumping(seed))
    assert jumped == steady
    assert steady[0]


@pytest.mark.parametrize("seed", [1, 2])
def test_a_clock_that_jumps_changes_nothing(tmp_path: Path, seed: int) -> None:
    agree(tmp_path, seed)


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(3, 40))
def test_more_clocks_that_jump(tmp_path: Path, seed: int) -> None:
    agree(tmp_path, seed)


def _fixed(at: datetime) -> datetime:
    return at


@pytest.mark.parametrize("fails", [True, False])
def test_runs_keep_their_order_after_a_clock_was_set_back(tmp_path: Path, fails: bool) -> None:
    """The last run is the newest on record, and its failure shows, though an earlier one began hours later."""
    lake, spec, start = Lake(tmp_path), spec_of(settle="0s"), datetime.now(UTC)
    lake.load(spec)
    begun = []
    for number, hours in enumerate((0, 5, 1, 0), start=1):
        at = start + timedelta(hours=hours, seconds=number)
        if number == 4 and fails:
            (Path(lake.layout(spec).state) / "plan.json").write_text("damaged")
        lake.change(spec, number, [("U", 0, f"{number}")])
        found = lake.run(spec, clock=partial(_fixed, at))
        assert isinstance(found, TableOutcome)
        begun.append(found.result.started_at)
    assert begun == sorted(set(begun))
    kept = read_records(lake.roots, spec.table, 10).results
    assert [result.started_at for result in kept] == begun[::-1], "the record says what the result said"
    record = record_of(lake.roots, spec.table, start.timestamp())
    assert record.failed is fails
    assert record.newest is not None
    assert record.newest.error == ("LEDGER_DAMAGED" if fails else None)
    assert [fact.seconds for fact in record.runs] == [0.0] * 4, "durations are those of the run's own clock"
