"""Every table of the metadata in one short row: what lists and filters of thousands of tables need of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from airflow_gddl.contract import durations
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.metadata.topology.pipelines import Pipeline


@dataclass(frozen=True)
class TableRow:
    """A table and who loads it.

    Attributes:
        dag_id: the pipeline that loads it; null when none does.
        tier: the row's `size`.
        freshness: longest allowed lag in seconds; null for none.
    """

    table: str
    source: str
    tier: str
    priority: str
    owner: str | None = None
    freshness: int | None = None
    enabled: bool = True
    dag_id: str | None = None


def row_of(spec: TableSpec, dag_id: str | None) -> TableRow:
    return TableRow(
        table=spec.table,
        source=spec.source,
        tier=spec.size,
        priority=spec.priority,
        owner=spec.owner,
        freshness=durations.seconds(spec.freshness) if spec.freshness else None,
        enabled=spec.enabled,
        dag_id=dag_id,
    )


def table_rows(specs: Iterable[TableSpec], made: Iterable[Pipeline]) -> tuple[TableRow, ...]:
    """A row for each table, disabled ones too, sorted by name.

    Args:
        made: the pipelines of these tables.
    """
    by_table: Mapping[str, str] = {table: pipeline.dag_id for pipeline in made for table in pipeline.tables}
    return tuple(row_of(spec, by_table.get(spec.table)) for spec in sorted(specs, key=lambda spec: spec.table))
