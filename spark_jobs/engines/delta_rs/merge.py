"""A batch's outcome, written to replica and history."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from airflow_gddl.contract.result import MainCounts
from spark_jobs.engines.delta_commits import main_counts, merge_metrics
from spark_jobs.engines.delta_rs.batch_context import BatchContext, KeyMatches
from spark_jobs.engines.delta_rs.small_files import place_new_rows
from spark_jobs.engines.delta_rs.versions import update_history
from spark_jobs.engines.transactions import MERGE
from spark_jobs.rules.arrays import by_name
from spark_jobs.rules.figures import Applied
from spark_jobs.rules.merge import ACTION
from spark_jobs.rules.outcome import Outcome, warnings_of


@dataclass(frozen=True, kw_only=True)
class MergeWriter:
    """See `MergeWork`.

    Attributes:
        keys: of the batch.
        found: rows of the replica that may have these keys.
    """

    batch_context: BatchContext
    keys: pa.Table
    found: KeyMatches
    outcome: Outcome

    def merge(self) -> Applied:
        batch_context, path = self.batch_context, self.batch_context.layout.replica
        warnings = warnings_of(self.outcome, batch_context.table_schema)
        done = batch_context.has_made(path, MERGE)
        main = main_counts(batch_context.metrics(path, MERGE)) if done else self._put()
        return Applied(main=main, warnings=warnings, late=self.outcome.late)

    def _put(self) -> MainCounts:
        """Write the outcome: name changed rows in vectors, or rewrite their files; and add new rows."""
        batch_context, path, outcome = self.batch_context, self.batch_context.layout.replica, self.outcome.rows
        snapshot = batch_context.tables.existing(path)
        counts = self.outcome.counts
        if snapshot.writes_vectors:
            rows = self.found.written(outcome, snapshot.schema.arrow)
            deleted = self.found.deleted(outcome)
            batch_context.commit(path, MERGE, merge_metrics(counts), [rows], deleted=deleted)
            return counts
        added, removed = self.found.rewritten(outcome, snapshot.schema.arrow)
        fresh = by_name(outcome.filter(pc.equal(outcome.column(ACTION), "insert")), snapshot.schema.arrow)
        place_new_rows(batch_context.tables, snapshot, fresh, added, removed)
        batch_context.commit(path, MERGE, merge_metrics(counts), added, removed)
        return counts

    def history(self, generation_low_watermarks: tuple[str | None, ...], *, swept: int) -> None:
        update_history(self.batch_context, self.keys, generation_low_watermarks, swept)
