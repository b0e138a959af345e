"""Debezium as a dialect."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from itertools import groupby

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from airflow_gddl.contract.codes import FIELD_VALUE, TABLE_BUSY
from airflow_gddl.contract.errors import FatalError, RetriableError
from airflow_gddl.contract.extensions import DebeziumOptions, DmsOptions
from airflow_gddl.contract.file_names import Names, PathFormat, is_resynced, is_temporary
from airflow_gddl.contract.flat_events import FlatForm
from airflow_gddl.stores.readers import GZIP_MAGIC, Inflating
from spark_jobs.plan.file_times import FileTimes
from spark_jobs.plan.planned_batch import PlannedFile
from spark_jobs.plan.sequence import is_in_file, place_in_log
from spark_jobs.plan.source_snapshots import (
    MOST_NAMED,
    FirstChange,
    KnownSnapshots,
    LogServer,
    SnapshotMarks,
    SnapshotPart,
    Stream,
    earliest,
    is_alone,
)
from spark_jobs.rooms.dialects.debezium.avro_files import MAGIC as AVRO
from spark_jobs.rooms.dialects.debezium.avro_files import avro_records
from spark_jobs.rooms.dialects.debezium.change_events import events_of, read_events, table_of
from spark_jobs.rooms.dialects.debezium.parquet_table import documents_in, read_parquet
from spark_jobs.rooms.dialects.debezium.technical import (
    CARRIED,
    LAST,
    LAST_OF_TABLE,
    NUMBER,
    OP,
    SEQUENCE,
    TIME,
    Source,
    Translated,
    is_of_snapshot,
    is_read,
    snapshot_mark,
    table_of_source,
    with_epochs,
    with_keys,
    with_loaded,
    with_log,
    with_numbers,
    with_order_of_delivery,
    with_other_epochs,
    with_sources,
)
from spark_jobs.rooms.dialects.probe import probe, reading, require_bounded
from spark_jobs.rooms.dialects.protocol import EVERYTHING, TRUNCATE, Dialect, InputOpener, Probed, Window, decoded_bytes

_ENDING = r"(?:\.(?:snappy|gz|zstd))?\.(?:jsonl?|ndjson|parquet|avro)(?:\.gz)?"
_CAPTURED = r"(?:_\d+_[0-9a-f]{8}(?:_log(?P<log>\d{4}))?)?"
"""Of files that jobs write: the end of their messages, a digest, and the number of the log that was captured."""
_OFFSET = re.compile(rf"(?:.*[+-](?P<partition>\d+)[+-])?(?P<offset>\d+){_CAPTURED}(?:{_ENDING}|\.gz)?", re.IGNORECASE)
_AIVEN = re.compile(r".+-\d+-\d+(?:\.gz)?")
_LOAD = re.compile(r"LOAD[0-9A-F]{8}\.parquet")  # written by `gddl load`
_DATA = re.compile(rf".*{_ENDING}", re.IGNORECASE)
_BESIDE = re.compile(r".*\.(?:keys|headers)(?:\.\w+)+", re.IGNORECASE)


def classify(relative_path: str) -> Names | None:
    """Kind, format and order of a file by its path below the landing folder; None unless it is a data file.

    The order is that of the Kafka offsets in the names, which is the order of the changes of each key.
    """
    name = relative_path.rpartition("/")[2]
    if _LOAD.fullmatch(relative_path):
        return "load", "parquet", (relative_path,)
    if is_beside(relative_path) or not (_DATA.fullmatch(name) or _AIVEN.fullmatch(name)):
        return None
    match = _offset(name)
    offset = match["offset"] if match else ""
    order = (offset.zfill(20), partition_of(name).zfill(10), relative_path)
    return "change", "parquet" if ".parquet" in name.lower() else "json", order


def _offset(path: str) -> re.Match[str] | None:
    """What a file's name says of the places of its messages."""
    return _OFFSET.fullmatch(path.rpartition("/")[2])


def offset_order(path: str) -> str | None:
    """Sort key by the Kafka offset in a file's name; None for other files."""
    match = _offset(path)
    return None if match is None else f"{match['offset'].zfill(20)}/{partition_of(path).zfill(10)}/{path}"


def partition_of(path: str) -> str:
    """The topic's partition in a file's name; empty: its name has none."""
    match = _offset(path)
    return (match and match["partition"]) or ""


def log_of(path: str) -> int:
    """How often the log that jobs capture was opened anew before this file; 0: never, or others wrote the file."""
    match = _offset(path)
    return int((match and match["log"]) or 0)


def is_beside(relative_path: str) -> bool:
    """Hidden and unfinished files, and separate files of sinks with the keys and headers of records."""
    return is_temporary(relative_path) or _BESIDE.fullmatch(relative_path.rpartition("/")[2]) is not None


def marks_of(table: pa.Table, rows: Translated, path: str) -> SnapshotMarks:
    """
    Args:
        table: the rows, with their positions and commit times.
        path: of the file.
    """
    sources = rows.sources
    given = [source for source in sources if source]
    names = dict.fromkeys(_text(source.get("name")) for source in given)
    tables = dict.fromkeys(map(table_of_source, given))
    shards = dict.fromkeys(_text(source["rs"]) for source in given if source.get("rs"))
    partition, times = partition_of(path), table.column(TIME).to_pylist()
    positions = table.column(SEQUENCE).to_pylist() if SEQUENCE in table.column_names else ()
    placed = [row for row in zip(sources, positions, times, strict=False) if row[1] is not None]
    changes = [row for row in placed if not is_of_snapshot(row[0])]
    firsts = (
        FirstChange(position=position, committed_at=_iso(time) if is_alone(position) else None)
        for _, position, time in changes
    )
    return SnapshotMarks(
        id_types=rows.id_types, shards=tuple(shards)[:MOST_NAMED], servers=_servers(changes, path),
        sources=tuple(names)[:MOST_NAMED], collections=tuple(tables)[:MOST_NAMED],
        partitions=(partition,) if partition else (), parts=_parts(row for row in placed if is_of_snapshot(row[0])),
        firsts=earliest(firsts), streams=_streams(sources, times),
    )  # fmt: skip


def with_other_places(known: KnownSnapshots, began: Sequence[str]) -> KnownSnapshots:
    """Snapshots and servers with the places that they have in a log that was reset at these moments
    (`technical.with_epochs`)."""

    def moved(positions: Sequence[str], times: Sequence[str | None]) -> list[str]:
        moments = [None if time is None else datetime.fromisoformat(time) for time in times]
        places = {SEQUENCE: pa.array(positions, pa.string()), TIME: pa.array(moments, pa.timestamp("us", "UTC"))}
        found: list[str] = with_other_epochs(pa.table(places), began).column(SEQUENCE).to_pylist()
        return found

    positions = moved([run.position for run in known.runs], [run.since for run in known.runs])
    lows = moved([one.low for one in known.servers], [one.since for one in known.servers])
    highs = moved([one.high for one in known.servers], [one.until for one in known.servers])
    # `firsts` count until a snapshot is known, so that these of a log with other places are of no use.
    return replace(
        known, firsts=(), runs=tuple(replace(r, position=at) for r, at in zip(known.runs, positions, strict=True)),
        servers=tuple(replace(s, low=low, high=high) for s, low, high in zip(known.servers, lows, highs, strict=True)),
    )  # fmt: skip


_Placed = tuple[Source, str, datetime | None]
"""The source of an event, its place in the log and its commit time."""


def _servers(changes: Iterable[_Placed], path: str) -> tuple[LogServer, ...]:
    """Servers of MySQL; a time alone is no place."""
    by_name: dict[str, list[tuple[str, datetime]]] = {}
    behind: dict[str, str] = {}
    highest = ""
    for source, position, time in changes:
        place = place_in_log(position)
        if time is not None and is_in_file(place):
            name = _text(source.get("server_id"))
            behind.setdefault(name, highest if place < highest else "")
            by_name.setdefault(name, []).append((place, time))
            highest = max(highest, place)
    order, partition, found = offset_order(path) or "", partition_of(path), list[LogServer]()
    for name, rows in by_name.items():
        places, moments = zip(*rows, strict=True)
        found.append(LogServer(
            name=name, low=min(places), high=max(places), since=min(moments).isoformat(),
            until=max(moments).isoformat(), partition=partition, from_file=order, to_file=order, behind=behind[name],
        ))  # fmt: skip
    return tuple(found[:MOST_NAMED])


def _streams(sources: Sequence[Source], times: Sequence[datetime | None]) -> tuple[Stream, ...]:
    """By table and connector, where events name it. Rows that were read have no time of a change."""
    found: dict[str, list[tuple[str, datetime | None]]] = {}
    for source, time in zip(sources, times, strict=True):
        if name := source.get("name"):
            found.setdefault(table_of_source(source), []).append((_text(name), None if is_read(source) else time))
    return tuple(stream for name, events in found.items() for stream in _streams_of(name, events))[:MOST_NAMED]


def _streams_of(table: str, events: Sequence[tuple[str, datetime | None]]) -> Iterator[Stream]:
    """
    Args:
        events: connector and commit time, in the order of delivery.
    """
    turns = [connector for connector, _ in groupby(connector for connector, _ in events)]
    again = {connector for connector, count in Counter(turns).items() if count > 1}
    between = {connector for one in again for connector in _between(turns, one)}
    for connector in dict.fromkeys(turns):
        times = [time for name, time in events if name == connector and time is not None]
        since, until = (_iso(min(times)), _iso(max(times))) if times else (None, None)
        yield Stream(table=table, connector=connector, since=since, until=until, mixed=connector in between)


def _between(names: Sequence[str], name: str) -> Sequence[str]:
    """From the first place of a name to its last."""
    return names[names.index(name) : len(names) - names[::-1].index(name)]


def _parts(rows: Iterable[_Placed]) -> tuple[SnapshotPart, ...]:
    """
    Args:
        rows: of snapshots.
    """
    by_position: dict[str, list[_Placed]] = {}
    for row in rows:
        by_position.setdefault(row[1], []).append(row)
    return tuple(
        SnapshotPart(
            position=position,
            since=_iso(min((time for _, _, time in read if time is not None), default=None)),
            finished=tuple(
                dict.fromkeys(table_of_source(one) for one, _, _ in read if snapshot_mark(one) == LAST_OF_TABLE)
            ),
            whole=any(snapshot_mark(one) == LAST for one, _, _ in read),
        )
        for position, read in by_position.items()
    )


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _iso(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat()


_PARQUET = b"PAR1"


@dataclass(frozen=True)
class DebeziumDialect(Dialect):
    """See `Dialect`. Rows of snapshots are changes, for they have a position too; `gddl load` writes load files."""

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
    loads_apart = False
    sends_again = True
    names_transactions = True
    zoned_timestamps = True

    def classify(self, relative_path: str) -> Names | None:
        """By time first where folders state one, so that a partial run leaves newer files for later."""
        names = classify(relative_path)
        if names is None or self._format is None:
            return names
        kind, file_format, order = names
        if kind == "load":
            return names
        return kind, file_format, (self._format.time(relative_path) or "", *order)

    def is_temporary(self, relative_path: str) -> bool:
        return is_beside(relative_path)

    @property
    def op_column(self) -> str:
        return OP

    @property
    def carried(self) -> str:
        return CARRIED

    @property
    def number(self) -> str:
        return NUMBER

    @property
    def commit_times(self) -> Sequence[str]:
        return (TIME,)

    @property
    def times(self) -> FileTimes:
        return FileTimes(self._format)

    def file_order(self, path: str) -> str | None:
        return f"~{path.rpartition('/')[2]}" if is_resynced(path) else offset_order(path)

    def reordered(self, rows: pa.Table) -> pa.Table:
        # The log of captured changes has its number in the names of files.
        return rows if self.options.capture else with_other_epochs(rows, self.options.log_began)

    def replaced_snapshots(self, known: KnownSnapshots) -> KnownSnapshots:
        return known if self.options.capture else with_other_places(known, self.options.log_began)

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
            what, remedy = f"options.path_format {text!r}: {error}", "correct the metadata row"
            raise FatalError(FIELD_VALUE, what, where=self.spec.table, remedy=remedy) from error

    def probe(self, storage: InputOpener, file: PlannedFile) -> Probed:
        if file.kind == "load" or is_resynced(file.path):  # rows that jobs have read from the source
            return probe(storage, file, DmsOptions(), self.inflated_bytes)
        self._require_load(file)
        with reading(file):
            with storage.open_input(file.path) as stream:
                data = stream.read()
            if data[:2] == GZIP_MAGIC:
                data = Inflating(io.BytesIO(data), self.inflated_bytes, file.path).readall()
            images, flat = self.spec.before_image_prefix, FlatForm.of(self.spec, self.options, file.path)
            if data[:4] == _PARQUET:
                rows = pq.ParquetFile(io.BytesIO(data), coerce_int96_timestamp_unit="us")
                require_bounded(io.BytesIO(data), file, self.inflated_bytes, rows.metadata)
                documents = documents_in(rows)
                if documents is None:
                    return self._probed(file, *read_parquet(rows, self.options, self.spec.keys, images, flat))
                data = documents
            if data[:4] == AVRO:
                records = avro_records(data, decoded_bytes(self.inflated_bytes, file.size), file.path)
                events = events_of(records, self.spec.keys, flat)
            else:
                events = read_events(data, self.spec.keys, flat)
            return self._probed(file, table_of(events, self.options, images, self.spec.keys), events.malformed)

    def _require_load(self, file: PlannedFile) -> None:
        """
        Raises:
            RetriableError: `TABLE_BUSY`: until the load has read the table, it is not known which changes it has.
        """
        if self.is_loading:
            what = f"{self.spec.table} has no keys, and its load from the source has not ended"
            remedy = f"let it end, or resume it: `gddl load --table {self.spec.table}`"
            raise RetriableError(TABLE_BUSY, what, where=file.path, remedy=remedy)

    def _probed(self, file: PlannedFile, rows: Translated, malformed: pa.Array | None = None) -> Probed:
        table = with_order_of_delivery(rows.table, rows.sources, self.spec.keys)
        table = with_sources(table, rows.sources, self.spec.keys)
        table = with_numbers(table, rows.numbers, self.spec.keys)
        table = with_epochs(with_keys(table, self.spec.keys), self.options.log_began)
        table = with_log(table, log_of(file.path))
        table = with_loaded(table, rows.sources, self.loaded, log_of(file.path))
        marks = marks_of(table, rows, file.path)
        marks = replace(marks, parts=()) if self.options.snapshots == "merge" else marks
        probed = Probed.of_table(file, table, malformed, rows.stated, marks)
        operations = pc.unique(rows.table.column(self.op_column)).to_pylist() if malformed is None else []
        return replace(probed, only_truncates=operations == [TRUNCATE], unavailable=rows.unavailable,
                       defaults=rows.defaults)  # fmt: skip
