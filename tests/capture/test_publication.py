"""What the source lacks, found by `gddl check` and by a run before its first row, with the statement that mends it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
import sqlalchemy as sa
import yaml

from airflow_gddl.cli import context
from airflow_gddl.cli.main import invoke
from airflow_gddl.contract.extensions import ConnectorName
from airflow_gddl.contract.postgresql_log import published_table, source_findings, table_findings
from airflow_gddl.contract.row_checks import check_table
from airflow_gddl.contract.sources.capture import READ
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.tools.onboarding.database import Database
from tests.capture.captured import CAPTURE, SPEC, again, prepared, refused, replica, rows_of
from tests.databases.test_initial_load import NAME, environ
from tests.harness.lake import Lake
from tests.one_task.postgres import execute, postgres

pytestmark = [pytest.mark.core, pytest.mark.usefixtures("without_slot")]

TABLE = "CREATE TABLE s.t (id int PRIMARY KEY, v text)"
PART = "CREATE TABLE s.p PARTITION OF s.t FOR VALUES FROM (0) TO (9)"
OTHER_PART = "CREATE TABLE s.q PARTITION OF s.t FOR VALUES FROM (9) TO (20)"
FULL_PART = "ALTER TABLE s.p REPLICA IDENTITY FULL"
Check = Callable[..., list[dict[str, Any]]]
MOVES = replace(SPEC, before_image_prefix="BI_")
FULL = "ALTER TABLE s.t REPLICA IDENTITY FULL"


def found(server: sa.Engine, spec: TableSpec = SPEC) -> list[tuple[str, str]]:
    with server.connect() as connection:
        of_source = list(source_findings(sa, connection, "gddl", "gddl"))
        table = published_table(sa, connection, "gddl", spec.name_in_source)
        return [(one.what, one.statement) for one in (*of_source, *table_findings(spec, table, "gddl"))]


PUBLISHED = (
    ("FOR TABLE s.t WITH (publish = 'insert, update')", TABLE, "leaves out every delete and truncate",
    "SET (publish ="),
    ("FOR TABLE s.x", TABLE, "s.t is not in publication gddl", "ADD TABLE s.t"),
    ("FOR TABLE s.t (id)", TABLE, "columns of s.t are not published: v", "exclude_columns: [v]"),
    ("FOR TABLE s.t WHERE (id > 5)", TABLE, "leaves out rows of s.t", "without WHERE"),
    ("FOR ALL TABLES",
    f"{TABLE} PARTITION BY RANGE (id); CREATE TABLE s.p PARTITION OF s.t FOR VALUES FROM (0) TO (9)",
     "published as its partitions'", "publish_via_partition_root = true"),
    ("FOR ALL TABLES", "CREATE TABLE s.t (id int, v text)", "updates and deletes of s.t fail in the application",
     "ALTER TABLE s.t REPLICA IDENTITY FULL"),
    ("FOR ALL TABLES", "CREATE TABLE s.t (id int PRIMARY KEY, v text); ALTER TABLE s.t REPLICA IDENTITY NOTHING",
     "fail in the application", "REPLICA IDENTITY FULL"),
    ("FOR ALL TABLES", "CREATE TABLE s.t (pk int PRIMARY KEY, id int)", "do not name the key id",
    "ALTER TABLE s.t REPLICA IDENTITY FULL"),
    ("FOR ALL TABLES", "CREATE TABLE s.t (pk int PRIMARY KEY, id int); ALTER TABLE s.t REPLICA IDENTITY FULL",
     "that change id leave the old row", "before_image_prefix: BI_"),
    ("FOR ALL TABLES", "CREATE TABLE s.t (id int PRIMARY KEY, v int, w int GENERATED ALWAYS AS (v * 2) STORED)",
     "columns of s.t are not published: w", "exclude_columns: [w]"),
    ("FOR ALL TABLES", "CREATE TABLE s.t (id int PRIMARY KEY); CREATE TYPE s.e AS ENUM ('a'); CREATE DOMAIN s.d AS s.e",
     "s.d is a domain over an enum", "DROP DOMAIN s.d"),
    ("FOR ALL TABLES", "CREATE TABLE s.t (id int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED, v text)",
     "its primary key is deferrable, which identifies no row", "ALTER TABLE s.t REPLICA IDENTITY FULL"),
    ("FOR TABLE s.x", "CREATE TABLE s.t (id int PRIMARY KEY DEFERRABLE)", "s.t is not in publication gddl",
     "ALTER TABLE s.t REPLICA IDENTITY FULL; ALTER PUBLICATION gddl ADD TABLE s.t"),
    ("FOR ALL TABLES WITH (publish_via_partition_root = true)",
     f"CREATE TABLE s.t (id int, v text) PARTITION BY RANGE (id); {PART}; ALTER TABLE s.t REPLICA IDENTITY FULL",
     "updates and deletes of s.p (published as s.t) fail", "ALTER TABLE s.p REPLICA IDENTITY FULL"),
    ("FOR ALL TABLES WITH (publish_via_partition_root = true)",
     f"CREATE TABLE s.t (pk int PRIMARY KEY, id int) PARTITION BY RANGE (pk); {PART}; {OTHER_PART}; {FULL_PART}",
     "deletes in s.q do not name the key id", "ALTER TABLE s.q REPLICA IDENTITY FULL"),
    ("FOR ALL TABLES WITH (publish_via_partition_root = true)",
     f"{TABLE} PARTITION BY RANGE (id); CREATE UNLOGGED TABLE s.p PARTITION OF s.t FOR VALUES FROM (0) TO (9)",
     "s.p is unlogged", "ALTER TABLE s.p SET LOGGED"),
    ("FOR ALL TABLES", f"{TABLE}; CREATE TABLE s.child (w int, PRIMARY KEY (id)) INHERITS (s.t)",
     "s.t has children by inheritance", "ALTER TABLE s.child NO INHERIT s.t"),
    ("FOR ALL TABLES", "CREATE VIEW s.t AS SELECT 1 AS id", "s.t is a view, whose rows are in no log",
     "name the tables"),
    ("FOR ALL TABLES", "CREATE TABLE s.t (id int PRIMARY KEY, a int[], b point)", "a (_int4), b (point)",
    "exclude_columns: [a, b]"),
)  # fmt: skip


@pytest.mark.parametrize(("publication", "tables", "what", "statement"), PUBLISHED, ids=[one[2] for one in PUBLISHED])
def test_each_finding_has_a_statement(
    publication: str, tables: str, what: str, statement: str, server: sa.Engine, tmp_path: Path
) -> None:
    prepared(server, *tables.split("; "), "CREATE TABLE s.x (id int PRIMARY KEY)")
    execute(server, "DROP PUBLICATION gddl", f"CREATE PUBLICATION gddl {publication}")
    shown = found(server)
    assert [one for one in shown if what in one[0] and statement in one[1]], shown
    code, message = refused(Lake(tmp_path), server, 0)
    assert code in ("NOT_PUBLISHED", "SOURCE_LOG_REFUSED"), message
    assert not Path(tmp_path, "landing").exists()
    assert _slots(server) == 0, "nothing was opened"


@pytest.mark.parametrize(
    ("tables", "spec"),
    [
        ((TABLE,), SPEC),
        ((TABLE, FULL), SPEC),
        (("CREATE TABLE s.t (id int, v text)", FULL), MOVES),
        (("CREATE TABLE s.t (id int, v text)", FULL), replace(SPEC, keys=())),
        (("CREATE TABLE s.t (pk int PRIMARY KEY, id int)", FULL), MOVES),
        (("CREATE TABLE s.t (id int NOT NULL, v text)", "CREATE UNIQUE INDEX u ON s.t (id)",
          "ALTER TABLE s.t REPLICA IDENTITY USING INDEX u"), MOVES),
        (('CREATE TABLE s.t ("ID" int PRIMARY KEY, v text)',), SPEC),
        (('CREATE TABLE s.t (old int PRIMARY KEY, v text)',), replace(SPEC, rename={"old": "id"})),
        (("CREATE TABLE s.t (id int PRIMARY KEY, v int[])",), replace(SPEC, exclude_columns=("v",))),
        (("CREATE TABLE s.t (id int PRIMARY KEY) PARTITION BY RANGE (id)",
          "CREATE TABLE s.p PARTITION OF s.t FOR VALUES FROM (0) TO (9)"), SPEC),
    ],
)  # fmt: skip
def test_tables_that_can_be_followed_have_no_finding(
    tables: tuple[str, ...], spec: TableSpec, server: sa.Engine
) -> None:
    prepared(server, *tables)
    assert found(server, spec) == []


def test_remedy_of_each_partition_mends_it(server: sa.Engine) -> None:
    prepared(server, "CREATE TABLE s.t (id int, v text) PARTITION BY RANGE (id)", PART, OTHER_PART)
    execute(server, *(statement for _, statement in found(server, MOVES)))
    assert found(server, MOVES) == []
    execute(server, "INSERT INTO s.t VALUES (1, 'a'), (10, 'b')", "UPDATE s.t SET v = 'c'")


def test_missing_publication_and_rights_are_named(server: sa.Engine, tmp_path: Path) -> None:
    prepared(server, TABLE, "DROP PUBLICATION gddl", "DROP ROLE IF EXISTS reader", "CREATE ROLE reader LOGIN")
    code, message = refused(Lake(tmp_path), server, 0)
    assert (code, "there is no publication gddl" in message) == ("SOURCE_LOG_REFUSED", True)
    reader = sa.create_engine(server.url.set(username="reader"), poolclass=sa.pool.NullPool)
    with reader.connect() as connection:
        shown = [one.statement for one in source_findings(sa, connection, "gddl", "gddl")]
    assert "ALTER ROLE reader REPLICATION (on RDS: GRANT rds_replication TO reader)" in shown
    assert any(one.startswith("CREATE PUBLICATION gddl") for one in shown)


def test_user_who_would_see_a_part_of_the_rows_is_refused(server: sa.Engine, tmp_path: Path) -> None:
    prepared(server, TABLE, "INSERT INTO s.t VALUES (1, 'a'), (2, 'b')", "ALTER TABLE s.t ENABLE ROW LEVEL SECURITY")
    execute(server, "DROP ROLE IF EXISTS part", "CREATE ROLE part LOGIN REPLICATION", "GRANT USAGE ON SCHEMA s TO part")
    execute(server, "GRANT SELECT ON s.t TO part", "CREATE POLICY own ON s.t TO part USING (id = 1)")
    part = sa.create_engine(server.url.set(username="part"), poolclass=sa.pool.NullPool)
    code, message = refused(Lake(tmp_path), part, 0)
    assert (code, "ALTER ROLE part BYPASSRLS" in message) == ("SOURCE_ROWS_HIDDEN", True), message
    assert (_slots(server), Path(tmp_path, "landing").exists()) == (0, False)
    execute(server, "ALTER ROLE part BYPASSRLS")
    lake = Lake(tmp_path)
    again(lake, part, 1)
    assert replica(lake) == rows_of(server)
    execute(server, "DROP OWNED BY part", "DROP ROLE part")


def test_a_published_table_that_is_not_loaded_stops_no_other(server: sa.Engine, tmp_path: Path, check: Check) -> None:
    """A disabled one without a key, and one that has no row."""
    prepared(server, TABLE, "INSERT INTO s.t VALUES (1, 'a')", 'CREATE TABLE s."Log" (v text)')
    lake = Lake(tmp_path / "lake")
    for number, change in enumerate(("INSERT INTO s.\"Log\" VALUES ('x')", "UPDATE s.t SET v = 'b'")):
        (warning,) = again(lake, server, number).warnings
        assert (warning.code, warning.count, warning.sample) == ("PUBLISHED_WITHOUT_KEY", 1, ("s.Log",))
        assert 'ALTER TABLE s."Log" REPLICA IDENTITY FULL' in warning.message
        execute(server, change)
    again(lake, server, "last")
    assert replica(lake) == rows_of(server) == [{"id": 1, "v": "b"}]
    own = replace(SPEC, table="s.Log", keys=())
    code, message = refused(Lake(tmp_path / "own"), server, "own", own)
    assert (code, "s.Log fail in the application" in message) == ("SOURCE_LOG_REFUSED", True)
    warned, fine = check("s.t")
    assert (warned["status"], fine["status"]) == ("warning", "ok")
    (failed,) = (line for line in check("s.t", "s.Log") if "s.Log fail" in line["message"])
    assert failed["status"] == "failed"


def test_database_without_logical_replication_is_named(tmp_path: Path) -> None:
    with postgres() as engine:
        execute(engine, "CREATE SCHEMA s", TABLE, "CREATE PUBLICATION gddl FOR ALL TABLES")
        code, message = refused(Lake(tmp_path), engine, 0)
    assert code == "SOURCE_LOG_REFUSED"
    assert "wal_level is replica" in message


@pytest.fixture
def check(
    server: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Check:
    monkeypatch.setenv(NAME, environ(server)[NAME])
    return lambda *tables: _checked(tmp_path, capsys, tables)


def test_check_shows_each_finding_in_a_line(server: sa.Engine, check: Check) -> None:
    prepared(server, TABLE, "CREATE TABLE s.u (id int PRIMARY KEY, a int[])")
    execute(server, "ALTER PUBLICATION gddl SET (publish = 'insert')")
    lines = check("s.t", "s.u")
    assert [line["status"] for line in lines] == ["failed", "failed"]
    assert "leaves out every update and delete and truncate" in lines[0]["message"]
    assert "Remedy: ALTER PUBLICATION gddl SET (publish =" in lines[0]["message"]
    assert "a (_int4)" in lines[1]["message"]
    execute(server, "ALTER PUBLICATION gddl SET (publish = 'insert, update, delete, truncate')")
    (line,) = check("s.t")
    assert line["status"] == "ok"
    assert "the slot gddl is made by the first run, and keeps the log without a limit" in line["message"]
    assert Database(NAME, environ(server)).log_findings([SPEC])[0] == []


def _checked(folder: Path, capsys: pytest.CaptureFixture[str], tables: tuple[str, ...]) -> list[dict[str, Any]]:
    _write_metadata(folder, CAPTURE, tables)
    invoke(["check", "--metadata", str(folder), "--json"], context.real())
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    return [line for line in lines if line["subject"] == "log of crm"]


def _write_metadata(folder: Path, capture: Mapping[str, Any], tables: Iterable[str]) -> None:
    source = {"connection": NAME, "capture": dict(capture)}
    (folder / "tables").mkdir(exist_ok=True)
    settings = {"landing": str(folder / "landing"), "lake": str(folder / "lake"), "sources": {"crm": source}}
    (folder / "gddl.yaml").write_text(yaml.safe_dump(settings))
    rows = [{"table": table, "keys": ["id"]} for table in tables]
    (folder / "tables" / "s.yaml").write_text(yaml.safe_dump({"source": "crm", "tables": rows}))


def _slots(server: sa.Engine) -> Any:
    with server.connect() as connection:
        return connection.execute(sa.text("SELECT count(*) FROM pg_replication_slots")).scalar()


@pytest.mark.parametrize(
    ("capture", "path"),
    [
        ({"connector": "postgres"}, ("connector",)),
        ({"connector": "postgresql", "properties": {"slot.name": "Gddl; DROP"}}, ("properties", "slot.name")),
        ({"connector": "postgresql", "properties": {"database.password": "x"}}, ("properties", "database.password")),
        ({"connector": "postgresql", "properties": {"snapshot.mode": "initial"}}, ("properties", "snapshot.mode")),
        (
            {"connector": "postgresql", "properties": {"table.exclude.list": "s.t"}},
            ("properties", "table.exclude.list"),
        ),
        ({"connector": "postgresql", "properties": {"max.batch.size": [1]}}, ("properties", "max.batch.size")),
    ],
)
def test_bad_settings_are_refused(capture: dict[str, Any], path: tuple[str, ...]) -> None:
    spec = replace(SPEC, options={**SPEC.options, "capture": capture})
    problems = list(check_table(spec))
    assert [one.path for one in problems] == [("options", "capture", *path)]
    assert "password" not in path[-1] or problems[0].value == "(not shown)"


@pytest.mark.parametrize("connector", sorted({*get_args(ConnectorName)} - {READ}))
def test_connectors_whose_logs_are_not_read_are_refused_before_a_job(
    connector: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _write_metadata(tmp_path, {"connector": connector}, ("s.t",))
    assert invoke(["validate", "--metadata", str(tmp_path)], context.real()) == 2
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "SOURCE_LOG_REFUSED" in line]
    assert "sources.crm.capture.connector" in line
    assert f"value '{connector}'" in line


@pytest.mark.parametrize(
    "beside",
    [{"topic": "crm.{schema}.{table}", "bootstrap_servers": "k:9092"}, {"log_began": ["2026-01-01T00:00:00Z"]}],
)
def test_another_way_to_the_log_beside_it_is_refused(beside: dict[str, Any]) -> None:
    problems = list(check_table(replace(SPEC, options={**SPEC.options, **beside})))
    assert [one.path for one in problems] == [("options", "capture")]


def test_connection_is_needed() -> None:
    spec = replace(SPEC, options={"capture": CAPTURE}, initial_load=None)
    assert [one.path for one in check_table(spec)] == [("options", "capture")]
