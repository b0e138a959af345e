"""Parquet events, whose envelope is a row of structs, as a table of rows."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt

from airflow_gddl.contract.extensions import DebeziumOptions
from airflow_gddl.contract.flat_events import FlatForm
from airflow_gddl.contract.sql_types import MAX_PRECISION
from spark_jobs.plan.schema_evolution import ColumnDefault
from spark_jobs.rooms.dialects.debezium.avro_files import connect_schema
from spark_jobs.rooms.dialects.debezium.change_events import (
    FLAT,
    OPERATIONS,
    Event,
    Lives,
    Schema,
    default_of,
    named_parts,
    row_fields,
    unwrapped,
)
from spark_jobs.rooms.dialects.debezium.connect_values import (
    Kind,
    Values,
    array_of,
    is_propagated,
    json_of,
    kind_for,
    kind_of,
    texts,
    time_of_day,
)
from spark_jobs.rooms.dialects.debezium.technical import Translated, number_in_transaction, with_technical
from spark_jobs.rooms.dialects.debezium.unavailable import Unavailable, may_lack_values
from spark_jobs.rooms.dialects.debezium.whole_rows import is_cell_type, require_whole

_AVRO = b"parquet.avro.schema"
_UNITS = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}
"""Of times of day, in a second."""


def read_parquet(
    file: pq.ParquetFile,
    options: DebeziumOptions,
    keys: Sequence[str] = (),
    before_images: str | None = None,
    flat: FlatForm = FLAT,
) -> tuple[Translated, pa.Array | None]:
    """Rows, with a row of nulls for each tombstone of a row that no event of the file deletes, and `Probed.malformed`.

    Args:
        keys: see `change_events.read_events`.
        before_images: prefix of the columns of rows before updates; None: these are left out.

    Raises:
        ValueError: its columns are not those of an envelope; see `require_whole`.
        FatalError: flat events lack fields, see `FlatForm.require`.
        pyarrow.ArrowException: it is damaged.
    """
    delivered = file.read(use_threads=False)
    table, malformed = _with_orphans(delivered, _envelopes(delivered, flat), flat)
    raw = [None if op is None else str(op) for op in table.column("op").to_pylist()]
    described = _row_schemas(table.schema.metadata or {}, flat)
    fields = _typed(described)
    sources = [source or {} for source in table.column("source").to_pylist()]
    may_lack = [may_lack_values(source, is_read=op == "r") for source, op in zip(sources, raw, strict=True)]
    data_columns: dict[str, Values] = {}
    kept: dict[str, Sequence[bool]] = {}
    wanted = {name.lower() for name in keys}
    row_columns = _row_columns(table, raw, keys)
    require_whole(sources, next((name for name, values in row_columns.items() if is_cell_type(values.type)), None))
    for name, values in row_columns.items():
        available, flags = (values, ()) if name.lower() in wanted else _available(values, options, may_lack)
        if any(flags):
            kept[name] = flags
        data_columns[name] = _meant(available, _kind(name, fields, options))
    if before_images is not None:
        for name, values in _before(table, raw).items():
            available, _ = _available(values, options, may_lack)
            data_columns[f"{before_images}{name}"] = _meant(available, _kind(name, fields, options))
    ops = [OPERATIONS.get(op, op.upper()) if op else None for op in raw]
    made = with_technical(ops, data_columns, sources, kept)
    transactions = table.column("transaction").to_pylist() if "transaction" in table.column_names else ()
    defaults = _defaults(table, ops, described)
    return replace(made, numbers=tuple(map(number_in_transaction, transactions)), defaults=defaults), malformed


def _defaults(table: pa.Table, ops: Sequence[str | None], described: Mapping[str, Schema]) -> tuple[ColumnDefault, ...]:
    """See `change_events.defaults_of`."""
    found = []
    for name, values in _parts(table, "after").items():
        field = described.get(name, {})
        if (default := field.get("default")) is None:
            continue
        rows = [value for value, op in zip(values.to_pylist(), ops, strict=True) if op not in (None, "D")]
        found.append(default_of(name, default, rows if field.get("optional") else ()))
    return tuple(found)


def documents_in(file: pq.ParquetFile) -> bytes | None:
    """Events of documents in a parquet file as JSON lines; null for a file of others."""
    schema = file.schema_arrow
    inner = schema if "op" in schema.names else schema.field("value").type if "value" in schema.names else schema
    if isinstance(inner, pa.DataType) and not pt.is_struct(inner):
        return None
    fields = {field.name: field.type for field in inner}
    after = fields.get("after", pa.null())
    if "op" not in fields or not pt.is_struct(fields.get("source", pa.null())):
        return None  # a flat event may have columns of such names
    if not (pt.is_string(after) or pt.is_large_string(after)):
        return None
    rows = file.read(use_threads=False).to_pylist()
    return b"".join(json.dumps(row, default=str).encode() + b"\n" for row in rows)


def _envelopes(table: pa.Table, flat: FlatForm) -> pa.Table:
    """The envelopes, from the column `value` that sinks write next to `key` and `offset`."""
    if "op" not in table.column_names and not _is_flat(table, flat) and (inner := _parts(table, "value")):
        there = table.column("value").is_valid()  # the others are tombstones
        inner = {**inner, **({"key": table.column("key")} if "key" in table.column_names else {})}
        table = pa.table(inner).replace_schema_metadata(table.schema.metadata).filter(there)
    if _is_flat(table, flat):
        return _of_flat(table, flat)
    if not {"op", "source"} <= {*table.column_names} or not (_parts(table, "before") or _parts(table, "after")):
        raise ValueError(f"not change events of Debezium: its columns are {', '.join(table.column_names)}")
    return table


def _with_orphans(delivered: pa.Table, table: pa.Table, flat: FlatForm) -> tuple[pa.Table, pa.Array | None]:
    """Envelopes with nulls where a tombstone comes without its delete, and the original texts of these; None: no such.

    Args:
        table: the envelopes of `delivered`, without its tombstones.
    """
    if table.num_rows == delivered.num_rows or "key" not in delivered.column_names:
        return table, None
    are_there = delivered.column("value").is_valid().to_pylist()
    keys = [unwrapped(key, flat).value for key in _key_values(delivered)]
    events: list[Event] = []
    changes, lives = iter(_keys_of_rows(table, keys)), Lives(events)
    rows: list[int | None] = []
    texts_of_rows: list[str | None] = []
    for key, is_there in zip(keys, are_there, strict=True):
        if is_there:
            rows.append(len(events))
            events.append(next(changes))
        elif lives.has(key):
            rows.append(None)
        else:
            continue
        texts_of_rows.append(None if is_there else json_of({"key": key, "value": None}))
    if len(rows) == len(events):
        return table, None
    return table.take(pa.array(rows, pa.int64())), pa.array(texts_of_rows, pa.string())


def _key_values(delivered: pa.Table) -> Sequence[Any]:
    """Keys of records; times as texts, since Python's classes don't hold all of them."""
    parts, column = _parts(delivered, "key"), delivered.column("key")
    if not parts:
        found: list[Any] = column.to_pylist()
        return found
    return [key if there else None for key, there in zip(_mappings(parts), column.is_valid().to_pylist(), strict=True)]


def _mappings(parts: Mapping[str, pa.Array]) -> list[dict[str, Any]]:
    columns = [(texts(values) if pt.is_temporal(values.type) else values).to_pylist() for values in parts.values()]
    return [dict(zip(parts, row, strict=True)) for row in zip(*columns, strict=True)]


def _keys_of_rows(table: pa.Table, keys: Sequence[Any]) -> list[Event]:
    """An event of each envelope, with the columns alone that keys of records name."""
    ops = table.column("op").to_pylist()
    named = {name for key in keys if isinstance(key, Mapping) for name in key}
    rows = _mappings(_row_columns(table, ops, tuple(named), named)) or [{}] * len(ops)
    return [Event(OPERATIONS.get(op, str(op).upper()), row) for op, row in zip(ops, rows, strict=True)]


def _is_flat(table: pa.Table, flat: FlatForm) -> bool:
    return flat.is_flat(dict.fromkeys(table.column_names))


def _of_flat(table: pa.Table, flat: FlatForm) -> pa.Table:
    """The envelopes of flat events; `key` is a column of theirs, unless it is the struct that a sink adds."""
    key = {"key": table.column("key")} if _parts(table, "key") else {}
    columns = flat.columns(name for name in table.column_names if name not in key)
    names = [name for name in (columns.op, columns.deleted, *columns.source.values()) if name is not None]
    added = table.select(list(dict.fromkeys(names))).to_pylist()
    ops = [flat.operation(columns, row) for row in added]
    sources = [flat.source(columns, row) for row in added] or [{}]
    arrays = [table.column(name).combine_chunks() for name in columns.row]
    deleted = pa.array([op == "d" for op in ops], pa.bool_())
    sides = {"before": pc.invert(deleted), "after": deleted}
    rows = {side: pa.StructArray.from_arrays(arrays, list(columns.row), mask=mask) for side, mask in sides.items()}
    envelopes = {**rows, "op": pa.array(ops, pa.string()), "source": pa.array(sources).slice(0, len(ops)), **key}
    return pa.table(envelopes).replace_schema_metadata(table.schema.metadata)


def _row_columns(
    table: pa.Table, ops: Sequence[str | None], keys: Sequence[str], only: Collection[str] | None = None
) -> dict[str, pa.Array]:
    """Columns of the row after, for deletes of the row before, whose key may be in the key of its record alone.

    Args:
        only: names of the columns; None: all.
    """
    deleted = pa.array([op == "d" for op in ops], pa.bool_())
    after, before = _parts(table, "after"), _parts(table, "before")
    columns = {}
    for name in dict.fromkeys(name for name in (*after, *before) if only is None or name in only):
        empty = pa.nulls(table.num_rows, (after[name] if name in after else before[name]).type)
        columns[name] = _chosen(deleted, before.get(name, empty), after.get(name, empty))
    wanted = {name.lower() for name in keys}
    for name, values in _parts(table, "key").items():
        if name in columns and name.lower() in wanted and not pt.is_nested(values.type):
            lacking = pc.and_(deleted, columns[name].is_null())
            columns[name] = pc.if_else(lacking, values.cast(columns[name].type), columns[name])
    return columns


def _before(table: pa.Table, ops: Sequence[str | None]) -> dict[str, pa.Array]:
    """Columns of the row before, for updates; none where they are not delivered."""
    if "u" not in ops or table.column("before").null_count == table.num_rows:
        return {}
    updated = pa.array([op == "u" for op in ops], pa.bool_())
    return {name: _chosen(updated, values, pa.nulls(len(values), values.type))
            for name, values in _parts(table, "before").items()}  # fmt: skip


def _chosen(where: pa.Array, yes: pa.Array, no: pa.Array) -> pa.Array:
    """As `pc.if_else`, also for nested types."""
    if not pt.is_nested(yes.type):
        return pc.if_else(where, yes, no)
    both = pa.concat_arrays([yes, no])
    rows = len(yes)
    return both.take(pa.array([at if flag else at + rows for at, flag in enumerate(where.to_pylist())], pa.int64()))


def _parts(table: pa.Table, name: str) -> Mapping[str, pa.Array]:
    if name not in table.column_names or not pt.is_struct(table.schema.field(name).type):
        return {}
    column = table.column(name).combine_chunks()
    return {field.name: pc.struct_field(column, field.name) for field in column.type}


def _available(values: pa.Array, options: DebeziumOptions, may_lack: Sequence[bool]) -> tuple[pa.Array, Sequence[bool]]:
    """The values with nulls for the placeholder, and the mask of placeholders.

    Args:
        may_lack: rows that may have some, see `may_lack_values`.
    """
    kind = values.type
    unavailable = Unavailable(options.placeholder)
    forms = unavailable.forms
    if pt.is_nested(kind):
        try:
            flags = [value in forms or unavailable.is_spelled_by(value) for value in _plain(values).to_pylist()]
        except ValueError:  # times in nanoseconds inside a struct or map, where no placeholder has one
            return values, ()
    elif pt.is_string(kind) or pt.is_large_string(kind) or pt.is_binary(kind):
        wanted = [form for form in forms if isinstance(form, bytes if pt.is_binary(kind) else str)]
        flags = pc.is_in(values, value_set=pa.array(wanted, kind)).to_pylist()
    else:
        return values, ()
    flags = [flag and may for flag, may in zip(flags, may_lack, strict=True)]
    if not any(flags):
        return values, ()
    empty = pa.nulls(len(values), kind)
    return _chosen(pa.array(flags, pa.bool_()), empty, values), flags


def _plain(values: pa.Array) -> pa.Array:
    """Lists of dates and times as numbers: Python's classes hold neither all years nor nanoseconds."""
    if not (pt.is_list(values.type) or pt.is_large_list(values.type)) or not pt.is_temporal(values.type.value_type):
        return values
    return values.cast(pa.list_(pa.int32() if values.type.value_type.bit_width == 32 else pa.int64()))


def _kind(name: str, fields: Mapping[str, Mapping[str, Any]], options: DebeziumOptions) -> Kind | None:
    return kind_of(fields[name]) if name in fields else kind_for(name, {}, options)


def _meant(values: pa.Array, kind: Kind | None) -> Values:
    """Converted by the type's name; parquet's own decimals, dates and times of day are unchanged."""
    stored = values.type
    if pt.is_time(stored):
        text = time_of_day(_UNITS[stored.unit])
        numbers = values.cast(pa.int32() if stored.bit_width == 32 else pa.int64()).to_pylist()
        return Values(pa.array([None if v is None else text(v) for v in numbers], pa.string()))
    if pt.is_decimal(stored) and stored.precision > MAX_PRECISION:  # Connect's converter writes 64 for unknown
        return _short(values)
    if (
        kind is None
        or pt.is_temporal(stored)
        or pt.is_decimal(stored)
        or (stored == pa.string() and kind.type == pa.string())
    ):
        return Values(values)
    return array_of(values.to_pylist(), kind)


def _short(values: pa.Array) -> Values:
    """Numbers as decimals of 38 digits; one that needs more is a misfit."""
    scale = values.type.scale
    try:
        kind = pa.decimal128(MAX_PRECISION, scale)
    except ValueError:  # no decimal of 38 digits has as many of them after the point
        return Values(texts(values))
    try:
        return Values(values.cast(kind))
    except pa.ArrowException:
        return Values(texts(values), kind)


def _row_schemas(metadata: Mapping[bytes, bytes], flat: FlatForm) -> dict[str, Schema]:
    """Connect schemas of the row's columns, of the Avro schema that sinks leave in the file; empty: there is none."""
    try:
        schema = connect_schema(json.loads(metadata[_AVRO]))
    except (KeyError, TypeError, ValueError):
        return {}
    value = named_parts(schema).get("value", {})
    return row_fields(value if flat.is_flat(named_parts(value)) else schema, flat)


def _typed(fields: Mapping[str, Schema]) -> dict[str, Schema]:
    """Columns of which parquet's type says less: those with a name, and texts whose column has propagated its type."""
    named = {name: {"name": field["name"]} for name, field in fields.items() if "name" in field}
    texts_of = {name: field for name, field in fields.items() if field.get("type") == "string" and name not in named}
    return named | {name: field for name, field in texts_of.items() if is_propagated(field.get("parameters") or {})}
