"""Notifiers of services that read another form than JSON with `text`: Teams, PagerDuty, mail.

Each takes an Airflow connection, so that no secret is in the configuration. Texts of rows and files reach them as text.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from airflow.sdk import Context

from airflow_gddl.notifications.webhook import GddlNotifier, message_of, url_of

_PAGERDUTY = "https://events.pagerduty.com/v2/enqueue"
_INCIDENTS = 50
"""Incidents that one message opens at most: PagerDuty takes some 120 events a minute."""
_WARNINGS = frozenset({"MAINTENANCE_DUE", "QUARANTINE_RATE", "SEQUENCE_TIE", "UPDATE_WITHOUT_PRIOR"})
"""Alerts of severity `warning` instead of `error`."""


class TeamsNotifier(GddlNotifier):
    """Posts an adaptive card to the URL of a Teams workflow, which is the connection's password, since it is signed."""

    def send(self, context: Context, connection: Any) -> None:
        """
        Raises:
            OSError: no response, or an error status.
            ValueError: the connection has no usable URL.
        """
        lines = message_of(context, late=self.late)["text"].splitlines()
        blocks = [{"type": "TextBlock", "text": _unmarked(line), "wrap": True} for line in lines]
        card = {"type": "AdaptiveCard", "version": "1.4", "body": blocks}
        card |= {"$schema": "http://adaptivecards.io/schemas/adaptive-card.json"}
        content = {"contentType": "application/vnd.microsoft.card.adaptive", "content": card}
        self.post(url_of(connection), {"type": "message", "attachments": [content]})


class PagerDutyNotifier(GddlNotifier):
    """Opens an incident for each alert, by the Events API v2, and resolves it when the alert is over.

    The connection's password is the integration's key; its host replaces PagerDuty's address.
    """

    def send(self, context: Context, connection: Any) -> None:
        """
        Raises:
            OSError: no response, or an error status.
        """
        url = connection.host if "://" in (connection.host or "") else _PAGERDUTY
        for event in self._events(context):
            self.post(url, {"routing_key": connection.password, "client": "airflow-gddl", **event})

    def _events(self, context: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        given: Sequence[Any] = context.get("gddl_alerts") or ()
        began = [alert for alert in given if alert.change == "began"]
        if not given or len(began) > _INCIDENTS:
            message = message_of(context, late=self.late)
            key = "/".join(str(message[name]) for name in ("dag_id", "task_id", "run_id"))
            yield _incident(f"gddl/{key}", message["text"], str(message["dag_id"]), "error")
        else:
            for alert in began:
                severity = "warning" if alert.code in _WARNINGS else "error"
                yield _incident(_key(alert), alert.line, alert.table, severity)
        for alert in given:
            if alert.change == "over":
                yield {"event_action": "resolve", "dedup_key": _key(alert)}


class MailNotifier(GddlNotifier):
    """Sends mail by a connection of the type `smtp`; needs `apache-airflow-providers-smtp`.

    Args:
        connection: of the mail server; its `from_email` is the sender.
        to: addresses.
    """

    def __init__(self, connection: str, to: tuple[str, ...], **kwargs: Any) -> None:
        super().__init__(connection, **kwargs)
        self.to = to

    def send(self, context: Context, connection: Any) -> None:
        """
        Raises:
            OSError: the server can't be reached, or refuses.
            ImportError: the provider is missing.
        """
        from airflow.providers.smtp.hooks.smtp import SmtpHook  # noqa: PLC0415 - optional

        text = message_of(context, late=self.late)["text"]
        first, *others = text.splitlines()
        subject = f"airflow-gddl: {first[:150]}" + (f" and {len(others)} more" if others else "")
        with SmtpHook(smtp_conn_id=connection.conn_id) as server:
            server.send_email_smtp(to=list(self.to), subject=subject, html_content=f"<pre>{html.escape(text)}</pre>")


def _incident(key: str, text: str, source: str, severity: str) -> dict[str, Any]:
    payload = {"summary": text[:1024], "source": source, "severity": severity, "group": "airflow-gddl"}
    return {"event_action": "trigger", "dedup_key": key[:255], "payload": payload}


def _key(alert: Any) -> str:
    return f"gddl/{alert.table}/{alert.code}"[:255]


def _unmarked(text: str) -> str:
    """Text that a card shows as it is: its Markdown makes links of `[text](address)`."""
    return text.replace("](", "] (")
