"""Airflow connections lead to a platform; errors of one are reported without its secret."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import moto
import pytest
import responses
from databricks.sdk.core import Config

from airflow_gddl.contract.errors import FatalError, MetadataError
from airflow_gddl.hooks.aws import FromAirflow, fetch
from airflow_gddl.runners.interface import DatabricksAccess

DATABRICKS = {"conn_type": "databricks", "host": "adb-1.azuredatabricks.net", "password": "s3cr3t-token"}
ROLE, ASSUMED = "arn:aws:iam::123456789012:role/loader", "arn:aws:sts::123456789012:assumed-role/loader/"
AWS = {"conn_type": "aws", "login": "AKIDEXAMPLE", "password": "s3cr3t-key"}


def connect(monkeypatch: pytest.MonkeyPatch, name: str, fields: dict[str, Any]) -> None:
    monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps(fields))


HOST = "https://adb-1.azuredatabricks.net"
KNOWN = {"oidc_endpoint": f"{HOST}/oidc", "cloud": "Azure"}
AZURE = "https://login.microsoftonline.com/tenant/oauth2/token"


def headers_of(access: DatabricksAccess) -> dict[str, str]:
    """Of a request of the SDK."""
    return dict(sdk(access).authenticate())


def sdk(access: DatabricksAccess) -> Config:
    return Config(host=access.host, **access.login)


@contextmanager
def answering(*tokens: str, seconds: int = 3600) -> Iterator[responses.RequestsMock]:
    """A workspace that gives these tokens, one a request, each for so many seconds."""
    endpoint = f"{HOST}/oidc/v1/token"
    with responses.RequestsMock(assert_all_requests_are_fired=False) as answers:
        answers.get(f"{HOST}/.well-known/databricks-config", json=KNOWN)
        known = {"token_endpoint": endpoint, "authorization_endpoint": endpoint}
        answers.get(f"{HOST}/oidc/.well-known/oauth-authorization-server", json=known)
        for token in tokens:
            found = {"access_token": token, "expires_in": seconds, "token_type": "Bearer"}
            answers.post(endpoint, json=found)
        yield answers


@pytest.mark.parametrize("extra", [{}, {"token": "s3cr3t-token"}, {"host": f"{HOST}/?o=1"}])
def test_a_databricks_token_goes_into_the_headers(monkeypatch: pytest.MonkeyPatch, extra: dict[str, Any]) -> None:
    monkeypatch.setenv("DATABRICKS_CLIENT_ID", "another way to log in, which the connection overrides")
    login = {"login": "ignored", "password": ""} if "token" in extra else {}
    connect(monkeypatch, "dbx", {**DATABRICKS, **login, "extra": extra})
    access = FromAirflow().databricks("dbx")
    assert access.host == HOST
    with responses.RequestsMock(assert_all_requests_are_fired=False) as answers:
        answers.get(f"{HOST}/.well-known/databricks-config", json=KNOWN)
        assert headers_of(access) == {"Authorization": "Bearer s3cr3t-token"}
    assert "s3cr3t" not in repr(access)


def test_scheme_and_port_are_those_of_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, "dbx", {**DATABRICKS, "host": "127.0.0.1", "schema": "http", "port": 8080})
    assert FromAirflow().databricks("dbx").host == "http://127.0.0.1:8080"


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        (None, "dbx"),
        ({**DATABRICKS, "host": ""}, "has no host"),
        ({**DATABRICKS, "password": ""}, "no way to log in"),
        ({**DATABRICKS, "login": "user"}, "no way to log in"),
        ({**DATABRICKS, "password": "", "extra": {"federated_token_provider": "x.y"}}, "no way to log in"),
    ],
)
def test_an_unusable_connection_is_reported(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any] | None, what: str
) -> None:
    if fields is not None:
        connect(monkeypatch, "dbx", fields)
    with pytest.raises(FatalError, match=rf"CONNECTION_UNUSABLE.*{what}") as caught:
        FromAirflow().databricks("dbx")
    assert "s3cr3t" not in str(caught.value)


def test_a_service_principal_logs_in_by_oauth_and_its_token_is_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    extra = {"service_principal_oauth": True}
    connect(monkeypatch, "dbx", {**DATABRICKS, "login": "client-id", "password": "s3cr3t-client", "extra": extra})
    with answering("first", "second", seconds=30) as answers:  # the SDK uses no token in its last 40 seconds
        config = sdk(FromAirflow().databricks("dbx"))
        tokens = [config.authenticate()["Authorization"] for _ in range(2)]
        sent = [call.request for call in answers.calls if call.request.method == "POST"]
    assert tokens == ["Bearer first", "Bearer second"]
    login = base64.b64encode(b"client-id:s3cr3t-client").decode()
    assert [request.headers["Authorization"] for request in sent] == [f"Basic {login}"] * 2
    assert sent[0].body == "grant_type=client_credentials&scope=all-apis"


def test_a_principal_of_azure_names_its_workspace(monkeypatch: pytest.MonkeyPatch) -> None:
    """A principal that is no user of the workspace has to say which one it manages."""
    extra = {"azure_resource_id": "/subscriptions/1/w", "azure_tenant_id": "tenant"}
    connect(monkeypatch, "dbx", {**DATABRICKS, "login": "app", "password": "s3cr3t-app", "extra": extra})
    with responses.RequestsMock() as answers:
        answers.get(f"{HOST}/.well-known/databricks-config", json=KNOWN)
        answers.post(AZURE, json={"access_token": "of azure", "expires_in": 3600, "token_type": "Bearer"})
        headers = headers_of(FromAirflow().databricks("dbx"))
    assert headers == {
        "Authorization": "Bearer of azure",
        "X-Databricks-Azure-SP-Management-Token": "of azure",
        "X-Databricks-Azure-Workspace-Resource-Id": "/subscriptions/1/w",
    }


class Credential:
    """Of `azure-identity`, which no other test needs: `get_token(*scopes)` returns an access token with `token`."""

    def __init__(self, *, client_id: str = "default") -> None:
        self.client_id = client_id

    def get_token(self, *scopes: str) -> SimpleNamespace:
        return SimpleNamespace(token=f"{self.client_id}: {scopes[0]}", expires_on=4102444800)


def test_an_identity_of_azure_needs_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    extra = {"use_azure_managed_identity": True, "managed_identity_client_id": "m", "azure_resource_id": "/w"}
    connect(monkeypatch, "dbx", {**DATABRICKS, "login": "", "password": "", "extra": extra})
    monkeypatch.setitem(sys.modules, "azure.identity", None)
    with pytest.raises(FatalError, match=r"PACKAGE_MISSING.*pip install azure-identity"):
        FromAirflow().databricks("dbx")
    kinds = {"ManagedIdentityCredential": Credential, "DefaultAzureCredential": Credential}
    monkeypatch.setitem(sys.modules, "azure.identity", SimpleNamespace(**kinds))
    monkeypatch.setitem(sys.modules, "azure", SimpleNamespace())
    with responses.RequestsMock() as answers:
        answers.get(f"{HOST}/.well-known/databricks-config", json=KNOWN)
        assert headers_of(FromAirflow().databricks("dbx")) == {
            "Authorization": "Bearer m: 2ff814a6-3304-4ab8-85cb-cd0e6f879c1d/.default",
            "X-Databricks-Azure-SP-Management-Token": "m: https://management.azure.com/.default",
            "X-Databricks-Azure-Workspace-Resource-Id": "/w",
        }
    connect(monkeypatch, "dbx", {**DATABRICKS, "password": "", "extra": {"use_default_azure_credential": True}})
    with responses.RequestsMock() as answers:
        answers.get(f"{HOST}/.well-known/databricks-config", json=KNOWN)
        headers = headers_of(FromAirflow().databricks("dbx"))
    assert headers == {"Authorization": "Bearer default: 2ff814a6-3304-4ab8-85cb-cd0e6f879c1d/.default"}


def test_a_token_of_kubernetes_is_exchanged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("of the pod")
    extra = {"k8s_projected_volume_token_path": str(tmp_path / "token"), "client_id": "principal"}
    connect(monkeypatch, "dbx", {**DATABRICKS, "login": "federated_k8s", "password": "", "extra": extra})
    with answering("exchanged") as answers:
        assert headers_of(FromAirflow().databricks("dbx")) == {"Authorization": "Bearer exchanged"}
        (sent,) = [call.request for call in answers.calls if call.request.method == "POST"]
    assert "subject_token=of+the+pod" in str(sent.body)


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
