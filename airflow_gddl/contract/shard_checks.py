"""Checks of a row with `shards` that need only the row."""

from __future__ import annotations

from collections.abc import Iterator

from airflow_gddl.contract.spec_problem import FieldPath, SpecProblem
from airflow_gddl.contract.table_spec import SHARD_COLUMN, TableSpec
from airflow_gddl.contract.targets import has_source, template_fault

_COLUMNS = ("keys", "sequence_by", "exclude_columns", "track_history_except")


def shard_problems(spec: TableSpec) -> Iterator[SpecProblem]:
    if not spec.shards:
        return
    seen: set[str] = set()
    for i, shard in enumerate(spec.shards):
        if shard.lower() in seen:
            message = "the same source twice (case does not count)"
            yield SpecProblem("SHARD_DUPLICATE", ("shards", i), shard, message, "name each source once")
        seen.add(shard.lower())
    yield from _refused_fields(spec)
    if not spec.shard_landings:  # the row as it is written
        yield from _refused_columns(spec)


def _refused_fields(spec: TableSpec) -> Iterator[SpecProblem]:
    if not spec.keys:
        message = "not for a table of several sources: its rows are identified by source and key"
        yield _refused(("keys",), list(spec.keys), message, "name the key columns, or drop shards")
    if spec.target is not None and not template_fault(spec.target) and has_source(spec.target):
        message = "a target of several sources can't have the name of one"
        yield _refused(("target",), spec.target, message, "write a target without {source} into the row")
    for name, is_set in (("history", spec.history), ("iceberg", spec.iceberg),
                         ("changes_retention", spec.changes_retention is not None)):  # fmt: skip
        if is_set:
            message = f"{name} is not built for tables of several sources"
            yield _refused((name,), getattr(spec, name), message, f"leave {name} out, or drop shards")
    if spec.cadence == "continuous":
        name = "trigger" if spec.trigger is not None else "schedule"
        message = "continuous jobs are not built for tables of several sources"
        yield _refused((name,), getattr(spec, name), message, "write a cron schedule, or drop shards")


def _refused_columns(spec: TableSpec) -> Iterator[SpecProblem]:
    message = f"{SHARD_COLUMN} is added to each row, as the first key column"
    named: list[tuple[FieldPath, str]] = [
        ((name, i), column) for name in _COLUMNS for i, column in enumerate(getattr(spec, name))
    ]
    named += [(("mask", column), column) for column in spec.mask]
    for path, column in named:
        if column.lower() == SHARD_COLUMN:
            yield _refused(path, column, message, "take it out of this field")


def _refused(path: FieldPath, value: object, message: str, remedy: str) -> SpecProblem:
    return SpecProblem("SHARDS_REFUSED", path, value, message, remedy)
