"""Sources that jobs read themselves: what both sides know of each, a module for each with its `SOURCE`.

The module of a source is found in this package by its name. What brings its rows into files is the package of that name
in `spark_jobs.rooms.sources`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from airflow_gddl.contract.codes import SOURCE_MISSING
from airflow_gddl.contract.errors import SpecProblem
from airflow_gddl.contract.extensions import DIALECTS, part
from airflow_gddl.contract.table_spec import TableSpec


@dataclass(frozen=True, kw_only=True)
class SourceDescriptor:
    """What both sides know of a source.

    Attributes:
        is_used: whether jobs read the row's changes by it.
        check_values: problems of single values of a row, also of defaults.
        reads: what a job gets rows from that no listing of files shows; empty: the files of a service.
        modules: optional ones that jobs import for it.
        read_once: what one reader alone may read, such as a slot, and the row's reader of it, the table or the source;
            empty: nothing.
        taken: the problem of a row of which another, named in the text, reads the same.
    """

    is_used: Callable[[TableSpec], bool]
    check_values: Callable[[TableSpec], Iterable[SpecProblem]]
    reads: Literal["", "log", "topic"] = ""
    modules: tuple[str, ...] = ()
    read_once: Callable[[TableSpec], tuple[str, str]] = lambda _spec: ("", "")
    taken: Callable[[TableSpec, str], SpecProblem] | None = None


def asked_by(spec: TableSpec) -> Mapping[str, SourceDescriptor]:
    """Sources of this installation to which the row's mode or one of its options belongs, by name."""
    dialect = DIALECTS.built_in.get(spec.dialect)
    options = dialect.sources if dialect else {}
    names = sorted({spec.mode, *(options[name] for name in spec.options if name in options)})
    return {name: one for name in names if (one := part(f"{__name__}.{name}", "SOURCE"))}


def used_by(spec: TableSpec) -> Mapping[str, SourceDescriptor]:
    """Those of `asked_by` that jobs read for the row: one, or none where a service writes the files."""
    return {name: one for name, one in asked_by(spec).items() if one.is_used(spec)}


def source_of(spec: TableSpec) -> str | None:
    """Name of the source that jobs read themselves; None: a service writes the files.

    A mode other than `changes` is the name of a source, which this installation may lack.
    """
    return next(iter(used_by(spec)), None) if spec.mode == TableSpec.mode else spec.mode


def value_problems(spec: TableSpec) -> Iterator[SpecProblem]:
    """What sources refuse; `SOURCE_MISSING` where this installation lacks the one that is the row's mode."""
    asked = asked_by(spec)
    if spec.mode != TableSpec.mode and spec.mode not in asked:
        message = f"this installation lacks what reads {spec.mode}"
        yield SpecProblem(SOURCE_MISSING, ("mode",), spec.mode, message, "install all of airflow-gddl, or drop mode")
    for one in asked.values():
        yield from one.check_values(spec)


def reads_of(spec: TableSpec) -> Literal["", "log", "topic"]:
    """What jobs read the row's changes from before they load files; empty: a service writes the files."""
    return next((one.reads for one in used_by(spec).values()), "")
