"""The notifier of a webhook, which Slack reads, and that of Airflow for mail, against servers of this machine."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_string, policy
from pathlib import Path
from typing import Any

import pytest

from airflow_gddl.contract.errors import RetriableError
from airflow_gddl.reporting import alerting
from airflow_gddl.runtime.state.alerts import Alert
from tests.e2e.webhook import Webhook, listening

ROOT = Path(__file__).parents[2]
BEGAN = Alert(table="shop.a", owner=None, change="began", code="LOAD_FAILED", text="it failed: [x](http://y) <b>")
LATE = Alert(table="shop.b", owner=None, change="began", code="QUARANTINE_RATE", text="2 of 4 rows")


@pytest.fixture
def webhook() -> Iterator[Webhook]:
    with listening() as server:
        yield server


def send(monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], connection: dict[str, Any], *alerts: Alert) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_OPS", json.dumps(connection))
    call(monkeypatch, [{"notifier": given.pop("notifier"), "arguments": {"connection": "ops", **given}}], *alerts)


def call(monkeypatch: pytest.MonkeyPatch, written: list[dict[str, Any]], *alerts: Alert) -> None:
    monkeypatch.setenv("AIRFLOW__GDDL__ALERT_NOTIFIERS", json.dumps(written))
    (notifier,) = alerting.notifiers()
    notifier({"dag": None, "gddl_alerts": list(alerts), "gddl_text": alerting.text_of(alerts)})


def test_slack_reads_text(webhook: Webhook, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"http://127.0.0.1:{webhook.server_port}"
    send(monkeypatch, {"notifier": "webhook"}, {"conn_type": "slackwebhook", "host": url, "password": "T/B/X"}, BEGAN)
    assert [message["text"] for message in webhook.reported] == [BEGAN.line]


def test_the_port_of_a_connection_counts(webhook: Webhook, monkeypatch: pytest.MonkeyPatch) -> None:
    written = [{"notifier": "webhook", "arguments": {"connection": "pager"}}]
    monkeypatch.setenv("AIRFLOW_CONN_PAGER", f"http://127.0.0.1:{webhook.server_port}")
    monkeypatch.setenv("AIRFLOW__GDDL__ALERT_NOTIFIERS", json.dumps(written))
    (made,) = alerting.notifiers()
    made({"dag": None, "gddl_alerts": [BEGAN], "gddl_text": BEGAN.line})
    assert BEGAN.line in json.dumps(webhook.reported, ensure_ascii=False)


def test_a_service_that_does_not_answer_is_an_error_with_a_code(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RetriableError, match="NOTIFIER_UNREACHABLE") as caught:
        send(
            monkeypatch,
            {"notifier": "webhook"},
            {"conn_type": "http", "host": "http://127.0.0.1:1", "password": "T/X"},
            BEGAN,
        )
    assert "http://127.0.0.1:1 took no message" in str(caught.value)
    assert "T/X" not in str(caught.value)


class Mails(socketserver.StreamRequestHandler):
    """As much of SMTP as a client needs."""

    kept: list[str]

    def handle(self) -> None:
        say = lambda text: self.wfile.write(f"{text}\r\n".encode())  # noqa: E731 - as it reads
        say("220 here")
        while line := self.rfile.readline().decode().strip():
            if line.upper() == "DATA":
                say("354 go")
                lines = []
                while (text := self.rfile.readline().decode()) != ".\r\n":
                    lines.append(text)
                self.kept.append("".join(lines))
            if line.upper() == "QUIT":
                say("221 bye")
                return
            say("250 ok")


@contextmanager
def mail_server() -> Iterator[tuple[int, list[str]]]:
    kept: list[str] = []
    handler = type("Kept", (Mails,), {"kept": kept})
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server.server_address[1], kept
        finally:
            server.shutdown()


def example_of(provider: str) -> list[dict[str, Any]]:
    """The line of docs/monitoring.md for a notifier of this provider."""
    lines = (ROOT / "docs" / "monitoring.md").read_text().splitlines()
    (line,) = [one for one in lines if one.startswith("alert_notifiers = ") and f"providers.{provider}" in one]
    found: list[dict[str, Any]] = json.loads(line.removeprefix("alert_notifiers = "))
    return found


def test_mail_has_escaped_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("airflow.providers.smtp")
    with mail_server() as (port, kept):
        extra = json.dumps({"from_email": "gddl@example.org", "disable_ssl": True, "disable_tls": True})
        connection = {"conn_type": "smtp", "host": "127.0.0.1", "port": port, "extra": extra}
        monkeypatch.setenv("AIRFLOW_CONN_MAIL", json.dumps(connection))
        call(monkeypatch, example_of("smtp"), BEGAN, LATE)
    mail = message_from_string(kept[0], policy=policy.default)
    assert (mail["From"], mail["To"]) == ("gddl@example.org", "ops@example.org")
    assert mail["Subject"].startswith("airflow-gddl: shop.a: [LOAD_FAILED]")
    body = mail.get_body(("html",))
    assert body is not None
    assert "it failed: [x](http://y) &lt;b&gt;" in body.get_content()
