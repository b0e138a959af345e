"""Cuts of tables that follow PostgreSQL's log, under transfers between accounts with foreign keys."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions, TableSpec
from tests.as_of.cuts import Cuts, RefusedError
from tests.capture.captured import LOAD_AGAIN, SPEC, again, end, prepared, result_of
from tests.harness.lake import Lake
from tests.one_task.postgres import execute, postgres

ACCOUNTS, MOVES = replace(SPEC, table="s.accounts"), replace(SPEC, table="s.moves")
TABLES = (ACCOUNTS, MOVES)
_ACCOUNTS, _MONEY = 20, 100


@pytest.fixture(scope="module")
def server() -> Iterator[sa.Engine]:
    with postgres(settings="wal_level = logical") as engine:
        yield engine


@pytest.fixture
def source(server: sa.Engine) -> Iterator[sa.Engine]:
    prepared(
        server,
        "CREATE TABLE s.accounts (id int PRIMARY KEY, v int)",
        "CREATE TABLE s.moves (id int PRIMARY KEY, account int REFERENCES s.accounts, v int)",
        f"INSERT INTO s.accounts SELECT i, {_MONEY} FROM generate_series(1, {_ACCOUNTS}) i",
    )
    yield server
    end(server)


@dataclass
class Bank:
    """Transfers between accounts, each one transaction of both tables; what the source then holds, by its commit.

    Attributes:
        known: places of commits with all rows that the source had right behind them.
    """

    engine: sa.Engine
    chance: random.Random
    known: list[tuple[str, dict[str, list[dict[str, Any]]]]] = field(default_factory=list)
    moves: int = 0
    accounts: int = _ACCOUNTS

    def transfer(self, *, large: bool = False) -> None:
        with self.engine.begin() as connection:
            self._statements(connection, 50 if large else 1)
        self.note()

    def _statements(self, connection: sa.Connection, count: int) -> None:
        for _ in range(count):
            giver, taker = self.chance.sample(range(1, self.accounts + 1), 2)
            value, self.moves = self.chance.randrange(100), self.moves + 1
            for statement in (
                f"UPDATE s.accounts SET v = v - {value} WHERE id = {giver}",
                f"INSERT INTO s.moves VALUES ({self.moves}, {giver}, {value})",
                f"UPDATE s.accounts SET v = v + {value} WHERE id = {taker}",
            ):
                connection.execute(sa.text(statement))

    def open_account(self) -> None:
        """A new account with a move that refers to it, and a deleted move."""
        self.accounts, self.moves = self.accounts + 1, self.moves + 1
        with self.engine.begin() as connection:
            connection.execute(sa.text(f"INSERT INTO s.accounts VALUES ({self.accounts}, 0)"))
            connection.execute(sa.text(f"INSERT INTO s.moves VALUES ({self.moves}, {self.accounts}, 0)"))
            connection.execute(sa.text(f"DELETE FROM s.moves WHERE id = {self.moves // 2}"))
        self.note()

    def note(self) -> None:
        """Nothing else writes now, so that the log ends behind the last commit."""
        with self.engine.connect() as connection:
            at = str(connection.execute(sa.text("SELECT CAST(pg_current_wal_insert_lsn() AS text)")).scalar())
            found = {
                name: [dict(row._mapping) for row in connection.execute(sa.text(f"SELECT * FROM s.{name} ORDER BY id"))]
                for name in ("accounts", "moves")
            }
        self.known.append((at, found))


def cuts_of(lake: Lake, engine: sa.Engine, *specs: TableSpec) -> Cuts:
    def run(spec: TableSpec, options: JobOptions) -> JobResult:
        return result_of(lake, engine, "cut", spec, options)

    return Cuts(lake, specs or TABLES, run)


def run_all(lake: Lake, engine: sa.Engine, number: object) -> None:
    for spec in TABLES:
        again(lake, engine, number, spec)


def held(cuts: Cuts, name: str, at: str) -> dict[str, list[dict[str, Any]]]:
    """Rows of both tables of a cut, by key. Of a position that no change names, at the later of those that are
    offered: the log has nothing between the two but the commit."""
    try:
        cut = cuts.make(name, at)
    except FatalError as error:
        if ", with it alone" not in error.remedy:
            raise
        cut = cuts.make(name, error.remedy.split(", with it alone")[0].rpartition(" ")[2])
    return {
        table: sorted(cuts.rows(cut, f"s.{table}"), key=lambda row: int(row["id"])) for table in ("accounts", "moves")
    }


def require_sound(state: dict[str, list[dict[str, Any]]]) -> None:
    """The sum of all accounts never changes, and each move has its account."""
    assert sum(row["v"] for row in state["accounts"]) == _ACCOUNTS * _MONEY
    assert {row["account"] for row in state["moves"]} <= {row["id"] for row in state["accounts"]}


def test_cuts_at_random_equal_the_source_at_their_commits(source: sa.Engine, tmp_path: Path) -> None:
    lake, chance = Lake(tmp_path), random.Random(7)  # noqa: S311 - repeatable by its seed
    bank = Bank(source, chance)
    run_all(lake, source, "first")
    for number in range(4):
        for _ in range(8):
            bank.open_account() if chance.random() < 0.2 else bank.transfer(large=chance.random() < 0.1)
        run_all(lake, source, number)
    cuts = cuts_of(lake, source)
    for number, (at, expected) in enumerate(chance.sample(bank.known, 30)):
        state = held(cuts, f"cut_{number}", at)
        require_sound(state)
        assert state == expected, at
    assert held(cuts, "newest", "latest") == bank.known[-1][1]


@pytest.mark.deep
def test_the_latest_cut_under_writers_is_sound(source: sa.Engine, tmp_path: Path) -> None:
    """Nobody knows the moment before; sums and foreign keys hold in each, though the two tables are loaded apart."""
    lake, stopped = Lake(tmp_path), threading.Event()
    bank = Bank(source, random.Random(1))  # noqa: S311 - repeatable by its seed
    run_all(lake, source, "first")

    def write() -> None:
        while not stopped.is_set():
            with source.begin() as connection:
                bank._statements(connection, 3)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(3):
            run_all(lake, source, number)
            again(lake, source, f"{number} once more", ACCOUNTS)
            cuts = cuts_of(lake, source)
            state = held(cuts, f"cut_{number}", "latest")
            require_sound(state)
            assert len(state["moves"]) % 3 == 0
            assert state["moves"]
    finally:
        stopped.set()
        writer.join()


def refused(cuts: Cuts, at: str) -> tuple[str, str]:
    """Code and message of a cut that is refused."""
    with pytest.raises((FatalError, RefusedError)) as found:
        cuts.make("refused", at)
    return found.value.code, str(found.value)  # type: ignore[union-attr] # both have it


def test_what_can_not_be_proven_is_refused(source: sa.Engine, tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    bank = Bank(source, random.Random(3))  # noqa: S311 - repeatable by its seed
    bank.note()
    before, _ = bank.known[-1]
    run_all(lake, source, "first")
    cuts = cuts_of(lake, source)
    assert "its full load was read until" in refused(cuts, before)[1]
    bank.transfer()
    first, expected = bank.known[-1]
    code, message = refused(cuts, first)
    assert (code, "s.accounts: complete until" in message) == ("CUT_REFUSED", True)
    execute(source, "CREATE TABLE s.other (id int PRIMARY KEY)", "INSERT INTO s.other VALUES (1)")
    bank.note()
    between, _ = bank.known[-1]
    bank.transfer()
    run_all(lake, source, 1)
    assert held(cuts, "first", first) == expected
    assert held(cuts, "between", between) == expected
    code, message = refused(cuts, first)
    assert (code, "has its last change at" in message) == ("CUT_REFUSED", True)
    execute(source, "ALTER TABLE s.accounts ADD n int DEFAULT 5")
    assert refused(cuts, "latest")[0] == "SOURCE_TABLE_ALTERED"
    again(lake, source, 2, ACCOUNTS, LOAD_AGAIN)
    assert refused(cuts, "latest")[0] == "SOURCE_TABLE_ALTERED"
    again(lake, source, 3, ACCOUNTS)
    again(lake, source, 3, MOVES)
    assert "its full load was read until" in refused(cuts, first)[1]
    state = held(cuts, "again", "latest")
    assert {row.pop("n") for row in state["accounts"]} == {5}
    require_sound(state)


def now(engine: sa.Engine) -> str:
    with engine.connect() as connection:
        return str(connection.execute(sa.text("SELECT clock_timestamp()")).scalar().isoformat())


def test_a_log_that_was_opened_anew_has_cuts_from_its_load_on(source: sa.Engine, tmp_path: Path) -> None:
    """What was committed between the two logs is in none of them; a position is one of the newer."""
    lake, bank, times = Lake(tmp_path), Bank(source, random.Random(17)), list[str]()  # noqa: S311 - by its seed
    run_all(lake, source, "first")
    for number in range(9):
        if number == 3:
            run_all(lake, source, number)
            end(source)
        if number == 5:
            for spec in TABLES:
                again(lake, source, f"load {spec.table}", spec, LOAD_AGAIN)
        bank.transfer()
        times.append(now(source))
    run_all(lake, source, "last")
    cuts, shown = cuts_of(lake, source), dict[int, int]()
    for number, (time, (_, expected)) in enumerate(zip(times, bank.known, strict=True)):
        try:
            cut = cuts.make(f"cut_{number}", time)
        except FatalError:
            continue
        shown[number] = cut.tables[0].generation
        for table in ("accounts", "moves"):
            assert cuts.rows(cut, f"s.{table}") == sorted(expected[table], key=str), number
    assert shown == {5: 2, 6: 2, 7: 2}


def test_a_time_is_answered_by_the_first_transaction_behind_it(source: sa.Engine, tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    bank, times = Bank(source, random.Random(5)), []  # noqa: S311 - repeatable by its seed
    run_all(lake, source, "first")
    for _ in range(3):
        bank.transfer()
        with source.connect() as connection:
            times.append(connection.execute(sa.text("SELECT clock_timestamp()")).scalar())
    run_all(lake, source, 1)
    cuts = cuts_of(lake, source)
    for number in range(2):
        assert held(cuts, f"cut_{number}", times[number].isoformat()) == bank.known[number][1]
    assert "not known to have come" in refused(cuts, times[2].isoformat())[1]


def test_a_truncate_is_in_cuts_behind_it_alone(source: sa.Engine, tmp_path: Path) -> None:
    lake, spec = Lake(tmp_path), replace(MOVES, truncate="apply")
    bank = Bank(source, random.Random(9))  # noqa: S311 - repeatable by its seed
    again(lake, source, "first", spec)
    bank.transfer()
    execute(source, "TRUNCATE s.moves")
    bank.note()
    bank.transfer()
    again(lake, source, 1, spec)
    cuts = cuts_of(lake, source, spec)
    for number, (at, expected) in enumerate(bank.known):
        cut = cuts.make(f"cut_{number}", at)
        assert cuts.rows(cut, "s.moves") == sorted(expected["moves"], key=str), number
