"""`gddl load`: the full load of a real database under writers, killed and resumed, beside a CDC service."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa
from deltalake import DeltaTable

from airflow_gddl.contract import codec
from airflow_gddl.contract.actions import LoadFromSource, Verify
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import InitialLoad, JobOptions, JobSpec, TableSpec
from airflow_gddl.stores import Storage
from spark_jobs.batch.runtime import NoSpark, Runtime
from spark_jobs.batch.table_run import TableRun
from spark_jobs.batch.totals import TableOutcome
from spark_jobs.job.table_job import attempt, totals_of
from spark_jobs.ledger.load_progress import read_progress
from spark_jobs.rooms.actions.source_rows import RowRate, key_text, key_values
from tests.databases.mariadb import SERVER, mariadb
from tests.harness.lake import Lake
from tests.harness.landing import write
from tests.harness.repeated import Repeated
from tests.one_task.postgres import emptied, execute, postgres

NAME = "GDDL_SOURCE_SHOP"
SPEC = TableSpec(
    table="s.t", keys=("id",), sequence_by=("seq",), options={"verify_connection": NAME}, settle="0s", sweep_after="0s",
    sweep_limit=1.0, initial_load=InitialLoad(chunk_rows=100, parallel=3),
)  # fmt: skip
LOAD = JobOptions(action=LoadFromSource())
AGAIN = JobOptions(action=LoadFromSource(again=True))
LOGGED = """
CREATE TABLE s.t (id int PRIMARY KEY, v text);
CREATE TABLE s.log (seq bigserial PRIMARY KEY, op text, id int, v text);
CREATE FUNCTION s.note() RETURNS trigger AS $$ BEGIN
  IF TG_OP = 'DELETE' THEN INSERT INTO s.log (op, id) VALUES ('D', OLD.id);
  ELSE INSERT INTO s.log (op, id, v) VALUES (left(TG_OP, 1), NEW.id, NEW.v); END IF;
  RETURN NULL; END $$ LANGUAGE plpgsql;
CREATE TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON s.t FOR EACH ROW EXECUTE FUNCTION s.note();
"""


@pytest.fixture(scope="module")
def server() -> Iterator[sa.Engine]:
    with postgres() as engine:
        yield engine


@pytest.fixture
def source(server: sa.Engine) -> sa.Engine:
    return emptied(server)


def environ(engine: sa.Engine) -> dict[str, str]:
    return {NAME: engine.url.render_as_string(hide_password=False)}


def run(
    lake: Lake, engine: sa.Engine, spec: TableSpec = SPEC, options: JobOptions | None = None,
    job: JobSpec | None = None,
) -> JobResult:  # fmt: skip
    job = job or lake.job([spec], options)
    runtime = Runtime(storage=Storage(), spark=NoSpark(), environ=environ(engine), limits=lake.limits)
    found = attempt(TableRun(job=job, spec=spec, runtime=runtime), totals_of(job))
    assert isinstance(found, TableOutcome), found
    return found.result


def done(lake: Lake, engine: sa.Engine, spec: TableSpec = SPEC, options: JobOptions | None = None) -> JobResult:
    found = run(lake, engine, spec, options)
    assert found.error is None, found.error
    return found


def files(lake: Lake, spec: TableSpec = SPEC) -> list[str]:
    return sorted(path.name for path in Path(lake.layout(spec).landing).glob("LOAD*"))


@dataclass
class Capture:
    """What a CDC service does: it writes the log's rows as change files."""

    lake: Lake
    engine: sa.Engine
    last: int = 0
    files: int = 0

    def write(self) -> None:
        with self.engine.connect() as connection:
            query = sa.text("SELECT op, seq, id, v FROM s.log WHERE seq > :last ORDER BY seq")
            rows = connection.execute(query, {"last": self.last}).all()
        if not rows:
            return
        self.files, self.last = self.files + 1, rows[-1].seq
        table = pa.table({
            "Op": [r.op for r in rows], "seq": [r.seq for r in rows], "id": pa.array([r.id for r in rows], pa.int32()),
            "v": pa.array([r.v for r in rows], pa.string()),
        })  # fmt: skip
        write(Path(self.lake.layout(SPEC).landing), f"20240101-{self.files:09d}.parquet", table)


def change_some(engine: sa.Engine, chance: random.Random, count: int = 20) -> None:
    with engine.begin() as connection:
        for _ in range(count):
            key, value = chance.randrange(1200), str(chance.random())
            statement = chance.choice((
                "INSERT INTO s.t VALUES (:id, :v) ON CONFLICT DO NOTHING", "UPDATE s.t SET v = :v WHERE id = :id",
                "DELETE FROM s.t WHERE id = :id",
            ))  # fmt: skip
            connection.execute(sa.text(statement), {"id": key, "v": value})


def rows_of(engine: sa.Engine) -> dict[int, str]:
    with engine.connect() as connection:
        return {row.id: row.v for row in connection.execute(sa.text("SELECT id, v FROM s.t"))}


@dataclass
class Writers(Repeated):
    """A writer of the database and its capture, side by side with the load; `with Writers(...)`."""

    capture: Capture
    seed: int

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)  # noqa: S311 - repeatable by its seed

    def once(self) -> None:
        change_some(self.capture.engine, self.chance)
        self.capture.write()

    def __exit__(self, *ended: object) -> None:
        super().__exit__(*ended)
        self.capture.write()


SEEDS = pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.deep) for seed in (1, 2))])


def filled(engine: sa.Engine, rows: int = 1000) -> None:
    execute(engine, *LOGGED.split(";\n\n"), f"INSERT INTO s.t SELECT i, 'v' || i FROM generate_series(1, {rows}) i")


@SEEDS
def test_load_under_writers_equals_the_source(seed: int, source: sa.Engine, tmp_path: Path) -> None:
    filled(source)
    lake = Lake(tmp_path)
    with Writers(Capture(lake, source), seed):
        loaded = done(lake, source, options=LOAD)
        done(lake, source)
    done(lake, source)
    assert lake.replica(SPEC) == rows_of(source)
    assert loaded.details["files"] == len(files(lake)) - 1 >= 10


@SEEDS
def test_second_load_under_writers_equals_the_source(seed: int, source: sa.Engine, tmp_path: Path) -> None:
    """Rows that changed without the CDC service, too: those that the source lacks go."""
    filled(source)
    lake = Lake(tmp_path)
    capture = Capture(lake, source)
    with Writers(capture, seed):
        done(lake, source)
    done(lake, source)
    execute(
        source, "ALTER TABLE s.t DISABLE TRIGGER note", "DELETE FROM s.t WHERE id % 3 = 0",
        "UPDATE s.t SET v = 'unseen' WHERE id % 3 = 1", "ALTER TABLE s.t ENABLE TRIGGER note",
    )  # fmt: skip
    refused = run(lake, source, options=LOAD)
    assert refused.error is not None
    assert refused.error.code == "INITIAL_LOAD_REFUSED"
    with Writers(capture, seed + 100):
        done(lake, source, options=AGAIN)
        done(lake, source)
    done(lake, source)
    assert lake.replica(SPEC) == rows_of(source)


@pytest.mark.parametrize(("when", "again"), [("before", False), pytest.param("after", True, marks=pytest.mark.deep)])
def test_load_is_resumed_after_each_write(when: str, *, again: bool, source: sa.Engine, tmp_path: Path) -> None:
    filled(source, 350)
    lake, chance = Lake(tmp_path), random.Random(when)  # noqa: S311 - repeatable by its seed
    capture = Capture(lake, source)
    if again:
        done(lake, source)
        execute(source, "ALTER TABLE s.t DISABLE TRIGGER note", "DELETE FROM s.t WHERE id % 3 = 0")
        execute(source, "ALTER TABLE s.t ENABLE TRIGGER note")
    kills = 0
    while _killed(lake, source, 2 if when == "before" else 1, when, AGAIN if kills == 0 else LOAD):
        kills += 1
        change_some(source, chance)
        capture.write()
        done(lake, source, replace(SPEC, initial_load=None))  # a scheduled run between; it may take what is there
        if _has_ended(lake):
            break
    done(lake, source)
    assert kills >= 4
    assert lake.replica(SPEC) == rows_of(source)
    assert files(lake)[0] == "LOAD00000000.parquet"


def _has_ended(lake: Lake) -> bool:
    found = read_progress(Storage(), lake.layout(SPEC).state)
    return found is not None and found.ended is not None


def _killed(lake: Lake, engine: sa.Engine, number: int, when: str, options: JobOptions) -> bool:
    """Whether a job that loads from the source was killed at this write of it; else it has ended."""
    spec = codec.to_json(lake.job([SPEC], options))
    command = [sys.executable, "-m", "tests.databases.killed_load", spec, str(number), when]
    status = subprocess.run(command, env={**os.environ, **environ(engine)}, check=False).returncode
    assert status in (0, -signal.SIGKILL)
    return status != 0


_KEYS: dict[str, tuple[str, str]] = {
    "int": ("int", "i"),
    "text": ("text", "chr(65 + i % 57) || md5(i::text)"),
    "numeric": ("numeric(12, 3)", "i / 8.0"),
    "time": ("timestamp", "timestamp '2020-01-01' + i * interval '1.5 hours'"),
    "zoned": ("timestamptz", "timestamptz '2020-01-01 00:00:00Z' + i * interval '1.5 hours'"),
    "date": ("date", "date '2020-01-01' + i"),
    "uuid": ("uuid", "md5(i::text)::uuid"),
    "double": ("double precision", "i / 3.0"),
}
"""Type of a key column, and its value in row `i`."""


@pytest.mark.core
@pytest.mark.parametrize("first", _KEYS)
@pytest.mark.parametrize("second", [None, "int", "text"])
def test_ranges_of_any_key_hold_each_row_once(
    first: str, second: str | None, source: sa.Engine, tmp_path: Path
) -> None:
    (kind, value), (other, rest) = _KEYS[first], _KEYS.get(second or "", ("int", "0"))
    key = "a" if second is None else "a, b"
    made = value if second is None else value.replace("i", "(i % 7)", 1) if first == "int" else value
    execute(
        source,
        f"CREATE TABLE s.t (a {kind}, b {other}, n int, PRIMARY KEY ({key}))",
        f"INSERT INTO s.t SELECT {made}, {rest}, i FROM generate_series(1, 250) i",
    )
    lake = Lake(tmp_path)
    spec = replace(SPEC, keys=tuple(key.split(", ")), initial_load=InitialLoad(chunk_rows=37, parallel=2))
    loaded = done(lake, source, spec, LOAD)
    numbers = [n for name in files(lake) for n in pq.read_table(_landing(lake) / name).column("n").to_pylist()]
    assert sorted(numbers) == list(range(1, 251))
    assert loaded.details["keys"] == ([] if first == "uuid" else key.split(", "))


def _landing(lake: Lake) -> Path:
    return Path(lake.layout(SPEC).landing)


_TYPES = {
    "c1": ("smallint", "3"), "c2": ("bigint", "9007199254740993"), "c3": ("numeric(20, 4)", "1234567890123456.7891"),
    "c4": ("numeric", "1.50"), "c5": ("real", "0.1"), "c6": ("double precision", "1e300"), "c7": ("boolean", "true"),
    "c8": ("text", "E'\\u00fc\\u4e2d\\U0001f600, \"x\"\\n'"), "c9": ("varchar(9)", "''"), "c10": ("char(4)", "'ab'"),
    "c11": ("date", "'0001-01-01'"), "c12": ("timestamp", "'9999-12-31 23:59:59.999999'"),
    "c13": ("timestamptz", "'2024-03-31 02:30:00+02'"), "c14": ("bytea", "'\\x00ff'"),
    "c15": ("uuid", "md5('a')::uuid"),
    "c16": ("jsonb", "'{\"a\": [1, null]}'"), "c17": ("time", "'23:59:59.5'"), "c18": ("interval", "'1 day'"),
    "c19": ("int[]", "'{1,2,NULL}'"), "c20": ("inet", "'10.0.0.1'"), "c21": ("bit(3)", "B'101'"),
}  # fmt: skip


def test_values_of_each_type_arrive_as_they_are(source: sa.Engine, tmp_path: Path) -> None:
    columns = ", ".join(f"{name} {kind}" for name, (kind, _) in _TYPES.items())
    values = ", ".join(value for _, value in _TYPES.values())
    execute(
        source, f"CREATE TABLE s.t (id int PRIMARY KEY, {columns})", f"INSERT INTO s.t VALUES (1, {values})",
        "INSERT INTO s.t (id) VALUES (2)",
    )  # fmt: skip
    lake = Lake(tmp_path)
    done(lake, source)
    (row, empty) = sorted(_replica(lake), key=lambda one: one["id"])
    assert {name: row[name] for name in ("c4", "c15", "c16", "c17", "c18", "c19", "c20", "c21")} == {
        "c4": "1.50", "c15": "0cc175b9-c0f1-b6a8-31c3-99e269772661", "c16": '{"a": [1, null]}', "c17": "23:59:59.5",
        "c18": "1 day", "c19": "{1,2,NULL}", "c20": "10.0.0.1/32", "c21": "101",
    }  # fmt: skip
    assert {empty[name] for name in _TYPES} == {None}
    verified = done(lake, source, options=JobOptions(action=Verify()))
    assert verified.details["source"]["different"] == 0
    compared = set(verified.details["source"]["compared"])
    assert {f"c{n}" for n in (1, 2, 3, 5, 6, 7, 8, 9, 11, 12, 13, 14)} <= compared


def _replica(lake: Lake) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pa.table(DeltaTable(lake.layout(SPEC).replica).scan()).to_pylist()
    return rows


def test_progress_is_told_by_the_database_s_own_estimate(source: sa.Engine, tmp_path: Path) -> None:
    filled(source)
    lake, reported = Lake(tmp_path), list[str]()

    def steps(options: JobOptions) -> list[str]:
        reported.clear()
        job = lake.job([SPEC], options)
        runtime = Runtime(
            storage=Storage(), spark=NoSpark(), environ=environ(source), observe=lambda s: reported.append(s.step)
        )
        found = attempt(TableRun(job=job, spec=SPEC, runtime=runtime), totals_of(job))
        assert isinstance(found, TableOutcome)
        assert found.result.error is None
        return [step for step in reported if step.startswith("loaded")]

    assert set(steps(LOAD)) == {"loaded from the source"}, "a table without statistics"
    execute(source, "ANALYZE s.t")
    parts = [step.partition(" %")[0] for step in steps(AGAIN)[:2]]  # a slow machine says minutes, too
    assert parts == ["loaded from the source, about 10", "loaded from the source, about 20"]


def test_files_of_the_load_are_whole_and_those_of_others_rest(source: sa.Engine, tmp_path: Path) -> None:
    """The table was created without the rows that had just been read."""
    filled(source, 350)
    lake, spec = Lake(tmp_path), replace(SPEC, settle="1h")
    loaded = done(lake, source, spec)
    assert (loaded.main.inserted, lake.replica(spec), loaded.warnings) == (350, rows_of(source), ())
    execute(source, "DELETE FROM s.t WHERE id > 7")
    Capture(lake, source).write()
    left = done(lake, source, spec)
    assert [(one.code, one.count) for one in left.warnings] == [("FILES_UNSETTLED", 1)]
    first = Path(lake.layout(spec).landing, "LOAD00000001.parquet")
    first.write_bytes(first.read_bytes()[:100])  # by another writer, who has not ended
    assert [(one.code, one.count) for one in done(lake, source, spec).warnings] == [("FILES_UNSETTLED", 2)]


def test_table_without_keys_is_one_file_and_replaced_by_the_next_load(source: sa.Engine, tmp_path: Path) -> None:
    execute(source, "CREATE TABLE s.t (id int, v text)", "INSERT INTO s.t SELECT 1, 'x' FROM generate_series(1, 300)")
    lake, spec = Lake(tmp_path), replace(SPEC, keys=(), sequence_by=(), sweep_limit=TableSpec.sweep_limit)
    done(lake, source, spec)
    assert files(lake) == ["LOAD00000000.parquet", "LOAD00000001.parquet"]
    assert len(_replica(lake)) == 300
    for number in (1, 2):
        if number == 2:  # as by a rule of the bucket
            for path in Path(lake.layout(spec).landing).iterdir():
                path.unlink()
        execute(source, "INSERT INTO s.t VALUES (1, 'x')")
        assert done(lake, source, spec, AGAIN).warnings == ()
        assert done(lake, source, spec).warnings == ()
        assert len(_replica(lake)) == 300 + number
        assert done(lake, source, spec, JobOptions(action=Verify())).details["verdict"] == "equal"


def test_table_without_rows_is_created(source: sa.Engine, tmp_path: Path) -> None:
    execute(source, "CREATE TABLE s.t (id int PRIMARY KEY, v text)")
    lake = Lake(tmp_path)
    done(lake, source)
    assert lake.replica(SPEC) == {}
    assert done(lake, source).status == "skipped"


@pytest.mark.parametrize(
    ("spec", "options", "said"),
    [
        (replace(SPEC, options={}), LOAD, "no connection"),
        (replace(SPEC, options={"verify_connection": "HOME"}), LOAD, "not allowed"),
        (replace(SPEC, table="s.missing"), LOAD, "no table s.missing"),
    ],
)
def test_refusals_name_the_way_out(
    spec: TableSpec, options: JobOptions, said: str, source: sa.Engine, tmp_path: Path
) -> None:
    found = run(Lake(tmp_path), source, spec, options)
    assert found.error is not None
    assert said in found.error.message
    assert "Remedy" in found.error.message
    assert files(Lake(tmp_path), spec) == []


def test_load_files_of_another_writer_are_not_mixed(source: sa.Engine, tmp_path: Path) -> None:
    filled(source, 3)
    lake = Lake(tmp_path)
    lake.load(SPEC)
    found = run(lake, source, options=LOAD)
    assert found.error is not None
    assert "LOAD00000001.parquet" in found.error.message
    assert files(lake) == ["LOAD00000001.parquet"]


def test_query_that_takes_too_long_is_ended_by_the_database(source: sa.Engine, tmp_path: Path) -> None:
    filled(source, 300)
    execute(source, "ALTER TABLE s.t RENAME TO t_", "CREATE VIEW s.t AS SELECT *, pg_sleep(1)::text AS p FROM s.t_")
    slow = replace(SPEC, initial_load=InitialLoad(statement_timeout="1s"))
    found = run(Lake(tmp_path), source, slow, LOAD)
    assert found.error is not None
    assert "statement timeout" in found.error.message


def test_keys_are_read_as_they_were_written() -> None:
    moments = [datetime(2020, 1, 1, tzinfo=UTC), datetime.fromisoformat("2020-01-01T00:00:00.000001")]
    key = (True, -5, "\u00fc'\"", Decimal("1.20"), 1.5, *moments, date(2020, 1, 1), UUID(int=5), b"\x00")
    text = key_text(key)
    assert text is not None
    assert [(type(value), value) for value in key_values(text)] == [(type(value), value) for value in key]
    assert key_text((object(),)) is None


def test_rows_a_second_are_limited_over_all_connections() -> None:
    now, pauses = [100.0], []
    rate = RowRate(50, clock=lambda: now[0], sleep=pauses.append)
    for _ in range(3):
        rate.take(100)
    now[0] += 10
    rate.take(100)
    assert pauses == [0.0, 2.0, 4.0, 0.0]


def test_excluded_columns_are_not_read(source: sa.Engine, tmp_path: Path) -> None:
    execute(source, 'CREATE TABLE s.t (id int PRIMARY KEY, v text, "E Mail" text)')
    execute(source, "INSERT INTO s.t VALUES (1, 'a', 'x@y')")
    lake = Lake(tmp_path)
    done(lake, source, replace(SPEC, exclude_columns=("e_mail",)))
    assert [pq.read_schema(_landing(lake) / name).names for name in files(lake)] == [["id", "v"]] * 2


def test_a_misspelt_exclusion_is_refused_before_a_row_is_read(source: sa.Engine, tmp_path: Path) -> None:
    """And a right one, whose column no file has, is none later."""
    execute(source, "CREATE TABLE s.t (id int PRIMARY KEY, v text, e_mail text)")
    execute(source, "INSERT INTO s.t VALUES (1, 'a', 'x@y')")
    lake = Lake(tmp_path)
    for fields in ({"exclude_columns": ("e_mial",)}, {"mask": {"e_mial": "hash"}}):
        error = run(lake, source, replace(SPEC, **fields)).error  # type: ignore[arg-type]  # fields of a row, by name
        assert error is not None
        assert (error.code, "(near: 'e_mail')" in error.message) == ("PROTECTED_COLUMN_MISSING", True)
        assert not _landing(lake).exists()
    spec = replace(SPEC, exclude_columns=("e_mail",))
    done(lake, source, spec)
    assert lake.done(spec).warnings == ()
    assert lake.replica(spec) == {1: "a"}


def test_a_load_needs_no_column_of_the_service(source: sa.Engine, tmp_path: Path) -> None:
    execute(source, "CREATE TABLE s.t (id int PRIMARY KEY, v text)")
    execute(source, "INSERT INTO s.t VALUES (1, 'a')")
    lake, spec = Lake(tmp_path), replace(SPEC, exclude_columns=("AR_H_CHANGE_SEQ",))
    done(lake, source, spec)
    assert lake.done(spec).warnings == ()
    assert lake.replica(spec) == {1: "a"}


def test_larger_ranges_leave_no_older_file(source: sa.Engine, tmp_path: Path) -> None:
    filled(source)
    lake = Lake(tmp_path)
    done(lake, source)
    execute(source, "DELETE FROM s.t WHERE id > 500")
    fewer = replace(SPEC, initial_load=InitialLoad(chunk_rows=400))
    done(lake, source, fewer, AGAIN)
    assert len(files(lake)) == 3
    done(lake, source, fewer)
    assert lake.replica(SPEC) == rows_of(source)
    assert _has_ended(lake)


@pytest.mark.skipif(SERVER is None, reason="MariaDB is not installed: apt-get install mariadb-server")
def test_mariadb_is_read_by_ranges_and_types(tmp_path: Path) -> None:
    with mariadb() as engine:
        execute(
            engine,
            "CREATE TABLE t (a varchar(20), b bigint unsigned, n int unsigned, y year, d double, f float, "
            "t tinyint(1), u datetime(6), w decimal(30, 8), bin varbinary(8), j json, PRIMARY KEY (a, b)) "
            "CHARACTER SET utf8mb4",
            "INSERT INTO t SELECT concat('k', seq % 3), 18446744073709551000 + seq, 4294967295, 2024, 1.5, 0.1, "
            "seq % 2, '2024-01-01 00:00:00.000001', 1.5, x'00ff', '[1]' FROM seq_1_to_250",
        )
        spec = replace(SPEC, table="shop.t", keys=("a", "b"), initial_load=InitialLoad(chunk_rows=37, parallel=2))
        lake = Lake(tmp_path)
        done(lake, engine, spec)
        rows = pa.table(DeltaTable(lake.layout(spec).replica).scan()).to_pylist()
        verified = done(lake, engine, spec, JobOptions(action=Verify()))
    assert sorted(int(row["b"]) - 18446744073709551000 for row in rows) == list(range(1, 251))
    assert {(row["n"], row["d"], row["t"] in (0, 1), row["bin"], str(row["y"]), row["j"]) for row in rows} == {
        (4294967295, 1.5, True, b"\x00\xff", "2024", "[1]")
    }
    assert verified.details["source"]["different"] == 0


def test_load_of_a_part_of_the_rows_is_refused(source: sa.Engine, tmp_path: Path) -> None:
    """By a user from whom row-level security hides the others; also a comparison."""
    part = ("DROP ROLE IF EXISTS part", "CREATE ROLE part LOGIN", "GRANT USAGE ON SCHEMA s TO part")
    policy = ("ALTER TABLE s.t ENABLE ROW LEVEL SECURITY", "CREATE POLICY own ON s.t TO part USING (id = 1)")
    rows = ("CREATE TABLE s.t (id int PRIMARY KEY, v text)", "INSERT INTO s.t VALUES (1, 'a'), (2, 'b')")
    execute(source, *rows, *part, "GRANT SELECT ON s.t TO part", *policy)
    lake, user = Lake(tmp_path), sa.create_engine(source.url.set(username="part"), poolclass=sa.pool.NullPool)
    error = run(lake, user, options=LOAD).error
    assert error is not None
    assert (error.code, "ALTER ROLE part BYPASSRLS" in error.message) == ("SOURCE_ROWS_HIDDEN", True), error
    assert files(lake) in ([], ["LOAD00000000.parquet"])
    execute(source, "ALTER ROLE part BYPASSRLS")
    assert done(lake, user, options=LOAD).details["rows"] == 2
    execute(source, "DROP OWNED BY part", "DROP ROLE part")
