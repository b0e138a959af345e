"""A Delta table at one version: its schema, and its files with their statistics."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable

from airflow_gddl.stores import Storage
from spark_jobs.engines.base import DeclinedError
from spark_jobs.engines.delta_rs.active_files import Add, active_files
from spark_jobs.engines.delta_rs.deletion_vectors import Descriptor
from spark_jobs.engines.delta_rs.features import VECTORS
from spark_jobs.engines.delta_rs.log_commits import CDF, is_on
from spark_jobs.engines.table_definition import CLUSTER_BY
from spark_jobs.rules.arrow_schema import DeltaSchema
from spark_jobs.rules.partition_values import PartitionText, value_text


@dataclass(frozen=True)
class DataFile:
    """A file of a snapshot.

    Attributes:
        path: below the table's.
        low, high: bounds by column, empty where the log has no statistics.
        values: partition column to its value in this file.
        stored_path: `path` as written in the log.
        add: the action of the log, where the table may have deletion vectors.
    """

    path: str
    size: int
    low: Mapping[str, Any] = field(default_factory=dict)
    high: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    stored_path: str = ""
    add: Add | None = None

    @property
    def vector(self) -> Descriptor | None:
        """The vector of the file's deleted rows; null where none is."""
        return None if self.add is None else self.add.get("deletionVector")

    @property
    def partition(self) -> PartitionText:
        return tuple((name, value_text(value)) for name, value in self.values.items())


@dataclass(frozen=True)
class TableSnapshot:
    """A table at a version."""

    path: str
    delta: DeltaTable
    schema: DeltaSchema
    storage: Storage

    @property
    def has_vectors(self) -> bool:
        """Whether its files may have deletion vectors."""
        return VECTORS in (self.delta.protocol().reader_features or ())

    @property
    def writes_vectors(self) -> bool:
        """Whether deleted rows are named by vectors, and their files stay."""
        return self.has_vectors and is_on(self.properties, "delta.enableDeletionVectors")

    @cached_property
    def _adds(self) -> Mapping[str, Add]:
        return active_files(self.storage, self.path, self.delta.version()) if self.has_vectors else {}

    @cached_property
    def files(self) -> tuple[DataFile, ...]:
        actions = pa.table(self.delta.get_add_actions()).to_pylist()
        return tuple(
            DataFile(
                unquote(a["path"]), a["size_bytes"], a.get("min") or {}, a.get("max") or {},
                a.get("partition") or {}, a["path"], self._adds[a["path"]] if self.has_vectors else None,
            )
            for a in actions
        )  # fmt: skip

    def require_vectors(self) -> None:
        """
        Raises:
            DeclinedError: `active_files` finds other files in the log than `deltalake`, and might miss a vector.
        """
        known = pa.table(self.delta.get_add_actions()).column("path").to_pylist()
        if self.has_vectors and self._adds.keys() != set(known):
            raise DeclinedError(f"its log names {len(known)} files to deltalake, and {len(self._adds)} to us")

    @property
    def size(self) -> int:
        """Bytes of its data files."""
        return sum(pa.table(self.delta.get_add_actions()).column("size_bytes").to_pylist())

    @property
    def properties(self) -> Mapping[str, str | None]:
        return dict(self.delta.metadata().configuration)

    @property
    def comments(self) -> Mapping[str, str]:
        """Every column with its comment; empty: none."""
        return {name: str(self.schema.metadata.get(name, {}).get("comment", "")) for name in self.schema.names}

    @property
    def partition_by(self) -> tuple[str, ...]:
        return tuple(self.delta.metadata().partition_columns)

    @property
    def cluster_by(self) -> tuple[str, ...]:
        """Columns that the rows of each written file are ordered by."""
        return tuple(json.loads(self.properties.get(CLUSTER_BY) or "[]"))

    @property
    def feeds_changes(self) -> bool:
        """Whether the table has a change data feed."""
        return is_on(self.properties, CDF)
