"""Changes of landing files that are in no table yet, as one process reads them, to compare with another table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from airflow_gddl.contract.codes import FILES_CHANGED
from airflow_gddl.contract.errors import RetriableError
from spark_jobs.batch.runtime import iso
from spark_jobs.batch.table_run import TableRun
from spark_jobs.plan.planned_batch import BatchPlan, PlannedFile, TableState
from spark_jobs.plan.table_schema import TableSchema
from spark_jobs.rules.arrays import by_name
from spark_jobs.rules.batch_schema import BatchSchema
from spark_jobs.rules.fold import newest_state
from spark_jobs.rules.order import as_events, for_both_keys, gddl_fields, keys_json
from spark_jobs.rules.stored_columns import change_schema
from spark_jobs.tables.batch_in_memory import WholeBatchReader
from spark_jobs.tables.table_context import TableContext

_TOGETHER = 64 * 1024**2
"""Bytes of files that are read together."""


@dataclass(frozen=True)
class LandedChanges:
    """Reads changes of landed files as events, apart from any batch.

    Attributes:
        state: of the table, or of one that has nothing but keys.
    """

    run: TableRun
    context: TableContext
    state: TableState

    def keys(self, files: Sequence[PlannedFile]) -> dict[str, set[str]]:
        """Keys that each file has changes of, as `keys_json` writes them, by its path; none of what can't be read.

        A change that moved its row is one of both keys.
        """
        found: dict[str, set[str]] = {file.path: set() for file in files}
        for changes, decoded in self._parts(files):
            schema = decoded.table_schema
            happened = as_events(for_both_keys(changes, schema), schema)
            paths = gddl_fields(happened)["source_file"].to_pylist()
            for path, key in zip(paths, keys_json(happened, schema), strict=True):
                found.setdefault(path, set()).add(key)
        return found

    def net(self, files: Sequence[PlannedFile]) -> tuple[pa.Table, TableSchema, frozenset[str]] | None:
        """What the files come to, all in memory; None: no file can be read, or there is none.

        Returns:
            A row for each key, see `fold.net_changes`, the schema by which they were decoded, and columns that some
            file has.
        """
        parts = list(self._parts(files))
        if not parts:
            return None
        schema = parts[-1][1].table_schema
        kinds = change_schema(schema)
        changes = pa.concat_tables([by_name(part, kinds) for part, _ in parts])
        delivered = frozenset(
            action.target.name
            for _, decoded in parts for group in decoded.groups for action in group.plan.actions
            if action.source is not None
        )  # fmt: skip
        happened = as_events(for_both_keys(changes, schema), schema)
        return newest_state(happened, schema, 0), schema, delivered

    def _parts(self, files: Sequence[PlannedFile]) -> Iterator[tuple[pa.Table, BatchSchema]]:
        """Changes, and what they were decoded by."""
        sizes = np.cumsum([0, *(file.size for file in files)])
        numbers = sizes[:-1] // _TOGETHER
        for number in np.unique(numbers):
            together = tuple(files[at] for at in np.flatnonzero(numbers == number).tolist())
            plan = BatchPlan(
                number=self.state.batch + 1, mode="incremental", planned_at=iso(self.run.runtime.clock()),
                generation=max(1, self.state.generation), files=together,
            )  # fmt: skip
            decoded, _ = WholeBatchReader(context=self.context, plan=plan, state=self.state).decode(None)
            if decoded is not None:
                yield decoded.good, decoded.decoded_batch.schema


def vanished(run: TableRun, path: str, error: FileNotFoundError) -> RetriableError:
    """The other writer of a table has removed a file that was about to be read."""
    what = f"{run.spec.table}: a file of the other job's table has vanished while it was read: {error}"
    remedy = "run it again, which reads the newest version; keep VACUUM of the other job away meanwhile"
    return RetriableError(FILES_CHANGED, what, where=path, remedy=remedy)
