"""Verdict of the demos: each table's runs, and whether its replica is correct."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from airflow_gddl.cli import summary
from airflow_gddl.cli.context import CliContext
from airflow_gddl.cli.job import Request, perform
from airflow_gddl.cli.screen import Cell, number_columns
from airflow_gddl.cli.text import count, duration
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions
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


def verify(cli: CliContext, metadata: str, tables: Sequence[str], ending: Callable[[JobResult], Ending]) -> bool:
    """Verify the replicas of these tables, and show one line for each; return whether all are correct.

    Args:
        tables: those of the source; further rows in the metadata have no expected content.
        ending: of one table, from its verification.
    """
    cli.screen.say("verifying: each replica against its change table, and its rows against the source", "bold")
    done = perform(cli, Request(metadata=metadata, options=JobOptions(action="verify")))
    summary.show_troubles(cli.screen, done.outcome)
    endings = [ending(result) for result in done.outcome.results if result.table in tables]
    cli.screen.table(["table", *_NUMBERS, "verdict"], [one.line() for one in endings])
    for one in endings:
        if one.differences:
            cli.screen.warn(f"{one.verified.table} differs from its source: {one.differences}", "red")
    return done.exit_status == 0 and len(endings) == len(tables) and all(one.is_right for one in endings)
