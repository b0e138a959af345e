"""Decides which alerts of a table to send, and when; pure. One is sent when a problem begins, one when it ends."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from airflow_gddl.contract.codes import (
    EXPECTATION_FAILED,
    FILE_UNREADABLE,
    FRESHNESS_MISSED,
    LOAD_FAILED,
    MAINTENANCE_DUE,
    METADATA_INVALID,
    MOVED_ROW_DELETED,
    MOVED_ROW_INCOMPLETE,
    QUARANTINE_RATE,
    QUARANTINE_STALE,
    ROW_INVALID,
    ROWS_MISSING,
    SCHEMA_REFUSED,
    SEQUENCE_TIE,
    SOURCE_DIFFERENT,
    SOURCE_STOPPED,
    UPDATE_WITHOUT_PRIOR,
    VERIFY_DIFFERENT,
)
from airflow_gddl.contract.errors import Note, brief
from airflow_gddl.runtime.state.table_runs import RunFact
from airflow_gddl.runtime.state.table_status import (
    NEEDS_ATTENTION,
    TableStatus,
    has_many_quarantined,
    text_of_code,
)

Notified = Mapping[str, tuple[str, ...]]
"""Table to the codes with a sent alert that have not ended."""
_WARNED = (EXPECTATION_FAILED, SEQUENCE_TIE, UPDATE_WITHOUT_PRIOR, MOVED_ROW_DELETED, MOVED_ROW_INCOMPLETE)
"""Warnings of the newest run that are reported, though the table's state is not `attention`."""
_REFUSED = (SCHEMA_REFUSED, EXPECTATION_FAILED)
"""Errors of runs that a file's content causes: reported after the first run."""

METADATA = "(metadata)"
"""In place of a table, in alerts of metadata outside of rows."""
NOTE = "(note) "
"""Before the name of what a note is about, in place of a table."""
LATENESS = (FRESHNESS_MISSED, SOURCE_STOPPED)
"""Codes of alerts of a late table, of which it has one at a time."""
_SETTLED_AFTER = 120.0
LONGEST_TEXT = 600
_COMMANDS: dict[str, str] = {
    **dict.fromkeys((FILE_UNREADABLE, QUARANTINE_RATE, QUARANTINE_STALE, EXPECTATION_FAILED), "errors list"),
    **dict.fromkeys((VERIFY_DIFFERENT, SOURCE_DIFFERENT, ROWS_MISSING), "verify"),
    MAINTENANCE_DUE: "maintain",
}
"""Code to the command that says more of it; others: `status`."""


@dataclass(frozen=True, kw_only=True)
class AlertLimits:
    """
    Attributes:
        quarantine_rate: see `table_status.judge`.
        failed_runs: number of runs in a row in which a table fails until that is reported, from 1.
    """

    quarantine_rate: float
    failed_runs: int = 2


@dataclass(frozen=True)
class TableProblem:
    """A current problem of a table; `code` is listed in docs/codes.md.

    Attributes:
        of_run: the newest run's record says more.
    """

    code: str
    text: str
    of_run: bool = False


@dataclass(frozen=True, kw_only=True)
class Alert:
    """A problem that began or ended since the last notification.

    Attributes:
        page: URL of the table's page; empty: not known.
        next_step: the command to look closer; empty: that of the code.
    """

    table: str
    owner: str | None
    change: Literal["began", "over"]
    code: str
    text: str = ""
    of_run: bool = False
    page: str = ""
    next_step: str = ""

    @property
    def is_of_table(self) -> bool:
        return self.table != METADATA and not self.table.startswith(NOTE)

    @property
    def is_sent(self) -> bool:
        """False: the end of a note, which a person has brought about."""
        return self.change == "began" or not self.table.startswith(NOTE)

    @property
    def line(self) -> str:
        """In one line, what to do and where to look at its end, which no notifier cuts."""
        if self.change == "over":
            return f"{self.table}: {self.code} is over"
        text = brief(" ".join(self.text.split()), LONGEST_TEXT)
        return " ".join(filter(None, (f"{self.table}: [{self.code}] {text}", f"▸ {self.command}", self.page)))

    @property
    def command(self) -> str:
        """The first command to look closer."""
        if self.next_step:
            return self.next_step
        if self.table == METADATA or self.code == ROW_INVALID:
            return "gddl validate"
        return f"gddl {_COMMANDS.get(self.code, 'status')} --table {self.table}"


def problems(one: TableStatus, limits: AlertLimits) -> list[TableProblem]:
    """All current problems of a table; of an invalid row, that alone."""
    if one.row.problems:
        return [TableProblem(ROW_INVALID, _first(one.row.problems))]
    table_problems = [_lateness(one)] if one.late else []
    newest = one.record.newest
    if newest is not None and one.row.enabled:
        if has_many_quarantined(one.record, limits.quarantine_rate):
            share = f"{newest.quarantined} of {newest.rows_read} rows of the last run were quarantined"
            table_problems.append(TableProblem(QUARANTINE_RATE, f"{share}; {one.record.quarantined} are in quarantine"))
        table_problems += _of_run(newest)
        if one.record.failed:
            table_problems += _failure(one, newest, limits)
    known = {problem.code for problem in table_problems}
    table_problems += [
        TableProblem(code, text_of_code(one, code), of_run=code in NEEDS_ATTENTION)
        for code in one.attention
        if code not in known
    ]
    return table_problems


def _first(lines: Sequence[str]) -> str:
    return lines[0] if len(lines) == 1 else f"{lines[0]} ({len(lines)} problems)"


def _lateness(one: TableStatus) -> TableProblem:
    if SOURCE_STOPPED in one.attention:
        text = "nothing of its source's log has come for longer than its freshness allows, not even the heartbeat"
        return TableProblem(SOURCE_STOPPED, f"{text} {one.row.heartbeat}")
    behind = "was never up to date" if one.behind is None else f"is {one.behind:.0f} s behind"
    waits = "" if one.record.waiting_since is None else ", and what has landed since then is not applied"
    return TableProblem(FRESHNESS_MISSED, f"it {behind}{waits}; its freshness allows {one.row.freshness} s")


def _of_run(run: RunFact) -> Iterable[TableProblem]:
    if run.status != "failed" and not run.adds_up:
        sum_ = run.appended + run.redelivered + run.quarantined
        yield TableProblem(ROWS_MISSING, f"{run.rows_read} rows were read, {sum_} accounted for")
    for code in _WARNED:
        if code in run.warnings:
            yield TableProblem(code, "see the warnings of the last run", of_run=True)


def _failure(one: TableStatus, newest: RunFact, limits: AlertLimits) -> Iterable[TableProblem]:
    """A table that fails because of a file's content is reported at once; others after some runs."""
    why = one.record.error or newest.error or "see the log of its run"
    if newest.error in _REFUSED:
        yield TableProblem(newest.error, why)
        return
    runs = _failed_runs(one)
    if runs >= limits.failed_runs:
        text = f"it failed in {runs} runs in a row: {why}" if runs > 1 else f"it failed: {why}"
        yield TableProblem(LOAD_FAILED, text)


def _failed_runs(one: TableStatus) -> int:
    """Runs in a row that failed, as far as runs are kept; tries of one run of Airflow count once."""
    runs = set()
    for fact in reversed(one.record.runs):
        if fact.status != "failed" or fact.started <= (one.record.complete or 0):
            break
        runs.add(fact.airflow[0] if fact.airflow else fact.run_id)
    return len(runs)


def alerts(tables: Iterable[TableStatus], notified: Notified, limits: AlertLimits) -> list[Alert]:
    """Alerts to send now."""
    return [alert for one in tables for alert in _of_row(one, notified, limits)]


def _of_row(one: TableStatus, notified: Notified, limits: AlertLimits) -> Iterator[Alert]:
    known = notified
    if one.row.problems:  # of an invalid row, neither freshness nor runs are known
        known = {one.row.table: tuple(set(notified.get(one.row.table, ())) & {ROW_INVALID})}
    return _changes(one.row.table, one.row.owner, problems(one, limits), known)


def without_load(tables: Iterable[TableStatus], notified: Notified, limits: AlertLimits, now: float) -> list[Alert]:
    """`alerts` for all tables at a moment that no load has ended.

    Of a table whose run has just ended, the load sends the others; here, only lateness. No load does that for a run
    that Airflow did not start.
    """
    made: list[Alert] = []
    for one in tables:
        newest = one.record.newest
        by_hand = newest is None or not newest.airflow
        ended = 0.0 if newest is None else newest.started + newest.seconds
        if by_hand or now - ended > _SETTLED_AFTER or one.row.problems:
            made += _of_row(one, notified, limits)
        else:
            known = {one.row.table: tuple(code for code in LATENESS if code in notified.get(one.row.table, ()))}
            late = [_lateness(one)] if one.late else []
            made += _changes(one.row.table, one.row.owner, late, known)
    return made


def of_metadata(lines: Sequence[str], notified: Notified) -> list[Alert]:
    """Alerts of problems outside of rows, as of a file that can't be read.

    Args:
        lines: the problems.
    """
    holding = [TableProblem(METADATA_INVALID, _first(lines))] if lines else []
    return list(_changes(METADATA, None, holding, notified))


def of_notes(notes: Sequence[Note], notified: Notified) -> list[Alert]:
    """An alert of each new note; the end of others, which is remembered and not sent."""
    current: dict[str, dict[str, Note]] = {}
    for note in notes:
        current.setdefault(f"{NOTE}{note.table}", {})[note.code] = note
    before = {table: codes for table, codes in notified.items() if table.startswith(NOTE)}
    made: list[Alert] = []
    for table in sorted(current.keys() | before.keys()):
        mine = current.get(table, {})
        holding = [TableProblem(note.code, note.text) for note in mine.values()]
        for alert in _changes(table, None, holding, before):
            step = mine[alert.code].command if alert.code in mine else ""
            made.append(replace(alert, next_step=step or "gddl status"))
    return made


def of_removed(notified_by: Mapping[str, Notified], tables: Collection[str]) -> list[tuple[str, Alert]]:
    """Ends of alerts of tables that the metadata no longer has, with the pipeline that stores them.

    Args:
        notified_by: pipelines of the metadata to their sent alerts.
        tables: all of the metadata.
    """
    return [
        (pipeline, Alert(table=table, owner=None, change="over", code=code))
        for pipeline, notified in sorted(notified_by.items())
        for table, codes in sorted(notified.items())
        if table not in tables and table != METADATA and not table.startswith(NOTE)
        for code in codes
    ]


def _changes(table: str, owner: str | None, holding: Iterable[TableProblem], notified: Notified) -> Iterator[Alert]:
    """Problems of a table that began, or are over, since the sent alerts."""
    current = {problem.code: problem for problem in holding}
    before = set(notified.get(table, ()))
    for code, problem in current.items():
        if code not in before:
            yield Alert(table=table, owner=owner, change="began", code=code, text=problem.text, of_run=problem.of_run)
    for code in sorted(before - current.keys()):
        yield Alert(table=table, owner=owner, change="over", code=code)


def after_notifying(notified: Notified, fresh: Iterable[Alert]) -> dict[str, tuple[str, ...]]:
    """Sent alerts after these; alerts sent by others in the meantime are kept."""
    after = {table: set(codes) for table, codes in notified.items()}
    for alert in fresh:
        codes = after.setdefault(alert.table, set())
        (codes.add if alert.change == "began" else codes.discard)(alert.code)
    return {table: tuple(sorted(codes)) for table, codes in after.items()}


@dataclass(frozen=True, kw_only=True)
class Moves:
    """Sent alerts of tables that moved between pipelines.

    Attributes:
        notified: sent alerts by table, from any pipeline.
        taken: pipeline to its new tables, with the alerts that other pipelines sent for them.
        strays: pipeline to tables that it no longer has.
    """

    notified: Notified
    taken: Mapping[str, Notified]
    strays: Mapping[str, tuple[str, ...]]


def moves(notified_by: Mapping[str, Notified], homes: Mapping[str, str]) -> Moves:
    """Without these, a moved table's alert would be sent again, and its end at each poll.

    Args:
        notified_by: pipeline to its sent alerts.
        homes: table to its current pipeline; tables without one are ignored.
    """
    notified: dict[str, tuple[str, ...]] = {}
    taken: dict[str, dict[str, tuple[str, ...]]] = {}
    strays_by_pipeline: dict[str, tuple[str, ...]] = {}
    elsewhere: dict[str, set[str]] = {}
    for pipeline, codes_of in notified_by.items():
        strays = tuple(sorted(table for table in codes_of if homes.get(table, pipeline) != pipeline))
        strays_by_pipeline |= {pipeline: strays} if strays else {}
        for table in strays:
            elsewhere.setdefault(table, set()).update(codes_of[table])
        notified |= {table: tuple(codes) for table, codes in codes_of.items() if homes.get(table) == pipeline}
    for table in elsewhere.keys() - notified.keys():
        notified[table] = taken.setdefault(homes[table], {})[table] = tuple(sorted(elsewhere[table]))
    return Moves(notified=notified, taken=taken, strays=strays_by_pipeline)
