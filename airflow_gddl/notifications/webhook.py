"""Notifiers of a webhook, of Teams and of PagerDuty; others are those of Airflow's providers.

No provider of Airflow posts to workflows of Teams, and that of PagerDuty has one incident for all alerts of a message,
which nothing resolves.

Each takes an Airflow connection, so that no secret is in the configuration. Texts of rows and files reach them as text.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from airflow.sdk import BaseNotifier, Context

from airflow_gddl import version_compat as capabilities
from airflow_gddl.contract.errors import FatalError, RetriableError, documented

_TIMEOUT = 15
_LONGEST = 3000

Post = Callable[[str, Mapping[str, Any]], None]


class GddlNotifier(BaseNotifier):
    """Posts JSON, `text` and the names of DAG, run and task, to the URL of an Airflow connection.

    `text` is the field that Slack, Mattermost and Teams workflows read.

    Args:
        connection: id of a connection whose host is the URL (a token may be its password, appended as a path); None:
            only logged.
        late: the message is about a run that takes longer than the table's freshness.
        post: sends a message; None: an HTTP POST.
    """

    template_fields: Sequence[str] = ()

    def __init__(
        self, connection: str | None = None, *, late: bool = False, post: Post | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.connection, self.late, self.post = connection, late, post or post_json

    def notify(self, context: Context) -> None:
        """
        Raises:
            RetriableError: `NOTIFIER_UNREACHABLE`: the webhook can't be reached, or refuses.
            FatalError: `NOTIFIER_CONNECTION_INVALID`.
        """
        self.log.warning("%s", message_of(context, late=self.late)["text"])
        if self.connection is not None:
            self.send(context, capabilities.connection(self.connection))

    def send(self, context: Context, connection: Any) -> None:
        """Send the message; services with another form than JSON with `text` have their own."""
        self.post(url_of(connection), message_of(context, late=self.late))

    async def async_notify(self, context: Context) -> None:
        """`notify`, for the triggerer."""
        # Airflow's own bridge: connections are asked for over the triggerer's loop.
        from asgiref.sync import sync_to_async  # noqa: PLC0415 - only needed there

        await sync_to_async(self.notify)(context)


def message_of(context: Mapping[str, Any], *, late: bool) -> dict[str, Any]:
    """Message: table alerts if there are any, else the state of the run; None: not known."""
    given = context.get("gddl_text")
    task = context.get("task_instance") or context.get("ti")
    run = context.get("dag_run") or {}
    dag_id = getattr(task, "dag_id", None) or _of(run, "dag_id")
    run_id = context.get("run_id") or _of(run, "run_id") or _of(run, "dag_run_id")
    task_id = getattr(task, "task_id", None)
    what = "takes longer than the freshness of its table" if late else "failed"
    place = " ".join(str(part) for part in (dag_id, task_id, run_id) if part)
    why = f": {context['exception']}" if context.get("exception") else ""
    return {
        "text": str(given or f"{place} {what}{why}")[:_LONGEST],
        "dag_id": dag_id,
        "task_id": task_id,
        "run_id": run_id,
        "late": late,
        "log_url": getattr(task, "log_url", None),
    }


def url_of(connection: Any) -> str:
    """URL of the host, and the password as the end of its path; or the password, where that is a URL with a signature.

    Raises:
        FatalError: `NOTIFIER_CONNECTION_INVALID`.
    """
    if (connection.password or "").startswith(("http://", "https://")):
        return str(connection.password)
    url = address_of(connection)
    return f"{url}/{connection.password}" if connection.password else url


def address_of(connection: Any) -> str:
    """URL of the host, with its port. Without a scheme it is `https`, or `http` at another port than 443.

    Raises:
        FatalError: `NOTIFIER_CONNECTION_INVALID`.
    """
    host, port = (connection.host or "").strip().rstrip("/"), connection.port
    scheme = connection.schema or ("https" if port in (None, 443) else "http")
    url = host if "://" in host else f"{scheme}://{host}{f':{port}' if port else ''}"
    if not host or not url.startswith(("http://", "https://")):
        what = f"connection {connection.conn_id!r} has no http(s) URL as its host"
        more = documented("monitoring.md", "alerts")
        remedy = f"write the service's URL as its host, or the whole URL as its password ({more})"
        raise FatalError("NOTIFIER_CONNECTION_INVALID", what, remedy=remedy)
    return url


def post_json(url: str, message: Mapping[str, Any]) -> None:
    """
    Raises:
        RetriableError: `NOTIFIER_UNREACHABLE`: no response, or an error status.
    """
    data = json.dumps(message).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})  # noqa: S310 - checked by url_of
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT):  # noqa: S310 - as above
            pass
    except OSError as error:
        # The path of a webhook is a secret.
        place = urlsplit(url)
        what = f"{place.scheme}://{place.hostname}{f':{place.port}' if place.port else ''} took no message: {error}"
        remedy = "check the connection of the notifier and the network; the next load or watch sends it again"
        raise RetriableError("NOTIFIER_UNREACHABLE", what, remedy=remedy) from error


def _of(run: Any, name: str) -> Any:
    return run.get(name) if isinstance(run, Mapping) else getattr(run, name, None)


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
            GddlError: as `url_of` and `post_json`.
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
            GddlError: as `address_of` and `post_json`.
        """
        url = address_of(connection) if connection.host else _PAGERDUTY
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
                yield _incident(_key(alert), alert.line, alert.table, severity, alert.page)
        for alert in given:
            if alert.change == "over":
                yield {"event_action": "resolve", "dedup_key": _key(alert)}


def _incident(key: str, text: str, source: str, severity: str, page: str = "") -> dict[str, Any]:
    payload = {"summary": text[:1024], "source": source, "severity": severity, "group": "airflow-gddl"}
    links = {"links": [{"href": page, "text": source}]} if page else {}
    return {"event_action": "trigger", "dedup_key": key[:255], "payload": payload, **links}


def _key(alert: Any) -> str:
    return f"gddl/{alert.table}/{alert.code}"[:255]


def _unmarked(text: str) -> str:
    """Text that a card shows as it is: its Markdown makes links of `[text](address)`."""
    return text.replace("](", "] (")
