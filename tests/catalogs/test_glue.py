"""Registration in the Glue Data Catalog, against moto; each request passes botocore's own model on its way."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from airflow_gddl.contract.actions import CompareCatalogs
from airflow_gddl.contract.extensions import CatalogSpec
from airflow_gddl.contract.spec import JobOptions
from airflow_gddl.stores import Storage
from spark_jobs.rooms.catalogs import glue_catalog
from tests.catalogs.world import GLUE, CatalogWorld, codes, row

pytestmark = pytest.mark.core


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of all requests that any client makes, in order."""
    from botocore.client import BaseClient  # noqa: PLC0415 - patched here alone

    found: list[str] = []
    real = BaseClient._make_api_call

    def call(self: Any, name: str, parameters: Any) -> Any:
        found.append(name)
        return real(self, name, parameters)

    monkeypatch.setattr(BaseClient, "_make_api_call", call)
    return found


@pytest.fixture
def world(tmp_path: Path) -> CatalogWorld:
    return CatalogWorld(tmp_path)


def entry(glue: Any, name: str = "orders", database: str = "s") -> dict[str, Any]:
    return dict(glue.get_table(DatabaseName=database, Name=name)["Table"])


def columns(found: dict[str, Any]) -> dict[str, str]:
    return {column["Name"]: column["Type"] for column in found["StorageDescriptor"]["Columns"]}


def test_a_table_is_registered_at_its_first_load(world: CatalogWorld, glue: Any) -> None:
    spec = row(owner="shop", tags={"domain": "sales"})
    world.lake.load(spec)
    result = world.run(spec)
    assert (result.status, codes(result)) == ("succeeded", [])
    found = entry(glue)
    assert columns(found)["id"] == "int"
    assert columns(found)["v"] == "string"
    assert columns(found)["_gddl"].startswith("struct<sequence:")
    storage = found["StorageDescriptor"]
    assert storage["Location"] == storage["SerdeInfo"]["Parameters"]["path"] == world.lake.layout(spec).replica
    wanted = {"spark.sql.sources.provider": "delta", "table_type": "DELTA", "EXTERNAL": "TRUE"}
    assert wanted.items() <= found["Parameters"].items()
    own = {"gddl.table": "s.orders", "gddl.keys": "id", "gddl.owner": "shop", "gddl.tag.domain": "sales"}
    assert own.items() <= found["Parameters"].items()


def test_history_and_others_have_names_of_their_own(world: CatalogWorld, glue: Any) -> None:
    wide = replace(
        GLUE, tables=("replica", "history", "changes", "errors"), database="lake_{schema}", table="x_{table}"
    )
    world = replace(world, catalogs={"main": wide})
    spec = row(history=True)
    world.lake.load(spec)
    world.run(spec)
    names = {table["Name"] for table in glue.get_tables(DatabaseName="lake_s")["TableList"]}
    assert names == {"x_orders", "x_orders__history", "x_orders__changes"}


def test_an_idle_run_and_an_unchanged_schema_send_no_request(world: CatalogWorld, glue: Any, asked: list[str]) -> None:
    specs = [row(f"t{i}") for i in range(20)]
    for spec in specs:
        world.lake.load(spec)
    world.run(*specs)
    assert asked.count("CreateTable") == 20
    assert asked.count("CreateDatabase") == 1
    for spec in specs:
        world.lake.change(spec, 1, [("U", 0, "new")])  # gives the sequence its type
    world.run(*specs)
    assert asked.count("UpdateTable") == 20
    asked.clear()
    results = world.run(*specs)
    assert {result.status for result in results.values()} == {"skipped"}
    for spec in specs:
        world.lake.change(spec, 2, [("U", 0, "newer")])
    results = world.run(*specs)
    assert {result.status for result in results.values()} == {"succeeded"}
    assert asked == []


def test_new_columns_are_added_to_the_entry_only(world: CatalogWorld, glue: Any) -> None:
    spec = row()
    world.lake.load(spec)
    world.run(spec)
    before = entry(glue)
    storage = before["StorageDescriptor"]
    storage["Columns"][0]["Comment"] = "a person's"
    given = {
        "Name": "orders",
        "Owner": "me",
        "Retention": 3,
        "TableType": "EXTERNAL_TABLE",
        "StorageDescriptor": storage,
    }
    given |= {"Parameters": {**before["Parameters"], "lakeformation.tag": "kept"}, "Description": "by hand"}
    glue.update_table(DatabaseName="s", TableInput=given)
    world.add_column(spec, 1)
    result = world.run(spec)
    found = entry(glue)
    assert columns(found)["extra1"] == "string"
    assert found["Parameters"]["lakeformation.tag"] == "kept"
    assert (found["Owner"], found["Retention"], found["Description"]) == ("me", 3, "by hand")
    assert found["StorageDescriptor"]["Columns"][0]["Comment"] == "a person's"
    assert found["CreateTime"] == before["CreateTime"]
    assert codes(result) == []


def test_a_run_killed_before_registration_is_healed_by_an_idle_one(world: CatalogWorld, glue: Any) -> None:
    spec = row()
    world.lake.load(spec)
    world.lake.done(spec)  # all up to the ledger's commit, without registration
    with pytest.raises(glue.exceptions.EntityNotFoundException):
        entry(glue)
    result = world.run(spec)
    assert result.status == "skipped"
    assert columns(entry(glue))["id"] == "int"
    world.add_column(spec, 1)
    world.lake.done(spec)
    assert "extra1" not in columns(entry(glue))
    assert world.run(spec).status == "skipped"
    assert "extra1" in columns(entry(glue))


def test_a_run_killed_after_registration_finds_its_entry(world: CatalogWorld, glue: Any) -> None:
    spec = row()
    world.lake.load(spec)
    world.run(spec)
    memory = next((world.root / "lake/_gddl/catalogs/main/s").glob("*.json"))
    memory.unlink()
    assert codes(world.run(spec)) == []
    memory.write_text("{damaged")
    assert codes(world.run(spec)) == []


def test_a_catalog_that_is_down_is_tried_once_a_job_and_stops_no_data(
    world: CatalogWorld, glue: Any, asked: list[str]
) -> None:
    nobody = CatalogSpec(kind="glue", region="eu-west-1", endpoint="http://127.0.0.1:9", timeout="1s")
    down = replace(world, catalogs={"main": nobody})
    specs = [row(f"t{i}") for i in range(10)]
    for spec in specs:
        world.lake.load(spec)
    results = down.run(*specs)
    assert {result.status for result in results.values()} == {"succeeded"}
    assert {tuple(codes(result)) for result in results.values()} == {("CATALOG_UNREACHABLE",)}
    assert len(asked) == 1
    record = next((world.root / "lake/_gddl/runs/s/t3").glob("*.json")).read_text()
    assert "CATALOG_UNREACHABLE" in record
    asked.clear()
    again = down.run(*specs)  # idle: said before, so that no record is made of it
    assert {tuple(codes(result)) for result in again.values()} == {()}
    assert len(asked) == 1
    healed = world.run(*specs)
    assert {tuple(codes(result)) for result in healed.values()} == {("CATALOG_REGISTERED",)}
    assert len(glue.get_tables(DatabaseName="s")["TableList"]) == 10


def test_a_table_dropped_in_the_catalog_is_reported_and_comes_back_on_request(world: CatalogWorld, glue: Any) -> None:
    spec = row()
    world.lake.load(spec)
    world.run(spec)
    glue.delete_table(DatabaseName="s", Name="orders")
    world.add_column(spec, 1)
    assert codes(world.run(spec)) == ["CATALOG_TABLE_DROPPED"]
    world.lake.change(spec, 2, [("U", 0, "new")], day=3)
    assert codes(world.run(spec)) == ["CATALOG_TABLE_DROPPED"]
    found = world.run(spec, options=JobOptions(action=CompareCatalogs(mode="sync")))
    assert codes(found) == []
    assert "extra1" in columns(entry(glue))
    assert codes(world.run(spec)) == []


@pytest.mark.parametrize("what", ["elsewhere", "no_delta"])
def test_an_entry_that_is_not_ours_is_never_touched(world: CatalogWorld, glue: Any, what: str) -> None:
    spec = row()
    glue.create_database(DatabaseInput={"Name": "s"})
    place = "/elsewhere" if what == "elsewhere" else world.lake.layout(spec).replica
    parameters = {"spark.sql.sources.provider": "delta" if what == "elsewhere" else "parquet"}
    theirs = {"Name": "orders", "Parameters": parameters, "StorageDescriptor": {"Columns": [], "Location": place}}
    glue.create_table(DatabaseName="s", TableInput=theirs)
    before = entry(glue)
    world.lake.load(spec)
    result = world.run(spec)
    assert (result.status, codes(result)) == ("succeeded", ["CATALOG_NAME_TAKEN"])
    assert codes(world.run(spec, options=JobOptions(action=CompareCatalogs(mode="sync")))) == ["CATALOG_NAME_TAKEN"]
    assert entry(glue) == before


def test_a_name_that_the_catalog_cannot_hold(world: CatalogWorld, glue: Any, asked: list[str]) -> None:
    spec = row("order items#1")
    world.lake.load(spec)
    result = world.run(spec)
    assert (result.status, codes(result)) == ("succeeded", ["CATALOG_NAME_INVALID"])
    assert "'order items#1' is not 1 to 255" in result.warnings[0].message
    assert asked == []


def test_a_moved_lake_updates_its_entry(world: CatalogWorld, glue: Any) -> None:
    spec = row()
    world.lake.load(spec)
    world.run(spec)
    world.root.joinpath("lake").rename(world.root / "moved")
    (world.root / "lake").symlink_to(world.root / "moved")
    moved = CatalogWorld(world.root.parent / "other")
    moved.root.mkdir()
    world.root.joinpath("moved").rename(moved.root / "lake")
    world.root.joinpath("landing").rename(moved.root / "landing")
    moved.add_column(spec, 1)
    assert codes(moved.run(spec)) == []
    assert entry(glue)["StorageDescriptor"]["Location"] == moved.lake.layout(spec).replica


class Refusing:
    """A client whose every call is refused with a code."""

    def __init__(self, real: Any, code: str) -> None:
        self.exceptions, self.code = real.exceptions, code

    def __getattr__(self, name: str) -> Any:
        def refuse(**_: Any) -> None:
            raise ClientError({"Error": {"Code": self.code, "Message": "no"}}, name)

        return refuse


@pytest.mark.parametrize(
    ("code", "ours", "is_down"),
    [
        ("AccessDeniedException", "CATALOG_DENIED", False),
        ("ExpiredTokenException", "CATALOG_UNREACHABLE", True),
        ("ThrottlingException", "CATALOG_UNREACHABLE", True),
        ("ValidationException", "CATALOG_REFUSED", False),
    ],
)
def test_refusals_have_codes(glue: Any, monkeypatch: pytest.MonkeyPatch, code: str, ours: str, is_down: bool) -> None:
    from airflow_gddl.contract.extensions import EntryName  # noqa: PLC0415 - used here alone
    from spark_jobs.rooms.catalogs.catalog_port import CatalogContext, CatalogError  # noqa: PLC0415 - as above

    monkeypatch.setattr(glue_catalog, "client_of", lambda _: Refusing(glue, code))
    around = CatalogContext(spark=None, environ={}, storage=Storage(), lake="")  # type: ignore[arg-type]  # Glue needs none
    with pytest.raises(CatalogError) as caught:
        glue_catalog.GlueCatalog(GLUE, around).read(EntryName("s", "t"))
    assert (caught.value.code, caught.value.is_down) == (ours, is_down)
