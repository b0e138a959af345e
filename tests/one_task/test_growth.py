"""Nothing of a small table grows with the number of its runs, once retention has passed."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from airflow_gddl.contract.result import JobResult
from airflow_gddl.runtime.state.recording import read_records
from airflow_gddl.stores import Storage, lake_files
from spark_jobs.batch import tidying
from spark_jobs.batch.runtime import Clock
from spark_jobs.tables import delta_log, small_files
from tests.harness.lake import Lake, spec_of

pytestmark = pytest.mark.wide

EVERY = 20
SPEC = spec_of(settle="0s", history=True, delete="soft")
LONG_AGO = datetime.now(UTC) - timedelta(days=90)
OPERATIONS = ("list", "stat", "exists", "read_tagged", "write", "create", "swap", "delete")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Calls of the store; a table tidies up five times as often, so that few runs show what many do."""
    found = Counter[str]()

    def counted(name: str, real: Callable[..., object]) -> Callable[..., object]:
        def method(self: Storage, *arguments: object, **named: object) -> object:
            found[name] += 1
            return real(self, *arguments, **named)

        return method

    for name in OPERATIONS:
        monkeypatch.setattr(Storage, name, counted(name, getattr(Storage, name)))
    monkeypatch.setattr(tidying, "BATCHES_PER_TIDYING", EVERY)
    monkeypatch.setattr(delta_log, "COMMITS_PER_CLEANUP", EVERY)
    monkeypatch.setattr(small_files, "MANY", EVERY)
    monkeypatch.setattr(lake_files, "LOOSE_LEFT", EVERY // 2)
    return found


def age(lake: Lake, to: datetime = LONG_AGO) -> None:
    """As if what was written so far were of another time."""
    for path in lake.root.rglob("*"):
        if path.is_file():
            os.utime(path, (to.timestamp(), to.timestamp()))


def runs(lake: Lake, first: int, last: int) -> list[JobResult]:
    found = []
    for number in range(first, last + 1):
        lake.change(SPEC, number, [("U", number % 3, f"v{number}")])
        found.append(lake.done(SPEC, clock=at_run(number)))
        age(lake)
    return found


def at_run(number: int) -> Clock:
    return lambda: LONG_AGO + timedelta(minutes=number)


def objects(lake: Lake) -> Counter[str]:
    """By folder."""
    root = lake.root / "lake"
    return Counter(str(path.parent.relative_to(root)) for path in root.rglob("*") if path.is_file())


def test_objects_and_requests_stay_level(tmp_path: Path, calls: Counter[str]) -> None:
    lake = Lake(tmp_path)
    lake.load(SPEC)
    lake.done(SPEC, clock=at_run(0))
    made: list[JobResult] = []
    at: dict[int, tuple[Counter[str], float, int]] = {}
    for last in (2 * EVERY + 5, 4 * EVERY + 5):
        calls.clear()
        made += runs(lake, len(made) + 1, last)
        per_run = calls.total() / (last - max(at, default=0))
        calls.clear()
        assert lake.done(SPEC, clock=at_run(last)).status == "skipped"
        at[last] = (objects(lake), per_run, calls.total())
    _, first_run, first_idle = next(iter(at.values()))
    for found, per_run, idle in at.values():
        assert max(found.values()) <= 2 * EVERY, "what gathers between two tidyings, in any folder"
        assert per_run <= 1.2 * first_run
        assert idle <= 1.2 * first_idle + 1
    codes = {warning.code for result in made for warning in result.warnings}
    assert codes == {"FILES_TOUCHED"}, "`age` changes the times of files"
    kept = read_records(lake.roots, SPEC.table, 10_000).results
    assert [result.started_at for result in kept][::-1][1:] == [result.started_at for result in made]
    assert lake.replica(SPEC) == {n % 3: f"v{n}" for n in range(len(made) - 2, len(made) + 1)}


@pytest.mark.parametrize(("days", "stay"), [(90, False), (6, True)])
def test_old_files_stay_as_long_as_the_row_says(tmp_path: Path, calls: Counter[str], days: int, *, stay: bool) -> None:
    """Readers of an older version find its files until `vacuum_retention`, 7 days, has passed."""
    lake, begun = Lake(tmp_path), datetime.now(UTC) - timedelta(days=days)
    lake.load(SPEC)
    for number in range(2 * EVERY + 1):
        if number:
            lake.change(SPEC, number, [("U", number % 3, f"v{number}")])
        lake.done(SPEC, clock=partial(_later, begun, number))
        age(lake, begun)
    files = list(Path(lake.layout(SPEC).replica).glob("*.parquet"))
    assert (len(files) >= 2 * EVERY) is stay
    assert stay or len(files) < EVERY


def _later(begun: datetime, number: int) -> datetime:
    return begun + timedelta(minutes=number)


def test_a_tidying_that_fails_is_no_failure_of_the_run(
    tmp_path: Path, calls: Counter[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lake = Lake(tmp_path)
    lake.load(SPEC)
    lake.done(SPEC, clock=at_run(0))
    runs(lake, 1, EVERY - 2)

    def fails(*_: object, **__: object) -> None:
        raise OSError("on purpose")

    monkeypatch.setattr("airflow_gddl.stores.lake_files.compact", fails)
    lake.change(SPEC, EVERY, [("U", 1, "last")])
    assert lake.done(SPEC, clock=at_run(EVERY)).status == "succeeded"
    assert "old files of s.t stay: on purpose" in caplog.messages


@pytest.mark.parametrize(("batch", "done", "due"), [(99, 1, False), (100, 1, True), (100, 0, False), (205, 7, True)])
def test_tidying_is_due_once_in_a_hundred_batches(batch: int, done: int, due: bool) -> None:
    assert tidying.is_due(batch, done) is due
