"""What types can't say about a `TableSpec`: names, durations and fields that contradict each other.

The catalog runs these on every metadata row; a job may run them again on the spec it was handed. Column names compare
without case, as Delta does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from airflow_gddl.contract import durations
from airflow_gddl.contract.debezium import fault_of_log_began
from airflow_gddl.contract.path_format import PathFormat
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.contract.spec_problem import FieldPath, SpecProblem, spec_problem
from airflow_gddl.contract.table_properties import is_allowed

RESERVED_COLUMNS = frozenset({"_gddl", "_rescued_data"})
RESERVED_SUFFIXES = ("__changes", "__history", "__errors")
MAX_CLUSTER_COLUMNS = 4
LEAST_VACUUM_SECONDS = 86_400
CONNECTION_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_NAME_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_$#@ -]{0,127}")
# Packs take their DAG ids from it, so only what Airflow allows there.
_SOURCE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_COLUMN_LISTS = ("keys", "sequence_by", "track_history_except", "columns", "exclude_columns", "cluster_by")
DURATIONS = ("freshness", "trigger", "tombstone_retention", "changes_retention", "vacuum_retention")
WAITS = ("settle", "sweep_after")
"""Durations that may be `0s`."""
_CONTROL_COLUMNS = ("columns_to_update", "force_update")


def check_table(spec: TableSpec) -> tuple[SpecProblem, ...]:
    """All problems of a spec that has the right types; empty when it is sound."""
    return tuple(problem for check in (*_VALUE_CHECKS, *_ROW_CHECKS) for problem in check(spec))


def check_values(spec: TableSpec) -> tuple[SpecProblem, ...]:
    """Only problems of single values, whatever `table` and `keys` are: for defaults, which have neither."""
    return tuple(problem for check in _VALUE_CHECKS for problem in check(spec))


def _source(spec: TableSpec) -> Iterator[SpecProblem]:
    if not _SOURCE.fullmatch(spec.source):
        remedy = "use letters, digits, _ . and - (64 at most), e.g. source: shop"
        yield spec_problem("SOURCE_INVALID", ("source",), spec.source, "not a name that a DAG id can carry", remedy)


def _column_names(spec: TableSpec) -> Iterator[SpecProblem]:
    for path, column in _columns(spec):
        if not column.strip():
            yield spec_problem(
                "COLUMN_INVALID", path, column, "an empty column name", "name the column or drop the entry"
            )
        elif column.lower() in RESERVED_COLUMNS:
            message = "a name that the replica keeps for itself"
            remedy = "rename the column in the source's view or leave it out of the metadata"
            yield spec_problem("COLUMN_RESERVED", path, column, message, remedy)


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
            yield spec_problem("DURATION_INVALID", path, value, "not a length of time", durations.remedy(value))


def _retention(spec: TableSpec) -> Iterator[SpecProblem]:
    if durations.is_duration(spec.vacuum_retention) and vacuum_seconds(spec) < LEAST_VACUUM_SECONDS:
        message = "shorter than a reader may take that has opened the table"
        yield spec_problem(
            "RETENTION_TOO_SHORT", ("vacuum_retention",), spec.vacuum_retention, message, "write 1d or more"
        )


def _sweep_limit(spec: TableSpec) -> Iterator[SpecProblem]:
    if not 0 <= spec.sweep_limit <= 1:  # true for a number that is none, too
        message = "not a share of rows"
        yield spec_problem("FIELD_VALUE", ("sweep_limit",), spec.sweep_limit, message, "write a number from 0 to 1")


def vacuum_seconds(spec: TableSpec) -> int:
    """How long files that no version needs stay in storage."""
    return durations.seconds(spec.vacuum_retention)


def _cutting(spec: TableSpec) -> Iterator[SpecProblem]:
    """What is derived from all changes ever, not from those that still matter to the replica."""
    if spec.changes_retention is None:
        return
    for name, is_set in (("history", spec.history), ("force_update", spec.force_update is not None)):
        if is_set:
            message = f"{name} is derived from all changes there ever were"
            remedy = f"keep all changes (null), or do without {name}"
            yield spec_problem(
                "CHANGES_RETENTION_REFUSED", ("changes_retention",), spec.changes_retention, message, remedy
            )


def _trigger(spec: TableSpec) -> Iterator[SpecProblem]:
    if spec.trigger is not None and spec.schedule not in ("continuous", TableSpec.schedule):
        message = "a table that is looked at all the time has no other schedule"
        yield spec_problem(
            "TRIGGER_REFUSED", ("trigger",), spec.trigger, message, "write schedule: continuous, or drop trigger"
        )


def _connection(spec: TableSpec) -> Iterator[SpecProblem]:
    name = spec.options.get("verify_connection")
    if isinstance(name, str) and not CONNECTION_NAME.fullmatch(name):
        message = "not the name of an environment variable or of an Airflow connection"
        remedy = "put the URL into a variable, and its name here, e.g. GDDL_SOURCE_SHOP"
        # The value may be a URL with a password in it: it is not shown.
        yield spec_problem("CONNECTION_INVALID", ("options", "verify_connection"), "(not shown)", message, remedy)


def _log_began(spec: TableSpec) -> Iterator[SpecProblem]:
    began = spec.options.get("log_began")
    fault = fault_of_log_began(began) if spec.dialect == "debezium" else None
    if fault is not None:
        remedy = "write moments as 2026-01-31T12:00:00Z, the oldest first"
        yield spec_problem("LOG_BEGAN_INVALID", ("options", "log_began"), str(began), fault, remedy)


def _path_format(spec: TableSpec) -> Iterator[SpecProblem]:
    text = spec.options.get("path_format")
    if spec.dialect != "debezium" or not isinstance(text, str):
        return
    try:
        PathFormat.parsed(text)
    except ValueError as error:
        remedy = "write folders as the sink's path.format does, e.g. 'year'=YYYY/'month'=MM/'day'=dd, or drop it"
        yield spec_problem("PATH_FORMAT_INVALID", ("options", "path_format"), text, str(error), remedy)


def _properties(spec: TableSpec) -> Iterator[SpecProblem]:
    for key, value in spec.table_properties.items():
        path = ("table_properties", key)
        if key.lower().startswith(("gddl.", "delta.columnmapping.")):
            message = "a property that this package sets itself"
            yield spec_problem("PROPERTY_RESERVED", path, value, message, "remove it from table_properties")
        elif not key.strip():
            yield spec_problem("PROPERTY_INVALID", path, value, "a property without a name", "name it or remove it")
        elif not is_allowed(key):
            message = "not one of the properties that a row may set"
            remedy = "see docs/metadata.md#table-properties; write names of your own as user.name, or use tags"
            yield spec_problem("PROPERTY_REFUSED", path, value, message, remedy)


def _prefix(spec: TableSpec) -> Iterator[SpecProblem]:
    if spec.before_image_prefix is not None and not spec.before_image_prefix.strip():
        message = "an empty prefix makes every column a before image"
        remedy = "write the prefix of the task's before-image columns, e.g. BI_, or null"
        yield spec_problem("PREFIX_INVALID", ("before_image_prefix",), spec.before_image_prefix, message, remedy)


def _table_name(spec: TableSpec) -> Iterator[SpecProblem]:
    if fault := table_name_fault(spec.table):
        remedy = "write schema.name as the source has it, e.g. shop.orders"
        yield spec_problem("TABLE_NAME_INVALID", ("table",), spec.table, fault, remedy)


def table_name_fault(table: str) -> str:
    """Why a table can't have this name; empty when it can."""
    schema, dot, name = table.partition(".")
    if not dot:
        return "not schema.name: it has no dot"
    for part in (schema, name):
        if not _NAME_PART.fullmatch(part) or part != part.strip():
            return "schema and name must be letters, digits, _ $ # @ - or inner blanks, 1 to 128 each, one dot between"
        if part.lower().startswith("_gddl"):
            return "names that start with _gddl are this package's own"
    if name.lower().endswith(RESERVED_SUFFIXES):
        return f"names that end with {', '.join(RESERVED_SUFFIXES)} are this package's own"
    return ""


def _keys(spec: TableSpec) -> Iterator[SpecProblem]:
    excluded = _lower(spec.exclude_columns)
    seen: set[str] = set()
    for i, key in enumerate(spec.keys):
        if key.lower() in seen:
            message = "the same key column twice (case does not count)"
            yield spec_problem("KEYS_DUPLICATE", ("keys", i), key, message, "name each key column once")
        if key.lower() in excluded:
            message = "a key that exclude_columns leaves out; keys always reach the lake"
            remedy = "take it out of exclude_columns, or mask it with hash"
            yield spec_problem("KEYS_EXCLUDED", ("keys", i), key, message, remedy)
        seen.add(key.lower())


def _mask(spec: TableSpec) -> Iterator[SpecProblem]:
    keys, ordering, control = _lower(spec.keys), _lower(spec.sequence_by), _lower(_control(spec).values())
    for column, method in spec.mask.items():
        path = ("mask", column)
        if column.lower() in keys and method == "null":
            message = "a key masked with null: every row would have the same key"
            yield spec_problem("MASK_REFUSED", path, method, message, "mask it with hash, or not at all")
        if column.lower() in ordering | control:
            message = "masks apply before changes are ordered and applied, which need this column's values"
            remedy = "take the column out of mask; exclude_columns keeps a sequence column out of the lake"
            yield spec_problem("MASK_REFUSED", path, method, message, remedy)


def _exclusions(spec: TableSpec) -> Iterator[SpecProblem]:
    excluded, included = _lower(spec.exclude_columns), _lower(spec.columns or ())
    for name, column in _control(spec).items():
        if column.lower() in excluded:
            message = "a column that exclude_columns leaves out, yet changes can't be applied without it"
            yield spec_problem("COLUMN_EXCLUDED", (name,), column, message, "take it out of exclude_columns")
    for i, column in enumerate(spec.exclude_columns):
        if column.lower() in included:
            message = "a column that columns lets in and exclude_columns keeps out"
            yield spec_problem("COLUMNS_OVERLAP", ("exclude_columns", i), column, message, "name it in one of the two")
    for i, column in enumerate(spec.cluster_by):
        if column.lower() in excluded - _lower(spec.keys):
            message = "a column that exclude_columns leaves out, so the replica can't be clustered by it"
            yield spec_problem("COLUMN_EXCLUDED", ("cluster_by", i), column, message, "take it out of one of the two")


def _clustering(spec: TableSpec) -> Iterator[SpecProblem]:
    if len(spec.cluster_by) > MAX_CLUSTER_COLUMNS:
        message = f"more columns than the {MAX_CLUSTER_COLUMNS} that Delta clusters by"
        yield spec_problem(
            "CLUSTER_INVALID", ("cluster_by",), list(spec.cluster_by), message, "keep the most selective"
        )
    if len(_lower(spec.cluster_by)) < len(spec.cluster_by):
        message = "the same column twice"
        yield spec_problem("CLUSTER_INVALID", ("cluster_by",), list(spec.cluster_by), message, "name each column once")


_KEYED_ONLY: tuple[tuple[str, Callable[[TableSpec], bool], str], ...] = (
    ("history", lambda s: s.history, "versions are kept by key"),
    ("before_image_prefix", lambda s: s.before_image_prefix is not None, "before images tell which key changed"),
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
            yield spec_problem("KEYLESS_REFUSED", (name,), getattr(spec, name), message, remedy)


def _control(spec: TableSpec) -> dict[str, str]:
    named = {name: getattr(spec, name) for name in _CONTROL_COLUMNS}
    return {name: column for name, column in named.items() if column is not None}


def _lower(names: Iterable[str]) -> frozenset[str]:
    return frozenset(name.lower() for name in names)


_VALUE_CHECKS = (
    _source,
    _column_names,
    _durations,
    _retention,
    _connection,
    _path_format,
    _log_began,
    _properties,
    _prefix,
    _sweep_limit,
)
_ROW_CHECKS = (_table_name, _keys, _mask, _exclusions, _clustering, _keyless, _cutting, _trigger)
