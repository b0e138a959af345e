"""Columns that a PostgreSQL renames: a look proposes `rename` for the row, by which one column keeps its values."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airflow_gddl.metadata import looks
from tests.delta_rs.commands import gddl
from tests.delta_rs.postgres import emptied, execute, postgres


def notes(folder: Path) -> dict[str, str]:
    gddl(folder, "new-tables", "look")
    path = folder / "lake/_gddl/airflow/rows/default.json"
    stored = looks.parsed(path.read_bytes() if path.exists() else None, str(path))
    return {f"{note.table} {note.code}": note.text.rpartition("proposed for its row: ")[2] for note in stored.notes}


def test_renamed_columns_are_proposed_until_the_row_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "metadata"
    (folder / "tables").mkdir(parents=True)
    (tmp_path / "landing").mkdir()
    source = {"landing": "../landing", "new_tables": "propose", "connection": "GDDL_SOURCE_CRM"}
    settings = {"landing": "../other", "lake": "../lake", "sources": {"crm": source}}
    (folder / "gddl.yaml").write_text(json.dumps(settings))
    row = {"table": "s.orders", "keys": ["id"]}
    rows = folder / "tables/crm.json"
    rows.write_text(json.dumps({"source": "crm", "tables": [row]}))
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
