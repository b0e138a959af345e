"""A batch's outcome, written to replica and history."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from airflow_gddl.contract.result import MainCounts
from spark_jobs.engines.delta_commits import main_counts, merge_metrics
from spark_jobs.engines.delta_rs.batch_context import BatchContext, KeyMatches
from spark_jobs.engines.delta_rs.rewrite import rewritten
from spark_jobs.engines.delta_rs.small_files import FULL, with_smallest
from spark_jobs.engines.delta_rs.versions import update_history
from spark_jobs.engines.transactions import MERGE
from spark_jobs.rules.arrays import by_name
from spark_jobs.rules.figures import Applied
from spark_jobs.rules.merge import ACTION
from spark_jobs.rules.outcome import Outcome, unknown_keys_warning


@dataclass(frozen=True, kw_only=True)
class MergeWriter:
    """See `MergeWork`.

    Attributes:
        keys: of the batch.
        found: rows of the replica that may have them.
    """

    site: BatchContext
    keys: pa.Table
    found: KeyMatches
    outcome: Outcome

    def merge(self) -> Applied:
        site, path = self.site, self.site.layout.replica
        warnings = unknown_keys_warning(self.outcome.unknown_keys, site.table_schema)
        done = site.has_made(path, MERGE)
        main = main_counts(site.tables.metrics(path, MERGE, site.transaction)) if done else self._put()
        return Applied(main=main, warnings=warnings, late=self.outcome.late)

    def _put(self) -> MainCounts:
        """Write what is decided: files that hold a changed row anew, new rows into one of them or the smallest file."""
        site, path, outcome = self.site, self.site.layout.replica, self.outcome.rows
        snapshot = site.tables.existing(path)
        added, removed = rewritten(self.found, outcome, snapshot.schema.arrow)
        fresh = by_name(outcome.filter(pc.equal(outcome.column(ACTION), "insert")), snapshot.schema.arrow)
        if fresh.num_rows and removed:
            least = min(range(len(removed)), key=lambda i: removed[i].size)
            if removed[least].size <= FULL:  # so that no file grows for ever
                added[least] = pa.concat_tables([added[least], fresh])
            else:
                added.append(fresh)
        elif fresh.num_rows:
            whole, small = with_smallest(site.tables, snapshot, fresh)
            added.append(whole)
            removed += small
        counts = self.outcome.counts
        metrics = merge_metrics(counts)
        site.tables.commit(path, site.write(MERGE, [a for a in added if a.num_rows], removed, metrics))
        return counts

    def history(self, generation_low_watermarks: tuple[str | None, ...], *, swept: int) -> None:
        update_history(self.site, self.keys, generation_low_watermarks, swept)
