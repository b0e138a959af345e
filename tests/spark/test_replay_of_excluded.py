"""Records of the quarantine lack excluded columns, and are replayed without them; a sequence is needed for it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.contract.table_spec import SchemaEvolution
from tests.conftest import LocalPort
from tests.harness.lake import Lake, LakeTable
from tests.harness.landing import write

SPEC = TableSpec(
    table="s.t",
    keys=("id",),
    sequence_by=("seq",),
    options={"types": {"price": "decimal(4,2)"}},
    exclude_columns=("ssn", "seq"),
)
WIDER = replace(SPEC, options={"types": {"price": "decimal(9,2)"}})


def table_in(engine: LocalPort, root: Path) -> LakeTable:
    return LakeTable(Lake(root, port=engine.everywhere()), SPEC)


def land(table: LakeTable, number: int, **columns: Any) -> None:
    write(table.landing, f"20240101-{number:09d}.parquet", pa.table(columns))


def unresolved(table: LakeTable) -> list[Any]:
    return [row for row in table.rows("errors") if row["resolved_at"] is None]


def stored(table: LakeTable) -> bytes:
    """All bytes of the lake that are not compressed: logs, records of runs."""
    return b"".join(file.read_bytes() for file in Path(table.roots.lake).rglob("*") if file.is_file())


def test_record_is_replayed_without_the_column(engine: LocalPort, tmp_path: Path) -> None:
    table = table_in(engine, tmp_path)
    land(table, 1, Op=["I", "I"], seq=[1, 2], id=[1, 2], price=["1.00", "12345.00"], ssn=["secret-1", "secret-2"])
    table.run()
    (error,) = unresolved(table)
    assert "secret" not in str(error)
    assert b"secret" not in stored(table)
    result = replace(table, spec=WIDER).run(action="errors_replay")
    assert ([w.code for w in result.warnings], result.changes_written, unresolved(table)) == ([], 1, [])
    assert table.values("replica", "id", "ssn") == [(1, None), (2, None)]


@pytest.mark.deep_on_many
@pytest.mark.parametrize("dropped", ["keep", "null", "fail"])
def test_column_that_is_excluded_no_more_is_null(engine: LocalPort, tmp_path: Path, dropped: Any) -> None:
    table = table_in(engine, tmp_path)
    land(table, 1, Op=["I", "U"], seq=[1, 3], id=[1, 2], price=["1.00", "12345.00"], ssn=[7, 8])
    table.run()
    taken = replace(WIDER, exclude_columns=("seq",), schema_evolution=SchemaEvolution(dropped_column=dropped))
    land(table, 2, Op=["I"], seq=[2], id=[2], price=["2.00"], ssn=[9])
    table.spec = taken
    table.run()
    assert table.values("replica", "id", "ssn") == [(1, None), (2, 9)]
    table.run(action="errors_replay")
    assert unresolved(table) == []
    assert table.values("replica", "id", "ssn") == [(1, None), (2, None)]
