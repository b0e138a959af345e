"""AWS DMS with a target endpoint of Amazon S3: the files of one table.

Sources of the facts, named below by their short names:
- API: `S3Settings` of the DMS API, https://docs.aws.amazon.com/dms/latest/APIReference/API_S3Settings.html (the same
  texts are in botocore, `data/dms/2016-01-01/service-2.json`).
- GUIDE: https://docs.aws.amazon.com/dms/latest/userguide/CHAP_Target.S3.html.
- TRANSFORM: https://docs.aws.amazon.com/dms/latest/userguide/, pages
  CHAP_Tasks.CustomizingTasks.TableMapping.SelectionTransformation.Expressions (headers: `$AR_H_CHANGE_SEQ`) and
  the same, Transformations (before images).
- LOB: https://docs.aws.amazon.com/dms/latest/userguide/CHAP_Tasks.LOBSupport.html.
"""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq

from tests.conformance.delivery import Arrival, Delivery, Either, File, Uncertain
from tests.conformance.history import PRECISION, SCALE, START, Change, Column, History, Key, Kind, Row, Step

KINDS: tuple[Kind, ...] = ("text", "decimal", "float8", "bool", "timestamp", "date")
"""Kinds of columns. Times of day and bytes are left out: no page says how their text is in CSV."""

SETTINGS: Mapping[str, tuple[Any, ...]] = {
    "DataFormat": ("csv", "parquet"),
    "CsvDelimiter": (",", ";", "|", "\t"),
    "CsvRowDelimiter": ("\n", "\r\n"),
    "CsvNullValue": ("NULL", "", "\\N", "-"),
    "Rfc4180": (True, False),
    "AddColumnName": (False, True),
    "UseCsvNoSupValue": (False, True),
    "TimestampColumnName": ("", "dms_timestamp", "committed"),
    "UseTaskStartTimeForFullLoadTimestamp": (False, True),
    "IncludeOpForFullLoad": (False, True),
    "CdcOperations": ("all", "CdcInsertsOnly", "CdcInsertsAndUpdates"),
    "DatePartitionSequence": ("", "YYYYMMDD", "YYYYMMDDHH", "YYYYMM", "MMYYYYDD", "DDMMYYYY"),
    "DatePartitionDelimiter": ("SLASH", "DASH", "UNDERSCORE", "NONE"),
    "DatePartitionTimezone": ("", "Europe/Berlin", "Asia/Seoul"),
    "CompressionType": ("none", "gzip"),
    "MaxFileSize": ("whole", "a few rows"),
    "CdcMinFileSize": ("whole", "a few rows"),
    "ParquetVersion": ("parquet-1-0", "parquet-2-0"),
    "EncodingType": ("rle-dictionary", "plain"),
    "RowGroupLength": (10_000, 1),
    "DataPageSize": (1 << 20, 64),
    "DictPageSizeLimit": (1 << 20, 16),
    "EnableStatistics": (True, False),
    "ParquetTimestampInMillisecond": (False, True),
    "ChangeSequence": (True, False),
    "BeforeImages": ("", "pk-only", "all"),
    "LobMaxSize": (0, 1),
    "TargetTablePrepMode": ("DROP_AND_CREATE", "DO_NOTHING"),
    "HandleSourceTableTruncated": (True, False),
    "EmptyLoad": ("no file", "no bytes", "header"),
    "TimestampPlace": ("first", "last"),
}
"""Settings of the endpoint, then of the task, that change a byte. The two last ones are no settings: `EmptyLoad` is
what a load of no rows leaves, `TimestampPlace` where the column of `TimestampColumnName` is; GUIDE tells neither."""

NOT_DRAWN: Mapping[str, str] = {
    **dict.fromkeys(
        ("ServiceAccessRoleArn", "BucketName", "BucketFolder", "EncryptionMode", "ServerSideEncryptionKmsKeyId",
         "CannedAclForObjects", "ExpectedBucketOwner", "GlueCatalogGeneration"),
        "changes where files are or who may read them, and no byte",
    ),
    **dict.fromkeys(("ExternalTableDefinition", "IgnoreHeaderRows"), "of S3 as a source alone (API)"),
    "CsvNoSupValue": "with UseCsvNoSupValue",
    "CdcInsertsOnly": "a value of CdcOperations",
    "CdcInsertsAndUpdates": "a value of CdcOperations",
    "DatePartitionEnabled": "by DatePartitionSequence",
    "CdcMaxBatchInterval": "closes a file, as CdcMinFileSize does",
    "PreserveTransactions": "files of all tables of a transaction in one folder, which no table has (GUIDE)",
    "CdcPath": "with PreserveTransactions",
    "EncodingType plain-dictionary": "with parquet-1-0 the library writes this name for rle-dictionary",
    "AddTrailingPaddingCharacter": "API says neither which character nor to which width",
}  # fmt: skip
"""Further settings of API, and why none is drawn."""

NO_SUP = "~not logged~"
_LOB_LIMIT = 1024
_PARQUET_ONLY = ("ParquetVersion", "EncodingType", "RowGroupLength", "DataPageSize", "DictPageSizeLimit",
                 "EnableStatistics", "ParquetTimestampInMillisecond")  # fmt: skip
_CSV_ONLY = ("CsvDelimiter", "CsvRowDelimiter", "CsvNullValue", "Rfc4180", "AddColumnName", "UseCsvNoSupValue")
_BROKEN = frozenset({"ROW_MALFORMED", "FILE_UNREADABLE", "LOAD_UNREADABLE", "FIRST_LOAD_UNREADABLE", "CAST_FAILED",
                     "OP_UNKNOWN"})  # fmt: skip


def refusal(case: Mapping[str, Any]) -> str:
    """Why settings and events can't be combined, or make no difference together."""
    usual = {name: values[0] for name, values in SETTINGS.items()}
    changed = {name for name, value in case.items() if name in usual and value != usual[name]}
    for other, names in (("csv", _PARQUET_ONLY), ("parquet", _CSV_ONLY)):
        if case.get("DataFormat") == other and changed & set(names):
            return f"no effect on {other} (API)"
    return next((why for why, holds in _RULES if holds(case, changed)), "")


_RULES: tuple[tuple[str, Callable[[Mapping[str, Any], set[str]], Any]], ...] = (
    ("only with DatePartitionEnabled (API)",
     lambda c, n: c.get("DatePartitionSequence") == "" and n & {"DatePartitionDelimiter", "DatePartitionTimezone"}),
    ("only with TimestampColumnName (API)",
     lambda c, n: c.get("TimestampColumnName") == ""
     and n & {"UseTaskStartTimeForFullLoadTimestamp", "TimestampPlace"}),
    ("an S3 target has no failover of the source", lambda c, _: c.get("failed_over")),
    ("DMS takes no incremental snapshots", lambda c, _: c.get("incremental")),
    ("the load is not empty", lambda c, n: "EmptyLoad" in n and c.get("empty_load") is False),
    ("a header alone needs AddColumnName",
     lambda c, _: c.get("EmptyLoad") == "header" and c.get("AddColumnName") is False),
    ("no page says what an empty parquet file of a load is",
     lambda c, n: "EmptyLoad" in n and c.get("DataFormat") == "parquet"),
    ("columns that are not logged are those of updates",
     lambda c, _: c.get("UseCsvNoSupValue") and c.get("unlogged") is False),
    ("lines of one width whose columns only time tells",
     lambda c, n: _nameless(c, n) and c.get("added") and c.get("dropped")),
    ("rows that a service without deletes has, and a truncate or moved key has not",
     lambda c, _: c.get("CdcOperations", "all") != "all"
     and (c.get("truncated") or c.get("moved") or c.get("unlogged"))),
)  # fmt: skip


def _nameless(case: Mapping[str, Any], changed: set[str]) -> bool:
    """Whether files may have neither a header nor a schema."""
    return "AddColumnName" not in changed and case.get("DataFormat") != "parquet"


@dataclass
class _Told:
    """What the files tell, so far.

    Attributes:
        rows: by key; a cell may be an `Either`.
        ghosts: rows whose key has changed without a before image: nothing deletes them.
        broken: keys that a line concerns which can't be read.
        left: keys that rows have left, and where they went.
    """

    history: History
    settings: Mapping[str, Any]
    rows: dict[Key, dict[str, Any]] = field(default_factory=dict)
    ghosts: dict[Key, dict[str, Any]] = field(default_factory=dict)
    maybe: dict[Key, dict[str, Any]] = field(default_factory=dict)
    broken: set[Key] = field(default_factory=set)
    left: dict[Key, Key] = field(default_factory=dict)

    def take(self, change: Change, columns: Sequence[Column]) -> None:
        if change.op == "T":
            self._truncate()
        elif change.op == "D":
            self.rows.pop(self.history.key(change.row), None)
        else:
            self._put(change, columns)

    def _truncate(self) -> None:
        """GUIDE: a truncate removes all files of the table; with `HandleSourceTableTruncated: false` nothing."""
        if not self.settings["HandleSourceTableTruncated"]:
            self.maybe |= self.rows | self.ghosts
        self.rows, self.ghosts = {}, {}

    def _put(self, change: Change, columns: Sequence[Column]) -> None:
        key, old = self.history.key(change.row), self.rows.get(self.history.key(change.before or change.row), {})
        row = {column.name: self.seen(change.row[column.name], column) for column in columns}
        for name in change.unlogged:
            # API, UseCsvNoSupValue: without it DMS writes null for columns that the log lacks.
            known = self.settings["UseCsvNoSupValue"] and self.settings["DataFormat"] == "csv"
            row[name] = old.get(name) if known and key in self.rows else Either((*_values(row[name]), None))
        if change.before is not None and (before := self.history.key(change.before)) != key:
            gone = self.rows.pop(before, None)
            self.left[before] = key
            if not self.settings["BeforeImages"] and gone is not None:
                # Where a truncate that leaves no trace has removed a row of the new key, this looks like its update.
                (self.maybe if key in self.maybe else self.ghosts)[before] = gone
        self.rows[key] = row
        self.ghosts.pop(key, None)
        self.maybe.pop(key, None)

    def load(self, rows: Sequence[Row], columns: Sequence[Column]) -> None:
        self.rows = {self.history.key(row): {c.name: self.seen(row[c.name], c) for c in columns} for row in rows}
        self.ghosts, self.maybe = {}, {}

    def seen(self, value: Any, column: Column) -> Any:
        """A value as the files show it, with what the tool itself cuts."""
        if column.name == "note" and self.settings["LobMaxSize"] and isinstance(value, str):
            value = _cut(value)
        if self.settings["DataFormat"] == "parquet":
            if column.kind == "timestamp" and value is not None and self.settings["ParquetTimestampInMillisecond"]:
                return value.replace(microsecond=value.microsecond // 1000 * 1000)
            return value
        if column.kind == "text" and value is not None and value == self.settings["CsvNullValue"]:
            return Either((value, None))  # API: quotes are for marks and line breaks alone, so that nothing tells
        return value


def _cut(text: str) -> str:
    """LOB: limited LOB mode truncates what is longer."""
    return text.encode()[:_LOB_LIMIT].decode(errors="ignore")


def _values(value: Any) -> tuple[Any, ...]:
    return value.values if isinstance(value, Either) else (value,)


@dataclass
class _Line:
    """A row of a file.

    Attributes:
        op: None: a row of a full load.
    """

    op: str | None
    at: datetime
    number: int
    change: Change
    columns: tuple[Column, ...]


def write(history: History, settings: Mapping[str, Any]) -> Delivery:
    """The files of a task of full load and CDC."""
    return _Task(history, settings).delivery()


class _Task:
    def __init__(self, history: History, settings: Mapping[str, Any]) -> None:
        self.history, self.settings = history, settings
        self.told = _Told(history, settings)
        self.number = 0
        self.last_name = self.last_written = START - timedelta(days=1)
        self.has_load = self.loaded_late = False
        self.forms: set[tuple[str, ...]] = set()
        self.lines: set[Key] = set()

    def delivery(self) -> Delivery:
        history = self.history
        arrivals = [self._loaded(history.loaded, history.columns, START - timedelta(minutes=10))]
        waiting: list[_Line] = []
        seen: list[_Line] = []
        for step in history.steps:
            arrivals += self._step(step, waiting, seen)
        arrivals += self._closed(waiting)
        return Delivery(
            writer="dms",
            settings=self._known(),
            keys=history.keys,
            columns=history.last_columns,
            arrivals=tuple(arrivals),
            right=self._right(),
            maybe=self.told.maybe,
            uncertain=tuple(self._uncertain()),
        )

    def _known(self) -> dict[str, Any]:
        more = {"CsvNoSupValue": NO_SUP} if self.settings["UseCsvNoSupValue"] else {}
        return {**self.settings, **more}

    def _step(self, step: Step, waiting: list[_Line], seen: list[_Line]) -> Iterator[Arrival]:
        if step.kind == "commit":
            lines = [self._line(step, change) for change in step.changes if change.op != "T"]
            for change in step.changes:
                if self._is_written(change):
                    self.told.take(change, step.columns)
            waiting += [line for line in lines if self._is_written(line.change)]
            seen += lines
            if any(change.op == "T" for change in step.changes) and self.settings["HandleSourceTableTruncated"]:
                waiting.clear()
                seen.clear()
                self.has_load = False
                yield Arrival((), emptied=True, in_files=self._names(step.columns))
        elif step.kind == "flush" or (step.kind in ("add_column", "drop_column") and self._knows_names()):
            yield from self._closed(waiting)
        elif step.kind == "resume":
            # A task that is resumed reads from its last checkpoint on, so that changes come twice.
            yield from self._closed(waiting)
            waiting += [line for line in seen[-4:] if self._is_written(line.change)]
        elif step.kind == "reload":
            yield from self._closed(waiting)
            yield self._reloaded(step)
            seen.clear()

    def _knows_names(self) -> bool:
        """A header or a schema is that of a whole file, so that a change of the columns begins another one."""
        return self.settings["DataFormat"] == "parquet" or self.settings["AddColumnName"]

    def _is_written(self, change: Change) -> bool:
        operations = {"all": "IUD", "CdcInsertsOnly": "I", "CdcInsertsAndUpdates": "IU"}[self.settings["CdcOperations"]]
        return change.op in operations or change.op == "T"

    def _line(self, step: Step, change: Change) -> _Line:
        self.number += 1
        return _Line(change.op, step.at, self.number, change, step.columns)

    # ---- files

    def _loaded(self, rows: Sequence[Row], columns: tuple[Column, ...], at: datetime) -> Arrival:
        self.told.load(rows, columns)
        lines = [_Line(None, at, 0, Change("I", after=row), columns) for row in rows]
        size = 2 if self.settings["MaxFileSize"] == "a few rows" else max(len(lines), 1)
        files = [self._file(f"LOAD{1 + number:08X}", lines[first : first + size])
                 for number, first in enumerate(range(0, len(lines), size))]  # fmt: skip
        if not lines:
            files = self._empty(columns, at)
        self.has_load |= bool(files)
        return Arrival(tuple(files), in_files=self._names(columns))

    def _empty(self, columns: tuple[Column, ...], at: datetime) -> list[File]:
        """GUIDE: a folder is made if the source table is not empty; users report files of no bytes, and of a header."""
        if self.settings["EmptyLoad"] == "no file":
            return []
        text = self._text([], columns, is_load=True) if self.settings["EmptyLoad"] == "header" else b""
        return [self._packed("LOAD00000001", text, self._written(at))]

    def _reloaded(self, step: Step) -> Arrival:
        """GUIDE, task settings: with DROP_AND_CREATE the table's files are removed before it is loaded again."""
        emptied = self.settings["TargetTablePrepMode"] == "DROP_AND_CREATE"
        before = self.told.rows | self.told.ghosts | self.told.maybe
        self.loaded_late |= not emptied and not self.has_load
        arrival = self._loaded(step.rows, step.columns, step.at)
        if not step.rows and not emptied:
            self.told.maybe = before  # a load of no rows leaves no file, and what was there stays
        return Arrival(arrival.files, emptied, arrival.in_files)

    def _closed(self, waiting: list[_Line]) -> Iterator[Arrival]:
        """The files of the lines that wait."""
        if not waiting:
            return
        files, size = [], 2 if self.settings["CdcMinFileSize"] == "a few rows" else len(waiting)
        for first in range(0, len(waiting), size):
            for folder, lines in self._by_folder(waiting[first : first + size]):
                files.append(self._file(folder + self._name(lines[-1].at), lines))
        columns = waiting[-1].columns
        waiting.clear()
        yield Arrival(tuple(files), in_files=self._names(columns))

    def _by_folder(self, lines: Sequence[_Line]) -> Iterator[tuple[str, list[_Line]]]:
        """API, DatePartitionEnabled: folders by the dates of commits. Lines keep their order in each."""
        group: list[_Line] = []
        for line in lines:
            if group and self._folder(line.at) != self._folder(group[0].at):
                yield self._folder(group[0].at), group
                group = []
            if group and self._knows_names() and group[0].columns != line.columns:
                yield self._folder(group[0].at), group
                group = []
            group.append(line)
        yield self._folder(group[0].at), group

    def _folder(self, at: datetime) -> str:
        sequence = self.settings["DatePartitionSequence"]
        parts = {"YYYYMMDD": "%Y %m %d", "YYYYMMDDHH": "%Y %m %d %H", "YYYYMM": "%Y %m", "MMYYYYDD": "%m %Y %d",
                 "DDMMYYYY": "%d %m %Y"}.get(sequence)  # fmt: skip
        if parts is None:
            return ""
        mark = {"SLASH": "/", "DASH": "-", "UNDERSCORE": "_", "NONE": ""}[self.settings["DatePartitionDelimiter"]]
        return self._local(at).strftime(parts).replace(" ", mark) + "/"

    def _local(self, at: datetime) -> datetime:
        """API, DatePartitionTimezone: the zone of folders and of names of CDC files."""
        zone = self.settings["DatePartitionTimezone"]
        return at.astimezone(ZoneInfo(zone)) if zone else at

    def _name(self, at: datetime) -> str:
        """GUIDE: names of CDC files are times, e.g. 20141029-1134010000.csv; three digits follow the second."""
        self.last_name = max(at, self.last_name + timedelta(milliseconds=1))
        local = self._local(self.last_name)
        return f"{local:%Y%m%d-%H%M%S}{local.microsecond // 1000:03d}"

    def _written(self, at: datetime) -> datetime:
        """When a file is written: one after the other, and S3 keeps whole seconds of it."""
        self.last_written = max(at, self.last_written + timedelta(seconds=1))
        return self.last_written

    def _file(self, name: str, lines: Sequence[_Line]) -> File:
        at = self._written(lines[-1].at)
        if self.settings["DataFormat"] == "parquet":
            return File(f"{name}.parquet", self._parquet(lines), at)
        return self._packed(name, self._text(lines, lines[-1].columns, is_load=lines[0].op is None), at)

    def _packed(self, name: str, text: bytes, at: datetime) -> File:
        if self.settings["CompressionType"] == "gzip":
            return File(f"{name}.csv.gz", gzip.compress(text, mtime=0), at)
        return File(f"{name}.csv", text, at)

    # ---- lines

    def _names(self, columns: Sequence[Column]) -> tuple[str, ...]:
        """Columns of a file in order, without that of the operation."""
        names = [column.name for column in columns]
        stamp, first = self.settings["TimestampColumnName"], self.settings["TimestampPlace"] == "first"
        added = [*(["AR_H_CHANGE_SEQ"] if self.settings["ChangeSequence"] else []), *self._images(names)]
        return (*([stamp] if stamp and first else []), *names, *added, *([stamp] if stamp and not first else []))

    def _images(self, names: Sequence[str]) -> list[str]:
        """TRANSFORM, add-before-image-columns: of the key, or of all columns but LOBs."""
        chosen = {"": [], "pk-only": self.history.keys, "all": [name for name in names if name != "note"]}
        return [f"BI_{name}" for name in names if name in chosen[self.settings["BeforeImages"]]]

    def _has_op(self, *, is_load: bool) -> bool:
        """API, IncludeOpForFullLoad, with CdcInsertsOnly and CdcInsertsAndUpdates."""
        if self.settings["IncludeOpForFullLoad"]:
            return True
        return not is_load and self.settings["CdcOperations"] == "all"

    def _row(self, line: _Line) -> dict[str, Any]:
        """Values by name."""
        change, is_load = line.change, line.op is None
        row: dict[str, Any] = {"Op": line.op or "I"}
        for column in line.columns:
            value = change.row.get(column.name)
            if column.name == "note" and self.settings["LobMaxSize"] and isinstance(value, str):
                value = _cut(value)
            row[column.name] = NO_SUP if column.name in change.unlogged and self.settings["UseCsvNoSupValue"] else (
                None if column.name in change.unlogged else value)  # fmt: skip
        images = change.before if change.op == "U" and change.before is not None else {}
        row |= {f"BI_{name}": value for name, value in images.items()}
        if self.settings["ChangeSequence"]:
            row["AR_H_CHANGE_SEQ"] = None if is_load else _change_seq(line)
        if stamp := self.settings["TimestampColumnName"]:
            row[stamp] = f"{self._stamp(line):%Y-%m-%d %H:%M:%S.%f}"
        return row

    def _stamp(self, line: _Line) -> datetime:
        """API, TimestampColumnName: the time of the transfer for a load, of the commit for changes."""
        if line.op is not None or not self.settings["UseTaskStartTimeForFullLoadTimestamp"]:
            return line.at
        return START - timedelta(minutes=20)

    def _text(self, lines: Sequence[_Line], columns: tuple[Column, ...], *, is_load: bool) -> bytes:
        mark, end = self.settings["CsvDelimiter"], self.settings["CsvRowDelimiter"]
        texts = []
        if self.settings["AddColumnName"]:
            texts.append(mark.join([*(["Op"] if self._has_op(is_load=is_load) else []), *self._names(columns)]))
        for line in lines:
            row, names = self._row(line), self._names(line.columns)
            names = ("Op", *names) if self._has_op(is_load=is_load) else names
            fields = [self._field(row.get(name)) for name in names]
            if any(self._breaks(field) for field in fields):
                self.told.broken.add(self.history.key(line.change.row))
            texts.append(mark.join(fields))
            self._note_form(line)
        return "".join(text + end for text in texts).encode()

    def _note_form(self, line: _Line) -> None:
        self.forms.add(self._names(line.columns))
        self.lines.add(self.history.key(line.change.row))

    def _breaks(self, field: str) -> bool:
        """API, Rfc4180: without it texts are copied as they are, delimiters too."""
        marks = (self.settings["CsvDelimiter"], self.settings["CsvRowDelimiter"])
        return not self.settings["Rfc4180"] and any(mark in field for mark in marks)

    def _field(self, value: Any) -> str:
        """API, Rfc4180: a text with quotation marks or line breaks is enclosed, and its marks are doubled.

        RFC 4180, 2.6 encloses one with the delimiter, too.
        """
        if value is None:
            return self.settings["CsvNullValue"]
        text = _csv(value)
        special = ('"', "\n", "\r", self.settings["CsvDelimiter"])
        if self.settings["Rfc4180"] and any(mark in text for mark in special):
            return '"' + text.replace('"', '""') + '"'
        return text

    def _parquet(self, lines: Sequence[_Line]) -> bytes:
        columns, is_load = lines[-1].columns, lines[0].op is None
        kinds = {column.name: self._arrow(column.kind) for column in columns}
        kinds |= {f"BI_{name}": kind for name, kind in kinds.items()}
        names = (*(["Op"] if self._has_op(is_load=is_load) else []), *self._names(columns))
        rows = [self._row(line) for line in lines]
        arrays = [_array([row.get(name) for row in rows], kinds.get(name, pa.string())) for name in names]
        out = io.BytesIO()
        pq.write_table(pa.table(arrays, names=list(names)), out, **self._parquet_settings())
        return out.getvalue()

    def _parquet_settings(self) -> dict[str, Any]:
        settings = self.settings
        return {
            "version": {"parquet-1-0": "1.0", "parquet-2-0": "2.4"}[settings["ParquetVersion"]],
            "use_dictionary": settings["EncodingType"] != "plain",
            "row_group_size": settings["RowGroupLength"],
            "data_page_size": settings["DataPageSize"],
            "dictionary_pagesize_limit": settings["DictPageSizeLimit"],
            "write_batch_size": 1,  # sizes of pages are looked at after each batch
            "write_statistics": settings["EnableStatistics"],
            "compression": "gzip" if settings["CompressionType"] == "gzip" else "none",
            "data_page_version": "2.0" if settings["ParquetVersion"] == "parquet-2-0" else "1.0",
            "store_schema": False,
        }

    def _arrow(self, kind: Kind) -> pa.DataType:
        """GUIDE, target data types for S3 Parquet. A boolean of PostgreSQL is a text (`MapBooleanAsBoolean`)."""
        unit = "ms" if self.settings["ParquetTimestampInMillisecond"] else "us"
        return {
            "int4": pa.int32(), "int8": pa.int64(), "decimal": pa.decimal128(PRECISION, SCALE), "float8": pa.float64(),
            "text": pa.string(), "bool": pa.string(), "timestamp": pa.timestamp(unit), "date": pa.date32(),
        }[kind]  # fmt: skip

    # ---- what is right

    def _right(self) -> dict[Key, Row]:
        """Rows that the files tell, with columns that were added since they were told."""
        source = {self.history.key(row): row for row in self.history.last_rows}
        return {key: {**self._filled(source.get(key, {})), **row} for key, row in self.told.rows.items()}

    def _filled(self, row: Row) -> dict[str, Any]:
        """A change of the columns leaves no line, so that a default in old rows is known to the source alone."""
        return {c.name: Either((row.get(c.name), None, c.default)) for c in self.history.last_columns}

    def _uncertain(self) -> Iterator[Uncertain]:
        if self.told.broken:
            why = "API, Rfc4180: a delimiter inside a text that is copied as it is"
            yield Uncertain(frozenset(self.told.broken), _BROKEN, why)
        if self.told.ghosts:
            why = "the key has changed, and no before image has the old one"
            yield Uncertain(frozenset(self.told.ghosts), frozenset({"UPDATE_WITHOUT_PRIOR"}), why)
        if len(self.forms) > 1 and not self._knows_names():
            why = "lines of several widths without a header"
            yield Uncertain(frozenset(self.lines), _BROKEN, why)
        nulls = {key for key in self.lines if self.settings["CsvNullValue"] in key}
        nulls |= {key for key, to in self.told.left.items() if to in nulls}
        if nulls and self.settings["DataFormat"] == "csv":
            why = "API, CsvNullValue: a key whose text is that of null"
            yield Uncertain(frozenset(nulls), frozenset({"KEY_NULL"}), why)
        if self.loaded_late:
            why = "GUIDE: a load of no rows leaves no file, so that the first file of another one may be late"
            yield Uncertain(None, frozenset({"LOAD_AFTER_CHANGES"}), why)
        happens = self.history.happens
        if (
            happens["reloaded"]
            and happens["arrival"] == "once"
            and self.settings["TargetTablePrepMode"] == "DO_NOTHING"
        ):
            why = "a load that is newer than changes, of which a reader has seen neither before"
            yield Uncertain(None, frozenset({"GENERATIONS_UNKNOWN"}), why)
        if not self.settings["ChangeSequence"] and not self.settings["TimestampColumnName"]:
            why = "nothing in the files orders changes but names and lines"
            yield Uncertain(None, frozenset({"SEQUENCE_MISSING"}), why)


def _change_seq(line: _Line) -> str:
    """TRANSFORM: a time and a number that grows, 35 digits."""
    return f"{line.at:%Y%m%d%H%M%S}{line.at.microsecond // 10_000:02d}{line.number:019d}"


def _csv(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S.%f}"  # API, ParquetTimestampInMillisecond: microseconds in CSV
    return str(value)


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_string(kind):
        return pa.array([None if v is None else _csv(v) for v in values], kind)
    if pa.types.is_timestamp(kind) and kind.unit == "ms":
        values = [None if v is None else v.replace(microsecond=v.microsecond // 1000 * 1000) for v in values]
    return pa.array(values, kind)
