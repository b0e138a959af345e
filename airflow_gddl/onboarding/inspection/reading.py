"""Reads file contents beyond footers: times stored as text, truncated values, updates of unknown keys."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from airflow_gddl.contract.dms import DmsOptions
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.onboarding.landing_files import LandedName, Landing, TableFolder
from airflow_gddl.onboarding.landing_rules import landing_rows

MOST_KEYED_ROWS = 1_000_000
"""Maximum number of rows for tracking keys across files."""
_SAMPLED_FILES, _MOST_BYTES, _MOST_ROWS = 3, 64 * 1024**2, 50_000
_LEAST_CUT = 1024
_TIME = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?")


@dataclass(frozen=True, kw_only=True)
class InspectedFiles:
    """A location and its value."""

    file: str
    value: str


@dataclass(frozen=True, kw_only=True)
class InspectionRequest:
    """Content of one table's folder.

    Attributes:
        spec: its metadata row; null: it has none.
        times: text columns whose values are times, with one of them.
        cut: columns with several longest values that end at a whole number of kilobytes.
        updates_without_row: updates of keys that no earlier row had; null: keys could not be tracked.
    """

    folder: TableFolder
    spec: TableSpec | None = None
    times: Mapping[str, InspectedFiles] = field(default_factory=dict)
    cut: Mapping[str, InspectedFiles] = field(default_factory=dict)
    updates_without_row: tuple[InspectedFiles, ...] | None = None


def service_columns(spec: TableSpec | None) -> DmsOptions:
    """Only the names of the service's columns, as the row sets them."""
    known = {} if spec is None else spec.options
    return DmsOptions(**{name: known[name] for name in ("op_column", "timestamp_column") if name in known})


def inspect_folder(landing: Landing, folder: TableFolder, spec: TableSpec | None) -> InspectionRequest:
    """Reads a few files of a table, and the key columns of all of them where they are few."""
    times: dict[str, InspectedFiles] = {}
    lengths: dict[str, _Longest] = {}
    damaged: dict[str, str] = {}
    for file in _sample(folder):
        try:
            texts = list(_texts(landing, folder.table, file))
        except (OSError, EOFError, pa.ArrowException, ValueError) as error:
            damaged[file.name] = f"{type(error).__name__}: {error}"[:200]
            continue
        for column, values in texts:
            if pt.is_string(values.type) and column not in times and (found := _time(values)) is not None:
                times[column] = InspectedFiles(file=file.name, value=found)
            lengths.setdefault(column, _Longest()).take(file.name, values)
    folder = replace(folder, unreadable={**folder.unreadable, **damaged})
    cut = {column: longest.seen for column, longest in lengths.items() if longest.is_cut}
    return InspectionRequest(
        folder=folder, spec=spec, times=times, cut=cut, updates_without_row=_updates_without_row(landing, folder, spec)
    )


def _sample(folder: TableFolder) -> Iterator[LandedName]:
    """The newest files of each kind whose footers could be read."""
    for kind in ("load", "change"):
        fit = [footer.file for footer in folder.footers if footer.file.kind == kind and footer.file.size <= _MOST_BYTES]
        yield from fit[-_SAMPLED_FILES:]


def _texts(landing: Landing, table: str, file: LandedName) -> Iterator[tuple[str, pa.Array]]:
    """Text and binary columns, the first rows of them."""
    with landing.parquet(table, file) as parquet:
        names = [f.name for f in parquet.schema_arrow if pt.is_string(f.type) or pt.is_binary(f.type)]
        batches = parquet.iter_batches(batch_size=_MOST_ROWS, columns=names, use_threads=False)
        batch = next(batches, None) if names else None
        yield from () if batch is None else zip(batch.schema.names, batch.columns, strict=True)


def _time(values: pa.Array) -> str | None:
    """The first value, if all of the first hundred are times; null: they are not, or there are none."""
    first = values.drop_null().slice(0, 100).to_pylist()
    return str(first[0]) if first and all(_TIME.fullmatch(value) for value in first) else None


@dataclass
class _Longest:
    """The longest values of a column."""

    length: int = 0
    file: str = ""
    hashes: set[int] = field(default_factory=set)

    def take(self, file: str, values: pa.Array) -> None:
        lengths = pc.binary_length(values)
        longest = pc.max(lengths).as_py() or 0
        if longest > self.length:
            self.length, self.file, self.hashes = longest, file, set()
        if self._is_suspect and longest == self.length:
            # Equal values in several files count once; full values of a fixed-width column are not truncated.
            found = values.filter(pc.equal(lengths, longest)).unique().cast(pa.binary()).to_pylist()
            self.hashes |= {hash(value) for value in found if value[-1:] not in (b" ", b"\0")}

    @property
    def _is_suspect(self) -> bool:
        return self.length >= _LEAST_CUT and self.length % _LEAST_CUT == 0

    @property
    def is_cut(self) -> bool:
        return self._is_suspect and len(self.hashes) > 1

    @property
    def seen(self) -> InspectedFiles:
        size = self.length // _LEAST_CUT
        return InspectedFiles(file=self.file, value=f"{len(self.hashes)} values of exactly {size} KB, none longer")


def _updates_without_row(
    landing: Landing, folder: TableFolder, spec: TableSpec | None
) -> tuple[InspectedFiles, ...] | None:
    """Updates of a key that neither the full load nor an earlier insert had."""
    files = [file for file in folder.files if file.format == "parquet"]
    rows = landing_rows(files, folder.footers) or 0
    few = rows <= MOST_KEYED_ROWS and len(files) <= 1000
    if spec is None or not spec.keys or not folder.of("load") or not few or folder.unreadable:
        return None
    known: set[tuple[Any, ...]] = set()
    found: list[InspectedFiles] = []
    spelled = {column.lower(): column for footer in folder.footers for column in footer.columns}
    operation, *keys = (spelled.get(name.lower(), name) for name in (service_columns(spec).op_column, *spec.keys))
    for file in files:
        for batch in landing.read(folder.table, [file], [*keys, operation]):
            if not set(keys) <= set(batch.schema.names):
                return None
            found += _follow(file, _keyed(batch, keys, operation), known)
    return tuple(found)


def _keyed(batch: pa.Table, keys: Sequence[str], operation: str) -> Iterator[tuple[str, tuple[Any, ...]]]:
    there = operation in batch.schema.names
    operations = batch[operation].to_pylist() if there else ["I"] * batch.num_rows
    yield from zip(operations, zip(*(batch[key].to_pylist() for key in keys), strict=True), strict=True)


def _follow(
    file: LandedName, rows: Iterator[tuple[str, tuple[Any, ...]]], known: set[tuple[Any, ...]]
) -> Iterator[InspectedFiles]:
    for operation, key in rows:
        if operation == "U" and key not in known:
            yield InspectedFiles(
                file=file.name, value=f"update of {key if len(key) > 1 else key[0]!r}, which no row had before"
            )
        known.add(key)
