"""View of tables in Airflow: a DAG each, a mapped task instance each, or only the pack. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from airflow_gddl.contract.spec import AirflowView, TableSpec, TierSpec

MAPPED_UP_TO = 500
"""Tables in packs up to which packs are `mapped` unless metadata says otherwise: each run then has a task instance for
each table with work, and a task instance takes a worker more than a second."""
MOST_MAPPED = 1000
"""Tables of a mapped pack; Airflow refuses to map over more than `[core] max_map_length`, 1024 unless changed."""


def default_view(tables: int) -> AirflowView:
    """Default view of packs.

    Args:
        tables: those of all packs.
    """
    return "mapped" if tables <= MAPPED_UP_TO else "pack"


def has_own_dag(table: TableSpec, tier: TierSpec) -> bool:
    """A job of one table has its own DAG, independent of the view."""
    return tier.tables_per_job == 1 or (table.airflow or tier.airflow) == "table"


def view_of_pack(tables: Iterable[TableSpec], tier: TierSpec, usual: AirflowView) -> AirflowView:
    """The view of tables that share DAGs: `mapped` as soon as one of them is, so that no DAG id depends on the view.

    Args:
        tables: of one tier and schedule; those of a continuous pipeline have one task, which is never mapped.
        usual: see `default_view`.
    """
    views = {table.airflow or tier.airflow or usual for table in tables if table.cadence != "continuous"}
    return "mapped" if "mapped" in views else "pack"
