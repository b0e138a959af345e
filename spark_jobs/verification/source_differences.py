"""Differences found by earlier comparisons with the source, stored next to the ledger: keys as hashes only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from airflow_gddl.contract import codec
from airflow_gddl.contract.layout import join
from airflow_gddl.stores import Storage

DIFFERENCES = "source-looks.json"


@dataclass(frozen=True, kw_only=True)
class SeenDifferences:
    """A difference since it was first seen.

    Attributes:
        rows: hashes of the row in the source and in the replica as text; empty where it has none.
        source_time: the source's clock at the time; `at` ours. ISO 8601 UTC.
    """

    rows: tuple[str, ...]
    source_time: str
    at: str


@dataclass(frozen=True, kw_only=True)
class DifferenceRecords:
    """Differences of earlier comparisons: hash of a key to its difference."""

    unsettled: Mapping[str, SeenDifferences] = field(default_factory=dict)


@dataclass(frozen=True)
class DifferenceLog:
    """Document of earlier differences, next to the ledger; if it is lost, one more comparison is needed."""

    storage: Storage
    root: str

    @property
    def path(self) -> str:
        return join(self.root, DIFFERENCES)

    def read(self) -> DifferenceRecords:
        try:
            return codec.from_json(DifferenceRecords, self.storage.read(self.path).decode())
        except FileNotFoundError:
            return DifferenceRecords()

    def write(self, known: DifferenceRecords) -> None:
        self.storage.write(self.path, codec.to_json(known).encode())
