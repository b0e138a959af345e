"""A history that an earlier release made has no times: the next batch adds them, to versions of all keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from airflow_gddl.contract.actions import Rebuild
from airflow_gddl.contract.spec import JobOptions, TableSpec
from spark_jobs.batch.runtime import Step
from spark_jobs.plan import applied_settings
from spark_jobs.rules import history
from spark_jobs.tables import table_definition
from tests.conftest import LocalPort
from tests.harness.lake import TIER, Lake, spec_of
from tests.oracle import DeliveredFile, Run

SPEC = spec_of(history=True, options={"timestamp_column": "at"})
TYPES = {"Op": "string", "seq": "int64", "at": "timestamp[us]", "id": "int32", "v": "string"}
FIRST, SECOND, THIRD = (datetime(2024, 1, 1, hour, tzinfo=UTC) for hour in (8, 9, 10))


class KilledError(BaseException):
    """The run ends here, as by a signal: nothing handles it."""


def changes(number: int, *rows: tuple[str, int, datetime, int, str]) -> Run:
    found = [dict(zip(TYPES, row, strict=True)) | {"at": row[2].replace(tzinfo=None)} for row in rows]
    name = f"20240101-{number:09d}.parquet"
    return Run((DeliveredFile(name=name, kind="change", columns=tuple(TYPES), rows=tuple(found)),))


@contextmanager
def earlier_release() -> Iterator[None]:
    """Histories have no times, and the ledger says nothing of them."""
    settings_of = applied_settings.settings_of
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(history, "TIMES", ())
        patch.setattr(table_definition, "TIMES", ())
        patch.setattr(
            "spark_jobs.batch.commit.settings_of", lambda spec: replace(settings_of(spec), history_times=False)
        )
        yield


def times(lake: Lake) -> Sequence[tuple[Any, ...]]:
    names = ("id", "v", "__valid_from", "__valid_to")
    return sorted((tuple(row.get(name) for name in names) for row in lake.rows(lake.layout(SPEC).history)), key=str)


def begun(root: Path) -> Lake:
    """The lake of an earlier release, with a version that has ended and two that are current."""
    lake = Lake(root)
    lake.land(SPEC, changes(1, ("I", 1, FIRST, 1, "a"), ("I", 2, FIRST, 2, "x"), ("U", 3, SECOND, 1, "b")), TYPES)
    with earlier_release():
        lake.done(SPEC)
    assert times(lake) == [(1, "a", None, None), (1, "b", None, None), (2, "x", None, None)]
    assert all("__valid_from" not in row for row in lake.rows(lake.layout(SPEC).history))
    return lake


WANTED = [(1, "a", FIRST, SECOND), (1, "b", SECOND, None), (2, "x", FIRST, THIRD)]


@pytest.mark.deep_on_many
def test_the_next_batch_adds_the_times_of_all_keys(engine: LocalPort, tmp_path: Path) -> None:
    begun(tmp_path)
    assert_added(Lake(tmp_path, port=engine))


@pytest.mark.deep
def test_it_adds_them_by_a_merge(tmp_path: Path) -> None:
    begun(tmp_path)
    assert_added(Lake(tmp_path, replace(TIER, commit="merge", tasks="many"), LocalPort("many")))


def assert_added(lake: Lake) -> None:
    """Also of keys that the batch does not touch; later batches derive only the versions of their own keys."""
    lake.land(SPEC, changes(2, ("D", 4, THIRD, 2, "x")), TYPES)
    lake.done(SPEC)
    assert times(lake) == WANTED
    lake.land(SPEC, changes(3, ("I", 5, THIRD, 3, "n")), TYPES)
    lake.done(SPEC)
    assert times(lake) == [*WANTED, (3, "n", THIRD, None)]


def test_a_rebuild_adds_them(tmp_path: Path) -> None:
    lake = begun(tmp_path)
    lake.done(SPEC, JobOptions(action=Rebuild()))
    assert times(lake) == [(1, "a", FIRST, SECOND), (1, "b", SECOND, None), (2, "x", FIRST, None)]


def test_a_batch_that_an_earlier_release_left_behind_its_history(tmp_path: Path) -> None:
    """This release only commits it, so that the batch after it adds the times."""
    lake = begun(tmp_path)
    lake.land(SPEC, changes(2, ("D", 4, THIRD, 2, "x")), TYPES)

    def killed(reported: Step) -> None:
        if reported.step == "history":
            raise KilledError

    with earlier_release(), pytest.raises(KilledError):
        lake.raising(SPEC, observe=killed)
    lake.done(SPEC)
    lake.land(SPEC, changes(3, ("I", 5, THIRD, 3, "n")), TYPES)
    lake.done(SPEC)
    assert times(lake) == [*WANTED, (3, "n", THIRD, None)]


def test_a_history_that_was_off_for_a_while_has_the_times_of_all_keys(tmp_path: Path) -> None:
    lake = begun(tmp_path)
    off: TableSpec = replace(SPEC, history=False)
    lake.land(off, changes(2, ("D", 4, THIRD, 2, "x")), TYPES)
    lake.done(off)
    lake.land(SPEC, changes(3, ("I", 5, THIRD, 3, "n")), TYPES)
    lake.done(SPEC)
    assert times(lake) == [*WANTED, (3, "n", THIRD, None)]
