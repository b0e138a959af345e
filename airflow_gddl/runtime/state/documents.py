"""The objects that hold the state: small, in `lake/_gddl/state`, read without knowing any table's folder.

    <pipeline>.runs.json    a `TableRecord` for each of its tables, by the tasks that load
    <pipeline>.poll.json    a `TablePoll` for each of its tables, and what its next poll begins with, by its sensor
    by-hand.runs.json       what `gddl run` did

Each normally has one writer; if two conflict, a conditional put makes the second one read again. If they are lost, runs
are read again from their records, and the next poll lists everything.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from airflow_gddl.contract.layout import STATE, join
from airflow_gddl.runtime.state.table_runs import RunFact, TableRecord
from airflow_gddl.runtime.state.table_status import RunningJob, TablePoll
from airflow_gddl.stores import Storage, read_if_there, update_object

Kind = Literal["runs", "poll"]
BY_HAND = "by-hand"
FORMAT = 1
# Values are stored in this order, so that new fields go last.
_FIELDS = tuple(field.name for field in fields(TableRecord))
_POLL_FIELDS = tuple(field.name for field in fields(TablePoll) if field.name != "polled")


@dataclass(frozen=True, kw_only=True)
class RunsDocument:
    """State of a pipeline's runs. Moments are seconds since the epoch.

    Attributes:
        notified: table to its sent alerts that have not ended.
        running: table to the job that works on it.
        seen: table that was never loaded to the moment at which `gddl_watch` first met it.
    """

    tables: Mapping[str, TableRecord] = field(default_factory=dict)
    written: float = 0.0
    notified: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    running: Mapping[str, RunningJob] = field(default_factory=dict)
    seen: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class PollDocument:
    """
    Attributes:
        polled: seconds since the epoch; 0: only selected tables were polled yet.
        next_poll: what the next poll begins with, as JSON that only the sensor parses; empty: nothing.
    """

    polled: float = 0.0
    tables: Mapping[str, TablePoll] = field(default_factory=dict)
    next_poll: str = ""


def folder(lake: str) -> str:
    return join(lake, STATE, "state")


def place(lake: str, pipeline: str, kind: Kind) -> str:
    return join(folder(lake), f"{pipeline}.{kind}.json")


def encode_runs(document: RunsDocument) -> bytes:
    # Not through the codec, for speed: there may be ten thousand.
    tables = {name: [getattr(record, field) for field in _FIELDS] for name, record in sorted(document.tables.items())}
    notified = dict(sorted(document.notified.items()))
    data = {"format": FORMAT, "written": document.written, "tables": tables, "notified": notified}
    running = {name: [job.since, job.until, job.run] for name, job in sorted(document.running.items())}
    return _bytes({**data, "running": running, "seen": dict(sorted(document.seen.items()))})


def decode_runs(data: bytes) -> RunsDocument:
    """
    Raises:
        ValueError: damaged, or of another format.
    """
    given = _parsed(data)
    try:
        tables = {str(name): _to_record(values) for name, values in given["tables"].items()}
        notified = {str(name): tuple(codes) for name, codes in given["notified"].items()}
        running = {
            str(name): RunningJob(float(since), float(until), str(run))
            for name, (since, until, run) in given["running"].items()
        }
        seen = {str(name): float(moment) for name, moment in given["seen"].items()}
        return RunsDocument(
            tables=tables, written=float(given["written"]), notified=notified, running=running, seen=seen
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"damaged: {error!r}") from error


def read_runs(store: Storage, lake: str, pipeline: str) -> RunsDocument:
    """Empty where there is none.

    Raises:
        RetriableError: `STORAGE_BUSY`.
        ValueError: it is damaged.
    """
    data = read_if_there(store, place(lake, pipeline, "runs"))
    return RunsDocument() if data is None else decode_runs(data)


def encode_poll(document: PollDocument) -> bytes:
    tables = {name: [getattr(poll, field) for field in _POLL_FIELDS] for name, poll in sorted(document.tables.items())}
    return _bytes({"format": FORMAT, "looked": document.polled, "tables": tables, "next_poll": document.next_poll})


def decode_poll(data: bytes) -> PollDocument:
    """
    Raises:
        ValueError: damaged, or of another format.
    """
    given = _parsed(data)
    try:
        polled = float(given["looked"])
        tables = {str(name): _to_poll(polled, values) for name, values in given["tables"].items()}
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"damaged: {error!r}") from error
    return PollDocument(polled=polled, tables=tables, next_poll=str(given["next_poll"]))


def update_runs(
    store: Storage, path: str, change: Callable[[RunsDocument], RunsDocument], lost: Callable[[], RunsDocument]
) -> RunsDocument:
    """Change the object at `path`, with concurrent writers.

    Args:
        lost: initial value when there is none, or a damaged one.

    Raises:
        RetriableError: `STORAGE_BUSY`, or `STATE_CONTENDED`.
    """
    return update_object(store, path, lambda data: change(_decoded(data) or lost()), encode_runs)


def _decoded(data: bytes | None) -> RunsDocument | None:
    """Null: there is none, or it is damaged."""
    try:
        return None if data is None else decode_runs(data)
    except ValueError:
        return None


def end_running(store: Storage, path: str, run: str) -> None:
    """Remove the jobs of an Airflow run that was stopped, so that other runs load their tables again.

    Raises:
        RetriableError: `STORAGE_BUSY`, or `STATE_CONTENDED`.
    """

    def ended(document: RunsDocument) -> RunsDocument:
        return replace(document, running={name: job for name, job in document.running.items() if job.run != run})

    if store.stat(path) is not None:
        update_runs(store, path, ended, RunsDocument)


def _to_record(values: list[Any]) -> TableRecord:
    # Older lists are shorter: missing values have their defaults. A later release may store more values.
    known = dict(zip(_FIELDS, values, strict=False))
    return TableRecord(**{**known, "newest": RunFact(*known["newest"]) if known["newest"] is not None else None})


def _to_poll(polled: float, values: list[Any]) -> TablePoll:
    # As in `_to_record`; a later release may store more values.
    known = dict(zip(_POLL_FIELDS, values, strict=False))
    return TablePoll(polled=polled, **{**known, "held_by": tuple(known["held_by"])})


def _bytes(data: Mapping[str, Any]) -> bytes:
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()


def _parsed(data: bytes) -> dict[str, Any]:
    given = json.loads(data)
    if not isinstance(given, dict) or given.get("format") != FORMAT:
        raise ValueError("not a state document of this version")
    return given
