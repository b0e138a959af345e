"""Airflow connections lead to a platform; whatever is wrong with one is told without its secret."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.hooks.platforms import FromAirflow

DATABRICKS = {"conn_type": "databricks", "host": "adb-1.azuredatabricks.net", "password": "s3cr3t-token"}
AWS = {"conn_type": "aws", "login": "AKIDEXAMPLE", "password": "s3cr3t-key"}


def connect(monkeypatch: pytest.MonkeyPatch, name: str, fields: dict[str, Any]) -> None:
    monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps(fields))


def test_a_databricks_token_goes_into_the_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("airflow.providers.databricks")
    connect(monkeypatch, "dbx", DATABRICKS)
    access = FromAirflow().databricks("dbx")
    assert access.host == "https://adb-1.azuredatabricks.net"
    assert access.headers is not None
    assert access.headers() == {"Authorization": "Bearer s3cr3t-token"}
    assert "s3cr3t" not in repr(access)


def test_a_connection_that_is_not_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("airflow.providers.databricks")
    with pytest.raises(FatalError, match=r"CONNECTION_UNUSABLE.*nowhere"):
        FromAirflow().databricks("nowhere")


def test_aws_keys_come_from_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("airflow.providers.amazon.aws.hooks.base_aws")
    connect(monkeypatch, "prod", AWS)
    session = FromAirflow().aws("prod", "eu-west-1")
    keys = session.get_credentials()
    assert (keys.access_key, keys.secret_key, session.region_name) == ("AKIDEXAMPLE", "s3cr3t-key", "eu-west-1")
