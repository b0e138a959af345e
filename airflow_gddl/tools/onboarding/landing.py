"""Facts of a landing root. Needs pyarrow.

Keys that nothing declares are measured: columns with distinct values in the full load, likely names first.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_gddl.contract.codes import FIELD_VALUE, ONBOARD_CSV, ONBOARD_FILE_UNREADABLE
from airflow_gddl.contract.errors import GddlError
from airflow_gddl.contract.extensions import COMMIT_TIMES, DATE_DELIMITERS, DIALECTS, TOTAL_ORDER, LandedColumns
from airflow_gddl.contract.file_names import FileFormat, FileKind, change_time, classify, is_temporary, moment
from airflow_gddl.contract.layout import join
from airflow_gddl.contract.row_checks import table_name_fault
from airflow_gddl.contract.spec import DEFAULT_TIERS
from airflow_gddl.likely_keys import key_columns, key_rank
from airflow_gddl.stores import Storage, StoredObject, open_store
from airflow_gddl.stores.readers import GZIP_MAGIC, Chunk, Inflating, chunks_of
from airflow_gddl.tools.onboarding.rules import (
    MEASURED,
    Activity,
    KeyFact,
    Notice,
    SourceFacts,
    TableFacts,
)

MOST_FOOTERS = 25
"""Maximum number of files read for each kind and table."""
_THREADS = 16
_MOST_INFLATED = DEFAULT_TIERS["small"].inflated_bytes
_UNREADABLE = (GddlError, OSError, EOFError, pa.ArrowException, ValueError)


@dataclass(frozen=True, kw_only=True)
class LandedName:
    """A data file by its name. `name` is relative to the table's folder."""

    name: str
    kind: FileKind
    format: FileFormat
    order: tuple[str, ...]
    size: int
    modified: float


@dataclass(frozen=True, kw_only=True)
class Footer:
    """Footer of a parquet file.

    Attributes:
        columns: name to Arrow type as text, in file order.
        nulls: name to nulls in it; columns without statistics are absent.
    """

    file: LandedName
    rows: int
    columns: Mapping[str, str]
    nulls: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class TableFolder:
    """One table's folder.

    Attributes:
        files: all data files, loads before changes, each in their writer's order.
        footers: of some of them.
        unreadable: file to why its footer can't be read.
    """

    table: str
    files: tuple[LandedName, ...]
    footers: tuple[Footer, ...] = ()
    unreadable: Mapping[str, str] = field(default_factory=dict)

    def of(self, kind: FileKind) -> tuple[LandedName, ...]:
        return tuple(file for file in self.files if file.kind == kind)

    def footers_of(self, kind: FileKind) -> tuple[Footer, ...]:
        return tuple(footer for footer in self.footers if footer.file.kind == kind)


@dataclass(frozen=True)
class Landing:
    """A landing root and its store."""

    root: str
    environ: Mapping[str, str] = field(repr=False)

    @property
    def store(self) -> Storage:
        return open_store(self.environ)

    def folders(self, tables: frozenset[str] = frozenset()) -> tuple[TableFolder, ...]:
        """Every table folder (`<schema>/<table>/`) that holds data files, sorted; footers are read.

        Args:
            tables: only these; empty: all.
        """
        files_by_table: dict[str, list[LandedName]] = {}
        for table, file in self._named(tables):
            files_by_table.setdefault(table, []).append(file)
        bare = [
            TableFolder(table=table, files=tuple(sorted(files, key=lambda file: (file.kind == "change", file.order))))
            for table, files in sorted(files_by_table.items())
        ]
        with ThreadPoolExecutor(_THREADS) as pool:
            return tuple(pool.map(self._looked_into, bare))

    def _named(self, tables: frozenset[str]) -> Iterator[tuple[str, LandedName]]:
        if not tables:
            for item in self.store.list(self.root):
                schema, _, rest = item.name.partition("/")
                name, _, below = rest.partition("/")
                yield from _data_file(f"{schema}.{name}", below, item)
        for table in sorted(tables):
            for item in self.store.list(self.folder(table)):
                yield from _data_file(table, item.name, item)

    def folder(self, table: str) -> str:
        """Landing folder of a table."""
        return join(self.root, *table.split(".", 1))

    def _looked_into(self, folder: TableFolder) -> TableFolder:
        footers, unreadable = [], {}
        for file in chosen(folder.files):
            try:
                footers.append(self.footer(folder.table, file))
            except _UNREADABLE as error:
                unreadable[file.name] = f"{type(error).__name__}: {error}"[:200]
        return replace(folder, footers=tuple(footers), unreadable=unreadable)

    def footer(self, table: str, file: LandedName) -> Footer:
        """
        Raises:
            GddlError, OSError, EOFError, ArrowException, ValueError: it can't be read.
        """
        with self._source(table, file) as source:
            parquet = _opened(source)
            meta = parquet.metadata
            names = [meta.schema.column(i).path for i in range(meta.num_columns)]
            schema = parquet.schema_arrow
            return Footer(
                file=file,
                rows=meta.num_rows,
                columns={name: str(kind) for name, kind in zip(schema.names, schema.types, strict=True)},
                nulls=_nulls(names, chunks_of(source, len(names))),
            )

    @contextmanager
    def _source(self, table: str, file: LandedName) -> Iterator[BinaryIO]:
        """The file's content; a gzip stream is inflated."""
        with self.store.open_input(join(self.folder(table), file.name)) as stream:
            yield io.BytesIO(Inflating(stream, _MOST_INFLATED, file.name).readall()) if _zipped(stream) else stream

    def read(self, table: str, files: Iterable[LandedName], columns: Sequence[str]) -> Iterator[pa.Table]:
        """These columns of files, those of them that a file has; unreadable files are left out.

        Rows are read without threads: Arrow threads that read from a Python file object sometimes abort the process at
        exit (apache/arrow#34314), which changes the exit status.
        """
        for file in files:
            try:
                with self._source(table, file) as source:
                    parquet = _opened(source)
                    there = set(parquet.schema_arrow.names)
                    yield parquet.read(columns=[name for name in columns if name in there], use_threads=False)
            except _UNREADABLE:
                continue


def _data_file(table: str, below: str, item: StoredObject) -> Iterator[tuple[str, LandedName]]:
    known = None if not below or is_temporary(below) else classify(below)
    if known is not None:
        kind, form, order = known
        file = LandedName(name=below, kind=kind, format=form, order=order, size=item.size, modified=item.modified)
        yield table, file


def chosen(files: Sequence[LandedName]) -> Iterator[LandedName]:
    """The files whose footers are read: of each kind, evenly, the first and the newest among them."""
    for kind in ("load", "change"):
        mine = [file for file in files if file.kind == kind and file.format == "parquet"]
        if len(mine) <= MOST_FOOTERS:
            yield from mine
            continue
        step = (len(mine) - 1) / (MOST_FOOTERS - 1)
        yield from (mine[round(i * step)] for i in range(MOST_FOOTERS))


def _opened(source: BinaryIO) -> pq.ParquetFile:
    return pq.ParquetFile(source, pre_buffer=False, coerce_int96_timestamp_unit="us")


def _zipped(stream: BinaryIO) -> bool:
    head = bytes(stream.read(len(GZIP_MAGIC)))
    stream.seek(0)
    return head == GZIP_MAGIC


def _nulls(names: Sequence[str], groups: Iterable[Sequence[Chunk]]) -> dict[str, int]:
    """Nulls by column; without those whose number some row group doesn't state."""
    total: dict[str, int] = dict.fromkeys(names, 0)
    unknown: set[str] = set()
    for group in groups:
        for name, chunk in zip(names, group, strict=True):
            if chunk.nulls is None:
                unknown.add(name)
            else:
                total[name] += chunk.nulls
    return {name: count for name, count in total.items() if name not in unknown}


_RULES = DIALECTS.built_in["dms"].onboarding or LandedColumns()
SERVICE = (*_RULES.service, *TOTAL_ORDER, *COMMIT_TIMES)
"""Columns added by the CDC service or a task's rules."""
BEFORE_PREFIXES = _RULES.before_prefixes
_SEQUENCE = re.compile(r"(^|_)(change_?seq|seq|sequence|scn|lsn|change_number)$", re.IGNORECASE)
_DATED = re.compile(r"\d{4}(?P<by>[-_/]?)\d\d(?P<day>(?P=by)\d\d)?(?P<hour>(?P=by)\d\d)?")
_MOST_CANDIDATES = 6
_DELIMITER_NAMES = {delimiter: name for name, delimiter in DATE_DELIMITERS.items()}
_UNFIT = re.compile(r"^(float|double|halffloat|list|large_list|map|struct|binary|large_binary|time32|time64|bool)")


def facts_of(folder: TableFolder, key: KeyFact | None, now: float) -> TableFacts:
    """
    Args:
        key: key measured in the full load; None: none.
        now: seconds since the epoch.
    """
    loads = folder.of("load")
    return TableFacts(
        table=folder.table,
        columns=_source_columns(folder),
        key=key,
        rows=landing_rows(loads, folder.footers_of("load")),
        size_bytes=sum(file.size for file in loads) if loads else None,
        activity=_activity(folder, now),
        fields=_fields(folder),
    )


def notices_of(folder: TableFolder) -> Iterable[Notice]:
    """Notices about a folder, including reasons that it can't become a table."""
    if fault := table_name_fault(folder.table):
        remedy = "rename the table in the task's mapping rules (`rename-table`), or exclude it"
        yield Notice(table=folder.table, code=FIELD_VALUE, message=fault, remedy=remedy)
    if any(file.format == "csv" for file in folder.files):
        message = "CSV states neither types nor, without a header, names: columns and keys can't be read"
        remedy = "set options.csv_header or options.csv_columns, and options.types; or have the service write parquet"
        yield Notice(table=folder.table, code=ONBOARD_CSV, message=message, remedy=remedy)
    for name, why in list(folder.unreadable.items())[:1]:
        message = f"{len(folder.unreadable)} of the sampled files can't be read, e.g. {name}: {why}"
        yield Notice(table=folder.table, code=ONBOARD_FILE_UNREADABLE, message=message, remedy="rewrite it")


def key_candidates(folder: TableFolder) -> tuple[str, ...]:
    """Columns of the full load that may identify a row, likely ones first; a time only beside others."""
    loads = folder.footers_of("load")
    if not loads:
        return ()
    name = folder.table.partition(".")[2]
    service = {column.lower() for column in (*SERVICE, *before_columns(loads[0].columns))}
    fit = [
        column
        for column, kind in loads[0].columns.items()
        if column.lower() not in service
        and not _UNFIT.match(kind)
        and all(column in footer.columns and not footer.nulls.get(column, 0) for footer in loads)
    ]
    times = [column for column in fit if is_time(loads[0].columns[column])]
    ranked = sorted((c for c in fit if c not in times), key=lambda c: (key_rank(c, name), fit.index(c)))
    return (*ranked[: _MOST_CANDIDATES - len(times[:1])], *times[:1])


def is_time(kind: str) -> bool:
    """Whether an Arrow type, as text, is a date or a time stamp."""
    return kind.startswith(("timestamp", "date"))


def before_prefix(columns: Iterable[str]) -> str | None:
    """The prefix of before images; null where no column is one."""
    names = list(columns)
    for prefix in BEFORE_PREFIXES:
        if any(name.startswith(prefix) and name[len(prefix) :] in names for name in names):
            return prefix
    return None


def before_columns(columns: Iterable[str]) -> tuple[str, ...]:
    names = list(columns)
    prefix = before_prefix(names)
    return tuple(name for name in names if prefix and name.startswith(prefix) and name[len(prefix) :] in names)


def _fields(folder: TableFolder) -> dict[str, Any]:
    """Fields of a row that change files state, by path."""
    changes = folder.footers_of("change")
    columns = dict(changes[-1].columns) if changes else {}
    sequence = _sequence(changes, columns)
    named = {
        "sequence_by": None if sequence is None else (sequence,),
        "before_image_prefix": before_prefix(columns),
        "options.op_column": None
        if _has(columns, ("Op",))
        else _first(name for name in columns if name in _RULES.operations),
        "options.timestamp_column": None
        if _has(columns, COMMIT_TIMES)
        else _first(name for name in columns if name.lower() in _RULES.times),
    }
    return {name: value for name, value in named.items() if value is not None} | _partition(folder.of("change"))


def _first(names: Iterable[str]) -> str | None:
    return next(iter(names), None)


def _has(columns: Iterable[str], names: Iterable[str]) -> bool:
    wanted = {name.lower() for name in names}
    return any(column.lower() in wanted for column in columns)


def _sequence(changes: Sequence[Footer], columns: Mapping[str, str]) -> str | None:
    """A column named like a sequence that is never null; null where the dialect has a default."""
    if not changes or _has(columns, TOTAL_ORDER):
        return None
    candidates = [name for name in columns if _SEQUENCE.search(name) and not before_prefix((name, name[3:]))]
    sure = [name for name in candidates if all(footer.nulls.get(name) == 0 for footer in changes)]
    return sure[0] if len(sure) == 1 else None


def _partition(files: Sequence[LandedName]) -> dict[str, str]:
    """Date folders that begin with the year; other formats are ambiguous."""
    folders = {file.name.rpartition("/")[0] for file in files}
    dated = [_DATED.fullmatch(folder) for folder in folders]
    if not dated or not all(dated):
        return {}
    matches = [match for match in dated if match is not None]
    kinds = {(match["by"], bool(match["day"]), bool(match["hour"])) for match in matches}
    if len(kinds) != 1:
        return {}
    by, day, hour = kinds.pop()
    partition = {"options.date_partition": "YYYYMM" + ("DD" if day else "") + ("HH" if hour else "")}
    return partition | ({} if by == "/" else {"options.date_delimiter": _DELIMITER_NAMES[by]})


def _source_columns(folder: TableFolder) -> dict[str, str]:
    columns: dict[str, str] = {}
    for footer in folder.footers:
        columns = {**footer.columns, **columns}
    service = {name.lower() for name in (*SERVICE, *before_columns(columns))}
    return {name: kind for name, kind in columns.items() if name.lower() not in service}


def landing_rows(files: Sequence[LandedName], footers: Sequence[Footer]) -> int | None:
    """Estimated rows of all files, extrapolated from known footers; None: not known."""
    known = sum(footer.file.size for footer in footers)
    rows = sum(footer.rows for footer in footers)
    if not footers or not known:
        return None
    total = sum(file.size for file in files)
    return rows if len(footers) == len(files) else round(rows * total / known)


def _activity(folder: TableFolder, now: float) -> Activity | None:
    changes = folder.of("change")
    times = [change_at for file in changes if (change_at := moment(change_time(file.name) or "")) is not None]
    if not times:
        return None
    since = min(times).replace(tzinfo=UTC).timestamp()
    return Activity(changes=landing_rows(changes, folder.footers_of("change")) or 0, since=since, until=now)


MOST_ROWS = 2_000_000
"""Maximum size of a measured full load: a sample proves nothing."""


def read_landing(landing: Landing, schemas: frozenset[str], names: frozenset[str], now: float) -> SourceFacts:
    """Every table folder below the root, or those that were asked for.

    Args:
        schemas: only these; empty: all.
        names: only these tables; empty: all of the schemas.
        now: seconds since the epoch.

    Raises:
        GddlError: the root can't be listed, as `Storage`.
    """
    folders = [f for f in landing.folders(names) if not schemas or f.table.partition(".")[0] in schemas]
    return SourceFacts(
        tables=tuple(
            facts_of(folder, measured_key(landing, folder), now)
            for folder in folders
            if not table_name_fault(folder.table)
        ),
        notices=tuple(notice for folder in folders for notice in notices_of(folder)),
    )


def measured_key(landing: Landing, folder: TableFolder) -> KeyFact | None:
    """The first of the likely columns, pairs or triples that is unique in all rows; None: none, or too much to read.

    A full load without rows, or of one row, proves nothing either.
    """
    columns, loads = key_candidates(folder), folder.of("load")
    rows = sum(footer.rows for footer in folder.footers_of("load"))
    complete = len(folder.footers_of("load")) == len(loads)
    if not columns or rows < 2 or rows > MOST_ROWS or not complete:
        return None
    parts = list(landing.read(folder.table, loads, columns))
    if sum(part.num_rows for part in parts) != rows:  # a file could not be read again
        return None
    key = _unique(pa.concat_tables(parts, promote_options="permissive").select(columns))
    if key is None:
        return None
    return KeyFact(columns=key, evidence=f"{MEASURED}: unique in all {rows:,} rows of the full load")


def _unique(table: pa.Table) -> tuple[str, ...] | None:
    """The first unique combination of columns; a time column alone does not count."""
    key = key_columns("", table)
    if key is not None and len(key) == 1 and is_time(str(table.schema.field(key[0]).type)):
        return _unique(table.drop_columns(list(key)))
    return key
