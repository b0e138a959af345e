"""Tables with columns of every small, unsigned, decimal, time and nested type."""

from __future__ import annotations

import pyarrow as pa

from airflow_gddl.simulate.values import chance, make

_TYPES: dict[str, pa.DataType] = {
    "t_int8": pa.int8(), "t_int16": pa.int16(), "t_int32": pa.int32(), "t_int64": pa.int64(),
    "t_uint8": pa.uint8(), "t_uint16": pa.uint16(), "t_uint32": pa.uint32(), "t_uint64": pa.uint64(),
    "t_float32": pa.float32(), "t_float64": pa.float64(), "t_decimal_9_2": pa.decimal128(9, 2),
    "t_decimal_38_10": pa.decimal128(38, 10), "t_boolean": pa.bool_(), "t_date": pa.date32(),
    "t_timestamp": pa.timestamp("us", "UTC"), "t_string": pa.string(),
    "t_struct": pa.struct([("a", pa.int32()), ("b", pa.string())]),
}  # fmt: skip


def with_typed_columns(table: pa.Table) -> pa.Table:
    """The table with a column `t_...` of each type, about one value in ten null."""
    for column, kind in _TYPES.items():
        rng = chance(column)
        values = [make(kind, rng) if rng.random() < 0.9 else None for _ in range(table.num_rows)]
        table = table.append_column(column, pa.array(values, kind))
    return table
