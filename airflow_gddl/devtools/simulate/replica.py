"""A replica's content, read without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa


def read_replica(path: Path | str, options: Mapping[str, str] | None = None) -> pa.Table:
    """All rows and columns of a Delta table, those behind deletion vectors left out. Needs the package `deltalake`.

    Args:
        path: local, or an `s3://` URL.
        options: storage options of `deltalake`; null: from the environment.
    """
    from deltalake import DeltaTable, QueryBuilder  # noqa: PLC0415 - needed only by demos

    builder = QueryBuilder().register(
        "replica", DeltaTable(str(path), storage_options=dict(options) if options else None)
    )
    return pa.table(builder.execute("select * from replica").read_all())
