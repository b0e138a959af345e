"""Tables that land without a row: proposed within limits, accepted and loaded; files of DMS and of Debezium's sinks."""

from __future__ import annotations

import json
import os
import sqlite3
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from airflow_gddl.contract.codec import report_from_json
from airflow_gddl.runtime.compiled.proposals import StoredProposals
from airflow_gddl.stores import Storage
from airflow_gddl.tools.simulate.simulator import simulate
from airflow_gddl.tools.simulate.spec import SimulateSpec, TableShape
from tests.one_task.commands import gddl
from tests.unit.pages import page

ROWS = pa.table({"id": pa.array(range(50), pa.int64()), "note": ["n"] * 50})
OLD = 1_700_000_000


@dataclass
class Site:
    """A metadata folder with one row, `shop.orders`, and its landing root."""

    folder: Path
    new_tables: str = "propose"
    limits: dict[str, Any] = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.write("tables/crm.yaml", "source: crm\ntables:\n  - {table: shop.orders, keys: [id]}\n")
        self.settings()

    def settings(self, **changed: Any) -> None:
        source = {"landing": "../landing", "new_tables": self.new_tables, **self.more, **changed}
        source |= {"new_table_limits": self.limits} if self.limits else {}
        settings = {"landing": "../other", "lake": "../lake", "sources": {"crm": source}}
        self.write("gddl.yaml", json.dumps(settings))

    def write(self, name: str, text: str) -> None:
        path = self.folder / "metadata" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def land(self, *tables: str, rows: pa.Table = ROWS, age: float = OLD) -> None:
        """A full load and changes of each, as DMS writes them; `age`: when, seconds since the epoch."""
        for table in tables:
            schema, name = table.split(".")
            simulate(
                SimulateSpec(
                    input={name: rows}, landing=self.folder / "landing", schema=schema,
                    tables={name: TableShape(keys=("id",))}, rounds=1, changes=10,
                )
            )  # fmt: skip
        self.date(age)

    def date(self, moment: float) -> None:
        for path in (self.folder / "landing").rglob("*.parquet"):
            os.utime(path, (moment, moment))

    def folders(self, *names: str) -> None:
        for name in names:
            (self.folder / "landing" / name).mkdir(parents=True)

    def database(self, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """The source's catalog, with `main` as its schema."""
        with sqlite3.connect(self.folder / "source.db") as connection:
            connection.executescript(script)
        monkeypatch.setenv("GDDL_SOURCE_CRM", f"sqlite:///{self.folder / 'source.db'}")
        self.more["connection"] = "GDDL_SOURCE_CRM"
        self.settings()

    def look(self, status: int = 0) -> dict[str, dict[str, Any]]:
        """Table to what is known of it."""
        return {one["table"]: one for one in gddl(self.folder, "new-tables", "look", status=status)[0]}

    def accept(self, *tables: str) -> None:
        """Look, and accept what is found."""
        self.look()
        gddl(self.folder, "new-tables", "accept", *tables)

    def codes(self) -> dict[str, str]:
        return {name: one["code"] for name, one in self.look().items()}

    @property
    def stored(self) -> StoredProposals | None:
        path = self.folder / "lake/_gddl/airflow/new-tables/default.json"
        return report_from_json(StoredProposals, path.read_bytes()) if path.exists() else None

    def run(self) -> dict[str, str]:
        """Status by table; of those without files, `skipped`."""
        return {one["table"]: one["status"] for one in gddl(self.folder, "run")[0] if "table" in one}


def test_a_folder_is_proposed_once_accepted_and_loaded(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.land("shop.orders", "shop.lines")
    (proposed,) = site.look().values()
    assert (proposed["table"], proposed["standing"], proposed["keys"]) == ("crm:shop.lines", "proposed", ["id"])
    assert proposed["evidence"] == "measured: unique in all 50 rows of the full load"
    before = site.stored
    assert site.look()
    assert site.stored == before, "a proposal is made once"
    assert set(site.run()) == {"shop.orders"}
    gddl(tmp_path, "new-tables", "accept", "crm:shop.lines")
    assert site.run() == {"shop.orders": "skipped", "shop.lines": "succeeded"}


def test_a_full_load_that_is_still_landing_proves_no_key(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.land("shop.lines", age=4_000_000_000)
    assert site.codes() == {"crm:shop.lines": "NEW_TABLE_LANDING"}
    site.date(OLD)
    assert site.codes() == {"crm:shop.lines": "NEW_TABLE_PROPOSED"}


def test_a_key_that_was_measured_of_a_part_is_not_accepted(tmp_path: Path) -> None:
    """The files of the load are looked at again, also a day after they were found."""
    site = Site(tmp_path)
    site.land("shop.lines")
    assert site.codes() == {"crm:shop.lines": "NEW_TABLE_PROPOSED"}
    (load,) = (tmp_path / "landing/shop/lines").glob("LOAD*.parquet")
    more = load.with_name("LOAD00000002.parquet")
    rows = pq.read_table(load)
    pq.write_table(rows.set_column(0, "id", pc.add(rows["id"], 50)), more)
    _, said = gddl(tmp_path, "new-tables", "accept", "crm:shop.lines", status=2)
    assert "[NEW_TABLE_LANDING] crm:shop.lines: a file of its full load is younger than 10 minutes" in said
    pq.write_table(rows, more)
    site.date(OLD)
    _, said = gddl(tmp_path, "new-tables", "accept", "crm:shop.lines", status=2)
    assert "[NEW_TABLE_KEY_MEASURED] crm:shop.lines: id was measured, and by its files as they are now" in said
    assert site.run() == {"shop.orders": "skipped"}
    gddl(tmp_path, "new-tables", "accept", "crm:shop.lines", "--key", "id")
    more.unlink()
    assert site.run() == {"shop.orders": "skipped", "shop.lines": "succeeded"}


def test_a_load_that_lands_for_days_is_looked_into_until_it_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(tmp_path)
    site.land("shop.lines", age=4_000_000_000)
    assert site.codes() == {"crm:shop.lines": "NEW_TABLE_LANDING"}
    site.date(OLD)
    monkeypatch.setattr("airflow_gddl.tools.onboarding.new_tables.finding.DAY", 0.0)
    assert site.codes() == {"crm:shop.lines": "NEW_TABLE_PROPOSED"}


CATALOG = "CREATE TABLE lines (id INTEGER PRIMARY KEY, note TEXT); CREATE TABLE log (at TEXT, what TEXT);"


def test_keys_come_from_the_source_and_a_table_may_have_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(tmp_path)
    site.land("main.lines", "main.log", rows=ROWS.append_column("twice", pa.array(list(range(25)) * 2)))
    for path in (tmp_path / "landing/main/log").rglob("*.parquet"):
        pq.write_table(pq.read_table(path).drop_columns(["id"]), path)  # no column of it is unique
    site.database(CATALOG, monkeypatch)
    found = site.look()
    assert {name: (one["code"], one["keys"]) for name, one in found.items()} == {
        "crm:main.lines": ("NEW_TABLE_PROPOSED", ["id"]),
        "crm:main.log": ("NEW_TABLE_NO_KEY", None),
    }
    assert found["crm:main.lines"]["evidence"] == "primary key"
    gddl(tmp_path, "new-tables", "accept", "crm:main.lines")
    gddl(tmp_path, "new-tables", "accept", "crm:main.log", "--append-only")
    assert site.run() == {"main.lines": "succeeded", "main.log": "succeeded", "shop.orders": "skipped"}


def test_files_of_debezium_get_their_keys_from_the_source_or_a_person(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(tmp_path, more={"dialect": "debezium"})
    event = {"before": None, "after": {"id": 1, "note": "a"}, "op": "r", "ts_ms": OLD * 1000}
    event |= {"source": {"connector": "postgresql", "lsn": 1, "ts_ms": OLD * 1000, "snapshot": "true"}}
    for table in ("lines", "log"):
        path = tmp_path / f"landing/main/{table}/{table}+0+0000000000.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(event) + "\n")
    assert site.codes() == {"crm:main.lines": "NEW_TABLE_NO_KEY", "crm:main.log": "NEW_TABLE_NO_KEY"}
    site.database(CATALOG, monkeypatch)
    assert site.codes() == {"crm:main.lines": "NEW_TABLE_PROPOSED", "crm:main.log": "NEW_TABLE_NO_KEY"}
    gddl(tmp_path, "new-tables", "accept", "crm:main.lines")
    _, said = gddl(tmp_path, "new-tables", "accept", "crm:main.log", status=2)
    assert "[NEW_TABLE_NO_KEY]" in said
    gddl(tmp_path, "new-tables", "accept", "main.log", "--key", "id")
    assert site.run() == {"main.lines": "succeeded", "main.log": "succeeded", "shop.orders": "skipped"}


def test_a_connection_that_is_not_lent_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(tmp_path)
    site.land("main.lines")
    monkeypatch.setenv("DATABASE_URL", "sqlite:///secret.db")
    site.settings(connection="DATABASE_URL")
    _, said = gddl(tmp_path, "new-tables", "look", status=1)
    assert "[SOURCE_CONNECTION_REFUSED]" in said
    assert site.stored is None


def test_limits_hold_under_ten_thousand_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(tmp_path, limits={"ignore": ["*.tmp_*"], "names": ["Shop.*"]})
    site.folders(*(f"shop/a{n:05}" for n in range(10_000)))  # empty
    site.folders("shop/tmp_x", "other/lines", "shop/a,b", "shop/__secret", "shop/x__changes", "shop/..,")
    site.land(*(f"shop.z{n}" for n in range(5)))
    monkeypatch.setattr("airflow_gddl.tools.onboarding.new_tables.finding.MOST_READ", 5_000)
    for _ in range(3):
        found = site.look()
    assert [one["code"] for one in found.values()] == ["NEW_TABLE_PROPOSED"] * 5
    assert site.stored is not None
    notes = {note.code: note.text for note in site.stored.notes}
    assert notes["NEW_TABLE_NAMES"].startswith("no table can have the name of a folder: 2 in all, e.g. ")
    assert "more tables without a metadata row" in notes["NEW_TABLES_LEFT"]


def test_a_folder_takes_no_place_of_another_table(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.land("shop.orders", "shop.lines", "shop.parts")
    site.write("tables/others.yaml", "source: hr\ntables:\n  - {table: shop.parts, keys: [id]}\n")
    site.write("tables/removed.yaml", "source: crm\ntables:\n  - {table: shop.lines, keys: [id]}\n")
    assert site.codes() == {"crm:shop.parts": "NEW_TABLE_REFUSED"}, "another source has the target"
    (tmp_path / "other").mkdir()
    assert site.run() == {"shop.orders": "succeeded", "shop.lines": "succeeded", "shop.parts": "skipped"}
    (tmp_path / "metadata/tables/removed.yaml").unlink()
    assert site.codes()["crm:shop.lines"] == "NEW_TABLE_TARGET_EXISTS", "a person removed its row"


def test_two_looks_at_once_propose_a_table_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(tmp_path)
    site.land("shop.lines", "shop.parts")
    swap, others = Storage.swap, iter([True])

    def late(self: Storage, path: str, data: bytes, tag: str | None) -> bool:
        if path.endswith("new-tables/default.json") and next(others, False):
            assert site.look()
        return swap(self, path, data, tag)

    monkeypatch.setattr(Storage, "swap", late)
    assert list(site.codes().values()) == ["NEW_TABLE_PROPOSED", "NEW_TABLE_PROPOSED"]
    assert site.stored is not None
    assert len(site.stored.notes) == 2


def test_accepted_rows_are_in_files_of_the_folder(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.land("shop.lines", "shop.parts")
    site.accept("crm:shop.lines", "crm:shop.parts")
    assert (tmp_path / "metadata/tables/crm-2.yaml").read_text().splitlines()[1:] == [
        "source: crm",
        "tables:",
        "  - {table: shop.lines}  # landed as a new table",
        "  - {table: shop.parts}  # landed as a new table",
    ]
    keys = "  'crm:shop.lines': [id]  # measured: unique in all 50 rows of the full load"
    assert keys in (tmp_path / "metadata/keys/crm.yaml").read_text().splitlines()
    assert site.look() == {}
    assert site.stored is not None
    assert site.stored.notes == ()


def test_where_the_folder_is_read_only_the_rows_are_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(tmp_path)
    site.land("shop.lines")
    site.look()

    def refused(*_: Any) -> None:
        raise PermissionError("read-only file system")

    with monkeypatch.context() as patched:
        patched.setattr(Storage, "write", refused)
        (accepted, *files), _ = gddl(tmp_path, "new-tables", "accept", "crm:shop.lines")
        _, said = gddl(tmp_path, "new-tables", "accept", "crm:shop.lines", as_json=False)
    assert (accepted["standing"], [one["written"] for one in files]) == ("accepted", [False, False])
    assert "(read-only file system); add these files to it:" in said
    for one in files:
        assert f"{one['file']}:\n{one['text']}" in said
        site.write(one["file"], one["text"])
    assert site.run() == {"shop.orders": "skipped", "shop.lines": "succeeded"}


def test_what_is_ignored_stays_ignored(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.land("shop.lines")
    site.look()
    gddl(tmp_path, "new-tables", "ignore", "crm:shop.lines")
    assert site.look()["crm:shop.lines"]["standing"] == "ignored"
    _, said = gddl(tmp_path, "new-tables", "ignore", "crm:shop.nothing", status=2)
    assert "[OPTION_INVALID]" in said
    gddl(tmp_path, "new-tables", "accept", "crm:shop.lines")
    assert site.look() == {}


def test_a_proposal_goes_with_its_folder(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.land("shop.lines")
    assert site.codes()
    for path in sorted((tmp_path / "landing/shop/lines").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    (tmp_path / "landing/shop/lines").rmdir()
    assert site.look() == {}


def test_nothing_is_added_while_a_file_of_the_metadata_cannot_be_read(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.land("shop.lines")
    site.write("tables/broken.yaml", "tables: [")
    _, said = gddl(tmp_path, "new-tables", "look", status=2)
    assert "[NEW_TABLES_WAIT]" in said
    assert site.stored is None


def test_where_it_is_not_asked_for_that_is_said(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.settings(new_tables=None)
    _, said = gddl(tmp_path, "new-tables", "list", status=2)
    assert "[OPTION_INVALID]" in said


def test_settings_that_can_not_hold_are_refused(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.settings(new_tables="add")
    assert "must be" in gddl(tmp_path, "validate", status=2)[1]
    site.settings(new_tables=None, new_table_limits={"names": ["shop.*"]})
    assert "limits of nothing" in gddl(tmp_path, "validate", status=2)[1]
    site.settings(landing="../other/crm")
    site.write(
        "gddl.yaml",
        (tmp_path / "metadata/gddl.yaml").read_text().replace('"crm": {', '"hr": {"landing": "../other"}, "crm": {'),
    )
    assert "LANDING_SHARED" in gddl(tmp_path, "validate", status=2)[1]


def test_status_shows_what_awaits_a_person(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.land("shop.lines")
    site.look()
    said = " ".join(gddl(tmp_path, "status")[1].split())
    assert "crm:shop.lines: [NEW_TABLE_PROPOSED] has no metadata row;" in said
    assert "gddl new-tables accept crm:shop.lines" in said


def test_a_damaged_object_is_made_anew(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.land("shop.lines")
    found = site.look()
    (tmp_path / "lake/_gddl/airflow/new-tables/default.json").write_text("{")
    assert site.look().keys() == found.keys()


def test_commands_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = page("onboarding.md").partition("## Tables that come later\n")[2].partition("\n## ")[0]
    settings, commands = (text.partition(f"```{language}\n")[2].partition("```")[0] for language in ("yaml", "sh"))
    site = Site(tmp_path)
    site.write("gddl.yaml", settings)
    site.land("shop.refunds")
    (tmp_path / "landing").rename(tmp_path / "landing-crm")
    monkeypatch.chdir(tmp_path)
    for command in commands.splitlines():
        answer, _ = gddl(tmp_path, *command.split()[1:])
    assert {one["table"]: one["status"] for one in answer} == {"shop.orders": "skipped", "shop.refunds": "succeeded"}
    assert "shop.refunds" in (tmp_path / "metadata/tables/crm-2.yaml").read_text()


def test_an_idle_look_lists_the_root_and_each_schema_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(tmp_path)
    site.land("shop.orders", "shop.lines", "hr.people")
    site.accept("crm:shop.lines", "crm:hr.people")
    site.look()
    asked: list[str] = []
    for name in ("list", "folders", "swap", "write", "open_input", "exists"):
        monkeypatch.setattr(Storage, name, counted(getattr(Storage, name), name, asked))
    site.look()
    assert asked == ["folders", "folders", "folders"]


def counted(method: Any, name: str, asked: list[str]) -> Any:
    return lambda *arguments, **named: asked.append(name) or method(*arguments, **named)


def test_keys_of_a_large_load_are_not_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(tmp_path)
    site.land("shop.lines")
    monkeypatch.setattr("airflow_gddl.tools.onboarding.new_tables.finding.MOST_MEASURED", 10)
    assert site.codes() == {"crm:shop.lines": "NEW_TABLE_NO_KEY"}
