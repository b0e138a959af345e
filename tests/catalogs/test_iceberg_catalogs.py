"""Tables in Iceberg catalogs: Apache Iceberg's own REST server, and Glue by moto; pyiceberg reads them by name."""

from __future__ import annotations

import secrets
import threading
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from airflow_gddl.contract.actions import CompareCatalogs, Erase, Maintain, Rebuild
from airflow_gddl.contract.extensions import CatalogSpec
from airflow_gddl.contract.features.iceberg import iceberg_folder
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions, TableSpec
from airflow_gddl.stores import Storage
from spark_jobs.batch.runtime import NoSpark, Runtime, Step
from spark_jobs.job.job_tables import run_job
from tests.catalogs import iceberg_server
from tests.catalogs.world import CatalogWorld, codes, row
from tests.harness.lake import TIER
from tests.harness.landing import write
from tests.harness.sharded import Sharded
from tests.harness.sharded import rows_of as shards_rows
from tests.s3.gateway import free_port

rest: Any = pytest.importorskip("pyiceberg.catalog.rest")
pytestmark = pytest.mark.timeout(600)
MAINTAIN = JobOptions(action=Maintain())


@dataclass(frozen=True)
class Named:
    """A lake, and a catalog in which its tables have names of one database.

    Attributes:
        catalog: a client of the reader.
    """

    world: CatalogWorld
    catalog: Any
    database: str

    def run(self, spec: TableSpec, options: JobOptions | None = None) -> JobResult:
        result = self.world.run(spec, options=options)
        assert isinstance(result, JobResult)
        assert result.error is None, result.error
        return result

    def read(self, name: str = "orders", **given: Any) -> list[dict[str, Any]]:
        return rows_of(self.table(name).scan(**given).to_arrow())

    def table(self, name: str = "orders") -> Any:
        return self.catalog.load_table((self.database, name))

    def delta(self, spec: TableSpec, kind: str = "replica") -> list[dict[str, Any]]:
        return rows_of(pa.table(DeltaTable(getattr(self.world.lake.layout(spec), kind)).scan()))

    def is_read(self, spec: TableSpec) -> bool:
        kinds = {"replica": "orders", **({"history": "orders__history"} if spec.history else {})}
        return all(self.read(name) == self.delta(spec, kind) for kind, name in kinds.items())


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    return sorted((dict(sorted(found.items())) for found in table.to_pylist()), key=repr)


@pytest.fixture(params=["rest", "glue"])
def named(request: pytest.FixtureRequest, tmp_path: Path) -> Named:
    database = f"d{secrets.token_hex(6)}"
    if request.param == "rest":
        spec = CatalogSpec(kind="iceberg_rest", uri=request.getfixturevalue("iceberg_rest"), database=database)
        catalog = rest.RestCatalog("reader", uri=spec.uri)
    else:
        spec = CatalogSpec(kind="iceberg_glue", region="eu-west-1", database=database)
        client = request.getfixturevalue("glue")
        catalog = pytest.importorskip("pyiceberg.catalog.glue").GlueCatalog("reader", client=client)
    return Named(CatalogWorld(tmp_path, catalogs={"main": spec}), catalog, database)


def orders(**fields: Any) -> TableSpec:
    return row(iceberg=True, **fields)


def test_tables_follow_each_run_by_name(named: Named) -> None:
    spec, lake = orders(history=True, owner="shop"), named.world.lake
    lake.load(spec)
    assert codes(named.run(spec)) == []
    assert named.is_read(spec)
    assert [found["v"] for found in named.read(row_filter="id = 1")] == ["load 1"]
    lake.change(spec, 1, [("U", 1, "new"), ("D", 2, None), ("I", 9, "more")])
    assert codes(named.run(spec)) == []
    assert named.is_read(spec)
    assert {found["id"]: found["v"] for found in named.read()} == {0: "load 0", 1: "new", 9: "more"}
    assert len(named.read("orders__history")) > len(named.read())
    named.world.add_column(spec, 2)
    named.run(spec)
    assert "extra2" in named.read()[0]
    assert named.is_read(spec)
    named.run(spec, JobOptions(action=Rebuild()))
    assert named.is_read(spec)
    named.run(spec, JobOptions(action=Erase(key={"id": "1"})))
    assert named.is_read(spec)
    assert 1 not in {found["id"] for found in named.read()}
    named.run(spec, MAINTAIN)
    assert named.is_read(spec)
    table = named.table()
    own = {"gddl.table": "s.orders", "gddl.kind": "replica", "gddl.owner": "shop"}
    assert own.items() <= table.metadata.properties.items()
    assert len(table.metadata.snapshots) == 1
    assert named.run(spec, JobOptions(action=CompareCatalogs())).details["tables"][0]["action"] == "none"


def test_a_run_without_changes_commits_nothing(named: Named) -> None:
    spec = orders()
    named.world.lake.load(spec)
    named.run(spec)
    before = named.table().metadata_location
    assert named.run(spec).status == "skipped"
    assert named.table().metadata_location == before


def test_partitioned_tables_are_read_with_their_partition_columns(named: Named) -> None:
    spec, folder = orders(partition_by=("day", "kind")), Path(named.world.lake.layout(orders()).landing)
    days = [datetime(2024, 1, 1 + i % 3, tzinfo=UTC).date() for i in range(6)]
    kinds = ["a b", "ü/%", "a b", None, "x=1", "a b"]
    columns = {"id": pa.array(range(6), pa.int32()), "v": [f"v{i}" for i in range(6)], "day": days, "kind": kinds}
    write(folder, "LOAD00000001.parquet", pa.table(columns))
    assert codes(named.run(spec)) == []
    assert named.is_read(spec)
    assert [found["id"] for found in named.read(row_filter="day = '2024-01-02' and kind = 'x=1'")] == [4]
    assert [found["id"] for found in named.read(row_filter="kind is null")] == [3]
    planned = list(named.table().scan(row_filter="day = '2024-01-03'").plan_files())
    assert len(planned) == 1 < len(list(named.table().scan().plan_files()))
    changed = {"Op": ["U", "D"], "seq": [1, 2], **{name: values[:2] for name, values in columns.items()}}
    changed |= {"day": [days[2], days[1]], "v": ["moved", "v1"]}
    write(folder, "20240101-000000001.parquet", pa.table(changed))
    named.run(spec)
    assert named.is_read(spec)
    assert [found["v"] for found in named.read(row_filter="day = '2024-01-03'") if found["id"] == 0] == ["moved"]
    named.run(replace(spec, partition_by=("kind",)), JobOptions(action=Rebuild()))
    assert named.is_read(spec)
    assert [found["id"] for found in named.read(row_filter="kind = 'x=1'")] == [4]


def test_tables_of_several_sources_are_one_table(named: Named, tmp_path: Path) -> None:
    held = Sharded(tmp_path, ("crm_eu", "crm_us"), {"iceberg": True, "catalog": "main"})
    held.load("crm_eu", {1: "a", 2: "b"})
    held.load("crm_us", {1: "c"})
    assert codes(named.run(held.spec)) == []
    assert shards_rows(named.read("t")) == held.expected
    held.change("crm_eu", ("U", 1, "d"), ("D", 2, ""))
    named.run(held.spec)
    assert shards_rows(named.read("t")) == held.expected


def test_a_run_killed_before_the_pointer_moved_is_completed_by_an_idle_one(named: Named) -> None:
    spec, lake = orders(history=True), named.world.lake
    lake.load(spec)
    lake.done(spec)  # all up to the metadata, without the catalog
    assert not named.catalog.namespace_exists(named.database) or not named.catalog.list_tables(named.database)
    assert named.run(spec).status == "skipped"
    assert named.is_read(spec)
    lake.change(spec, 1, [("D", 1, None)])
    lake.done(spec)
    assert not named.is_read(spec)
    assert named.run(spec).status == "skipped"
    assert named.is_read(spec)


def test_a_table_of_another_owner_is_refused(named: Named) -> None:
    theirs = pa.schema([("id", pa.int32())])
    named.catalog.create_namespace(named.database)
    place = str(named.world.root / "theirs")
    before = named.catalog.create_table((named.database, "orders"), theirs, location=place).metadata
    spec = orders()
    named.world.lake.load(spec)
    result = named.run(spec)
    assert (result.status, codes(result)) == ("succeeded", ["CATALOG_NAME_TAKEN"])
    assert codes(named.run(spec, JobOptions(action=CompareCatalogs(mode="sync")))) == ["CATALOG_NAME_TAKEN"]
    assert named.table().metadata == before
    named.run(spec, MAINTAIN)


def test_commits_of_another_writer_are_undone(named: Named) -> None:
    spec, lake = orders(), named.world.lake
    lake.load(spec)
    named.run(spec)
    table = named.table()
    with table.update_schema() as update:
        update.add_column("theirs", pa_type())
    table = named.table()
    table.delete("id = 1")
    assert named.read() != named.delta(spec)
    assert named.run(spec, JobOptions(action=CompareCatalogs())).details["tables"][0]["action"] == "alter"
    lake.change(spec, 1, [("I", 7, "more")])
    assert codes(named.run(spec)) == []
    assert named.is_read(spec)
    for found in Path(iceberg_folder(lake.roots.lake, spec), "metadata").glob("v*"):  # as of damaged metadata
        found.unlink()
    assert codes(named.run(spec)) == []
    assert named.is_read(spec)


def pa_type() -> Any:
    return pytest.importorskip("pyiceberg.types").StringType()


def test_a_table_dropped_in_the_catalog_comes_back_on_request(named: Named) -> None:
    spec = orders()
    named.world.lake.load(spec)
    named.run(spec)
    named.catalog.drop_table((named.database, "orders"))
    named.world.lake.change(spec, 1, [("I", 7, "more")])
    assert codes(named.run(spec)) == ["CATALOG_TABLE_DROPPED"]
    assert codes(named.run(spec, JobOptions(action=CompareCatalogs(mode="sync")))) == []
    assert named.is_read(spec)


def test_maintenance_keeps_what_the_catalog_points_to(named: Named) -> None:
    spec, lake = orders(history=True, vacuum_retention="2d"), named.world.lake
    lake.load(spec)
    named.run(spec)
    for number in range(1, 4):
        lake.change(spec, number, [("U", 1, f"new {number}")])
        named.run(spec)
    later = replace(named, world=replace(named.world, clock=lambda: datetime.now(UTC) + timedelta(days=10)))
    later.run(spec, MAINTAIN)
    assert named.is_read(spec)
    later.run(spec, MAINTAIN)
    assert named.is_read(spec)
    assert len(list(Path(iceberg_folder(lake.roots.lake, spec), "metadata").glob("*.metadata.json"))) <= 4


def test_a_catalog_that_is_down_is_repaired_by_the_next_run(tmp_path: Path) -> None:
    jars, port = iceberg_server.find_jars(), free_port()
    if jars is None:
        pytest.skip("no Java, or Maven Central can't be reached")
    spec, catalog = orders(), CatalogSpec(kind="iceberg_rest", uri=f"http://127.0.0.1:{port}", database="shop")
    world = CatalogWorld(tmp_path / "world", catalogs={"main": catalog})
    with iceberg_server.serving(jars, tmp_path / "server", port):
        named = Named(world, rest.RestCatalog("reader", uri=catalog.uri), "shop")
        world.lake.load(spec)
        assert codes(named.run(spec)) == []
        before = named.read()
    world.lake.change(spec, 1, [("U", i, "new") for i in range(3)])
    result = named.run(spec)
    assert (result.status, codes(result)) == ("succeeded", ["CATALOG_UNREACHABLE"])
    later = replace(named, world=replace(world, clock=lambda: datetime.now(UTC) + timedelta(days=10)))
    folder = Path(iceberg_folder(world.lake.roots.lake, spec), "metadata")
    files = set(folder.iterdir())
    later.run(spec, MAINTAIN)
    assert files <= set(folder.iterdir())
    with iceberg_server.serving(jars, tmp_path / "server", port):
        assert named.read() == before
        result = named.run(spec)
        assert (result.status, codes(result)) == ("skipped", ["CATALOG_REGISTERED"])
        assert named.is_read(spec)
        later.run(spec, MAINTAIN)
        assert not files <= set(folder.iterdir())
        assert named.is_read(spec)


@pytest.mark.parametrize("named", ["rest"], indirect=True)
def test_entries_follow_between_the_batches_of_a_run(named: Named) -> None:
    spec, lake = orders(), named.world.lake
    lake.load(spec)
    named.run(spec)
    seen: list[str] = []

    def look(step: Step) -> None:
        if step.step == "plan":
            seen.append(next(found["v"] for found in named.read() if found["id"] == 1))

    for number in range(1, 4):
        lake.change(spec, number, [("U", 1, f"n{number}")])
    tier = replace(TIER, max_files_per_batch=1)
    lake = replace(lake, tier=tier)
    job = replace(lake.job([spec]), catalogs=named.world.catalogs)
    runtime = Runtime(storage=Storage(), spark=NoSpark(), observe=look)
    (outcome,) = run_job(job, runtime, lambda _: None)
    assert (outcome.result.batches, outcome.result.warnings) == (3, ())
    assert seen == ["load 1", "n1", "n2"]
    assert named.is_read(spec)


@pytest.mark.parametrize("named", ["rest"], indirect=True)
def test_a_reader_beside_batches_sees_states_of_batches_alone(named: Named) -> None:
    spec, lake = orders(), named.world.lake
    lake.load(spec, rows=2)
    named.run(spec)
    seen: list[tuple[str, ...]] = []
    ended = threading.Event()

    def look() -> None:
        while not ended.is_set():
            seen.append(tuple(found["v"] for found in sorted(named.read(), key=lambda one: one["id"])))

    reader = threading.Thread(target=look)
    reader.start()
    try:
        for number in range(1, 13):
            lake.change(spec, number, [("U", 0, f"n{number}"), ("U", 1, f"n{number}")])
            named.run(spec)
    finally:
        ended.set()
        reader.join()
    states = [("load 0", "load 1"), *((f"n{number}",) * 2 for number in range(1, 13))]
    assert set(seen) <= set(states)
    order = [states.index(found) for found in seen]
    assert order == sorted(order)
    assert len(set(order)) > 3
