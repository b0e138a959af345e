"""The epoch of a source's log: how often it was reset before a change was committed.

Positions of different epochs don't compare. From the first reset on they are prefixed with the epoch's number,
which sorts after every position without one.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from airflow_gddl.contract.durations import moment_of
from spark_jobs.dialects.debezium.technical import SEQUENCE, TIME


def with_epochs(table: pa.Table, began: Sequence[str]) -> pa.Table:
    """Rows with the epoch of their commit time in their position.

    Args:
        began: ISO 8601, oldest first.
    """
    if not began or not {SEQUENCE, TIME} <= set(table.column_names):
        return table
    times, positions = table.column(TIME), table.column(SEQUENCE)
    for number, text in enumerate(began, start=1):
        since = pa.scalar(moment_of(text), pa.timestamp("us", "UTC"))
        named = pc.binary_join_element_wise(f"log{number:04d}", table.column(SEQUENCE), ":")
        positions = pc.if_else(pc.fill_null(pc.greater_equal(times, since), False), named, positions)
    return table.set_column(table.column_names.index(SEQUENCE), SEQUENCE, positions)
