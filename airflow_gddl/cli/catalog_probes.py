"""Requests of `gddl check` to catalogs: one for each, which changes nothing."""

from __future__ import annotations

import http.client
import importlib
import secrets
import socket
from collections.abc import Mapping
from contextlib import closing
from types import SimpleNamespace
from urllib.parse import quote, urlsplit

from airflow_gddl.contract import durations
from airflow_gddl.contract.errors import FatalError, GddlError, RetriableError
from airflow_gddl.contract.extensions import (
    CATALOGS,
    CatalogSpec,
    ProbeSkippedError,
    code_of_glue,
    code_of_status,
    token_of,
)
from airflow_gddl.contract.iceberg_rest import code_of_rest, open_rest

_API = "/api/2.1/unity-catalog/catalogs/"
_METASTORE_PORT = 9083


def probe_catalog(spec: CatalogSpec, database: str, environ: Mapping[str, str]) -> str:
    """Make one request; return the finding.

    Args:
        database: one that a row's table has in this catalog, which need not exist.
        environ: where the token is found by its name.

    Raises:
        GddlError: `CATALOG_UNREACHABLE`, `CATALOG_DENIED` or `CATALOG_REFUSED`.
        ProbeSkippedError: it can't be tried from here.
    """
    probe = CATALOGS.get(spec.kind).probe
    if probe is None:
        raise ProbeSkippedError("its kind can't be tried from here; try `gddl catalog diff`")
    return str(CATALOGS.load(probe)(spec, database, environ))


def probe_unity(spec: CatalogSpec, _database: str, environ: Mapping[str, str]) -> str:
    parts, name = urlsplit(spec.url or ""), spec.catalog_name or ""
    token = token_of(spec, environ)
    if token is None:
        raise _unreachable(f"{spec.token_env} holds no token", f"set {spec.token_env} where jobs run")
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        with closing(kind(parts.netloc, timeout=durations.seconds(spec.timeout))) as connection:
            connection.request("GET", parts.path.rstrip("/") + _API + quote(name, safe=""), headers=headers)
            status = connection.getresponse().status
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise _silent(parts.netloc, error, "url") from error
    if status >= 300:
        raise _refusal(status, parts.netloc, name)
    return f"{parts.netloc} has the catalog {name}"


def _refusal(status: int, server: str, name: str) -> GddlError:
    what = f"Unity Catalog at {server} answers {status} for the catalog {name!r}"
    code = code_of_status(status)
    if code == "CATALOG_UNREACHABLE":
        return _unreachable(what, "try again later, or see the server's log")
    denied = "grant USE CATALOG to the token's user, or correct the token; see docs/catalogs.md"
    refused = "create the catalog, or correct `url` and `catalog_name`"
    return FatalError(code, what, remedy=denied if code == "CATALOG_DENIED" else refused)


def probe_glue(spec: CatalogSpec, database: str, _environ: Mapping[str, str]) -> str:
    try:
        import boto3  # noqa: PLC0415 - an extra that only this catalog needs
        from botocore.config import Config  # noqa: PLC0415 - as above
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - as above
    except ImportError as error:
        raise _unreachable("boto3 is not installed", "pip install 'airflow-gddl[glue]'") from error
    wait = durations.seconds(spec.timeout)
    config = Config(connect_timeout=wait, read_timeout=wait, retries={"total_max_attempts": 1})
    account = {} if spec.catalog_id is None else {"CatalogId": spec.catalog_id}
    try:
        client = boto3.Session().client("glue", region_name=spec.region, endpoint_url=spec.endpoint, config=config)
        client.get_database(Name=database, **account)
    except ClientError as error:
        answer, what = str(error.response.get("Error", {}).get("Code", "")), f"Glue: {error}"[:400]
        if answer == "EntityNotFoundException":
            return f"Glue answers; it has no database {database} yet"
        code, remedy = code_of_glue(answer, what), "check credentials, region and endpoint"
        if code == "CATALOG_UNREACHABLE":
            raise _unreachable(what, remedy) from error
        remedy = "grant glue:GetDatabase" if code == "CATALOG_DENIED" else remedy
        raise FatalError(code, what, remedy=remedy) from error
    except (BotoCoreError, ValueError) as error:
        raise _unreachable(f"Glue: {error}"[:400], "check credentials, region and endpoint") from error
    return f"Glue answers; it has the database {database}"


def probe_iceberg_rest(spec: CatalogSpec, database: str, environ: Mapping[str, str]) -> str:
    """Ask for the namespace, and whether tables in it may be committed to: of one that is not there."""
    server = urlsplit(spec.uri or "").netloc
    try:
        errors, catalog = importlib.import_module("pyiceberg.exceptions"), open_rest(spec, environ)
        has_namespace = catalog.namespace_exists((database,))
        absent = SimpleNamespace(name=lambda: (database, f"gddl_check_{secrets.token_hex(6)}"), config={})
        try:
            catalog.commit_table(absent, (), ())
        except (errors.NoSuchTableError, errors.NoSuchNamespaceError):
            pass
        except errors.RESTError as error:
            if "NoSuch" not in str(error):
                raise
    except ImportError as error:
        raise ProbeSkippedError("pyiceberg is not installed here; try `gddl catalog diff`") from error
    except GddlError:
        raise
    except Exception as error:
        code, what = code_of_rest(error), f"{server}: {type(error).__name__}: {error}"[:400]
        if code == "CATALOG_UNREACHABLE":
            raise _silent(server, error, "uri") from error
        remedy = "grant it to the connection's user, or correct its credentials; see docs/catalogs.md"
        refused = "correct `uri` and `warehouse` of the catalog"
        raise FatalError(code, what, remedy=remedy if code == "CATALOG_DENIED" else refused) from error
    return f"{server} answers, and takes commits; it has {'the' if has_namespace else 'no'} namespace {database}" + (
        "" if has_namespace else " yet"
    )


def probe_hive(spec: CatalogSpec, _database: str, _environ: Mapping[str, str]) -> str:
    if spec.uri is None:
        raise ProbeSkippedError("Spark's configuration names the metastore; try `gddl catalog diff`")
    parts = urlsplit(spec.uri or "")
    server = f"{parts.hostname}:{parts.port or _METASTORE_PORT}"
    try:
        with socket.create_connection(
            (parts.hostname or "", parts.port or _METASTORE_PORT), timeout=durations.seconds(spec.timeout)
        ):
            return f"{server} accepts connections"
    except OSError as error:
        raise _silent(server, error, "uri") from error


def _silent(server: str, error: Exception, field: str) -> GddlError:
    reason = str(error) or type(error).__name__
    return _unreachable(f"{server} does not answer: {reason}", f"start it, or correct `{field}` of the catalog")


def _unreachable(what: str, remedy: str) -> GddlError:
    return RetriableError("CATALOG_UNREACHABLE", what, remedy=remedy)
