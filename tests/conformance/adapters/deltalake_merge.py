"""A job that keeps a Delta table by `DeltaTable.merge` of the package deltalake: the newest change of each key."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from tests.conformance.adapters.usual_job import newest, table_of
from tests.conformance.delivery import Delivery, Outcome
from tests.conformance.judging import NO_CODE


def play(delivery: Delivery, folder: Path) -> Outcome:
    """A merge for each arrival. What a file can't be read by ends the job, as it would on a schedule."""
    path = str(folder / "table")
    refused = ""
    for arrival in delivery.arrivals:
        try:
            _merge(path, delivery, table_of(delivery, newest(delivery, arrival)))
            refused = ""
        except Exception:  # noqa: BLE001 - a job that fails says so
            refused = NO_CODE
    if not DeltaTable.is_deltatable(path):
        return Outcome(None, {}, refused)
    rows = DeltaTable(path).to_pyarrow_table().to_pylist()
    return Outcome(tuple(rows), {}, refused)


def _merge(path: str, delivery: Delivery, batch: pa.Table) -> None:
    names = [name for name in batch.column_names if name != "_deleted"]
    if not DeltaTable.is_deltatable(path):
        write_deltalake(path, batch.slice(0, 0).select(names))
    on = " AND ".join(f"t.{name} = s.{name}" for name in delivery.keys)
    values = {name: f"s.{name}" for name in names}
    merger = DeltaTable(path).merge(batch, on, source_alias="s", target_alias="t")
    merger = merger.when_matched_delete("s._deleted").when_matched_update(values, "NOT s._deleted")
    merger.when_not_matched_insert(values, "NOT s._deleted").execute()
