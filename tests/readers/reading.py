"""The readers that README names, each asked how many rows of a table a filter finds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date
from typing import Any, TypeAlias

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.types as pt
from deltalake import DeltaTable, QueryBuilder

from tests.conftest import LocalPort
from tests.readers.probes import Probe

Counts: TypeAlias = Sequence[int]
Reader: TypeAlias = Callable[[str, Sequence[Probe]], Counts]


def by_pyarrow(path: str, asked: Sequence[Probe]) -> Counts:
    dataset = DeltaTable(path).to_pyarrow_dataset()
    return [dataset.count_rows(filter=_expression(probe)) for probe in asked]


def by_to_pyarrow_table(path: str, asked: Sequence[Probe]) -> Counts:
    table = DeltaTable(path)
    return [table.to_pyarrow_table(filters=_expression(probe)).num_rows for probe in asked]


def by_pandas(path: str, asked: Sequence[Probe]) -> Counts:
    """Only the columns that the filter needs: pandas itself can't hold all of Delta's times."""
    table = DeltaTable(path)
    return [len(table.to_pandas(columns=[p.path[0]], filters=_expression(p), types_mapper=_kept)) for p in asked]


def _kept(kind: pa.DataType) -> Any:
    import pandas as pd  # noqa: PLC0415 - slow to import, for one reader

    return pd.ArrowDtype(kind)


def by_duckdb(path: str, asked: Sequence[Probe]) -> Counts:
    dataset = DeltaTable(path).to_pyarrow_dataset()
    with duckdb.connect() as connection:
        connection.register("t", dataset)
        return [_one(connection, probe) for probe in asked]


def _one(connection: duckdb.DuckDBPyConnection, probe: Probe) -> int:
    column = ".".join(f'"{part}"' for part in probe.path)
    if probe.value is None:
        statement, values = f"SELECT count(*) FROM t WHERE {column} IS NULL", []
    else:
        statement, values = f"SELECT count(*) FROM t WHERE {column} = ?", [probe.value.as_py()]
    found = connection.execute(statement, values).fetchone()
    return int(found[0]) if found else -1


def by_polars(path: str, asked: Sequence[Probe]) -> Counts:
    frame = pl.scan_delta(path)
    return [frame.filter(_polars(probe)).select(pl.len()).collect().item() for probe in asked]


def by_polars_over_pyarrow(path: str, asked: Sequence[Probe]) -> Counts:
    frame = pl.scan_delta(path, use_pyarrow=True)
    return [frame.filter(_polars(probe)).select(pl.len()).collect().item() for probe in asked]


def _polars(probe: Probe) -> pl.Expr:
    column = pl.col(probe.path[0])
    for part in probe.path[1:]:
        column = column.struct.field(part)
    if probe.value is None:
        return column.is_null()
    return column == pl.lit(pl.Series(pa.array([probe.value], probe.value.type)).first())


def by_query_builder(path: str, asked: Sequence[Probe]) -> Counts:
    table = DeltaTable(path)
    counts = []
    for probe in asked:
        builder = QueryBuilder().register("t", table)
        found = builder.execute(f"SELECT count(*) AS n FROM t WHERE {_datafusion(probe)}").read_all()
        counts.append(pa.table(found).column("n")[0].as_py())
    return counts


def _literal(value: pa.Scalar) -> Any:
    """Dates and times as text: Spark's own conversion can't take years before 1000."""
    from pyspark.sql import functions as F  # noqa: PLC0415 - only where an engine needs Spark

    found = value.as_py()
    return F.lit(found.isoformat() if isinstance(found, date) else found)


def _datafusion(probe: Probe) -> str:
    column = f'"{probe.path[0]}"' + "".join(f"['{part}']" for part in probe.path[1:])
    if probe.value is None:
        return f"{column} IS NULL"
    kind, value = probe.value.type, probe.value.as_py()
    if pt.is_binary(kind):
        return f"{column} = X'{value.hex()}'"
    if pt.is_timestamp(kind):
        zone = "None" if kind.tz is None else 'Some("UTC")'
        text = value.replace(tzinfo=None).isoformat()
        return f"{column} = arrow_cast('{text}', 'Timestamp(Microsecond, {zone})')"
    names: Mapping[str, str] = {"int32": "INT", "int64": "BIGINT", "float": "FLOAT", "date32[day]": "DATE"}
    if pt.is_decimal(kind):
        return f"{column} = arrow_cast('{value:f}', 'Decimal128({kind.precision}, {kind.scale})')"
    if pt.is_string(kind) or pt.is_large_string(kind):
        return f"{column} = '{value.replace(chr(39), chr(39) * 2)}'"
    return f"{column} = CAST('{value}' AS {names.get(str(kind), str(kind).upper())})"


def _expression(probe: Probe) -> ds.Expression:
    column = ds.field(*probe.path)
    return column.is_null() if probe.value is None else column == probe.value


READERS: Mapping[str, Reader] = {
    "pyarrow dataset": by_pyarrow,
    "to_pyarrow_table": by_to_pyarrow_table,
    "pandas": by_pandas,
    "DuckDB": by_duckdb,
    "Polars": by_polars,
    "Polars over pyarrow": by_polars_over_pyarrow,
    "QueryBuilder": by_query_builder,
}


def by_spark(port: LocalPort) -> Reader:
    """Each filter costs a query, so a column is asked for one value and for nulls, in the first table that has it."""
    met: set[tuple[tuple[str, ...], bool]] = set()

    def counts(path: str, asked: Sequence[Probe]) -> Counts:
        from pyspark.sql import functions as F  # noqa: PLC0415 - only where an engine needs Spark

        rows = port.spark.for_table().read.format("delta").load(path)
        found: list[int] = []
        for probe in asked:
            kind = (probe.path, probe.value is None)
            if kind in met:
                found.append(probe.rows)
                continue
            met.add(kind)
            column = F.col(".".join(f"`{part}`" for part in probe.path))
            where = (
                column.isNull()
                if probe.value is None
                else column == _literal(probe.value).cast(rows.select(column).schema[0].dataType)
            )
            found.append(rows.where(where).count())
        return found

    return counts


def _literal(value: pa.Scalar) -> Any:
    """Dates and times as text: Spark's own conversion can't take years before 1000."""
    from pyspark.sql import functions as F  # noqa: PLC0415 - only where an engine needs Spark

    found = value.as_py()
    return F.lit(found.isoformat() if isinstance(found, date) else found)
