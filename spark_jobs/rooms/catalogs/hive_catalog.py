"""A Hive metastore, through the job's Spark session: entries as Spark writes them for Delta tables."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow_gddl.contract.codes import CATALOG_DENIED, CATALOG_REFUSED, CATALOG_UNREACHABLE
from airflow_gddl.contract.extensions import CatalogSpec, EntryName
from airflow_gddl.contract.layout import STATE, join, same_place
from airflow_gddl.contract.sql_types import literal, quoted
from spark_jobs.rooms.catalogs.catalog_port import (
    CatalogContext,
    CatalogError,
    DeltaTableInfo,
    Entry,
    Registration,
    TableColumn,
    plain_entry,
)
from spark_jobs.rooms.catalogs.registrar import hive_type
from spark_jobs.tables.places import DeclinedError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_DOWN = (
    "TTransportException",
    "Could not connect to meta store",
    "Unable to instantiate",
    "ConnectException",
    "Unable to open a test connection",
    "SocketTimeoutException",
)
_DENIED = ("AccessControlException", "AuthorizationException", "Permission denied", "is not allowed")


class HiveCatalog:
    """See `CatalogPort`. Spark starts with the first table that needs a change."""

    alters = frozenset({"columns", "comment", "location", "properties"})

    def __init__(self, _spec: CatalogSpec, around: CatalogContext) -> None:
        self._around = around
        self._databases: set[str] = set()

    def entry_of(self, info: DeltaTableInfo, properties: Mapping[str, str]) -> Entry:
        return plain_entry(info, properties, hive_type)

    def read(self, name: EntryName) -> Entry | None:
        with _translated():
            table = self._found(name)
            if table is None:
                return None
            provider = _text(table.provider()) or "hive"
            schema = json.loads(table.schema().json())["fields"]
            return Entry(
                location=same_place(_text(table.storage().locationUri())),
                columns={f["name"]: (hive_type(f["type"]), f["metadata"].get("comment", "")) for f in schema},
                comment=_text(table.comment()),
                properties=_mapping(table.properties()),
                problem="" if provider.lower() == "delta" else f"it is no Delta table (provider {provider})",
            )

    def create(self, registration: Registration) -> None:
        name = registration.name
        with _translated():
            self._require_database(name.database)
            place = literal(registration.info.location)
            table = f"{quoted(name.database)}.{quoted(name.table)}"
            self._on.sql(f"CREATE TABLE IF NOT EXISTS {table} USING delta LOCATION {place}")
        self.alter(registration)

    def alter(self, registration: Registration) -> None:
        """Alters the entry only: statements such as `ALTER TABLE` would write to the Delta table."""
        with _translated():
            table = self._found(registration.name)
            if table is None:
                raise CatalogError(CATALOG_REFUSED, f"{registration.name} was dropped while it was registered")
            held = json.loads(table.schema().json())["fields"]
            schema = self._jvm.org.apache.spark.sql.types.DataType.fromJson(_schema(registration.info.columns, held))
            self._external.alterTable(_with(self._jvm, table, registration))
            self._external.alterTableDataSchema(registration.name.database, registration.name.table, schema)

    def _require_database(self, name: str) -> None:
        """Where Spark's default is a temporary folder, one has a location: never a folder of this lake's tables."""
        if name not in self._databases:
            place = literal(join(self._around.lake, STATE, "databases", name))
            at = f" LOCATION {place}" if self._on.conf.get("spark.gddl.scratch", "") else ""
            self._on.sql(f"CREATE DATABASE IF NOT EXISTS {quoted(name)}{at}")
            self._databases.add(name)

    def _found(self, name: EntryName) -> Any | None:
        """Spark's `CatalogTable`."""
        if not self._external.databaseExists(name.database) or not self._external.tableExists(
            name.database, name.table
        ):
            return None
        return self._external.getTable(name.database, name.table)

    @cached_property
    def _on(self) -> SparkSession:
        return self._around.spark()

    @property
    def _jvm(self) -> Any:
        return self._on._jvm  # noqa: SLF001 - Spark has no public way to an entry without its Delta table

    @property
    def _external(self) -> Any:
        return self._on._jsparkSession.sharedState().externalCatalog()  # noqa: SLF001 - as above


def _schema(columns: tuple[TableColumn, ...], held: list[dict[str, Any]]) -> str:
    """JSON of a Spark schema: the Delta table's, with comments that only the entry has."""
    comments = {field["name"]: field["metadata"].get("comment", "") for field in held}
    fields = [column.field(column.comment or comments.get(column.name, "")) for column in columns]
    return json.dumps({"type": "struct", "fields": fields})


def _with(jvm: Any, table: Any, registration: Registration) -> Any:
    """A copy of Spark's `CatalogTable` with the wanted location, comment and properties."""
    entry, properties = registration.entry, table.properties()
    for name, value in entry.properties.items():
        properties = properties.updated(name, value)
    uri = jvm.org.apache.spark.sql.catalyst.catalog.CatalogUtils.stringToURI(registration.info.location)
    changed = {"storage": _copy(table.storage(), locationUri=jvm.scala.Option.apply(uri)), "properties": properties}
    changed |= {"comment": jvm.scala.Option.apply(entry.comment)} if entry.comment else {}
    return _copy(table, **changed)


def _copy(value: Any, **changed: Any) -> Any:
    """Calls `copy` of a Scala case class; its default arguments are separate methods."""
    names = [value.productElementName(i) for i in range(value.productArity())]
    return value.copy(*(changed.get(name, value.productElement(i)) for i, name in enumerate(names)))


def _text(option: Any) -> str:
    return str(option.get()) if option.isDefined() and option.get() is not None else ""


def _mapping(properties: Any) -> dict[str, str]:
    pairs, result = properties.iterator(), {}
    while pairs.hasNext():
        pair = pairs.next()
        result[str(pair._1())] = str(pair._2())  # noqa: SLF001 - Scala's names
    return result


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (CatalogError, DeclinedError):  # a process without Spark hands the table over
        raise
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        first = next(
            (line for line in text.splitlines() if any(s in line for s in (*_DOWN, *_DENIED))), text.splitlines()[0]
        )
        message = f"Hive metastore: {first.strip()}"[:400]
        is_denied, is_down = (any(sign in text for sign in signs) for signs in (_DENIED, _DOWN))
        code = CATALOG_UNREACHABLE if is_down else CATALOG_DENIED if is_denied else CATALOG_REFUSED
        raise CatalogError(code, message) from error
