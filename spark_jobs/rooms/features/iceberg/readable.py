"""What of a Delta table Iceberg metadata can represent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa

from airflow_gddl.contract.codes import ICEBERG_REFUSED
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.layout import join
from spark_jobs.tables.replayed_log import is_elsewhere

if TYPE_CHECKING:
    from deltalake import Schema

_READABLE = frozenset({"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"})
"""Delta features that need nothing beyond the data files."""
ROWS_REMEDY = "`gddl maintain`, or `gddl rebuild --table T`"
"""For files of which the log has no row count."""


def require_plain(
    schema: Schema, features: Iterable[str], properties: Mapping[str, Any], partition_by: Sequence[str], path: str
) -> None:
    """
    Args:
        features: that readers of the Delta table have to know, but those that the metadata represents.

    Raises:
        FatalError: `ICEBERG_REFUSED`: the data files alone don't represent the table.
    """
    missed = set(features) - _READABLE
    if properties.get("delta.columnMapping.mode", "none") != "none":
        missed.add("columnMapping")
    kinds = {field.name: str(field.type.type) for field in schema.fields if hasattr(field.type, "type")}
    if any(kinds.get(name) == "binary" for name in partition_by):
        missed.add("a binary partition column")
    if missed:
        what = f"the Delta table has {', '.join(sorted(missed))}"
        remedy = "drop the feature (ALTER TABLE ... DROP FEATURE), or set iceberg: false"
        raise FatalError(ICEBERG_REFUSED, what, where=path, remedy=remedy)


def arrow_columns(schema: Schema) -> pa.Schema:
    """Columns of a Delta table as Arrow types, all of them optional."""
    return pa.schema([field.with_nullable(True) for field in pa.schema(schema.to_arrow())])


def absolute(source: str, path: str) -> str:
    """Path of a data file, from the one that a Delta log has.

    Raises:
        FatalError: `ICEBERG_REFUSED`: it is outside of the table's folder.
    """
    if is_elsewhere(path):
        what = f"the Delta table has files outside of its folder, as a shallow clone has, e.g. {unquote(path)}"
        remedy = "`gddl rebuild --table T`, which writes them into its folder; or set iceberg: false"
        raise FatalError(ICEBERG_REFUSED, what, where=source, remedy=remedy)
    return join(source, unquote(path))
