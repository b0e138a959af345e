"""Port of a catalog, its data types, and catalogs opened by kind.

A catalog that does not answer is tried once per job, not once per table.
"""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from airflow_gddl.contract import durations
from airflow_gddl.contract.codes import CATALOG_DENIED, CATALOG_NAME_TAKEN, CATALOG_REFUSED, CATALOG_TABLE_DROPPED
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.extensions import CATALOGS, CatalogSpec, EntryName
from airflow_gddl.contract.layout import same_place
from airflow_gddl.contract.spec import JobSpec
from airflow_gddl.stores import Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, kw_only=True)
class TableColumn:
    """A column as the Delta log has it.

    Attributes:
        type: JSON of the Delta log: text, or a mapping for nested types.
        comment: empty: none.
    """

    name: str
    type: Any
    comment: str = ""
    nullable: bool = True

    def field(self, comment: str) -> dict[str, Any]:
        """The field of a Spark schema, with this comment."""
        metadata = {"comment": comment} if comment else {}
        return {"name": self.name, "type": self.type, "nullable": self.nullable, "metadata": metadata}


@dataclass(frozen=True, kw_only=True)
class DeltaTableInfo:
    """Metadata of a Delta table's newest version, or of its Iceberg table.

    Attributes:
        location: as in the layout, `s3://` or an absolute local path.
        comment: empty: none.
        properties: of an Iceberg table: what tells its versions apart.
    """

    location: str
    columns: tuple[TableColumn, ...]
    comment: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """An entry as one catalog holds it, so that wanted and registered entries compare by value.

    Attributes:
        columns: name to (type as the catalog writes it, comment), in order.
        comment: empty: none; a wanted entry without one leaves what the catalog has.
        properties: of a wanted entry those that are ours; of a registered one all.
        problem: why a registered entry can't be one of this lake's tables, e.g. a view; empty: it can.
        is_dangling: what a registered entry points to is gone, and with it all that it would show.
    """

    location: str
    columns: Mapping[str, tuple[str, str]]
    comment: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""
    is_dangling: bool = False


def plain_entry(
    info: DeltaTableInfo, properties: Mapping[str, str], type_text: Callable[[Any], str]
) -> Entry:  # fmt: skip
    """The entry of a catalog that takes names and comments as they are."""
    columns = {column.name: (type_text(column.type), column.comment) for column in info.columns}
    return Entry(location=same_place(info.location), columns=columns, comment=info.comment, properties=properties)


@dataclass(frozen=True, kw_only=True)
class Registration:
    """A table to be registered.

    Attributes:
        info: the Delta table.
        entry: `info` as this catalog holds it.
    """

    name: EntryName
    info: DeltaTableInfo
    entry: Entry


class CatalogError(Exception):
    """A request to a catalog failed; the data is not affected.

    Args:
        code: stable, listed in docs/codes.md.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message

    @property
    def is_down(self) -> bool:
        """Whether requests for other tables would fail too: the catalog does not answer, or can't be called."""
        return self.code not in (CATALOG_DENIED, CATALOG_REFUSED)


class CatalogPort(Protocol):
    """One catalog. Every method may raise CatalogError, and answers within the catalog's `timeout`.

    Attributes:
        alters: what `alter` can change of an entry, of `columns`, `comment`, `location`, `properties`.
    """

    alters: frozenset[str]

    def entry_of(self, info: DeltaTableInfo, properties: Mapping[str, str]) -> Entry:
        """The entry that a table should have; makes no request."""
        ...

    def read(self, name: EntryName) -> Entry | None:
        """The entry of this name; None where there is none."""
        ...

    def create(self, registration: Registration) -> None:
        """Create the entry, and its database if missing; an existing entry is left unchanged."""
        ...

    def alter(self, registration: Registration) -> None:
        """Alter an existing entry to match `wanted`, without dropping it: permissions stay."""
        ...


@dataclass(frozen=True, kw_only=True)
class Deviation:
    """One attribute in which an entry differs, as text; empty where it is absent.

    Attributes:
        aspect: `columns`, `comment`, `location` or `properties`.
    """

    aspect: str
    name: str
    registered: str = ""
    wanted: str = ""


@dataclass(frozen=True, kw_only=True)
class CatalogChange:
    """
    Attributes:
        differences: attributes to alter.
        unaltered: differences that this catalog can't alter.
        code, message: why the entry differs and is not altered; empty: it matches, or will.
    """

    action: Literal["none", "create", "alter", "report"] = "none"
    differences: tuple[Deviation, ...] = ()
    unaltered: tuple[Deviation, ...] = ()
    code: str = ""
    message: str = ""


def plan(
    wanted: Entry, registered: Entry | None, *, known_at: str | None, alters: Collection[str], restore: bool
) -> CatalogChange:
    """
    Args:
        known_at: the location at which this table was registered before; None: it never was.
        alters: see `CatalogPort`.
        restore: register a table again that was dropped in the catalog.
    """
    if registered is None:
        if known_at is None or restore:
            return CatalogChange(action="create")
        return reported(
            CATALOG_TABLE_DROPPED, "the table was dropped in the catalog; `gddl catalog sync` registers it again"
        )
    conflict = registered.problem
    if not conflict and registered.location not in (wanted.location, known_at):
        conflict = f"it points to {registered.location}, not to {wanted.location}"
    if conflict:
        message = f"another entry has this name: {conflict}; drop or rename it, or change the catalog's templates"
        return reported(CATALOG_NAME_TAKEN, message)
    if registered.location != wanted.location and "location" not in alters:
        message = f"it points to {registered.location}, and this catalog can't change that; drop it there, then "
        return reported(CATALOG_NAME_TAKEN, f"{message}`gddl catalog sync`")
    deviations = tuple(differences(wanted, registered))
    do = tuple(one for one in deviations if one.aspect in alters)
    unaltered = tuple(one for one in deviations if one.aspect not in alters)
    return CatalogChange(action="alter" if do else "none", differences=do, unaltered=unaltered)


def reported(code: str, message: str) -> CatalogChange:
    """An entry that is left as it is, and why."""
    return CatalogChange(action="report", code=code, message=message)


def differences(wanted: Entry, registered: Entry) -> Iterator[Deviation]:
    """All differences, except comments and properties that only the registered entry has."""
    compared = [
        ("location", "", registered.location, wanted.location),
        ("comment", "", registered.comment, wanted.comment or registered.comment),
        *_columns(wanted, registered),
        *(("properties", name, registered.properties.get(name, ""), v) for name, v in wanted.properties.items()),
    ]
    for aspect, name, held, value in compared:
        if held != value or aspect == "columns":
            yield Deviation(aspect=aspect, name=name, registered=held, wanted=value)


def _columns(wanted: Entry, registered: Entry) -> list[tuple[str, str, str, str]]:
    """What differs of the columns, as `differences` compares it."""
    found = []
    for name, (kind, comment) in wanted.columns.items():
        held_kind, held_comment = registered.columns.get(name, ("", ""))
        if held_kind != kind:
            found.append(("columns", name, held_kind, kind))
        elif comment and held_comment != comment:
            found.append(("columns", name, held_comment, comment))
    found += [("columns", name, held[0], "") for name, held in registered.columns.items() if name not in wanted.columns]
    if not found and list(wanted.columns) != list(registered.columns):
        found.append(("columns", "(order)", ", ".join(registered.columns), ", ".join(wanted.columns)))
    return found


def session_settings(job: JobSpec) -> dict[str, str]:
    """Settings (`spark.…`) of the session for the catalogs that the job's tables name.

    A Spark application has one metastore: of several, the first by name is used.
    """
    named = {spec.catalog for spec in job.tables}
    hive = (one for name, one in sorted(job.catalogs.items()) if name in named and one.kind == "hive")
    if (catalog := next(hive, None)) is None:
        return {}
    settings = {
        "spark.sql.catalogImplementation": "hive",
        "spark.hadoop.hive.metastore.client.socket.timeout": f"{durations.seconds(catalog.timeout)}s",
        "spark.hadoop.hive.metastore.connect.retries": "1",
        "spark.hadoop.hive.metastore.failure.retries": "0",
    }
    return settings if catalog.uri is None else {**settings, "spark.hadoop.hive.metastore.uris": catalog.uri}


T = TypeVar("T")
RETRY_SECONDS = 300.0
"""Seconds until a continuous job retries a catalog that did not answer."""


@dataclass(frozen=True, kw_only=True)
class CatalogContext:
    """The parts of a job that catalog adapters use.

    Attributes:
        spark: a session; the first call starts Spark.
        environ: where tokens are found by their names.
        lake: the root of the tables.
        storage: of the lake.
    """

    spark: Callable[[], SparkSession]
    environ: Mapping[str, str]
    storage: Storage
    lake: str


def open_catalog(spec: CatalogSpec, around: CatalogContext) -> CatalogPort:
    """
    Raises:
        CatalogError: a package or a token is missing.
    """
    module, _, function = CATALOGS[spec.kind].port.partition(":")
    port: CatalogPort = getattr(importlib.import_module(module), function)(spec, around)
    return port


@contextmanager
def refused() -> Iterator[None]:
    """A fatal error, e.g. of a missing package, is the catalog's: no table waits for it.

    Raises:
        CatalogError: with the error's code.
    """
    try:
        yield
    except FatalError as error:
        raise CatalogError(error.code, f"{error.what}; {error.remedy}") from error


@dataclass
class CatalogAccess:
    """A catalog that is opened when it is first needed.

    Until the first answer, one table at a time calls it; a catalog that is down is not called for a while.
    """

    spec: CatalogSpec
    around: CatalogContext
    _port: CatalogPort | None = None
    _fault: CatalogError | None = None
    _again: float = 0.0
    _answers: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def call(self, work: Callable[[CatalogPort], T]) -> T:
        """
        Raises:
            CatalogError: the catalog refused, is down, or was found to be down before.
        """
        if self._answers:
            return self._tried(work)
        with self._lock:
            if self._fault is not None and time.monotonic() < self._again:
                raise self._fault
            return self._tried(work)

    def _tried(self, work: Callable[[CatalogPort], T]) -> T:
        try:
            self._port = self._port or open_catalog(self.spec, self.around)
            done = work(self._port)
        except CatalogError as error:
            self._answers = not error.is_down
            if error.is_down:
                self._fault, self._again = error, time.monotonic() + RETRY_SECONDS
            raise
        self._answers, self._fault = True, None
        return done
