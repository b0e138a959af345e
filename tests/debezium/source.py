"""A PostgreSQL table with transactions that overlap, and a connector that follows it; the oracle of random histories.

Only what orders and completes events is modelled: places in the WAL, commits, locks of rows, watermarks of incremental
snapshots, values that are stored apart and not logged again, a connector that starts again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random
from typing import Any

Row = dict[str, Any]
Record = tuple[int, Mapping[str, Any] | None]
"""Key, and the event; null: a tombstone."""

PLACEHOLDER = "__debezium_unavailable_value"
KEYS = range(1, 9)
_TEXTS = (None, "", "x", "X", "Ü")


@dataclass
class _Transaction:
    """Attributes:
    rows: what it sees otherwise than the others; null: deleted. Their keys are locked.
    events: operation, row, place in the WAL.
    """

    rows: dict[int, Row | None] = field(default_factory=dict)
    events: list[tuple[str, Row, int]] = field(default_factory=list)


@dataclass
class _Window:
    """Of an incremental snapshot; keys of which events came between its watermarks are not told of again."""

    chunk: dict[int, Row] | None = None
    seen: set[int] = field(default_factory=set)


@dataclass
class Source:
    """Attributes:
    rows: the table as committed.
    records: what the connector has sent to the topic, in its order.
    loses: the connector loses its place in the log now and then, and takes a new snapshot; and the log is reset.
    began: when it was, ISO 8601.
    """

    rng: Random
    rows: dict[int, Row] = field(default_factory=dict)
    records: list[Record] = field(default_factory=list)
    loses: bool = False
    began: list[str] = field(default_factory=list)
    _passed: int = 0
    _lost: bool = False
    _sent_from: int = 0
    _wide: bool = False
    _lsn: int = 2**40
    _commit: int | None = None
    _open: list[_Transaction] = field(default_factory=list)
    _window: _Window | None = None

    @classmethod
    def lived(cls, rng: Random, steps: int, *, loses: bool = False) -> Source:
        """A source to which that much has happened."""
        source = cls(rng, loses=loses)
        source.rows = {key: source._row(key) for key in KEYS if rng.random() < 0.5}
        source._whole_snapshot()
        for _ in range(steps):
            source._step()
        for transaction in source._open:
            source._committed(transaction)
        if source._lost:
            source.rows.setdefault(1, source._row(1))  # a snapshot of nothing tells nothing
            source._whole_snapshot()
        return source

    def _whole_snapshot(self, *, interrupted: bool = False) -> None:
        """From it on changes come again; what was open then has places before it, and no commit before its own.

        Transactions that were open and have changed rows of the snapshot are rolled back: docs/debezium.md, *Order*.
        """
        self._open = [one for one in self._open if not one.rows.keys() & self.rows.keys()]
        place, rows = self._next(), list(self.rows.values())
        self._commit, self._window, self._sent_from = None, None, len(self.records)
        end = self.rng.choice(("last", "last_in_data_collection"))
        if interrupted:
            rows, end = rows[: self.rng.randrange(len(rows))], "true"
        for at, row in enumerate(rows):
            mark = end if at == len(rows) - 1 else "first_in_data_collection" if at == 0 else "true"
            self._send("r", row, place, mark=mark if self.loses else "")
        self._lost = interrupted

    def _step(self) -> None:
        rng = self.rng
        chosen = rng.choice("bwwwwwwcccsssakr" + "lnniz" * self.loses)
        if chosen == "b" or not self._open:
            self._open.append(_Transaction())
        transaction = rng.choice(self._open)
        if chosen == "w":
            self._write(transaction)
        elif chosen in "ck":
            self._open.remove(transaction)
            if chosen == "c":
                self._committed(transaction)
        elif chosen == "s":
            self._snapshot()
        elif chosen == "a" and not any(t.rows for t in self._open):
            self._wide = True
            self.rows = {key: {"extra": None} | row for key, row in self.rows.items()}
        elif chosen == "r":
            self._restart()
        else:
            self._break(chosen)

    def _break(self, chosen: str) -> None:
        """The log is reset, or the connector loses its place and begins a new snapshot."""
        if chosen == "z":
            self._reset()
        elif chosen == "l":
            self._lost = True
        elif chosen in "ni" and self._lost and self.rows:
            self._whole_snapshot(interrupted=chosen == "i")

    def _write(self, transaction: _Transaction) -> None:
        locked = {key for other in self._open if other is not transaction for key in other.rows}
        key, other = self.rng.choice(KEYS), self.rng.choice(KEYS)
        if key in locked:
            return
        row = transaction.rows.get(key, self.rows.get(key))
        if row is None:
            self._log(transaction, "c", self._row(key))
        elif self.rng.random() < 0.3:
            self._log(transaction, "d", row)
        elif other in locked or transaction.rows.get(other, self.rows.get(other)) is not None:
            self._log(transaction, "u", self._updated(row))
        else:  # of the key
            place = self._next()
            self._log(transaction, "d", row, place)
            self._log(transaction, "c", self._row(other), place)

    def _log(self, transaction: _Transaction, op: str, row: Row, place: int | None = None) -> None:
        logged = dict(row)
        before = transaction.rows.get(row["id"], self.rows.get(row["id"]))
        if op == "u" and before is not None and before["big"] == row["big"] and _is_apart(row["big"]):
            logged["big"] = PLACEHOLDER
        if op == "d":
            logged = dict.fromkeys(row) | {"id": row["id"]}
        transaction.events.append((op, logged, self._next() if place is None else place))
        transaction.rows[row["id"]] = None if op == "d" else row

    def _committed(self, transaction: _Transaction) -> None:
        place = self._next()
        for op, row, lsn in () if self._lost else transaction.events:
            self._send(op, row, lsn, time=place)
            if self._window is not None:
                self._window.seen.add(row["id"])
        self._commit = place
        for key, changed in transaction.rows.items():
            self.rows.pop(key, None)
            if changed is not None:
                self.rows[key] = changed

    def _snapshot(self) -> None:
        """One step on: low watermark, the reading of a chunk, high watermark. A watermark is a transaction."""
        if self._lost:
            return
        window, place = self._window, self._next()
        if window is not None and window.chunk is None:
            window.chunk = {key: dict(row) for key, row in self.rows.items() if self.rng.random() < 0.7}
            return
        if window is not None and window.chunk is not None:
            for key, row in window.chunk.items():
                if key not in window.seen:
                    self._send("r", row, place)
        self._window = _Window() if window is None else None
        self._commit = self._next()

    def _restart(self) -> None:
        """Events since some offset are sent again; a window that was open is begun anew some time."""
        self._window = None
        start = max(self._sent_from, len(self.records) - self.rng.randint(0, 12))
        if self.records[start:] and self.records[start][1] is None:
            start -= 1  # a delete and its tombstone have one offset: none is sent without the other
        again = self.records[start:]
        self.records += [(key, value) for key, value in again if value is None or value["op"] != "r"]

    def _reset(self) -> None:
        """The log begins anew, at places that it has had; what was open is lost."""
        self._open, self._window, now = [], None, self._next()
        self._commit, self._passed = self._next(), self.rng.randrange(1, now - 2**39)
        self.began.append(datetime.fromtimestamp(now / 1000, UTC).isoformat(timespec="milliseconds"))

    def _send(self, op: str, row: Row, lsn: int, *, mark: str = "false", time: int | None = None) -> None:
        commit = "null" if self._commit is None else f'"{self._commit - self._passed}"'
        place = lsn - self._passed
        sequence = f'[{commit},"{place}"]'
        source = {"connector": "postgresql", "lsn": place, "sequence": sequence, "ts_ms": time or lsn}
        source |= {"snapshot": mark} if self.loses else {}
        sides = {"before": dict(row), "after": None} if op == "d" else {"before": None, "after": dict(row)}
        self.records.append((row["id"], {**sides, "source": source, "op": op}))
        if op == "d":
            self.records.append((row["id"], None))

    def _row(self, key: int) -> Row:
        row = {
            "id": key,
            "name": self.rng.choice(_TEXTS),
            "big": self.rng.choice((None, "small", "apart 1", "apart 2")),
        }
        return row | ({"extra": self.rng.choice((None, 1, 2))} if self._wide else {})

    def _updated(self, row: Row) -> Row:
        changed = self._row(row["id"])
        return changed | ({"big": row["big"]} if self.rng.random() < 0.6 else {})

    def _next(self) -> int:
        self._lsn += self.rng.randint(1, 1000)
        return self._lsn


def _is_apart(value: str | None) -> bool:
    """Whether the value is so large that it is stored beside the row."""
    return value is not None and value.startswith("apart")
