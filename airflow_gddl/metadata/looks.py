"""Looks at sources between loads, rooms that a source asks for by a field of its name, and the rows that they add.

A metadata folder may be read-only where Airflow runs, so that the lake keeps such rows, in one object for each metadata
folder. It is read only where a source asks for a look. A row of the folder comes before one of the lake.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_gddl.contract.codec import of_format
from airflow_gddl.contract.errors import FieldPath, Note, RetriableError, SpecProblem
from airflow_gddl.contract.layout import STATE, join
from airflow_gddl.stores import Storage, open_store

FILE = "(lake).json"
"""Name of the rows of the lake, among those of files, in problems."""


@dataclass(frozen=True, kw_only=True)
class LookDescriptor:
    """A kind of look at sources, as a package declares it.

    Attributes:
        package: has the functions `look` and `decide`, see `operators.looking`.
        page: what its DAG says of itself.
    """

    package: str
    page: str


LOOKS: Mapping[str, LookDescriptor] = {
    "new_tables": LookDescriptor(
        package="airflow_gddl.onboarding.new_tables",
        page="Looks for tables without a metadata row at sources that ask for it (`new_tables` in gddl.yaml), "
        "and proposes or"
        " adds their rows. Trigger it with *Accept* or *Ignore* to decide on some.",
    ),
}
"""By the name of the field of a source that asks for it. The DAG `gddl_<name>` runs it."""


def missing(name: str, path: FieldPath) -> Iterator[SpecProblem]:
    """A problem where this installation lacks the room of a look."""
    package = LOOKS[name].package
    try:
        lacks = importlib.util.find_spec(package) is None
    except ModuleNotFoundError:  # a package above it
        lacks = True
    if lacks:
        message, remedy = f"this installation lacks {package}", f"install all of airflow-gddl, or remove {name}"
        yield SpecProblem("LOOK_MISSING", (*path, name), None, message, remedy)


@dataclass(frozen=True, kw_only=True)
class LakeRows:
    """Rows and notes that looks at sources keep in the lake.

    Attributes:
        rows: as a file of tables has them, each with its `source`.
        state: of the look that writes the object; nothing else reads it.
    """

    rows: tuple[Mapping[str, Any], ...] = ()
    notes: tuple[Note, ...] = ()
    state: Mapping[str, Any] = field(default_factory=dict)
    format: int = 1

    @property
    def text(self) -> bytes:
        """As a file of tables."""
        return json.dumps({"tables": list(self.rows)}).encode()


@dataclass(frozen=True, kw_only=True)
class StoredRows:
    """What was read. `tag`: of the object; null: there is none."""

    path: str
    tag: str | None = None
    content: LakeRows = field(default_factory=LakeRows)


def place_of(lake: str, prefix: str) -> str:
    """Path for metadata folders with this prefix of DAG ids."""
    return join(lake, STATE, "airflow", "rows", f"{prefix or 'default'}.json")


def read(path: str, environ: Mapping[str, str]) -> StoredRows:
    """Read the rows that the lake keeps.

    Raises:
        RetriableError: `LAKE_ROWS_DAMAGED`.
        GddlError: the store does not answer; see `Storage`.
    """
    return read_from(open_store(environ), path)


def read_from(store: Storage, path: str) -> StoredRows:
    """See `read`."""
    try:
        data, tag = store.read_tagged(path)
    except FileNotFoundError:
        return StoredRows(path=path)
    return StoredRows(path=path, tag=tag, content=parsed(data, path))


def parsed(data: bytes | None, path: str) -> LakeRows:
    """Parse the object with the rows that the lake keeps.

    Args:
        data: null: there is none.

    Raises:
        RetriableError: `LAKE_ROWS_DAMAGED`.
    """
    if data is None:
        return LakeRows()
    try:
        return of_format(LakeRows, data)
    except ValueError as error:
        remedy = "restore the object; if it is deleted, rows that were added need a row in the metadata folder"
        raise RetriableError("LAKE_ROWS_DAMAGED", f"it can't be read: {error}", where=path, remedy=remedy) from error


@dataclass(frozen=True, kw_only=True)
class Decisions:
    """What a person decides of tables by name, `source:schema.name`.

    Attributes:
        keys: of the only one that is accepted, instead of those that were found.
        append_only: accept without keys.
    """

    accept: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    append_only: bool = False
