"""Bounds of decimals beside a deletion vector: as floats, they would leave out the least and the greatest value."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import polars as pl
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from tests.harness.landing import write

_AMOUNTS = [Decimal("9007199254740993.27"), Decimal("9007199254740995.50"), Decimal("9007199254740998.73")]


def landings(folder: Path) -> Iterator[None]:
    """A load of three rows, and the delete of the one between; a run belongs to each."""
    columns = pa.schema([("id", pa.int32()), ("amount", pa.decimal128(20, 2)), ("ratio", pa.float64())])
    rows = {"id": [1, 2, 3], "amount": _AMOUNTS, "ratio": [0.1, 0.2, 1e300]}
    write(folder, "LOAD00000001.parquet", pa.table(rows, columns))
    yield
    change = pa.table({"Op": ["D"], "seq": [1], "id": pa.array([2], pa.int32())})
    write(folder, "20240101-000000001.parquet", change)
    yield


def wrong(path: str) -> list[str]:
    """What is wrong with the bounds of the table's one file, and which filters miss a row."""
    found = [] if list(Path(path).glob("deletion_vector_*.bin")) else ["no vector"]
    (stats,) = pa.table(DeltaTable(path).get_add_actions(flatten=True)).to_pylist()
    bounds = (stats["min.amount"], stats["max.amount"])
    if bounds != (_AMOUNTS[0], _AMOUNTS[2]):
        found.append(f"bounds {bounds}")
    for amount in (_AMOUNTS[0], _AMOUNTS[2]):
        if pl.scan_delta(path).filter(pl.col("amount") == amount).collect().height != 1:
            found.append(f"Polars misses {amount}")
        query = f"SELECT id FROM t WHERE amount = CAST('{amount}' AS DECIMAL(20, 2))"
        if pa.table(QueryBuilder().register("t", DeltaTable(path)).execute(query)).num_rows != 1:
            found.append(f"DataFusion misses {amount}")
    return found
