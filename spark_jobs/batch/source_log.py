"""Sources with a log: changes that come before known ones in it, though they were committed later."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from airflow_gddl.contract.durations import moment_of
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.spec import TableSpec
from spark_jobs.ledger.ledger import Ledger
from spark_jobs.plan.planned_batch import (
    TableState,
)
from spark_jobs.plan.sequence import (
    LONGEST_TRANSACTION,
    log_began_of,
    log_place,
    longest_transaction,
)
from spark_jobs.plan.sharding import refreshed
from spark_jobs.rules.figures import Figures, FileFigures, LogRestart


def require_one_log(spec: TableSpec, figures: Figures, state: TableState) -> None:
    """Refuse changes that were committed after all known ones, but precede them in the source's log.

    A file that came late was committed earlier too, and so were changes that are captured again. Between files all of a
    file is compared with all before it, inside a file each change with those before it.

    Raises:
        FatalError: `SOURCE_LOG_RESTARTED`.
    """
    timed = [(path, f) for path, f in figures.files.items() if f.max_sequence and f.min_commit_ts and f.max_commit_ts]
    known, newest = log_place(state.max_sequence), state.log_time or state.max_commit_ts
    for path, file in sorted(timed, key=lambda entry: entry[1].min_commit_ts or ""):
        place, since, inside = log_place(file.max_sequence), file.min_commit_ts or "", figures.restarts.get(path)
        if known and newest and place and place < known and _are_later(file, newest, known):
            raise _restarted(spec, path, LogRestart(place=place, known=known, since=since, until=since, newest=newest))
        if inside and (newest is None or _is_later(inside.until, newest, longest_transaction(inside.known))):
            since = inside.since if newest is None or inside.since > newest else inside.until
            raise _restarted(spec, path, replace(inside, since=since, newest=max(inside.newest, newest or "")))
        newest = newest if known and place and place < known else max(newest or "", file.max_commit_ts or "")
        known = max(known or "", place or "")


def log_time(figures: Figures, state: TableState) -> str | None:
    """Latest commit time of changes at the end of the source's log or behind it; null while there is none."""
    known, newest = log_place(state.max_sequence), state.log_time or state.max_commit_ts
    ends = [f for f in figures.files.values() if f.max_commit_ts and (log_place(f.max_sequence) or "") >= (known or "")]
    return max((t for t in (newest, *(f.max_commit_ts for f in ends)) if t is not None), default=None)


def _restarted(spec: TableSpec, path: str, restart: LogRestart) -> FatalError:
    again = refreshed(spec, "run a rebuild")
    return FatalError(
        "SOURCE_LOG_RESTARTED",
        f"{spec.table}: changes committed from {restart.since} on are at {restart.place} in the source's log, before "
        f"{restart.known}, which was committed by {restart.newest}: the log was reset; nothing was written",
        where=path,
        remedy=f"set options.log_began to the time of the reset, {restart.since} at the latest, e.g. "
        f'["{restart.since}"], and run again; where changes were ingested meanwhile, {again} to put them in order',
    )


def _are_later(file: FileFigures, newest: str, known: str) -> bool:
    """Whether all changes of a file were committed later, or some so much later that no transaction explains it."""
    return _is_later(file.min_commit_ts, newest, longest_transaction(known)) or _is_later(
        file.max_commit_ts, newest, LONGEST_TRANSACTION
    )


def _is_later(time: str | None, newest: str, longest: timedelta) -> bool:
    return time is not None and datetime.fromisoformat(time) - datetime.fromisoformat(newest) > longest


def files_before_log_began(spec: TableSpec, ledger: Ledger) -> tuple[str, ...]:
    """Files ingested under another `log_began` than the row's, with changes from after a moment that differs.

    Their positions lack the number of that beginning, or have another's.
    """
    before, now = set(ledger.state.log_began), set(log_began_of(spec))
    if before == now or ledger.state.max_sequence is None:
        return ()
    moment = min(moment_of(text) for text in before ^ now)
    times = {path: entry.max_commit_ts for path, entry in ledger.all_entries().items()}
    return tuple(sorted(path for path, time in times.items() if time is not None and moment_of(time) >= moment))
