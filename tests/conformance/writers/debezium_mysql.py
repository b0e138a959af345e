"""Debezium's connector for MySQL.

Sources: io.debezium.connector.binlog.BinlogSourceInfoStructMaker;
documentation/modules/ROOT/pages/connectors/mysql.adoc (`file`, `pos`, `row`, `gtid`); the manual of MySQL, "Binary
Log Transaction Compression": events of such a transaction are in one event of the log, so that they share its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from random import Random
from typing import Any, ClassVar

from tests.conformance.delivery import Uncertain
from tests.conformance.history import Change, History
from tests.conformance.writers.debezium import Connector, Placed

_SERVERS = ("3e11fa47-71ca-11e1-9e33-c80aa9429562", "7c96fda9-71ca-11e1-8d11-080027a5d6f5")
_REPLICATED = 5001


class MySql(Connector):
    """Its server may have changes of another one in its log.

    A failover leads to a server with a log of its own: its number may be lower, equal or higher."""

    name = "mysql"
    kinds = ("text", "decimal", "float8", "timestamp", "timestamptz", "date", "longtime", "bytes")
    flat = ("file", "pos", "row", "server_id")
    settings: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "gtid_mode": (True, False),
        "binlog_transaction_compression": (False, True),
        "new log": ("lower number", "same number", "higher number"),
        "replicates from": ("none", "a server whose clock is behind", "a server whose clock is ahead"),
    }

    def __init__(self, history: History, given: Mapping[str, Any]) -> None:
        super().__init__(history, given)
        self.number, self.pos, self.server, self.transaction = 3, 154, 0, 22
        self.random = Random(str(history.loaded))  # noqa: S311 - no secret
        self.failed_over = self.is_replicated = False

    def snapshot_place(self) -> Mapping[str, Any]:
        return self._place(self.pos, 0, gtid=False)

    def incremental_place(self) -> Mapping[str, Any]:
        self.pos += 300
        return self._place(self.pos, 0)

    def placed(self, changes: Sequence[Change]) -> Sequence[Placed]:
        """Rows of one statement are numbered inside its event."""
        self.transaction += 1
        self.is_replicated = self.given["replicates from"] != "none" and self.random.random() < 0.4
        found = []
        row = 0
        self.pos += 79
        for number, change in enumerate(changes):
            together = number and change.op == changes[number - 1].op and self.random.random() < 0.5
            row = row + 1 if together else 0
            if not together and not self.given["binlog_transaction_compression"]:
                self.pos += 210
            found.append((change, self._place(self.pos, row)))
        self.pos += 110
        if self.random.random() < 0.2:
            self.number, self.pos = self.number + 1, 154
        return found

    def fail_over(self) -> None:
        self.failed_over, self.server = True, 1
        self.number += {"lower number": -2, "same number": 0, "higher number": 5}[self.given["new log"]]
        self.pos = 154

    def clock(self, source: Mapping[str, Any]) -> timedelta:
        """A change has the server and the time at which it was made (manual, "mysqlbinlog": `server id`)."""
        ahead = timedelta(days=3) if self.given["replicates from"].endswith("ahead") else -timedelta(days=3)
        return ahead if source["server_id"] == _REPLICATED else timedelta(0)

    def _place(self, pos: int, row: int, *, gtid: bool = True) -> dict[str, Any]:
        name = f"{_SERVERS[self.server]}:{self.transaction}" if gtid and self.given["gtid_mode"] else None
        server = _REPLICATED if gtid and self.is_replicated else 223344 + self.server
        return {"schema": None, "table": self.table, "server_id": server, "gtid": name,
                "file": f"mysql-bin.{self.number:06d}", "pos": pos, "row": row, "thread": 7, "query": None}  # fmt: skip

    def doubts(self) -> Iterator[Uncertain]:
        if self.failed_over and self.given["new log"] != "higher number":
            yield Uncertain(None, frozenset({"SOURCE_LOG_RESTARTED"}), "positions of two servers' logs don't compare")
            if self.given["replicates from"] != "none" and self.history.happens["same_time"]:
                why = "a server in both logs whose changes have equal times may have sent them again"
                yield Uncertain(None, frozenset({"BATCH_LATE"}), why)


def refusal(case: Mapping[str, Any]) -> str:
    """Row images are full by default, and times beyond a day have no ISO form."""
    if case.get("unlogged"):
        return "binlog_row_image=FULL logs all columns (mysql.adoc)"
    if case.get("new log", "lower number") != "lower number" and case.get("failed_over") is False:
        return "no new log without a failover"
    return _time(case.get("time.precision.mode", ""))


def _time(mode: str) -> str:
    return (
        "IsoTime and Connect's Time hold a day alone (io.debezium.time.IsoTime)"
        if mode in ("isostring", "connect")
        else ""
    )
