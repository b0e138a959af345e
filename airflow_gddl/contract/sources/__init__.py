"""Sources that jobs read themselves: what both sides know of each, a module for each with its `SOURCE`.

The module of a source is found in this package by its name. What brings its rows into files is the package of that name
in `spark_jobs.rooms.sources`.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, cast

from airflow_gddl.contract.codes import SOURCE_MISSING
from airflow_gddl.contract.errors import SpecProblem
from airflow_gddl.contract.table_spec import TableSpec


@dataclass(frozen=True, kw_only=True)
class SourceDescriptor:
    """What both sides know of a source.

    Attributes:
        is_used: whether jobs read the row's changes by it.
        check_values: problems of single values of a row, also of defaults.
        reads: what a job gets rows from that no listing of files shows; empty: the files of a service.
        modules: optional ones that jobs import for it.
        connections: options of the row that name a connection, each with what the connection holds.
        read_once: what one reader alone may read, such as a slot, and the row's reader of it, the table or the source;
            empty: nothing.
        taken: the problem of a row of which another, named in the text, reads the same.
    """

    is_used: Callable[[TableSpec], bool]
    check_values: Callable[[TableSpec], Iterable[SpecProblem]]
    reads: Literal["", "log", "topic"] = ""
    modules: tuple[str, ...] = ()
    connections: Mapping[str, str] = field(default_factory=dict)
    read_once: Callable[[TableSpec], tuple[str, str]] = lambda _spec: ("", "")
    taken: Callable[[TableSpec, str], SpecProblem] | None = None


@functools.cache
def sources() -> Mapping[str, SourceDescriptor]:
    """Sources of this installation by name, in the order of their names."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    found = (importlib.import_module(f"{__name__}.{name}").SOURCE for name in names)
    return dict(zip(names, (cast("SourceDescriptor", one) for one in found), strict=True))


def source_of(spec: TableSpec) -> str | None:
    """Name of the source that jobs read themselves; None: a service writes the files.

    A mode other than `changes` is the name of a source, which this installation may lack.
    """
    used = next((name for name, one in sources().items() if one.is_used(spec)), None)
    return spec.mode if used is None and spec.mode != TableSpec.mode else used


def missing_source(spec: TableSpec) -> Iterator[SpecProblem]:
    """`SOURCE_MISSING` where this installation lacks the source that is the row's mode."""
    if spec.mode != TableSpec.mode and spec.mode not in sources():
        message = f"this installation lacks what reads {spec.mode}"
        yield SpecProblem(SOURCE_MISSING, ("mode",), spec.mode, message, "install all of airflow-gddl, or drop mode")


def reads_of(spec: TableSpec) -> Literal["", "log", "topic"]:
    """What jobs read the row's changes from before they load files; empty: a service writes the files."""
    return next((one.reads for one in sources().values() if one.is_used(spec)), "")
