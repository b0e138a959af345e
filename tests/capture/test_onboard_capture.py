"""`gddl onboard --capture`: from an empty folder to tables that follow a live PostgreSQL, by one command and a run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
import sqlalchemy as sa
from deltalake import DeltaTable

from airflow_gddl.cli.context import real
from airflow_gddl.cli.main import invoke
from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.contract.postgresql_log import Finding, creation_of, quoted_name
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.onboarding.captured import missing, with_source
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


def onboard(folder: Path, *more: str) -> int:
    place = ["--metadata", str(folder / "metadata")]
    roots = ["--landing", str(folder / "landing"), "--lake", str(folder / "lake")]
    tables = ["--table", "shop.orders", "--table", "shop.items"]
    return invoke(["onboard", "crm", "--connection", "GDDL_SOURCE_CRM", *tables, *place, *roots, *more], real())


def published(server: sa.Engine) -> list[str]:
    with server.connect() as connection:
        query = "SELECT tablename FROM pg_publication_tables WHERE pubname = 'gddl_crm' ORDER BY 1"
        return list(connection.execute(sa.text(query)).scalars())


@pytest.mark.usefixtures("without_slot")
def test_one_command_and_a_run(shop: sa.Engine, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert onboard(tmp_path, "--capture", "--write", "--apply") == 0
    said = capsys.readouterr().out
    assert "done: ALTER TABLE shop.items REPLICA IDENTITY FULL;" in said
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


def test_without_apply_the_statements_are_shown_and_nothing_is_done(
    shop: sa.Engine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert onboard(tmp_path, "--capture", "--write") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "CREATE PUBLICATION gddl_crm FOR TABLE" in said
    assert "WITH (publish_via_partition_root = true);" in said
    assert "--apply does it" in said
    assert published(shop) == []
    execute(shop, "CREATE PUBLICATION gddl_crm FOR TABLE shop.orders;")
    assert onboard(tmp_path, "--capture") == 0, "nothing is left to write"
    said = " ".join(capsys.readouterr().out.split())
    assert "ALTER PUBLICATION gddl_crm ADD TABLE shop.items;" in said
    assert onboard(tmp_path, "--capture", "--apply") == 0
    assert published(shop) == ["items", "orders"]


@pytest.mark.usefixtures("shop")
def test_nothing_is_done_at_the_source_before_the_files_are_written(
    server: sa.Engine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert onboard(tmp_path, "--capture", "--apply") == 1
    assert published(server) == []
    assert not (tmp_path / "metadata").exists()
    assert "nothing was written" in capsys.readouterr().err


@pytest.mark.usefixtures("without_slot")
def test_tables_of_others_are_left_alone(shop: sa.Engine, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A published table without a row, whose updates fail in its application, is a warning."""
    execute(shop, "CREATE TABLE shop.others (page text); CREATE PUBLICATION gddl_crm FOR TABLE shop.others;")
    assert onboard(tmp_path, "--capture", "--write", "--apply") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "to decide: updates and deletes of shop.others fail in the application" in said
    with shop.connect() as connection:
        query = "SELECT relreplident FROM pg_class WHERE oid = 'shop.others'::regclass"
        assert connection.execute(sa.text(query)).scalar() == "d"
    assert published(shop) == ["items", "orders", "others"]


def test_what_a_person_decides_is_not_done_and_nothing_else_is(
    shop: sa.Engine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An unlogged table can't be published, and would be written anew as a logged one."""
    execute(shop, "ALTER TABLE shop.items SET UNLOGGED;")
    assert onboard(tmp_path, "--capture", "--write", "--apply") == 2
    said = capsys.readouterr()
    assert "to decide: shop.items is unlogged" in " ".join(said.out.split())
    assert "SOURCE_REFUSED" in said.err
    with shop.connect() as connection:
        query = "SELECT relpersistence, relreplident FROM pg_class WHERE oid = 'shop.items'::regclass"
        assert tuple(connection.execute(sa.text(query)).one()) == ("u", "d")
    assert published(shop) == []


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


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("lake: l\n", f"lake: l\nsources:\n{BLOCK}"),
        ("sources:  # all\n  erp: {owner: a}\nlake: l\n", f"sources:  # all\n{BLOCK}  erp: {{owner: a}}\nlake: l\n"),
        (f"sources:\n{BLOCK}", f"sources:\n{BLOCK}"),
    ],
)
def test_block_of_the_source_is_added_once(before: str, after: str) -> None:
    assert with_source(before, "crm", "GDDL_SOURCE_CRM") == after


@pytest.mark.parametrize("before", ["sources: {erp: {owner: a}}\n", "sources:\n  crm: {owner: a}\n"])
def test_other_forms_are_left_to_a_person(before: str) -> None:
    with pytest.raises(MetadataError, match="SOURCE_INVALID") as error:
        with_source(before, "crm", "GDDL_SOURCE_CRM")
    assert "capture: {connector: postgresql}" in (error.value.remedy or "")


@pytest.mark.parametrize("arguments", [["--capture"], ["--apply", "--connection", "GDDL_SOURCE_CRM"]])
def test_options_need_each_other(arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["onboard", "crm", "--metadata", str(tmp_path), *arguments], real()) != 0
    assert "CONNECTION_INVALID" in capsys.readouterr().err
