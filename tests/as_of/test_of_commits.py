"""Cuts of tables whose events have the place of their own commit: Debezium's connectors of SQL Server and Oracle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

from airflow_gddl.contract.actions import Reload
from airflow_gddl.contract.consistent_cut import Cut
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.spec import JobOptions, TableSpec
from spark_jobs.dialects.debezium import dialect
from spark_jobs.dialects.debezium.dialect import marks_of
from tests.as_of.bank import ACCOUNTS, MONEY, Bank, Connector, Log, Oracle, Row, SqlServer, State, T
from tests.as_of.cuts import Cuts, RefusedError
from tests.conftest import LocalPort
from tests.harness.lake import Lake

SPEC = TableSpec(
    table="s.accounts", keys=("id",), dialect="debezium", settle="0s", sweep_after="0s", sweep_limit=1.0, history=True
)  # fmt: skip
TABLES = ("accounts", "moves")
SPECS = tuple(replace(SPEC, table=f"s.{name}") for name in TABLES)
LOGS = pytest.mark.parametrize("log", [SqlServer(), Oracle()], ids=["sqlserver", "oracle"])
AN_HOUR = 4000


def world(lake: Lake, log: Log, seed: object, *tables: str) -> tuple[Bank, Connector]:
    """A bank to which something has happened, and a connector that has taken its snapshot."""
    bank = Bank(Random(str(seed)), log.shares)  # noqa: S311 - repeatable by its seed
    bank.live(30)
    connector = Connector(bank, log, lake.root / "landing")
    connector.snapshot(*(tables or TABLES))
    return bank, connector


def run_all(lake: Lake, *specs: TableSpec) -> None:
    for spec in specs or SPECS:
        lake.done(spec)


def deliver(connector: Connector, *tables: str) -> None:
    """All that was committed, in a file of each topic."""
    connector.send()
    for table in tables or TABLES:
        connector.land(table)


def an_hour_later(lake: Lake, bank: Bank, connector: Connector, steps: int) -> None:
    """Further steps of the bank, delivered and loaded."""
    bank.time += AN_HOUR
    bank.live(steps)
    deliver(connector)
    run_all(lake)


def cuts_of(lake: Lake, *specs: TableSpec) -> Cuts:
    return Cuts(lake, specs or SPECS, lake.result)


def refused(cuts: Cuts, at: str) -> tuple[str, str]:
    with pytest.raises((FatalError, RefusedError)) as found:
        cuts.make("refused", at)
    return found.value.code, str(found.value)  # type: ignore[union-attr] # both have it


def shown(cuts: Cuts, cut: Cut) -> State:
    rows = {table: cuts.rows(cut, f"s.{table}") for table in TABLES}
    return {table: {row["id"]: row for row in found} for table, found in rows.items()}


def require_sound(state: State) -> None:
    """The sum of all accounts never changes, and each move has its account."""
    assert sum(row["v"] for row in state["accounts"].values()) == ACCOUNTS * MONEY
    assert {row["account"] for row in state["moves"].values()} <= set(state["accounts"])


def held(cuts: Cuts, bank: Bank, log: Log, name: str, at: str) -> int | None:
    """Make a cut, compare it with the bank, and return its place; None: it is refused as not known or not complete."""
    try:
        cut = cuts.make(name, at)
    except (FatalError, RefusedError) as error:
        assert error.code in ("CUT_NOT_COMPLETE", "CUT_BEFORE_LOAD"), error  # noqa: PT017 - others are allowed to pass
        return None
    place = log.read(cut.moment.shown)
    state = shown(cuts, cut)
    assert state == {table: bank.at(place)[table] for table in TABLES}, (at, cut.moment)
    require_sound(state)
    return place


@LOGS
@pytest.mark.parametrize("seed", range(3))
def test_cuts_at_random_equal_the_bank_at_their_commits(log: Log, seed: int, engine: LocalPort, tmp_path: Path) -> None:
    """Transactions overlap; each topic is read to an end of its own, some in the middle of a transaction."""
    lake = Lake(tmp_path, port=engine)
    bank, connector = world(lake, log, seed)
    chance, cuts, latest, asked = bank.chance, cuts_of(lake), 0, 0
    for number in range(5):
        bank.live(25)
        connector.send(chance.randrange(10, 60))
        for table in TABLES:
            connector.land(table, chance.choice((None, chance.randrange(1, 30))))
            lake.done(replace(SPEC, table=f"s.{table}"))
        latest += held(cuts, bank, log, f"latest_{number}", "latest") is not None
        for turn, (commit, _) in enumerate(chance.sample(bank.states, 4)):
            place = commit + chance.choice((0, 0, 1))
            at = held(cuts, bank, log, f"at_{number}_{turn}", log.written(place))
            assert at in (None, place)
            asked += at is not None
    assert latest >= 2, "too little is shown"
    assert asked >= 2, "too little is shown"


@LOGS
def test_a_moment_has_all_that_was_committed_by_it(log: Log, tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    bank, connector = world(lake, log, 7)
    an_hour_later(lake, bank, connector, 40)
    cuts, made = cuts_of(lake), 0
    for number, second in enumerate(range(bank.time - 4000, bank.time, 500)):
        place = held(cuts, bank, log, f"cut_{number}", (T + timedelta(seconds=second)).isoformat())
        if place is not None:
            made += 1
            assert all(one.commit <= place for one in bank.committed if one.time <= second)
    assert made >= 3


@LOGS
def test_a_transaction_that_has_come_in_part_is_in_no_cut(log: Log, tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    bank, connector = world(lake, log, 3)
    bank.settle()
    bank.time += AN_HOUR
    for _ in range(3):
        bank.live(4)
        bank.settle()
    deliver(connector)
    bank.live(2)
    bank.settle()
    transaction = bank.committed[-1]
    assert {change.table for change in transaction.changes} == set(TABLES)
    connector.send(1)
    connector.land("accounts")
    run_all(lake)
    cuts = cuts_of(lake)
    assert held(cuts, bank, log, "latest", "latest") is not None
    assert refused(cuts, log.written(transaction.commit))[0] == "CUT_NOT_COMPLETE"
    assert refused(cuts, log.written(transaction.commit - 1))[0] == "CUT_NOT_COMPLETE"
    deliver(connector)
    run_all(lake)
    newest = {
        table: max(one.commit for one in bank.committed for c in one.changes if c.table == table) for table in TABLES
    }
    assert held(cuts, bank, log, "before", log.written(min(newest.values()) - 1)) is not None


def test_rows_that_a_snapshot_of_sql_server_has_read_later_are_in_no_earlier_cut(tmp_path: Path) -> None:
    """Its place is that of the change tables, which lag behind what is read, at another moment of each table."""
    lake, log = Lake(tmp_path), SqlServer()
    bank, connector = world(lake, log, 1)
    read, place = bank.time, bank.states[-1][0]
    bank.live(8)
    deliver(connector)
    run_all(lake)
    assert (bank.states[-1][0] > place, bank.time - read < AN_HOUR - 400) == (True, True)
    cuts = cuts_of(lake)
    for at in ("latest", log.written(place), log.written(bank.committed[-2].commit)):
        code, message = refused(cuts, at)
        assert (code, "no commit that is an hour later is known" in message) == ("CUT_BEFORE_LOAD", True)
    bank.time = read + AN_HOUR
    bank.live(30)
    deliver(connector)
    run_all(lake)
    assert held(cuts, bank, log, "latest", "latest") is not None
    for state_at, _ in bank.states:
        made = held(cuts, bank, log, f"at_{state_at}", log.written(state_at))
        times = [one.time for one in bank.committed if one.commit <= state_at]
        assert made is None or max(times) >= read


def test_commit_times_that_go_back_prove_no_end_of_a_snapshot(tmp_path: Path) -> None:
    """By the first change an hour has passed, by those behind it in the log it has not."""
    lake, log = Lake(tmp_path), SqlServer()
    bank, connector = world(lake, log, 1)
    bank.live(8)
    connector.send()
    connector.sent["accounts"][0]["source"]["ts_ms"] += 2 * AN_HOUR * 1000
    bank.time += 3 * AN_HOUR
    for table in TABLES:
        connector.land(table)
    run_all(lake)
    code, message = refused(cuts_of(lake, SPECS[0]), "latest")
    assert (code, "no commit that is an hour later is known" in message) == ("CUT_BEFORE_LOAD", True)


def test_a_snapshot_of_oracle_is_exact(tmp_path: Path) -> None:
    """Transactions that were open while it was read have changes from before its place, and a commit behind it."""
    lake, log = Lake(tmp_path), Oracle()
    bank, connector = world(lake, log, 2)
    bank.live(20)
    deliver(connector)
    run_all(lake)
    cuts = cuts_of(lake)
    (least,) = {one.least for one in cuts.facts("latest")}
    at = int(least)
    assert any(change.place <= at < one.commit for one in bank.committed for change in one.changes)
    assert held(cuts, bank, log, "first", log.written(at)) == at
    code, message = refused(cuts, log.written(at - 1))
    assert (code, f"was read until {at}" in message) == ("CUT_BEFORE_LOAD", True)


@LOGS
def test_a_heartbeat_lets_a_quiet_table_go_on(log: Log, tmp_path: Path) -> None:
    lake, beats = Lake(tmp_path), replace(SPEC, table="s.beats")
    bank, connector = world(lake, log, 4, *TABLES, "beats")
    specs = tuple(replace(spec, heartbeat="s.beats") for spec in SPECS)
    bank.settle()
    bank.time += AN_HOUR
    for _ in range(3):
        bank.beat()
    deliver(connector, *TABLES, "beats")
    run_all(lake, *specs, beats)
    newest = max(one.commit for one in bank.committed[:-3])
    alone = held(cuts_of(lake), bank, log, "alone", "latest")
    assert alone is None or alone < newest
    place = held(cuts_of(lake, *specs), bank, log, "beaten", "latest")
    assert place is not None
    assert newest <= place < bank.place


@pytest.mark.parametrize(("database", "is_known"), [("other", False), ("bank", True)])
def test_a_heartbeat_of_another_database_says_nothing(database: str, is_known: bool, tmp_path: Path) -> None:
    """Each database of SQL Server has a log of its own, also where one connector reads several."""
    lake, beats = Lake(tmp_path), replace(SPEC, table="s.beats")

    class Elsewhere(SqlServer):
        def change(self, *arguments: Any) -> Row:
            found = super().change(*arguments)
            return {**found, "db": database} if arguments[1].table == "beats" else found

        def snapshot(self, bank: Bank, tables: Sequence[str]) -> Iterator[tuple[str, list[Row], Row, int]]:
            for table, rows, source, second in super().snapshot(bank, tables):
                yield table, rows, {**source, "db": database if table == "beats" else "bank"}, second

    bank, connector = world(lake, Elsewhere(), 4, *TABLES, "beats")
    bank.settle()
    bank.time += AN_HOUR
    bank.beat()
    bank.beat()
    deliver(connector, *TABLES, "beats")
    specs = tuple(replace(spec, heartbeat="s.beats") for spec in SPECS)
    run_all(lake, *specs, beats)
    cuts = cuts_of(lake, *specs)
    if is_known:
        assert cuts.make("beaten").tables[0].rows is not None
    else:
        assert refused(cuts, "latest")[0] in ("CUT_NOT_COMPLETE", "CUT_BEFORE_LOAD")


def test_rows_of_a_snapshot_of_the_heartbeat_say_nothing_of_other_tables(tmp_path: Path) -> None:
    """It may be taken again while changes from before its place are not sent yet."""
    lake, log, beats = Lake(tmp_path), Oracle(), replace(SPEC, table="s.beats")
    bank, connector = world(lake, log, 5, *TABLES, "beats")
    bank.live(20)
    deliver(connector)
    specs = tuple(replace(spec, heartbeat="s.beats") for spec in SPECS)
    run_all(lake, *specs, beats)
    before = [one.complete for one in cuts_of(lake, *specs).facts("latest")]
    bank.live(20)
    source = {"connector": "oracle", "version": "3.2.0.Final", "db": "ORCLPDB1", "scn": str(bank.place), "ts_ms": 1}
    connector.write("beats", [connector.event("beats", "r", {"id": 1, "v": 1}, source, "last")], bank.time)
    lake.done(beats)
    assert [one.complete for one in cuts_of(lake, *specs).facts("latest")] == before


def _changed(lake: Lake, log: Log, **source: Any) -> Cuts:
    """Cuts of tables whose last event has other fields of its source; None: it lacks the field."""
    bank, connector = world(lake, log, 6)
    bank.time += AN_HOUR
    bank.live(20)
    connector.send()
    (*_, event) = connector.sent["accounts"]
    event["source"] = {name: value for name, value in (event["source"] | source).items() if value is not None}
    for table in TABLES:
        connector.land(table)
    specs = tuple(replace(spec, options={"source_tables": "several"}) for spec in SPECS)
    run_all(lake, *specs)
    return cuts_of(lake, *specs)


@pytest.mark.parametrize(
    ("log", "source", "why"),
    [
        (Oracle(), {"commit_scn": None}, "its events lack the SCN of their commit"),
        (Oracle(), {"commit_scn": "1"}, "its events lack the SCN of their commit"),
        (Oracle(), {"redo_thread": None}, "its events don't name their redo thread"),
        (Oracle(), {"version": "2.5.4.Final"}, "its events are not of Debezium 2.7 or later"),
        (Oracle(), {"version": None}, "its events are not of Debezium 2.7 or later"),
        (Oracle(), {"redo_thread": 2}, "read by the connector crm, redo thread 1, redo thread 2"),
        (SqlServer(), {"db": None}, "its events don't name their database"),
        (SqlServer(), {"db": "other"}, "read by the connector crm, database bank, database other"),
        (SqlServer(), {"snapshot": "incremental"}, "rows of an incremental snapshot"),
    ],
)  # fmt: skip
def test_events_that_prove_no_place_of_a_commit_are_refused(log: Log, source: Row, why: str, tmp_path: Path) -> None:
    code, message = refused(_changed(Lake(tmp_path), log, **source), "latest")
    assert (code, why in message, "s.accounts" in message) == ("CUT_TRANSACTIONS_UNKNOWN", True, True), message


def test_files_that_an_earlier_release_has_read_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of their commits was kept then."""
    with monkeypatch.context() as earlier:
        earlier.setattr(dialect, "marks_of", lambda *arguments: replace(marks_of(*arguments), logs=()))
        cuts = _changed(Lake(tmp_path), Oracle())
    code, message = refused(cuts, "latest")
    assert (code, "` reads them again" in message) == ("CUT_TRANSACTIONS_UNKNOWN", True)
    for spec in cuts.specs:
        cuts.lake.done(spec, JobOptions(action=Reload(confirmed=True)))
    require_sound(shown(cuts, cuts.make("latest")))


@LOGS
def test_files_that_an_earlier_release_has_read_stay_unknown_beside_newer_ones(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    lake = Lake(tmp_path)
    bank, connector = world(lake, log, 6)
    with monkeypatch.context() as earlier:
        earlier.setattr(dialect, "marks_of", lambda *arguments: replace(marks_of(*arguments), logs=()))
        run_all(lake)
    an_hour_later(lake, bank, connector, 20)
    code, message = refused(cuts_of(lake), "latest")
    assert (code, "` reads them again" in message) == ("CUT_TRANSACTIONS_UNKNOWN", True)


def _again(connector: Connector, place: int, rows: Sequence[Row]) -> None:
    """A snapshot of accounts by SQL Server's connector."""
    source = {
        "connector": "sqlserver", "db": "bank", "commit_lsn": connector.log.written(place), "change_lsn": None,
        "ts_ms": int((T + timedelta(seconds=connector.bank.time)).timestamp() * 1000),
    }  # fmt: skip
    marks = [*["true"] * (len(rows) - 1), "last"]
    events = [connector.event("accounts", "r", row, source, mark) for mark, row in zip(marks, rows, strict=True)]
    connector.write("accounts", events, connector.bank.time)


@pytest.mark.parametrize("behind", [0, 1])
def test_another_snapshot_of_sql_server(behind: int, tmp_path: Path) -> None:
    """At the place of the newest change it is merged: its rows have what was committed behind it, as of a load of which
    nothing is known. Behind it, it is a load; of the time before, nothing is known."""
    lake, log = Lake(tmp_path), SqlServer()
    bank, connector = world(lake, log, 1, "accounts")
    bank.settle()
    bank.time += AN_HOUR
    bank.live(20)
    bank.settle()
    deliver(connector, "accounts")
    lake.done(SPEC)
    cuts = cuts_of(lake, SPEC)
    place = max(one.commit for one in bank.committed)
    assert cuts.make("first").moment.until == log.written(place - 1)
    bank.place += 1
    bank.live(3)
    bank.settle()
    _again(connector, place + behind, list(bank.copy()["accounts"].values()))
    for _ in range(3):
        bank.time += 2 * AN_HOUR
        bank.live(10)
        bank.settle()
    deliver(connector, "accounts")
    lake.done(SPEC)
    newest = max(one.commit for one in bank.committed)
    if behind:
        cut = cuts.make("later", log.written(newest - 1))
        assert {row["id"]: row for row in cuts.rows(cut, "s.accounts")} == bank.at(newest - 1)["accounts"]
        assert refused(cuts, log.written(place - 1))[0] == "CUT_BEFORE_LOAD"
        return
    for at in ("latest", log.written(place), log.written(newest - 1)):
        code, message = refused(cuts, at)
        assert (code, "rows of another snapshot were merged" in message) == ("CUT_BEFORE_LOAD", True)


def test_events_of_xstream_need_no_redo_thread(tmp_path: Path) -> None:
    class XStream(Oracle):
        def change(self, *arguments: Any) -> Row:
            return {**super().change(*arguments), "redo_thread": None, "lcr_position": "00", "rs_id": None}

    lake, log = Lake(tmp_path), XStream()
    bank, connector = world(lake, log, 8)
    bank.live(30)
    deliver(connector)
    run_all(lake)
    assert held(cuts_of(lake), bank, log, "latest", "latest") is not None


@pytest.mark.parametrize(
    ("log", "at", "title"),
    [(SqlServer(), "4711", "Oracle"), (SqlServer(), "0/16B3740", "PostgreSQL"),
     (Oracle(), "00000027:00000ac0:0003", "SQL Server")],
)  # fmt: skip
def test_a_position_of_another_log_is_refused(log: Log, at: str, title: str, tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    bank, connector = world(lake, log, 9)
    an_hour_later(lake, bank, connector, 20)
    code, message = refused(cuts_of(lake), at)
    assert (code, f"{at} is a position of {title}'s log" in message) == ("CUT_TRANSACTIONS_UNKNOWN", True)


def test_a_log_that_was_reset_has_its_own_places(tmp_path: Path) -> None:
    """A position may be in either log; the latest moment, and a time, are in one."""
    lake, log = Lake(tmp_path), Oracle()
    bank, connector = world(lake, log, 11)
    bank.live(20)
    bank.settle()
    deliver(connector)
    began = bank.time + 1
    options = {"log_began": [(T + timedelta(seconds=began)).isoformat()]}
    bank.time += 100
    after, place = len(bank.committed), bank.place
    bank.live(30)
    shift = place - 500
    for transaction in bank.committed[after:]:
        transaction.commit -= shift
        transaction.changes[:] = [replace(change, place=change.place - shift) for change in transaction.changes]
    deliver(connector)
    specs = tuple(replace(spec, options=options) for spec in SPECS)
    run_all(lake, *specs)
    cuts = cuts_of(lake, *specs)
    cut = cuts.make("latest")
    assert cut.moment.bound.startswith("log0001:")
    expected = bank.at(int(cut.moment.shown) + shift)
    assert shown(cuts, cut) == {table: expected[table] for table in TABLES}
    assert refused(cuts, cut.moment.shown)[0] == "CUT_MOMENT_AMBIGUOUS"
