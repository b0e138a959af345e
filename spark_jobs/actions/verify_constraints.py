"""What `unique` and `foreign_key` promise, checked over the replica."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from airflow_gddl.contract.actions import Verify
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.result import ExpectationCount, RunWarning
from airflow_gddl.contract.table_spec import SHARD_COLUMN, ForeignKey, TableSpec, lowered
from spark_jobs.batch.runtime import iso
from spark_jobs.batch.table_run import TableRun
from spark_jobs.rules.verify import (
    MOST_VALUES,
    Reference,
    not_checked,
)
from spark_jobs.tables.engine import TableContext
from spark_jobs.verification import mark_of, read_orphans, settle_time, write_orphans

CHECKED = "verify"
"""In place of what rows that fail an expectation do: they stay."""
_SAMPLE = 5


@dataclass(frozen=True, kw_only=True)
class ConstraintFinding:
    """What a check of one constraint has found.

    Attributes:
        name: `unique.<name>` or `foreign_key.<name>`.
        columns: of the replica.
        to, to_columns: the other table of a foreign key; empty for `unique`.
        rows: that were checked: those without a null in the columns.
        failed: rows that break it.
        unsettled: rows without a row in the other table, which may be on its way.
        keys: some of the values as JSON objects, the number of rows that have them, and whether they are settled.
        not_checked: why it was not checked; empty: it was.
    """

    name: str
    columns: tuple[str, ...]
    to: str = ""
    to_columns: tuple[str, ...] = ()
    rows: int = 0
    failed: int = 0
    unsettled: int = 0
    keys: tuple[dict[str, Any], ...] = ()
    not_checked: str = ""

    @property
    def count(self) -> ExpectationCount:
        return ExpectationCount(name=self.name, on=CHECKED, checked=self.rows, failed=self.failed)

    @property
    def message(self) -> str:
        what = f"have no row in {self.to}" if self.to else "have the values of another row"
        return f"{self.name} ({', '.join(self.columns)}): {self.failed} of {self.rows} rows {what}"


def check_constraints(run: TableRun) -> tuple[ConstraintFinding, ...]:
    """Check all constraints of the row on a loaded table; values without a row elsewhere are remembered."""
    if not (run.spec.unique or run.spec.foreign_key):
        return ()
    context = run.context()
    checks = _Checks(run, context, read_orphans(context.storage, context.layout.state), iso(run.runtime.clock()))
    findings = [checks.unique(name, columns) for name, columns in run.spec.unique.items()]
    findings += [checks.foreign_key(name, key) for name, key in run.spec.foreign_key.items()]
    if checks.before or any(checks.seen.values()):
        write_orphans(context.storage, context.layout.state, checks.seen)
    return tuple(findings)


@dataclass(frozen=True)
class _Checks:
    """Attributes:
    before: by constraint, values without a row as remembered from earlier checks, see `OrphanRecords`.
    now: ISO 8601, UTC.
    seen: the same, for the next check.
    """

    run: TableRun
    context: TableContext
    before: Mapping[str, Mapping[str, str]]
    now: str
    seen: dict[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def _asked(self) -> Verify:
        return self.run.job.options.asked(Verify)

    @property
    def spec(self) -> TableSpec:
        return self.run.spec

    def unique(self, name: str, columns: tuple[str, ...]) -> ConstraintFinding:
        own_columns = self._within_source(columns)
        finding = ConstraintFinding(name=f"unique.{name}", columns=own_columns)
        try:
            violations = self.context.engine.contents(self.context).violations(own_columns, None, self._asked.limit)
        except FatalError as error:
            return _refused(finding, error)
        keys = tuple({"key": text, "rows": rows, "settled": True} for text, rows in violations.values)
        return replace(finding, rows=violations.rows, failed=violations.failed, keys=keys)

    def foreign_key(self, name: str, key: ForeignKey) -> ConstraintFinding:
        finding = ConstraintFinding(
            name=f"foreign_key.{name}", columns=key.columns, to=key.to, to_columns=key.to_columns
        )
        try:
            reference, own_columns = self._reference(key)
            violations = self.context.engine.contents(self.context).violations(own_columns, reference, MOST_VALUES)
        except FatalError as error:
            self.seen[finding.name] = self.before.get(finding.name, {})
            return _refused(finding, error)
        settled = self._settled(finding.name, [text for text, _ in violations.values])
        failed = sum(rows for text, rows in violations.values if text in settled)
        chosen = sorted(violations.values, key=lambda one: (one[0] not in settled, one))[: self._asked.limit]
        keys = tuple({"key": text, "rows": rows, "settled": text in settled} for text, rows in chosen)
        return replace(finding, columns=own_columns, to_columns=reference.columns, rows=violations.rows, failed=failed,
                       unsettled=violations.failed - failed, keys=keys)  # fmt: skip

    def _reference(self, key: ForeignKey) -> tuple[Reference, tuple[str, ...]]:
        """The other table, and the columns here; of sources that both tables have, values are found in the same.

        Raises:
            FatalError: `CONSTRAINT_NOT_CHECKED`.
        """
        path = Layout.of(self.run.job.roots, replace(self.spec, table=key.to)).replica
        if not self.context.engine.tables.exists(path):
            raise not_checked(f"{key.to} is not loaded yet", f"run {key.to}, then verify again")
        if len(key.to_columns) != len(key.columns):
            raise not_checked(
                f"the metadata row of {key.to} has an error, so its keys are not known", "correct that metadata row"
            )
        own_columns = self._within_source(key.columns)
        if own_columns != key.columns and SHARD_COLUMN in {
            c.name for c in self.context.engine.tables.data_columns(path)
        }:
            return Reference(path=path, columns=(SHARD_COLUMN, *key.to_columns)), own_columns
        return Reference(path=path, columns=key.to_columns), key.columns

    def _within_source(self, columns: tuple[str, ...]) -> tuple[str, ...]:
        """With the column that tells the sources of a table with `shards` apart, which may have equal values."""
        added = self.spec.shards and SHARD_COLUMN not in lowered(columns)
        return (SHARD_COLUMN, *columns) if added else columns

    def _settled(self, name: str, values: Sequence[str]) -> set[str]:
        """Those that are without a row for longer than a change may take; all are remembered."""
        before = self.before.get(name, {})
        first = {text: before.get(mark_of((text,)), self.now) for text in values}
        self.seen[name] = {mark_of((text,)): at for text, at in first.items()}
        now, wait = datetime.fromisoformat(self.now), settle_time(self.spec, self._asked)
        return {text for text, at in first.items() if now - datetime.fromisoformat(at) >= wait}


def _refused(finding: ConstraintFinding, error: FatalError) -> ConstraintFinding:
    """
    Raises:
        FatalError: another than that it can't be checked.
    """
    if error.code != "CONSTRAINT_NOT_CHECKED":
        raise error
    return replace(finding, not_checked=f"{error.what}; {error.remedy}")


def broken(findings: Sequence[ConstraintFinding]) -> FatalError | None:
    """The error of a verification: all constraints that rows break, else all that were not checked; None: none."""
    if failed := [one.message for one in findings if one.failed]:
        remedy = "the message has some of the values; `gddl explain --table T --key COLUMN=VALUE` shows how a row came"
        return FatalError("VERIFY_VIOLATED", "; ".join(failed), remedy=remedy)
    if unchecked := [one for one in findings if one.not_checked]:
        what = "; ".join(f"{one.name}: {one.not_checked}" for one in unchecked)
        return FatalError("CONSTRAINT_NOT_CHECKED", what, remedy="verify again, or remove the constraint from the row")
    return None


def unsettled(findings: Sequence[ConstraintFinding]) -> tuple[RunWarning, ...]:
    """Rows that break a foreign key for less time than a change may take."""
    rows = sum(one.unsettled for one in findings)
    if not rows:
        return ()
    message = "rows have no row in the table of a foreign key, and it may be on its way; verify again later"
    sample = tuple(key["key"] for one in findings for key in one.keys if not key["settled"])[:_SAMPLE]
    return (RunWarning(code="FOREIGN_KEY_UNSETTLED", message=message, count=rows, sample=sample),)
