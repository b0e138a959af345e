"""`gddl as-of --to views`: make, list, verify, repeat and drop views, in a catalog of files, and as statements."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from airflow_gddl.as_of.commands import _Lake
from airflow_gddl.cli import context
from airflow_gddl.cli.main import invoke
from airflow_gddl.contract.actions import ConsistentCut, Erase
from airflow_gddl.contract.extensions import CatalogSpec, EntryName
from airflow_gddl.contract.spec import JobOptions
from airflow_gddl.stores import Storage
from spark_jobs.actions.consistent_cut import act
from spark_jobs.batch.totals import RunTotals
from spark_jobs.catalogs.catalog_port import CatalogError
from tests.as_of.test_by_time import ACCOUNTS, ORDERS, Service, at, filled
from tests.as_of.test_command import as_of
from tests.harness.lake import Lake

SPECS = tuple(replace(spec, history=True) for spec in (ACCOUNTS, ORDERS))
AT = at(5).isoformat()
MADE = ("--source", "default", "--to", "views", "--at", AT)


class KilledError(BaseException):
    """As of a process that is killed: nothing is tidied up behind it."""


@dataclass
class FolderCatalog:
    """Entries as files; it stands for a Hive metastore, whose port needs Spark. See `ViewPort`."""

    folder: Path
    before_write: Callable[[], None] = lambda: None
    is_down: bool = False

    def path(self, name: EntryName) -> Path:
        if self.is_down:
            raise CatalogError("CATALOG_UNREACHABLE", "it does not answer", is_down=True)
        return self.folder / f"{name}.json"

    def create_view(self, name: EntryName, query: str, comment: str, properties: Mapping[str, str]) -> bool:
        if self.path(name).exists():
            return False
        self.before_write()
        self.folder.mkdir(exist_ok=True)
        self.path(name).write_text(json.dumps({"query": query, "comment": comment, "properties": dict(properties)}))
        return True

    def view_properties(self, name: EntryName) -> Mapping[str, str] | None:
        if not self.path(name).exists():
            return None
        found: dict[str, str] = json.loads(self.path(name).read_text())["properties"]
        return found

    def drop_view(self, name: EntryName) -> None:
        self.path(name).unlink(missing_ok=True)

    def names(self) -> list[str]:
        return sorted(path.stem for path in self.folder.glob("*.json"))


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


@pytest.fixture
def catalog(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> FolderCatalog:
    made = FolderCatalog(lake.root / "catalog")
    monkeypatch.setattr("spark_jobs.catalogs.hive_catalog.hive_catalog", lambda *_: made)
    return made


@pytest.fixture
def service(lake: Lake) -> Service:
    made = filled(lake, SPECS)
    metadata(lake)
    return made


def metadata(lake: Lake, kind: str = "hive", **fields: Any) -> None:
    folder = lake.root / "metadata" / "tables"
    folder.mkdir(parents=True, exist_ok=True)
    catalogs = {"main": {"kind": kind, "database": "lake_{schema}"}}
    roots = {"landing": lake.roots.landing, "lake": lake.roots.lake}
    (folder.parent / "gddl.yaml").write_text(json.dumps({**roots, "catalogs": catalogs}))
    rows = [
        {"table": spec.table, "keys": ["id"], "settle": "0s", "history": True, "catalog": "main", **fields}
        for spec in SPECS
    ]
    (folder / "rows.yaml").write_text(json.dumps({"source": "default", "tables": rows}))


def views(name: str) -> list[str]:
    return [f"lake_s.{name}__accounts", f"lake_s.{name}__orders"]


@pytest.mark.usefixtures("service")
def test_views_are_made_listed_verified_repeated_and_dropped(lake: Lake, catalog: FolderCatalog) -> None:
    (made,), _ = as_of(lake, *MADE, "--prefix", "first")
    assert catalog.names() == views("first")
    assert [one["view"]["name"] for one in made["tables"]] == views("first")
    assert [one["rows"] for one in made["tables"]] == [2, 2]
    assert not (lake.root / "lake/_as_of").exists()
    entry = json.loads((lake.root / "catalog/lake_s.first__orders.json").read_text())
    assert entry["comment"] == f"default as of {made['moment']['until']}"
    assert entry["properties"] == {
        "gddl.cut": str(lake.root / "lake/_gddl/cuts/first.json"), "gddl.cut.begun": made["begun_at"],
    }  # fmt: skip
    assert f"FROM delta.`{lake.layout(SPECS[1]).history}`" in entry["query"]
    assert as_of(lake, "list")[0] == [{**made, "not_compared": {}}]
    (verified,), _ = as_of(lake, "verify", "first")
    both = ["s.accounts", "s.orders"]
    assert verified == {"cut": "first", "equal": both, "different": [], "not_compared": [], "failed": {}}
    (again,), _ = as_of(lake, "--again", "first", "--prefix", "second")
    assert [one["digest"] for one in again["tables"]] == [one["digest"] for one in made["tables"]]
    assert catalog.names() == [*views("first"), *views("second")]
    (dropped,), _ = as_of(lake, "drop", "first")
    assert dropped == {"cut": "first", "tables": ["s.accounts", "s.orders"], "statements": [], "left": []}
    assert catalog.names() == views("second")
    assert [one["name"] for one in as_of(lake, "list")[0]] == ["second"]


@pytest.mark.usefixtures("catalog")
def test_changes_that_come_later_or_late_are_said(lake: Lake, service: Service) -> None:
    as_of(lake, *MADE, "--prefix", "first")
    assert "was not compared" not in listed(lake)
    service.change(ORDERS, [(at(30), "I", 7, 7)])
    lake.done(SPECS[1])
    assert "lake_s.first__orders was not compared since version" in listed(lake)
    (document,) = as_of(lake, "list")[0]
    assert document["not_compared"]["s.orders"].startswith("lake_s.first__orders was not compared since version")
    as_of(lake, "verify", "first")
    assert "was not compared" not in listed(lake)
    rewrite(lake, service)
    said = as_of(lake, "verify", "first", status=1)[1]
    assert ("[CUT_NOT_SAME]" in said, "s.orders of first have other rows" in said) == (True, True)
    assert "first__orders was not compared since version" in listed(lake)
    assert "[CUT_NOT_SAME]" in as_of(lake, "--again", "first", "--prefix", "second", status=2)[1]
    assert sorted(path.stem for path in (lake.root / "catalog").iterdir()) == views("first")


def listed(lake: Lake) -> str:
    """The list for people."""
    with redirect_stdout(StringIO()) as out:
        assert invoke(["as-of", "list", "--metadata", str(lake.root / "metadata")], context.real()) == 0
    return " ".join(out.getvalue().split())


def rewrite(lake: Lake, service: Service) -> None:
    """The first file of orders is written again, and corrects what it first said."""
    service.sequence, service.files["s.orders"] = 4, 0
    assert service.change(ORDERS, [(at(1), "I", 1, 99), (at(6), "I", 2, 10)]) == "20240101-000000001.parquet"
    lake.done(SPECS[1])


@pytest.mark.usefixtures("service", "catalog")
@pytest.mark.parametrize(
    ("kind", "fields", "status", "reason"),
    [
        ("hive", {"history": False}, 2, "s.accounts: it has no history"),
        ("hive", {"catalog": None}, 2, "s.orders: its row names no catalog"),
        ("glue", {}, 2, "s.orders: jobs make no views in catalogs of the kind glue"),
        ("hive", {"track_history_except": ["v"]}, 1, "changes of v open no version"),
    ],
)
def test_tables_that_can_not_have_views_are_refused_by_name(
    lake: Lake, catalog: FolderCatalog, kind: str, fields: dict[str, Any], status: int, reason: str
) -> None:
    metadata(lake, kind, **fields)
    said = " ".join(as_of(lake, *MADE, "--prefix", "first", status=status)[1].split())
    assert ("[CUT_VIEWS_UNSUPPORTED]" in said, reason in said, "--to tables" in said) == (True, True, True), said
    assert (catalog.names(), as_of(lake, "list")[0]) == ([], [])


@pytest.mark.usefixtures("service")
def test_the_entry_of_another_is_never_replaced_or_dropped(lake: Lake, catalog: FolderCatalog) -> None:
    other = EntryName("lake_s", "first__orders")
    catalog.create_view(other, "SELECT 1", "", {"gddl.cut": "/other/lake/_gddl/cuts/first.json"})
    said = as_of(lake, *MADE, "--prefix", "first", status=1)[1]
    assert ("[CUT_EXISTS]" in said, "another entry lake_s.first__orders" in said) == (True, True), said
    assert (catalog.names(), as_of(lake, "list")[0]) == (["lake_s.first__orders"], [])
    as_of(lake, *MADE, "--prefix", "second")
    catalog.drop_view(EntryName("lake_s", "second__orders"))
    catalog.create_view(EntryName("lake_s", "second__orders"), "SELECT 1", "", {})
    (dropped,), _ = as_of(lake, "drop", "second")
    assert dropped["left"] == ["lake_s.second__orders"]
    assert catalog.names() == ["lake_s.first__orders", "lake_s.second__orders"]


@pytest.mark.usefixtures("service", "catalog")
def test_a_view_has_not_the_name_of_a_tables_entry(lake: Lake) -> None:
    folder = lake.root / "metadata" / "tables"
    row = {"table": "s.first__orders", "keys": ["id"], "catalog": "main", "source": "default", "enabled": False}
    (folder / "more.yaml").write_text(json.dumps({"source": "default", "tables": [row]}))
    said = as_of(lake, *MADE, "--prefix", "first", status=2)[1]
    assert ("[CUT_EXISTS]" in said, "an entry of s.first__orders" in said) == (True, True), said


@pytest.mark.usefixtures("service", "catalog")
def test_a_cut_whose_row_is_gone_is_dropped_once_it_is_back(lake: Lake) -> None:
    as_of(lake, *MADE, "--prefix", "first")
    rows = lake.root / "metadata" / "tables" / "rows.yaml"
    whole = json.loads(rows.read_text())
    rows.write_text(json.dumps({**whole, "tables": whole["tables"][:1]}))
    said = as_of(lake, "drop", "first", status=2)[1]
    assert ("[CUT_SOURCE_UNKNOWN]" in said, "no valid row of s.orders" in said) == (True, True), said
    (known,) = as_of(lake, "list")[0]
    assert known["made_at"] is not None
    whole["tables"][1]["enabled"] = False
    rows.write_text(json.dumps(whole))
    as_of(lake, "drop", "first")
    assert as_of(lake, "list")[0] == []


@pytest.mark.usefixtures("service")
@pytest.mark.parametrize("written", range(5))
def test_a_command_that_is_killed_at_any_write_leaves_what_can_be_dropped(
    lake: Lake, catalog: FolderCatalog, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    """The document, its proven views, a view each, and the document that says that all is made."""
    left = iter(range(written, -1, -1))

    def count() -> None:
        if next(left) == 0:
            raise KilledError

    kill_at(monkeypatch, count)
    catalog.before_write = count
    with pytest.raises(KilledError):
        as_of(lake, *MADE, "--prefix", "first")
    monkeypatch.undo()
    monkeypatch.setattr("spark_jobs.catalogs.hive_catalog.hive_catalog", lambda *_: catalog)
    catalog.before_write = lambda: None
    assert len(catalog.names()) == max(0, written - 2)
    known = as_of(lake, "list")[0]
    assert [one["made_at"] for one in known] == ([None] if written else [])
    if known:
        assert "is unfinished" in as_of(lake, "verify", "first", status=2)[1]
        as_of(lake, "drop", "first")
    assert (catalog.names(), as_of(lake, "list")[0]) == ([], [])
    as_of(lake, *MADE, "--prefix", "first")
    assert catalog.names() == views("first")


def kill_at(monkeypatch: pytest.MonkeyPatch, count: Callable[[], None]) -> None:
    """Call this before each write of a document of a cut; nothing is tidied up."""
    create, swap = Storage.create_once, Storage.swap_once

    def creates(self: Storage, path: str, data: bytes) -> bool:
        count() if "/cuts/" in path else None
        return create(self, path, data)

    def swaps(self: Storage, path: str, data: bytes, tag: str | None) -> bool:
        count() if "/cuts/" in path else None
        return swap(self, path, data, tag)

    monkeypatch.setattr(Storage, "create_once", creates)
    monkeypatch.setattr(Storage, "swap_once", swaps)
    monkeypatch.setattr("airflow_gddl.as_of.commands._Making.discard", lambda *_: None)


@pytest.mark.usefixtures("service")
def test_a_catalog_that_does_not_answer_leaves_an_unfinished_cut(lake: Lake, catalog: FolderCatalog) -> None:
    """Nothing tells whether a view was made: it is dropped once the catalog answers."""
    catalog.is_down = True
    said = as_of(lake, *MADE, "--prefix", "first", status=1)[1]
    assert ("[CATALOG_UNREACHABLE]" in said, "it does not answer" in said) == (True, True), said
    assert "[CATALOG_UNREACHABLE]" in as_of(lake, "drop", "first", status=1)[1]
    (known,) = as_of(lake, "list")[0]
    assert known["made_at"] is None
    catalog.is_down = False
    (dropped,), _ = as_of(lake, "drop", "first")
    assert dropped["left"] == views("first")
    assert as_of(lake, "list")[0] == []


@pytest.mark.usefixtures("service")
def test_a_job_that_is_run_again_makes_its_own_view_anew(lake: Lake, catalog: FolderCatalog) -> None:
    """One that a killed job has left may be an older query."""
    (made,), _ = as_of(lake, *MADE, "--prefix", "first")
    path = catalog.path(EntryName("lake_s", "first__orders"))
    whole = path.read_text()
    path.write_text(json.dumps({**json.loads(whole), "query": "SELECT 1"}))
    spec = replace(SPECS[1], catalog="main")
    run = lake.table_run(spec, JobOptions(action=ConsistentCut(cut="first", then="register")))
    job = replace(run.job, catalogs={"main": CatalogSpec(kind="hive", database="lake_{schema}")})
    act(replace(run, job=job), RunTotals())
    assert json.loads(path.read_text()) == json.loads(whole)
    assert made["tables"][1]["view"]["name"] == "lake_s.first__orders"


@pytest.mark.usefixtures("service", "catalog")
def test_an_erased_key_is_said(lake: Lake) -> None:
    as_of(lake, *MADE, "--prefix", "first")
    lake.done(SPECS[0], JobOptions(action=Erase(key={"id": "1"}, asked_by="x")))
    assert "lake_s.first__accounts is not compared: keys were erased since" in listed(lake)
    (verified,), _ = as_of(lake, "verify", "first")
    assert (verified["equal"], verified["not_compared"]) == (["s.orders"], ["s.accounts"])
    (again,), _ = as_of(lake, "--again", "first", "--prefix", "second")
    assert [one["rows"] for one in again["tables"]] == [1, 2]


@pytest.mark.usefixtures("service")
@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_view_that_is_gone_from_its_catalog_is_not_verified(
    lake: Lake, catalog: FolderCatalog, is_replaced: bool
) -> None:
    as_of(lake, *MADE, "--prefix", "first")
    name = EntryName("lake_s", "first__orders")
    catalog.drop_view(name)
    if is_replaced:
        catalog.create_view(name, "SELECT 1", "", {})
    said = " ".join(as_of(lake, "verify", "first", status=1)[1].split())
    assert ("[CUT_NOT_SAME]" in said, "has no view lake_s.first__orders of this cut" in said) == (True, True), said


@pytest.mark.usefixtures("service", "catalog")
def test_a_key_that_is_erased_while_a_cut_is_verified_is_no_difference(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows are read before the document says so."""
    as_of(lake, *MADE, "--prefix", "first")

    def erased(lake_: Any, name: str) -> Any:
        known = finished(lake_, name)
        lake.done(SPECS[0], JobOptions(action=Erase(key={"id": "1"}, asked_by="x")))
        return known

    finished = _Lake.finished
    monkeypatch.setattr(_Lake, "finished", erased)
    (verified,), _ = as_of(lake, "verify", "first")
    left = {"different": [], "not_compared": ["s.accounts"], "failed": {}}
    assert verified == {"cut": "first", "equal": ["s.orders"], **left}


@pytest.mark.usefixtures("service")
def test_statements_that_are_printed_make_and_drop_the_views(lake: Lake) -> None:
    """No catalog is asked, and none need be named; histories come from Arrow, not from DuckDB's extension for Delta."""
    metadata(lake, "glue", catalog=None)
    (made,), _ = as_of(lake, *MADE, "--prefix", "first", "--reader", "duckdb", "--database", "clean_{schema}")
    with duckdb.connect() as connection:
        for spec in SPECS:
            connection.register(spec.name, pa.table(DeltaTable(lake.layout(spec).history).scan()))
        text = ";".join(made["statements"])
        for spec in SPECS:
            text = text.replace(f"delta_scan('{lake.layout(spec).history}')", f"temp.main.{spec.name}")
        connection.execute(text.replace("CREATE VIEW", "CREATE TEMP VIEW").replace('"clean_s".', ""))
        found = connection.sql('SELECT id, v FROM "first__accounts" ORDER BY id').fetchall()
        assert found == [(1, 80), (2, 120)]
    (dropped,), _ = as_of(lake, "drop", "first")
    assert dropped["statements"] == [f'DROP VIEW IF EXISTS "clean_s"."first__{spec.name}"' for spec in SPECS]


@pytest.mark.usefixtures("service", "catalog")
@pytest.mark.parametrize(
    "arguments",
    [
        ("--source", "default", "--reader", "spark", "--prefix", "x"),
        (*MADE, "--database", "x", "--prefix", "x"),
        ("--again", "x", "--prefix", "y", "--to", "views"),
    ],
)
def test_options_without_an_effect_are_refused(lake: Lake, arguments: tuple[str, ...]) -> None:
    assert "[OPTION_INVALID]" in as_of(lake, *arguments, status=2)[1]


@pytest.mark.usefixtures("service")
def test_tables_of_a_cut_are_verified_too(lake: Lake) -> None:
    (made,), _ = as_of(lake, "--source", "default", "--at", AT, "--prefix", "first")
    assert as_of(lake, "verify", "first")[0][0]["equal"] == ["s.accounts", "s.orders"]
    DeltaTable(str(lake.root / "lake" / made["tables"][0]["folder"])).delete("id = 1")
    assert "s.accounts of first have other rows" in as_of(lake, "verify", "first", status=1)[1]
