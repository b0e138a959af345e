"""Which stored rows a truncate deletes, and what stays of them."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from airflow_gddl.contract.spec import DeleteMode
from airflow_gddl.contract.sql_types import parse_type
from spark_jobs.plan.planned_batch import Truncate
from spark_jobs.plan.table_schema import GDDL, TableSchema
from spark_jobs.rules.arrays import arrow_type
from spark_jobs.rules.truncates import truncated
from tests.rules.changes import Change, table, table_schema


def truncate(sequence: int) -> Truncate:
    return Truncate(
        generation=1, sequence=str(sequence), commit_ts=None, source_file=f"t{sequence}", position=0,
        batch_id=f"{sequence:012d}", applied_at="2024-01-01T00:00:00+00:00", schema=0,
    )  # fmt: skip


def replica(schema: TableSchema, *sequences: int) -> pa.Table:
    """Live rows with these keys and sequences, as a replica has them."""
    rows = table([Change(op="I", id=each, seq=each, v="a") for each in sequences], schema)
    kind = arrow_type(parse_type(schema.gddl_type))
    gddl = pa.array(
        [{**row[GDDL], "deleted": False} for row in rows.to_pylist()], pa.struct([*kind, ("deleted", pa.bool_())])
    )
    return rows.set_column(rows.column_names.index(GDDL), GDDL, gddl)


@pytest.mark.parametrize("delete", ["hard", "soft"])
def test_rows_before_a_truncate_go_or_are_marked_by_it(delete: DeleteMode) -> None:
    schema = replace(table_schema(delete=delete), truncates=(truncate(5),))
    found = truncated(replica(schema, 3, 4, 6), schema)
    assert (found.rows.column("id").to_pylist(), found.live) == ([3, 4], 2)
    marks = [(row["id"], row[GDDL]["source_file"], row[GDDL]["deleted"]) for row in found.instead.to_pylist()]
    assert marks == ([(at, "t5", True) for at in (3, 4)] if delete == "soft" else [])


def test_rows_that_a_truncate_has_marked_keep_its_mark() -> None:
    """The next one concerns the rows that came in between."""
    schema = replace(table_schema(delete="soft"), truncates=(truncate(5),))
    marked = truncated(replica(schema, 3), schema).instead
    rows = pa.concat_tables([marked, replica(schema, 7).cast(marked.schema)])
    again = truncated(rows, replace(schema, truncates=(truncate(5), truncate(9))))
    assert (again.rows.column("id").to_pylist(), again.live) == ([7], 1)
    assert [row[GDDL]["source_file"] for row in again.instead.to_pylist()] == ["t9"]
