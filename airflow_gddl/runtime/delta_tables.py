"""Delta tables of the lake, read by the `deltalake` package where it is installed; no Spark."""

from __future__ import annotations

import importlib
import importlib.util
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from airflow_gddl.contract.errors import GddlError, RetriableError
from airflow_gddl.contract.layout import table_url
from airflow_gddl.contract.packages import needed_by
from airflow_gddl.contract.published import ReplicaSchema
from airflow_gddl.stores import open_store


def replica_schema(path: str, environ: Mapping[str, str]) -> ReplicaSchema | None:
    """Current columns of a replica; null when there is no table.

    Raises:
        FatalError: `PACKAGE_MISSING`.
        RetriableError: `LAKE_UNREADABLE`.
    """
    text = schema_json(path, environ)
    return None if text is None else ReplicaSchema.of_json(text)


def schema_json(path: str, environ: Mapping[str, str]) -> str | None:
    """Delta's `schemaString` of a table; null when there is none.

    Raises:
        FatalError: `PACKAGE_MISSING`.
        RetriableError: `LAKE_UNREADABLE`.
    """
    with opened(path, environ) as table:
        return None if table is None else str(table.schema().to_json())


def quarantined_codes(path: str, environ: Mapping[str, str]) -> dict[str, int] | None:
    """How many unresolved rows of an errors table have each code, sorted by code; null when there is no table.

    Raises:
        FatalError: `PACKAGE_MISSING`.
        RetriableError: `LAKE_UNREADABLE`.
    """
    with opened(path, environ) as table:
        if table is None:
            return None
        codes: Counter[str] = Counter()
        for batch in unresolved(table, ["code"]):
            codes.update(map(str, batch.column("code").to_pylist()))
        return dict(sorted(codes.items()))


def unresolved(table: Any, columns: Sequence[str]) -> Any:
    """Record batches of the unresolved rows of an errors table.

    Not through a pyarrow dataset, which relies on missing statistics and does not support deletion vectors.
    """
    return table.scan(columns=list(columns), predicate="resolved_at IS NULL")


@contextmanager
def opened(path: str, environ: Mapping[str, str]) -> Iterator[Any]:
    """A `deltalake.DeltaTable`; null when there is none.

    Raises:
        FatalError: `PACKAGE_MISSING`.
        RetriableError: `LAKE_UNREADABLE`: the log can't be read, or what the caller does with the table failed.
    """
    try:
        # What the caller does with the table may need more of its packages.
        with needed_by("reading Delta tables", install="airflow-gddl[spark]"):
            deltalake = importlib.import_module("deltalake")
            options = open_store(environ).options_of(path)
            exists = deltalake.DeltaTable.is_deltatable(table_url(path), storage_options=options)
            yield deltalake.DeltaTable(table_url(path), storage_options=options) if exists else None
    except GddlError:
        raise
    except Exception as error:  # the package raises errors of its dependencies; the page must still load
        what = f"{type(error).__name__}: {str(error)[:300]}"
        raise RetriableError("LAKE_UNREADABLE", what, where=path, remedy="check `lake` and its credentials") from error
