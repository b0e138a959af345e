"""Airflow connections lead to a platform, by every login that their providers' hooks know; errors name no secret."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import requests
import urllib3
from airflow.providers.databricks.hooks import databricks_base

from airflow_gddl.contract.errors import FatalError, GddlError, MetadataError, RetriableError
from airflow_gddl.hooks.aws import FromAirflow, fetch
from airflow_gddl.runners.databricks.workspace import connect
from tests.airflow.token_services import KUBERNETES, STS, WORKSPACE, TokenServices, serving
from tests.s3.faulty import between

DATABRICKS = {"conn_type": "databricks", "host": f"https://{WORKSPACE}", "password": "s3cr3t-token"}
ROLE = "arn:aws:iam::123456789012:role/loader"
AWS = {"conn_type": "aws", "login": "AKIDEXAMPLE", "password": "s3cr3t-key"}
OAUTH = "/oidc/v1/token"
JOBS = "/api/2.2/jobs/list"
SCOPE = "2ff814a6-3304-4ab8-85cb-cd0e6f879c1d"
MANAGEMENT = "https://management.core.windows.net/"
FEDERATES = "federated_k8s" in databricks_base.BaseDatabricksHook.extra_parameters
"""Older providers exchange no tokens."""


@pytest.fixture(autouse=True)
def services(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TokenServices]:
    """Every connection of this process leads to them."""
    real = urllib3.util.connection.create_connection
    with serving(tmp_path) as found:
        monkeypatch.setattr(
            urllib3.util.connection,
            "create_connection",
            lambda address, *given, **more: real(found.led(*address), *given, **more),
        )
        for name in ("REQUESTS_CA_BUNDLE", "AWS_CA_BUNDLE"):
            monkeypatch.setenv(name, str(found.authority))
        for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "AWS_ENDPOINT_URL"):
            monkeypatch.delenv(name, raising=False)
        yield found


def add(monkeypatch: pytest.MonkeyPatch, name: str, fields: Mapping[str, Any]) -> None:
    monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps(fields))


def jobs() -> list[int | None]:
    """Ids of the workspace's jobs, asked for by the SDK with the connection's login."""
    return connect(FromAirflow().login("databricks", "dbx")).ask(
        lambda api: [job.job_id for job in api.list(name="gddl")]
    )


def headers(services: TokenServices) -> dict[str, str]:
    """Of the last request for jobs, those that log in."""
    found = services.to(JOBS)[-1].headers
    return {name: value for name, value in found.items() if name == "Authorization" or name.startswith("X-Databricks")}


def supplied() -> str:
    """Called by the provider."""
    return "of-the-control-plane"


@pytest.mark.parametrize("extra", [{}, {"token": "s3cr3t-token"}, {"host": f"https://{WORKSPACE}/?o=1"}])
def test_calls_of_databricks_carry_the_token_of_the_connection(
    monkeypatch: pytest.MonkeyPatch, services: TokenServices, extra: dict[str, Any]
) -> None:
    monkeypatch.setenv("DATABRICKS_CLIENT_ID", "another way to log in, which the connection overrides")
    login = {"login": "ignored", "password": ""} if "token" in extra else {}
    add(monkeypatch, "dbx", {**DATABRICKS, **login, "extra": extra})
    assert jobs() == [7]
    assert headers(services) == {"Authorization": "Bearer s3cr3t-token"}
    assert {one.path for one in services.asked} == {"/.well-known/databricks-config", JOBS}
    assert "s3cr3t" not in repr(FromAirflow().login("databricks", "dbx"))


def test_scheme_and_port_are_those_of_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    add(monkeypatch, "dbx", {**DATABRICKS, "host": "127.0.0.1", "schema": "http", "port": 8080})
    assert FromAirflow().login("databricks", "dbx").host == "http://127.0.0.1:8080"


def test_a_user_and_a_password(monkeypatch: pytest.MonkeyPatch, services: TokenServices) -> None:
    add(monkeypatch, "dbx", {**DATABRICKS, "login": "user"})
    assert jobs() == [7]
    assert headers(services) == {"Authorization": "Basic " + base64.b64encode(b"user:s3cr3t-token").decode()}


def test_a_service_principal_logs_in_by_oauth_and_its_token_is_renewed(
    monkeypatch: pytest.MonkeyPatch, services: TokenServices
) -> None:
    extra = {"service_principal_oauth": True}
    add(monkeypatch, "dbx", {**DATABRICKS, "login": "client-id", "password": "s3cr3t-client", "extra": extra})
    services.seconds = 60  # the provider uses no token in its last two minutes
    workspace = connect(FromAirflow().login("databricks", "dbx"))
    used = []
    for _ in range(2):
        workspace.ask(lambda api: list(api.list(name="gddl")))
        used.append(headers(services)["Authorization"])
    assert used[0] != used[1]
    services.seconds = 3600
    workspace.ask(lambda api: list(api.list(name="gddl")))
    asked = services.to(OAUTH)
    workspace.ask(lambda api: list(api.list(name="gddl")))
    assert services.to(OAUTH) == asked, "a token that holds is used again"
    login = base64.b64encode(b"client-id:s3cr3t-client").decode()
    assert {one.headers["Authorization"] for one in asked} == {f"Basic {login}"}
    assert dict(asked[0].sent) == {"grant_type": "client_credentials", "scope": "all-apis"}


@pytest.mark.parametrize("resource", [None, "/subscriptions/1/w"])
def test_a_service_principal_of_azure(
    monkeypatch: pytest.MonkeyPatch, services: TokenServices, resource: str | None
) -> None:
    """A principal that is no user of the workspace has to say which one it manages."""
    extra = {"azure_tenant_id": "tenant"} | ({"azure_resource_id": resource} if resource else {})
    add(monkeypatch, "dbx", {**DATABRICKS, "login": "app", "password": "s3cr3t-app", "extra": extra})
    assert jobs() == [7]
    managing = {
        "X-Databricks-Azure-SP-Management-Token": f"entra {MANAGEMENT}/.default",
        "X-Databricks-Azure-Workspace-Resource-Id": resource,
    }
    assert headers(services) == {"Authorization": f"Bearer entra {SCOPE}/.default", **(managing if resource else {})}
    sent = services.to("/tenant/oauth2/v2.0/token")[-1].sent
    assert (sent["client_id"], sent["client_secret"], sent["grant_type"]) == ("app", "s3cr3t-app", "client_credentials")


def test_a_managed_identity_of_azure(monkeypatch: pytest.MonkeyPatch, services: TokenServices) -> None:
    extra = {"use_azure_managed_identity": True, "azure_managed_identity_client_id": "m", "azure_resource_id": "/w"}
    add(monkeypatch, "dbx", {**DATABRICKS, "login": "", "password": "", "extra": extra})
    assert jobs() == [7]
    assert (
        headers(services)
        == {
            "Authorization": f"Bearer machine {SCOPE}",
            "X-Databricks-Azure-SP-Management-Token": f"machine {MANAGEMENT.rstrip('/')}",
            "X-Databricks-Azure-Workspace-Resource-Id": "/w",
        }
        or headers(services)["X-Databricks-Azure-SP-Management-Token"] == f"machine {MANAGEMENT}"
    )
    asked = [one for one in services.to("/metadata/identity/oauth2/token") if one.headers.get("Metadata")]
    assert {one.sent["client_id"] for one in asked} == {"m"}


def test_the_default_credential_of_azure(
    monkeypatch: pytest.MonkeyPatch, services: TokenServices, tmp_path: Path
) -> None:
    """In Kubernetes: its workload identity."""
    (tmp_path / "token").write_text("of the pod")
    monkeypatch.setenv("AZURE_TENANT_ID", "tenant")
    monkeypatch.setenv("AZURE_CLIENT_ID", "app")
    monkeypatch.setenv("AZURE_FEDERATED_TOKEN_FILE", str(tmp_path / "token"))
    add(monkeypatch, "dbx", {**DATABRICKS, "password": "", "extra": {"use_default_azure_credential": True}})
    assert jobs() == [7]
    assert headers(services) == {"Authorization": f"Bearer entra {SCOPE}/.default"}
    assert services.to("/tenant/oauth2/v2.0/token")[-1].sent["client_assertion"] == "of the pod"


def test_a_login_of_azure_needs_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "azure.identity", None)
    extra = {"azure_tenant_id": "tenant"}
    add(monkeypatch, "dbx", {**DATABRICKS, "login": "app", "extra": extra})
    with pytest.raises(FatalError, match=r"PACKAGE_MISSING.*pip install azure-identity"):
        jobs()


@pytest.mark.skipif(not FEDERATES, reason="the installed provider exchanges no tokens")
@pytest.mark.parametrize(
    ("login", "extra", "subject"),
    [
        ("federated_k8s", {"k8s_projected_volume_token_path": "{folder}/pod", "client_id": "p"}, "of-the-pod"),
        (
            "federated_k8s",
            {"k8s_token_path": "{folder}/pod", "k8s_namespace_path": "{folder}/namespace", "client_id": "p"},
            "of-the-account",
        ),
        ("", {"federated_token_provider": f"{__name__}.supplied"}, "of-the-control-plane"),
        ("federated_aws", {"aws_conn_id": "prod", "client_id": "p"}, "of-the-role"),
    ],
    ids=["projected volume", "token request", "supplied", "aws"],
)
def test_a_token_of_another_is_exchanged(
    monkeypatch: pytest.MonkeyPatch,
    services: TokenServices,
    tmp_path: Path,
    login: str,
    extra: dict[str, str],
    subject: str,
) -> None:
    (tmp_path / "pod").write_text("of-the-pod")
    (tmp_path / "namespace").write_text("data")
    monkeypatch.setattr(databricks_base, "K8S_CA_CERT_PATH", str(services.authority))
    add(monkeypatch, "prod", {**AWS, "extra": {"region_name": "eu-west-1"}})
    written = {name: value.replace("{folder}", str(tmp_path)) for name, value in extra.items()}
    add(monkeypatch, "dbx", {**DATABRICKS, "login": login, "password": "", "extra": written})
    assert jobs() == [7]
    (sent,) = [one.sent for one in services.to(OAUTH)]
    assert (sent["subject_token"], sent.get("client_id")) == (subject, extra.get("client_id"))
    assert headers(services)["Authorization"].startswith(f"Bearer token-exchange {subject}")
    if subject == "of-the-account":
        (asked,) = [one for one in services.asked if one.host == KUBERNETES]
        assert asked.headers["Authorization"] == "Bearer of-the-pod"


@pytest.mark.skipif(not FEDERATES, reason="the installed provider knows no proxies")
def test_a_proxy_of_the_connection_is_used(monkeypatch: pytest.MonkeyPatch, services: TokenServices) -> None:
    with between(f"http://127.0.0.1:{services.ports[1]}") as way:
        extra = {"proxies": {"http": way.endpoint}}
        add(monkeypatch, "dbx", {**DATABRICKS, "host": WORKSPACE, "schema": "http", "extra": extra})
        access = FromAirflow().login("databricks", "dbx")
        client = connect(access).jobs._api._api_client._session  # type: ignore[attr-defined] # of the SDK
        assert client.proxies == {"http": way.endpoint}
        assert way.endpoint not in repr(access)


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        (None, "dbx"),
        ({**DATABRICKS, "host": ""}, "has no host"),
        ({**DATABRICKS, "password": ""}, "no way to log in"),
        ({**DATABRICKS, "password": "", "extra": {"federated_token_provider": "x.y"}}, "dbx"),
    ],
)
def test_an_unusable_connection_is_reported(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any] | None, what: str
) -> None:
    if fields is not None:
        add(monkeypatch, "dbx", fields)
    with pytest.raises(FatalError, match=rf"CONNECTION_UNUSABLE.*{what}") as caught:
        FromAirflow().login("databricks", "dbx")
    assert "s3cr3t" not in str(caught.value)


@pytest.mark.parametrize(
    ("status", "family", "code"),
    [(401, FatalError, "CONNECTION_UNUSABLE"), (503, RetriableError, "PLATFORM_UNREACHABLE")],
)
def test_a_refused_login_is_told_from_a_silent_service(
    monkeypatch: pytest.MonkeyPatch, services: TokenServices, status: int, family: type[GddlError], code: str
) -> None:
    monkeypatch.setattr("tenacity.nap.time.sleep", lambda _seconds: None)
    services.refusing[OAUTH] = status
    extra = {"service_principal_oauth": True}
    add(monkeypatch, "dbx", {**DATABRICKS, "login": "client-id", "password": "s3cr3t-client", "extra": extra})
    with pytest.raises(family, match=rf"{code}.*'dbx'") as caught:
        jobs()
    assert "s3cr3t" not in str(caught.value)


def test_aws_keys_come_from_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    add(monkeypatch, "prod", {**AWS, "extra": {"region_name": "eu-north-1", "config_kwargs": {"read_timeout": 7}}})
    client = FromAirflow().aws("prod", "glue", "eu-west-1")
    keys = client._request_signer._credentials
    assert (keys.access_key, keys.secret_key, client.meta.region_name) == ("AKIDEXAMPLE", "s3cr3t-key", "eu-west-1")
    assert (client.meta.config.read_timeout, client.meta.config.connect_timeout) == (7, 10)
    assert FromAirflow().aws("prod", "glue", None).meta.region_name == "eu-north-1"


def test_an_endpoint_of_one_service(monkeypatch: pytest.MonkeyPatch) -> None:
    service = {"glue": {"endpoint_url": "https://vpce-1.glue.example"}}
    add(monkeypatch, "prod", {**AWS, "extra": {"region_name": "eu-west-1", "service_config": service}})
    assert FromAirflow().aws("prod", "glue", None).meta.endpoint_url == "https://vpce-1.glue.example"
    assert "vpce" not in FromAirflow().aws("prod", "emr-serverless", None).meta.endpoint_url


def logins(tmp_path: Path) -> dict[str, tuple[dict[str, Any], str]]:
    """Connections that name no keys, or more than keys, and the key that they lead to."""
    (tmp_path / "jwt").write_text("of the pod")
    (tmp_path / "credentials").write_text("[dev]\naws_access_key_id = AKIDPROFILE\naws_secret_access_key = s3cr3t\n")
    web = {"assume_role_method": "assume_role_with_web_identity", "role_arn": ROLE}
    web |= {"assume_role_with_web_identity_federation": "file"}
    web |= {"assume_role_with_web_identity_token_file": str(tmp_path / "jwt")}
    return {
        "role": ({**AWS, "extra": {"role_arn": ROLE}}, "ASIAAssumeRole"),
        "external id": (
            {**AWS, "extra": {"role_arn": ROLE, "assume_role_kwargs": {"ExternalId": "x-1"}}},
            "ASIAAssumeRole",
        ),
        "web identity": ({"conn_type": "aws", "extra": web}, "ASIAAssumeRoleWithWebIdentity"),
        "profile": ({"conn_type": "aws", "extra": {"profile_name": "dev"}}, "AKIDPROFILE"),
        "keys in the extra": (
            {"conn_type": "aws", "extra": {"aws_access_key_id": "AKIDEXTRA", "aws_secret_access_key": "s3cr3t"}},
            "AKIDEXTRA",
        ),
    }


@pytest.mark.parametrize("form", ["role", "external id", "web identity", "profile", "keys in the extra"])
def test_each_form_of_an_aws_connection_logs_in(
    monkeypatch: pytest.MonkeyPatch, services: TokenServices, tmp_path: Path, form: str
) -> None:
    """The same for calls of a platform and as variables of stores and jobs."""
    fields, key = logins(tmp_path)[form]
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    add(monkeypatch, "prod", {**fields, "extra": {**fields["extra"], "region_name": "eu-west-1"}})
    client = FromAirflow().aws("prod", "glue", None)
    assert client._request_signer._credentials.get_frozen_credentials().access_key == key
    found = fetch("prod")
    assert (found["AWS_ACCESS_KEY_ID"], found["AWS_REGION"]) == (key, "eu-west-1")
    asked = [one.sent for one in services.asked if one.host == STS]
    assert len(asked) == (2 if key.startswith("ASIA") else 0)
    assert {one.get("ExternalId") for one in asked} <= {"x-1" if form == "external id" else None}


def test_a_role_that_cannot_be_assumed_is_reported_without_keys(
    monkeypatch: pytest.MonkeyPatch, services: TokenServices
) -> None:
    services.refusing["/"] = 403
    add(monkeypatch, "lake", {**AWS, "extra": {"role_arn": ROLE, "region_name": "eu-west-1"}})
    with pytest.raises(MetadataError, match=r"AWS_CONNECTION_INVALID.*'lake'") as caught:
        fetch("lake")
    assert "s3cr3t" not in str(caught.value)


def test_an_emr_connection_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow's type `emr` describes a cluster that is to be started."""
    add(monkeypatch, "emr_default", {"conn_type": "emr", "extra": {"Name": "cluster"}})
    for use in (lambda: fetch("emr_default"), lambda: FromAirflow().aws("emr_default", "glue", "eu-west-1")):
        with pytest.raises(MetadataError, match="is of type emr") as caught:
            use()
        assert caught.value.code == "AWS_CONNECTION_INVALID"


def test_nothing_else_is_reached(services: TokenServices) -> None:
    with pytest.raises(requests.ConnectionError, match="not served here"):
        requests.get("https://example.org", timeout=5)
    assert services.asked == []
