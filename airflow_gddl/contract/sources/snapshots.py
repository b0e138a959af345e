"""`mode: snapshots`: exports of whole tables, of which jobs make changes (docs/snapshots.md)."""

from __future__ import annotations

from collections.abc import Iterator

from airflow_gddl.contract.codes import FIELD_VALUE
from airflow_gddl.contract.errors import SpecProblem
from airflow_gddl.contract.sources import SourceDescriptor
from airflow_gddl.contract.table_spec import TableSpec

_NOT_OF_EXPORTS = (
    "shards", "initial_load", "landing_retention", "columns_to_update", "force_update", "before_image_prefix",
    "ignore_null_updates", "sequence_by", "trigger",
)  # fmt: skip
_OPTIONS = ("path_format", "complete")
_OPTIONS_OF_CHANGES = ("missing_folder", "date_partition", "timestamp_column")


def problems(spec: TableSpec) -> Iterator[SpecProblem]:
    """A table of snapshots has what they need, and nothing of changes; any other has nothing of snapshots."""
    if spec.mode != "snapshots":
        for name in _OPTIONS if spec.dialect == "dms" else ():
            if name in spec.options:
                remedy = "write mode: snapshots, or drop it"
                yield SpecProblem(FIELD_VALUE, ("options", name), spec.options[name], "for snapshots alone", remedy)
        return
    yield from _needed(spec)
    fields: dict[tuple[str, ...], object] = {(name,): getattr(spec, name) for name in _NOT_OF_EXPORTS}
    fields |= {("options", name): spec.options.get(name) for name in _OPTIONS_OF_CHANGES}
    for path, value in fields.items():
        if value:
            message = "not for snapshots, which have no changes"
            yield SpecProblem(FIELD_VALUE, path, str(value), message, f"drop {path[-1]}")


def _needed(spec: TableSpec) -> Iterator[SpecProblem]:
    if spec.dialect != "dms":
        message, remedy = "snapshots are parquet or CSV files", "drop dialect"
        yield SpecProblem(FIELD_VALUE, ("dialect",), spec.dialect, message, remedy)
    if not spec.keys:
        yield SpecProblem(FIELD_VALUE, ("keys",), [], "snapshots are compared by key", "name the key columns")
    if not spec.options.get("path_format"):
        message, remedy = "says which folders are snapshots", "write path_format: \"'dt='yyyy-MM-dd\" into options"
        yield SpecProblem(FIELD_VALUE, ("options", "path_format"), None, message, remedy)
    complete = str(spec.options.get("complete", "_SUCCESS"))
    if not complete or "/" in complete or (complete.isdigit() and not (complete.isascii() and int(complete))):
        message, remedy = "shows no complete snapshot", "write the name of a file, a number from 1 on, or settle"
        yield SpecProblem(FIELD_VALUE, ("options", "complete"), complete, message, remedy)
    if complete == "settle" and spec.settle is None:
        message = "a snapshot is complete when it has settled, and the metadata row does not say after what time"
        yield SpecProblem(FIELD_VALUE, ("settle",), None, message, "write settle: 10m")
    if spec.sub_microseconds != "truncate":
        message, remedy = "times of snapshots are truncated", "drop sub_microseconds"
        yield SpecProblem(FIELD_VALUE, ("sub_microseconds",), spec.sub_microseconds, message, remedy)


SOURCE = SourceDescriptor(
    is_used=lambda spec: spec.mode == "snapshots",
    check_values=problems,
)
