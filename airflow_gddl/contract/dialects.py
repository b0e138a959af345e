"""Registry of dialects: writers of landing files, with their options and readers.

Used by both sides: the Airflow side checks a row's options, the job loads the reader. Classes are named,
not imported, so that neither side loads what it doesn't need. Other packages add theirs by an entry point of the group
`airflow_gddl.dialects`: its name is the dialect's, its value `module:attribute` of a `Registered` (docs/extending.md).
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

from airflow_gddl.contract.errors import FatalError

GROUP = "airflow_gddl.dialects"


@dataclass(frozen=True)
class Registered:
    """A dialect by the names of its two classes, `module:Class`.

    Attributes:
        options: class of the row's `options`, a frozen dataclass with defaults, among its fields `types`, `lookback`,
            `missing_folder` and `verify_connection`, as `DmsOptions` has them. Loaded on both sides.
        reading: the subclass of `spark_jobs.dialects.base.Dialect`; loaded only by the job.
    """

    options: str
    reading: str


BUILT_IN: Mapping[str, Registered] = {
    "dms": Registered("airflow_gddl.contract.dms:DmsOptions", "spark_jobs.dialects.dms:DmsDialect"),
    "debezium": Registered(
        "airflow_gddl.contract.debezium:DebeziumOptions", "spark_jobs.dialects.debezium:DebeziumDialect"
    ),
}


def names() -> tuple[str, ...]:
    """Names that a row's `dialect` may have, built-in ones first."""
    return (*BUILT_IN, *sorted(set(_entry_points()) - set(BUILT_IN)))


def registered(name: str) -> Registered:
    """
    Raises:
        FatalError: `DIALECT_UNKNOWN`, `DIALECT_BROKEN`.
    """
    if name in BUILT_IN:
        return BUILT_IN[name]
    found = _entry_points().get(name)
    if found is None:
        raise FatalError(
            "DIALECT_UNKNOWN",
            f"no dialect {name!r}; there are {', '.join(names())}",
            remedy="correct `dialect`, or install the package that brings it where the job runs",
        )
    with _told(found.value):
        return cast("Registered", found.load())


def options_class(name: str) -> type[Any]:
    """The class of a dialect's options.

    Raises:
        FatalError: `DIALECT_UNKNOWN`, `DIALECT_BROKEN`.
    """
    return cast("type[Any]", load(registered(name).options))


def load(reference: str) -> Any:
    """Load `module:attribute`.

    Raises:
        FatalError: `DIALECT_BROKEN`.
    """
    module, _, attribute = reference.partition(":")
    with _told(reference):
        return getattr(importlib.import_module(module), attribute)


@contextmanager
def _told(reference: str) -> Iterator[None]:
    """Any error while importing another package's code is reported as `DIALECT_BROKEN`."""
    try:
        yield
    except Exception as error:
        raise FatalError(
            "DIALECT_BROKEN",
            f"the dialect's {reference} can't be loaded: {type(error).__name__}: {error}",
            remedy="fix or reinstall the package that brings it, with what it needs",
        ) from error


def forget() -> None:
    """Discover newly installed packages."""
    _entry_points.cache_clear()


@functools.cache
def _entry_points() -> Mapping[str, importlib.metadata.EntryPoint]:
    return {found.name: found for found in importlib.metadata.entry_points(group=GROUP)}
