"""A batch's comparison: called with each of its commits before it is put."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NoReturn

from pyspark.sql import SparkSession

from airflow_gddl.contract.errors import RetriableError
from airflow_gddl.contract.features.shadow import ShadowDifference
from spark_jobs.batch.merge import MergedBatch
from spark_jobs.batch.pending import Batch
from spark_jobs.batch.runtime import iso
from spark_jobs.batch.session import TableSession
from spark_jobs.features.shadow.compare import AppendedFiles, Comparison, Findings
from spark_jobs.features.shadow.counting import CommitCheck, not_compared
from spark_jobs.features.shadow.expected import Expected, TooManyRowsError
from spark_jobs.features.shadow.kept import KeptDifferences
from spark_jobs.features.shadow.sides import Sides
from spark_jobs.plan.planned_batch import is_small
from spark_jobs.rules.history import IDENTITY
from spark_jobs.spark.session import FOR_FEW_ROWS, configure
from spark_jobs.tables.delta_log import APPEND, HISTORY, MERGE, TOMBSTONES
from spark_jobs.tables.engine import ProposedCommit

DIFFERENCE_CODE = "SHADOW_DIFFERENCE"
_LOG = logging.getLogger(__name__)
_KINDS = {APPEND: "changes", TOMBSTONES: "tombstones", MERGE: "replica", HISTORY: "history"}
"""Steps whose commits are compared, and their tables."""


@dataclass
class BatchComparison(CommitCheck):
    """See `TableContext.before_commit`.

    Attributes:
        compared: kinds of tables whose commits were compared and are equal.
        failure: why the batch can't be compared; empty: it can.
    """

    table: TableSession
    batch: Batch
    session: Callable[[], SparkSession]
    clock: Callable[[], float] = time.monotonic
    compared: list[str] = field(default_factory=list)
    failure: str = ""
    _expected: Expected | None = field(default=None, init=False)
    _seconds: float = field(default=0.0, init=False)

    def __call__(self, proposed: ProposedCommit) -> None:
        kind = _KINDS.get(proposed.step)
        if self.table.state.baseline is not None:  # Spark reads no `_gddl` in rows from before the adoption
            self.failure = "adopted"
        if kind is None or self.failure:
            return
        began, kept = self.clock(), KeptDifferences.of(self.table.run)
        folder = kept.sides_of(proposed.plan.batch_id, kind)
        kept.discard(folder)
        try:
            found, sides = self._compare(proposed, kind, folder)
        except Exception as error:  # noqa: BLE001 - a comparison that can't be made stops no batch; it is counted
            self.table.run.go_on()
            self.failure = "too_large" if isinstance(error, TooManyRowsError) else "failed"
            _LOG.warning("a batch of %s was not compared: %s", self.table.spec.table, error, exc_info=True)
            kept.discard(folder)
            return
        finally:
            self._seconds += self.clock() - began
        if found.sorts:
            self._stop(proposed, kind, found, sides)
        kept.discard(folder)
        self.compared.append(kind)
        self.table.run.report(f"{kind} compared", proposed.plan.number)
        self.table.claim.check()

    def end(self, merged: MergedBatch) -> None:
        """Count the batch, once it is committed."""
        self.table.totals.add({"shadow.seconds": self._seconds})
        if reason := self._reason(merged):
            not_compared(self.table, reason)
        else:
            self.table.totals.add({"shadow.compared": 1, "shadow.differences": 0})

    def _reason(self, merged: MergedBatch) -> str:
        """Why the commit to the replica was not compared; empty: it was."""
        if self.failure or "replica" in self.compared:
            return self.failure
        if merged.appended.work is None:
            return "no_rows"
        return "merge" if self.table.totals.commit == "merge" else "already_committed"

    @cached_property
    def _session(self) -> SparkSession:
        session = self.session()
        if is_small(self.batch.plan, self.table.state):
            configure(session, FOR_FEW_ROWS)
        return session

    def _compare(self, proposed: ProposedCommit, kind: str, folder: str) -> tuple[Findings, Mapping[str, str]]:
        """What differs, and the folders of both sides, where there are two."""
        if kind in ("changes", "tombstones"):
            files = AppendedFiles(self._session, self.table.run.runtime.storage, proposed)
            added = self._expect(proposed).tombstones(files.schema) if kind == "tombstones" else None
            return files.run(added), {}
        sides = Sides(self._session, self.table.run.runtime.storage, folder, proposed)
        sides.clone()
        sides.propose()
        expected = self._expect(proposed)
        (expected.replica if kind == "replica" else expected.history)(sides.theirs)
        masked = tuple(self.table.spec.mask)
        found = Comparison(sides, self._keys(proposed, kind), masked).run()
        return found, {"ours": sides.ours, "spark": sides.theirs}

    def _expect(self, proposed: ProposedCommit) -> Expected:
        if self._expected is None:
            table = self.table
            # A commit has the plan from before its files were read, which tells of no truncate and no snapshot.
            plan = table.ledger.plan() or proposed.plan
            self._expected = Expected(self._session, table.layout, plan, proposed.table_schema, table.state)
        return self._expected

    def _keys(self, proposed: ProposedCommit, kind: str) -> tuple[str, ...]:
        keys = proposed.table_schema.keys
        return (*keys, *IDENTITY) if kind == "history" else keys

    def _stop(self, proposed: ProposedCommit, kind: str, found: Findings, sides: Mapping[str, str]) -> NoReturn:
        run = self.table.run
        difference = ShadowDifference(
            table=run.spec.table, batch_id=proposed.plan.batch_id, kind=kind, version=proposed.log.version,
            found_at=iso(run.runtime.clock()), sorts=found.sorts, notes=tuple(found.notes[:100]),
            keys=tuple(found.keys), sides=sides,
        )  # fmt: skip
        KeptDifferences.of(run).keep(difference)
        self.table.totals.add({"shadow.compared": 1, "shadow.differences": 1, "shadow.seconds": self._seconds})
        raise difference_error(difference)


def difference_error(found: ShadowDifference) -> RetriableError:
    counts = ", ".join(f"{count} {sort}" for sort, count in sorted(found.sorts.items()))
    what = f"our commit to the {found.kind} differs from Spark's MERGE, and was not made: {counts}"
    remedy = (
        f"`gddl shadow show --table {found.table}` shows both sides. The next runs commit by MERGE, until "
        f"`gddl shadow release --table {found.table} --reason TEXT` says that a person has looked"
    )
    return RetriableError(DIFFERENCE_CODE, what, where=f"batch {found.batch_id}", remedy=remedy)
