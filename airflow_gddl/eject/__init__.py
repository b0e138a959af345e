"""A table's way out: a plain PySpark job and a plain DAG that load it without this package (`gddl eject`)."""

from __future__ import annotations

import pprint
from collections.abc import Collection, Iterator, Mapping
from importlib import resources
from string import Template
from typing import Any

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.extensions import COMMIT_TIMES, TOTAL_ORDER, DmsOptions
from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.spark_versions import newest_pair
from airflow_gddl.contract.spec import TableSpec

FILES = ("job.py", "dag.py", "README.md")
_LOST: Mapping[str, str] = {
    "history": "Keep the history (`__history`): it ends here.",
    "expect": "Check the expectations of the row.",
    "derive": "Compute the columns of `derive`: they keep what they had, and are null in new rows.",
    "unique": "Check `unique`.",
    "foreign_key": "Check `foreign_key`.",
    "iceberg": "Write Iceberg metadata.",
    "catalog": "Keep the table's entry in the catalog up to date.",
    "freshness": "Watch `freshness`.",
    "depends_on": "Wait for the tables of `depends_on`.",
    "landing_retention": "Remove landed files.",
    "cluster_by": "Cluster the table.",
    "heartbeat": "Follow the heartbeat.",
    "force_update": "Apply changes regardless of their sequence (`force_update`).",
}


def files_of(spec: TableSpec, layout: Layout, columns: Collection[str], schedule: str | None) -> dict[str, str]:
    """The files of a table, by name.

    Args:
        columns: of the replica.
        schedule: for Airflow; null: none.

    Raises:
        FatalError: `EJECT_UNSUPPORTED`: a plain job would load the table wrong.
    """
    require_plain(spec)
    spark, delta = newest_pair()
    values = {
        "table": spec.table, "landing": _for_spark(layout.landing), "replica": _for_spark(layout.replica),
        "changes": _for_spark(layout.changes), "checkpoint": _for_spark(f"{layout.replica}__files"),
        "keys": _code(list(spec.keys)),
        "sequence": _code(list(sequence_of(spec, columns))), "operation": _options(spec).op_column,
        "rename": _code(dict(spec.rename)), "only": _code(None if spec.columns is None else sorted(spec.columns)),
        "left_out": _code(sorted({*spec.exclude_columns, *spec.mask})), "spark": spark, "delta_package": delta,
        "dag_id": spec.table.replace(".", "_"), "schedule": repr(schedule),
        "schedule_note": f"scheduled as the row was ({schedule})" if schedule else "without a schedule",
        "lost": "".join(f"\n- {line}" for line in lost_by(spec)),
    }  # fmt: skip
    return {name: Template(_template(name)).substitute(values) for name in FILES}


def require_plain(spec: TableSpec) -> None:
    """
    Raises:
        FatalError: `EJECT_UNSUPPORTED`.
    """
    for reason in reasons_against(spec):
        what = f"{spec.table}: {reason}, which a plain job of some 150 lines would load wrong"
        remedy = "keep the row, or write the job by hand; the tables are plain Delta tables in any case"
        raise FatalError("EJECT_UNSUPPORTED", what, remedy=remedy)


def reasons_against(spec: TableSpec) -> Iterator[str]:
    """What of a row a plain job can't do."""
    yes = {
        f"its files are {spec.dialect}'s": spec.dialect != "dms",
        "its files are snapshots (`mode: snapshots`)": spec.mode != "changes",
        "it has no keys": not spec.keys,
        "it has `shards`": bool(spec.shards),
        "its updates carry parts of rows (`columns_to_update`, `ignore_null_updates`)": bool(
            spec.columns_to_update or spec.ignore_null_updates
        ),
        "updates may move rows to other keys (`before_image_prefix`)": spec.before_image_prefix is not None,
        "a key is masked": not {*spec.mask}.isdisjoint(spec.keys),
        "rows are filtered (`where`)": spec.where is not None,
        "deleted rows stay (`delete: soft`)": spec.delete == "soft",
        "its files are CSV or have text for values (`options`)": bool(
            _options(spec).csv_header or _options(spec).csv_columns or _options(spec).types
        ),
    }
    return (reason for reason, found in yes.items() if found)


def sequence_of(spec: TableSpec, columns: Collection[str]) -> tuple[str, ...]:
    """Columns that order changes.

    Raises:
        FatalError: `EJECT_UNSUPPORTED`: none is known.
    """
    named = _options(spec).timestamp_column
    usual = (*TOTAL_ORDER, *((named,) if named else ()), *COMMIT_TIMES)
    found = spec.sequence_by or tuple(name for name in usual if name in columns)[:1]
    if not found:
        what = f"{spec.table} has no column that orders its changes"
        raise FatalError("EJECT_UNSUPPORTED", what, remedy="name one in the row: `sequence_by`")
    return found


def lost_by(spec: TableSpec) -> list[str]:
    """What of a row's fields the job no longer does, a sentence each; what no such job does is in the template."""
    own = [text for name, text in _LOST.items() if getattr(spec, name)]
    masked = [f"Fill masked columns ({', '.join(sorted(spec.mask))}): they are left out, and null in new rows."]
    return [*own, *(masked if spec.mask else [])]


def _options(spec: TableSpec) -> DmsOptions:
    known: dict[str, Any] = dict(spec.options) if spec.dialect == "dms" else {}
    return DmsOptions(**{name: known[name] for name in DmsOptions.__dataclass_fields__ if name in known})


def _for_spark(path: str) -> str:
    """A path as Spark's open-source distribution reads it."""
    return path.replace("s3://", "s3a://", 1) if path.startswith("s3://") else path


def _code(value: object) -> str:
    return pprint.pformat(value, width=100)


def _template(name: str) -> str:
    return resources.files(__package__).joinpath("templates", f"{name}.txt").read_text("utf-8")
