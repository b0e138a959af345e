"""Errors of missing packages, and the settings of pip that uv is given."""

from __future__ import annotations

import importlib
import shlex
import sys
from pathlib import Path

import pytest

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.extensions import CatalogSpec
from airflow_gddl.contract.packages import needed_by, of_import, package_missing
from airflow_gddl.contract.source_access import ROLE
from airflow_gddl.contract.spec import JobSpec, Roots
from airflow_gddl.stores.delta_tables import opened
from airflow_gddl.stores.lake_files import check_roots
from devtools.install import translated
from spark_jobs.rooms.catalogs import glue_catalog, iceberg_catalog
from spark_jobs.rooms.catalogs.catalog_port import CatalogError


@pytest.mark.parametrize(
    ("module", "install", "package", "remedy"),
    [
        ("boto3", "", "boto3", "pip install 'airflow-gddl[s3]'"),
        ("botocore.config", "airflow-gddl[glue]", "boto3", "pip install 'airflow-gddl[glue]'"),
        ("airflow.providers.amazon.aws", "", "apache-airflow-providers-amazon", "pip install 'airflow-gddl[glue]'"),
        ("airflow.sdk", "", "apache-airflow", "pip install 'airflow-gddl[airflow]'"),
        ("azure.identity", "azure-identity", "azure", "pip install azure-identity"),
        ("anybodys.module", "", "anybodys", "install the package that has anybodys.module"),
    ],
)
def test_a_missing_package_is_named_with_its_command(module: str, install: str, package: str, remedy: str) -> None:
    error = package_missing("runner glue", module, install=install)
    assert (error.code, error.remedy, error.where) == ("PACKAGE_MISSING", remedy, sys.executable)
    assert error.what == f"runner glue needs the package {package}, which is not installed"
    assert len(shlex.split(remedy)) > 2


def test_several_packages_are_named() -> None:
    error = package_missing("a job", "pyspark", "delta", install="airflow-gddl[spark]")
    assert error.what == "a job needs the packages pyspark, delta-spark, which are not installed"


def test_an_import_that_fails_is_translated() -> None:
    missing = r"\[PACKAGE_MISSING\] gddl x needs the package nobody_has_it"
    with pytest.raises(FatalError, match=missing) as caught, needed_by("gddl x"):
        importlib.import_module("nobody_has_it.inner")
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)
    older = "gddl x can't import what it needs of the package pyarrow: cannot import name"
    with pytest.raises(FatalError, match=older) as caught, needed_by("gddl x", install="airflow-gddl[spark]"):
        from pyarrow import nothing_of_this_name  # type: ignore[attr-defined] # noqa: F401, PLC0415 - is the test
    assert caught.value.remedy == "pip install --upgrade --upgrade-strategy eager 'airflow-gddl[spark]'"


@pytest.mark.parametrize("module", ["airflow_gddl.gone", "spark_jobs.gone"])
def test_a_module_of_this_project_that_is_missing_is_a_defect(module: str) -> None:
    error = ModuleNotFoundError("No module", name=module)
    assert of_import(error, "gddl x") is None
    with pytest.raises(ModuleNotFoundError), needed_by("gddl x"):
        raise error


def test_a_library_that_misses_another_one_says_which() -> None:
    """SQLAlchemy's asyncio raises an error of its own, without the module's name."""
    with pytest.raises(FatalError, match=r"PACKAGE_MISSING.*'greenlet' library is required") as caught, needed_by("x"):
        raise ImportError("the 'greenlet' library is required")
    assert caught.value.remedy == "install the package that this message names"


@pytest.mark.parametrize("environ", [{"AWS_PROFILE": "dev"}, {ROLE: "arn:aws:iam::123456789012:role/r"}])
def test_boto3_is_missed_before_a_job_starts(monkeypatch: pytest.MonkeyPatch, environ: dict[str, str]) -> None:
    """As other faults of credentials: nothing is started, and a job reports it once for all tables."""
    monkeypatch.setitem(sys.modules, "boto3", None)
    job = JobSpec(run_id="r", roots=Roots(landing="s3://b/landing", lake="s3://b/lake"), tables=(), tiers={})
    with pytest.raises(FatalError, match=r"PACKAGE_MISSING.*boto3"):
        check_roots(job, {**environ, "AWS_REGION": "eu-west-1", "AWS_ENDPOINT_URL": "http://127.0.0.1:9"})


def test_what_is_done_with_a_table_may_need_more_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not `LAKE_UNREADABLE`, whose remedy is about credentials."""
    monkeypatch.setitem(sys.modules, "pyarrow.compute", None)
    with pytest.raises(FatalError, match=r"PACKAGE_MISSING.*pyarrow"), opened(str(tmp_path), {}):
        importlib.import_module("pyarrow.compute")


def test_a_catalog_says_why_its_client_can_t_be_imported() -> None:
    """One that is too old is not called missing."""
    old = ImportError("cannot import name 'X' from 'pyiceberg.catalog.rest'", name="pyiceberg.catalog.rest")
    with pytest.raises(CatalogError, match="cannot import name 'X'") as caught, iceberg_catalog._translated():
        raise old
    assert caught.value.code == "PACKAGE_MISSING"


def test_glue_without_its_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not `CATALOG_UNREACHABLE`, which may pass by itself."""
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(CatalogError, match=r"needs the package boto3.*airflow-gddl\[glue\]") as caught:
        glue_catalog.client_of(CatalogSpec(kind="glue", region="eu-west-1"))
    assert caught.value.code == "PACKAGE_MISSING"


@pytest.mark.parametrize(
    ("listed", "variables"),
    [
        ("", {}),
        (":env:.default-timeout='180'\nglobal.trusted-host='a b'\n", {"UV_INSECURE_HOST": "a b"}),
        (
            ":env:.index-url='https://u:p@mirror/simple'\nglobal.index-url='https://other/'\n",
            {"UV_DEFAULT_INDEX": "https://u:p@mirror/simple"},
        ),
        ("global.cert='/etc/ca.pem'\ninstall.cert='/own.pem'\nfreeze.cert='/no'\n", {"SSL_CERT_FILE": "/own.pem"}),
        ("global.find-links='/nowhere https://wheels /tmp'\n", {"UV_FIND_LINKS": "https://wheels,/tmp"}),
        ("global.find-links='/nowhere'\n", {}),
        ("global.cert='~/ca.pem'\n", {"SSL_CERT_FILE": str(Path.home() / "ca.pem")}),
        ("global.find-links='~'\n", {"UV_FIND_LINKS": str(Path.home())}),
        (
            "global.extra-index-url='\\nhttps://one/=x\\nhttps://two/'\n",
            {"UV_INDEX": "https://one/=x https://two/"},
        ),
    ],
)
def test_uv_is_given_what_pip_is_told(listed: str, variables: dict[str, str]) -> None:
    assert translated(listed) == variables
