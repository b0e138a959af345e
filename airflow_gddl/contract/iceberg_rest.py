"""Iceberg's REST catalogs, opened by pyiceberg, with credentials of a connection that the deployment holds."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from airflow_gddl.contract import durations
from airflow_gddl.contract.codes import CATALOG_CONNECTION_MISSING, CATALOG_DENIED, CATALOG_REFUSED, CATALOG_UNREACHABLE
from airflow_gddl.contract.codes.code import Code
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.extensions import TOKEN_PREFIX, CatalogSpec
from airflow_gddl.contract.source_access import connection_fields

_PASSED = ("scope", "audience", "resource", "oauth2-server-uri")
_PASSED_BEGINNINGS = ("header.", "rest.")
_DENIED = ("UnauthorizedError", "ForbiddenError", "AuthorizationExpiredError", "OAuthError")
_DOWN = (
    *("CommitStateUnknownException", "ServerError", "ServiceUnavailableError", "TooManyRequestsError"),
    *("ConnectionError", "ConnectTimeout", "ReadTimeout", "SSLError", "ProxyError", "ChunkedEncodingError"),
)


def is_catalog_connection(name: str) -> bool:
    """Whether metadata may name this connection: any other may hold another secret of the process."""
    rest = name.upper().removeprefix(TOKEN_PREFIX)
    return rest != name.upper() and rest.replace("_", "").isalnum() and rest.isascii()


def login_of(name: str, environ: Mapping[str, str]) -> Mapping[str, str]:
    """pyiceberg's properties of a connection: an Airflow connection (type `iceberg`), as JSON or URI.

    Login and password are client id and secret, a password alone is a token; the extra may name `scope`, `audience`,
    `resource`, `oauth2-server-uri`, and what begins with `rest.` or `header.`.

    Raises:
        FatalError: `CATALOG_CONNECTION_MISSING`, without its content.
    """
    written, variable = "", f"AIRFLOW_CONN_{name.upper()}"
    if is_catalog_connection(name):
        written = (environ.get(variable) or environ.get(name) or "").strip()
    try:
        fields, extra = connection_fields(written)
    except (ValueError, TypeError, AttributeError):
        fields, extra = {}, {}
    login, password = fields.get("login"), fields.get("password")
    properties = {k: str(v) for k, v in extra.items() if k in _PASSED or k.startswith(_PASSED_BEGINNINGS)}
    if password:
        properties |= {"credential": f"{login}:{password}"} if login else {"token": password}
    if not properties:
        what = f"the connection {name!r} is not set where the job runs, or holds no credentials"
        raise FatalError(CATALOG_CONNECTION_MISSING, what, remedy=f"set {variable}, or Airflow's connection {name}")
    return properties


def open_rest(spec: CatalogSpec, environ: Mapping[str, str], file_io: Callable[[], Any] | None = None) -> Any:
    """pyiceberg's `RestCatalog`, which has asked the server for its configuration.

    Args:
        file_io: makes what reads and writes metadata on this side; None: pyiceberg's own.

    Raises:
        FatalError: as `login_of`.
        ImportError: pyiceberg is not installed.
    """
    rest, requests = importlib.import_module("pyiceberg.catalog.rest"), importlib.import_module("requests.adapters")
    wait = durations.seconds(spec.timeout)

    class Timed(requests.HTTPAdapter):  # type: ignore[name-defined,misc]  # imported by name
        def send(self, *given: Any, **more: Any) -> Any:
            return super().send(*given, **{**more, "timeout": wait})

    class Opened(rest.RestCatalog):  # type: ignore[name-defined,misc]  # imported by name, too
        def _config_headers(self, session: Any) -> None:
            """Called for each new session, before its first request."""
            for scheme in ("http://", "https://"):
                session.mount(scheme, Timed())
            super()._config_headers(session)

        def _load_file_io(self, properties: Any = None, location: Any = None) -> Any:
            return super()._load_file_io(properties or {}, location) if file_io is None else file_io()

    login = {} if spec.connection is None else login_of(spec.connection, environ)
    place = {"uri": spec.uri or "", **({} if spec.warehouse is None else {"warehouse": spec.warehouse})}
    return Opened("gddl", **login, **place)


def code_of_rest(error: Exception) -> Code:
    """Code of an error of pyiceberg, or of what it sends requests with."""
    names = {kind.__name__ for kind in type(error).__mro__}
    if names & set(_DENIED):
        return CATALOG_DENIED
    return CATALOG_UNREACHABLE if names & set(_DOWN) else CATALOG_REFUSED
