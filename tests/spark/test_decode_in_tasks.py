"""Decoding in Spark's tasks, in its driver and without Spark: the same tables from the same files."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_gddl.contract.actions import HandleErrors
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions, TableSpec
from airflow_gddl.contract.table_spec import SchemaEvolution
from spark_jobs.tables.places import TaskBounds
from tests.conftest import LocalPort
from tests.harness.lake import Lake
from tests.harness.landing import write_bytes
from tests.spark.table_lines import TableLines, differences, everything

ROWS, GROUP = 600, 50
SPEC = TableSpec(
    table="s.parts",
    keys=("id",),
    sequence_by=("seq",),
    mask={"mail": "hash"},
    options={"types": {"n": "int", "price": "decimal(8,2)"}},
    schema_evolution=SchemaEvolution(type_change="rescue", dropped_column="null"),
)


@pytest.fixture(scope="module")
def ports(request: pytest.FixtureRequest) -> tuple[LocalPort, LocalPort]:
    if request.config.getoption("--tasks") != "both":
        pytest.skip("it takes both engines")
    return LocalPort("many"), LocalPort("one")


IN_TASKS = LocalPort("many", TaskBounds(load=-1))
"""However few bytes there are, they go to tasks."""


def text_of_bytes(values: list[bytes | None]) -> pa.Array:
    """Text as a careless writer leaves it in a file."""
    return pa.Array.from_buffers(pa.string(), len(values), pa.array(values, pa.binary()).buffers())


def rows(first: int, op: str | None) -> pa.Table:
    """Every tenth row or so is bad, each in its own way."""
    ids = range(first, first + ROWS)
    columns: dict[str, Any] = {
        "Op": pa.array(["X" if op and i % 97 == 0 else op for i in ids], pa.string()),
        "seq": pa.array([None if op is None or i % 89 == 0 else f"{i:020d}" for i in ids], pa.string()),
        "id": pa.array([None if i % 83 == 0 else i for i in ids], pa.int64()),
        "n": pa.array(["one" if i % 79 == 0 else str(i) for i in ids], pa.string()),
        "price": pa.array(["1.505" if i % 73 == 0 else f"{i}.50" for i in ids], pa.string()),
        "name": text_of_bytes([b"\xff\xfe" if i % 71 == 0 else f"n\u00fc{i % 7}".encode() for i in ids]),
        "mail": text_of_bytes([b"\xff" if i % 67 == 0 else None if i % 5 == 0 else f"{i}@x".encode() for i in ids]),
        "at": pa.array([1_700_000_000_000_000_000 + i for i in ids], pa.timestamp("ns", "UTC")),
        "tags": pa.array([None if i % 3 else [str(i), None] for i in ids], pa.list_(pa.string())),
        "info": pa.array([{"a": i, "b": {"c": None if i % 2 else "x"}} for i in ids]),
    }
    return pa.table(columns)


def parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=GROUP)
    return sink.getvalue()


def damaged(data: bytes) -> bytes:
    """One page in the middle is overwritten; the footer is whole."""
    group = pq.ParquetFile(io.BytesIO(data)).metadata.row_group(ROWS // GROUP // 2)
    start = group.column(2).data_page_offset
    return data[:start] + b"\xff" * 64 + data[start + 64 :]


def csv(first: int) -> bytes:
    head = b"\xef\xbb\xbfOp,seq,id,n,price,name,mail\n"
    lines = [f'I,{i:020d},{i},{i},2.5,"NULL",{i}@x\n'.encode() for i in range(first, first + 5)]
    return head + b"".join(lines) + b"I,1,2\xff,3\nI,9,10,11,1.1,\xe4,NULL\n"


Play = Callable[[LocalPort, Lake], JobResult]


def run(port: LocalPort, lake: Lake, spec: TableSpec, options: JobOptions | None = None) -> JobResult:
    (result,) = lake.results(port, lake.job([spec], options)).values()
    return result


def three(ports: tuple[LocalPort, LocalPort], root: Path, play: Play) -> list[tuple[JobResult, Lake]]:
    """What is played without Spark, in Spark's driver and in its tasks."""
    spark, one = ports
    found = []
    for name, port in (("one", one), ("driver", spark), ("tasks", IN_TASKS)):
        lake = Lake(root / name)
        found.append((play(port, lake), lake))
    return found


def assert_alike(found: list[tuple[JobResult, Lake]], spec: TableSpec) -> TableLines:
    counts = [(r.status, r.rows_read, r.changes_written, r.quarantined, r.main, [(w.code, w.count) for w in r.warnings])
              for r, _ in found]  # fmt: skip
    assert counts[0] == counts[1] == counts[2]
    reported = [everything(lake.layout(spec)) for _, lake in found]
    assert differences(reported[0], reported[1]) == []
    assert differences(reported[0], reported[2]) == []
    return reported[0]


def test_file_with_many_row_groups(ports: tuple[LocalPort, LocalPort], tmp_path: Path) -> None:
    """Load and changes with bad rows of every sort, one file gzipped whole, one damaged inside."""

    def play(port: LocalPort, lake: Lake) -> JobResult:
        folder = Path(lake.layout(SPEC).landing)
        write_bytes(folder, "LOAD00000001.parquet", parquet(rows(1, None)))
        write_bytes(folder, "20240101-000000001.parquet", parquet(rows(301, "U")))
        write_bytes(folder, "20240101-000000002.parquet.gz", gzip.compress(parquet(rows(2001, "I")), mtime=0))
        write_bytes(folder, "20240101-000000003.parquet", damaged(parquet(rows(4001, "I"))))
        return run(port, lake, SPEC)

    found = three(ports, tmp_path, play)
    reported = assert_alike(found, SPEC)
    result = found[0][0]
    assert (result.status, result.rows_read) == ("succeeded", 3 * ROWS)
    wanted = ("OP_UNKNOWN", "SEQUENCE_NULL", "KEY_NULL", "CAST_FAILED", "TEXT_NOT_UTF8", "FILE_UNREADABLE")
    assert [code for code in wanted if not any(f'"code": "{code}"' in line for line in reported["errors"])] == []
    assert not any("4001" in line for line in reported["changes"])


def test_csv_with_invalid_utf8(ports: tuple[LocalPort, LocalPort], tmp_path: Path) -> None:
    spec = TableSpec(table="s.csv", keys=("id",), sequence_by=("seq",), options={"csv_header": True})

    def play(port: LocalPort, lake: Lake) -> JobResult:
        write_bytes(Path(lake.layout(spec).landing), "20240101-000000001.csv", csv(1))
        return run(port, lake, spec)

    reported = assert_alike(three(ports, tmp_path, play), spec)
    assert sum('"name": "NULL"' in line for line in reported["replica"]) == 5
    assert [
        code for code in ("ROW_MALFORMED", "TEXT_NOT_UTF8") if any(code in line for line in reported["errors"])
    ] == [
        "ROW_MALFORMED",
        "TEXT_NOT_UTF8",
    ]


@pytest.mark.deep
def test_replay_loads_valid_records_and_keeps_invalid_utf8(ports: tuple[LocalPort, LocalPort], tmp_path: Path) -> None:
    spec = TableSpec(table="s.replay", keys=("id",), sequence_by=("seq",), options={"types": {"n": "int"}})
    corrected = TableSpec(table="s.replay", keys=("id",), sequence_by=("seq",), options={"types": {"n": "string"}})

    def play(port: LocalPort, lake: Lake) -> JobResult:
        table = rows(1, "I").select(["Op", "seq", "id", "name", "at", "info"])
        table = table.append_column("text", pa.array(["one"] * ROWS))
        write_bytes(Path(lake.layout(spec).landing), "20240101-000000001.parquet", parquet(table))
        declared = TableSpec(table="s.replay", keys=("id",), sequence_by=("seq",), options={"types": {"text": "int"}})
        run(port, lake, declared)
        return run(port, lake, corrected, JobOptions(action=HandleErrors(mode="replay")))

    reported = assert_alike(three(ports, tmp_path, play), spec)
    assert all("CAST_FAILED" in line or "TEXT_NOT_UTF8" in line or "_NULL" in line or "OP_" in line
               for line in reported["errors"])  # fmt: skip
