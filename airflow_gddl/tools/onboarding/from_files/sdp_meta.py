"""An onboarding file of sdp-meta (before: dlt-meta) of Databricks Labs: a list of data flows, as JSON or YAML."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from airflow_gddl.tools.onboarding.from_files.model import ImportedSource, Selection, Told, not_carried
from airflow_gddl.tools.onboarding.rules import KeyFact, Notice

WHAT = "an onboarding file of sdp-meta"
_LAYERS = ("silver", "bronze")
_ELSEWHERE = {
    "data_quality_expectations_json": "write its rules as `expect` of the metadata row",
    "quality_rules_path": "write its rules as `expect` of the metadata row",
    "transformation_json": "write its columns as `derive` and `rename`, its conditions as `where`",
    "append_flows": "`shards` of the metadata row load several sources into one table",
    "sink": "read the table, or its change table `__changes`",
    "cluster_by_auto": "name the columns in `cluster_by`",
}
"""Fields of a layer that no row takes over, with the way out."""


def knows(document: Any) -> bool:
    """Whether it is such a document."""
    return (
        isinstance(document, Sequence)
        and bool(document)
        and all(isinstance(flow, Mapping) and "source_format" in flow and "source_details" in flow for flow in document)
    )


def read(document: Sequence[Mapping[str, Any]]) -> ImportedSource:
    """A table for each flow. Of values for each environment the first that is given counts."""
    names: list[str] = []
    told: list[Told] = []
    notices: list[Notice] = []
    for flow in document:
        name = _name(flow)
        if reason := _reason_against(flow):
            notices.append(not_carried(name, *reason))
            continue
        names.append(name)
        told.append(_flow(flow, re.compile(re.escape(name))))
        notices += _left(name, flow)
    selections = [Selection(pattern=re.compile(re.escape(name))) for name in names]
    return ImportedSource(tables=tuple(names), selections=tuple(selections), told=tuple(told), notices=tuple(notices))


def _name(flow: Mapping[str, Any]) -> str:
    """The table in its source; where that isn't said, that of the last layer."""
    details = flow["source_details"]
    if details.get("source_database") and details.get("source_table"):
        return f"{str(details['source_database']).rpartition('.')[2]}.{details['source_table']}"
    layer = next((layer for layer in _LAYERS if flow.get(f"{layer}_table")), "bronze")
    return f"{_by_environment(flow, f'{layer}_database') or layer}.{flow.get(f'{layer}_table')}"


def _by_environment(flow: Mapping[str, Any], name: str) -> Any:
    """The field, or the first that has the name of an environment at its end (dev, prod and so on)."""
    found = [value for field, value in flow.items() if re.fullmatch(rf"{name}(_[a-z0-9]+)?", field)]
    return next((value for value in found if value), None)


def _reason_against(flow: Mapping[str, Any]) -> tuple[str, str] | None:
    """Why a flow gets no row, and the way out."""
    kind = flow["source_format"]
    if kind == "cloudFiles":
        return None
    ways = {
        "snapshot": "`mode: snapshots` of a row reads exports of whole tables: snapshots.md",
        "kafka": "`dialect: debezium` with `options.topic` reads events of Debezium: debezium.md",
        "eventhub": "`dialect: debezium` with `options.topic` reads events of Debezium: debezium.md",
        "delta": "a Delta table is no source; give the files or the database that it is made of",
    }
    return f"it reads {kind}", ways.get(kind, "only files of AWS DMS and Debezium are read")


def _flow(flow: Mapping[str, Any], pattern: re.Pattern[str]) -> Told:
    changes = _changes(flow)
    sequence = tuple(part.strip() for part in str(changes.get("sequence_by") or "").split(",") if part.strip())
    fields: dict[str, Any] = {"sequence_by": sequence} if sequence else {}
    if str(changes.get("scd_type")) == "2":
        fields["history"] = True
        if except_columns := changes.get("track_history_except_column_list"):
            fields["track_history_except"] = tuple(except_columns)
    operation = _operation(changes)
    if operation and operation != "Op":
        fields["options.op_column"] = operation
    technical = {*sequence, operation, "_rescued_data"}
    if excluded := [name for name in changes.get("except_column_list") or () if name not in technical]:
        fields["exclude_columns"] = tuple(excluded)
    fields |= {ours: value for ours, value in _described(flow) if value}
    keys = tuple(changes.get("keys") or ())
    key = KeyFact(columns=keys, evidence="keys of the onboarding file") if keys else None
    return Told(pattern=pattern, fields=fields, keys=key)


def _changes(flow: Mapping[str, Any]) -> Mapping[str, Any]:
    """How changes are applied, by the last layer that says so."""
    return next((flow[name] for layer in _LAYERS if flow.get(name := f"{layer}_cdc_apply_changes")), {})


def _operation(changes: Mapping[str, Any]) -> str:
    """The column of `Op = 'D'`; empty: deletes are told otherwise, or not at all."""
    found = re.fullmatch(r"\s*(\w+)\s*=\s*'[A-Za-z]+'\s*", str(changes.get("apply_as_deletes") or ""))
    return found[1] if found else ""


def _described(flow: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for layer in reversed(_LAYERS):
        yield "description", flow.get(f"{layer}_table_comment")
        yield "cluster_by", tuple(flow.get(f"{layer}_cluster_by") or ())
        partitions = flow.get(f"{layer}_partition_columns") or ()
        yield "partition_by", (partitions,) if isinstance(partitions, str) else tuple(partitions)
    if is_csv_with_header(flow):
        yield "options.csv_header", True


def is_csv_with_header(flow: Mapping[str, Any]) -> bool:
    """Whether its files are CSV that names its columns."""
    options = flow.get("bronze_reader_options") or {}
    return options.get("cloudFiles.format") == "csv" and str(options.get("header", "")).lower() == "true"


def _left(name: str, flow: Mapping[str, Any]) -> Iterator[Notice]:
    changes = _changes(flow)
    if not changes:
        yield not_carried(name, "it appends rows, and applies no changes", "`keys: []` keeps each insert once")
    deletes = str(changes.get("apply_as_deletes") or "")
    if deletes and not re.fullmatch(r"\s*\w+\s*=\s*'[Dd](?:elete|ELETE)?'\s*", deletes):
        yield not_carried(
            name, f"apply_as_deletes: {deletes}", "deletes are changes with the operation D, as DMS writes them"
        )
    if changes.get("track_history_column_list"):
        yield not_carried(name, "track_history_column_list", "name the other columns in `track_history_except`")
    form = (flow.get("bronze_reader_options") or {}).get("cloudFiles.format")
    if form and form not in ("csv", "parquet"):
        yield not_carried(name, f"its files are {form}", "parquet or CSV of AWS DMS, or events of Debezium, are read")
    for layer in _LAYERS:
        for field, way_out in _ELSEWHERE.items():
            if (value := _by_environment(flow, f"{layer}_{field}")) not in (None, False, "", []):
                shown = f": {value}" if isinstance(value, str) else ""
                yield not_carried(name, f"{layer}_{field}{shown}", way_out)
        if properties := sorted(flow.get(f"{layer}_table_properties") or ()):
            way_out = "properties of Delta go to `table_properties`; those of pipelines have no effect here"
            yield not_carried(name, f"{layer}_table_properties ({', '.join(properties)})", way_out)
    path = _by_environment(flow["source_details"], "source_path")
    ending = name.replace(".", "/")
    if path and not str(path).rstrip("/").lower().endswith(ending.lower()):
        way_out = f"files are expected in <landing>/{ending}/: move them, or write them there"
        yield not_carried(name, f"its files are in {path}", way_out)
