"""Outcome of a shared job for each table, shown by the table's mapped task instance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from airflow.sdk import BaseOperator, Context

from airflow_gddl.contract.codec import plain
from airflow_gddl.contract.result import JobResult
from airflow_gddl.reporting.results import explained, is_final, reason
from airflow_gddl.runtime.landing.loading import Loading
from airflow_gddl.version_compat import AirflowException, AirflowFailException

_LONGEST = 1000


@dataclass(frozen=True, kw_only=True)
class Round:
    """The round of a run that a task instance belongs to: each clearing of a finished run starts a new round.

    Attributes:
        number: how often the run was cleared, as Airflow counts.
        cleared: whether this instance was cleared.
    """

    number: int = 0
    cleared: bool = False


@dataclass(frozen=True, kw_only=True)
class TableOutcome:
    """A table's result, short enough for an XCom of all tables.

    Attributes:
        why: code, reason and remedy of a failure; empty otherwise.
        changes: rows written to the change table.
        log: of the job, of a failed table; null if there is none.
        of_round: round of the load.
    """

    table: str
    status: Literal["succeeded", "skipped", "failed"]
    why: str = ""
    changes: int = 0
    log: str | None = None
    of_round: Round = Round()

    def is_new_to(self, try_number: int, own: Round) -> bool:
        """Whether a mapped instance shows this outcome; otherwise it was cleared or retried, and loads its table.

        Args:
            try_number: of the instance.
            own: round of the instance.
        """
        return try_number == 1 or (self.of_round.cleared and own.number <= self.of_round.number)


def round_of(context: Context, operator: BaseOperator) -> Round:
    """Clearing a task instance raises its `max_tries` above the retries of its task."""
    number = getattr(context["dag_run"], "clear_number", None) or 0
    return Round(number=number, cleared=context["ti"].max_tries > (operator.retries or 0))


def is_last_try(context: Context) -> bool:
    """Whether no retry follows when this try fails."""
    return bool(context["ti"].try_number > context["ti"].max_tries)


def failure(failed: Sequence[JobResult], total: int) -> Exception:
    """What a task of `total` tables raises; it is retried unless each retry would fail with the same errors."""
    final = is_final(failed)
    error: Exception = (AirflowFailException if final else AirflowException)(explained(failed, total, final=final))
    return error


def outcomes(loading: Loading, of_round: Round) -> list[dict[str, Any]]:
    """The outcomes of a load in plain data, sorted by table.

    Args:
        loading: done; tables of its work without a result were loaded by an earlier try.
    """
    made = {table: TableOutcome(table=table, status="succeeded") for table in loading.order.marks}
    made |= {result.table: _outcome(result, loading.log) for result in loading.results}
    return [_plain(made[table], of_round) for table in sorted(made)]


def _outcome(result: JobResult, log: str | None) -> TableOutcome:
    if result.status != "failed":
        return TableOutcome(table=result.table, status=result.status, changes=result.changes_written)
    return TableOutcome(table=result.table, status="failed", why=reason(result)[:_LONGEST], log=log)


def _plain(outcome: TableOutcome, of_round: Round) -> dict[str, Any]:
    """Without empty fields, so that an XCom of 200 tables stays small."""
    given = {name: value for name, value in plain(outcome).items() if value and name != "of_round"}
    return given if of_round == Round() else {**given, "of_round": plain(of_round)}
