"""Current state of a table, for page, command and alerts; pure.

It follows from the applied files and the polls of the landing folder. A table is up to date as of the last moment at
which everything that had landed was applied: a run loaded it, or a poll found nothing new. While something that has
landed waits, for a user or since it can't be read, that is at most the moment at which it landed. A source that does
not change keeps its table fresh as long as it is polled, unless its heartbeat shows that its log stands still.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from airflow_gddl.contract import codes
from airflow_gddl.contract.codes import (
    FILE_UNREADABLE,
    FOLDER_MISSING,
    MAINTENANCE_DUE,
    QUARANTINE_RATE,
    SOURCE_DIFFERENT,
    SOURCE_STOPPED,
    VERIFY_DIFFERENT,
    WINDOW_DIFFERENT,
)
from airflow_gddl.contract.completeness import HeartbeatFacts, complete_until, is_stopped
from airflow_gddl.contract.documentation import of_code
from airflow_gddl.contract.layout import FEW_ROWS
from airflow_gddl.contract.result import JobResult
from airflow_gddl.runtime.state.table_runs import TableRecord, latest
from airflow_gddl.runtime.table_directory import TableRow

State = Literal[
    "broken_row", "failed", "unknown", "late", "attention", "running", "waiting", "new", "fresh", "disabled"
]
STATES: tuple[State, ...] = get_args(State)
"""Most urgent first; displayed with blanks for `_`."""
_OF_NO_RUN = (
    *(FOLDER_MISSING, VERIFY_DIFFERENT, SOURCE_DIFFERENT, QUARANTINE_RATE, MAINTENANCE_DUE, WINDOW_DIFFERENT),
    SOURCE_STOPPED,
)
NEEDS_ATTENTION = tuple(sorted(codes.ENDINGS.keys() - {*_OF_NO_RUN}))
"""Warnings of a successful run that need a user's attention."""
MOST_QUARANTINED = 0.01
"""Default of `alert_quarantine_rate`."""
MAINTENANCE_RUNS, MAINTENANCE_SECONDS = 100, 14 * 86_400.0
"""A large table needs maintenance after so many runs with changes and so much time since the last one."""


@dataclass(frozen=True, kw_only=True)
class TableStatus:
    """A table with what is known of it, and what that means now. Moments are seconds since the epoch, lengths seconds;
    None: never, or not known.

    Attributes:
        record: what is remembered of it; empty before any run and poll.
        state: the most urgent of what holds.
        last_state: for an invalid row, the state from its runs and polls; else as `state`.
        late: exceeds the row's `freshness`, also while it fails; never while its first load is due. Or its source's log
            stands still for longer than that, by its heartbeat.
        running: start of the job that loads it now.
        lag: now minus the newest source commit applied. A source without changes lets it grow.
        as_of: the last moment as of which the replica is complete; None: it was never loaded.
        behind: now minus `as_of`; compared with `freshness`.
        complete_until: commit time of the source until which everything is known to have come.
        waiting: landed files that are not loaded.
        attention: warnings of the newest run, and of the last poll, that need a user's attention; what is in
            quarantine, and rows that are stale by it, as long as they are; maintenance that is due; a log that stands
            still; a landing folder that is missing; and differences and windows in which changes are missing, until a
            later verification of that kind finds none.
    """

    row: TableRow
    record: TableRecord
    state: State
    last_state: State
    late: bool = False
    failed: bool = False
    running: float | None = None
    lag: float | None = None
    behind: float | None = None
    as_of: float | None = None
    complete_until: float | None = None
    waiting: int = 0
    attention: tuple[str, ...] = ()


def judge(
    row: TableRow,
    record: TableRecord,
    now: float,
    heartbeat: HeartbeatFacts | None = None,
    *,
    unread: bool = False,
    quarantine_rate: float = MOST_QUARANTINED,
) -> TableStatus:
    """The state of a table at `now`.

    Args:
        record: what is remembered of it; empty before any run and poll.
        heartbeat: of the table's source; None: it has none, or nothing is known of it.
        unread: what is stored of its runs can't be read, so that nothing is known where `record` is empty.
        quarantine_rate: the share of its rows, or of the newest run's, that may be in quarantine, 0 to 1.
    """
    poll = record.poll
    # The last poll found pending files, and no run has loaded them since.
    waiting = poll is not None and poll.since is not None and (record.complete or 0) <= poll.polled
    as_of = None if record.succeeded is None else _applied(record, record.commit, _clear(record))
    behind = None if as_of is None else now - as_of
    overdue = row.enabled and row.freshness is not None and (behind is None or behind > row.freshness)
    stopped = row.enabled and record.succeeded is not None and is_stopped(heartbeat, row.freshness, record.commit)
    late = stopped or (overdue and not _is_in_grace(row, record, now))
    running = record.running.since if record.running is not None and record.running.until > now else None
    attention = _attention(record, now, quarantine_rate, stopped=stopped) if row.enabled else ()
    state = _state(row, record, late=late, attention=bool(attention), waiting=waiting, running=running is not None)
    state = "unknown" if row.enabled and unread and record.started is None else state
    return TableStatus(
        row=row,
        record=record,
        state="broken_row" if row.problems else state,
        last_state=state,
        late=late,
        failed=row.enabled and record.failed,
        running=running if row.enabled else None,
        lag=None if record.commit is None else now - record.commit,
        behind=behind,
        as_of=as_of,
        complete_until=complete_until(
            record.commit, as_of, heartbeat, verified=record.verified, missing_from=record.missing_from
        ),
        waiting=poll.waiting if poll is not None and waiting else 0,
        attention=attention,
    )


def heartbeat_of(record: TableRecord) -> HeartbeatFacts:
    """What the runs and the poll of a heartbeat table say."""
    return HeartbeatFacts(commit=record.commit, loaded=record.succeeded, as_of=_applied(record, _clear(record)))


def _applied(record: TableRecord, *moments: float | None) -> float | None:
    """The last of these moments, and of the newest complete run, at which all that had landed was applied."""
    last = latest(record.complete, *moments)
    return last if last is None or record.waiting_since is None else min(last, record.waiting_since)


def text_of_code(one: TableStatus, code: str) -> str:
    """What a code of attention means for a table, and what to do; a missing folder may have been named otherwise."""
    named = one.record.lost if code == FOLDER_MISSING and one.record.holds(FOLDER_MISSING) else ""
    return named or what_to_do(code, one.row.table)


def what_to_do(code: str, table: str) -> str:
    """What a code means for a table, and what to do about it."""
    return f"{codes.of(code).meaning}; {of_code(code, table)}"


def _is_lost(record: TableRecord) -> bool:
    """Whether the newest of runs and polls missed the landing folder, whether or not the table was ever loaded."""
    looked = latest(record.detected.get(FOLDER_MISSING), record.settled.get(FOLDER_MISSING))
    if record.poll is None or (looked is not None and looked > record.poll.polled):
        return record.holds(FOLDER_MISSING)
    return record.poll.missing


def _clear(record: TableRecord) -> float | None:
    """The last poll that found nothing to load in a folder that was there."""
    return None if record.poll is None else record.poll.clear


def _is_in_grace(row: TableRow, record: TableRecord, now: float) -> bool:
    """Whether nothing was loaded yet, and the first load is not overdue.

    The period begins when the table is first seen. Where that was not stored, as without Airflow, the newest run or
    poll is used; a table without any record is new.
    """
    if record.succeeded is not None:
        return False
    known_since = record.seen
    if known_since is None:
        known_since = latest(record.complete, record.started, None if record.poll is None else record.poll.polled)
    return known_since is None or now - known_since <= (row.grace or 0)


def needs_maintenance(record: TableRecord, now: float) -> bool:
    """Whether maintenance of a table that is too large to tidy itself has not run for long."""
    since = latest(record.maintained, record.changed_since)
    if record.rows is None or record.rows < FEW_ROWS or record.changed_since is None or since is None:
        return False
    return record.changing_runs >= MAINTENANCE_RUNS and now - since > MAINTENANCE_SECONDS


def attention_of(result: JobResult, now: float, quarantine_rate: float) -> tuple[str, ...]:
    """Codes for which a result by itself lets its table need attention, whatever earlier runs found."""
    return _attention(TableRecord().after(result, now), now, quarantine_rate, stopped=False)


def _attention(record: TableRecord, now: float, quarantine_rate: float, *, stopped: bool) -> tuple[str, ...]:
    codes = {code for code in NEEDS_ATTENTION if code != FILE_UNREADABLE and record.holds(code)}
    holds = {
        FOLDER_MISSING: _is_lost(record),
        **{code: record.holds(code) for code in (VERIFY_DIFFERENT, SOURCE_DIFFERENT)},
        FILE_UNREADABLE: record.counted_files > 0,
        QUARANTINE_RATE: has_many_quarantined(record, quarantine_rate),
        MAINTENANCE_DUE: needs_maintenance(record, now),
        SOURCE_STOPPED: stopped,
        WINDOW_DIFFERENT: record.missing_from is not None,
    }
    codes |= {code for code, is_so in holds.items() if is_so}
    return tuple(sorted(codes))


def has_many_quarantined(record: TableRecord, rate: float) -> bool:
    """Whether more than this share of the newest run's rows was quarantined, or of all its rows still is."""
    newest, rows = record.newest, max(record.quarantined - record.counted_files, 0)
    if newest is not None and newest.rows_read and newest.quarantined / newest.rows_read > rate:
        return rows > 0
    return record.rows is not None and rows > rate * (record.rows + rows)


def _state(row: TableRow, record: TableRecord, *, late: bool, attention: bool, waiting: bool, running: bool) -> State:
    if not row.enabled:
        return "disabled"
    holds: tuple[tuple[State, bool], ...] = (
        ("failed", record.failed),
        ("late", late),
        ("attention", attention),
        ("running", running),
        ("waiting", waiting),
        ("new", record.succeeded is None),
    )
    return next((state for state, is_so in holds if is_so), "fresh")
