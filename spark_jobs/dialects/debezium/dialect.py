"""Debezium as a dialect. Parquet events, whose envelope is a row of structs, are read here as a table of rows."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, time
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.extensions import DebeziumOptions
from airflow_gddl.contract.file_names import Names, PathFormat, is_temporary
from airflow_gddl.contract.sql_types import MAX_PRECISION
from airflow_gddl.stores.readers import GZIP_MAGIC, Inflating
from spark_jobs.dialects.debezium.change_events import OPERATIONS, read_events, table_of
from spark_jobs.dialects.debezium.connect_values import (
    Kind,
    Values,
    array_of,
    kind_for,
    named_kind,
    texts,
    unavailable_forms,
)
from spark_jobs.dialects.debezium.technical import (
    CARRIED,
    OP,
    SEQUENCE,
    TIME,
    Source,
    Translated,
    with_epochs,
    with_keys,
    with_other_epochs,
    with_technical,
)
from spark_jobs.dialects.probe import reading, require_bounded
from spark_jobs.dialects.protocol import EVERYTHING, Dialect, InputOpener, Probed, Window
from spark_jobs.plan.discover import FileTimes
from spark_jobs.plan.planned_batch import PlannedFile
from spark_jobs.plan.source_snapshots import MOST_NAMED, KnownSnapshots, SnapshotMarks, SnapshotPart

_AVRO = b"parquet.avro.schema"


def read_parquet(
    data: bytes, options: DebeziumOptions, keys: Sequence[str] = (), before_images: str | None = None
) -> Translated:
    """
    Args:
        keys: see `events.read_events`.
        before_images: prefix of the columns of rows before updates; null: these are left out.

    Raises:
        ValueError: its columns are not those of an envelope.
        pyarrow.ArrowException: it is no parquet file, or a damaged one.
    """
    table = _envelopes(pq.ParquetFile(io.BytesIO(data), coerce_int96_timestamp_unit="us").read(use_threads=False))
    raw = [None if op is None else str(op) for op in table.column("op").to_pylist()]
    fields = _names_of_types(table.schema.metadata or {})
    data_columns: dict[str, Values] = {}
    kept: dict[str, Sequence[bool]] = {}
    for name, values in _row_columns(table, raw, keys).items():
        found, flags = _available(values, options)
        if any(flags):
            kept[name] = flags
        data_columns[name] = _meant(found, _kind(name, fields, options))
    if before_images is not None:
        for name, values in _before(table, raw).items():
            found, _ = _available(values, options)
            data_columns[f"{before_images}{name}"] = _meant(found, _kind(name, fields, options))
    sources = [source or {} for source in table.column("source").to_pylist()]
    ops = [OPERATIONS.get(op, op.upper()) if op else None for op in raw]
    return with_technical(ops, data_columns, sources, kept)


def _envelopes(table: pa.Table) -> pa.Table:
    """The envelopes, from the column `value` that sinks write next to `key` and `offset`."""
    if "op" not in table.column_names and (inner := _members(table, "value")):
        there = table.column("value").is_valid()  # the others are tombstones
        inner = {**inner, **({"key": table.column("key")} if "key" in table.column_names else {})}
        table = pa.table(inner).replace_schema_metadata(table.schema.metadata).filter(there)
    if not {"op", "source"} <= {*table.column_names} or not (_members(table, "before") or _members(table, "after")):
        raise ValueError(f"not change events of Debezium: its columns are {', '.join(table.column_names)}")
    return table


def _row_columns(table: pa.Table, ops: Sequence[str | None], keys: Sequence[str]) -> dict[str, pa.Array]:
    """Columns of the row after, for deletes of the row before, whose key may be in the key of its record alone."""
    deleted = pa.array([op == "d" for op in ops], pa.bool_())
    after, before = _members(table, "after"), _members(table, "before")
    found = {}
    for name in dict.fromkeys((*after, *before)):
        empty = pa.nulls(table.num_rows, (after[name] if name in after else before[name]).type)
        found[name] = _chosen(deleted, before.get(name, empty), after.get(name, empty))
    wanted = {name.lower() for name in keys}
    for name, values in _members(table, "key").items():
        if name in found and name.lower() in wanted and not pt.is_nested(values.type):
            lacking = pc.and_(deleted, found[name].is_null())
            found[name] = pc.if_else(lacking, values.cast(found[name].type), found[name])
    return found


def _before(table: pa.Table, ops: Sequence[str | None]) -> dict[str, pa.Array]:
    """Columns of the row before, for updates; none where they are not delivered."""
    if "u" not in ops or table.column("before").null_count == table.num_rows:
        return {}
    updated = pa.array([op == "u" for op in ops], pa.bool_())
    return {name: _chosen(updated, found, pa.nulls(len(found), found.type))
            for name, found in _members(table, "before").items()}  # fmt: skip


def _chosen(where: pa.Array, yes: pa.Array, no: pa.Array) -> pa.Array:
    """As `pc.if_else`, also for nested types."""
    if not pt.is_nested(yes.type):
        return pc.if_else(where, yes, no)
    both = pa.concat_arrays([yes, no])
    rows = len(yes)
    return both.take(pa.array([at if flag else at + rows for at, flag in enumerate(where.to_pylist())], pa.int64()))


def _members(table: pa.Table, name: str) -> Mapping[str, pa.Array]:
    if name not in table.column_names or not pt.is_struct(table.schema.field(name).type):
        return {}
    column = table.column(name).combine_chunks()
    return {field.name: pc.struct_field(column, field.name) for field in column.type}


def _available(values: pa.Array, options: DebeziumOptions) -> tuple[pa.Array, Sequence[bool]]:
    """The values with nulls for the placeholder, and the mask of placeholders."""
    kind = values.type
    forms = unavailable_forms(options)
    if pt.is_nested(kind):
        try:
            flags = [value in forms for value in values.to_pylist()]
        except ValueError:  # times in nanoseconds, which no placeholder has and Python can't hold
            return values, ()
    elif pt.is_string(kind) or pt.is_large_string(kind) or pt.is_binary(kind):
        wanted = [form for form in forms if isinstance(form, bytes if pt.is_binary(kind) else str)]
        flags = pc.is_in(values, value_set=pa.array(wanted, kind)).to_pylist()
    else:
        return values, ()
    if not any(flags):
        return values, ()
    empty = pa.nulls(len(values), kind)
    return _chosen(pa.array(flags, pa.bool_()), empty, values), flags


def _kind(name: str, fields: Mapping[str, str], options: DebeziumOptions) -> Kind | None:
    return named_kind(fields[name], {}) if name in fields else kind_for(name, {}, options)


def _meant(values: pa.Array, kind: Kind | None) -> Values:
    """Converted by the type's name; parquet's own decimals, dates and times of day are unchanged."""
    own = values.type
    if pt.is_time(own):
        times = values.cast(pa.time64("us"), safe=False).to_pylist()  # Python's have no nanoseconds
        return Values(pa.array([None if v is None else _time_text(v) for v in times], pa.string()))
    if pt.is_decimal(own) and own.precision > MAX_PRECISION:  # Connect's converter writes 64 for unknown
        return _short(values)
    if kind is None or pt.is_temporal(own) or pt.is_decimal(own) or (own == pa.string() and kind.type == pa.string()):
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


def _time_text(value: time) -> str:
    text = value.isoformat()
    return text.rstrip("0") if "." in text else text


def _names_of_types(metadata: Mapping[bytes, bytes]) -> dict[str, str]:
    """Column to Connect type name, from the Avro schema that the sinks' writer leaves in the file."""
    try:
        schema = json.loads(metadata.get(_AVRO, b"{}"))
    except ValueError:
        return {}
    records = {str(found.get("name")).rpartition(".")[2]: found for found in _records(schema)}
    for part in ("after", "before"):
        for row in _branches(_field(schema, part)):
            record = _resolved(row, records)
            if record is not None:
                return _connect_names(record, records)
    return {}


def _resolved(kind: Any, records: Mapping[str, dict[str, Any]]) -> dict[str, Any] | None:
    """Avro describes a record at its first use, and refers to it by name afterwards."""
    name = kind.get("name") if isinstance(kind, dict) else kind
    return records.get(str(name).rpartition(".")[2])


def _connect_names(row: Mapping[str, Any], records: Mapping[str, dict[str, Any]]) -> dict[str, str]:
    named = {}
    for field in row.get("fields") or ():
        for kind in _branches(field.get("type")):
            branch = kind if isinstance(kind, dict) else _resolved(kind, records)
            if branch is not None and isinstance(branch.get("connect.name"), str):
                named[field["name"]] = branch["connect.name"]
    return named


def _records(schema: Any) -> list[dict[str, Any]]:
    found = []
    for branch in _branches(schema):
        if isinstance(branch, dict) and branch.get("type") == "record":
            found.append(branch)
            for field in branch.get("fields") or ():
                found += _records(field.get("type"))
    return found


def _field(schema: Any, name: str) -> Any:
    for record in _branches(schema):
        for field in record.get("fields") or () if isinstance(record, dict) else ():
            if field.get("name") == name:
                return field.get("type")
    return None


def _branches(kind: Any) -> Sequence[Any]:
    """The branches of a union; any other type itself."""
    return kind if isinstance(kind, list) else () if kind is None else (kind,)


_ENDING = r"(?:\.(?:snappy|gz|zstd))?\.(?:jsonl?|ndjson|parquet)(?:\.gz)?"
_OFFSET = re.compile(rf"(?:.*[+-](?P<partition>\d+)[+-])?(?P<offset>\d+)(?:{_ENDING}|\.gz)?", re.IGNORECASE)
_AIVEN = re.compile(r".+-\d+-\d+(?:\.gz)?")
_DATA = re.compile(rf".*{_ENDING}", re.IGNORECASE)
_BESIDE = re.compile(r".*\.(?:keys|headers)(?:\.\w+)+", re.IGNORECASE)


def classify(relative_path: str) -> Names | None:
    """Kind, format and order of a file by its path below the landing folder; None unless it is a data file.

    The order is that of the Kafka offsets in the names, which is the order of the changes of each key.
    """
    name = relative_path.rpartition("/")[2]
    if is_beside(relative_path) or not (_DATA.fullmatch(name) or _AIVEN.fullmatch(name)):
        return None
    found = _OFFSET.fullmatch(name)
    offset, partition = (found["offset"], found["partition"] or "") if found else ("", "")
    order = (offset.zfill(20), partition.zfill(10), relative_path)
    return "change", "parquet" if ".parquet" in name.lower() else "json", order


def offset_order(path: str) -> str | None:
    """Sort key by the Kafka offset in a file's name; None for other files."""
    found = _OFFSET.fullmatch(path.rpartition("/")[2])
    return None if found is None else f"{found['offset'].zfill(20)}/{(found['partition'] or '').zfill(10)}/{path}"


def partition_of(path: str) -> str:
    """The topic's partition in a file's name; empty: its name has none."""
    found = _OFFSET.fullmatch(path.rpartition("/")[2])
    return "" if found is None else found["partition"] or ""


def is_beside(relative_path: str) -> bool:
    """Hidden and unfinished files, and separate files of sinks with the keys and headers of records."""
    return is_temporary(relative_path) or _BESIDE.fullmatch(relative_path.rpartition("/")[2]) is not None


_LAST, _LAST_OF_TABLE = "last", "last_in_data_collection"
_OF_SNAPSHOT = frozenset({"true", "first", "first_in_data_collection", _LAST_OF_TABLE, _LAST})
"""Values of `source.snapshot`; others: streamed changes (`false`) and rows of incremental snapshots."""


def marks_of(table: pa.Table, sources: Sequence[Source], path: str) -> SnapshotMarks:
    """
    Args:
        table: the rows, with their positions and commit times; `sources`: of the same rows.
        path: of the file.
    """
    given = [source for source in sources if source]
    names = dict.fromkeys(_text(source.get("name")) for source in given)
    tables = dict.fromkeys(map(_collection, given))
    partition = partition_of(path)
    return SnapshotMarks(
        sources=tuple(names)[:MOST_NAMED], collections=tuple(tables)[:MOST_NAMED],
        partitions=(partition,) if partition else (), parts=_parts(table, sources),
    )  # fmt: skip


def with_other_places(known: KnownSnapshots, began: Sequence[str]) -> KnownSnapshots:
    """Snapshots with the places that they have in a log that was reset at these moments (`technical.with_epochs`)."""
    times = [None if run.since is None else datetime.fromisoformat(run.since) for run in known.runs]
    places = pa.table({
        SEQUENCE: pa.array([run.position for run in known.runs], pa.string()),
        TIME: pa.array(times, pa.timestamp("us", "UTC")),
    })  # fmt: skip
    found = with_other_epochs(places, began).column(SEQUENCE).to_pylist()
    return replace(known, runs=tuple(replace(r, position=at) for r, at in zip(known.runs, found, strict=True)))


def _parts(table: pa.Table, sources: Sequence[Source]) -> tuple[SnapshotPart, ...]:
    marks = [_mark(source) for source in sources]
    rows = [row for row, mark in enumerate(marks) if mark in _OF_SNAPSHOT]
    if not rows or SEQUENCE not in table.column_names:
        return ()
    chosen = table.select([SEQUENCE, TIME]).take(pa.array(rows))
    found: dict[str, dict[str, Any]] = {}
    for row, position, at in zip(rows, *(column.to_pylist() for column in chosen.columns), strict=True):
        if position is not None:
            part = found.setdefault(position, {"since": None, "finished": {}, "whole": False})
            part["since"] = min((t for t in (part["since"], at) if t is not None), default=None)
            part["whole"] |= marks[row] == _LAST
            if marks[row] == _LAST_OF_TABLE:
                part["finished"][_collection(sources[row])] = True
    return tuple(
        SnapshotPart(
            position=position, since=_iso(part["since"]), finished=tuple(part["finished"]), whole=part["whole"]
        )
        for position, part in found.items()
    )


def _mark(source: Source) -> str:
    """In lower case; connectors before Debezium 1.0 write booleans."""
    value = source.get("snapshot")
    return "" if value is None else str(value).lower()


def _collection(source: Source) -> str:
    return ".".join(_text(source.get(part)) for part in ("db", "schema", "table"))


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _iso(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat()


_PARQUET = b"PAR1"


@dataclass(frozen=True)
class DebeziumDialect(Dialect):
    """See `Dialect`. All files are change files: rows of snapshots have a position in the order of changes too."""

    options: DebeziumOptions

    title = "a Debezium sink"
    operations = "c, u, d, r, t"
    malformed = (
        "not a change event of Debezium: no op with the before or after that it needs, "
        "or half of a surrogate pair in a name or a nested value"
    )
    total_order = (SEQUENCE,)
    of_one_length = True
    log_positions = True
    sends_again = True
    carried = CARRIED

    def classify(self, relative_path: str) -> Names | None:
        """By time first where folders state one, so that a partial run leaves newer files for later."""
        found = classify(relative_path)
        if found is None or self._format is None:
            return found
        kind, file_format, order = found
        return kind, file_format, (self._format.time(relative_path) or "", *order)

    def is_temporary(self, relative_path: str) -> bool:
        return is_beside(relative_path)

    @property
    def op_column(self) -> str:
        return OP

    @property
    def commit_times(self) -> Sequence[str]:
        return (TIME,)

    @property
    def times(self) -> FileTimes:
        return FileTimes(self._format)

    def file_order(self, path: str) -> str | None:
        return offset_order(path)

    def reordered(self, rows: pa.Table) -> pa.Table:
        return with_other_epochs(rows, self.options.log_began)

    def replaced_snapshots(self, known: KnownSnapshots) -> KnownSnapshots:
        return with_other_places(known, self.options.log_began)

    def windows(self, cursor: str, since: datetime, until: datetime) -> tuple[Window, ...]:  # noqa: ARG002 - the port's
        """Time folders from `since` on, and files next to them: all names except those of earlier folders."""
        if self._format is None:
            return EVERYTHING
        before, start = self._format.first, self._format.before(since)
        return (Window(end_before=before), Window(start_after=start)) if before < start else EVERYTHING

    @cached_property
    def _format(self) -> PathFormat | None:
        text = self.options.path_format
        try:
            return None if text is None else PathFormat.parsed(text)
        except ValueError as error:
            what, remedy = f"options.path_format {text!r}: {error}", "correct the row"
            raise FatalError("PATH_FORMAT_INVALID", what, where=self.spec.table, remedy=remedy) from error

    def probe(self, storage: InputOpener, file: PlannedFile) -> Probed:
        with reading(file):
            with storage.open_input(file.path) as stream:
                data = stream.read()
            if data[:2] == GZIP_MAGIC:
                data = Inflating(io.BytesIO(data), self.bounds.inflated(file.size), file.path).readall()
            images = self.spec.before_image_prefix
            if data[:4] == _PARQUET:
                require_bounded(io.BytesIO(data), file, self.bounds, pq.read_metadata(io.BytesIO(data)))
                return self._probed(file, read_parquet(data, self.options, self.spec.keys, images))
            events = read_events(data, self.spec.keys)
            return self._probed(file, table_of(events, self.options, images), events.malformed)

    def _probed(self, file: PlannedFile, rows: Translated, malformed: pa.Array | None = None) -> Probed:
        table = with_epochs(with_keys(rows.table, self.spec.keys), self.options.log_began)
        marks = None if self.options.snapshots == "merge" else marks_of(table, rows.sources, file.path)
        return Probed.of_table(file, table, malformed, rows.stated, marks)
