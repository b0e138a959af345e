"""`gddl onboard --capture`: from an empty project to tables that follow a live PostgreSQL."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa
from deltalake import DeltaTable

from airflow_gddl.cli.context import real
from airflow_gddl.cli.main import invoke
from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.contract.postgresql_log import Finding, creation_of, quoted_name
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.tools.onboarding.captured import missing, with_source
from tests.one_task.postgres import execute

TABLES = """
CREATE SCHEMA shop;
CREATE TABLE shop.orders (id bigint PRIMARY KEY, total int);
CREATE TABLE shop.items (id bigint PRIMARY KEY DEFERRABLE, name text);
CREATE TABLE shop.unwanted (id int PRIMARY KEY);
INSERT INTO shop.orders VALUES (1, 10), (2, 20);
INSERT INTO shop.items VALUES (7, 'a');
ANALYZE;
"""


@pytest.fixture
def shop(server: sa.Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[sa.Engine]:
    execute(server, TABLES)
    monkeypatch.setenv("GDDL_SOURCE_CRM", server.url.render_as_string(hide_password=False))
    yield server
    execute(server, "DROP SCHEMA shop CASCADE; DROP PUBLICATION IF EXISTS gddl_crm;")
    execute(server, "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = 'gddl_crm'")


TWO = ("shop.orders", "shop.items")


def onboard(
    folder: Path, *more: str, tables: Sequence[str] = TWO, connection: str = "GDDL_SOURCE_CRM", source: str = "crm"
) -> int:
    settings = folder / "metadata" / "gddl.yaml"
    settings.parent.mkdir(exist_ok=True)
    if not settings.exists():
        settings.write_text("landing: ../landing\nlake: ../lake\n")
    place = ["--metadata", str(settings.parent)]
    named = [word for table in tables for word in ("--table", table)]
    return invoke(["onboard", source, "--capture", "--connection", connection, *named, *place, *more], real())


def prepare(server: sa.Engine, folder: Path, capsys: pytest.CaptureFixture[str], **given: Any) -> list[str]:
    """Write the files, and run the statements that are printed, as a person does; returns them."""
    assert onboard(folder, "--write", **given) == 0
    statements = statements_of(capsys.readouterr().out)
    run_as_it_is(server, "\n".join(statements))
    return statements


def run_as_it_is(engine: sa.Engine, script: str) -> None:
    """What a person pastes into a client."""
    with engine.begin() as connection:
        connection.exec_driver_sql(script, execution_options={"no_parameters": True})


def statements_of(said: str) -> list[str]:
    """Printed statements."""
    return [line.strip() for line in said.splitlines() if line.strip().startswith(("ALTER ", "CREATE "))]


def published(server: sa.Engine) -> list[str]:
    with server.connect() as connection:
        query = "SELECT tablename FROM pg_publication_tables WHERE pubname = 'gddl_crm' ORDER BY 1"
        return list(connection.execute(sa.text(query)).scalars())


@pytest.mark.usefixtures("without_slot")
def test_one_command_and_a_run(shop: sa.Engine, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "ALTER TABLE shop.items REPLICA IDENTITY FULL;" in prepare(shop, tmp_path, capsys)
    assert onboard(tmp_path) == 0
    said = capsys.readouterr().out
    assert "the log can be read: publication gddl_crm" in said
    assert "the first run loads 2 tables with about 3 rows" in said
    assert published(shop) == ["items", "orders"], "of the wanted tables alone"
    metadata = str(tmp_path / "metadata")
    assert invoke(["validate", "--metadata", metadata], real()) == 0
    assert invoke(["run", "--metadata", metadata], real()) == 0
    execute(shop, "UPDATE shop.orders SET total = 25 WHERE id = 2; INSERT INTO shop.orders VALUES (3, 30);")
    assert invoke(["run", "--metadata", metadata], real()) == 0
    rows = pa.table(DeltaTable(tmp_path / "lake" / "shop" / "orders").scan()).to_pylist()
    assert {row["id"]: row["total"] for row in rows} == {1: 10, 2: 25, 3: 30}


def test_the_statements_are_shown_and_nothing_is_done(
    shop: sa.Engine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert onboard(tmp_path, "--write") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "CREATE PUBLICATION gddl_crm FOR TABLE" in said
    assert "WITH (publish_via_partition_root = true);" in said
    assert published(shop) == []
    execute(shop, "CREATE PUBLICATION gddl_crm FOR TABLE shop.orders;")
    assert onboard(tmp_path) == 0, "nothing is left to write"
    said = " ".join(capsys.readouterr().out.split())
    assert "ALTER PUBLICATION gddl_crm ADD TABLE shop.items;" in said


@pytest.mark.usefixtures("without_slot")
def test_tables_of_others_are_left_alone(shop: sa.Engine, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A published table without a row, whose updates fail in its application, is a warning."""
    execute(shop, "CREATE TABLE shop.others (page text); CREATE PUBLICATION gddl_crm FOR TABLE shop.others;")
    prepare(shop, tmp_path, capsys)
    assert onboard(tmp_path) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "to decide: updates and deletes of shop.others fail in the application" in said
    with shop.connect() as connection:
        query = "SELECT relreplident FROM pg_class WHERE oid = 'shop.others'::regclass"
        assert connection.execute(sa.text(query)).scalar() == "d"
    assert published(shop) == ["items", "orders", "others"]


def test_what_a_person_decides_is_no_statement(
    shop: sa.Engine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An unlogged table can't be published, and would be written anew as a logged one."""
    execute(shop, "ALTER TABLE shop.items SET UNLOGGED;")
    assert onboard(tmp_path, "--write") == 0
    said = capsys.readouterr().out
    assert "to decide: shop.items is unlogged" in " ".join(said.split())
    assert [one for one in statements_of(said) if "LOGGED" in one] == []


ODD = """
CREATE SCHEMA "user";
CREATE TABLE "user"."Order #1 $@-" (id int PRIMARY KEY DEFERRABLE, v text);
CREATE TABLE "user"."limit" (id int, at date) PARTITION BY RANGE (at);
CREATE TABLE "user"."p:1 %s %(a)s ""; DROP TABLE x; \\:y" PARTITION OF "user"."limit" FOR VALUES FROM ('2024-01-01') TO ('2025-01-01');
CREATE TABLE "user"."p\nü" PARTITION OF "user"."limit" FOR VALUES FROM ('2025-01-01') TO ('2026-01-01');
INSERT INTO "user"."limit" VALUES (1, '2024-05-05'), (2, '2025-05-05');
ANALYZE;
"""  # noqa: E501 - a name is whole
ODD_TABLES = ("user.Order #1 $@-", "user.limit")


@pytest.fixture
def odd(server: sa.Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[sa.Engine]:
    run_as_it_is(server, ODD)
    monkeypatch.setenv("GDDL_SOURCE_CRM", server.url.render_as_string(hide_password=False))
    yield server
    run_as_it_is(server, 'DROP SCHEMA "user" CASCADE; DROP PUBLICATION IF EXISTS gddl_crm;')


def onboard_odd(folder: Path, *more: str) -> int:
    """Both tables, also the one without a key."""
    code = onboard(folder, *more, tables=ODD_TABLES)
    for file in (folder / "metadata" / "tables").glob("*.yaml"):
        file.write_text(file.read_text().replace(", enabled: false", ""))
    return code


def test_names_of_all_kinds_are_names(odd: sa.Engine, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is printed can be run as it is."""
    assert onboard_odd(tmp_path, "--write") == 0
    capsys.readouterr()
    assert onboard_odd(tmp_path) == 0
    shown = statements_of(capsys.readouterr().out)
    assert len(shown) == 4, shown
    run_as_it_is(odd, "\n".join(shown))
    assert published(odd) == ["Order #1 $@-", "limit"]
    assert onboard_odd(tmp_path) == 0, "nothing is left to do"
    assert statements_of(capsys.readouterr().out) == []
    run_as_it_is(odd, 'DROP PUBLICATION gddl_crm; ALTER TABLE "user"."p\nü" REPLICA IDENTITY DEFAULT;')
    assert onboard_odd(tmp_path) == 0
    run_as_it_is(odd, "\n".join(statements_of(capsys.readouterr().out)))
    assert onboard_odd(tmp_path) == 0
    assert "the log can be read" in capsys.readouterr().out


@pytest.mark.parametrize(
    "before",
    [
        "SELECT 1;",
        "CREATE PUBLICATION gddl_crm;",
        'CREATE PUBLICATION gddl_crm FOR TABLE "user"."limit";',
        "CREATE PUBLICATION gddl_crm FOR ALL TABLES;",
        'CREATE PUBLICATION gddl_crm FOR TABLES IN SCHEMA "user";',
        "CREATE PUBLICATION gddl_crm WITH (publish_via_partition_root = true);",
    ],
)
def test_updates_of_the_application_go_on(
    before: str, odd: sa.Engine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever publication there is: a partition without a key has to name its rows before."""
    run_as_it_is(odd, before)
    assert onboard_odd(tmp_path, "--write") == 0
    capsys.readouterr()
    assert onboard_odd(tmp_path) == 0
    run_as_it_is(odd, "\n".join(statements_of(capsys.readouterr().out)))
    run_as_it_is(odd, """UPDATE "user"."limit" SET id = id + 1; DELETE FROM "user"."limit" WHERE id = 3;""")
    assert {"Order #1 $@-", "limit"} <= set(published(odd))


def test_words_of_the_server_are_quoted(server: sa.Engine) -> None:
    with server.connect() as connection:
        query = "SELECT word FROM pg_get_keywords() WHERE catcode IN ('R', 'T')"
        words = list(connection.execute(sa.text(query)).scalars())
    assert [word for word in words if quoted_name(f"{word}.t") != f'"{word}".t'] == []


def test_what_the_server_lacks_is_left_and_named(
    shop: sa.Engine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All slots are taken: no run can begin."""
    take = "SELECT pg_create_physical_replication_slot('taken_' || i) FROM generate_series(1, {}) AS i"
    with shop.connect() as connection:
        slots = int(connection.execute(sa.text("SHOW max_replication_slots")).scalar_one())
        used = int(connection.execute(sa.text("SELECT count(*) FROM pg_replication_slots")).scalar_one())
    execute(shop, take.format(slots - used))
    try:
        prepare(shop, tmp_path, capsys)
        assert onboard(tmp_path) == 0
        said = " ".join(capsys.readouterr().out.split())
        assert "to decide: all replication slots of the server are taken" in said
        assert "not every table can be loaded yet" in said
        assert "the log can be read" not in said
        assert published(shop) == ["items", "orders"]
    finally:
        execute(shop, "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots"
                " WHERE slot_name LIKE 'taken_%'")  # fmt: skip


def recorded(capsys: pytest.CaptureFixture[str], kind: str) -> list[dict[str, Any]]:
    lines = map(json.loads, capsys.readouterr().out.splitlines())
    return [line for line in lines if line["kind"] == kind]


def test_json_has_the_statements(shop: sa.Engine, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert onboard(tmp_path, "--write", "--json") == 0
    shown = recorded(capsys, "statement")
    run_as_it_is(shop, ";\n".join(one["sql"] for one in shown))
    assert published(shop) == ["items", "orders"]
    assert onboard(tmp_path, "--json") == 0
    (log,) = recorded(capsys, "log")
    assert log["is_ready"]
    assert (log["tables"], log["rows"]) == (["shop.items", "shop.orders"], 3)


def test_two_sources_of_one_database(shop: sa.Engine, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each has a publication and a slot of its own; sources whose names give the same slot are refused."""
    prepare(shop, tmp_path, capsys, tables=["shop.orders"])
    prepare(shop, tmp_path, capsys, tables=["shop.items"], source="crm-b")
    assert onboard(tmp_path, "--write", tables=["shop.unwanted"], source="crm_b") == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "its source reads the log by the slot gddl_crm_b, as that of crm-b:shop.items" in said
    assert published(shop) == ["orders"]
    execute(shop, "DROP PUBLICATION gddl_crm_b")


@pytest.mark.usefixtures("shop")
def test_jobs_read_what_the_command_prepares(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, server: sa.Engine
) -> None:
    """Another database than that of the source is never prepared in its place."""
    assert onboard(tmp_path, "--write") == 0
    monkeypatch.setenv("GDDL_SOURCE_OTHER", server.url.render_as_string(hide_password=False))
    assert onboard(tmp_path, connection="GDDL_SOURCE_OTHER") == 2
    assert "[FIELD_VALUE] jobs read the source crm by the connection GDDL_SOURCE_CRM" in " ".join(
        capsys.readouterr().err.split()
    )
    assert published(server) == []


@pytest.mark.usefixtures("shop")
def test_a_landing_folder_that_jobs_write_is_no_problem(
    server: sa.Engine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare(server, tmp_path, capsys)
    invoke(["check", "--metadata", str(tmp_path / "metadata"), "--json"], real())
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["status"] for line in lines if line["subject"] in ("landing", "log of crm")] == ["ok", "ok"]
    assert not (tmp_path / "landing").exists()
    assert published(server) == ["items", "orders"]


def test_a_name_is_never_taken_for_a_statement() -> None:
    odd, options = 's.x"; ALTER TABLE s.y OWNER TO z; --', {"capture": {"connector": "postgresql"}}
    spec = TableSpec(table=odd, keys=("id",), source="crm", dialect="debezium", options=options)
    name = quoted_name(odd)
    none = Finding("there is none", creation_of("gddl_crm"))
    lacking = Finding("not in it", "…", sql=(f"ALTER PUBLICATION gddl_crm ADD TABLE {name}",))
    assert missing([none, lacking], [spec]).statements == (creation_of("gddl_crm", name),)
    assert missing([lacking], [spec]).statements == lacking.sql


BLOCK = (
    "  crm:\n    connection: GDDL_SOURCE_CRM\n    capture: {connector: postgresql}\n"
    "    defaults: {initial_load: {}}  # the first run reads the tables, the log brings what changes\n"
)


def deeper(block: str) -> str:
    """Indented by four blanks instead of two."""
    return "".join(" " * (len(line) - len(line.lstrip())) + line for line in block.splitlines(keepends=True))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("lake: l\n", f"lake: l\nsources:\n{BLOCK}"),
        ("sources:  # all\n  erp: {owner: a}\nlake: l\n", f"sources:  # all\n{BLOCK}  erp: {{owner: a}}\nlake: l\n"),
        (f"sources:\n{BLOCK}", f"sources:\n{BLOCK}"),
        (
            "sources:\n\n    # ours\n    erp:\n        owner: a\n",
            f"sources:\n{deeper(BLOCK)}\n    # ours\n    erp:\n        owner: a\n",
        ),
        ("lake: l\r\nsources:\r\n  erp: {}\r\n", f"lake: l\nsources:\n{BLOCK}  erp: {{}}\n".replace("\n", "\r\n")),
        ("sources:\nlake: l\n", f"sources:\n{BLOCK}lake: l\n"),
        ("lake: l", f"lake: l\nsources:\n{BLOCK}"),
    ],
)
def test_block_of_the_source_is_added_once(before: str, after: str) -> None:
    assert with_source(before, "crm", "GDDL_SOURCE_CRM") == after


@pytest.mark.parametrize(
    "before",
    [
        "sources: {erp: {owner: a}}\n",
        "sources: {}\n",
        '"sources":\n  erp: {owner: a}\n',
        "sources :\n  erp: {owner: a}\n",
        "sources:\n  crm: {owner: a}\n",
        "sources:\n  crm:\n",
        "{landing: a, lake: b}\n",
        "lake: l\n...\n",
    ],
)
def test_other_forms_are_left_to_a_person(before: str) -> None:
    with pytest.raises(MetadataError, match="FIELD_VALUE") as error:
        with_source(before, "crm", "GDDL_SOURCE_CRM")
    assert "capture: {connector: postgresql}" in (error.value.remedy or "")


def test_another_connection_is_never_taken_for_that_of_the_source() -> None:
    with pytest.raises(MetadataError, match="FIELD_VALUE"):
        with_source(f"sources:\n{BLOCK}", "crm", "GDDL_SOURCE_OTHER")


def test_capture_needs_a_connection(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["onboard", "crm", "--metadata", str(tmp_path), "--capture"], real()) != 0
    assert "FIELD_VALUE" in capsys.readouterr().err
