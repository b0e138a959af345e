"""Where a table stands now: pure, one meaning for page, command and alerts.

All that is known of a source that delivers files: what was applied, and what lay there when somebody looked. So a table
is up to date as of the last moment at which everything that had landed was applied, be it that a run took it, or that a
look found nothing new; a source that does not change leaves its table fresh as long as somebody looks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from airflow_gddl.metadata.topology.rows import TableRow
from airflow_gddl.runtime.state.facts import TableRecord
from airflow_gddl.runtime.state.moments import latest

State = Literal["failed", "late", "attention", "waiting", "new", "fresh", "disabled"]
STATES: tuple[State, ...] = ("failed", "late", "attention", "waiting", "new", "fresh", "disabled")
"""Most urgent first."""
NEEDS_ATTENTION = ("BATCH_LATE", "FOREIGN_COMMIT", "GENERATIONS_INFERRED", "SWEEP_HELD")
"""Warnings of a run that did what the rules say, and whose table a person should look at all the same."""


@dataclass(frozen=True, kw_only=True)
class TablePoll:
    """What a sensor saw of a table.

    Attributes:
        looked: seconds since the epoch.
        files: data files in the landing folder.
        waiting: how many of them were not loaded; at least 1 while any is new or changed, or the row is.
        since: first look that found something waiting; null when nothing does.
        clear: newest look that found nothing waiting; null: none did yet.
        held_by: tables that it waits for before it is loaded.
    """

    looked: float
    files: int = 0
    waiting: int = 0
    since: float | None = None
    clear: float | None = None
    held_by: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TableStatus:
    """Moments are seconds since the epoch, lengths seconds; null: never, or not known.

    Attributes:
        state: the most urgent of what holds.
        late: longer behind than the row's `freshness` allows, also while it fails.
        lag: now minus the newest source commit applied. A source without changes lets it grow.
        as_of: the last moment as of which the replica is known to hold all.
        behind: now minus that, which is what `freshness` is held against.
        waiting: files that landed and are not loaded.
        attention: those of the newest run's warnings that a person should look at.
    """

    state: State
    late: bool = False
    failed: bool = False
    lag: float | None = None
    behind: float | None = None
    as_of: float | None = None
    waiting: int = 0
    attention: tuple[str, ...] = ()


def judge(row: TableRow, record: TableRecord | None, look: TablePoll | None, now: float) -> TableStatus:
    """The state of a table at `now`; null: no run, or no look, is known."""
    known = record or TableRecord()
    waiting = _waits(known, look)
    as_of = latest(known.complete, known.commit, None if look is None else look.clear)
    behind = None if as_of is None else now - as_of
    late = row.enabled and row.freshness is not None and (behind is None or behind > row.freshness)
    failed = row.enabled and known.failed
    return TableStatus(
        state=_state(row, known, late=late, waiting=waiting),
        late=late,
        failed=failed,
        lag=None if known.commit is None else now - known.commit,
        behind=behind,
        as_of=as_of,
        waiting=look.waiting if look is not None and waiting else 0,
        attention=_attention(row, known),
    )


def _waits(record: TableRecord, look: TablePoll | None) -> bool:
    """Something had landed at the last look, and no run since has taken it."""
    return look is not None and look.since is not None and (record.complete or 0) <= look.looked


def _attention(row: TableRow, record: TableRecord) -> tuple[str, ...]:
    return tuple(sorted(record.warned.intersection(NEEDS_ATTENTION))) if row.enabled else ()


def _state(row: TableRow, record: TableRecord, *, late: bool, waiting: bool) -> State:
    if not row.enabled:
        return "disabled"
    if record.failed:
        return "failed"
    if late:
        return "late"
    if _attention(row, record):
        return "attention"
    if waiting:
        return "waiting"
    return "new" if record.succeeded is None else "fresh"
