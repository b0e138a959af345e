"""Checks of a `TableSpec` beyond its types: names, durations and contradicting fields.

The catalog runs these on every metadata row; a job may run them again on its spec. Column names compare
without case, as Delta does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields

from airflow_gddl.contract import durations, targets
from airflow_gddl.contract.option_checks import check_options
from airflow_gddl.contract.published import published_problems
from airflow_gddl.contract.shard_checks import shard_problems
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.contract.spec_problem import FieldPath, SpecProblem
from airflow_gddl.contract.table_layout_checks import check_clustering, check_partitions
from airflow_gddl.contract.table_properties import iceberg_problems, is_allowed
from airflow_gddl.contract.table_spec import lowered

RESERVED_COLUMNS = frozenset({"_gddl", "_rescued_data"})
RESERVED_SUFFIXES = ("__changes", "__history", "__errors")
LEAST_VACUUM_SECONDS = 86_400
CONNECTION_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_NAME_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_$#@ -]{0,127}")
# Part of the DAG ids of packs, so limited to Airflow's characters.
SOURCE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_COLUMN_LISTS = (
    "keys", "sequence_by", "track_history_except", "columns", "exclude_columns", "cluster_by", "partition_by",
)  # fmt: skip
DURATIONS = ("freshness", "trigger", "tombstone_retention", "changes_retention", "vacuum_retention")
WAITS = ("settle", "sweep_after")
"""Durations that may be `0s`."""
_CONTROL_COLUMNS = ("columns_to_update", "force_update")


def check_table(spec: TableSpec) -> tuple[SpecProblem, ...]:
    """All problems of a spec with valid types; empty when there are none."""
    return tuple(problem for check in (*_VALUE_CHECKS, *_ROW_CHECKS) for problem in check(spec))


def check_values(spec: TableSpec) -> tuple[SpecProblem, ...]:
    """Problems of single values only, for defaults, which have no `table` and `keys`."""
    return tuple(problem for check in _VALUE_CHECKS for problem in check(spec))


def _source(spec: TableSpec) -> Iterator[SpecProblem]:
    if not SOURCE_NAME.fullmatch(spec.source):
        remedy = "use letters, digits, _ . and - (64 at most), e.g. source: shop"
        yield SpecProblem("SOURCE_INVALID", ("source",), spec.source, "not valid as part of a DAG id", remedy)


def _target(spec: TableSpec) -> Iterator[SpecProblem]:
    """Check the template; the resulting names are checked with each row."""
    if spec.target is None:
        return
    fault = targets.template_fault(spec.target) or table_name_fault(targets.rendered(spec.target, "s", "a.b"))
    if fault:
        yield SpecProblem("TARGET_INVALID", ("target",), spec.target, fault, targets.REMEDY)


def _substitutions(spec: TableSpec) -> Iterator[SpecProblem]:
    """Refuse `${`: nothing is substituted in rows, and what reads a row's text elsewhere may do so."""
    for item in fields(spec):
        for path, text in _texts(getattr(spec, item.name), (item.name,)):
            if "${" in text:
                message = "holds ${, which other programs replace by variables"
                remedy = "write the value itself; rows name connections, and never hold secrets"
                yield SpecProblem("SUBSTITUTION_REFUSED", path, text, message, remedy)


def _texts(value: object, path: FieldPath) -> Iterator[tuple[FieldPath, str]]:
    """All texts in a field, names in mappings included."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield (*path, name), str(name)
            yield from _texts(inner, (*path, name))
    elif isinstance(value, (tuple, list)):
        for i, inner in enumerate(value):
            yield from _texts(inner, (*path, i))


def _column_names(spec: TableSpec) -> Iterator[SpecProblem]:
    for path, column in _columns(spec):
        if not column.strip():
            yield SpecProblem(
                "COLUMN_INVALID", path, column, "an empty column name", "name the column or drop the entry"
            )
        elif column.lower() in RESERVED_COLUMNS:
            message = "a reserved column name of the replica"
            remedy = "rename the column in the source's view or leave it out of the metadata"
            yield SpecProblem("COLUMN_RESERVED", path, column, message, remedy)


def _columns(spec: TableSpec) -> Iterator[tuple[FieldPath, str]]:
    for name in _COLUMN_LISTS:
        yield from (((name, i), column) for i, column in enumerate(getattr(spec, name) or ()))
    for name in _CONTROL_COLUMNS:
        if (column := getattr(spec, name)) is not None:
            yield (name,), column
    yield from ((("mask", column), column) for column in spec.mask)


def _durations(spec: TableSpec) -> Iterator[SpecProblem]:
    values: dict[FieldPath, object] = {(name,): getattr(spec, name) for name in DURATIONS}
    values["options", "lookback"] = spec.options.get("lookback")
    waits: dict[FieldPath, object] = {(name,): getattr(spec, name) for name in WAITS}
    for path, value in (values | {p: v for p, v in waits.items() if v != durations.NO_WAIT}).items():
        if isinstance(value, str) and not durations.is_duration(value):
            yield SpecProblem("DURATION_INVALID", path, value, "not a duration", durations.remedy(value))


def _retention(spec: TableSpec) -> Iterator[SpecProblem]:
    kept = spec.vacuum_retention
    if durations.is_duration(kept) and durations.seconds(kept) < LEAST_VACUUM_SECONDS:
        message = "shorter than a running query may take"
        yield SpecProblem("RETENTION_TOO_SHORT", ("vacuum_retention",), kept, message, "write 1d or more")


def _sweep_limit(spec: TableSpec) -> Iterator[SpecProblem]:
    if not 0 <= spec.sweep_limit <= 1:  # also true for NaN
        message = "not a fraction"
        yield SpecProblem("FIELD_VALUE", ("sweep_limit",), spec.sweep_limit, message, "write a number from 0 to 1")


def _cutting(spec: TableSpec) -> Iterator[SpecProblem]:
    """Refuse retention where fields need the complete change table."""
    if spec.changes_retention is None:
        return
    for name, is_set in (("history", spec.history), ("force_update", spec.force_update is not None)):
        if is_set:
            message = f"{name} needs the complete change table"
            remedy = f"keep all changes (null), or remove {name}"
            yield SpecProblem(
                "CHANGES_RETENTION_REFUSED", ("changes_retention",), spec.changes_retention, message, remedy
            )


def _trigger(spec: TableSpec) -> Iterator[SpecProblem]:
    if spec.trigger is not None and spec.schedule not in ("continuous", TableSpec.schedule):
        message = f"trigger makes a table continuous, which excludes another schedule, here {spec.schedule!r}"
        yield SpecProblem(
            "TRIGGER_REFUSED", ("trigger",), spec.trigger, message, "write schedule: continuous, or drop trigger"
        )


def _connection(spec: TableSpec) -> Iterator[SpecProblem]:
    name = spec.options.get("verify_connection")
    if isinstance(name, str) and not CONNECTION_NAME.fullmatch(name):
        message = "not the name of an environment variable or of an Airflow connection"
        remedy = "put the URL into a variable, and its name here, e.g. GDDL_SOURCE_SHOP"
        # The value may be a URL with a password in it: it is not shown.
        yield SpecProblem("CONNECTION_INVALID", ("options", "verify_connection"), "(not shown)", message, remedy)


def _properties(spec: TableSpec) -> Iterator[SpecProblem]:
    for key, value in spec.table_properties.items():
        path = ("table_properties", key)
        if key.lower().startswith(("gddl.", "delta.columnmapping.")):
            message = "a property that is reserved for this package"
            yield SpecProblem("PROPERTY_RESERVED", path, value, message, "remove it from table_properties")
        elif not key.strip():
            yield SpecProblem("PROPERTY_INVALID", path, value, "a property without a name", "name it or remove it")
        elif not is_allowed(key):
            message = "not one of the properties that a row may set"
            remedy = "see docs/metadata.md#table-properties; write names of your own as user.name, or use tags"
            yield SpecProblem("PROPERTY_REFUSED", path, value, message, remedy)


def _prefix(spec: TableSpec) -> Iterator[SpecProblem]:
    if spec.before_image_prefix is not None and not spec.before_image_prefix.strip():
        message = "an empty prefix makes every column a before image"
        remedy = "write the prefix of the task's before-image columns, e.g. BI_, or null"
        yield SpecProblem("PREFIX_INVALID", ("before_image_prefix",), spec.before_image_prefix, message, remedy)


def _table_name(spec: TableSpec) -> Iterator[SpecProblem]:
    if fault := table_name_fault(spec.table):
        remedy = "write schema.name as in the source, e.g. shop.orders"
        yield SpecProblem("TABLE_NAME_INVALID", ("table",), spec.table, fault, remedy)


def table_name_fault(table: str) -> str:
    """Why a table can't have this name; empty when it can."""
    schema, dot, name = table.partition(".")
    if not dot:
        return "not schema.name: it has no dot"
    for part in (schema, name):
        if not _NAME_PART.fullmatch(part) or part != part.strip():
            return (
                "schema and name are ASCII letters, digits, _ $ # @ - or inner blanks, 1 to 128 each, one dot between"
            )
        if part.lower().startswith("_gddl"):
            return "names that start with _gddl are this package's own"
    if name.lower().endswith(RESERVED_SUFFIXES):
        return f"names that end with {', '.join(RESERVED_SUFFIXES)} are this package's own"
    return ""


def _keys(spec: TableSpec) -> Iterator[SpecProblem]:
    excluded = lowered(spec.exclude_columns)
    seen: set[str] = set()
    for i, key in enumerate(spec.keys):
        if key.lower() in seen:
            message = "the same key column twice (case does not count)"
            yield SpecProblem("KEYS_DUPLICATE", ("keys", i), key, message, "name each key column once")
        if key.lower() in excluded:
            message = "a key that exclude_columns leaves out; keys always reach the lake"
            remedy = "remove it from exclude_columns, or mask it with hash"
            yield SpecProblem("KEYS_EXCLUDED", ("keys", i), key, message, remedy)
        seen.add(key.lower())


def _mask(spec: TableSpec) -> Iterator[SpecProblem]:
    keys, ordering, control = lowered(spec.keys), lowered(spec.sequence_by), lowered(_control(spec).values())
    for column, method in spec.mask.items():
        path = ("mask", column)
        if column.lower() in keys and method == "null":
            message = "a key masked with null: every row would have the same key"
            yield SpecProblem("MASK_REFUSED", path, method, message, "mask it with hmac or hash, or not at all")
        if column.lower() in ordering | control:
            message = "masks apply before changes are ordered and applied, which need this column's values"
            remedy = "remove the column from mask; exclude_columns keeps a sequence column out of the lake"
            yield SpecProblem("MASK_REFUSED", path, method, message, remedy)


def _exclusions(spec: TableSpec) -> Iterator[SpecProblem]:
    excluded, included = lowered(spec.exclude_columns), lowered(spec.columns or ())
    for name, column in _control(spec).items():
        if column.lower() in excluded:
            message = "a column that exclude_columns removes, but that is needed to apply changes"
            yield SpecProblem("COLUMN_EXCLUDED", (name,), column, message, "take it out of exclude_columns")
    for i, column in enumerate(spec.exclude_columns):
        if column.lower() in included:
            message = "a column in both columns and exclude_columns"
            yield SpecProblem("COLUMNS_OVERLAP", ("exclude_columns", i), column, message, "name it in one of the two")
    for field, what in (("cluster_by", "clustered"), ("partition_by", "partitioned")):
        for i, column in enumerate(getattr(spec, field)):
            if column.lower() in excluded - lowered(spec.keys):
                message = f"a column that exclude_columns leaves out, so the replica can't be {what} by it"
                yield SpecProblem("COLUMN_EXCLUDED", (field, i), column, message, "remove it from one of the two")


_KEYED_ONLY: tuple[tuple[str, Callable[[TableSpec], bool], str], ...] = (
    ("history", lambda s: s.history, "versions are kept by key"),
    ("before_image_prefix", lambda s: s.before_image_prefix is not None, "before images say which key changed"),
    ("ignore_null_updates", lambda s: s.ignore_null_updates, "no update finds its row without a key"),
    ("columns_to_update", lambda s: s.columns_to_update is not None, "no update finds its row without a key"),
    ("delete", lambda s: s.delete == "soft", "no delete finds its row without a key"),
)


def _keyless(spec: TableSpec) -> Iterator[SpecProblem]:
    if spec.keys:
        return
    for name, is_set, reason in _KEYED_ONLY:
        if is_set(spec):
            message = f"not for a table without keys (append-only): {reason}"
            remedy = f"name the keys, or set {name} back to its default in the row"
            yield SpecProblem("KEYLESS_REFUSED", (name,), getattr(spec, name), message, remedy)


def _control(spec: TableSpec) -> dict[str, str]:
    named = {name: getattr(spec, name) for name in _CONTROL_COLUMNS}
    return {name: column for name, column in named.items() if column is not None}


_VALUE_CHECKS = (
    _substitutions,
    _source,
    _target,
    _column_names,
    _durations,
    _retention,
    _connection,
    check_options,
    _properties,
    _prefix,
    _sweep_limit,
)
_ROW_CHECKS = (
    _table_name, _keys, _mask, _exclusions, published_problems, iceberg_problems, check_clustering, check_partitions,
    _keyless, _cutting, _trigger, shard_problems,
)  # fmt: skip
