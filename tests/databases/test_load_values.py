"""`gddl load` of each type of PostgreSQL with odd values, by both drivers: a misfit concerns its row or value alone.

A value that the table's type can't hold is quarantined with its code, record and key, or rescued; it never becomes
another value, and never ends the load.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa
from deltalake import DeltaTable

from airflow_gddl.contract.actions import LoadFromSource, Verify
from airflow_gddl.contract.spec import InitialLoad, JobOptions, TableSpec
from airflow_gddl.contract.table_spec import SchemaEvolution
from tests.databases.test_initial_load import LOAD, NAME, done, run
from tests.harness.lake import Lake
from tests.one_task.postgres import emptied, execute, postgres

pytestmark = pytest.mark.filterwarnings("ignore:Did not recognize type:sqlalchemy.exc.SAWarning")
SPEC = TableSpec(
    table="s.t", keys=("id",), sequence_by=("seq",), options={"verify_connection": NAME}, settle="0s",
    initial_load=InitialLoad(chunk_rows=10, parallel=2),
)  # fmt: skip
_FAR = ["infinity", "-infinity", "0044-03-15 BC", "10000-01-01"]
_EARLY, _LATE = "0001-01-01 00:00:00", "9999-12-31 23:59:59.999999"

MISFITS: dict[str, list[str]] = {
    "date": [*_FAR, "5874897-12-31"], "timestamp": [*_FAR, "294276-12-31 23:59:59.999999"],
    "timestamptz": [*_FAR, "294276-12-31 23:59:59.999999+00", "0001-01-01 00:00:00+05", "9999-12-31 23:59:59-05"],
    "numeric(10,2)": ["NaN"], "numeric(38,10)": ["NaN"],
}  # fmt: skip
"""Type to values that no table's type holds."""

VALUES: dict[str, list[tuple[str, Any]]] = {
    "date": [("0001-01-01", date(1, 1, 1)), ("9999-12-31", date(9999, 12, 31)), ("1582-10-10", date(1582, 10, 10))],
    "timestamp": [(_EARLY, datetime.fromisoformat(_EARLY)), (_LATE, datetime.fromisoformat(_LATE))],
    "timestamptz": [(f"{text}+00", datetime.fromisoformat(text).replace(tzinfo=UTC)) for text in (_EARLY, _LATE)],
    "numeric(10,2)": [("-99999999.99", Decimal("-99999999.99")), ("1.5", Decimal("1.50")), ("0", Decimal("0.00"))],
    "numeric(38,10)": [("1e27", Decimal(10) ** 27)],
    "numeric": [("NaN", "NaN"), ("Infinity", "Infinity"), ("-Infinity", "-Infinity"), ("1.50", "1.50")],
    "real": [("NaN", math.nan), ("Infinity", math.inf), ("-Infinity", -math.inf), ("1e-45", 1e-45)],
    "double precision": [("NaN", math.nan), ("-Infinity", -math.inf), ("5e-324", 5e-324), ("-0", -0.0)],
    "smallint": [("-32768", -32768)], "integer": [("2147483647", 2**31 - 1)],
    "bigint": [("-9223372036854775808", -(2**63))], "boolean": [("f", False)],
    "text": [("infinity", "infinity"), ("", "")], "varchar(8)": [("NaN", "NaN")], "char(3)": [("a", "a  ")],
    "bytea": [(r"\x00ff", b"\x00\xff"), ("", b"")], "uuid": [("0" * 32, f"{'0' * 8}-0000-0000-0000-{'0' * 12}")],
    "time": [("24:00:00", "24:00:00")], "timetz": [("24:00:00+15", "24:00:00+15")],
    "interval": [("1 mon -1 day", "1 mon -1 days"), ("178000000 years", "178000000 years"), ("-1 second", "-00:00:01")],
    "json": [('{"a": 1e999}', '{"a": 1e999}')], "jsonb": [("[1e40]", "[1" + "0" * 40 + "]")],
    "money": [("-1.5", "-$1.50")], "bit(3)": [("101", "101")], "varbit": [("", "")], "inet": [("::1", "::1/128")],
    "cidr": [("10.0.0.0/8", "10.0.0.0/8")], "macaddr": [("08:00:2b:01:02:03", "08:00:2b:01:02:03")],
    "date[]": [("{infinity,NULL,0044-03-15 BC}", '{infinity,NULL,"0044-03-15 BC"}')],
    "numeric(10,2)[]": [("{NaN,1}", "{NaN,1.00}")], "double precision[]": [("{0.1,NaN}", "{0.1,NaN}")],
    "bytea[]": [(r'{"\\x00"}', r'{"\\x00"}')], "timestamptz[]": [("{infinity}", "{infinity}")],
    "daterange": [("[-infinity,infinity]", "[-infinity,infinity]")], "numrange": [("[NaN,NaN]", "[NaN,NaN]")],
    "tstzrange": [("[2024-01-01 00:00:00+00,)", '["2024-01-01 00:00:00+00",)')],
    "point": [("(NaN,Infinity)", "(NaN,Infinity)")], "oid": [("4294967295", "4294967295")],
    "tsvector": [("a b", "'a' 'b'")], "pg_lsn": [("0/9FFFFFF", "0/9FFFFFF")],
}  # fmt: skip
"""Type to texts, and what the table holds."""
KINDS = sorted({*MISFITS, *VALUES})


@pytest.fixture(scope="module")
def server() -> Iterator[sa.Engine]:
    with postgres() as engine:
        yield engine


@pytest.fixture(params=["psycopg2", "psycopg"])
def source(request: pytest.FixtureRequest, server: sa.Engine) -> sa.Engine:
    """The server by either driver; settings of the role that change texts are those of an unusual one."""
    emptied(server)
    settings = {"timezone": "Asia/Kolkata", "datestyle": "SQL, DMY", "intervalstyle": "iso_8601",
                "bytea_output": "escape", "extra_float_digits": "-3"}  # fmt: skip
    execute(server, *(f"ALTER ROLE CURRENT_USER SET {name} = '{value}'" for name, value in settings.items()))
    return sa.create_engine(server.url.set(drivername=f"postgresql+{request.param}"), poolclass=sa.pool.NullPool)


def filled(engine: sa.Engine) -> dict[int, tuple[str, str, Any, bool]]:
    """A table with a column for each type, a row for each value: key to column, text, value, whether it is a misfit."""
    columns = {kind: f"c{number}" for number, kind in enumerate(KINDS)}
    execute(engine, f"CREATE TABLE s.t (id int PRIMARY KEY, {', '.join(f'{n} {k}' for k, n in columns.items())})")
    odd = [(kind, text, None, True) for kind, texts in MISFITS.items() for text in texts]
    even = [(kind, text, value, False) for kind, pairs in VALUES.items() for text, value in pairs]
    found = {}
    with engine.begin() as connection:
        connection.execute(sa.text("SET LOCAL datestyle = 'ISO, YMD'; SET LOCAL timezone = 'UTC'"))
        for key, (kind, text, value, is_misfit) in enumerate([*odd, *even]):
            insert = sa.text(
                f"INSERT INTO s.t (id, {columns[kind]}) VALUES (:key, CAST(CAST(:text AS text) AS {kind}))"
            )
            connection.execute(insert, {"key": key, "text": text})
            found[key] = (columns[kind], text, value, is_misfit)
    return found


def rows(path: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pa.table(DeltaTable(path).scan()).to_pylist()
    return found


def same(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, float) and isinstance(found, float):
        return repr(found) == repr(wanted) or pa.scalar(wanted, pa.float32()).as_py() == found
    return bool(found == wanted and type(found) is type(wanted))


def test_each_value_of_each_type_is_there_or_quarantined_alone(source: sa.Engine, tmp_path: Path) -> None:
    expected = filled(source)
    lake = Lake(tmp_path)
    assert [warning.code for warning in done(lake, source, SPEC, LOAD).warnings] == ["INITIAL_LOAD_TEXT"]
    done(lake, source, SPEC)
    there = {row["id"]: row for row in rows(lake.layout(SPEC).replica)}
    bad = {json.loads(row["record"])["id"]: row for row in rows(lake.layout(SPEC).errors)}
    assert set(bad) == {key for key, (*_, is_misfit) in expected.items() if is_misfit}
    assert set(there) == set(expected) - set(bad)
    for key, row in bad.items():
        column, text = expected[key][:2]
        assert (row["code"], row["column"], row["kind"]) == ("CAST_FAILED", column, "load")
        shown = json.loads(row["record"])[column]
        assert text[:10] in shown or text in MISFITS["timestamptz"][-2:], shown
    different = [(key, expected[key], row[expected[key][0]]) for key, row in there.items()
                 if not same(row[expected[key][0]], expected[key][2])]  # fmt: skip
    assert different == []
    others = {name for name in next(iter(there.values())) if name.startswith("c")}
    assert all(row[name] is None for key, row in there.items() for name in others - {expected[key][0]})


def test_misfits_are_rescued_where_the_row_says_so(source: sa.Engine, tmp_path: Path) -> None:
    expected = filled(source)
    lake, spec = Lake(tmp_path), replace(SPEC, schema_evolution=SchemaEvolution(type_change="rescue"))
    done(lake, source, spec, LOAD)
    done(lake, source, spec)
    there = {row["id"]: row for row in rows(lake.layout(spec).replica)}
    assert set(there) == set(expected)
    rescued = {key: json.loads(row["_rescued_data"]) for key, row in there.items() if row["_rescued_data"]}
    assert set(rescued) == {key for key, (*_, is_misfit) in expected.items() if is_misfit}
    assert all(there[key][expected[key][0]] is None and expected[key][0] in found for key, found in rescued.items())


_KEYS = {
    "date": (["2024-01-01", *MISFITS["date"], "2024-01-02"], 2),
    "timestamp": (["2024-01-01 00:00:00.000001", *MISFITS["timestamp"], "2024-01-02"], 2),
    "timestamptz": (["2024-01-01 00:00:00.000001+00", *MISFITS["timestamptz"], "2024-01-02 00:00:00+02"], 2),
    "numeric(10,2)": (["NaN", "-1.50", "1.50"], 2),
}  # fmt: skip


@pytest.mark.parametrize("kind", _KEYS)
@pytest.mark.parametrize("chunk", [1, 2, 100])
def test_ranges_of_odd_keys_hold_each_row_once(source: sa.Engine, tmp_path: Path, kind: str, chunk: int) -> None:
    texts, good = _KEYS[kind]
    execute(source, f"CREATE TABLE s.t (k {kind} PRIMARY KEY, n int)")
    with source.begin() as connection:
        connection.execute(sa.text("SET LOCAL datestyle = 'ISO, YMD'; SET LOCAL timezone = 'UTC'"))
        insert = sa.text(f"INSERT INTO s.t VALUES (CAST(CAST(:k AS text) AS {kind}), :n)")
        for number, text in enumerate(texts):
            connection.execute(insert, {"k": text, "n": number})
    lake = Lake(tmp_path)
    spec = replace(SPEC, keys=("k",), initial_load=InitialLoad(chunk_rows=chunk, parallel=1))
    loaded = done(lake, source, spec, LOAD)
    assert (loaded.details["rows"], loaded.details["keys"]) == (len(texts), ["k"])
    done(lake, source, spec)
    assert len(rows(lake.layout(spec).replica)) == good
    codes = [(row["code"], row["column"]) for row in rows(lake.layout(spec).errors)]
    assert codes == [("CAST_FAILED", "k")] * (len(texts) - good)


def test_second_load_of_a_row_with_a_misfit(source: sa.Engine, tmp_path: Path) -> None:
    execute(source, "CREATE TABLE s.t (id int PRIMARY KEY, d date)")
    execute(source, "INSERT INTO s.t VALUES (1, date '2024-01-01'), (2, NULL)")
    lake = Lake(tmp_path)
    done(lake, source, SPEC, LOAD)
    done(lake, source, SPEC)
    execute(source, "UPDATE s.t SET d = 'infinity' WHERE id = 1", "UPDATE s.t SET d = date '2024-02-01' WHERE id = 2")
    done(lake, source, SPEC, JobOptions(action=LoadFromSource(again=True)))
    done(lake, source, SPEC)
    found = {row["id"]: row["d"] for row in rows(lake.layout(SPEC).replica)}
    assert found[2] == date(2024, 2, 1)
    verified = run(lake, source, SPEC, JobOptions(action=Verify()))
    source_rows = (verified.details or {})["source"]
    assert source_rows["different"] + source_rows["unsettled"] == 1, "the row in quarantine"
    assert [(row["code"], row["column"]) for row in rows(lake.layout(SPEC).errors)] == [("CAST_FAILED", "d")]
