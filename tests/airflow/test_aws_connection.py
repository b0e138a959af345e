"""Airflow connections as the environment of jobs and clients."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_gddl import configuration
from airflow_gddl.contract.errors import FatalError, MetadataError
from airflow_gddl.contract.s3 import S3Settings
from airflow_gddl.hooks.aws import RENEW_SECONDS, ConnectedEnviron, fetch, fetch_named, laid_over
from airflow_gddl.stores.s3 import client


def set_connection(monkeypatch: pytest.MonkeyPatch, name: str, **fields: Any) -> None:
    monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps({"conn_type": "aws", **fields}))


def test_keys_endpoint_and_region(monkeypatch: pytest.MonkeyPatch) -> None:
    extra = {"region_name": "eu-west-1", "endpoint_url": "https://s3.example", "aws_session_token": "t"}
    set_connection(monkeypatch, "lake", login="k", password="p", extra=extra)  # noqa: S106  made up here
    assert fetch("lake") == {
        "AWS_ACCESS_KEY_ID": "k",
        "AWS_SECRET_ACCESS_KEY": "p",
        "AWS_SESSION_TOKEN": "t",
        "AWS_REGION": "eu-west-1",
        "AWS_ENDPOINT_URL": "https://s3.example",
    }


def test_keys_in_the_extra_and_an_endpoint_of_s3_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    extra = {
        "aws_access_key_id": "k",
        "aws_secret_access_key": "p",
        "service_config": {"s3": {"endpoint_url": "https://x"}},
    }
    set_connection(monkeypatch, "lake", extra=extra)
    assert fetch("lake") == {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "p", "AWS_ENDPOINT_URL": "https://x"}


def test_a_connection_without_keys_leaves_them_to_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    set_connection(monkeypatch, "lake", extra={"region_name": "eu-west-1"})
    assert fetch("lake") == {"AWS_REGION": "eu-west-1"}


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"login": "hunter22"}, "one of access key and secret key"),
    ],
)
def test_connections_that_can_not_serve(monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], says: str) -> None:
    set_connection(monkeypatch, "lake", **fields)
    with pytest.raises(MetadataError, match=says) as error:
        fetch("lake")
    assert error.value.code == "AWS_CONNECTION_INVALID"
    assert "hunter22" not in str(error.value)


def test_a_connection_needs_amazon_s_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    set_connection(monkeypatch, "lake", extra={"role_arn": "arn:aws:iam::1:role/x"})
    monkeypatch.setitem(sys.modules, "airflow.providers.amazon.aws.hooks.base_aws", None)
    with pytest.raises(FatalError, match="the connection 'lake' needs the package") as error:
        fetch("lake")
    assert error.value.code == "PACKAGE_MISSING"
    assert "pip install apache-airflow-providers-amazon" in error.value.remedy


def test_a_connection_that_is_not_there() -> None:
    with pytest.raises(MetadataError, match=r"AWS_CONNECTION_INVALID.*'nowhere' can't be read"):
        fetch("nowhere")


def test_variables_that_contradict_the_connection_are_removed() -> None:
    base = {"PATH": "/bin", "AWS_PROFILE": "dev", "AWS_SESSION_TOKEN": "old", "AWS_ENDPOINT_URL_S3": "https://old",
            "AWS_REGION": "eu-west-1"}  # fmt: skip
    assert laid_over(base, {"AWS_ACCESS_KEY_ID": "k", "AWS_ENDPOINT_URL": "https://new"}) == {
        "PATH": "/bin",
        "AWS_REGION": "eu-west-1",
        "AWS_ACCESS_KEY_ID": "k",
        "AWS_ENDPOINT_URL": "https://new",
    }


def test_it_is_fetched_when_needed_and_renewed() -> None:
    now, keys = [0.0], iter(["first", "second", "third"])
    environ = ConnectedEnviron(lambda: {"AWS_ACCESS_KEY_ID": next(keys)}, {"PATH": "/bin"}, lambda: now[0])
    assert "first" not in repr(environ)
    assert [environ["AWS_ACCESS_KEY_ID"], dict(environ)["AWS_ACCESS_KEY_ID"]] == ["first", "first"]
    now[0] = RENEW_SECONDS + 1
    assert environ["AWS_ACCESS_KEY_ID"] == "second"
    assert environ["PATH"] == "/bin"


@pytest.fixture
def configured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__GDDL__AWS_CONN_ID", "usual")
    set_connection(monkeypatch, "usual", extra={"region_name": "eu-west-1"})
    set_connection(monkeypatch, "own", extra={"region_name": "eu-north-1"})


@pytest.mark.usefixtures("configured")
def test_the_metadatas_own_connection_goes_before_the_configured_one() -> None:
    assert configuration.environ_for("s3://b/x")["AWS_REGION"] == "eu-west-1"
    assert configuration.environ_for("s3://b/x", aws_conn_id="own")["AWS_REGION"] == "eu-north-1"


@pytest.mark.usefixtures("configured")
def test_local_roots_need_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_USUAL")
    assert "PATH" in configuration.environ_for("/landing", "/lake")


def test_clients_differ_by_credentials() -> None:
    one = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "a"}
    assert client("b", one) is client("b", dict(one))
    assert client("b", one) is not client("b", {**one, "AWS_ACCESS_KEY_ID": "c"})
    assert S3Settings.of(one).store_config() == {}


def test_connections_of_catalogs_reach_the_job_s_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of Airflow; variables of the process stay as they are, and no other connection is read."""
    variable = "AIRFLOW_CONN_GDDL_CATALOG_MAIN"
    made = SimpleNamespace(get_uri=lambda: "iceberg://id:secret@host")
    monkeypatch.setattr("airflow_gddl.version_compat.connection", lambda name: {"gddl_catalog_main": made}[name])
    assert fetch_named(["gddl_catalog_main", "gddl_catalog_absent", "airflow_db"]) == {
        variable: "iceberg://id:secret@host"
    }
    monkeypatch.setenv(variable, "iceberg://other")
    assert fetch_named(["gddl_catalog_main"]) == {}
