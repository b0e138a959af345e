"""Steps of the pipeline that no scenario has: a replay of the quarantine, and tombstones past their retention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from airflow_gddl.contract.actions import Explain, HandleErrors
from airflow_gddl.contract.spec import JobOptions, TableSpec
from spark_jobs.batch.runtime import Step
from tests.harness.lake import Lake
from tests.harness.landing import write

NANOS = 1_700_000_000_123_456_789

REPLAY = JobOptions(action=HandleErrors(mode="replay"))


def _land(lake: Lake, spec: TableSpec, number: int, rows: Sequence[tuple[str, int, int, int]]) -> None:
    """A change file of (operation, sequence, id, time in nanoseconds)."""
    op, seq, key, at = (list(column) for column in zip(*rows, strict=True))
    table = pa.table({"Op": op, "seq": seq, "id": key, "at": pa.array(at, pa.timestamp("ns"))})
    write(Path(lake.layout(spec).landing), f"20240101-{number:09d}.parquet", table)


def _ids(lake: Lake, spec: TableSpec) -> list[int]:
    return sorted(row["id"] for row in lake.rows(lake.layout(spec).replica))


class BrokenOffError(Exception):
    """The run ends here."""


@pytest.mark.parametrize("step", [None, "plan", "append", "decide", "tombstones", "replica", "commit"])
def test_replay_loads_valid_records(step: str | None, tmp_path: Path) -> None:
    """Also where a replay broke off after a step, which the next run goes on with."""
    refused = TableSpec(table="s.t", keys=("id",), sequence_by=("seq",), sub_microseconds="quarantine")
    taken = TableSpec(table="s.t", keys=("id",), sequence_by=("seq",), sub_microseconds="truncate")
    lake = Lake(tmp_path)
    _land(lake, refused, 1, [("I", 1, 1, 0), ("I", 2, 2, NANOS)])
    assert lake.raising(refused).quarantined == 1
    assert _ids(lake, refused) == [1]

    def observe(reported: Step) -> None:
        if reported.step == step:
            raise BrokenOffError

    if step is None:
        lake.raising(taken, REPLAY)
    else:
        with pytest.raises(BrokenOffError):
            lake.raising(taken, REPLAY, observe=observe)
        lake.raising(taken, REPLAY)
    assert _ids(lake, taken) == [1, 2]
    assert [row["resolved_at"] is None for row in lake.rows(lake.layout(taken).errors)] == [False]
    assert len(lake.rows(lake.layout(taken).changes)) == 2


@pytest.mark.parametrize(("days", "ids"), [(29, [2, 3, 4, 5]), (31, [1, 2, 3, 4, 5])])
def test_late_change_restores_a_row_only_after_retention(days: int, ids: list[int], tmp_path: Path) -> None:
    spec = TableSpec(table="s.t", keys=("id",), sequence_by=("seq",), tombstone_retention="30d")
    lake, began = Lake(tmp_path), datetime.now(UTC)
    _land(lake, spec, 1, [("I", 1, 1, 0), ("I", 2, 2, 0), ("D", 9, 1, 0)])
    lake.raising(spec, clock=lambda: began)
    later = began + timedelta(days=days)
    _land(lake, spec, 2, [("I", 10, 5, 0)])
    lake.raising(spec, clock=lambda: began + timedelta(hours=1))
    _land(lake, spec, 3, [("I", 10, 3, 0)])
    lake.raising(spec, clock=lambda: later)  # forgets tombstones after its merge
    _land(lake, spec, 4, [("U", 5, 1, 0), ("I", 11, 4, 0)])
    lake.raising(spec, clock=lambda: later + timedelta(hours=1))
    assert _ids(lake, spec) == ids


def test_changes_of_a_key_are_explained(tmp_path: Path) -> None:
    spec, lake = TableSpec(table="s.t", keys=("id",), sequence_by=("seq",)), Lake(tmp_path)
    _land(lake, spec, 1, [("I", 1, 1, 0), ("I", 2, 2, 0), ("D", 9, 1, 0)])
    lake.raising(spec)
    _land(lake, spec, 2, [("U", 5, 1, 0)])
    lake.raising(spec)
    options = JobOptions(action=Explain(key={"id": "1"}))
    found = lake.done(spec, options).details
    assert [(c["sequence"], c["op"], c["state"]) for c in found["changes"]] == [
        (1, "I", "superseded"), (5, "U", "late"), (9, "D", "winner"),
    ]  # fmt: skip
    assert (found["outcome"], found["verdict"], found["tombstone"]["sequence"]) == ("deleted", "equal", 9)


def test_another_policy_of_deletes_is_applied_to_the_rows_that_are_there(tmp_path: Path) -> None:
    """Rows that are marked deleted go with the marks, and new marks say that no row is deleted."""
    lake, hard = Lake(tmp_path), TableSpec(table="s.t", keys=("id",), sequence_by=("seq",), sub_microseconds="truncate")
    soft = replace(hard, delete="soft")
    _land(lake, soft, 1, [("I", 1, 1, 0), ("I", 2, 2, 0), ("D", 3, 2, 0), ("I", 4, 3, 0)])
    lake.raising(soft)
    _land(lake, soft, 2, [("D", 5, 3, 0)])
    lake.raising(soft)

    def marks() -> dict[int, bool | None]:
        return {row["id"]: row["_gddl"].get("deleted") for row in lake.rows(lake.layout(hard).replica)}

    assert marks() == {1: False, 2: True, 3: True}
    _land(lake, hard, 3, [("I", 6, 4, 0)])
    lake.raising(hard)
    assert marks() == {1: None, 4: None}
    _land(lake, soft, 4, [("D", 7, 4, 0)])
    lake.raising(soft)
    assert marks() == {1: False, 4: True}
