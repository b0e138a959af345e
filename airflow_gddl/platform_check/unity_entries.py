"""Entries of a schema of Unity Catalog, over its REST API."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote, urlencode, urlsplit

from airflow_gddl.contract.errors import FatalError, GddlError, RetriableError
from airflow_gddl.contract.extensions import CatalogSpec, code_of_status, token_of
from airflow_gddl.contract.unity_rest import answer_of, message_of
from airflow_gddl.platform_check.checks import NotTriedError

_RIGHTS = "grant CREATE SCHEMA on the catalog, and what jobs that register tables need, to the token's user"


class UnityEntries:
    """See `catalog_entries.Entries`. The schema is dropped without force: what is in it then keeps it."""

    def __init__(self, spec: CatalogSpec, database: str, environ: Mapping[str, str]) -> None:
        self._spec, self._schema, self._environ = spec, database, environ

    @property
    def by_hand(self) -> str:
        return f"`DROP SCHEMA {self._spec.catalog_name}.{self._schema} CASCADE`"

    def tables(self) -> Mapping[str, str] | None:
        if self._ask("GET", f"/schemas/{self._full()}") is None:
            return None
        found: dict[str, str] = {}
        asked, page = {"catalog_name": self._spec.catalog_name or "", "schema_name": self._schema}, ""
        while True:
            answer = self._ask("GET", f"/tables?{urlencode({**asked, **({'page_token': page} if page else {})})}") or {}
            found |= {one["name"]: _location(one) for one in answer.get("tables") or ()}
            page = answer.get("next_page_token") or ""
            if not page:
                return found

    def drop_table(self, name: str) -> None:
        self._ask("DELETE", f"/tables/{self._full(name)}")

    def drop_database(self) -> None:
        self._ask("DELETE", f"/schemas/{self._full()}")

    def _full(self, *names: str) -> str:
        return quote(".".join((self._spec.catalog_name or "", self._schema, *names)), safe="")

    def _ask(self, method: str, path: str) -> dict[str, Any] | None:
        """The answer; None for 404.

        Raises:
            NotTriedError: `not-from-here`: this process has no token.
            GddlError: any other failure.
        """
        token = token_of(self._spec, self._environ)
        if token is None:
            raise NotTriedError("not-from-here", f"{self._spec.token_env} holds no token")
        server = urlsplit(self._spec.url or "").netloc
        try:
            status, text = answer_of(self._spec, token, method, path)
            answer = json.loads(text or "{}") if status < 300 else {}
        except (OSError, http.client.HTTPException, ValueError) as error:
            what = f"{server} does not answer: {error or type(error).__name__}"
            raise RetriableError("CATALOG_UNREACHABLE", what, remedy="check `url` of the catalog") from error
        if status == 404:
            return None
        if status >= 300:
            raise _refusal(status, text)
        return dict(answer)


def _refusal(status: int, text: str) -> GddlError:
    code, what = code_of_status(status), f"Unity Catalog answers {status}: {message_of(text)}"[:400]
    if code == "CATALOG_UNREACHABLE":
        return RetriableError(code, what, remedy="try again later")
    return FatalError(code, what, remedy=_RIGHTS)


def _location(table: Mapping[str, Any]) -> str:
    """Local ones are quoted, as URLs are."""
    location = str(table.get("storage_location") or "")
    return unquote(location) if location.startswith("file:") else location
