"""Checks of a `TableSpec` beyond its types: names, durations and contradicting fields.

The catalog runs these on every metadata row; a job may run them again on its spec. Column names compare
without case, as Delta does.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from typing import Any

from airflow_gddl.contract import durations, features, sources
from airflow_gddl.contract.codec import given
from airflow_gddl.contract.codes import COLUMN_RESERVED, FIELD_REFUSED, FIELD_VALUE
from airflow_gddl.contract.errors import FatalError, FieldPath, SpecProblem, documented, problem_at, value_at
from airflow_gddl.contract.extensions import DIALECTS
from airflow_gddl.contract.layout import CUTS
from airflow_gddl.contract.names import TEMPLATE_REMEDY, has_source, rendered, template_fault
from airflow_gddl.contract.option_checks import check_options
from airflow_gddl.contract.shares import is_share
from airflow_gddl.contract.table_spec import (
    SHARD_COLUMN,
    Expectation,
    InitialLoad,
    LandingRetention,
    TableSpec,
    lowered,
)

_COLUMNS = ("keys", "sequence_by", "exclude_columns", "track_history_except", "mask")


def shard_problems(spec: TableSpec) -> Iterator[SpecProblem]:
    if not spec.shards:
        return
    yield from _twice(spec, "shards", "source")
    yield from _refused_fields(spec)
    if not spec.shard_landings:  # the row as it is written
        yield from _refused_columns(spec)


def _twice(spec: TableSpec, field: str, what: str) -> Iterator[SpecProblem]:
    """Names of a list that are in it before."""
    names = [name.lower() for name in getattr(spec, field)]
    for i, name in enumerate(names):
        if name in names[:i]:
            yield problem_at(spec, (field, i), f"the same {what} twice (case does not count)", f"name each {what} once")


def _refused_fields(spec: TableSpec) -> Iterator[SpecProblem]:
    if not spec.keys:
        message = "not for a table of several sources: its rows are identified by source and key"
        yield problem_at(spec, "keys", message, "name the key columns, or drop shards", FIELD_REFUSED)
    if spec.target is not None and not template_fault(spec.target) and has_source(spec.target):
        message = "a target of several sources can't have the name of one"
        remedy = "write a target without {source} into the metadata row"
        yield problem_at(spec, "target", message, remedy, FIELD_REFUSED)
    if spec.changes_retention is not None:
        message = "changes_retention is not built for tables of several sources"
        remedy = "leave changes_retention out, or drop shards"
        yield problem_at(spec, "changes_retention", message, remedy, FIELD_REFUSED)
    if spec.cadence == "continuous":
        name = "trigger" if spec.trigger is not None else "schedule"
        message = "continuous jobs are not built for tables of several sources"
        yield problem_at(spec, name, message, "write a cron schedule, or drop shards", FIELD_REFUSED)


def _refused_columns(spec: TableSpec) -> Iterator[SpecProblem]:
    message = f"{SHARD_COLUMN} is added to each row, as the first key column"
    for path, column in named_columns(spec):
        if path[0] in _COLUMNS and column.lower() == SHARD_COLUMN:
            yield problem_at(spec, path, message, "take it out of this field", FIELD_REFUSED)


MAX_CLUSTER_COLUMNS = 4
_EXPRESSION = re.compile(r"\s*(\w+)\s*\((.*)\)\s*", re.DOTALL)
"""`days(at)`, `bucket(16, id)`: Iceberg and SQL have such partitions, Delta has none."""


def check_clustering(spec: TableSpec) -> Iterator[SpecProblem]:
    """Columns of `cluster_by`."""
    if len(spec.cluster_by) > MAX_CLUSTER_COLUMNS:
        message = f"more columns than the {MAX_CLUSTER_COLUMNS} that Delta clusters by"
        yield problem_at(spec, "cluster_by", message, "keep the most selective")
    yield from _expressions(spec, "cluster_by")
    yield from _twice(spec, "cluster_by", "column")


def _expressions(spec: TableSpec, field: str) -> Iterator[SpecProblem]:
    """Refuse expressions in place of columns."""
    for i, name in enumerate(getattr(spec, field)):
        if match := _EXPRESSION.fullmatch(name):
            arguments = (part.strip() for part in match[2].split(","))
            column = next((part for part in arguments if part and not part.isdigit()), "...")
            remedy = f"write cluster_by: [{column}]"
            if field == "partition_by":
                remedy += ", or deliver a column of such values and name that"
            yield problem_at(spec, (field, i), "an expression; Delta takes columns alone", remedy)


def check_partitions(spec: TableSpec) -> Iterator[SpecProblem]:
    """Columns of `partition_by`, as far as they can be checked without data; see
    `schema_evolution.require_layout`."""
    if spec.partition_by and spec.cluster_by:
        message = "Delta clusters no table that has partitions"
        yield problem_at(spec, "partition_by", message, "keep one, usually cluster_by")
    yield from _twice(spec, "partition_by", "column")
    yield from _expressions(spec, "partition_by")
    masked, control = lowered(spec.mask), lowered((*spec.sequence_by, *_control(spec).values()))
    included = lowered((*spec.columns, *spec.keys)) if spec.columns is not None else lowered(spec.partition_by)
    for i, column in enumerate(spec.partition_by):
        path, remedy = ("partition_by", i), "partition by another column"
        if column.lower() not in included:
            message = "a column that is missing in columns, so the replica can't be partitioned by it"
            yield problem_at(spec, path, message, "add it to columns", FIELD_REFUSED)
        if column.lower() in masked:
            message = "a masked column: folders' names would show its masked values, or all be one"
            yield problem_at(spec, path, message, remedy)
        if column.lower() in control:
            message = "a column with another value in each change: a partition for each of them"
            yield problem_at(spec, path, message, remedy)


_PROPERTIES = frozenset(
    f"delta.{name}".lower()
    for name in (
        "autoOptimize.autoCompact", "autoOptimize.optimizeWrite", "checkpoint.writeStatsAsJson",
        "checkpoint.writeStatsAsStruct", "checkpointInterval", "checkpointPolicy", "checkpointRetentionDuration",
        "dataSkippingNumIndexedCols", "dataSkippingStatsColumns", "deletedFileRetentionDuration",
        "enableChangeDataFeed", "enableDeletionVectors", "enableExpiredLogCleanup", "enableIcebergCompatV1",
        "enableIcebergCompatV2", "enableInCommitTimestamps", "enableRowTracking", "enableTypeWidening",
        "isolationLevel", "logRetentionDuration", "minReaderVersion", "minWriterVersion", "randomizeFilePrefixes",
        "randomPrefixLength", "targetFileSize", "tuneFileSizesForRewrites", "universalFormat.enabledFormats",
    )
)  # fmt: skip
"""In lower case, as Delta compares them."""
_PREFIXES = ("user.", "delta.feature.")
"""Prefixes of further allowed properties: user properties and table features."""


def is_allowed(name: str) -> bool:
    """Whether a row may set this property."""
    return name.lower() in _PROPERTIES or name.lower().startswith(_PREFIXES)


RESERVED_COLUMNS = frozenset({"_gddl", "_rescued_data"})
RESERVED_SUFFIXES = ("__changes", "__history", "__errors")
LEAST_VACUUM_SECONDS = 86_400
CONNECTION_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_NAME_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_$#@ -]{0,127}")
# Part of the DAG ids of packs, so limited to Airflow's characters.
SOURCE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_COLUMN_LISTS = (
    "keys", "sequence_by", "track_history_except", "columns", "exclude_columns", "absent_columns", "cluster_by",
    "partition_by",
)  # fmt: skip
DURATIONS = ("freshness", "trigger", "tombstone_retention", "changes_retention", "vacuum_retention")
WAITS = ("settle", "sweep_after")
"""Durations that may be `0s`."""
_CONTROL_COLUMNS = ("columns_to_update", "force_update")


def _source(spec: TableSpec) -> Iterator[SpecProblem]:
    remedy = "use letters, digits, _ . and - (64 at most), e.g."
    if not SOURCE_NAME.fullmatch(spec.source):
        yield problem_at(spec, "source", "not valid as part of a DAG id", f"{remedy} source: shop")
    if spec.region is not None and not SOURCE_NAME.fullmatch(spec.region):
        yield problem_at(spec, "region", "not a short name", f"{remedy} region: eu-west-1")


_LONGEST_OWNER = 200
"""Airflow's database holds 2,000 characters of all owners of a DAG; more end the DAG processor on PostgreSQL."""


def _owner(spec: TableSpec) -> Iterator[SpecProblem]:
    if spec.owner is not None and len(spec.owner) > _LONGEST_OWNER:
        remedy = f"write a name of up to {_LONGEST_OWNER} characters; put other text into description"
        yield problem_at(spec, "owner", "too long for Airflow", remedy)


def _target(spec: TableSpec) -> Iterator[SpecProblem]:
    """Check the template; the resulting names are checked with each row."""
    if spec.target is None:
        return
    if fault := template_fault(spec.target) or table_name_fault(rendered(spec.target, "s", "a.b")):
        yield problem_at(spec, "target", fault, TEMPLATE_REMEDY)


def _substitutions(spec: TableSpec) -> Iterator[SpecProblem]:
    """Refuse `${`: nothing is substituted in rows, and what reads a row's text elsewhere may do so."""
    for name, value in given(spec).items():
        for path, text in _texts(value, (name,)):
            if "${" in text:
                message = "holds ${, which other programs replace by variables"
                remedy = "write the value itself; rows name connections, and never hold secrets"
                yield SpecProblem(FIELD_VALUE, path, text, message, remedy)


def _texts(value: object, path: FieldPath) -> Iterator[tuple[FieldPath, str]]:
    """All texts in a field, names in mappings included."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, (Expectation, InitialLoad, LandingRetention)):
        for item in fields(value):
            yield from _texts(getattr(value, item.name), (*path, item.name))
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield (*path, name), str(name)
            yield from _texts(inner, (*path, name))
    elif isinstance(value, (tuple, list)):
        for i, inner in enumerate(value):
            yield from _texts(inner, (*path, i))


_DIRECTION = re.compile(r"(.*\S)\s+(?:asc|desc)", re.IGNORECASE)


def _column_names(spec: TableSpec) -> Iterator[SpecProblem]:
    for path, column in named_columns(spec):
        if not column.strip():
            yield SpecProblem(FIELD_VALUE, path, column, "an empty column name", "name the column or drop the entry")
        elif column.lower() in RESERVED_COLUMNS:
            message = "a reserved column name of the replica"
            remedy = "rename the column in the source's view or leave it out of the metadata"
            yield SpecProblem(COLUMN_RESERVED, path, column, message, remedy)
        elif path[0] == "sequence_by" and (named := _DIRECTION.fullmatch(column)):
            message = "a column with a direction: changes are always ordered from the lowest to the highest"
            yield SpecProblem(FIELD_VALUE, path, column, message, f"write {named[1]}")


def named_columns(spec: TableSpec) -> Iterator[tuple[FieldPath, str]]:
    """Columns that fields of the row name, with where each is named."""
    for name in _COLUMN_LISTS:
        yield from (((name, i), column) for i, column in enumerate(getattr(spec, name) or ()))
    yield from (((name,), column) for name, column in _control(spec).items())
    yield from ((("mask", column), column) for column in spec.mask)


def _durations(spec: TableSpec) -> Iterator[SpecProblem]:
    waits = [name for name in WAITS if getattr(spec, name) != durations.NO_WAIT]
    yield from wrong_durations(spec, *((name,) for name in (*DURATIONS, *waits)), *_INNER_DURATIONS)


_INNER_DURATIONS = (
    ("options", "lookback"), ("landing_retention", "after"), ("initial_load", "statement_timeout"),
)  # fmt: skip


def wrong_durations(spec: object, *paths: FieldPath) -> Iterator[SpecProblem]:
    """A problem for each text of a spec at one of these paths that is not a duration."""
    for path in paths:
        value = value_at(spec, path)
        if isinstance(value, str) and not durations.is_duration(value):
            yield problem_at(spec, path, "not a duration", durations.remedy(value))


def _retention(spec: TableSpec) -> Iterator[SpecProblem]:
    reasons: dict[FieldPath, str] = {
        ("vacuum_retention",): "shorter than a running query may take",
        ("landing_retention", "after"): "a repair may need files of the last day",
    }
    for path, message in reasons.items():
        kept = value_at(spec, path)
        if kept is not None and durations.is_duration(kept) and durations.seconds(kept) < LEAST_VACUUM_SECONDS:
            yield problem_at(spec, path, message, "write 1d or more")


def _landing_retention(spec: TableSpec) -> Iterator[SpecProblem]:
    kept = spec.landing_retention
    if kept is not None and (kept.to is not None) != (kept.action == "move"):
        remedy = "write action: move and to: s3://bucket/folder, or neither"
        yield problem_at(spec, ("landing_retention", "to"), "move needs a folder, and delete takes none", remedy)


_MOST_CONNECTIONS = 64


def _takes_source_rows(spec: TableSpec) -> bool:
    """Whether jobs may write files of the source's rows; true of a dialect that is not known, which others report."""
    try:
        return DIALECTS.get(spec.dialect).takes_source_rows
    except FatalError:
        return True


def _initial_load(spec: TableSpec) -> Iterator[SpecProblem]:
    load, path = spec.initial_load, ("initial_load",)
    if load is None:
        return
    for name, most in {"chunk_rows": None, "parallel": _MOST_CONNECTIONS, "max_rows_per_second": None}.items():
        value = getattr(load, name)
        if value is not None and (value < 1 or (most is not None and value > most)):
            remedy = f"write a number from 1 {'on' if most is None else f'to {most}'}"
            yield problem_at(spec, (*path, name), "out of range", remedy)
    if not _takes_source_rows(spec):
        message, remedy = "its dialect takes no load from the source", "let the CDC service take a snapshot"
        yield SpecProblem(FIELD_VALUE, path, spec.dialect, message, remedy)
    elif spec.shards:
        message, remedy = "the table has several sources", "let the CDC service load each of them"
        yield SpecProblem(FIELD_VALUE, path, list(spec.shards), message, remedy)
    elif not spec.options.get("verify_connection"):
        message, remedy = "no connection to the source is named", "set connection in the metadata row's source"
        yield SpecProblem(FIELD_VALUE, path, None, message, remedy)


def _sweep_limit(spec: TableSpec) -> Iterator[SpecProblem]:
    if not is_share(spec.sweep_limit):
        yield problem_at(spec, "sweep_limit", "not a fraction", "write a number from 0 to 1")


def _cutting(spec: TableSpec) -> Iterator[SpecProblem]:
    """Refuse retention where fields need the complete change table."""
    if spec.changes_retention is None:
        return
    for name, is_set in (("history", spec.history), ("force_update", spec.force_update is not None)):
        if is_set:
            message = f"{name} needs the complete change table"
            remedy = f"keep all changes (null), or remove {name}"
            yield problem_at(spec, "changes_retention", message, remedy, FIELD_REFUSED)


def _trigger(spec: TableSpec) -> Iterator[SpecProblem]:
    if spec.trigger is not None and spec.schedule not in ("continuous", TableSpec.schedule):
        message = f"trigger makes a table continuous, which excludes another schedule, here {spec.schedule!r}"
        yield problem_at(spec, "trigger", message, "write schedule: continuous, or drop trigger", FIELD_REFUSED)


def _connection(spec: TableSpec) -> Iterator[SpecProblem]:
    for option, name in spec.options.items():
        if option.endswith("_connection") and isinstance(name, str) and not CONNECTION_NAME.fullmatch(name):
            message = "not the name of an environment variable or of an Airflow connection"
            remedy = "put its URL or settings into a variable, and its name here, e.g. GDDL_SOURCE_SHOP"
            # The value may be a URL with a password in it: it is not shown.
            yield SpecProblem(FIELD_VALUE, ("options", option), "(not shown)", message, remedy)


def _properties(spec: TableSpec) -> Iterator[SpecProblem]:
    for key in spec.table_properties:
        path = ("table_properties", key)
        if key.lower().startswith(("gddl.", "delta.columnmapping.")):
            message = "a property that is reserved for this package"
            yield problem_at(spec, path, message, "remove it from table_properties")
        elif not key.strip():
            yield problem_at(spec, path, "a property without a name", "name it or remove it")
        elif not is_allowed(key):
            message = "not one of the properties that a row may set"
            more = documented("metadata.md", "table-properties")
            remedy = f"see {more}; write names of your own as user.name, or use tags"
            yield problem_at(spec, path, message, remedy)


def _prefix(spec: TableSpec) -> Iterator[SpecProblem]:
    if spec.before_image_prefix is not None and not spec.before_image_prefix.strip():
        message = "an empty prefix makes every column a before image"
        remedy = "write the prefix of the task's before-image columns, e.g. BI_, or null"
        yield problem_at(spec, "before_image_prefix", message, remedy)


def _table_name(spec: TableSpec) -> Iterator[SpecProblem]:
    if fault := table_name_fault(spec.table):
        remedy = "write schema.name as in the source, e.g. shop.orders"
        yield problem_at(spec, "table", fault, remedy)


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
    if schema.lower() == CUTS:
        return f"the folder {CUTS} is that of the cuts that `gddl as-of list` shows"
    if name.lower().endswith(RESERVED_SUFFIXES):
        return f"names that end with {', '.join(RESERVED_SUFFIXES)} are this package's own"
    return ""


def _keys(spec: TableSpec) -> Iterator[SpecProblem]:
    excluded = lowered(spec.exclude_columns)
    yield from _twice(spec, "keys", "key column")
    for i, key in enumerate(spec.keys):
        if key.lower() in excluded:
            message = "a key that exclude_columns leaves out; keys always reach the lake"
            remedy = "remove it from exclude_columns, or mask it with hash"
            yield problem_at(spec, ("keys", i), message, remedy, FIELD_REFUSED)


def _mask(spec: TableSpec) -> Iterator[SpecProblem]:
    if not spec.mask:
        return
    keys, control = lowered(spec.keys), lowered((*spec.sequence_by, *_control(spec).values()))
    for column, method in spec.mask.items():
        path = ("mask", column)
        if column.lower() in keys and method == "null":
            message = "a key masked with null: every row would have the same key"
            yield problem_at(spec, path, message, "mask it with hmac or hash, or not at all", FIELD_REFUSED)
        if column.lower() in control:
            message = "masks apply before changes are ordered and applied, which need this column's values"
            remedy = "remove the column from mask; exclude_columns keeps a sequence column out of the lake"
            yield problem_at(spec, path, message, remedy, FIELD_REFUSED)


def _exclusions(spec: TableSpec) -> Iterator[SpecProblem]:
    excluded, included = lowered(spec.exclude_columns), lowered(spec.columns or ())
    for name, column in _control(spec).items():
        if column.lower() in excluded:
            message = "a column that exclude_columns removes, but that is needed to apply changes"
            yield problem_at(spec, name, message, "take it out of exclude_columns", FIELD_REFUSED)
    for i, column in enumerate(spec.exclude_columns):
        if column.lower() in included:
            message = "a column in both columns and exclude_columns"
            yield problem_at(spec, ("exclude_columns", i), message, "name it in one of the two", FIELD_REFUSED)
    for field, what in (("cluster_by", "clustered"), ("partition_by", "partitioned")):
        for i, column in enumerate(getattr(spec, field)):
            if column.lower() in excluded - lowered(spec.keys):
                message = f"a column that exclude_columns leaves out, so the replica can't be {what} by it"
                yield problem_at(spec, (field, i), message, "remove it from one of the two", FIELD_REFUSED)


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
            remedy = f"name the keys, or set {name} back to its default in the metadata row"
            yield problem_at(spec, name, message, remedy, FIELD_REFUSED)


def _control(spec: TableSpec) -> dict[str, str]:
    named = {name: getattr(spec, name) for name in _CONTROL_COLUMNS}
    return {name: column for name, column in named.items() if column is not None}


Check = Callable[[TableSpec], Iterable[SpecProblem]]
"""Finds problems of a spec; a function of the spec's fields alone, that finds none where all have their defaults."""


class Checks:
    """Runs checks on a spec, without those that can find nothing.

    As long as the fields that a check reads of a spec of defaults have these defaults, it reads no other fields, and
    finds what it finds there: nothing. Of thirty checks, a usual row needs a few.
    """

    def __init__(self, *checks: Check) -> None:
        self.checks = checks

    def __call__(self, spec: TableSpec) -> tuple[SpecProblem, ...]:
        names = given(spec).keys()
        problem_lists = (check(spec) for check, read in self._read if not read.isdisjoint(names))
        return tuple(problem for problems in problem_lists for problem in problems)

    @functools.cached_property
    def _read(self) -> tuple[tuple[Check, frozenset[str]], ...]:
        """Each check, and the fields that it reads of a spec of defaults."""
        return tuple((check, fields_read(check)) for check in self.checks)


def fields_read(check: Check) -> frozenset[str]:
    """Fields that a check reads of a spec with a table and keys alone."""
    spec = _Watched(table="schema.name", keys=("id",))
    read: set[str] = set()
    spec.__dict__["watched"] = read
    if problems := tuple(check(spec)):
        raise AssertionError(f"{check} refuses a row of defaults: {problems[0]}")
    return frozenset(read)


class _Watched(TableSpec):
    """Remembers which of its fields are read."""

    def __getattribute__(self, name: str) -> Any:
        if name in _SPEC_FIELDS and (read := object.__getattribute__(self, "__dict__").get("watched")) is not None:
            read.add(name)
        return super().__getattribute__(name)


_SPEC_FIELDS = frozenset(item.name for item in fields(TableSpec))
_VALUE_CHECKS = (
    _substitutions,
    _source,
    _owner,
    _target,
    _column_names,
    _durations,
    _retention,
    _landing_retention,
    _initial_load,
    sources.value_problems,
    _connection,
    check_options,
    _properties,
    _prefix,
    _sweep_limit,
    features.value_problems,
)
_ROW_CHECKS = (
    _table_name, _keys, _mask, _exclusions, check_clustering, check_partitions, _keyless,
    _cutting, _trigger, shard_problems, features.problems,
)  # fmt: skip
check_values = Checks(*_VALUE_CHECKS)
"""Problems of single values only, for defaults, which have no `table` and `keys`."""
check_table = Checks(*_VALUE_CHECKS, *_ROW_CHECKS)
"""All problems of a spec with valid types; empty when there are none."""
