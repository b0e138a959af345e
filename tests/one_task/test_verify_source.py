"""The replica against a real PostgreSQL: what is equal, what is on its way, what is wrong, and what can't be told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from threading import Event
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
import sqlalchemy as sa
from deltalake import DeltaTable

from airflow_gddl.contract.actions import Verify
from airflow_gddl.contract.connections import LENT
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions, TableSpec
from airflow_gddl.metadata.expression_text import with_expressions
from airflow_gddl.stores import Storage
from spark_jobs.batch.runtime import NoSpark, Runtime
from spark_jobs.batch.table_run import TableRun
from spark_jobs.batch.totals import TableOutcome
from spark_jobs.job.table_job import attempt, totals_of
from tests.harness.asked import with_asked
from tests.harness.lake import Lake
from tests.harness.landing import write
from tests.one_task.postgres import emptied, execute, postgres

SPEC = TableSpec(table="s.t", keys=("id",), sequence_by=("seq",), options={"verify_connection": "GDDL_SOURCE_SHOP"})
VERIFY = JobOptions(action=Verify())


@pytest.fixture(scope="module")
def server() -> Iterator[sa.Engine]:
    with postgres() as engine:
        yield engine


@pytest.fixture
def source(server: sa.Engine) -> sa.Engine:
    return emptied(server)


def verify(lake: Lake, engine: sa.Engine, spec: TableSpec = SPEC, options: JobOptions = VERIFY) -> JobResult:
    environ = {"GDDL_SOURCE_SHOP": engine.url.render_as_string(hide_password=False)}
    return verified(lake, environ, spec, options)


def verified(lake: Lake, environ: dict[str, str], spec: TableSpec = SPEC, options: JobOptions = VERIFY) -> JobResult:
    job = lake.job([spec], options)
    runtime = Runtime(storage=Storage(), spark=NoSpark(), environ=environ)
    found = attempt(TableRun(job=job, spec=spec, runtime=runtime), totals_of(job))
    assert isinstance(found, TableOutcome), found
    return found.result


def code(result: JobResult) -> str | None:
    return None if result.error is None else result.error.code


def three(root: Path, engine: sa.Engine) -> Lake:
    """Three equal rows on both sides."""
    execute(
        engine,
        "CREATE TABLE s.t (id int PRIMARY KEY, v text)",
        "INSERT INTO s.t SELECT i, 'load ' || i FROM generate_series(0, 2) i",
    )
    lake = Lake(root)
    lake.load(SPEC)
    lake.done(SPEC)
    return lake


def change(lake: Lake, number: int, op: str, key: int, v: str, at: datetime | None = None) -> None:
    """A change that was committed at a time, now unless told; and a run that takes it in."""
    columns: dict[str, Any] = {
        "Op": [op], "seq": [number], "id": pa.array([key], pa.int32()), "v": [v],
        "dms_timestamp": pa.array([at or datetime.now(UTC)], pa.timestamp("us", tz="UTC")),
    }  # fmt: skip
    write(Path(lake.layout(SPEC).landing), f"20240101-{number:09d}.parquet", pa.table(columns))
    lake.done(SPEC)


SPRING = datetime.fromisoformat("2024-03-31 02:30:00.000001")
OLD = datetime.fromisoformat("1969-12-31 23:59:59.999999")
COLUMNS: dict[str, tuple[str, pa.DataType, list[Any]]] = {
    "id": ("int PRIMARY KEY", pa.int32(), [1, 2, 3]),
    "big": ("bigint", pa.int64(), [2**62, -1, None]),
    "price": ("numeric(10,2)", pa.decimal128(10, 2), [Decimal("1.50"), Decimal("0.00"), None]),
    "v": ("text", pa.string(), ["  Grüße\n\\ '\" 😀 ", "", None]),
    "code": ("varchar(9)", pa.string(), ["NULL", "x ", None]),
    "ok": ("boolean", pa.bool_(), [True, False, None]),
    "d": ("date", pa.date32(), [date(1, 1, 1), date(9999, 12, 31), None]),
    "at": ("timestamptz", pa.timestamp("us", tz="UTC"), [SPRING.replace(tzinfo=UTC), OLD.replace(tzinfo=UTC), None]),
    "local_at": ("timestamp", pa.timestamp("us"), [SPRING, OLD, None]),
    "f": ("double precision", pa.float64(), [0.1, float("nan"), None]),
    "r": ("real", pa.float32(), [0.1, -0.0, None]),
    "raw": ("bytea", pa.binary(), [b"\x00\xff", b"", None]),
    "fixed": ("char(5)", pa.string(), ["ab", "c", None]),
    "doc": ("jsonb", pa.string(), ['{"a": 1}', "{}", None]),
    "any_number": ("numeric", pa.decimal128(38, 10), [Decimal("0.1"), Decimal(2), None]),
    "all_digits": ("numeric", pa.string(), ["1e-20", "12345678901234567890123.50", None]),
    "uid": ("uuid", pa.string(), ["A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11", str(UUID(int=1)), None]),
}  # fmt: skip


def _document(text: str | None) -> Any:
    return sa.null() if text is None else json.loads(text)


def test_comparable_types_compare_and_others_are_listed(source: sa.Engine, tmp_path: Path) -> None:
    execute(
        source, f"CREATE TABLE s.t ({', '.join(f'{name} {kind[0]}' for name, kind in COLUMNS.items())}, only_there int)"
    )
    with source.begin() as connection:
        table = sa.Table("t", sa.MetaData(), schema="s", autoload_with=connection)
        for i in range(3):
            row = {name: values[i] for name, (_, _, values) in COLUMNS.items()}
            connection.execute(
                table.insert(), {**row, "doc": sa.null() if row["doc"] is None else json.loads(row["doc"])}
            )
    lake = Lake(tmp_path)
    arrays = {name: pa.array(values, kind) for name, (_, kind, values) in COLUMNS.items()}
    write(Path(lake.layout(SPEC).landing), "LOAD00000001.parquet", pa.table(arrays))
    lake.done(SPEC)
    result = verify(lake, source, options=with_asked(VERIFY, settle_seconds=0))
    reported = result.details["source"]
    assert (code(result), reported["different"], reported["keys"]) == (None, 0, ())
    left_out = {"fixed", "only_there"}
    assert set(reported["not_compared"]) == left_out
    assert set(reported["compared"]) == set(COLUMNS) - left_out
    assert reported["not_compared"]["only_there"] == "not in the lake"
    assert reported["columns"] == (len(COLUMNS) - 1, len(COLUMNS) + 1)
    (warning,) = [one for one in result.warnings if one.code == "COLUMNS_NOT_COMPARED"]
    assert (warning.count, warning.sample) == (2, ("fixed", "only_there"))
    assert (
        "in 16 of 18 columns; nothing is known of fixed (CHAR(5) in the source, string in the lake)" in warning.message
    )


@pytest.mark.parametrize("column", [name for name in COLUMNS if name not in ("id", "fixed")])
def test_difference_in_any_column_is_found(column: str, source: sa.Engine, tmp_path: Path) -> None:
    kind, arrow, values = COLUMNS[column]
    execute(source, f"CREATE TABLE s.t (id int PRIMARY KEY, {column} {kind})")
    with source.begin() as connection:
        table = sa.Table("t", sa.MetaData(), schema="s", autoload_with=connection)
        connection.execute(
            table.insert(),
            [{"id": i, column: _document(values[i]) if column == "doc" else values[i]} for i in range(3)],
        )
    lake = Lake(tmp_path)
    turned = [values[0], values[2], values[1]]
    write(
        Path(lake.layout(SPEC).landing),
        "LOAD00000001.parquet",
        pa.table({"id": pa.array([0, 1, 2], pa.int32()), column: pa.array(turned, arrow)}),
    )
    lake.done(SPEC)
    result = verify(lake, source, options=with_asked(VERIFY, settle_seconds=0))
    assert [k["key"] for k in result.details["source"]["keys"]] == ['{"id": "1"}', '{"id": "2"}']


def test_change_in_flight_is_no_difference(source: sa.Engine, tmp_path: Path) -> None:
    lake = three(tmp_path, source)
    assert verify(lake, source).details["source"]["different"] == 0
    execute(source, "UPDATE s.t SET v = 'new' WHERE id = 1")
    result = verify(lake, source)
    reported = result.details["source"]
    assert (code(result), reported["different"], reported["unsettled"]) == (None, 0, 1)
    assert reported["keys"] == ({"key": '{"id": "1"}', "state": "different", "settled": False},)
    assert [(w.code, w.count) for w in result.warnings] == [("SOURCE_UNSETTLED", 1)]
    change(lake, 1, "U", 1, "new")
    reported = verify(lake, source).details["source"]
    assert (reported["different"], reported["unsettled"]) == (0, 0)


def test_lost_change_is_reported_after_a_later_commit(source: sa.Engine, tmp_path: Path) -> None:
    lake = three(tmp_path, source)
    execute(source, "UPDATE s.t SET v = 'lost' WHERE id = 1")
    assert verify(lake, source).details["source"]["unsettled"] == 1
    earlier = datetime.now(UTC) - timedelta(hours=1)
    execute(source, "UPDATE s.t SET v = 'w' WHERE id = 2")
    change(lake, 1, "U", 2, "w", earlier)
    assert code(verify(lake, source)) is None, "what has arrived was committed before the look"
    change(lake, 2, "U", 2, "w", datetime.now(UTC) + timedelta(seconds=5))
    result = verify(lake, source)
    assert code(result) == "SOURCE_DIFFERENT"
    assert result.details["source"]["keys"] == ({"key": '{"id": "1"}', "state": "different", "settled": True},)
    assert result.error is not None
    assert "gddl resync --differences --table s.t" in result.error.message


def test_idle_source_settles_by_time(source: sa.Engine, tmp_path: Path) -> None:
    lake = three(tmp_path, source)
    execute(source, "UPDATE s.t SET v = 'lost' WHERE id = 1")
    soon = with_asked(VERIFY, settle_seconds=0.2)
    assert code(verify(lake, source, options=soon)) is None
    Event().wait(0.3)
    assert code(verify(lake, source, options=soon)) == "SOURCE_DIFFERENT"


def test_missing_extra_and_different(source: sa.Engine, tmp_path: Path) -> None:
    lake = three(tmp_path, source)
    execute(
        source,
        "DELETE FROM s.t WHERE id = 0",
        "UPDATE s.t SET v = NULL WHERE id = 1",
        "INSERT INTO s.t VALUES (9, 'x')",
    )
    reported = verify(lake, source, options=with_asked(VERIFY, settle_seconds=0)).details["source"]
    assert [(k["key"], k["state"]) for k in reported["keys"]] == [
        ('{"id": "0"}', "extra"), ('{"id": "1"}', "different"), ('{"id": "9"}', "missing")
    ]  # fmt: skip
    assert (reported["rows"], reported["source_rows"], reported["different"]) == (3, 3, 3)


def test_wrong_replica_and_wrong_source_are_distinguished(source: sa.Engine, tmp_path: Path) -> None:
    lake = three(tmp_path, source)
    replica = lake.layout(SPEC).replica
    DeltaTable(replica).delete("id = 2")
    result = verify(lake, source, options=with_asked(VERIFY, settle_seconds=0))
    assert (code(result), result.details["source"]["different"]) == ("VERIFY_DIFFERENT", 1)
    assert result.error is not None
    assert "gddl rebuild --table s.t" in result.error.message


def test_only_differing_ranges_are_compared_by_row(source: sa.Engine, tmp_path: Path) -> None:
    count = 25_000
    rows = f"INSERT INTO s.t SELECT i, 'load ' || i FROM generate_series(0, {count - 1}) i"
    execute(source, "CREATE TABLE s.t (id int PRIMARY KEY, v text)",
        rows,
        "UPDATE s.t SET v = 'x' WHERE id = 20000", "INSERT INTO s.t VALUES (-5, 'below')")  # fmt: skip
    lake = Lake(tmp_path)
    lake.load(SPEC, count)
    lake.done(SPEC)
    reported = verify(lake, source, options=with_asked(VERIFY, settle_seconds=0)).details["source"]
    assert (reported["ranges"], reported["ranges_different"], reported["different"]) == (3, 2, 2)
    assert [k["state"] for k in reported["keys"]] == ["missing", "different"]


def test_soft_deleted_rows_are_not_compared(source: sa.Engine, tmp_path: Path) -> None:
    soft = replace(SPEC, delete="soft")
    lake = three(tmp_path, source)
    execute(source, "DELETE FROM s.t WHERE id = 1")
    fresh = Lake(tmp_path / "soft")
    fresh.load(soft)
    fresh.change(soft, 1, [("D", 1, None)])
    fresh.done(soft)
    reported = verify(fresh, source, soft, with_asked(VERIFY, settle_seconds=0)).details["source"]
    assert (reported["different"], reported["rows"]) == (0, 2)
    assert lake.replica(SPEC).keys() == {0, 1, 2}


def test_composite_keys_of_text(source: sa.Engine, tmp_path: Path) -> None:
    spec = replace(SPEC, keys=("a", "b"))
    execute(source, 'CREATE TABLE s.t ("A" text, b int, v text, PRIMARY KEY ("A", b))',
        "INSERT INTO s.t VALUES ('ä', 1, 'x'), ('z', 1, 'y'), ('Z', 1, 'changed')")  # fmt: skip
    lake = Lake(tmp_path)
    columns = {"a": ["ä", "z", "Z"], "b": pa.array([1, 1, 1], pa.int32()), "v": ["x", "y", "z"]}
    write(Path(lake.layout(spec).landing), "LOAD00000001.parquet", pa.table(columns))
    lake.done(spec)
    reported = verify(lake, source, spec, with_asked(VERIFY, settle_seconds=0)).details["source"]
    assert [k["key"] for k in reported["keys"]] == ['{"a": "Z", "b": "1"}']


@pytest.mark.parametrize("spec", [replace(SPEC, mask={"id": "hash"}), with_expressions(replace(SPEC, where="id > 0"))])
def test_masked_keys_and_filtered_rows_are_not_compared(spec: TableSpec, source: sa.Engine, tmp_path: Path) -> None:
    three(tmp_path, source)
    lake = Lake(tmp_path / "other")
    lake.load(spec)
    lake.done(spec)
    assert code(verify(lake, source, spec)) == "SOURCE_NOT_COMPARABLE"


SECRET = "hunter2"  # noqa: S105 - it opens nothing
AS_JSON = json.dumps({"conn_type": "postgres", "host": "127.0.0.1", "port": 1, "password": SECRET})


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, "SOURCE_CONNECTION_MISSING"),
        ({"GDDL_SOURCE_SHOP": f"no url {SECRET}"}, "SOURCE_CONNECTION_MISSING"),
        ({"GDDL_SOURCE_SHOP": f"postgresql+psycopg2://u:{SECRET}@127.0.0.1:1/db"}, "SOURCE_UNREACHABLE"),
        ({"AIRFLOW_CONN_GDDL_SOURCE_SHOP": f"postgres://u:{SECRET}@127.0.0.1:1/db"}, "SOURCE_UNREACHABLE"),
        ({"AIRFLOW_CONN_GDDL_SOURCE_SHOP": AS_JSON}, "SOURCE_UNREACHABLE"),
        ({"GDDL_SOURCE_SHOP": f"nosuch://u:{SECRET}@h/db"}, "SOURCE_DRIVER_MISSING"),
    ],
)  # fmt: skip
def test_unreachable_source_is_reported_without_its_secret(
    environ: dict[str, str], expected: str, tmp_path: Path
) -> None:
    lake = Lake(tmp_path)
    lake.load(SPEC)
    lake.done(SPEC)
    result = verified(lake, environ)
    assert code(result) == expected
    assert SECRET not in str(result)


@pytest.mark.parametrize("named_by", ["row", "option"])
def test_unknown_connection_is_an_error_before_the_first_load(named_by: str, tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    spec, options = (SPEC, VERIFY) if named_by == "row" else (
        replace(SPEC, options={}), with_asked(VERIFY, source_connection="GDDL_SOURCE_SHOP")
    )  # fmt: skip
    result = verified(lake, {}, spec, options)
    assert (result.status, code(result)) == ("failed", "SOURCE_CONNECTION_MISSING")
    assert result.error is not None
    assert "'GDDL_SOURCE_SHOP'" in result.error.message
    assert verified(lake, {}, replace(SPEC, options={})).status == "skipped"


def test_table_without_keys_is_not_compared_and_says_so(tmp_path: Path) -> None:
    lake, row = Lake(tmp_path), replace(SPEC, keys=())
    lake.load(row)
    lake.done(row)
    assert code(verified(lake, {}, row)) == "SOURCE_CONNECTION_MISSING"
    url = f"postgresql+psycopg2://u:{SECRET}@127.0.0.1:1/db"
    result = verified(lake, {"GDDL_SOURCE_SHOP": url}, row)
    assert (result.status, [w.code for w in result.warnings]) == ("succeeded", ["SOURCE_NOT_COMPARED"])


@pytest.mark.parametrize(
    "name", ["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "SHOP_DB", "airflow_db", "GDDL_SOURCE_CONNECTIONS", "PATH"]
)
def test_row_can_use_only_allowed_variables(name: str, source: sa.Engine, tmp_path: Path) -> None:
    """Set or not: the answer is the same, and no row of that database is in it."""
    lake, row = Lake(tmp_path), replace(SPEC, options={"verify_connection": name})
    lake.load(row)
    lake.done(row)
    url = source.url.render_as_string(hide_password=False)
    for environ in ({}, {name: url}, {f"AIRFLOW_CONN_{name.upper()}": url}, {name: url, LENT: "SHOP,DB,path"}):
        assert code(verified(lake, environ, row)) == "SOURCE_CONNECTION_REFUSED"


def test_allowed_variable_is_passed(source: sa.Engine, tmp_path: Path) -> None:
    lake, row = Lake(tmp_path), replace(SPEC, options={"verify_connection": "SHOP_DB"})
    lake.load(row)
    lake.done(row)
    environ = {"SHOP_DB": source.url.render_as_string(hide_password=False), LENT: "HR_DB, SHOP_DB"}
    assert code(verified(lake, environ, row)) == "SOURCE_TABLE_MISSING"


def test_source_without_the_table(source: sa.Engine, tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.load(SPEC)
    lake.done(SPEC)
    assert code(verify(lake, source)) == "SOURCE_TABLE_MISSING"
