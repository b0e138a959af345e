"""What a reader gets: files in the order of their arrival, what its user knows of the task, and the right table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tests.conformance.history import Column, Key, Row


@dataclass(frozen=True)
class File:
    """Attributes:
    path: below the folder of the table.
    modified: when the tool wrote it; None: as the reader gets it.
    """

    path: str
    data: bytes
    modified: datetime | None = None


@dataclass(frozen=True)
class Arrival:
    """Files that come before a run of the reader.

    Attributes:
        emptied: the tool removes all files of the table first.
        in_files: names of the source's columns and of those that the tool adds, in the order of the files; the user of
            the reader knows it. The column of the operation is not among them.
    """

    files: tuple[File, ...]
    emptied: bool = False
    in_files: tuple[str, ...] = ()


@dataclass(frozen=True)
class Either:
    """A cell of which the files don't tell the value: any of these is right."""

    values: tuple[Any, ...]


@dataclass(frozen=True)
class Uncertain:
    """What can't be known from the files.

    Attributes:
        keys: rows that it concerns; None: all.
        codes: of refusals and warnings, any of which is a right answer.
        why: the fact, with its source.
    """

    keys: frozenset[Key] | None
    codes: frozenset[str]
    why: str


@dataclass(frozen=True)
class Delivery:
    """Attributes:
    writer: the tool: `dms`, `debezium_postgres` and so on.
    settings: those of the tool that the user of the reader knows, by the tool's names.
    keys: columns of the key in the source.
    columns: of the source's table in the end, with the kinds that their values have in the files.
    right: rows by key. A cell may be an `Either`.
    maybe: further rows that the files don't tell about; they may be there.
    table: name of the source's table, where the files tell it.
    """

    writer: str
    settings: Mapping[str, Any]
    keys: tuple[str, ...]
    columns: tuple[Column, ...]
    arrivals: tuple[Arrival, ...]
    right: Mapping[Key, Row]
    maybe: Mapping[Key, Row] = field(default_factory=dict)
    uncertain: tuple[Uncertain, ...] = ()
    table: str = "t"


@dataclass(frozen=True)
class Outcome:
    """What a reader made of a delivery.

    Attributes:
        rows: of its table; None: there is none.
        said: codes of warnings and of rows and files that it put aside, and how often.
        refused: code of the error with which the last run ended; empty: none.
        put_aside: rows and files in quarantine in the end.
    """

    rows: tuple[Row, ...] | None
    said: Mapping[str, int] = field(default_factory=dict)
    refused: str = ""
    put_aside: int = 0
