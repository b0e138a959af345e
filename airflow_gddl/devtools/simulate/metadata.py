"""The metadata row that replicates a simulated table."""

from __future__ import annotations

from dataclasses import fields

import pyarrow as pa
import pyarrow.types as pt

from airflow_gddl.contract.dms import DmsOptions
from airflow_gddl.devtools.simulate.columns import SimulatedColumns
from airflow_gddl.devtools.simulate.encode import Encoder
from airflow_gddl.devtools.simulate.spec import Delivery

_KNOWN_SEQUENCES = ("transact_seq", "AR_H_CHANGE_SEQ")
_KNOWN_TIMES = ("dms_timestamp", "AR_H_COMMIT_TIMESTAMP")
_SQL: tuple[tuple[pa.DataType, str], ...] = (
    (pa.bool_(), "boolean"), (pa.int8(), "tinyint"), (pa.int16(), "smallint"), (pa.int32(), "int"),
    (pa.int64(), "bigint"), (pa.uint8(), "smallint"), (pa.uint16(), "int"), (pa.uint32(), "bigint"),
    (pa.uint64(), "decimal(20,0)"), (pa.float32(), "float"), (pa.float64(), "double"), (pa.date32(), "date"),
)  # fmt: skip


def metadata_row(table: str, columns: SimulatedColumns, delivery: Delivery) -> dict[str, object]:
    """Fields of a metadata row, only those that differ from their defaults.

    Args:
        table: `schema.name`.
    """
    row: dict[str, object] = {"table": table, "keys": list(columns.keys)}
    if delivery.debezium:
        return row | {"dialect": "debezium"}
    if delivery.sequence_column not in _KNOWN_SEQUENCES and not delivery.ar_h_columns:
        row["sequence_by"] = [delivery.sequence_column]
    if delivery.before_images:
        row["before_image_prefix"] = delivery.before_images
    if delivery.columns_to_update:
        row["columns_to_update"] = delivery.columns_to_update
    options = _options(columns, delivery)
    return row | ({"options": options} if options else {})


def _options(columns: SimulatedColumns, delivery: Delivery) -> dict[str, object]:
    csv = delivery.format.startswith("csv")
    names = Encoder(delivery, columns).changes([]).schema.names
    wanted = DmsOptions(
        date_partition=delivery.date_partition,
        date_delimiter=delivery.date_delimiter,
        timestamp_column=None if delivery.timestamp_column in _KNOWN_TIMES else delivery.timestamp_column,
        csv_header=csv and delivery.csv_header,
        csv_columns=tuple(names[1:]) if csv and not delivery.csv_header else (),
        csv_null=delivery.csv_null if csv else "NULL",
        types=_types(columns, delivery),
    )
    default = DmsOptions()
    changed = {f.name: getattr(wanted, f.name) for f in fields(wanted)}
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in changed.items()
        if value != getattr(default, name)
    }


def _types(columns: SimulatedColumns, delivery: Delivery) -> dict[str, str]:
    """Types of the columns that come as text though the source has another."""
    sent = {f.name: f.type for f in Encoder(delivery, columns).changes([]).schema}
    csv = delivery.format.startswith("csv")
    is_timed = delivery.source_times == "ms" and not csv
    typed = {c.delivered: sql_type(c.type) for c in columns.live if csv or sent[c.delivered] != c.type}
    return {name: kind for name, kind in typed.items() if kind and not (kind == "timestamp" and is_timed)}


def sql_type(kind: pa.DataType) -> str | None:
    """SQL type of a column that text stands for; null for text itself and what text can't stand for."""
    if pt.is_timestamp(kind):
        return "timestamp"
    if pt.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return next((name for known, name in _SQL if known == kind), None)
