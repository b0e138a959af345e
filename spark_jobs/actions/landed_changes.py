"""Changes of landing files that are in no table yet, as one process reads them: for what an adoption proves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.batch.runtime import iso
from spark_jobs.batch.table_run import TableRun
from spark_jobs.dialects.protocol import Unreadable
from spark_jobs.plan.planned_batch import BatchPlan, PlannedFile, TableState
from spark_jobs.plan.table_schema import TableSchema
from spark_jobs.rules.arrays import by_name
from spark_jobs.rules.batch_schema import BatchSchema
from spark_jobs.rules.fold import newest_state
from spark_jobs.rules.order import as_events, for_both_keys, gddl_fields, keys_json
from spark_jobs.rules.stored_columns import change_schema
from spark_jobs.tables.batch_in_memory import WholeBatchReader
from spark_jobs.tables.engine import TableContext

_TOGETHER = 64 * 1024**2
"""Bytes of files that are read together."""


@dataclass(frozen=True, kw_only=True)
class LandedEvents:
    """Events of some landed files, decoded.

    Attributes:
        happened: see `order.events`.
        schema: by which they were decoded.
        delivered: columns that some file has.
        unreadable: paths of files that can't be read.
    """

    happened: pa.Table
    schema: TableSchema
    delivered: frozenset[str]
    unreadable: tuple[str, ...]

    @property
    def net(self) -> pa.Table:
        """One row for each key, see `fold.net_changes`."""
        return newest_state(self.happened, self.schema, 0)


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

    def events(self, files: Sequence[PlannedFile]) -> LandedEvents | None:
        """Events of the files, all in memory; None: no file can be read, or there is none."""
        unreadable: list[Unreadable] = []
        parts = list(self._parts(files, unreadable))
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
        return LandedEvents(
            happened=as_events(for_both_keys(changes, schema), schema), schema=schema, delivered=delivered,
            unreadable=tuple(one.file.path for one in unreadable),
        )  # fmt: skip

    def _parts(
        self, files: Sequence[PlannedFile], unreadable: list[Unreadable] | None = None
    ) -> Iterator[tuple[pa.Table, BatchSchema]]:
        """Changes, and what they were decoded by.

        Args:
            unreadable: gets the files that can't be read.
        """
        sizes = np.cumsum([0, *(file.size for file in files)])
        numbers = sizes[:-1] // _TOGETHER
        for number in np.unique(numbers):
            together = tuple(files[at] for at in np.flatnonzero(numbers == number).tolist())
            plan = BatchPlan(
                number=self.state.batch + 1, mode="incremental", planned_at=iso(self.run.runtime.clock()),
                generation=max(1, self.state.generation), files=together,
            )  # fmt: skip
            decoded, unread = WholeBatchReader(context=self.context, plan=plan, state=self.state).decode(None)
            if unreadable is not None:
                unreadable.extend(unread)
            if decoded is not None:
                yield decoded.good, decoded.decoded_batch.schema


def is_delete(net: pa.Table) -> np.ndarray:
    """Whether each row of `LandedEvents.net` says that its key has no row."""
    return np.asarray(pc.equal(gddl_fields(net)["op"], "D"))
