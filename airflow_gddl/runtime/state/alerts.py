"""Decides which alerts of a table to send, and when; pure. One is sent when a problem begins, one when it ends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from airflow_gddl.runtime.state.board import BoardRow
from airflow_gddl.runtime.state.facts import RunFact
from airflow_gddl.runtime.state.judging import NEEDS_ATTENTION, has_many_quarantined

Notified = Mapping[str, tuple[str, ...]]
"""Table to the codes with a sent alert that have not ended."""
_WARNED = (
    *("EXPECTATION_FAILED", "SEQUENCE_TIE", "UPDATE_WITHOUT_PRIOR", "MOVED_ROW_DELETED", "MOVED_ROW_INCOMPLETE"),
    *NEEDS_ATTENTION,
)
_REFUSED = ("SCHEMA_REFUSED", "EXPECTATION_FAILED")
"""Errors of runs that a file's content causes."""
_LATE = "FRESHNESS_MISSED"


@dataclass(frozen=True)
class TableProblem:
    """A current problem of a table; `code` is listed in docs/codes.md."""

    code: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Alert:
    """A problem that began or ended since the last notification."""

    table: str
    owner: str | None
    change: Literal["began", "over"]
    code: str
    text: str = ""

    @property
    def line(self) -> str:
        return (
            f"{self.table}: [{self.code}] {self.text}"
            if self.change == "began"
            else f"{self.table}: {self.code} is over"
        )


def problems(one: BoardRow, quarantine_rate: float) -> list[TableProblem]:
    """All current problems of a table.

    Args:
        quarantine_rate: see `judging.Knowledge`.
    """
    found = [_lateness(one)] if one.state.late else []
    newest = one.newest
    if newest is not None and one.row.enabled:
        if has_many_quarantined(one.record, quarantine_rate):
            share = f"{newest.quarantined} of {newest.rows_read} rows of the last run were quarantined"
            found.append(TableProblem("QUARANTINE_RATE", f"{share}; {one.record.quarantined} are in quarantine"))
        found += _of_run(newest)
        if one.record.failed and newest.error in _REFUSED:
            found.append(TableProblem(newest.error, one.record.error or "its files were refused"))
    return found


def _lateness(one: BoardRow) -> TableProblem:
    behind = "was never up to date" if one.state.behind is None else f"is {one.state.behind:.0f} s behind"
    return TableProblem("FRESHNESS_MISSED", f"it {behind}; its freshness allows {one.row.freshness} s")


def _of_run(run: RunFact) -> Iterable[TableProblem]:
    if run.status != "failed" and not run.adds_up:
        sum_ = run.appended + run.redelivered + run.quarantined
        yield TableProblem("ROWS_MISSING", f"{run.rows_read} rows were read, {sum_} accounted for")
    for code in _WARNED:
        if code in run.warnings:
            yield TableProblem(code, "see the warnings of the last run")


def alerts(found: Iterable[BoardRow], notified: Notified, quarantine_rate: float) -> list[Alert]:
    """Alerts to send now."""
    return [alert for one in found for alert in _changes(one, problems(one, quarantine_rate), notified)]


def lateness(found: Iterable[BoardRow], notified: Notified) -> list[Alert]:
    """`alerts` for lateness only, which can begin and end without a load."""
    known = {table: (_LATE,) for table, codes in notified.items() if _LATE in codes}
    return [alert for one in found for alert in _changes(one, [_lateness(one)] if one.state.late else [], known)]


def _changes(one: BoardRow, holding: Iterable[TableProblem], notified: Notified) -> Iterator[Alert]:
    """Problems of a table that began, or are over, since the sent alerts."""
    table, owner = one.row.table, one.row.owner
    texts = {problem.code: problem.text for problem in holding}
    before = set(notified.get(table, ()))
    for code, text in texts.items():
        if code not in before:
            yield Alert(table=table, owner=owner, change="began", code=code, text=text)
    for code in sorted(before - texts.keys()):
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
        left: pipeline to tables that it no longer has.
    """

    notified: Notified
    taken: Mapping[str, Notified]
    left: Mapping[str, tuple[str, ...]]


def moves(notified_by: Mapping[str, Notified], homes: Mapping[str, str]) -> Moves:
    """Without these, a moved table's alert would be sent again, and its end at each poll.

    Args:
        notified_by: pipeline to its sent alerts.
        homes: table to its current pipeline; tables without one are ignored.
    """
    notified: dict[str, tuple[str, ...]] = {}
    taken: dict[str, dict[str, tuple[str, ...]]] = {}
    left: dict[str, tuple[str, ...]] = {}
    elsewhere: dict[str, set[str]] = {}
    for pipeline, codes_of in notified_by.items():
        strays = tuple(sorted(table for table in codes_of if homes.get(table, pipeline) != pipeline))
        left |= {pipeline: strays} if strays else {}
        for table in strays:
            elsewhere.setdefault(table, set()).update(codes_of[table])
        notified |= {table: tuple(codes) for table, codes in codes_of.items() if homes.get(table) == pipeline}
    for table in elsewhere.keys() - notified.keys():
        notified[table] = taken.setdefault(homes[table], {})[table] = tuple(sorted(elsewhere[table]))
    return Moves(notified=notified, taken=taken, left=left)
