"""Iceberg catalogs in metadata, their credentials, and what `gddl check` finds of them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from airflow_gddl.cli.check import probe_catalog
from airflow_gddl.contract.errors import FatalError, RetriableError
from airflow_gddl.contract.extensions import CatalogSpec
from airflow_gddl.contract.iceberg_rest import is_catalog_connection, login_of
from airflow_gddl.metadata import sources
from tests.catalogs.world import row

REST = {"kind": "iceberg_rest", "uri": "https://catalog.example.com/api"}


def test_what_a_catalog_needs() -> None:
    full = {**REST, "warehouse": "lake", "connection": "gddl_catalog_main", "tables": ["replica"]}
    assert sources.build_catalogs({"ice": full})[1] == ()
    assert sources.build_catalogs({"ice": {"kind": "iceberg_glue", "region": "eu-west-1", "database": "x"}})[1] == ()


@pytest.mark.parametrize(
    ("given", "field", "code"),
    [
        ({"kind": "iceberg_rest"}, "uri", "FIELD_MISSING"),
        ({**REST, "uri": "thrift://metastore:9083"}, "uri", "FIELD_VALUE"),
        ({**REST, "uri": "https://user:pw@catalog.example.com"}, "uri", "FIELD_VALUE"),
        ({**REST, "connection": "postgres_default"}, "connection", "FIELD_VALUE"),
        ({**REST, "tables": ["replica", "errors"]}, "tables", "FIELD_VALUE"),
        ({**REST, "region": "eu-west-1"}, "region", "FIELD_VALUE"),
        ({"kind": "iceberg_glue", "warehouse": "x"}, "warehouse", "FIELD_VALUE"),
        ({"kind": "hive", "uri": "https://metastore"}, "uri", "FIELD_VALUE"),
    ],
)
def test_wrong_settings_are_problems(given: Mapping[str, Any], field: str, code: str) -> None:
    _, (problem,) = sources.build_catalogs({"ice": given})
    assert (problem.code, problem.field) == (code, f"catalogs.ice.{field}")
    assert "postgres_default" not in str(problem)


def test_rows_of_such_a_catalog_are_iceberg_tables() -> None:
    catalogs = {"main": CatalogSpec(kind="iceberg_rest", uri="https://catalog.example.com")}
    assert list(sources.check_rows([row(iceberg=True)], catalogs)) == []
    ((_, problem),) = sources.check_rows([row()], catalogs)
    assert (problem.code, problem.path) == ("FIELD_MISSING", ("iceberg",))


def test_glue_takes_no_version_3() -> None:
    """pyiceberg writes the metadata of its entries, which it can't in version 3."""
    catalogs = {"main": CatalogSpec(kind="iceberg_glue", region="eu-west-1")}
    assert list(sources.check_rows([row(iceberg=True)], catalogs)) == []
    ((_, problem),) = sources.check_rows([row(iceberg=3)], catalogs)
    assert (problem.code, problem.path, problem.remedy) == ("FIELD_VALUE", ("iceberg",), "write true, or catalog: null")
    rest = {"main": CatalogSpec(kind="iceberg_rest", uri="https://catalog.example.com")}
    assert list(sources.check_rows([row(iceberg=3)], rest)) == []


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ('{"conn_type": "iceberg", "login": "id", "password": "p:w/d"}', {"credential": "id:p:w/d"}),
        ('{"password": "t", "extra": {"scope": "PRINCIPAL_ROLE:ALL", "py-io-impl": "x"}}',
         {"token": "t", "scope": "PRINCIPAL_ROLE:ALL"}),
        ('{"extra": "{\\"rest.sigv4-enabled\\": \\"true\\"}"}', {"rest.sigv4-enabled": "true"}),
        ("iceberg://id:p%3Aw%2Fd@host/?scope=all", {"credential": "id:p:w/d", "scope": "all"}),
        ("iceberg://:t@/?__extra__=%7B%22scope%22%3A+%22all%22%7D", {"token": "t", "scope": "all"}),
    ],
)  # fmt: skip
def test_credentials_of_a_connection(written: str, found: Mapping[str, str]) -> None:
    assert login_of("gddl_catalog_main", {"AIRFLOW_CONN_GDDL_CATALOG_MAIN": written}) == found


@pytest.mark.parametrize("written", ["", "{", "[]", "iceberg://host", '{"login": "hunter22"}'])
def test_a_connection_without_credentials_is_named_without_its_content(written: str) -> None:
    with pytest.raises(FatalError) as caught:
        login_of("gddl_catalog_main", {"AIRFLOW_CONN_GDDL_CATALOG_MAIN": written})
    assert caught.value.code == "CATALOG_CONNECTION_MISSING"
    assert "hunter22" not in str(caught.value)


@pytest.mark.parametrize("name", ["airflow_db", "gddl_catalog_", "gddl_source_shop", "gddl_catalog_a-b"])
def test_no_other_connection_is_read(name: str) -> None:
    assert not is_catalog_connection(name)
    environ = {f"AIRFLOW_CONN_{name.upper()}": "iceberg://id:secret@host", name: "iceberg://id:secret@host"}
    with pytest.raises(FatalError, match="CATALOG_CONNECTION_MISSING"):
        login_of(name, environ)


def test_check_says_what_a_server_has_and_takes(iceberg_rest: str) -> None:
    spec = CatalogSpec(kind="iceberg_rest", uri=iceberg_rest)
    assert probe_catalog(spec, "none", {}).endswith(" answers, and takes commits; it has no namespace none yet")


def test_check_says_who_does_not_answer() -> None:
    spec = CatalogSpec(kind="iceberg_rest", uri="http://127.0.0.1:1", timeout="1s")
    with pytest.raises(RetriableError, match=r"CATALOG_UNREACHABLE.*127\.0\.0\.1:1 does not answer"):
        probe_catalog(spec, "shop", {})


@pytest.fixture
def denying() -> Iterator[tuple[str, list[str | None]]]:
    """A server that refuses all commits, and the credentials that it was sent."""
    sent: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            sent.append(self.headers.get("Authorization"))
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            reads = self.command == "GET"
            error = {"message": "not yours", "type": "ForbiddenException", "code": 403}
            body = json.dumps(
                {"defaults": {}, "overrides": {}, "namespace": ["shop"]} if reads else {"error": error}
            ).encode()
            self.send_response(200 if reads else 403)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_HEAD = do_POST = _serve  # noqa: N815 - names of the library

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", sent
    server.shutdown()
    server.server_close()


def test_check_says_what_is_denied_and_sends_the_token(denying: tuple[str, list[str | None]]) -> None:
    url, sent = denying
    spec = CatalogSpec(kind="iceberg_rest", uri=url, connection="gddl_catalog_main")
    environ = {"AIRFLOW_CONN_GDDL_CATALOG_MAIN": "iceberg://:t0ken@/"}
    with pytest.raises(FatalError, match="CATALOG_DENIED") as caught:
        probe_catalog(spec, "shop", environ)
    assert "t0ken" not in str(caught.value)
    assert set(sent) == {"Bearer t0ken"}
    with pytest.raises(FatalError, match="CATALOG_CONNECTION_MISSING"):
        probe_catalog(replace(spec, connection="gddl_catalog_other"), "shop", environ)
