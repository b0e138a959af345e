"""Airflow connections lead to a platform; errors of one are reported without its secret."""

from __future__ import annotations

import base64
import json
from typing import Any

import boto3
import moto
import pytest
import responses

from airflow_gddl.contract.errors import FatalError, MetadataError
from airflow_gddl.hooks.aws import FromAirflow, fetch

DATABRICKS = {"conn_type": "databricks", "host": "adb-1.azuredatabricks.net", "password": "s3cr3t-token"}
ROLE, ASSUMED = "arn:aws:iam::123456789012:role/loader", "arn:aws:sts::123456789012:assumed-role/loader/"
AWS = {"conn_type": "aws", "login": "AKIDEXAMPLE", "password": "s3cr3t-key"}


def connect(monkeypatch: pytest.MonkeyPatch, name: str, fields: dict[str, Any]) -> None:
    monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps(fields))


def test_a_databricks_token_goes_into_the_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, "dbx", DATABRICKS)
    access = FromAirflow().databricks("dbx")
    assert access.host == "https://adb-1.azuredatabricks.net"
    assert access.headers is not None
    assert access.headers() == {"Authorization": "Bearer s3cr3t-token"}
    assert "s3cr3t" not in repr(access)


def test_a_missing_connection_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FatalError, match=r"CONNECTION_UNUSABLE.*nowhere"):
        FromAirflow().databricks("nowhere")


@pytest.mark.filterwarnings("ignore:ProvidersManager.hooks is deprecated")
def test_a_service_principal_logs_in_by_oauth_and_its_token_is_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    extra = {"service_principal_oauth": True}
    connect(monkeypatch, "dbx", {**DATABRICKS, "login": "client-id", "password": "s3cr3t-client", "extra": extra})
    with responses.RequestsMock() as answers:
        # A token that ends within two minutes is not used twice.
        for token in ("first", "second"):
            found = {"access_token": token, "expires_in": 60, "token_type": "Bearer"}
            answers.post("https://adb-1.azuredatabricks.net/oidc/v1/token", json=found)
        access = FromAirflow().databricks("dbx")
        assert access.headers is not None
        tokens = [access.headers()["Authorization"] for _ in range(2)]
        sent = [call.request for call in answers.calls]
    assert tokens == ["Bearer first", "Bearer second"]
    login = base64.b64encode(b"client-id:s3cr3t-client").decode()
    assert [request.headers["Authorization"] for request in sent] == [f"Basic {login}"] * 2
    assert sent[0].body == "grant_type=client_credentials&scope=all-apis"


def test_an_azure_service_principal_names_its_workspace(monkeypatch: pytest.MonkeyPatch) -> None:
    """A principal that is no user of the workspace has to say which one it manages."""
    extra = {
        "azure_tenant_id": "tenant",
        "azure_resource_id": "/subscriptions/1/w",
        "use_azure_managed_identity": False,
    }
    connect(monkeypatch, "dbx", {**DATABRICKS, "login": "app", "password": "s3cr3t-app", "extra": extra})
    access = FromAirflow().databricks("dbx")
    monkeypatch.setattr(
        "airflow.providers.databricks.hooks.databricks_base.BaseDatabricksHook._get_aad_token",
        lambda _hook, resource: f"token of {resource}",
    )
    assert access.headers is not None
    headers = access.headers()
    assert headers["X-Databricks-Azure-Workspace-Resource-Id"] == "/subscriptions/1/w"
    assert headers["Authorization"].startswith("Bearer token of 2ff814a6")
    assert "X-Databricks-Azure-SP-Management-Token" in headers


def test_aws_keys_come_from_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, "prod", AWS)
    session = FromAirflow().aws("prod", "eu-west-1")
    keys = session.get_credentials()
    assert (keys.access_key, keys.secret_key, session.region_name) == ("AKIDEXAMPLE", "s3cr3t-key", "eu-west-1")


def test_a_role_of_the_connection_is_assumed_for_a_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, "prod", {**AWS, "extra": {"role_arn": ROLE, "region_name": "eu-west-1"}})
    with moto.mock_aws():
        session = FromAirflow().aws("prod", "eu-west-1")
        assert session.client("sts").get_caller_identity()["Arn"].startswith(ASSUMED)


@pytest.mark.parametrize("extra", [{"role_arn": ROLE}, {"role_arn": ROLE, "assume_role_kwargs": {"ExternalId": "x-1"}}])
def test_a_role_of_the_connection_is_assumed_for_stores_and_jobs(
    monkeypatch: pytest.MonkeyPatch, extra: dict[str, Any]
) -> None:
    connect(monkeypatch, "lake", {**AWS, "extra": {**extra, "region_name": "eu-west-1"}})
    with moto.mock_aws():
        found = fetch("lake")
        assert set(found) == {"AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"}
        assert found["AWS_ACCESS_KEY_ID"] != AWS["login"]
        who = boto3.client(
            "sts",
            region_name="eu-west-1",
            aws_access_key_id=found["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=found["AWS_SECRET_ACCESS_KEY"],
            aws_session_token=found["AWS_SESSION_TOKEN"],
        ).get_caller_identity()
    assert who["Arn"].startswith(ASSUMED)


def test_a_role_that_cannot_be_assumed_is_reported_without_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, "lake", {**AWS, "extra": {"role_arn": "no arn", "region_name": "eu-west-1"}})
    with moto.mock_aws(), pytest.raises(MetadataError, match=r"AWS_CONNECTION_INVALID.*'lake'") as caught:
        fetch("lake")
    assert "s3cr3t" not in str(caught.value)


def test_an_emr_connection_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow's type `emr` describes a cluster that is to be started."""
    connect(monkeypatch, "emr_default", {"conn_type": "emr", "extra": {"Name": "cluster"}})
    for use in (lambda: fetch("emr_default"), lambda: FromAirflow().aws("emr_default", "eu-west-1")):
        with pytest.raises(MetadataError, match="is of type emr") as caught:
            use()
        assert caught.value.code == "AWS_CONNECTION_INVALID"
