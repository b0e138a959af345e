"""docs/extending.md's claim: a module and an entry point make a kind of catalog, for metadata, jobs and checks."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_gddl.cli.check import probe_catalog
from airflow_gddl.contract.catalogs import CATALOGS, CatalogSpec
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.extensions import ProbeSkippedError, forget_entry_points
from airflow_gddl.metadata import sources
from tests.catalogs.world import CatalogWorld, codes, row
from tests.unit.pages import ROOT

PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
PART = PAGE.partition("## A catalog\n")[2].partition("\n## ")[0]
(MODULE,) = re.findall(r"```python\n(.*?)```", PART, re.DOTALL)
(REGISTERED,) = re.findall(r"```toml\n(.*?)```", PART, re.DOTALL)
ENTRY_POINTS = "[airflow_gddl.catalogs]\nfiles = our_files.catalog:DESCRIPTOR\n"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The page's package on the path, as pip would install it."""
    package = tmp_path / "site" / "files-1.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: files\nVersion: 1\n")
    (package / "entry_points.txt").write_text(ENTRY_POINTS)
    (package.parent / "our_files").mkdir()
    (package.parent / "our_files" / "__init__.py").touch()
    (package.parent / "our_files" / "catalog.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(package.parent))
    forget()
    yield
    forget()


def forget() -> None:
    forget_entry_points()
    sources.options_of_kind.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == "our_files"]:
        del sys.modules[name]


def files(tmp_path: Path) -> CatalogSpec:
    return CatalogSpec(kind="files", options={"folder": str(tmp_path / "entries")})


def test_docs_show_the_registration() -> None:
    assert REGISTERED == '[project.entry-points."airflow_gddl.catalogs"]\nfiles = "our_files.catalog:DESCRIPTOR"\n'


@pytest.mark.usefixtures("installed")
def test_metadata_validates_its_options(tmp_path: Path) -> None:
    assert CATALOGS.names() == ("hive", "glue", "unity", "files")
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
    assert problem.message == "must be 'hive', 'glue' or 'unity'"
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
