"""Cuts of tables whose events Debezium's connectors write to files: by the commit before each transaction."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_gddl.contract.consistent_cut import lsn_of
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.spec import TableSpec
from tests.as_of.cuts import Cuts, RefusedError
from tests.harness.lake import Lake

T = datetime(2024, 1, 1, tzinfo=UTC)
SNAPSHOT = 1000
"""Where the log was when the snapshot was taken."""
SPEC = TableSpec(table="s.accounts", keys=("id",), dialect="debezium", settle="0s", sweep_after="0s", sweep_limit=1.0)
ACCOUNTS, ORDERS = SPEC, replace(SPEC, table="s.orders")
Row = dict[str, Any]


@dataclass
class Connector:
    """Writes the events of transactions; each is committed 100 behind its begin, and its changes are between."""

    lake: Lake
    log: int = SNAPSHOT
    committed: int | None = None
    transactions: int = 0
    names: dict[str, str] = field(default_factory=dict)
    offsets: dict[str, int] = field(default_factory=dict)
    state: dict[str, dict[int, int]] = field(default_factory=dict)
    known: list[tuple[int, dict[str, dict[int, int]]]] = field(default_factory=list)

    def event(self, op: str, table: str, row: Row, mark: str = "false", **source: Any) -> Row:
        commit = None if self.committed is None else str(self.committed)
        place = {
            "connector": "postgresql", "name": self.names.get(table, "crm"), "db": "crm", "schema": "s",
            "table": table, "lsn": self.log, "sequence": json.dumps([commit, str(self.log)]), "snapshot": mark,
            "ts_ms": int((T + timedelta(seconds=self.transactions)).timestamp() * 1000), **source,
        }  # fmt: skip
        sides = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
        return {**sides, "source": place, "op": op}

    def snapshot(self, table: str, rows: dict[int, int]) -> list[Row]:
        self.state[table] = dict(rows)
        marks = [*["true"] * (len(rows) - 1), "last"]
        return [
            self.event("r", table, {"id": key, "v": value}, mark)
            for mark, (key, value) in zip(marks, rows.items(), strict=True)
        ]

    def transaction(self, *changes: tuple[str, int, int | None]) -> dict[str, list[Row]]:
        """Events by table, of (table, id, value); None: the row is deleted."""
        self.transactions += 1
        begin, events = self.log, dict[str, list[Row]]()
        for number, (table, key, value) in enumerate(changes, start=1):
            self.log = begin + number
            rows, op = self.state[table], "d" if value is None else "u" if key in self.state[table] else "c"
            row = {"id": key, "v": rows.pop(key) if value is None else value}
            rows |= {} if value is None else {key: value}
            events.setdefault(table, []).append(self.event(op, table, row))
        self.committed = self.log = begin + 100
        self.known.append((self.committed, {name: dict(rows) for name, rows in self.state.items()}))
        return events

    def land(self, table: str, events: Sequence[Row], partition: int = 0) -> None:
        offset = self.offsets[table] = self.offsets.get(table, 0) + 1000
        folder = self.lake.root / "landing" / "s" / table
        folder.mkdir(parents=True, exist_ok=True)
        name = f"s.{table}+{partition}+{offset:010d}.json"
        (folder / name).write_text("".join(json.dumps(event) + "\n" for event in events))
        os.utime(folder / name, (T.timestamp(), T.timestamp()))


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


@pytest.fixture
def connector(lake: Lake) -> Connector:
    made = Connector(lake)
    for table, rows in (("accounts", {1: 100, 2: 100}), ("orders", {9: 0})):
        made.land(table, made.snapshot(table, rows))
    return made


def cuts_of(lake: Lake, *specs: TableSpec) -> Cuts:
    return Cuts(lake, specs or (ACCOUNTS, ORDERS), lake.result)


def rows_of(state: dict[int, int]) -> list[Row]:
    return sorted(({"id": key, "v": value} for key, value in state.items()), key=str)


def refused(lake: Lake, at: str, *specs: TableSpec) -> tuple[str, str]:
    """Code and message of a cut that is refused."""
    with pytest.raises((FatalError, RefusedError)) as found:
        cuts_of(lake, *specs).make("refused", at)
    return found.value.code, str(found.value)  # type: ignore[union-attr] # both have it


def test_cuts_of_random_transactions_equal_the_source_at_their_commits(lake: Lake, connector: Connector) -> None:
    chance = random.Random(11)  # noqa: S311 - repeatable by its seed
    for _ in range(30):
        changes = [
            (chance.choice(("accounts", "orders")), chance.randrange(4), chance.randrange(1000)) for _ in range(3)
        ]
        changes += [("accounts", 3, None)] if 3 in connector.state["accounts"] and chance.random() < 0.3 else []
        for table, events in connector.transaction(*changes).items():
            connector.land(table, events)
            if chance.random() < 0.3:
                lake.done(replace(SPEC, table=f"s.{table}"))
    for spec in (ACCOUNTS, ORDERS):
        lake.done(spec)
    cuts, whole = cuts_of(lake), min(one.complete for one in cuts_of(lake).facts("latest"))
    shown = 0
    for number, (commit, state) in enumerate(connector.known):
        at = lsn_of(f"{commit:020d}")
        if f"{commit:020d}" > whole:
            assert "complete until" in refused(lake, at)[1]
            continue
        shown += 1
        cut = cuts.make(f"cut_{number}", at)
        for table in state:
            assert cuts.rows(cut, f"s.{table}") == rows_of(state[table]), (number, table)
    assert shown > 20
    newest = cuts.make("newest")
    assert newest.moment.bound == whole
    expected = next(state for commit, state in connector.known if f"{commit:020d}" == whole)
    assert [cuts.rows(newest, f"s.{table}") for table in expected] == [rows_of(one) for one in expected.values()]


def test_nothing_is_known_until_a_change_names_a_commit(lake: Lake, connector: Connector) -> None:
    """The first transaction behind a snapshot names no commit before it, nor its own."""
    for table, events in connector.transaction(("accounts", 1, 90), ("orders", 1, 10)).items():
        connector.land(table, events)
    for spec in (ACCOUNTS, ORDERS):
        lake.done(spec)
    assert "not known to be complete until any moment" in refused(lake, "latest")[1]
    for table, events in connector.transaction(("accounts", 1, 80), ("orders", 2, 10)).items():
        connector.land(table, events)
        lake.done(replace(SPEC, table=f"s.{table}"))
    cuts = cuts_of(lake)
    assert cuts.rows(cuts.make("first"), "s.accounts") == rows_of({1: 90, 2: 100})


def test_a_new_snapshot_begins_the_table_anew(lake: Lake, connector: Connector) -> None:
    commits = []
    for number in range(3):
        for table, events in connector.transaction(("accounts", 1, number)).items():
            connector.land(table, events)
        commits.append(connector.known[-1][0])
    connector.land("accounts", connector.snapshot("accounts", {2: 7}))
    at = connector.log
    for number in range(3):
        for table, events in connector.transaction(("accounts", 3, number)).items():
            connector.land(table, events)
    lake.done(ACCOUNTS)
    assert lake.ledger(ACCOUNTS).state.generation == 2
    cuts = cuts_of(lake, ACCOUNTS)
    assert refused(lake, lsn_of(f"{commits[2] - 1:020d}"), ACCOUNTS)[0] == "CUT_REFUSED"
    cut = cuts.make("later", lsn_of(f"{connector.known[-2][0]:020d}"))
    assert connector.known[-2][0] > at
    assert cuts.rows(cut, "s.accounts") == rows_of({2: 7, 3: 1})


@pytest.mark.parametrize(
    "source",
    [
        {"connector": "mysql", "file": "binlog.000001", "pos": 7, "server_id": 1},
        {"connector": "sqlserver", "commit_lsn": "00000000:00000000:0007", "change_lsn": "00000000:00000000:0006"},
        {"connector": "oracle", "scn": "7", "commit_scn": "8", "redo_thread": 1},
        {"connector": "mongodb", "ts_ms": 7000, "ord": 1},
    ],
)  # fmt: skip
def test_positions_of_other_connectors_are_refused(lake: Lake, source: dict[str, Any]) -> None:
    connector = Connector(lake, state={"accounts": {}})
    connector.land("accounts", [connector.event("c", "accounts", {"id": 1, "v": 1}, **source)])
    lake.done(ACCOUNTS)
    assert "no places of commits in PostgreSQL's log" in refused(lake, "latest", ACCOUNTS)[1]


def test_a_topic_of_several_partitions_is_refused(lake: Lake, connector: Connector) -> None:
    for partition in range(2):
        for table, events in connector.transaction(("accounts", partition, 5)).items():
            connector.land(table, events, partition)
    lake.done(ACCOUNTS)
    code, message = refused(lake, "latest", ACCOUNTS)
    assert (code, "several partitions" in message) == ("CUT_REFUSED", True)


def _of_several_connectors(lake: Lake, *tables: str) -> Connector:
    """Tables of which the last one is another connector's."""
    connector = Connector(lake, names={tables[-1]: "other"})
    for number, table in enumerate(tables):
        connector.land(table, connector.snapshot(table, {9: number}))
    for number in range(3):
        for table, events in connector.transaction(*((table, 1, number) for table in tables)).items():
            connector.land(table, events)
    for table in tables:
        lake.done(replace(SPEC, table=f"s.{table}"))
    return connector


def test_tables_of_several_connectors_are_refused(lake: Lake) -> None:
    """Each names the last commit that it has seen, so that one transaction has several places."""
    _of_several_connectors(lake, "accounts", "orders")
    code, message = refused(lake, "latest")
    assert code == "CUT_REFUSED"
    assert "s.accounts: positions of PostgreSQL's log, read by the connector crm; s.orders: " in message
    assert "read by the connector other" in message
    assert cuts_of(lake, ORDERS).make("alone").tables[0].rows == 2


def test_a_table_with_events_of_several_connectors_is_refused(lake: Lake, connector: Connector) -> None:
    for name in ("crm", "other"):
        connector.names["accounts"] = name
        for table, events in connector.transaction(("accounts", 1, 5)).items():
            connector.land(table, events)
    lake.done(ACCOUNTS)
    code, message = refused(lake, "latest", ACCOUNTS)
    assert (code, "from one connector (crm, other)" in message) == ("CUT_REFUSED", True)


def test_changes_without_a_snapshot_are_refused(lake: Lake) -> None:
    connector = Connector(lake, state={"accounts": {}}, committed=5)
    for table, events in connector.transaction(("accounts", 1, 5)).items():
        connector.land(table, events)
    lake.done(ACCOUNTS)
    assert "no full load of it is known" in refused(lake, "latest", ACCOUNTS)[1]


def test_a_time_is_answered_by_the_first_transaction_behind_it(lake: Lake, connector: Connector) -> None:
    for number in range(4):
        for table, events in connector.transaction(("accounts", 1, number), ("orders", 9, number)).items():
            connector.land(table, events)
    for spec in (ACCOUNTS, ORDERS):
        lake.done(spec)
    cuts = cuts_of(lake)
    cut = cuts.make("second", (T + timedelta(seconds=2, milliseconds=500)).isoformat())
    assert cuts.rows(cut, "s.accounts") == rows_of({1: 1, 2: 100})
    assert "complete until" in refused(lake, (T + timedelta(seconds=4)).isoformat())[1]


def test_a_time_before_the_snapshot_is_refused(lake: Lake, connector: Connector) -> None:
    """Its rows have what was committed until it was taken, of which no change tells; their times are the reader's."""
    for number in range(4):
        for table, events in connector.transaction(("accounts", 1, number), ("orders", 9, number)).items():
            connector.land(table, events)
    for spec in (ACCOUNTS, ORDERS):
        lake.done(spec)
    for seconds in (-3600, -1, 0.5):
        code, message = refused(lake, (T + timedelta(seconds=seconds)).isoformat())
        assert (code, "s.accounts: its full load was read until" in message) == ("CUT_REFUSED", True)
