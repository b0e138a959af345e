"""How a load writes PostgreSQL's values so that they equal those of the log, where the driver's would differ.

Values of the log are read by `dialects.debezium.connect_values`.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from airflow_gddl.contract.postgresql_log import ColumnType
from airflow_gddl.contract.sql_types import MAX_PRECISION

Form = tuple[pa.DataType, str]
"""Type of the values, and SQL with `{}` for the column."""
_INTERVAL = " || ".join((
    "'P' || extract(year FROM {}) || 'Y'", "extract(month FROM {}) || 'M'", "extract(day FROM {}) || 'DT'",
    "extract(hour FROM {}) || 'H'", "extract(minute FROM {}) || 'M'", "trim_scale(extract(second FROM {})) || 'S'",
))  # fmt: skip
_FORMS: Mapping[str, Form] = {
    "oid": (pa.int64(), "CAST({} AS bigint)"),
    "money": (pa.decimal128(MAX_PRECISION, 2), "CAST({} AS numeric)"),
    "timetz": (pa.string(), "CAST(CAST({} AT TIME ZONE 'UTC' AS time) AS text) || 'Z'"),
    "interval": (pa.string(), _INTERVAL),
    "inet": (pa.string(), "NULLIF(format('%s', {}), '')"),
    "bit": (pa.bool_(), "({} = B'1')"),
}
_PLAIN: Mapping[str, tuple[pa.DataType, str]] = {
    "bool": (pa.bool_(), "boolean"), "int2": (pa.int16(), "smallint"), "int4": (pa.int32(), "integer"),
    "int8": (pa.int64(), "bigint"), "float4": (pa.float32(), "real"), "float8": (pa.float64(), "double precision"),
    "date": (pa.date32(), "date"), "timestamp": (pa.timestamp("us"), "timestamp"), "bytea": (pa.binary(), "bytea"),
    "timestamptz": (pa.timestamp("us", tz="UTC"), "timestamptz"),
}  # fmt: skip
"""Types that the driver gives as they are, but not under the name of a domain."""


def form_of(kind: ColumnType, *, is_domain: bool) -> Form | None:
    """Null: the values are those that any load has."""
    if kind.name == "numeric":
        return _numeric(kind, is_domain=is_domain)
    if is_domain and kind.name in _PLAIN:
        arrow, name = _PLAIN[kind.name]
        return arrow, f"CAST({{}} AS {name})"
    return _FORMS.get(kind.name)


def _numeric(kind: ColumnType, *, is_domain: bool) -> Form | None:
    if kind.decimal is None:  # text by any load
        return None
    precision, scale = kind.decimal
    if precision <= MAX_PRECISION and not is_domain:
        return None
    return pa.decimal128(min(precision, MAX_PRECISION), scale), "CAST({} AS numeric)"
