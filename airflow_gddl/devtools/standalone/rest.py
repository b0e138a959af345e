"""Airflow's REST API, version 2, as a caller on the same machine."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

from airflow_gddl.contract.errors import FatalError, RetriableError

_SECONDS = 60.0


class RefusedError(FatalError):
    """Airflow answered with this HTTP status, which is an error."""

    status: int = 0


class Rest:
    """Answers are parsed JSON.

    Args:
        url: of the API server, without a path.

    Raises (every method):
        RefusedError: `AIRFLOW_REFUSED`: the server answered with an error.
        RetriableError: `AIRFLOW_SILENT`: there was no answer.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._token = ""
        # A proxy that the environment names is for other machines.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def get(self, path: str, **query: str | int | list[str]) -> Any:
        asked = f"?{urllib.parse.urlencode(query, doseq=True)}" if query else ""
        return self._call("GET", f"/api/v2/{path}{asked}", None)

    def post(self, path: str, body: object) -> Any:
        return self._call("POST", f"/api/v2/{path}", body)

    def patch(self, path: str, body: object) -> Any:
        return self._call("PATCH", f"/api/v2/{path}", body)

    def _call(self, method: str, path: str, body: object) -> Any:
        self._token = self._token or self._send("GET", "/auth/token", None)["access_token"]
        return self._send(method, path, body)

    def _send(self, method: str, path: str, body: object) -> Any:
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, headers=headers, method=method)  # noqa: S310 - http on loopback
        try:
            with self._opener.open(request, timeout=_SECONDS) as answer:
                return json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            said = error.read().decode(errors="replace")[:2000]
            refused = RefusedError("AIRFLOW_REFUSED", f"{method} {path}: {error.code} {said}", where=self.url)
            refused.status = error.code
            raise refused from error
        except (OSError, http.client.HTTPException) as error:
            remedy = "see the log of the api-server"
            what = f"{method} {path}: no answer: {error}"
            raise RetriableError("AIRFLOW_SILENT", what, where=self.url, remedy=remedy) from error
