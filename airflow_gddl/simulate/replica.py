"""A replica's content, read without Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa


def read_replica(path: Path) -> pa.Table:
    """All rows and columns of a Delta table, those behind deletion vectors left out. Needs the package `deltalake`."""
    from deltalake import DeltaTable, QueryBuilder  # noqa: PLC0415 - only demonstrations compare, and need the package

    builder = QueryBuilder().register("replica", DeltaTable(str(path)))
    return pa.table(builder.execute("select * from replica").read_all())
