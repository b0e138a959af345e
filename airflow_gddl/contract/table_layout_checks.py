"""Checks of the replica's file layout: clustering and partition columns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.contract.spec_problem import FieldPath, SpecProblem
from airflow_gddl.contract.table_spec import lowered

MAX_CLUSTER_COLUMNS = 4
_EXPRESSION = re.compile(r"\s*(\w+)\s*\((.*)\)\s*", re.DOTALL)
"""`days(at)`, `bucket(16, id)`: Iceberg and SQL have such partitions, Delta has none."""


def check_clustering(spec: TableSpec) -> Iterator[SpecProblem]:
    """Columns of `cluster_by`."""
    if len(spec.cluster_by) > MAX_CLUSTER_COLUMNS:
        message = f"more columns than the {MAX_CLUSTER_COLUMNS} that Delta clusters by"
        yield SpecProblem("CLUSTER_INVALID", ("cluster_by",), list(spec.cluster_by), message, "keep the most selective")
    yield from _expressions("cluster_by", spec.cluster_by, "CLUSTER_INVALID")
    if len(lowered(spec.cluster_by)) < len(spec.cluster_by):
        message = "the same column twice"
        yield SpecProblem("CLUSTER_INVALID", ("cluster_by",), list(spec.cluster_by), message, "name each column once")


def _expressions(field: str, names: Iterable[str], code: str) -> Iterator[SpecProblem]:
    """Refuse expressions in place of columns."""
    for i, name in enumerate(names):
        if found := _EXPRESSION.fullmatch(name):
            arguments = (part.strip() for part in found[2].split(","))
            column = next((part for part in arguments if part and not part.isdigit()), "...")
            message = "an expression; Delta takes columns alone"
            remedy = f"write cluster_by: [{column}]"
            if field == "partition_by":
                remedy += ", or deliver a column of such values and name that"
            yield SpecProblem(code, (field, i), name, message, remedy)


def check_partitions(spec: TableSpec) -> Iterator[SpecProblem]:
    """Columns of `partition_by`, as far as they can be checked without data; see
    `plan.enforcement.require_partitions`."""
    path: FieldPath = ("partition_by",)
    if spec.partition_by and spec.cluster_by:
        message = "Delta clusters no table that has partitions"
        yield SpecProblem("PARTITION_INVALID", path, list(spec.partition_by), message, "keep one, usually cluster_by")
    if len(lowered(spec.partition_by)) < len(spec.partition_by):
        yield SpecProblem(
            "PARTITION_INVALID", path, list(spec.partition_by), "the same column twice", "name each column once"
        )
    yield from _expressions("partition_by", spec.partition_by, "PARTITION_INVALID")
    masked, control = lowered(spec.mask), lowered(spec.sequence_by)
    control |= lowered(name for name in (spec.columns_to_update, spec.force_update) if name is not None)
    included = lowered((*spec.columns, *spec.keys)) if spec.columns is not None else lowered(spec.partition_by)
    for i, column in enumerate(spec.partition_by):
        if column.lower() not in included:
            message = "a column that is missing in columns, so the replica can't be partitioned by it"
            yield SpecProblem("COLUMN_EXCLUDED", (*path, i), column, message, "add it to columns")
        if column.lower() in masked:
            message = "a masked column: folders' names would show its masked values, or all be one"
            yield SpecProblem("PARTITION_INVALID", (*path, i), column, message, "partition by another column")
        if column.lower() in control:
            message = "a column with another value in each change: a partition for each of them"
            yield SpecProblem("PARTITION_INVALID", (*path, i), column, message, "partition by another column")
