"""docs/extending.md's claim: a module and an entry point make a kind of catalog, for metadata, jobs and checks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_gddl.cli.check import probe_catalog
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.extensions import CATALOGS, CatalogSpec, ProbeSkippedError
from airflow_gddl.metadata import sources
from tests.catalogs.world import CatalogWorld, codes, row
from tests.harness import third_package


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    sources.options_of_kind.cache_clear()
    with third_package.installed(tmp_path / "site", "A catalog", monkeypatch):
        yield
    sources.options_of_kind.cache_clear()


def files(tmp_path: Path) -> CatalogSpec:
    return CatalogSpec(kind="files", options={"folder": str(tmp_path / "entries")})


def test_docs_show_the_registration() -> None:
    _, registered = third_package.shown("A catalog")
    assert registered == '[project.entry-points."airflow_gddl.catalogs"]\nfiles = "our_files.catalog:DESCRIPTOR"\n'


@pytest.mark.usefixtures("installed")
def test_metadata_validates_its_options(tmp_path: Path) -> None:
    assert CATALOGS.names() == ("hive", "glue", "unity", "iceberg_rest", "iceberg_glue", "files")
    section = {"main": {"kind": "files", "options": {"folder": str(tmp_path / "entries")}}}
    assert sources.build_catalogs(section) == ({"main": files(tmp_path)}, ())
    _, (problem,) = sources.build_catalogs({"main": {"kind": "files", "options": {"foldr": "x"}}})
    assert (problem.code, problem.field) == ("FIELD_UNKNOWN", "catalogs.main.options.foldr")
    _, (problem,) = sources.build_catalogs({"main": {"kind": "files", "region": "eu-west-1"}})
    assert (problem.code, problem.field) == ("FIELD_VALUE", "catalogs.main.region")
    _, (problem,) = sources.build_catalogs({"main": {"kind": "glue", "options": {"folder": "x"}}})
    assert (problem.code, problem.field) == ("FIELD_VALUE", "catalogs.main.options")


@pytest.mark.usefixtures("installed")
def test_tables_are_registered(tmp_path: Path) -> None:
    world, spec = CatalogWorld(tmp_path, catalogs={"main": files(tmp_path)}), row()
    world.lake.load(spec)
    result = world.run(spec)
    assert (result.status, codes(result)) == ("succeeded", []), result
    entry = json.loads((tmp_path / "entries" / "s.orders.json").read_text())
    assert list(entry["columns"])[-1] == "_gddl"
    world.add_column(spec, 1)
    assert codes(world.run(spec)) == []
    assert "extra1" in json.loads((tmp_path / "entries" / "s.orders.json").read_text())["columns"]
    assert probe_catalog(files(tmp_path), "shop", {}).endswith("has 1 entries")


def test_an_unknown_kind_is_an_error_and_a_warning_of_its_tables(tmp_path: Path) -> None:
    """It is never taken for another kind."""
    polaris = CatalogSpec(kind="polaris", options={"url": "https://polaris.example.com"})
    _, (problem,) = sources.build_catalogs({"main": {"kind": "polaris"}})
    assert (problem.code, problem.field) == ("FIELD_VALUE", "catalogs.main.kind")
    assert problem.message == "must be 'hive', 'glue', 'unity', 'iceberg_rest' or 'iceberg_glue'"
    with pytest.raises(FatalError) as caught:
        probe_catalog(polaris, "shop", {})
    assert caught.value.code == "CATALOG_KIND_UNKNOWN"
    world, spec = CatalogWorld(tmp_path, catalogs={"main": polaris}), row()
    world.lake.load(spec)
    result = world.run(spec)
    assert (result.status, codes(result)) == ("succeeded", ["CATALOG_KIND_UNKNOWN"])


@pytest.mark.usefixtures("installed")
def test_a_broken_package_is_named(tmp_path: Path) -> None:
    (module,) = (tmp_path / "site" / "our_files").glob("catalog.py")
    module.write_text("import no_such_module\n")
    _, (problem,) = sources.build_catalogs({"main": {"kind": "files"}})
    assert (problem.code, problem.field) == ("CATALOG_KIND_BROKEN", "catalogs.main.kind")
    world, spec = CatalogWorld(tmp_path, catalogs={"main": files(tmp_path)}), row()
    world.lake.load(spec)
    assert codes(world.run(spec)) == ["CATALOG_KIND_BROKEN"]


def test_a_metastore_that_spark_names_is_not_tried() -> None:
    with pytest.raises(ProbeSkippedError, match="Spark's configuration names the metastore"):
        probe_catalog(replace(CatalogSpec(kind="hive"), uri=None), "shop", {})
