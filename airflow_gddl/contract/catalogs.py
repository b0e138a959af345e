"""Catalogs that tables are registered in: their kinds, settings, and names of tables there. Standard library only."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from airflow_gddl.contract.extensions import ExtensionPoint
from airflow_gddl.contract.table_spec import STRICT, TableSpec

TableKind = Literal["replica", "history", "changes", "errors"]
TOKEN_PREFIX = "GDDL_CATALOG_"  # noqa: S105 - prefix of variable names
"""Prefix of variables that may hold a catalog's token: metadata may name no other secret of the process."""
_FIELDS = re.compile(r"\{([^{}]*)\}")
CatalogCode = Literal["CATALOG_UNREACHABLE", "CATALOG_DENIED", "CATALOG_REFUSED"]
_GLUE_DENIED = ("AccessDenied", "UnauthorizedOperation", "LakeFormation", "GlueEncryption")
_GLUE_DOWN = ("Throttl", "Internal", "ServiceUnavailable", "OperationTimeout", "RequestLimit", "TooManyRequests")
_GLUE_CREDENTIALS = ("ExpiredToken", "UnrecognizedClient", "InvalidSignature", "InvalidClientTokenId")


@dataclass(frozen=True, kw_only=True)
class CatalogSpec:
    """A catalog of `gddl.yaml`. See docs/catalogs.md for the fields that each kind needs."""

    __pydantic_config__ = STRICT

    kind: str
    """`hive` (a Hive metastore, by the job's Spark), `glue` (AWS Glue Data Catalog), `unity` (Unity Catalog), or a kind
    of another package."""
    database: str = "{schema}"
    """Name of the database (Unity: schema); placeholders `{schema}` and `{source}`."""
    table: str = "{table}"
    """Name of the replica; placeholders `{schema}`, `{source}` and `{table}` (without the schema)."""
    tables: tuple[TableKind, ...] = ("replica", "history")
    """Delta tables of a row to register; names other than the replica's get a suffix such as `__history`."""
    timeout: str = "5s"
    """Timeout of a request to the catalog."""
    region: str | None = None
    """`glue`: AWS region; null: from the environment."""
    endpoint: str | None = None
    """`glue`: endpoint URL; null: AWS's default."""
    catalog_id: str | None = None
    """`glue`: AWS account of the catalog; null: that of the job's credentials."""
    url: str | None = None
    """`unity`: the server, e.g. `https://unity.example.com:8080`."""
    catalog_name: str | None = None
    """`unity`: the catalog that holds the schemas; it must exist."""
    token_env: str | None = None
    """`unity`: environment variable of the job that holds the token, `GDDL_CATALOG_...`; null: no token is sent."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Settings of a kind of another package."""
    uri: str | None = None
    """`hive`: e.g. `thrift://metastore:9083`; null: Spark's configuration (`hive-site.xml`, or the platform's)."""


@dataclass(frozen=True, kw_only=True)
class CatalogDescriptor:
    """All that one kind of catalog brings. References are `module:attribute`.

    Attributes:
        port: function of a `CatalogSpec` and a `spark_jobs.catalogs.catalog_port.CatalogContext` that gives the
            `CatalogPort`; loaded only by the job.
        probe: function of a `CatalogSpec`, a database and the environment that makes one request for `gddl check` and
            returns what it found, or raises `ProbeSkippedError` or a `GddlError`; null: `gddl check` skips it.
        names: regular expression of the names that it can hold; `names_are`: the same for messages.
        fields: fields of `CatalogSpec` that belong to this kind; `needed`: those among them that it needs.
        options: class of `CatalogSpec.options`, a frozen dataclass with defaults; null: it has none.
        session: function of a `CatalogSpec` that gives settings (`spark.…`) of the job's session; null: none.
        readers: that need no settings besides the catalog's to address its tables, see `published.READERS`.
    """

    port: str
    names: str
    names_are: str
    probe: str | None = None
    fields: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()
    options: str | None = None
    session: str | None = None
    readers: tuple[str, ...] = ()


CATALOGS = ExtensionPoint(
    "kind of catalog",
    "airflow_gddl.catalogs",
    CatalogDescriptor,
    {
        "hive": CatalogDescriptor(
            port="spark_jobs.catalogs.hive_catalog:hive_catalog",
            probe="airflow_gddl.cli.check:probe_hive",
            names="[a-z0-9_]{1,128}",
            names_are="1 to 128 letters a-z, digits and _",
            fields=("uri",),
            session="spark_jobs.catalogs.catalog_port:hive_settings",
            readers=("spark",),
        ),
        "glue": CatalogDescriptor(
            port="spark_jobs.catalogs.glue_catalog:glue_catalog",
            probe="airflow_gddl.cli.check:probe_glue",
            names="[a-z0-9_]{1,255}",
            names_are="1 to 255 letters a-z, digits and _, as Athena reads them",
            fields=("region", "endpoint", "catalog_id"),
            readers=("spark", "athena"),
        ),
        "unity": CatalogDescriptor(
            port="spark_jobs.catalogs.unity_catalog:unity_catalog",
            probe="airflow_gddl.cli.check:probe_unity",
            names=r"[^\x00-\x20\x7f./]{1,255}",
            names_are="1 to 255 characters without blanks, `.` and `/`",
            fields=("url", "catalog_name", "token_env"),
            needed=("url", "catalog_name"),
            readers=("spark", "databricks"),
        ),
    },
    unknown_code="CATALOG_KIND_UNKNOWN",
    broken_code="CATALOG_KIND_BROKEN",
)


@dataclass(frozen=True, order=True)
class EntryName:
    """Name of a table in a catalog; both parts are in lower case."""

    database: str
    table: str

    def __str__(self) -> str:
        return f"{self.database}.{self.table}"


def entry_name(catalog: CatalogSpec, spec: TableSpec, kind: TableKind = "replica") -> EntryName:
    """The name of one of a row's tables. Names compare without case in every catalog, so they are in lower case."""
    values = {"schema": spec.schema_name, "source": spec.source, "table": spec.name}
    database, table = (_FIELDS.sub(lambda m: values[m[1]], text).lower() for text in (catalog.database, catalog.table))
    return EntryName(database, table if kind == "replica" else f"{table}__{kind}")


def code_of_status(status: int) -> CatalogCode:
    """Code of an HTTP status from 300 on that Unity Catalog answers."""
    if status in (401, 403):
        return "CATALOG_DENIED"
    return "CATALOG_UNREACHABLE" if status == 429 or status >= 500 else "CATALOG_REFUSED"


def code_of_glue(error: str, message: str) -> CatalogCode:
    """Code of an error that Glue answers, by AWS's own code and message."""
    if error.startswith((*_GLUE_DOWN, *_GLUE_CREDENTIALS)):
        return "CATALOG_UNREACHABLE"
    is_denied = error.startswith(_GLUE_DENIED) or "not authorized" in message.lower()
    return "CATALOG_DENIED" if is_denied else "CATALOG_REFUSED"


def token_of(catalog: CatalogSpec, environ: Mapping[str, str]) -> str | None:
    """The token to send; empty: none is sent; null: its variable holds none that can be sent."""
    if catalog.token_env is None:
        return ""
    token = environ.get(catalog.token_env, "").strip()
    return token if token and token.isascii() and token.isprintable() else None


def name_fault(found: CatalogDescriptor, name: EntryName) -> str:
    """Why a catalog of this kind can't hold the name; empty when it can."""
    bad = next((part for part in (name.database, name.table) if not re.fullmatch(found.names, part)), None)
    return "" if bad is None else f"{bad!r} is not {found.names_are}"


def template_fault(text: str, *, of_table: bool) -> str:
    """What is wrong with `database` or `table`; empty when nothing is."""
    known = ("schema", "source", "table") if of_table else ("schema", "source")
    unknown = next((name for name in _FIELDS.findall(text) if name not in known), None)
    if unknown is not None:
        return f"{{{unknown}}} is not a placeholder"
    if "{" in _FIELDS.sub("", text) or "}" in _FIELDS.sub("", text):
        return "an unmatched brace"
    return "" if text.strip() else "is empty"
