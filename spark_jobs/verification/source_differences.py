"""Differences found by earlier comparisons with the source, stored next to the ledger: keys as hashes only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from airflow_gddl.contract import codec
from airflow_gddl.contract.layout import join
from airflow_gddl.stores import Storage
from spark_jobs.ledger.documents import read_small

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


def read_differences(storage: Storage, root: str) -> Mapping[str, SeenDifferences]:
    """Those of the table whose state folder is `root`; if the document is lost, one more comparison is needed.

    Raises:
        FatalError: `LEDGER_DAMAGED`.
    """
    found = read_small(storage, join(root, DIFFERENCES), DifferenceRecords, "delete it, and compare once more")
    return {} if found is None else found.unsettled


def write_differences(storage: Storage, root: str, unsettled: Mapping[str, SeenDifferences]) -> None:
    storage.write(join(root, DIFFERENCES), codec.to_json(DifferenceRecords(unsettled=unsettled)).encode())
