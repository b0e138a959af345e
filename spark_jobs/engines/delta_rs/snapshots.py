"""A Delta table at one version: its schema, and its files with their statistics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from spark_jobs.rules.arrow_schema import DeltaSchema


@dataclass(frozen=True)
class DataFile:
    """A file of a snapshot; `low` and `high` by column, empty where the log has no statistics."""

    path: str
    size: int
    rows: int | None
    low: Mapping[str, Any] = field(default_factory=dict)
    high: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TableSnapshot:
    """A table at a version."""

    path: str
    delta: DeltaTable
    schema: DeltaSchema

    @property
    def files(self) -> tuple[DataFile, ...]:
        actions = pa.table(self.delta.get_add_actions()).to_pylist()
        return tuple(
            DataFile(a["path"], a["size_bytes"], a["num_records"], a.get("min") or {}, a.get("max") or {})
            for a in actions
        )

    @property
    def size(self) -> int:
        """Bytes of its data files."""
        return sum(pa.table(self.delta.get_add_actions()).column("size_bytes").to_pylist())
