"""Columns of the replica in a result."""

from __future__ import annotations

from airflow_gddl.contract.result import ResultColumn
from spark_jobs.delta.table_definition import replica_columns
from spark_jobs.plan.selection import select_columns
from spark_jobs.rules.batch_schema import BatchSchema


def columns_of(schema: BatchSchema) -> tuple[ResultColumn, ...]:
    """The replica's columns after a batch, in table order.

    A column that the batch's files lack has its own name as its source, and is masked as the metadata says.
    """
    table = schema.table_schema
    delivered = {column.name for column in table.data}
    sources: dict[str, tuple[str, ...]] = dict.fromkeys(delivered, ())
    masked = set()
    for group in schema.groups:
        for action in group.plan.actions:
            if action.source is not None:
                known = sources.get(action.target.name, ())
                sources[action.target.name] = tuple(dict.fromkeys((*known, action.source)))
                masked |= {action.target.name} if action.source in group.masks else set()
    absent = [name for name in delivered if not sources[name]]
    sources |= {name: (name,) for name in absent}
    masked |= set(select_columns(absent, table.spec, stored=True).masks)
    return tuple(
        ResultColumn(
            name=column.name, type=str(column.type), sources=sources.get(column.name, ()), masked=column.name in masked
        )
        for column in replica_columns(table)
    )
