"""Verdict of the demos: each table's runs, and whether its replica is correct."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from airflow_gddl.cli import summary
from airflow_gddl.cli.screen import Cell, Screen, number_columns
from airflow_gddl.cli.text import count, duration
from airflow_gddl.contract.result import JobResult
from airflow_gddl.devtools.simulate import Differences

_NUMBERS = number_columns("rows in source", "rows in replica", "changes", "re-delivered", "quarantined", "lag")


@dataclass(frozen=True, kw_only=True)
class Ending:
    """Result of one table.

    Attributes:
        verified: result of `verify`.
        runs: oldest first.
        truth_rows: rows of a correct replica.
        differences: from the expected content; null: not compared.
    """

    verified: JobResult
    runs: Sequence[JobResult]
    truth_rows: int
    differences: Differences | None = None

    @property
    def is_right(self) -> bool:
        good = summary.verdict(self.verified) == "equal" and self._rows == self.truth_rows
        return good and not self.differences

    @property
    def _rows(self) -> int | None:
        return summary.answer(self.verified).get("rows")

    def line(self) -> list[Cell | str]:
        lags = (run.freshness.lag_seconds for run in reversed(self.runs))
        totals = (
            sum(run.changes_written for run in self.runs),
            sum(run.redelivered for run in self.runs),
            sum(run.quarantined for run in self.runs),
        )
        return [
            self.verified.table,
            count(self.truth_rows),
            count(self._rows),
            *(count(total) for total in totals),
            duration(next((lag for lag in lags if lag is not None), None)),
            summary.status("equal" if self.is_right else "different"),
        ]


def conclude(screen: Screen, endings: Sequence[Ending]) -> bool:
    """Show one line for each table; return whether all are correct."""
    screen.table(["table", *_NUMBERS, "verdict"], [ending.line() for ending in endings])
    for ending in endings:
        if ending.differences:
            screen.warn(f"{ending.verified.table} differs from its source: {ending.differences}", "red")
    return all(ending.is_right for ending in endings)
