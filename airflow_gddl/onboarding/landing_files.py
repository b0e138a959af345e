"""Reads a landing root: names by one listing, footers of some files of each table."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_gddl.contract.dms_names import classify
from airflow_gddl.contract.errors import GddlError
from airflow_gddl.contract.file_names import FileFormat, FileKind, is_temporary
from airflow_gddl.contract.layout import join
from airflow_gddl.contract.spec import DEFAULT_TIERS
from airflow_gddl.stores import Storage, StoredObject, open_store
from airflow_gddl.stores.footers import Chunk, chunks_of
from airflow_gddl.stores.inflating import GZIP_MAGIC, Inflating

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
        group_rows, group_bytes: of each row group, bytes as stored.
    """

    file: LandedName
    rows: int
    columns: Mapping[str, str]
    nulls: Mapping[str, int]
    group_rows: tuple[int, ...]
    group_bytes: tuple[int, ...]


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
        found: dict[str, list[LandedName]] = {}
        for table, file in self._named(tables):
            found.setdefault(table, []).append(file)
        bare = [
            TableFolder(table=table, files=tuple(sorted(files, key=lambda file: (file.kind == "change", file.order))))
            for table, files in sorted(found.items())
        ]
        with ThreadPoolExecutor(_THREADS) as pool:
            return tuple(pool.map(self._looked_into, bare))

    def _named(self, tables: frozenset[str]) -> Iterator[tuple[str, LandedName]]:
        if not tables:
            for found in self.store.list(self.root):
                schema, _, rest = found.name.partition("/")
                name, _, below = rest.partition("/")
                yield from _data_file(f"{schema}.{name}", below, found)
        for table in sorted(tables):
            for found in self.store.list(self.folder(table)):
                yield from _data_file(table, found.name, found)

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
            groups = [meta.row_group(i) for i in range(meta.num_row_groups)]
            names = [meta.schema.column(i).path for i in range(meta.num_columns)]
            chunks = chunks_of(source, len(names))
            schema = parquet.schema_arrow
            return Footer(
                file=file,
                rows=meta.num_rows,
                columns={name: str(kind) for name, kind in zip(schema.names, schema.types, strict=True)},
                nulls=_nulls(names, chunks),
                group_rows=tuple(group.num_rows for group in groups),
                group_bytes=tuple(sum(chunk.stored for chunk in group) for group in chunks),
            )

    @contextmanager
    def parquet(self, table: str, file: LandedName) -> Iterator[pq.ParquetFile]:
        """The file, opened; one inside a gzip stream is unwrapped first.

        Read rows without threads: Arrow threads that read from a Python file object sometimes abort the process at exit
        (apache/arrow#34314), which changes the exit status.
        """
        with self._source(table, file) as source:
            yield _opened(source)

    @contextmanager
    def _source(self, table: str, file: LandedName) -> Iterator[BinaryIO]:
        with self.store.open_input(join(self.folder(table), file.name)) as stream:
            yield io.BytesIO(Inflating(stream, _MOST_INFLATED, file.name).readall()) if _zipped(stream) else stream

    def read(self, table: str, files: Iterable[LandedName], columns: Sequence[str]) -> Iterator[pa.Table]:
        """These columns of files, those of them that a file has; unreadable files are left out."""
        for file in files:
            try:
                with self.parquet(table, file) as parquet:
                    there = [name for name in columns if name in parquet.schema_arrow.names]
                    yield parquet.read(columns=there, use_threads=False)
            except _UNREADABLE:
                continue


def _data_file(table: str, below: str, found: StoredObject) -> Iterator[tuple[str, LandedName]]:
    known = None if not below or is_temporary(below) else classify(below)
    if known is not None:
        kind, form, order = known
        file = LandedName(name=below, kind=kind, format=form, order=order, size=found.size, modified=found.modified)
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
