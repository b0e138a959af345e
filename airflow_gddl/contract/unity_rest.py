"""Requests to Unity Catalog's REST API: the open-source server's, which is a part of Databricks'."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

from airflow_gddl.contract import durations
from airflow_gddl.contract.extensions import CatalogSpec

_API = "/api/2.1/unity-catalog"
_MOST_BYTES = 10_000_000


def answer_of(
    spec: CatalogSpec, token: str, method: str, path: str, body: Mapping[str, Any] | None = None
) -> tuple[int, str]:
    """Status and text that the server answers. No redirect is followed: the token is for this server alone.

    Args:
        token: empty: none is sent.
        path: below the API, quoted.

    Raises:
        OSError: the server does not answer; so does `http.client.HTTPException`.
        ValueError: its URL is none.
    """
    parts = urlsplit(spec.url or "")
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    headers = {"Accept": "application/json", "Content-Type": "application/json"}
    headers |= {"Authorization": f"Bearer {token}"} if token else {}
    sent = None if body is None else json.dumps(body)
    with closing(kind(parts.netloc, timeout=durations.seconds(spec.timeout))) as connection:
        connection.request(method, parts.path.rstrip("/") + _API + path, sent, headers)
        answer = connection.getresponse()
        return answer.status, answer.read(_MOST_BYTES).decode(errors="replace")


def message_of(text: str) -> str:
    """What the server says of a refusal; empty where it says nothing."""
    try:
        return str(json.loads(text).get("message", ""))
    except (ValueError, AttributeError):
        return ""
