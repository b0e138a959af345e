"""Debezium's connector for Oracle (LogMiner).

Sources: `OracleSourceInfoStructMaker`, io.debezium.connector.oracle.CommitScn (`rs_id`, `ssn`, `redo_thread`);
documentation/modules/ROOT/pages/connectors/oracle.adoc; issue DBZ-5245 (before it, `commit_scn` of an event was the
last commit of its redo thread).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, ClassVar

from tests.conformance.history import Change, History
from tests.conformance.writers.debezium import Connector, Placed


class Oracle(Connector):
    """Transactions come by their commits; changes have the SCNs at which they were made."""

    name = "oracle"
    kinds = ("text", "decimal", "float8", "timestamp", "timestamptz", "bytes")
    flat = ("schema", "scn", "commit_scn", "rs_id", "ssn")
    settings: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "interleaved": (False, True),
        "threads": (1, 2),
        "commit_scn": ("of the transaction", "of the thread before"),
        "rows of a redo record": (1, 3),
    }

    def __init__(self, history: History, given: Mapping[str, Any]) -> None:
        super().__init__(history, given)
        self.scn, self.transaction, self.record = 2_122_185, 0x0A00, 0x10
        self.commits = {1: self.scn, 2: self.scn}
        self.random = Random(str(history.loaded))  # noqa: S311 - no secret

    def snapshot_place(self) -> Mapping[str, Any]:
        """Rows of a snapshot have the SCN at which it was taken, and no commit."""
        self.scn += 3
        return self._place(self.scn, None, 1, None, None)

    def incremental_place(self) -> Mapping[str, Any]:
        self.scn += 3
        return self._place(self.scn, self.scn, 1, " 0x000001.00000001.0010 ", 0)

    def placed(self, changes: Sequence[Change]) -> Sequence[Placed]:
        self.transaction += 1
        thread = self.random.randint(1, self.given["threads"])
        scn = self.scn - 4 if self.given["interleaved"] and self.transaction > 0x0A01 else self.scn + 2
        commit = max(self.scn, scn + len(changes)) + 5
        named = commit if self.given["commit_scn"] == "of the transaction" else self.commits[thread]
        found = []
        for number, change in enumerate(changes):
            if number % self.given["rows of a redo record"] == 0:
                self.record += 1
                scn += 1
            redo = f" 0x{thread:06x}.{self.record:08x}.0010 "
            found.append((change, self._place(scn, named, thread, redo, 0)))
        self.scn = self.commits[thread] = commit
        return found

    def _place(self, scn: int, commit: int | None, thread: int, redo: str | None, nth: int | None) -> dict[str, Any]:
        return {"schema": "s", "table": self.table, "txId": f"{self.transaction:08x}", "scn": str(scn),
                "lcr_position": None, "commit_scn": None if commit is None else str(commit), "rs_id": redo, "ssn": nth,
                "redo_thread": thread, "user_name": "APP"}  # fmt: skip


def refusal(case: Mapping[str, Any]) -> str:
    """LOBs alone are not logged; versions before DBZ-5245 are those with the other `commit_scn`."""
    if case.get("commit_scn") == "of the thread before" and case.get("interleaved"):
        return "the commit of no event is known then (DBZ-5245)"
    if case.get("threads") == 2 and case.get("commit_scn") == "of the thread before" and case.get("same_time"):
        return "two threads' commits of one time (DBZ-5245)"
    return "a failover of Oracle keeps its SCNs" if case.get("failed_over") else ""
