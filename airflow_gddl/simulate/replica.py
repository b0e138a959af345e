"""A replica's content, read without Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa


def read_replica(path: Path) -> pa.Table:
    """All rows and columns of a Delta table, those behind deletion vectors left out. Needs the package `deltalake`."""
    # Not with the simulator: only the demonstrations compare, and only they need the package.
    from deltalake import DeltaTable, QueryBuilder  # noqa: PLC0415

    builder = QueryBuilder().register("replica", DeltaTable(str(path)))
    return pa.table(builder.execute("select * from replica").read_all())
