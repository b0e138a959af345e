"""Debezium's connector for PostgreSQL.

Sources: io.debezium.connector.postgresql.SourceInfo and `PostgresSourceInfoStructMaker` (the block `source`;
`sequence` is the last commit and the place; rows of an incremental snapshot have neither `lsn` nor `txId`),
`UnchangedToastedPlaceholder`, documentation/modules/ROOT/pages/connectors/postgresql.adoc ("Replica identity",
"Toasted values").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from tests.conformance.history import Change, History, Row
from tests.conformance.writers.connect import written
from tests.conformance.writers.debezium import Connector, Event, Placed

DATABASE = "d"
_LINE_BYTES = 2000


class Postgres(Connector):
    """Transactions come whole, in the order of their commits; `interleaved` ones have begun before others ended."""

    name = "postgresql"
    kinds = (
        "text", "decimal", "float8", "bool", "timestamp", "timestamptz", "date", "time", "bytes", "int2", "float4",
        "numeric", "uuid", "json", "color", "interval", "timestamp3", "time3",
    )  # fmt: skip
    flat = ("schema", "lsn", "sequence")
    settings: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "REPLICA IDENTITY": ("DEFAULT", "FULL"),
        "interval.handling.mode": ("numeric", "string"),
        "interleaved": (False, True),
    }

    def __init__(self, history: History, given: Mapping[str, Any]) -> None:
        super().__init__(history, given)
        self.lsn, self.commit, self.transaction = 24_023_128, None, 700

    def snapshot_place(self) -> Mapping[str, Any]:
        """Of a transaction of its own, and a start of the connector, which knows no last commit."""
        self.lsn += 56
        self.transaction += 1
        self.commit = None
        return self._place(self.lsn)

    def incremental_place(self) -> Mapping[str, Any]:
        """The signal that closes the window commits; `lsn` and `txId` of the rows are null."""
        self.lsn += 112
        self.commit = self.lsn
        place = {**self._place(self.lsn), "lsn": None, "txId": None}
        self.lsn += 48
        self.commit = self.lsn
        return place

    def placed(self, changes: Sequence[Change]) -> Sequence[Placed]:
        self.transaction += 1
        first = self.lsn - 20 if self.given["interleaved"] and self.commit is not None else self.lsn + 64
        places = [first + 4 * number for number in range(len(changes))]
        found = [(change, self._place(place)) for change, place in zip(changes, places, strict=True)]
        self.lsn = max(self.lsn, places[-1]) + 48
        self.commit = self.lsn
        return found

    def _place(self, lsn: int) -> dict[str, Any]:
        sequence = written([None if self.commit is None else str(self.commit), str(lsn)])
        return {"schema": "s", "table": self.table, "txId": self.transaction, "lsn": lsn, "xmin": None,
                "sequence": sequence, "origin": None, "origin_lsn": None}  # fmt: skip

    def transaction_name(self, event: Event) -> str:
        """The place of the event stands behind the number, so that a transaction has as many names as events."""
        return f"{event.source['txId']}:{event.source['lsn']}"

    def source_fields(self, source: Mapping[str, Any]) -> list[dict[str, Any]]:
        texts, required = ("schema", "table", "origin"), ("schema", "table")
        return [
            {"type": "string" if name in texts else "int64", "optional": name not in required, "field": name}
            for name in source
        ]

    def unlogged(self, change: Change) -> frozenset[str]:
        """Values that are stored out of line (TOAST), which short ones and nulls never are."""
        row = change.row
        return frozenset(name for name in change.unlogged if len((row[name] or "").encode()) > _LINE_BYTES)

    def before_of(self, change: Change) -> Row | None:
        """Under DEFAULT a delete has the key, and an update nothing unless the key has changed."""
        if self.given["REPLICA IDENTITY"] == "FULL" or change.before is None:
            return change.before
        if change.op == "U":
            return None
        return {name: change.before[name] if name in self.history.keys else None for name in change.before}


def refusal(case: Mapping[str, Any]) -> str:
    """Under FULL all columns are logged, values that are toasted too."""
    if case.get("REPLICA IDENTITY") == "FULL" and case.get("unlogged"):
        return "FULL logs all columns (postgresql.adoc, Toasted values)"
    return "a failover of PostgreSQL keeps its log" if case.get("failed_over") else ""
