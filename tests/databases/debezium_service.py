"""A Debezium connector and its sink as far as files show them: events of PostgreSQL's log, at their places in it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from tests.databases.replication_log import LoggedChange, ReplicationLog

SLOT = "dbz"
_FIELDS = {"int4": "int32", "text": "string"}
_OPS = {"I": "c", "U": "u", "D": "d"}


def begin(engine: sa.Engine) -> None:
    """Make publication and slot of the schema `s`, as a connector does that takes no snapshot."""
    with engine.begin() as connection:
        connection.execute(sa.text(f"DROP PUBLICATION IF EXISTS {SLOT}"))
        connection.execute(sa.text(f"CREATE PUBLICATION {SLOT} FOR TABLES IN SCHEMA s"))
    with engine.begin() as connection:
        connection.execute(sa.text(f"SELECT pg_create_logical_replication_slot('{SLOT}', 'pgoutput')"))


def end(engine: sa.Engine) -> None:
    with engine.begin() as connection:
        drop = f"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '{SLOT}'"
        connection.execute(sa.text(drop))


@dataclass
class DebeziumService:
    """Attributes:
    folder: landing folder of the table; `columns`: column to how a text of the log is written in JSON.
    schema: Connect's schema of a row.
    """

    engine: sa.Engine
    folder: Path
    columns: Mapping[str, Callable[[str], Any]]
    schema: Mapping[str, Mapping[str, Any]]
    offset: int = 0
    commit: int | None = None
    waiting: list[dict[str, Any]] | None = None

    def __post_init__(self) -> None:
        self.log, self.waiting = ReplicationLog(), []

    def capture(self) -> None:
        """Take the log's new events."""
        query = f"SELECT lsn, data FROM pg_logical_slot_get_binary_changes('{SLOT}', NULL, NULL, 'proto_version', '1', "
        with self.engine.begin() as connection:
            rows = connection.execute(sa.text(f"{query}'publication_names', '{SLOT}')")).all()
        for lsn, data in rows:
            message = bytes(data)
            for change in self.log.read([message]):
                assert self.waiting is not None
                self.waiting.append(self._event(change, _place(lsn)))
            if message[:1] == b"C":
                self.commit = int.from_bytes(message[2:10], "big")

    def write(self, *, delay: int = 0, lost: Callable[[dict[str, Any]], bool] = lambda _: False) -> None:
        """A file of what was captured, but for the last `delay` events, and those that are lost."""
        self.capture()
        assert self.waiting is not None
        count = max(0, len(self.waiting) - delay)
        events, self.waiting = self.waiting[:count], self.waiting[count:]
        first, self.offset = self.offset, self.offset + count
        lines = [json.dumps(event) for event in events if not lost(event)]
        if lines:
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / f"t+0+{first:010d}.json").write_text("\n".join(lines) + "\n")

    def _event(self, change: LoggedChange, lsn: int) -> dict[str, Any]:
        row = {name: self._value(name, change.row.get(name)) for name in self.columns if name in change.row}
        before, after = (row, None) if change.op == "D" else (None, row)
        micros = int(change.committed.timestamp() * 1_000_000)
        source = {
            "connector": "postgresql", "name": "crm", "db": "postgres", "schema": "s", "table": "t",
            "snapshot": "false", "ts_us": micros, "ts_ms": micros // 1000, "lsn": lsn,
            "sequence": json.dumps([None if self.commit is None else str(self.commit), str(lsn)]),
        }  # fmt: skip
        fields = [{"field": name, "optional": True, **kind} for name, kind in self.schema.items()]
        parts = [{"type": "struct", "optional": True, "field": name, "fields": fields} for name in ("before", "after")]
        payload = {"before": before, "after": after, "source": source, "op": _OPS[change.op]}
        return {"schema": {"type": "struct", "fields": parts}, "payload": payload}

    def _value(self, name: str, text: str | None) -> Any:
        return None if text is None else self.columns[name](text)


def _place(lsn: str) -> int:
    high, _, low = lsn.partition("/")
    return (int(high, 16) << 32) + int(low, 16)
