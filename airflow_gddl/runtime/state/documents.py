"""The objects that hold the state: small, in `lake/_gddl/state`, read without knowing any table's folder.

    <pipeline>.runs.json    a `TableRecord` for each of its tables, by the tasks that load
    <pipeline>.poll.json    a `TablePoll` for each of its tables, and what its next poll begins with, by its sensor
    by-hand.runs.json       what `gddl run` did

Each normally has one writer; if two conflict, a conditional put makes the second one read again. If they are lost, runs
are read again from their records, and the next poll lists everything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar

import msgspec

from airflow_gddl.contract.layout import STATE, join
from airflow_gddl.runtime.state.table_runs import TableRecord
from airflow_gddl.runtime.state.table_status import RunningJob, TablePoll
from airflow_gddl.stores import Storage, read_if_there, update_object

Kind = Literal["runs", "poll"]
BY_HAND = "by-hand"
FORMAT = 2


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
    format: int = FORMAT


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
    format: int = FORMAT


D = TypeVar("D", RunsDocument, PollDocument)


def folder(lake: str) -> str:
    return join(lake, STATE, "state")


def place(lake: str, pipeline: str, kind: Kind) -> str:
    return join(folder(lake), f"{pipeline}.{kind}.json")


def encode(document: RunsDocument | PollDocument) -> bytes:
    return msgspec.json.encode(document, order="deterministic")


def decode(kind: type[D], data: bytes) -> D:
    """Fields unknown here are ignored.

    Raises:
        ValueError: damaged, or of another format.
    """
    document = msgspec.json.decode(data, type=kind)
    if document.format != FORMAT:
        raise ValueError("not a state document of this version")
    return document


def decode_or_none(kind: type[D], data: bytes | None) -> D | None:
    """None: there is none, or it is damaged."""
    try:
        return None if data is None else decode(kind, data)
    except ValueError:
        return None


def read_runs(store: Storage, lake: str, pipeline: str) -> RunsDocument:
    """Empty where there is none.

    Raises:
        RetriableError: `STORAGE_BUSY`.
        ValueError: it is damaged.
    """
    data = read_if_there(store, place(lake, pipeline, "runs"))
    return RunsDocument() if data is None else decode(RunsDocument, data)


def update_runs(
    store: Storage, path: str, change: Callable[[RunsDocument], RunsDocument], lost: Callable[[], RunsDocument]
) -> RunsDocument:
    """Change the object at `path`, with concurrent writers.

    Args:
        lost: initial value when there is none, or a damaged one.

    Raises:
        RetriableError: `STORAGE_BUSY`, or `STATE_CONTENDED`.
    """
    return update_object(store, path, lambda data: change(decode_or_none(RunsDocument, data) or lost()), encode)


def end_running(store: Storage, path: str, run: str) -> None:
    """Remove the jobs of an Airflow run that was stopped, so that other runs load their tables again.

    Raises:
        RetriableError: `STORAGE_BUSY`, or `STATE_CONTENDED`.
    """

    def ended(document: RunsDocument) -> RunsDocument:
        return replace(document, running={name: job for name, job in document.running.items() if job.run != run})

    if store.stat(path) is not None:
        update_runs(store, path, ended, RunsDocument)
