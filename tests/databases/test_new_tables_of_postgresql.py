"""A look at a PostgreSQL: columns that it renames, and tables whose changes jobs read from its log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_gddl.runtime.compiled.proposals import notes_of
from tests.one_task.commands import gddl
from tests.one_task.postgres import emptied, execute, postgres


def written(folder: Path, row: dict[str, Any], **source: Any) -> Path:
    """A metadata folder with a source and a row of it; the file of the row."""
    metadata = folder / "metadata"
    (metadata / "tables").mkdir(parents=True)
    (folder / "landing").mkdir()
    settings = {"landing": "../landing", "connection": "GDDL_SOURCE_CRM", **source}
    text = json.dumps({"landing": "../other", "lake": "../lake", "sources": {"crm": settings}})
    (metadata / "gddl.yaml").write_text(text)
    rows = metadata / "tables/crm.json"
    rows.write_text(json.dumps({"source": "crm", "tables": [row]}))
    return rows


def notes(folder: Path) -> dict[str, str]:
    gddl(folder, "new-tables", "look")
    found = notes_of(str(folder / "lake/_gddl/airflow/new-tables/default.json"), {})
    return {f"{note.table} {note.code}": note.text.rpartition("proposed for its row: ")[2] for note in found}


def test_renamed_columns_are_proposed_until_the_row_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"table": "s.orders", "keys": ["id"]}
    rows = written(tmp_path, row, new_tables="propose")
    with postgres() as engine:
        monkeypatch.setenv("GDDL_SOURCE_CRM", engine.url.render_as_string(hide_password=False))
        execute(emptied(engine), "CREATE TABLE s.orders (id int PRIMARY KEY, qty int, note text)")
        assert notes(tmp_path) == {}
        execute(engine, "ALTER TABLE s.orders RENAME qty TO quantity", "ALTER TABLE s.orders DROP note")
        execute(engine, "ALTER TABLE s.orders ADD note2 text")
        assert notes(tmp_path) == {"crm:s.orders COLUMN_RENAMED": "rename: {quantity: qty}"}
        execute(engine, 'ALTER TABLE s.orders RENAME quantity TO "Number, of"')
        assert notes(tmp_path) == {"crm:s.orders COLUMN_RENAMED": 'rename: {"Number, of": qty}'}
        rows.write_text(json.dumps({"source": "crm", "tables": [{**row, "rename": {"Number, of": "qty"}}]}))
        assert notes(tmp_path) == {}
        rows.write_text(json.dumps({"source": "crm", "tables": [row]}))
        execute(engine, "DROP TABLE s.orders", "CREATE TABLE s.orders (id int PRIMARY KEY, amount int)")
        assert notes(tmp_path) == {}, "a table that was made again"


def test_where_jobs_read_the_log_the_catalog_shows_new_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {"names": ["s.*"], "ignore": ["s.tmp*"]}
    written(
        tmp_path, {"table": "s.orders", "keys": ["id"]}, new_tables="propose", new_table_limits=limits,
        capture={"connector": "postgresql"},
    )  # fmt: skip
    with postgres() as engine:
        monkeypatch.setenv("GDDL_SOURCE_CRM", engine.url.render_as_string(hide_password=False))
        keyed = "(id int PRIMARY KEY, v text)"
        execute(emptied(engine), *(f"CREATE TABLE s.{name} {keyed}" for name in ("orders", "lines", "tmp1")))
        execute(engine, "CREATE TABLE s.log (v text)", "CREATE TABLE public.other (id int PRIMARY KEY)")
        found = {one["table"]: one for one in gddl(tmp_path, "new-tables", "look")[0]}
    assert {name: (one["code"], one["keys"]) for name, one in found.items()} == {
        "crm:s.lines": ("NEW_TABLE_PROPOSED", ["id"]),
        "crm:s.log": ("NEW_TABLE_NO_KEY", None),
    }
    assert found["crm:s.lines"]["evidence"] == "primary key lines_pkey"
