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
from airflow_gddl.contract.codes import CATALOG_NAME_TAKEN, CATALOG_TABLE_DROPPED
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.extensions import CATALOGS, CatalogSpec, EntryName
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
        is_down: requests for other tables would fail too: the catalog does not answer, or can't be called.
    """

    def __init__(self, code: str, message: str, *, is_down: bool = False) -> None:
        super().__init__(message)
        self.code, self.message, self.is_down = code, message, is_down


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


Action = Literal["none", "create", "alter", "report"]


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

    action: Action = "none"
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
        code = CATALOG_TABLE_DROPPED
        message = "the table was dropped in the catalog; `gddl catalog sync` registers it again"
        return CatalogChange(action="report", code=code, message=message)
    conflict = registered.problem
    if not conflict and registered.location not in (wanted.location, known_at):
        conflict = f"it points to {registered.location}, not to {wanted.location}"
    if conflict:
        code = CATALOG_NAME_TAKEN
        message = f"another entry has this name: {conflict}; drop or rename it, or change the catalog's templates"
        return CatalogChange(action="report", code=code, message=message)
    if registered.location != wanted.location and "location" not in alters:
        message = f"it points to {registered.location}, and this catalog can't change that; drop it there, then "
        return CatalogChange(action="report", code=CATALOG_NAME_TAKEN, message=f"{message}`gddl catalog sync`")
    deviations = differences(wanted, registered)
    do = tuple(one for one in deviations if one.aspect in alters)
    unaltered = tuple(one for one in deviations if one.aspect not in alters)
    return CatalogChange(action="alter" if do else "none", differences=do, unaltered=unaltered)


def differences(wanted: Entry, registered: Entry) -> tuple[Deviation, ...]:
    """All differences, except comments and properties that only the registered entry has."""
    deviations = []
    if wanted.location != registered.location:
        deviations.append(Deviation(aspect="location", name="", registered=registered.location, wanted=wanted.location))
    if wanted.comment and wanted.comment != registered.comment:
        deviations.append(Deviation(aspect="comment", name="", registered=registered.comment, wanted=wanted.comment))
    deviations += _columns(wanted, registered)
    for name, value in wanted.properties.items():
        if (held := registered.properties.get(name, "")) != value:
            deviations.append(Deviation(aspect="properties", name=name, registered=held, wanted=value))
    return tuple(deviations)


def _columns(wanted: Entry, registered: Entry) -> list[Deviation]:
    deviations = []
    for name, (kind, comment) in wanted.columns.items():
        held_kind, held_comment = registered.columns.get(name, ("", ""))
        if held_kind != kind:
            deviations.append(Deviation(aspect="columns", name=name, registered=held_kind, wanted=kind))
        elif comment and held_comment != comment:
            deviations.append(Deviation(aspect="columns", name=name, registered=held_comment, wanted=comment))
    dropped = [name for name in registered.columns if name not in wanted.columns]
    deviations += [Deviation(aspect="columns", name=name, registered=registered.columns[name][0]) for name in dropped]
    if not deviations and list(wanted.columns) != list(registered.columns):
        order = ", ".join(registered.columns), ", ".join(wanted.columns)
        deviations.append(Deviation(aspect="columns", name="(order)", registered=order[0], wanted=order[1]))
    return deviations


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
    lake: str = ""


def open_catalog(spec: CatalogSpec, around: CatalogContext) -> CatalogPort:
    """
    Raises:
        CatalogError: a package or a token is missing.
    """
    module, _, function = CATALOGS[spec.kind].port.partition(":")
    opened: OpenCatalog = getattr(importlib.import_module(module), function)
    return opened(spec, around)


@contextmanager
def refused() -> Iterator[None]:
    """A fatal error, e.g. of a missing package, is the catalog's: no table waits for it.

    Raises:
        CatalogError: with the error's code.
    """
    try:
        yield
    except FatalError as error:
        raise CatalogError(error.code, f"{error.what}; {error.remedy}", is_down=True) from error


OpenCatalog = Callable[[CatalogSpec, CatalogContext], CatalogPort]


@dataclass
class CatalogAccess:
    """A catalog that is opened when it is first needed.

    Until the first answer, one table at a time calls it; a catalog that is down is not called for a while.
    """

    spec: CatalogSpec
    around: CatalogContext
    opened: OpenCatalog = open_catalog
    now: Callable[[], float] = time.monotonic
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
        if self._answers and self._port is not None:
            return self._tried(work, self._port)
        with self._lock:
            if self._fault is not None and self.now() < self._again:
                raise self._fault
            try:
                self._port = self._port or self.opened(self.spec, self.around)
            except CatalogError as error:
                raise self._noted(error) from error
            return self._tried(work, self._port)

    def _tried(self, work: Callable[[CatalogPort], T], port: CatalogPort) -> T:
        try:
            done = work(port)
        except CatalogError as error:
            raise self._noted(error) from error
        self._answers, self._fault = True, None
        return done

    def _noted(self, error: CatalogError) -> CatalogError:
        self._answers = not error.is_down
        if error.is_down:
            self._fault, self._again = error, self.now() + RETRY_SECONDS
        return error
