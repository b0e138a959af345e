"""`gddl adopt --compare`: the table beside against the other job's, by key.

A row that differs is no fault of either where the other job's is as ours was earlier (it is behind), or where landed
files that ours has not loaded have changes of its key (it may be ahead).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.names import landed_name
from airflow_gddl.contract.result import JobResult, RunWarning, error_info
from airflow_gddl.contract.table_spec import lowered
from spark_jobs.actions.adopt_beside import beside, in_place
from spark_jobs.actions.adopt_checks import log_of
from spark_jobs.actions.landed_changes import LandedChanges
from spark_jobs.batch import notices
from spark_jobs.batch.runtime import iso
from spark_jobs.batch.table_run import TableRun
from spark_jobs.batch.totals import RunTotals
from spark_jobs.ledger.adoption import of_beside, read_beside
from spark_jobs.ledger.ledger import Ledger
from spark_jobs.plan.planned_batch import BatchPlan, PlannedFile
from spark_jobs.plan.table_schema import TableSchema
from spark_jobs.plan.types import lossless
from spark_jobs.rules.arrays import DeltaSchema, schema_of
from spark_jobs.rules.beside import BesideFindings, BesideRule, DifferentRow

DIFFERENT_CODE = "ADOPT_DIFFERENT"
_SHOWN = 20
_NAMED = 5


def compare(run: TableRun, totals: RunTotals) -> JobResult:
    """Compare; `details["compare"]` has the counts. The result has failed with `ADOPT_DIFFERENT` where rows differ.

    Raises:
        FatalError: `ADOPT_REFUSED`: there is no table beside; `BATCH_UNFINISHED`; `ADOPT_COLUMNS`.
        RetriableError: `TABLE_BUSY`.
    """
    here, there = in_place(run), beside(run)
    if read_beside(run.runtime.storage, here.layout.state) is None:
        what = f"{run.spec.table}: there is no table of ours beside the other job's"
        raise FatalError("ADOPT_REFUSED", what, where=here.layout.state, remedy="`gddl adopt … --beside` makes one")
    with there.claim():  # neither ours nor what it knows of files changes meanwhile
        ledger = there.ledger()
        if not ledger.state.batch:
            what = f"{run.spec.table}: the table beside is not whole"
            raise FatalError("ADOPT_REFUSED", what, where=there.layout.replica, remedy="run `--beside` again")
        notices.require_finished(run.spec.table, ledger, there.layout.state, then="adopt --compare")
        compared = _Compared.of(here, there, ledger)
    totals.warn([of_beside(there.layout.replica), *compared.warnings])
    details = {"compare": compared.described()}
    result = run.result(totals, status="succeeded", details=details)
    error = compared.error(run)
    return result if error is None else replace(result, status="failed", error=error_info(error))


@dataclass(frozen=True, kw_only=True)
class _Columns:
    """Attributes:
    spelled: columns that are compared, as the other job's table spells them.
    left_out: those that are not, and why.
    """

    spelled: dict[str, str]
    left_out: dict[str, str]

    @classmethod
    def of(cls, run: TableRun, schema: TableSchema, theirs: DeltaSchema, delivered: frozenset[str] | None) -> _Columns:
        """
        Args:
            delivered: columns of files that ours has loaded, in lower case; null: it has loaded none.

        Raises:
            FatalError: `ADOPT_COLUMNS`.
        """
        by_lower, masked = {name.lower(): name for name in theirs.names}, lowered(run.spec.mask)
        spelled, left_out = {}, {}
        for column in schema.data:
            lower = column.name.lower()
            if lower not in by_lower:
                left_out[column.name] = "the other job's table lacks it"
            elif not lossless(theirs.types[by_lower[lower]], column.type):
                left_out[column.name] = f"it is {theirs.types[by_lower[lower]]} there, and {column.type} in ours"
            elif lower in masked:
                left_out[column.name] = "the row masks it"
            elif delivered is not None and lower not in delivered:
                left_out[column.name] = "files lack it"
            else:
                spelled[column.name] = by_lower[lower]
        if lacking := [key for key in schema.keys if key not in spelled]:
            what = f"{run.spec.table}: key column {lacking[0]} can't be compared: {left_out[lacking[0]]}"
            raise FatalError("ADOPT_COLUMNS", what, where=run.layout.replica, remedy="end with --release")
        ours = set(lowered(column.name for column in schema.data))
        left_out |= {name: "ours lacks it" for name in theirs.names if name.lower() not in ours}
        return cls(spelled=spelled, left_out=left_out)


@dataclass(frozen=True, kw_only=True)
class _Compared:
    """Attributes:
    ahead: rows of `findings.listed` whose keys are in files that wait, `in_files` by their names.
    different: the other ones.
    """

    version: int
    findings: BesideFindings
    columns: _Columns
    waiting: tuple[PlannedFile, ...]
    in_files: dict[str, int]
    ahead: int
    different: tuple[DifferentRow, ...]

    @classmethod
    def of(cls, here: TableRun, there: TableRun, ledger: Ledger) -> _Compared:
        """
        Args:
            here, there: the runs of the other job's table and of ours.
        """
        log, context = log_of(here), there.context()
        schema = context.stored_schema(ledger.state)
        columns = _Columns.of(here, schema, schema_of(log.schema), _delivered(ledger))
        baseline = BatchPlan(number=1, mode="initial", planned_at=iso(there.runtime.clock()), generation=1, files=())
        rule = BesideRule(
            schema=schema, columns=tuple(columns.spelled), spelled=columns.spelled, baseline=baseline.batch_id,
            shown=_NAMED,
        )  # fmt: skip
        findings = context.engine.baseline_work(context).compared(here.layout.replica, rule)
        # Listed after the other job's table was read: it has loaded no file that is not among them.
        waiting = there.discover(ledger, wait="idle").waiting if findings.different else ()
        wanted = {row.key for row in findings.listed}
        keys = LandedChanges(there, context, ledger.state).keys(waiting)
        in_files = {path: wanted & found for path, found in keys.items()}
        changed = frozenset[str]().union(*in_files.values())
        return cls(
            version=log.version, findings=findings, columns=columns, waiting=waiting,
            in_files={path: len(found) for path, found in in_files.items() if found}, ahead=len(changed),
            different=tuple(row for row in findings.listed if row.key not in changed),
        )  # fmt: skip

    @property
    def differing(self) -> int:
        """Rows that differ, and no file that waits explains it."""
        return self.findings.different - self.ahead

    @property
    def warnings(self) -> Iterator[RunWarning]:
        found = self.findings
        if found.behind or self.ahead:
            message = (
                f"{found.behind} rows of the other job are as ours were earlier, and {self.ahead} have changes in "
                "files that ours has not loaded; compare again when both have loaded the same files"
            )
            yield RunWarning(code="ADOPT_NOT_SETTLED", message=message, count=found.behind + self.ahead)

    def described(self) -> dict[str, Any]:
        found = self.findings
        return {
            "version": self.version, "rows": found.rows, "their_rows": found.their_rows, "equal": found.equal,
            "behind": found.behind, "behind_keys": list(found.behind_keys), "ahead": self.ahead,
            "in_files": self.in_files, "waiting": len(self.waiting), "different": self.differing,
            "rows_different": [
                {"key": row.key, "ours": row.ours, "theirs": row.theirs} for row in self.different[:_SHOWN]
            ],
            "not_compared": self.columns.left_out,
        }  # fmt: skip

    def error(self, run: TableRun) -> FatalError | None:
        if not self.differing:
            return None
        shown = ", ".join(row.key for row in self.different[:_NAMED])
        what = f"{run.spec.table}: {self.differing} rows of both tables differ, e.g. {shown}"
        remedy = (
            "`--compare` shows both rows; `gddl explain` what ours is made of. Where the old job is right, the cut is "
            "too late or the row's `sequence_by` is another: --release, and begin again"
        )
        return FatalError(DIFFERENT_CODE, what, where=run.spec.table, remedy=remedy)


def _delivered(ledger: Ledger) -> frozenset[str] | None:
    """Columns of the files that were loaded after the adoption, in lower case; null: none was."""
    loaded = {entry.schema for entry in ledger.entries().values() if entry.batch > 1 and entry.schema is not None}
    schemas = [ledger.state.schemas[number] for number in loaded]
    return frozenset(landed_name(name).lower() for one in schemas for name in one) if schemas else None
