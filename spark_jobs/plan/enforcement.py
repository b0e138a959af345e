"""What stops a batch before anything is written: missing keys, types no table holds, and policies of `fail`."""

from __future__ import annotations

from collections.abc import Mapping

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.sql_types import SqlType, quote, unsupported_part, without_void
from airflow_gddl.contract.table_spec import SchemaEvolution
from spark_jobs.plan.columns import LandedGroup, Schema, landed_name
from spark_jobs.plan.merging import NOTHING, Path, extra_fields, merge
from spark_jobs.plan.refusal import FieldDifference, refusal

PARTITION_TYPES = ("boolean", "tinyint", "smallint", "int", "bigint", "date", "string")
"""Types of partition columns. Readers disagree on how folders spell times and fractions."""


def require_keys(target: Schema, groups: tuple[LandedGroup, ...], keys: Mapping[str, str]) -> None:
    """Every group has every key, and the target knows its type.

    Args:
        keys: landed names in lower case to the names that the metadata uses.

    Raises:
        FatalError: `KEY_COLUMN_MISSING`.
    """
    for name, key in keys.items():
        lacking = [group.incoming for group in groups if group.column(name) is None or target.column(name) is None]
        if lacking:
            has = ", ".join(quote(column.name) for column in lacking[0].columns) or "none"
            raise FatalError(
                "KEY_COLUMN_MISSING",
                f"key column {key!r} is missing, or holds nothing but nulls; columns of the file: {has}",
                where=", ".join(group.label for group in lacking),
                remedy="correct keys of the table, or the columns that the source delivers",
            )


def require_supported(table: Schema | None, target: Schema, groups: tuple[LandedGroup, ...]) -> None:
    """What the batch adds is of types that a table can hold; what the table has already is its own affair.

    Raises:
        FatalError: `COLUMN_TYPE_UNSUPPORTED`.
    """
    for column in target.columns:
        known = table.column(column.name) if table else None
        part = unsupported_part(column.type)
        if part is not None and known != column:
            labels = [g.incoming.label for g in groups if (c := g.column(column.name)) and unsupported_part(c.type)]
            raise FatalError(
                "COLUMN_TYPE_UNSUPPORTED",
                f"column {column} cannot be added: no table holds the type {part}",
                where=", ".join(labels),
                remedy="put it into exclude_columns, or set schema_evolution.new_column to rescue or ignore",
            )


def require_clusters(target: Schema, names: tuple[str, ...]) -> None:
    """Rows are ordered by columns of the table.

    Raises:
        FatalError: `CLUSTER_COLUMN_MISSING`.
    """
    for name in names:
        if target.column(landed_name(name)) is None:
            raise FatalError(
                "CLUSTER_COLUMN_MISSING",
                f"cluster_by names {name!r}, which is not among the table's columns: {', '.join(target.names)}",
                remedy="correct cluster_by, or load files that have the column first",
            )


def require_partitions(target: Schema, names: tuple[str, ...]) -> None:
    """Partition columns are columns of the table, of types whose values every reader finds in folders' names.

    Raises:
        FatalError: `PARTITION_COLUMN_MISSING`, `PARTITION_TYPE_UNSUPPORTED`.
    """
    for name in names:
        column = target.column(landed_name(name))
        if column is None:
            raise FatalError(
                "PARTITION_COLUMN_MISSING",
                f"partition_by names {name!r}, which is not among the table's columns: {', '.join(target.names)}",
                remedy="correct partition_by, or load files that have the column first",
            )
        if str(column.type) not in PARTITION_TYPES:
            raise FatalError(
                "PARTITION_TYPE_UNSUPPORTED",
                f"partition column {column} is none of {', '.join(PARTITION_TYPES)}",
                remedy="partition by a column of such a type, e.g. a date, or use cluster_by",
            )


def refuse(table: Schema | None, target: Schema, groups: tuple[LandedGroup, ...], policy: SchemaEvolution) -> None:
    """Find everything that policies of `fail` refuse, against the target that `evolve` made under the same policies.

    Raises:
        FatalError: `SCHEMA_REFUSED`, with every difference of the batch.
    """
    differences: list[FieldDifference] = []
    for group in groups:
        if policy.new_column == "fail":
            differences += _new_fields(target, group)
        if policy.type_change == "fail":
            differences += _misfits(target, group)
    if policy.dropped_column == "fail":
        differences += _dropped(target, groups)
    if differences:
        raise refusal(table, tuple(differences))


def _new_fields(target: Schema, group: LandedGroup) -> list[FieldDifference]:
    found: list[FieldDifference] = []
    for column in group.columns:
        known = target.column(column.name)
        kind = without_void(column.type)
        if known is None and kind is not None:
            found.append(FieldDifference("new_column", group.incoming, (column.name,), None, kind))
        elif known is not None:
            extras = extra_fields(known.type, column.type, (known.name,))
            found += [FieldDifference("new_column", group.incoming, extra.path, None, extra.type) for extra in extras]
    return found


def _misfits(target: Schema, group: LandedGroup) -> list[FieldDifference]:
    pairs = [(known, column) for column in group.columns if (known := target.column(column.name)) is not None]
    return [
        FieldDifference("type_change", group.incoming, (known.name,), known.type, column.type)
        for known, column in pairs
        if merge(known.type, column.type, NOTHING) is None
    ]


def _dropped(target: Schema, groups: tuple[LandedGroup, ...]) -> list[FieldDifference]:
    """Fields that a group lacks and no later group brings.

    A file from before a column was added lacks it too; looking at the batch from its end, rather than at the table as
    it was, gives the same answer when the batch is repeated after the column was added.
    """
    found: list[FieldDifference] = []
    gone: list[set[Path]] = []
    for group in reversed([group for group in groups if not group.incoming.only_deletes]):
        missing = _missing(target, group)
        gone.append({_folded(path) for path in missing})
        lost = [path for path in missing if all(_covers(later, _folded(path)) for later in gone)]
        found[:0] = [FieldDifference("dropped_column", group.incoming, path, missing[path], None) for path in lost]
    return found


def _missing(target: Schema, group: LandedGroup) -> dict[Path, SqlType]:
    """Columns and nested fields of the target that a group lacks, outermost only, with their types in the table."""
    missing: dict[Path, SqlType] = {}
    for column in target.columns:
        found = group.column(column.name)
        if found is None:
            missing[(column.name,)] = column.type
        else:
            missing |= {m.path: m.type for m in extra_fields(found.type, column.type, (column.name,))}
    return missing


def _folded(path: Path) -> Path:
    return tuple(part.lower() for part in path)


def _covers(missing: set[Path], path: Path) -> bool:
    return any(path[:length] in missing for length in range(1, len(path) + 1))
