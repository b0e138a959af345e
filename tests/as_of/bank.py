"""A bank whose transfers overlap, and what Debezium's connectors of SQL Server and Oracle write of it.

The model knows all rows after each commit; what orders commits is written as the vendors do, and nothing of it is read
by our code's own functions.
"""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

Row = dict[str, Any]
State = dict[str, dict[int, Row]]
T = datetime(2024, 1, 1, tzinfo=UTC)
ACCOUNTS, MONEY = 6, 100


@dataclass(frozen=True)
class Change:
    """Attributes:
    op: of the event. row: after it, or before a delete.
    place, time: of the change itself; `time` in seconds.
    """

    table: str
    op: str
    row: Row
    place: int
    time: int


@dataclass
class Transaction:
    """Attributes:
    commit, time: none until it is committed.
    """

    number: int
    locks: set[int]
    changes: list[Change] = field(default_factory=list)
    commit: int = 0
    time: int = 0


@dataclass
class Bank:
    """Attributes:
    place, time: in the log, and of the clock in seconds.
    states: all rows after each commit, oldest first.
    shares: two transactions may have one place of their commits.
    """

    chance: Random
    shares: bool
    place: int = 1000
    time: int = 0
    rows: State = field(default_factory=dict)
    open: list[Transaction] = field(default_factory=list)
    committed: list[Transaction] = field(default_factory=list)
    states: list[tuple[int, State]] = field(default_factory=list)
    accounts: int = ACCOUNTS
    moves: int = 0
    begun: int = 0

    def __post_init__(self) -> None:
        accounts = {key: {"id": key, "v": MONEY} for key in range(1, ACCOUNTS + 1)}
        self.rows = {"accounts": accounts, "moves": {}, "beats": {1: {"id": 1, "v": 0}}}
        self.states.append((self.place, self.copy()))

    def copy(self) -> State:
        return {table: {key: dict(row) for key, row in rows.items()} for table, rows in self.rows.items()}

    def live(self, steps: int) -> None:
        for _ in range(steps):
            self.time += self.chance.randrange(1, 400)
            choice = self.chance.random()
            if choice < 0.5 and len(self.open) < 4:
                self._begin()
            elif self.open:
                self._commit(self.open.pop(self.chance.randrange(len(self.open))))

    def settle(self) -> None:
        """Commit all that is open."""
        while self.open:
            self.time += 1
            self._commit(self.open.pop())

    def beat(self) -> None:
        """The source's heartbeat: a transaction of its own."""
        self.time += 60
        self.rows["beats"][1] = {"id": 1, "v": self.time}
        transaction = self._new(set())
        self._change(transaction, "beats", "u", {"id": 1, "v": self.time})
        self._commit(transaction)

    def _new(self, locks: set[int]) -> Transaction:
        self.begun += 1
        return Transaction(self.begun, locks)

    def _begin(self) -> None:
        locked = {key for one in self.open for key in one.locks}
        free = [key for key in self.rows["accounts"] if key not in locked]
        if len(free) < 2:
            return
        giver, taker = self.chance.sample(free, 2)
        transaction = self._new({giver, taker})
        value, self.moves = self.chance.randrange(1, 50), self.moves + 1
        self._change(transaction, "accounts", "u", {"id": giver, "v": self.rows["accounts"][giver]["v"] - value})
        account = giver
        if self.chance.random() < 0.3:
            self.accounts += 1
            account = self.accounts
            self._change(transaction, "accounts", "c", {"id": account, "v": 0})
        self._change(transaction, "moves", "c", {"id": self.moves, "account": account, "v": value})
        self._change(transaction, "accounts", "u", {"id": taker, "v": self.rows["accounts"][taker]["v"] + value})
        mine = [row for row in self.rows["moves"].values() if row["account"] in transaction.locks]
        if mine and self.chance.random() < 0.3:
            self._change(transaction, "moves", "d", self.chance.choice(mine))
        self.open.append(transaction)

    def _change(self, transaction: Transaction, table: str, op: str, row: Row) -> None:
        self.place += self.chance.randrange(1, 4)
        transaction.changes.append(Change(table, op, row, self.place, self.time))

    def _commit(self, transaction: Transaction) -> None:
        if not (self.shares and self.states and self.chance.random() < 0.2 and self._may_share(transaction)):
            self.place += self.chance.randrange(1, 4)
        transaction.commit, transaction.time = self.place, self.time
        for change in transaction.changes:
            rows = self.rows[change.table]
            if change.op == "d":
                rows.pop(change.row["id"], None)
            else:
                rows[change.row["id"]] = change.row
        self.committed.append(transaction)
        if self.states[-1][0] == self.place:
            self.states.pop()
        self.states.append((self.place, self.copy()))

    def _may_share(self, transaction: Transaction) -> bool:
        """Nothing happened since the commit before, which this one follows in the same instant."""
        return self.states[-1][0] == self.place and all(change.place < self.place for change in transaction.changes)

    def at(self, place: int) -> State:
        """All rows as of a place in the log."""
        return next(state for commit, state in reversed(self.states) if commit <= place)


class Log(ABC):
    """How a connector writes places."""

    shares = False

    @abstractmethod
    def written(self, place: int) -> str:
        """As the vendor writes it."""

    @abstractmethod
    def read(self, text: str) -> int: ...

    @abstractmethod
    def change(self, transaction: Transaction, change: Change, number: int) -> Row:
        """What is in `source` of a change."""

    @abstractmethod
    def snapshot(self, bank: Bank, tables: Sequence[str]) -> Iterator[tuple[str, list[Row], Row, int]]:
        """Tables with their rows, what is in `source` of each, and the second at which the last was read."""


class SqlServer(Log):
    """The rows of a snapshot are read later than its place says: the agent that fills the change tables is behind, and
    each table is read at its own moment."""

    def written(self, place: int) -> str:
        digits = f"{place:020x}"
        return f"{digits[:8]}:{digits[8:16]}:{digits[16:]}"

    def read(self, text: str) -> int:
        return int("".join(text.split(":")), 16)

    def change(self, transaction: Transaction, change: Change, number: int) -> Row:
        return {
            "connector": "sqlserver", "db": "bank", "commit_lsn": self.written(transaction.commit),
            "change_lsn": self.written(change.place), "event_serial_no": number, "ts_ms": _ms(transaction.time),
        }  # fmt: skip

    def snapshot(self, bank: Bank, tables: Sequence[str]) -> Iterator[tuple[str, list[Row], Row, int]]:
        place = bank.states[-min(4, len(bank.states))][0]
        for table in tables:
            began = bank.time
            bank.live(3)
            source = {"connector": "sqlserver", "db": "bank", "commit_lsn": self.written(place), "change_lsn": None}
            yield table, list(bank.copy()[table].values()), {**source, "ts_ms": _ms(began)}, bank.time


class Oracle(Log):
    """The rows of a snapshot are those of its SCN; transactions may share one."""

    shares = True

    def written(self, place: int) -> str:
        return str(place)

    def read(self, text: str) -> int:
        return int(text)

    def change(self, transaction: Transaction, change: Change, number: int) -> Row:  # noqa: ARG002 - of SQL Server
        return {
            "connector": "oracle", "version": "3.2.0.Final", "db": "ORCLPDB1", "scn": str(change.place),
            "commit_scn": str(transaction.commit), "redo_thread": 1, "ssn": 0, "txId": f"{transaction.number:016x}",
            "rs_id": f"0x{change.place:06x}.00000001.0010", "ts_ms": _ms(change.time),
        }  # fmt: skip

    def snapshot(self, bank: Bank, tables: Sequence[str]) -> Iterator[tuple[str, list[Row], Row, int]]:
        place, began, rows = bank.place, bank.time, bank.copy()
        source = {"connector": "oracle", "version": "3.2.0.Final", "db": "ORCLPDB1", "scn": str(place), "ssn": 0}
        for table in tables:
            bank.live(3)
            yield table, list(rows[table].values()), {**source, "ts_ms": _ms(began)}, bank.time


def _ms(seconds: int) -> int:
    return int((T + timedelta(seconds=seconds)).timestamp() * 1000)


@dataclass
class Connector:
    """Sends the changes of a bank to a topic for each table; a sink writes each as far as it has come.

    Attributes:
        sent: events of each topic that no file has yet.
        done: transactions of which all events were sent; `begun`: events of the next one that were sent.
    """

    bank: Bank
    log: Log
    landing: Path
    name: str = "crm"
    sent: dict[str, list[Row]] = field(default_factory=dict)
    done: int = 0
    begun: int = 0
    offsets: dict[str, int] = field(default_factory=dict)

    def event(self, table: str, op: str, row: Row, source: Mapping[str, Any], mark: str = "false") -> Row:
        sides = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
        place = {"name": self.name, "schema": "s", "table": table, "snapshot": mark, **source}
        return {**sides, "source": place, "op": op}

    def snapshot(self, *tables: str) -> None:
        """All that the connector sends later was committed behind the place of the snapshot."""
        place = 0
        for table, rows, source, second in self.log.snapshot(self.bank, tables):
            place = self.log.read(str(source.get("commit_lsn") or source.get("scn")))
            marks = [*["true"] * (len(rows) - 1), "last"]
            events = [self.event(table, "r", row, source, mark) for mark, row in zip(marks, rows, strict=False)]
            self.write(table, events, second)
        self.done = next(
            (n for n, one in enumerate(self.bank.committed) if one.commit > place), len(self.bank.committed)
        )

    def send(self, most: int | None = None) -> None:
        """Send so many events at most, in the order of commits: the last transaction may be sent in part."""
        count = 0
        while self.done < len(self.bank.committed):
            transaction = self.bank.committed[self.done]
            while self.begun < len(transaction.changes):
                if most is not None and count >= most:
                    return
                change = transaction.changes[self.begun]
                self.begun, count = self.begun + 1, count + 1
                source = self.log.change(transaction, change, self.begun)
                self.sent.setdefault(change.table, []).append(self.event(change.table, change.op, change.row, source))
            self.done, self.begun = self.done + 1, 0

    def land(self, table: str, most: int | None = None) -> None:
        """Write a file of the topic's oldest events that none has."""
        waiting = self.sent.get(table, [])
        events, self.sent[table] = waiting[:most], waiting[len(waiting[:most]) :]
        if events:
            self.write(table, events, self.bank.time)

    def write(self, table: str, events: Sequence[Row], second: int) -> None:
        offset = self.offsets[table] = self.offsets.get(table, 0) + 1000
        folder = self.landing / "s" / table
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"s.{table}+0+{offset:010d}.json"
        path.write_text("".join(json.dumps(event) + "\n" for event in events))
        moment = (T + timedelta(seconds=second)).timestamp()
        os.utime(path, (moment, moment))
