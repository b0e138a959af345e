"""What a change table says of the files that it came from."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from airflow_gddl.contract.sql_types import parse_type
from spark_jobs.plan.generations import RecordedFile
from spark_jobs.plan.table_schema import GDDL
from spark_jobs.rules.arrays import arrow_type
from spark_jobs.rules.order import recorded_files

NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)


def _recorded(sequence_type: str, rows: list[tuple[str, int, Any, int]]) -> list[RecordedFile]:
    """Of changes by file, generation, sequence and minutes after noon."""
    kind = parse_type(
        f"struct<sequence:{sequence_type},source_file:string,generation:int,applied_at:timestamp,batch_id:string,"
        "position:bigint,commit_ts:timestamp>"
    )
    changes = [
        {
            "sequence": sequence,
            "source_file": file,
            "generation": generation,
            "applied_at": NOON + timedelta(minutes=at),
            "commit_ts": NOON - timedelta(minutes=at),
            "batch_id": f"{at:012d}",
            "position": at,
        }
        for file, generation, sequence, at in rows
    ]
    return recorded_files([pa.table({GDDL: pa.array(changes, arrow_type(kind))})], kind)


@pytest.mark.parametrize(
    ("sequence_type", "sequences", "greatest"),
    [
        ("bigint", [9, 10, None], "10"),
        ("string", ["9", "10", None], '"9"'),
        ("struct<a:bigint,b:string>", [{"a": 1, "b": "z"}, {"a": 2, "b": "a"}, None], '{"a":2,"b":"a"}'),
    ],
)
def test_highest_sequence_of_a_file(sequence_type: str, sequences: list[Any], greatest: str) -> None:
    found = _recorded(sequence_type, [("f", 1, sequence, 0) for sequence in sequences])
    assert [file.max_sequence for file in found] == [greatest]


def test_recorded_file_has_its_latest_time() -> None:
    rows = [("a", 1, 5, 0), ("b", 1, 9, 3), ("a", 1, 4, 7), ("a", 2, None, 1)]
    found = sorted(_recorded("bigint", rows), key=lambda file: (file.path, file.generation))
    first: dict[str, Any] = {"rows": 2, "max_sequence": "5", "min_sequence": "4",
                             "max_commit_ts": "2024-01-01T12:00:00.000000Z"}  # fmt: skip
    second: dict[str, Any] = {"rows": 1, "max_sequence": None}
    other: dict[str, Any] = {"rows": 1, "max_sequence": "9", "min_sequence": "9",
                             "max_commit_ts": "2024-01-01T11:57:00.000000Z"}  # fmt: skip

    def read(by: int) -> dict[str, Any]:
        return {"read_by": f"{by:012d}", "position": by}

    assert found == [
        RecordedFile(path="a", generation=1, applied_at="2024-01-01T12:07:00+00:00", batch=7, **read(7), **first),
        RecordedFile(path="a", generation=2, applied_at="2024-01-01T12:01:00+00:00", batch=1, **read(1), **second),
        RecordedFile(path="b", generation=1, applied_at="2024-01-01T12:03:00+00:00", batch=3, **read(3), **other),
    ]


def test_no_changes_record_nothing() -> None:
    assert _recorded("bigint", []) == []
