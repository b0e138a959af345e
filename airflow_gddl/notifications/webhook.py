"""Notifies a webhook of failed loads and late runs."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from airflow.sdk import BaseNotifier, Context

from airflow_gddl import version_compat as capabilities

_TIMEOUT = 15
_LONGEST = 3000

Post = Callable[[str, Mapping[str, Any]], None]


class GddlNotifier(BaseNotifier):
    """Posts JSON, `text` and the names of DAG, run and task, to the URL of an Airflow connection.

    `text` is the field that Slack, Mattermost and Teams workflows read.

    Args:
        connection: id of a connection whose host is the URL (a token may be its password, appended as a path); null:
            only logged.
        late: the message is about a run that takes longer than the table's freshness.
        post: sends a message; null: an HTTP POST.
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
            OSError: the webhook can't be reached, or refuses.
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
    """Message: table alerts if there are any, else the state of the run; null: not known."""
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
        ValueError: the connection has no usable URL.
    """
    if (connection.password or "").startswith(("http://", "https://")):
        return str(connection.password)
    host = (connection.host or "").strip()
    url = host if "://" in host else f"{connection.schema or 'https'}://{host}"
    if not host or not url.startswith(("http://", "https://")):
        raise ValueError(f"connection {connection.conn_id!r} has no http(s) URL as its host")
    return f"{url.rstrip('/')}/{connection.password}" if connection.password else url


def post_json(url: str, message: Mapping[str, Any]) -> None:
    """
    Raises:
        OSError: no response, or an error status.
    """
    data = json.dumps(message).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})  # noqa: S310 - checked by url_of
    with urllib.request.urlopen(request, timeout=_TIMEOUT):  # noqa: S310 - as above
        pass


def _of(run: Any, name: str) -> Any:
    return run.get(name) if isinstance(run, Mapping) else getattr(run, name, None)
