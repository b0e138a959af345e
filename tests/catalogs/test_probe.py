"""What `gddl check` finds of a Glue Data Catalog, against moto."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from botocore.client import BaseClient
from botocore.exceptions import ClientError

from airflow_gddl.cli.check import probe_catalog
from airflow_gddl.contract.errors import FatalError, GddlError, RetriableError
from airflow_gddl.contract.extensions import CatalogSpec, ProbeSkippedError
from airflow_gddl.metadata.sources import build_catalogs
from tests.catalogs.world import GLUE


def test_glue_says_whether_it_has_the_database(glue: Any) -> None:
    assert probe_catalog(GLUE, "shop", {}) == "Glue answers; it has no database shop yet"
    glue.create_database(DatabaseInput={"Name": "shop"})
    assert probe_catalog(GLUE, "shop", {}) == "Glue answers; it has the database shop"
    assert [database["Name"] for database in glue.get_databases()["DatabaseList"]] == ["shop"], "nothing is changed"


@pytest.mark.parametrize(
    ("code", "kind", "ours", "remedy"),
    [
        ("AccessDeniedException", FatalError, "CATALOG_DENIED", "grant glue:GetDatabase"),
        ("ExpiredTokenException", RetriableError, "CATALOG_UNREACHABLE", "check credentials, region and endpoint"),
        ("ThrottlingException", RetriableError, "CATALOG_UNREACHABLE", "check credentials, region and endpoint"),
        ("InvalidInputException", FatalError, "CATALOG_REFUSED", "check credentials, region and endpoint"),
    ],
)
@pytest.mark.usefixtures("glue")
def test_refusals_have_code_and_remedy(
    monkeypatch: pytest.MonkeyPatch, code: str, kind: type[GddlError], ours: str, remedy: str
) -> None:
    def refuse(_client: BaseClient, name: str, _parameters: Any) -> None:
        raise ClientError({"Error": {"Code": code, "Message": "no"}}, name)

    monkeypatch.setattr(BaseClient, "_make_api_call", refuse)
    with pytest.raises(kind) as caught:
        probe_catalog(GLUE, "shop", {})
    assert (caught.value.code, caught.value.remedy) == (ours, remedy)
    assert code in caught.value.what


def test_an_endpoint_that_does_not_answer_is_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    with pytest.raises(RetriableError) as caught:
        probe_catalog(replace(GLUE, endpoint="http://127.0.0.1:1", timeout="1s"), "shop", {})
    assert caught.value.code == "CATALOG_UNREACHABLE"


def test_a_metastore_that_spark_names_is_not_tried() -> None:
    with pytest.raises(ProbeSkippedError, match="Spark's configuration names the metastore"):
        probe_catalog(CatalogSpec(kind="hive"), "shop", {})


def test_an_unknown_kind_is_a_problem_of_the_metadata() -> None:
    """It is never taken for another kind."""
    _, (problem,) = build_catalogs({"main": {"kind": "polaris"}})
    assert (problem.code, problem.field) == ("FIELD_VALUE", "catalogs.main.kind")
    assert problem.message == "must be 'hive', 'glue', 'unity', 'iceberg_rest' or 'iceberg_glue'"
