"""Opens catalogs by kind; a catalog that does not answer is tried once per job, not once per table."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from airflow_gddl.contract import durations
from airflow_gddl.contract.catalogs import CATALOGS, CatalogDescriptor, CatalogSpec
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.spec import JobSpec
from spark_jobs.catalogs.base import CatalogError, CatalogPort


def session_settings(job: JobSpec) -> dict[str, str]:
    """Settings (`spark.…`) of the session for the catalogs that the job's tables name.

    A Spark application has one metastore: of several catalogs with settings, the first by name is used. One that
    can't be loaded is reported by the tables that it concerns.
    """
    named = {spec.catalog for spec in job.tables}
    for name, catalog in sorted(job.catalogs.items()):
        with suppress(FatalError):
            if name in named and (session := CATALOGS.get(catalog.kind).session) is not None:
                return dict(CATALOGS.load(session)(catalog))
    return {}


def hive_settings(catalog: CatalogSpec) -> dict[str, str]:
    found = {
        "spark.sql.catalogImplementation": "hive",
        "spark.hadoop.hive.metastore.client.socket.timeout": f"{durations.seconds(catalog.timeout)}s",
        "spark.hadoop.hive.metastore.connect.retries": "1",
        "spark.hadoop.hive.metastore.failure.retries": "0",
    }
    return found if catalog.uri is None else {**found, "spark.hadoop.hive.metastore.uris": catalog.uri}


if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
    """

    spark: Callable[[], SparkSession]
    environ: Mapping[str, str]
    lake: str = ""


def open_catalog(spec: CatalogSpec, around: CatalogContext) -> CatalogPort:
    """
    Raises:
        CatalogError: a package or a token is missing, or nothing brings a catalog of this kind.
    """
    found = descriptor_of(spec)
    with _refused():
        opened: OpenCatalog = CATALOGS.load(found.port)
    return opened(spec, around)


def descriptor_of(spec: CatalogSpec) -> CatalogDescriptor:
    """
    Raises:
        CatalogError: `CATALOG_KIND_UNKNOWN`, `CATALOG_KIND_BROKEN`.
    """
    with _refused():
        return CATALOGS.get(spec.kind)


@contextmanager
def _refused() -> Iterator[None]:
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
