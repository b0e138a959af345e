"""Debezium's connector for SQL Server.

Sources: `SqlServerSourceInfoStructMaker`, `SqlServerOffsetContext` (setChangePosition: `event_serial_no`),
`SqlServerStreamingChangeEventSource` (`changesStoppedBeingMonotonic`: places within a transaction may go back),
`SqlServerConnection` (`ORDER BY` of data.query.mode: `direct` orders by `__$command_id` before `__$seqval`);
documentation/modules/ROOT/pages/connectors/sqlserver.adoc.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, ClassVar

from tests.conformance.history import Change, History
from tests.conformance.writers.debezium import Connector, Placed


class SqlServer(Connector):
    """Within a transaction `change_lsn` of deletes and inserts is not always their order; the order of delivery is."""

    name = "sqlserver"
    kinds = ("text", "decimal", "float8", "bool", "timestamp", "timestamptz", "date", "time", "bytes")
    flat = ("schema", "commit_lsn", "change_lsn", "event_serial_no")
    settings: ClassVar[Mapping[str, tuple[Any, ...]]] = {"data.query.mode": ("function", "direct")}

    def __init__(self, history: History, given: Mapping[str, Any]) -> None:
        super().__init__(history, given)
        self.block = 0x758
        self.random = Random(str(history.loaded))  # noqa: S311 - no secret

    def snapshot_place(self) -> Mapping[str, Any]:
        """The greatest LSN of the log; no `change_lsn`."""
        self.block += 0x20
        return self._place(self._lsn(self.block, 3), None, None)

    def incremental_place(self) -> Mapping[str, Any]:
        """The place of the change of the signalling table that closes the window."""
        self.block += 0x20
        return self._place(self._lsn(self.block, 9), self._lsn(self.block, 2), 1)

    def placed(self, changes: Sequence[Change]) -> Sequence[Placed]:
        self.block += 0x18
        commit = self._lsn(self.block + 0x10, len(changes) + 5)
        slots = list(range(2, len(changes) + 2))
        if self.given["data.query.mode"] == "direct" and self.history.happens["again"]:
            self.random.shuffle(slots)
        found = []
        for change, slot in zip(changes, slots, strict=True):
            serial = 2 if change.op == "U" else 1
            found.append((change, self._place(commit, self._lsn(self.block, slot), serial)))
        self.block += 0x10
        return found

    @staticmethod
    def _lsn(block: int, slot: int) -> str:
        return f"00000027:{block:08x}:{slot:04x}"

    def _place(self, commit: str, change: str | None, serial: int | None) -> dict[str, Any]:
        place = {"change_lsn": change, "commit_lsn": commit, "event_serial_no": serial}
        return {"schema": "s", "table": self.table, **place}


def refusal(case: Mapping[str, Any]) -> str:
    """CDC logs all columns, and a table that is captured can't be truncated."""
    if case.get("unlogged"):
        return "change tables have all columns"
    if case.get("truncated"):
        return "TRUNCATE TABLE is refused on a table that is captured"
    return "an availability group keeps its log" if case.get("failed_over") else ""
