"""Connection types of this package: forms, tests, and hooks that DAGs of users import."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy

from airflow_gddl.contract.connections import url_of
from airflow_gddl.contract.errors import FatalError, RetriableError
from airflow_gddl.hooks.connections import GddlSourceHook, GddlWebhookHook
from airflow_gddl.provider import get_provider_info
from tests.e2e.webhook import listening

END = "T/B"


def connect(monkeypatch: pytest.MonkeyPatch, **fields: Any) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", json.dumps(fields))


def test_the_provider_names_hooks_of_its_connection_types() -> None:
    known = {"gddl_source": GddlSourceHook, "gddl_webhook": GddlWebhookHook}
    declared = {one["connection-type"]: one for one in get_provider_info()["connection-types"]}
    assert declared.keys() == known.keys()
    for kind, hook in known.items():
        assert declared[kind]["hook-class-name"] == f"{hook.__module__}.{hook.__name__}"
        assert declared[kind]["hook-name"] == hook.hook_name
        assert hook.conn_type == kind
        assert "relabeling" in hook.get_ui_field_behaviour()


@pytest.mark.parametrize(
    ("extra", "driver"),
    [({"dialect": "mysql+pymysql"}, "mysql+pymysql"), ({"dialect": "oracle"}, "oracle"), ({}, "postgresql")],
)
def test_a_source_connection_leads_to_its_database(
    monkeypatch: pytest.MonkeyPatch, extra: dict[str, str], driver: str
) -> None:
    fields = {"conn_type": "gddl_source", "host": "db", "port": 5, "login": "u", "password": "p@/:", "schema": "shop"}
    connect(monkeypatch, **fields, extra=json.dumps(extra))
    uri = GddlSourceHook.get_connection("shop").get_uri()
    for written in (uri, json.dumps({**fields, "extra": extra}), json.dumps({**fields, "extra": json.dumps(extra)})):
        url = url_of(sqlalchemy, "SHOP", {"SHOP": written})
        assert url.drivername.startswith(driver)
        assert (url.host, url.port, url.username, url.password, url.database) == ("db", 5, "u", "p@/:", "shop")
        assert dict(url.query) == {}


def test_a_source_is_tested(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    connect(monkeypatch, conn_type="gddl_source", schema=str(tmp_path / "shop.db"), extra='{"dialect": "sqlite"}')
    assert GddlSourceHook("shop").test_connection() == (True, "the database answers")
    with GddlSourceHook("shop").get_conn() as connection:
        assert connection.exec_driver_sql("SELECT 2").scalar() == 2
    gone = {"conn_type": "gddl_source", "host": "127.0.0.1", "port": 1, "login": "u", "password": "secret"}
    connect(monkeypatch, **gone, schema="shop", extra='{"dialect": "postgresql"}')
    with pytest.raises((RetriableError, FatalError), match=r"SOURCE_UNREACHABLE|SOURCE_DRIVER_MISSING"):
        GddlSourceHook("shop").get_conn()
    works, why = GddlSourceHook("shop").test_connection()
    assert (works, "secret" in why) == (False, False)
    connect(monkeypatch, **gone, schema="shop", extra='{"dialect": "nodb"}')
    works, why = GddlSourceHook("shop").test_connection()
    assert (works, "secret" in why) == (False, False)
    assert "[SOURCE_DRIVER_MISSING]" in why


def test_a_webhook_is_tested_by_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    with listening() as server:
        connect(monkeypatch, conn_type="gddl_webhook", host=f"http://127.0.0.1:{server.server_port}", password=END)
        assert GddlWebhookHook("shop").test_connection() == (True, "the message was sent")
        assert [message["text"] for message in server.reported] == [
            "Test message of airflow-gddl: this connection works."
        ]
    works, why = GddlWebhookHook("shop").test_connection()
    assert (works, END in why) == (False, False)
    connect(monkeypatch, conn_type="gddl_webhook")
    assert GddlWebhookHook("shop").test_connection()[0] is False
