"""Notifier of a webhook; all others are those of Airflow's providers, which take the text of the alerts.

It takes an Airflow connection, so that no secret is in the configuration. Texts of rows and files reach it as text.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from airflow.sdk import BaseNotifier, Context

from airflow_gddl import version_compat as capabilities
from airflow_gddl.contract.codes import CONNECTION_UNUSABLE, NOTIFIER_UNREACHABLE
from airflow_gddl.contract.errors import FatalError, RetriableError, documented

_TIMEOUT = 15
_LONGEST = 3000

Post = Callable[[str, Mapping[str, Any]], None]


class GddlNotifier(BaseNotifier):
    """Posts JSON, `text` and the names of DAG, run and task, to the URL of an Airflow connection.

    `text` is the field that Slack and Mattermost read.

    Args:
        connection: id of a connection whose host is the URL (a token may be its password, appended as a path); None:
            only logged.
        post: sends a message; None: an HTTP POST.
    """

    template_fields: Sequence[str] = ()

    def __init__(self, connection: str | None = None, *, post: Post | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.connection, self.post = connection, post or post_json

    def notify(self, context: Context) -> None:
        """
        Raises:
            RetriableError: `NOTIFIER_UNREACHABLE`: the webhook can't be reached, or refuses.
            FatalError: `CONNECTION_UNUSABLE`.
        """
        self.log.warning("%s", message_of(context)["text"])
        if self.connection is not None:
            self.post(url_of(capabilities.connection(self.connection)), message_of(context))


def message_of(context: Mapping[str, Any]) -> dict[str, Any]:
    """Message: table alerts if there are any, else the state of the run; None: not known."""
    given = context.get("gddl_text")
    task = context.get("task_instance") or context.get("ti")
    run = context.get("dag_run") or {}
    dag_id = getattr(task, "dag_id", None) or _of(run, "dag_id")
    run_id = context.get("run_id") or _of(run, "run_id") or _of(run, "dag_run_id")
    task_id = getattr(task, "task_id", None)
    place = " ".join(str(part) for part in (dag_id, task_id, run_id) if part)
    why = f": {context['exception']}" if context.get("exception") else ""
    return {
        "text": str(given or f"{place} failed{why}")[:_LONGEST],
        "dag_id": dag_id,
        "task_id": task_id,
        "run_id": run_id,
        "log_url": getattr(task, "log_url", None),
    }


def url_of(connection: Any) -> str:
    """URL of the host with its port, and the password as the end of its path; or the password, where that is a URL with
    a signature. Without a scheme it is `https`, or `http` at another port than 443.

    Raises:
        FatalError: `CONNECTION_UNUSABLE`.
    """
    if (connection.password or "").startswith(("http://", "https://")):
        return str(connection.password)
    host, port = (connection.host or "").strip().rstrip("/"), connection.port
    scheme = connection.schema or ("https" if port in (None, 443) else "http")
    url = host if "://" in host else f"{scheme}://{host}{f':{port}' if port else ''}"
    if not host or not url.startswith(("http://", "https://")):
        what = f"connection {connection.conn_id!r} has no http(s) URL as its host"
        more = documented("monitoring.md", "alerts")
        remedy = f"write the service's URL as its host, or the whole URL as its password ({more})"
        raise FatalError(CONNECTION_UNUSABLE, what, remedy=remedy)
    return f"{url}/{connection.password}" if connection.password else url


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
        raise RetriableError(NOTIFIER_UNREACHABLE, what, remedy=remedy) from error


def _of(run: Any, name: str) -> Any:
    return run.get(name) if isinstance(run, Mapping) else getattr(run, name, None)
