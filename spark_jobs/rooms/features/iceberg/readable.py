"""The data files of a version of a Delta table, as far as Iceberg metadata can represent it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from airflow_gddl.contract.codes import ICEBERG_REFUSED
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.layout import join
from airflow_gddl.stores import Storage
from spark_jobs.rules.arrays import schema_of
from spark_jobs.tables.deletion_vectors import Descriptor
from spark_jobs.tables.replayed_log import ReplayedLog, is_elsewhere, stated_rows
from spark_jobs.tables.snapshots import TableSnapshot

_READABLE = frozenset({"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"})
"""Delta features that need nothing beyond the data files."""


@dataclass(frozen=True)
class ActiveFile:
    """A data file of a version.

    Attributes:
        path: absolute.
        partition: values of the partition columns in their order, which the file lacks.
        add: its action in the Delta log.
    """

    path: str
    size: int
    rows: int
    partition: tuple[Any, ...]
    add: Mapping[str, Any]

    @property
    def vector(self) -> Descriptor | None:
        """Of its deleted rows, in Delta's form; None: it has none."""
        return self.add.get("deletionVector")


def active_files(
    storage: Storage, source: str, log: ReplayedLog, represented: Collection[str] = ()
) -> list[ActiveFile]:
    """
    Args:
        source: path of the Delta table.
        represented: features that readers of the Delta table have to know, and that the metadata represents.

    Raises:
        FatalError: `ICEBERG_REFUSED`: the data files alone don't represent the table, or the log lacks the row count of
            one.
    """
    _require_plain(log, represented, source)
    files = []
    for file in TableSnapshot(source, log, schema_of(log.schema), storage).files:
        add = file.add or {}
        if (rows := stated_rows(add)) is None:
            what = f"the Delta log has no row count, e.g. of {file.path}"
            remedy = "`gddl maintain`, or `gddl rebuild --table T`"
            raise FatalError(ICEBERG_REFUSED, what, where=source, remedy=remedy)
        partition = tuple(file.values.get(name) for name in log.partition_by)
        files.append(ActiveFile(_absolute(source, file.stored_path), file.size, rows, partition, add))
    return files


def _require_plain(log: ReplayedLog, represented: Collection[str], source: str) -> None:
    missed = log.reader_features - {*represented, *_READABLE}
    if log.properties.get("delta.columnMapping.mode", "none") != "none":
        missed |= {"columnMapping"}
    if not missed and any(str(schema_of(log.schema).types.get(name)) == "binary" for name in log.partition_by):
        missed = frozenset({"a binary partition column"})
    if missed:
        what = f"the Delta table has {', '.join(sorted(missed))}"
        remedy = "drop the feature (ALTER TABLE ... DROP FEATURE), or set iceberg: false"
        raise FatalError(ICEBERG_REFUSED, what, where=source, remedy=remedy)


def _absolute(source: str, path: str) -> str:
    """Path of a data file, from the one that a Delta log has.

    Raises:
        FatalError: `ICEBERG_REFUSED`: it is outside of the table's folder.
    """
    if is_elsewhere(path):
        what = f"the Delta table has files outside of its folder, as a shallow clone has, e.g. {unquote(path)}"
        remedy = "`gddl rebuild --table T`, which writes them into its folder; or set iceberg: false"
        raise FatalError(ICEBERG_REFUSED, what, where=source, remedy=remedy)
    return join(source, unquote(path))
