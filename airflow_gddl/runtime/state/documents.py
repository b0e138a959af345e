"""The objects that hold the state: small, in `lake/_gddl/state`, read without knowing any table's folder.

    <pipeline>.runs.json    a `TableRecord` for each of its tables, by the tasks that load
    <pipeline>.look.json    a `TablePoll` for each of its tables, by its sensor
    by-hand.runs.json       what `gddl run` did

Each has one writer as a rule; should two meet, a conditional put has the second one look again. Losing them costs
nothing but a reading of the runs' own records.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from airflow_gddl.contract.errors import RetriableError
from airflow_gddl.contract.layout import STATE, join
from airflow_gddl.runtime.state.facts import TableRecord
from airflow_gddl.runtime.state.judging import TablePoll
from airflow_gddl.stores import Storage

Kind = Literal["runs", "look"]
BY_HAND = "by-hand"
FORMAT = 1
_TRIES = 8
_FIELDS = tuple(field.name for field in fields(TableRecord))


@dataclass(frozen=True, kw_only=True)
class RunsDocument:
    """`written`: seconds since the epoch; `told`: table to the alerts that somebody was told of and that hold."""

    tables: Mapping[str, TableRecord] = field(default_factory=dict)
    written: float = 0.0
    told: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class LookDocument:
    """`looked`: seconds since the epoch."""

    looked: float
    tables: Mapping[str, TablePoll] = field(default_factory=dict)


def folder(lake: str) -> str:
    return join(lake, STATE, "state")


def place(lake: str, pipeline: str, kind: Kind) -> str:
    return join(folder(lake), f"{pipeline}.{kind}.json")


def encode_runs(document: RunsDocument) -> bytes:
    tables = {name: _record(record) for name, record in sorted(document.tables.items())}
    told = {name: list(codes) for name, codes in sorted(document.told.items())}
    return _bytes({"format": FORMAT, "written": document.written, "tables": tables, "told": told})


def decode_runs(data: bytes) -> RunsDocument:
    """
    Raises:
        ValueError: damaged, or of another format.
    """
    given = _parsed(data)
    try:
        tables = {str(name): _to_record(values) for name, values in given["tables"].items()}
        told = {str(name): tuple(codes) for name, codes in given["told"].items()}
        return RunsDocument(tables=tables, written=float(given["written"]), told=told)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"damaged: {error!r}") from error


def encode_look(document: LookDocument) -> bytes:
    tables = {
        name: [look.files, look.waiting, look.since, look.clear, list(look.held_by)]
        for name, look in sorted(document.tables.items())
    }
    return _bytes({"format": FORMAT, "looked": document.looked, "tables": tables})


def decode_look(data: bytes) -> LookDocument:
    """
    Raises:
        ValueError: damaged, or of another format.
    """
    given = _parsed(data)
    try:
        looked = float(given["looked"])
        tables = {
            str(name): TablePoll(
                looked=looked, files=files, waiting=waiting, since=since, clear=clear, held_by=tuple(held)
            )
            for name, (files, waiting, since, clear, held) in given["tables"].items()
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"damaged: {error!r}") from error
    return LookDocument(looked=looked, tables=tables)


def update_runs(
    store: Storage, path: str, change: Callable[[RunsDocument], RunsDocument], lost: Callable[[], RunsDocument]
) -> RunsDocument:
    """Change the object at `path`, whoever else does.

    Args:
        lost: what to start from when there is none, or a damaged one.

    Raises:
        RetriableError: `STORAGE_BUSY`, or `STATE_CONTENDED`.
    """
    for _ in range(_TRIES):
        tag: str | None = None
        try:
            data, tag = store.read_tagged(path)
            before = decode_runs(data)
        except (FileNotFoundError, ValueError):
            before = lost()
        after = change(before)
        if store.swap(path, encode_runs(after), tag):
            return after
    what = f"others kept changing it, {_TRIES} times"
    raise RetriableError("STATE_CONTENDED", what, where=path, remedy="nothing is lost; the next run writes it")


def _record(record: TableRecord) -> list[Any]:
    """Not through the codec, for speed: there are ten thousand of them."""
    return [getattr(record, name) for name in _FIELDS]


def _to_record(values: list[Any]) -> TableRecord:
    # Older lists are shorter: what came later has its default.
    record = TableRecord(**dict(zip(_FIELDS[: len(values)], values, strict=True)))
    _ = record.newest  # a run that can't be read must show here, where it is known to be damage
    return record


def _bytes(data: Mapping[str, Any]) -> bytes:
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()


def _parsed(data: bytes) -> dict[str, Any]:
    given = json.loads(data)
    if not isinstance(given, dict) or given.get("format") != FORMAT:
        raise ValueError("not a state document of this version")
    return given
