"""What is combined: the values of each field of a row, from the contract's types, and what happens to a table.

A new field of a row joins by itself where its type names its values. Another needs values in `VALUES`, or a reason in
`ALONE`; `test_pairs` fails until it has one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from typing import Any, Literal, get_args, get_origin, get_type_hints

from airflow_gddl.contract.row_checks import check_table
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.contract.table_spec import Expectation, SchemaEvolution
from airflow_gddl.metadata.expression_text import with_expressions

NESTED: Mapping[str, type] = {"schema_evolution": SchemaEvolution}
"""Fields whose own fields are combined."""

VALUES: Mapping[str, tuple[Any, ...]] = {
    "keys": (("id",), ("id", "part"), ()),
    "sequence_by": ((), ("seq",), ("seq", "step")),
    "track_history_except": ((), ("n",)),
    "before_image_prefix": (None, "BI_"),
    "source_type": (None, "oracle"),
    "region": (None, "eu-west-1"),
    "columns_to_update": (None, "cols"),
    "force_update": (None, "forced"),
    "columns": (None, ("v", "n", "m", "p", "w", "z")),
    "exclude_columns": ((), ("x",)),
    "mask": ({}, {"m": "hash"}, {"m": "null"}),
    "schema_evolution.new_column": ("add", "rescue", "ignore"),  # `fail` ends the history at a new column
    "schema_evolution.type_change": ("widen", "rescue", "text"),
    "schema_evolution.dropped_column": ("keep", "null"),
    "rename": ({}, {"V": "v", "Old Place": "p"}),
    "derive": ({}, {"big": "n > 2 or v = 'x'"}),
    "where": (None, "n <> 3"),
    "expect": (
        {},
        {"good": Expectation(rule="n <> 4 or n is null", on="quarantine")},
        {"good": Expectation(rule="n <> 4", on="warn")},
    ),
    "iceberg": (False, True, 3),
    "cluster_by": ((), ("v",)),
    "partition_by": ((), ("p",)),
    "table_properties": ({}, {"delta.enableChangeDataFeed": "true"}, {"delta.enableDeletionVectors": "true"}),
    "description": (None, "a table"),
    "column_descriptions": ({}, {"v": "a value"}),
    "shards": ((), ("a", "b")),
    "dialect": ("dms", "debezium"),
    "options": ({}, {"types": {"n": "bigint"}}),
    "sweep_limit": (1.0, 0.34),
}

_AIRFLOW = "Airflow's side reads it, no job that is given a table"
_RESOLVED = "resolved, never written in a metadata row"
_NAMES = "a name, or of several tables: tests/one_task/test_targets.py, tests/unit/test_sources.py"
_TIME = "time passes for it: tests/spark/test_maintenance_histories.py"

ALONE: Mapping[str, str] = {
    **dict.fromkeys(("priority", "schedule", "trigger", "freshness", "heartbeat"), _AIRFLOW),
    **dict.fromkeys(("tags", "owner", "airflow", "depends_on", "enabled"), _AIRFLOW),
    **dict.fromkeys(
        ("source_table", "landing", "shard_landings", "shard_origins", "expressions", "mask_key_id"), _RESOLVED
    ),
    **dict.fromkeys(("table", "source", "target", "size", "catalog"), _NAMES),
    **dict.fromkeys(("tombstone_retention", "vacuum_retention"), _TIME),
    "absent_columns": "names what nothing has, and changes no table: tests/tables/test_protected_columns.py",
    "sub_microseconds": "concerns times alone: tests/rules/test_times_read.py",
    "schema": "refuses a table that lacks a column: tests/unit/test_plan_enforcement.py",
    "on_bad_row": "`fail` ends the history: tests/scenarios/quarantine_refused",
    "changes_retention": _TIME,
    "sweep_after": _TIME,
    "mode": "snapshots have a generator of their own",
    "initial_load": "reads a database: tests/databases",
    "landing_retention": "maintenance removes files by it: tests/one_task/test_landing_retention.py",
    "commit": "a batch on Spark merges by it, which costs ten others: tests/spark/test_merged_tables.py",
    "settle": "files of these histories appear whole",
    "generations": "first load of a folder with load files newer than changes: tests/one_task/test_first_order.py",
}
"""Fields that are not combined, and why."""

HAPPENINGS: Mapping[str, tuple[Any, ...]] = {
    "arrival": ("in order", "shuffled", "at once"),
    "again": (False, True),
    "truncated": (0, 1, 2),
    "moved": (False, True),
    "images": ("whole", "keys"),
    "tied": (False, True),
    "retyped": ("", "wider", "text"),
    "widened": (False, True),
    "narrowed": (False, True),
    "misfits": (False, True),
    "reloaded": (False, True),
    "erased": (False, True),
    "killed": ("", "append", "replica", "commit"),
    "repair": ("", "rebuild", "reload", "errors_replay"),
}
"""`images`: columns of which updates have before images; `tied`: a row in two files of the load, with other
values; `retyped`: a column's type in later files; `narrowed`: a column that they lack; `killed`:
a step after which a run ends; `repair`: what a user asks for in the end."""

Choice = tuple[str, int]
"""A factor and the place of one of its values."""
Assignment = Mapping[str, int]


def _named_values(kind: Any) -> tuple[Any, ...]:
    if kind is bool:
        return (False, True)
    return get_args(kind) if get_origin(kind) is Literal else ()


def _of_type(owner: type, prefix: str = "") -> Iterator[tuple[str, tuple[Any, ...]]]:
    hints = get_type_hints(owner)
    for field in fields(owner):
        if field.name in NESTED and not prefix:
            yield from _of_type(NESTED[field.name], f"{field.name}.")
        elif field.name not in ALONE:
            yield prefix + field.name, VALUES.get(prefix + field.name) or _named_values(hints[field.name])


FIELDS: Mapping[str, tuple[Any, ...]] = dict(_of_type(TableSpec))
FACTORS: Mapping[str, tuple[Any, ...]] = {**FIELDS, **HAPPENINGS}


def without_values() -> list[str]:
    """Fields of a row that have neither values nor a reason; and what is named and is no field any more."""
    names = {field.name for field in fields(TableSpec)} | set(FIELDS)
    return sorted({name for name, values in FIELDS.items() if not values} | {*ALONE, *VALUES, *NESTED} - names)


def default_of(name: str) -> int:
    """The place of the value that a row has without this field."""
    if name in HAPPENINGS:
        return 0
    owner, _, inner = name.partition(".")
    default = next(field for field in fields(NESTED.get(owner, TableSpec)) if field.name == (inner or owner))
    known = {"keys": ("id",), "sweep_after": "0s", "sweep_limit": 1.0}
    values = FACTORS[name]
    return values.index(default.default) if name not in known and default.default in values else 0


def value(given: Assignment, name: str) -> Any:
    return FACTORS[name][given.get(name, default_of(name))]


def row_of(given: Assignment) -> TableSpec:
    """The row; fields that are not given have their defaults."""
    flat = {name: value(given, name) for name in FIELDS}
    nested = {
        owner: kind(**{name.partition(".")[2]: v for name, v in flat.items() if name.startswith(f"{owner}.")})
        for owner, kind in NESTED.items()
    }
    plain = {name: v for name, v in flat.items() if "." not in name}
    return with_expressions(TableSpec(table="s.t", settle="0s", sweep_after="0s", **nested, **plain))


def refusal(given: Assignment) -> str:
    """Why `validate` refuses a row, or why something can't happen to it; empty: it does not."""
    row = row_of(given)
    problems = check_table(row)
    if problems:
        return f"{problems[0].code} {'.'.join(map(str, problems[0].path))}: {problems[0].message}"
    return next((reason for reason, holds in _IMPOSSIBLE if holds(row, lambda name: value(given, name))), "")


_Of = Callable[[str], Any]


def _moves_by_nothing(row: TableSpec, of: _Of) -> bool:
    return of("moved") and (not row.keys or (row.dialect == "dms" and row.before_image_prefix is None))


def _lists_beside_debezium(row: TableSpec, _: _Of) -> bool:
    return row.dialect == "debezium" and any((row.columns_to_update, row.force_update, row.before_image_prefix))


_IMPOSSIBLE: tuple[tuple[str, Callable[[TableSpec, _Of], Any]], ...] = (
    ("rows move by before images, or as Debezium's delete and insert", _moves_by_nothing),
    ("Debezium writes no full-load files", lambda row, of: of("reloaded") and row.dialect == "debezium"),
    ("only before images lack columns", lambda row, of: of("images") == "keys" and row.before_image_prefix is None),
    ("Debezium's rows of a snapshot have places", lambda row, of: of("tied") and row.dialect == "debezium"),
    ("without a key nothing ties", lambda row, of: of("tied") and not row.keys),
    ("JSON has one type of numbers", lambda row, of: of("retyped") and row.dialect == "debezium"),
    ("`type_change: text` alone makes a number a text",
     lambda row, of: of("retyped") == "text" and row.schema_evolution.type_change != "text"),
    ("without a key nothing is erased", lambda row, of: of("erased") and not row.keys),
    ("an erased key takes along the rest of a row that moved from it, which a later fold of parts lacks",
     lambda row, of: of("erased") and of("moved") and (row.columns_to_update or row.ignore_null_updates)),
    ("DMS alone lists columns and forces changes", _lists_beside_debezium),
    ("Debezium's truncate has no row, and so no sequence but its place",
     lambda row, of: of("truncated") and row.dialect == "debezium" and row.sequence_by),
)  # fmt: skip
"""What cannot happen to a row, and why."""


_TEXT = {"schema_evolution.type_change": 2}
_BASES: tuple[Assignment, ...] = (
    {},
    {"dialect": 1},
    {"before_image_prefix": 1},
    _TEXT,
    {"before_image_prefix": 1, **_TEXT},
)


def completed(given: Assignment) -> Assignment | None:
    """An assignment with what it needs to be possible; null: nothing makes it so."""
    every = ({**base, **given} for base in _BASES)
    return next((case for case in every if not refusal(case)), None)


def all_pairs() -> Iterator[tuple[Choice, Choice]]:
    for one, other in itertools.combinations(FACTORS, 2):
        for i, j in itertools.product(range(len(FACTORS[one])), range(len(FACTORS[other]))):
            yield (one, i), (other, j)
