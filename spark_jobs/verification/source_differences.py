"""What earlier looks at the source have left, beside the ledger: keys that differed, by hash alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from airflow_gddl.contract import codec
from airflow_gddl.contract.layout import join
from airflow_gddl.stores import Storage

LOOKS = "source-looks.json"


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
    """What earlier looks left: hash of a key to its difference."""

    unsettled: Mapping[str, SeenDifferences] = field(default_factory=dict)


@dataclass(frozen=True)
class DifferenceLog:
    """Earlier looks at the source, beside the ledger; losing them costs a look."""

    storage: Storage
    root: str

    @property
    def path(self) -> str:
        return join(self.root, LOOKS)

    def read(self) -> DifferenceRecords:
        try:
            return codec.from_json(DifferenceRecords, self.storage.read(self.path).decode())
        except FileNotFoundError:
            return DifferenceRecords()

    def write(self, looks: DifferenceRecords) -> None:
        self.storage.write(self.path, codec.to_json(looks).encode())
