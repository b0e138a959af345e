"""This project's job, in this process: without Spark, or with `tasks: many` and either way to commit."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from airflow_gddl.contract.names import landed_name
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.table_spec import SchemaEvolution, TableSpec
from spark_jobs.rooms.dialects.dms import name_in_files
from tests.conformance.delivery import Arrival, Delivery, Outcome
from tests.conformance.history import PRECISION, SCALE, Kind
from tests.conftest import LocalPort
from tests.harness.lake import Lake
from tests.harness.places import Way, table_of

SQL: Mapping[Kind, str] = {
    "int4": "int", "int8": "bigint", "decimal": f"decimal({PRECISION},{SCALE})", "float8": "double", "text": "string",
    "bool": "boolean", "timestamp": "timestamp_ntz", "timestamptz": "timestamp", "date": "date", "time": "string",
    "longtime": "string", "bytes": "binary",
}  # fmt: skip
HELD = ("SNAPSHOT_HELD", "SNAPSHOT_WAITING", "SWEEP_HELD", "TRUNCATE_HELD")
"""Warnings of a run that has left its table as it was."""
PLACES = ("one", "many", "merge")
_WAYS = {"many": Way(), "merge": Way(merged=True)}


def row_of(delivery: Delivery, arrival: Arrival, name: str = "s.t") -> dict[str, Any]:
    """The row of metadata that somebody writes who knows the settings of the tool."""
    make = {"dms": _dms, "exports": _exports}.get(delivery.writer, _debezium)
    common = {"table": name, "keys": delivery.keys, "truncate": "apply", "sweep_limit": 1.0, "sweep_after": "0s"}
    return {**common, "settle": "0s", **make(delivery, arrival)}


def _dms(delivery: Delivery, arrival: Arrival) -> dict[str, Any]:
    settings = delivery.settings
    is_csv = settings["DataFormat"] == "csv"
    options: dict[str, Any] = {"missing_folder": "empty"}
    if is_csv:
        types = {column.name: SQL[column.kind] for column in delivery.columns if column.name in arrival.in_files}
        options |= {"types": types, "csv_header": settings["AddColumnName"], "csv_delimiter": settings["CsvDelimiter"]}
        options |= {"csv_row_delimiter": settings["CsvRowDelimiter"], "csv_null": settings["CsvNullValue"]}
        options |= {"csv_quotes": settings["Rfc4180"], "csv_no_sup": settings.get("CsvNoSupValue")}
        options |= {} if settings["AddColumnName"] else {"csv_columns": arrival.in_files}
    else:
        options["types"] = {c.name: SQL[c.kind] for c in delivery.columns if c.kind == "bool"}
    if stamp := settings["TimestampColumnName"]:
        options["timestamp_column"] = stamp
    if settings["DatePartitionSequence"]:
        options |= {"date_partition": settings["DatePartitionSequence"]}
        options |= {"date_delimiter": settings["DatePartitionDelimiter"].lower()}
        options |= {"date_partition_timezone": settings["DatePartitionTimezone"] or "UTC"}
    if settings["CdcOperations"] != "all" and not settings["IncludeOpForFullLoad"]:
        options["missing_op"] = "insert"
    images = {"before_image_prefix": "BI_"} if settings["BeforeImages"] else {}
    return {"dialect": "dms", "options": options, **images}


def _debezium(delivery: Delivery, arrival: Arrival) -> dict[str, Any]:
    return {"dialect": "debezium", "options": dict(delivery.settings.get("row_options", {}))}


def _exports(delivery: Delivery, arrival: Arrival) -> dict[str, Any]:
    settings = delivery.settings
    complete = "_SUCCESS" if settings["complete"] == "_SUCCESS" else str(settings["parts"])
    options: dict[str, Any] = {"path_format": "'dt='yyyy-MM-dd", "complete": complete}
    if settings["format"] == "csv":
        options["types"] = {c.name: SQL[c.kind] for c in delivery.columns if c.name in arrival.in_files}
        options |= {
            "csv_header": settings["HEADER"],
            "csv_delimiter": settings["DELIMITER"],
            "csv_null": settings["NULL"],
        }
        options |= {"csv_no_sup": None, "csv_quotes": True}  # as COPY writes them
        options |= {} if settings["HEADER"] else {"csv_columns": arrival.in_files}
    evolution = {"schema_evolution": SchemaEvolution(dropped_column="null")}
    return {"dialect": "dms", "mode": "snapshots", "options": options, **evolution}


def held(codes: Iterable[str]) -> str:
    """The first code by which a run says that its table waits; empty: it does not."""
    return next((code for code in codes if code in HELD), "")


def play(delivery: Delivery, folder: Path, place: str = "one") -> Outcome:
    """Run after each arrival."""
    port = LocalPort("one" if place == "one" else "many")
    (folder / "landing").mkdir(parents=True, exist_ok=True)
    lake = Lake(folder, port=port.everywhere())
    plain = f"s.{delivery.table}"
    name = table_of(_WAYS[place], plain) if place in _WAYS else plain
    said: Counter[str] = Counter()
    refused = ""
    for arrival in delivery.arrivals:
        spec = TableSpec(**row_of(delivery, arrival, name))
        land(folder / "landing" / Path(*name.split(".")), arrival)
        result = lake.result(spec)
        said.update(warning.code for warning in result.warnings)
        refused = result.error.code if result.error is not None else held(w.code for w in result.warnings)
    return _outcome(lake, spec, said, refused, result, delivery)


def _outcome(
    lake: Lake, spec: TableSpec, said: Counter[str], refused: str, result: JobResult, delivery: Delivery
) -> Outcome:
    layout = lake.layout(spec)
    bad = [row for row in lake.rows(layout.errors) if row["resolved_at"] is None]
    said.update(row["code"] for row in bad)
    rows = lake.rows(layout.replica)
    kept = [row for row in rows if not row["_gddl"].get("deleted")]
    # A source's column with a reserved name has another one in the lake, as docs/initial-load.md says.
    operation = "Op" if delivery.writer == "exports" else ""
    names = {landed_name(name_in_files(c.name, operation)): c.name for c in delivery.columns}
    sources = [{names.get(name, name): value for name, value in row.items() if name != "_gddl"} for row in kept]
    found = None if not rows and result.version is None else tuple(sources)
    return Outcome(found, dict(said), refused, len(bad))


def land(folder: Path, arrival: Arrival) -> None:
    """Put the files of an arrival into the table's folder, each later than the one before."""
    if arrival.emptied:
        shutil.rmtree(folder, ignore_errors=True)
    for file in arrival.files:
        path = folder / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.tmp")
        temporary.write_bytes(file.data)
        if file.modified is not None:
            os.utime(temporary, (file.modified.timestamp(), file.modified.timestamp()))
        temporary.replace(path)
