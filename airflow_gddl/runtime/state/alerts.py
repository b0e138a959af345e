"""What somebody should be told of a table, and when: pure. Told once when it begins and once when it is over."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from airflow_gddl.runtime.state.board import BoardRow
from airflow_gddl.runtime.state.facts import RunFact
from airflow_gddl.runtime.state.judging import NEEDS_ATTENTION

Told = Mapping[str, tuple[str, ...]]
"""Table to the codes that somebody was told of and that were not over."""
_WARNED = ("SEQUENCE_TIE", "UPDATE_WITHOUT_PRIOR", *NEEDS_ATTENTION)
_REFUSED = "SCHEMA_REFUSED"
_LATE = "FRESHNESS_MISSED"


@dataclass(frozen=True)
class TableProblem:
    """Something that holds of a table now; `code` is one of docs/codes.md."""

    code: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Alert:
    """A problem that began or is over since somebody was told last."""

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
    """All that holds of a table.

    Args:
        quarantine_rate: the share of the newest run's rows that may be quarantined, 0 to 1.
    """
    found = [_lateness(one)] if one.state.late else []
    newest = one.newest
    if newest is not None and one.row.enabled:
        found += _of_run(newest, quarantine_rate)
        if one.record is not None and one.record.failed and newest.error == _REFUSED:
            found.append(TableProblem(_REFUSED, one.record.error or "its schema was refused"))
    return found


def _lateness(one: BoardRow) -> TableProblem:
    behind = "was never up to date" if one.state.behind is None else f"is {one.state.behind:.0f} s behind"
    return TableProblem("FRESHNESS_MISSED", f"it {behind}; its freshness allows {one.row.freshness} s")


def _of_run(run: RunFact, quarantine_rate: float) -> Iterable[TableProblem]:
    if run.rows_read and run.quarantined / run.rows_read > quarantine_rate:
        share = f"{run.quarantined} of {run.rows_read} rows of the last run are in quarantine"
        yield TableProblem("QUARANTINE_RATE", share)
    if run.status != "failed" and not run.adds_up:
        sum_ = run.appended + run.redelivered + run.quarantined
        yield TableProblem("ROWS_MISSING", f"{run.rows_read} rows were read, {sum_} accounted for")
    for code in _WARNED:
        if code in run.warnings:
            yield TableProblem(code, "see the warnings of the last run")


def alerts(found: Iterable[BoardRow], told: Told, quarantine_rate: float) -> list[Alert]:
    """What is to be told now."""
    fresh: list[Alert] = []
    for one in found:
        table, owner = one.row.table, one.row.owner
        holding = {problem.code: problem for problem in problems(one, quarantine_rate)}
        before = set(told.get(table, ()))
        for code, problem in holding.items():
            if code not in before:
                fresh.append(Alert(table=table, owner=owner, change="began", code=code, text=problem.text))
        fresh += [Alert(table=table, owner=owner, change="over", code=code) for code in sorted(before - holding.keys())]
    return fresh


def lateness(found: Iterable[BoardRow], told: Told) -> list[Alert]:
    """`alerts` for lateness alone, which comes and goes without a load."""
    fresh: list[Alert] = []
    for one in found:
        table, before = one.row.table, set(told.get(one.row.table, ()))
        if one.state.late == (_LATE in before):
            continue
        change: Literal["began", "over"] = "began" if one.state.late else "over"
        text = _lateness(one).text if one.state.late else ""
        fresh.append(Alert(table=table, owner=one.row.owner, change=change, code=_LATE, text=text))
    return fresh


def after_telling(told: Told, fresh: Iterable[Alert]) -> dict[str, tuple[str, ...]]:
    """What was told once these are; whatever others told of meanwhile stays told."""
    after = {table: set(codes) for table, codes in told.items()}
    for alert in fresh:
        codes = after.setdefault(alert.table, set())
        (codes.add if alert.change == "began" else codes.discard)(alert.code)
    return {table: tuple(sorted(codes)) for table, codes in after.items()}


@dataclass(frozen=True, kw_only=True)
class Moves:
    """What was told of tables that went from one pipeline to another.

    Attributes:
        told: by table, what somebody was told of it, by whichever pipeline it had then.
        taken: pipeline to tables of whom only others know what was told, with that.
        left: pipeline to tables that it has no longer.
    """

    told: Told
    taken: Mapping[str, Told]
    left: Mapping[str, tuple[str, ...]]


def moves(told_by: Mapping[str, Told], homes: Mapping[str, str]) -> Moves:
    """Without these a table that went would be told of again, and its end by each look for ever.

    Args:
        told_by: pipeline to what it told.
        homes: table to its pipeline now; of tables that have none nothing is said.
    """
    told: dict[str, tuple[str, ...]] = {}
    taken: dict[str, dict[str, tuple[str, ...]]] = {}
    left: dict[str, tuple[str, ...]] = {}
    elsewhere: dict[str, set[str]] = {}
    for pipeline, codes_of in told_by.items():
        strays = tuple(sorted(table for table in codes_of if homes.get(table, pipeline) != pipeline))
        left |= {pipeline: strays} if strays else {}
        for table in strays:
            elsewhere.setdefault(table, set()).update(codes_of[table])
        told |= {table: tuple(codes) for table, codes in codes_of.items() if homes.get(table) == pipeline}
    for table in elsewhere.keys() - told.keys():
        told[table] = taken.setdefault(homes[table], {})[table] = tuple(sorted(elsewhere[table]))
    return Moves(told=told, taken=taken, left=left)
