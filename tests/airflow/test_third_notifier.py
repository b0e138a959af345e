"""docs/extending.md's claim: a module and an entry point make a notifier of alerts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.reporting import alerting
from tests.harness.third_package import installed


@pytest.fixture(autouse=True)
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with installed(tmp_path / "site", "A notifier", monkeypatch):
        yield


def configure(monkeypatch: pytest.MonkeyPatch, notifier: str, arguments: dict[str, Any]) -> None:
    written = json.dumps([{"notifier": notifier, "arguments": arguments}])
    monkeypatch.setenv("AIRFLOW__GDDL__ALERT_NOTIFIERS", written)


def test_alerts_are_sent_by_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(monkeypatch, "pager", {"file": str(tmp_path / "pager"), "level": 2})
    (pager,) = alerting.notifiers()
    pager({"gddl_text": "shop.a: [X_Y] z", "dag": None})
    assert (tmp_path / "pager").read_text() == "2 shop.a: [X_Y] z\n"


@pytest.mark.parametrize(
    ("notifier", "arguments", "code", "message"),
    [
        ("pager", {"fil": "x"}, "OPTION_INVALID", "fil"),
        ("pager", {"file": "x", "level": "high"}, "OPTION_INVALID", "level"),
        ("pager", {}, "OPTION_INVALID", "file"),
        ("pigeon", {}, "NOTIFIER_UNKNOWN", "webhook, .*pager"),
    ],
)
def test_wrong_settings_are_reported(
    notifier: str, arguments: dict[str, Any], code: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(monkeypatch, notifier, arguments)
    with pytest.raises(MetadataError, match=rf"{code}.*{message}"):
        alerting.notifiers()


def test_webhook_has_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    configure(monkeypatch, "webhook", {"connection": "ops"})
    (webhook,) = alerting.notifiers()
    assert webhook.connection == "ops"
