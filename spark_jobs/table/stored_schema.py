"""The schema that a table was last written with."""

from __future__ import annotations

from spark_jobs.engines.base import TableContext
from spark_jobs.plan.batch import TableState
from spark_jobs.plan.table_schema import TableSchema
from spark_jobs.rules.batch_schema import plan_batch


def stored_schema(context: TableContext, state: TableState) -> TableSchema:
    """As its change table and the ledger tell it."""
    return plan_batch(context.dialect, (), context.stored_columns(), state).table_schema
