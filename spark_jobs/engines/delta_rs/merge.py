"""A batch's outcome, written to replica and history."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from airflow_gddl.contract.result import MainCounts
from spark_jobs.engines.delta_commits import main_counts, merge_metrics
from spark_jobs.engines.delta_rs.batch_context import BatchContext
from spark_jobs.engines.delta_rs.row_search import KeyMatches
from spark_jobs.engines.delta_rs.versions import update_history
from spark_jobs.engines.transactions import MERGE
from spark_jobs.rules.figures import Applied
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
        batch_context, counts = self.batch_context, self.outcome.counts
        snapshot = batch_context.tables.existing(batch_context.layout.replica)
        batch_context.put(snapshot, MERGE, merge_metrics(counts), self.found, self.outcome.rows)
        return counts

    def history(self, generation_low_watermarks: tuple[str | None, ...], *, swept: int) -> None:
        update_history(self.batch_context, self.keys, generation_low_watermarks, swept)
