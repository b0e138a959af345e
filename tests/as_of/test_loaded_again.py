"""Cuts of tables that were loaded again, often since changes were lost: by what the source had at each moment."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_gddl.contract.actions import Erase, Maintain, Rebuild, Reload
from airflow_gddl.contract.consistent_cut import lsn_of
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.spec import JobOptions, TableSpec
from spark_jobs.batch import load_notes
from tests.as_of import test_of_topics as topics
from tests.as_of.cuts import Cuts, RefusedError
from tests.as_of.test_by_time import BEGAN, Service, rows_of, stamp
from tests.conftest import LocalPort
from tests.harness.asked import options_of
from tests.harness.examples import at_random
from tests.harness.lake import Lake

_SWEPT: dict[str, Any] = {"settle": "0s", "sweep_after": "0s", "sweep_limit": 1.0}
NAMES = ("accounts", "orders")
SPECS = {name: TableSpec(table=f"s.{name}", keys=("id",), **_SWEPT) for name in NAMES}
State = dict[str, dict[int, int]]


@dataclass
class Tasks:
    """AWS DMS with two tables, each loaded again at times; what the source had by each commit time.

    Attributes:
        waiting: changes that were committed, and landed in no file yet.
        known: commit times, each with the state from then on.
    """

    lake: Lake
    chance: random.Random
    specs: dict[str, TableSpec] = field(default_factory=lambda: dict(SPECS))
    time: datetime = BEGAN
    state: State = field(default_factory=lambda: {name: {9: 0} for name in NAMES})
    waiting: dict[str, list[Any]] = field(default_factory=lambda: {name: [] for name in NAMES})
    known: list[tuple[datetime, State]] = field(default_factory=list)
    value: int = 0

    def __post_init__(self) -> None:
        self.service = Service(self.lake)
        for name in NAMES:
            self.load(name)
            self.run(name)

    def transaction(self) -> None:
        self.time += timedelta(seconds=self.chance.randrange(0, 1200))
        for _ in range(self.chance.randint(1, 4)):
            name, key = self.chance.choice(NAMES), self.chance.randrange(5)
            self.value += 1
            rows, had = self.state[name], key in self.state[name]
            if had and self.chance.random() < 0.3:
                del rows[key]
                self.waiting[name].append((self.time, "D", key, None))
            else:
                rows[key] = self.value
                self.waiting[name].append((self.time, "U" if had else "I", key, self.value))
        self.note()

    def note(self) -> None:
        self.known.append((self.time, {name: dict(rows) for name, rows in self.state.items()}))

    def land(self, name: str) -> None:
        if self.waiting[name]:
            self.service.change(self.specs[name], self.waiting[name])
        self.waiting[name] = []

    def run(self, name: str) -> None:
        self.lake.done(self.specs[name])

    def load(self, name: str) -> None:
        """The rows that the source has now, of which one is new; what has not landed is lost, or lands before it."""
        self.time += timedelta(seconds=self.chance.randrange(2, 900))
        if self.chance.random() < 0.5:
            self.land(name)
        self.waiting[name] = []
        self.time += timedelta(seconds=2)
        self.value += 1
        self.state[name][7000] = self.value
        self.service.load(self.specs[name], self.state[name], loaded=self.time)
        self.note()

    def work(self, steps: int) -> None:
        for _ in range(steps):
            kind = self.chance.choices(("change", "land", "run", "both", "load"), (8, 2, 2, 2, 1))[0]
            name = self.chance.choice(NAMES)
            if kind == "change":
                self.transaction()
            elif kind == "both":
                for one in NAMES:
                    self.land(one)
                    self.run(one)
            else:
                {"land": self.land, "run": self.run, "load": self.load}[kind](name)

    def end(self) -> None:
        """What was committed has come, and a change of each table behind it."""
        self.time += timedelta(hours=1)
        for name in NAMES:
            self.state[name][9000] = 0
            self.waiting[name].append((self.time, "I", 9000, 0))
            self.land(name)
            self.run(name)

    def at(self, moment: datetime) -> State:
        return [state for time, state in self.known if time <= moment][-1]

    def moments(self) -> list[datetime]:
        first, last = self.known[0][0], self.known[-1][0]
        chosen = [self.chance.choice(self.known)[0] for _ in range(12)]
        return [*chosen, *(first + (last - first) * self.chance.random() for _ in range(6))]


def compared(cuts: Cuts, tasks: Tasks, number: int) -> list[tuple[int, ...]]:
    """The full loads with which cuts at random begin, each of which has the rows that the source had."""
    shown = []
    for at, moment in enumerate(tasks.moments()):
        try:
            cut = cuts.make(f"cut_{number}_{at}", moment.isoformat())
        except FatalError as error:
            if error.code not in ("CUT_BEFORE_LOAD", "CUT_NOT_COMPLETE"):
                raise
            continue
        expected = tasks.at(moment)
        for name in NAMES:
            assert cuts.rows(cut, f"s.{name}", "id", "v") == rows_of(expected[name]), (number, name, moment)
        shown.append(tuple(one.generation for one in cut.tables))
    return shown


def test_each_cut_of_random_loads_is_the_state_of_the_source_then(tmp_path: Path) -> None:
    shown = []
    for number in range(at_random(80) // 2):
        lake, chance = Lake(tmp_path / str(number)), random.Random(number)  # noqa: S311 - repeatable by its seed
        tasks = Tasks(lake, chance)
        tasks.work(60)
        tasks.end()
        newest = tuple(lake.ledger(tasks.specs[name]).state.generation for name in NAMES)
        found = compared(Cuts(lake, [*tasks.specs.values()], lake.result), tasks, number)
        shown += [one for one in found if one != newest]
    assert len(shown) > 15


def test_each_cut_of_random_snapshots_is_the_state_of_the_source_at_the_commit(tmp_path: Path) -> None:
    """Of Debezium: transactions whose events are lost before a snapshot are in no file."""
    shown = 0
    for number in range(at_random(40) // 2):
        lake, chance = Lake(tmp_path / str(number)), random.Random(number)  # noqa: S311 - repeatable by its seed
        connector = topics.Connector(lake)
        for table in NAMES:
            connector.land(table, connector.snapshot(table, {9: 0, 8: 0}))
            lake.done(topics_spec(table))
        for _ in range(25):
            _some_transactions(lake, connector, chance)
        for table in NAMES:
            lake.done(topics_spec(table))
        newest = tuple(lake.ledger(topics_spec(table)).state.generation for table in NAMES)
        shown += sum(one != newest for one in _of_topics(lake, connector, number))
    assert shown > 10


def _some_transactions(lake: Lake, connector: topics.Connector, chance: random.Random) -> None:
    """A transaction; at times two, which a table does not get before its next snapshot. Some tables run."""
    lost = chance.choice(NAMES) if chance.random() < 0.15 else None
    for _ in range(2 if lost else 1):
        changes = [(chance.choice(NAMES), chance.randrange(4), chance.randrange(1000)) for _ in range(2)]
        for table, events in connector.transaction(*changes).items():
            if table != lost:
                connector.land(table, events)
    if lost is not None:
        connector.land(lost, connector.snapshot(lost, dict(connector.state[lost])))
    for table in NAMES:
        if chance.random() < 0.4:
            lake.done(topics_spec(table))


def topics_spec(table: str) -> TableSpec:
    return replace(topics.SPEC, table=f"s.{table}")


def _of_topics(lake: Lake, connector: topics.Connector, number: int) -> list[tuple[int, ...]]:
    """The full loads with which the cut at each commit begins that can be shown, with the rows of the source."""
    cuts, shown = Cuts(lake, [topics_spec(table) for table in NAMES], lake.result), []
    for commit, state in connector.known:
        try:
            cut = cuts.make(f"cut_{number}_{commit}", lsn_of(f"{commit:020d}"))
        except FatalError as error:
            if error.code not in ("CUT_BEFORE_LOAD", "CUT_NOT_COMPLETE", "CUT_MOMENT_AMBIGUOUS"):
                raise
            continue
        for table in NAMES:
            assert cuts.rows(cut, f"s.{table}") == topics.rows_of(state[table]), (number, commit, table)
        shown.append(tuple(one.generation for one in cut.tables))
    return shown


ACCOUNTS = SPECS["accounts"]


def at(minutes: float) -> datetime:
    """The commit time of a transaction, an hour after the first load and later."""
    return BEGAN + timedelta(hours=1, minutes=minutes)


def loaded_again(lake: Lake, spec: TableSpec = ACCOUNTS, **columns: Any) -> Service:
    """Changes at 1, 2 and 3, of which those at 4 were lost; loaded again at 10, by rows that have them; more at 20."""
    service = Service(lake)
    service.load(spec, {1: 1, 2: 2, 3: 3}, **{name: pa.array([value] * 3) for name, value in columns.items()})
    one = {name: pa.array([value]) for name, value in columns.items()}
    service.change(spec, [(at(1), "U", 1, 10)], **one)
    lake.done(spec)
    service.change(spec, [(at(2), "D", 2, None)], **one)
    service.change(spec, [(at(3), "I", 4, 40)], **one)
    lake.done(spec)
    two = {name: pa.array([value] * 2) for name, value in columns.items()}
    service.load(spec, {1: 11, 4: 44}, loaded=at(10), **two)
    service.change(spec, [(at(20), "U", 1, 12), (at(21), "U", 4, 45)], **two)
    lake.done(spec)
    return service


def cuts_of(lake: Lake, spec: TableSpec = ACCOUNTS) -> Cuts:
    return Cuts(lake, [spec], lake.result)


def refused(lake: Lake, moment: datetime, spec: TableSpec = ACCOUNTS) -> tuple[str, str]:
    with pytest.raises((FatalError, RefusedError)) as found:
        cuts_of(lake, spec).make("refused", moment.isoformat())
    return found.value.code, str(found.value)  # type: ignore[union-attr] # both have it


@pytest.mark.parametrize("soft", [False, True])
def test_a_cut_is_the_same_wherever_it_is_made(engine: LocalPort, soft: bool, tmp_path: Path) -> None:
    """Rows that the first load has and the second one lacks are in cuts of the first alone."""
    lake, spec = Lake(tmp_path, port=engine), replace(ACCOUNTS, delete="soft" if soft else "hard")
    loaded_again(lake, spec)
    cuts = cuts_of(lake, spec)

    def shown(name: str, moment: datetime) -> dict[int, tuple[int, bool]]:
        rows = cuts.rows(cuts.make(name, moment.isoformat()), "s.accounts", "id", "v", "_gddl")
        return {row["id"]: (row["v"], bool(row["_gddl"].get("deleted"))) for row in rows}

    gone = {2: (2, True)} if soft else {}
    assert shown("first", at(1)) == {1: (10, False), 2: (2, False), 3: (3, False)}
    assert shown("second", at(2.5)) == {1: (10, False), 3: (3, False)} | gone
    swept = {2: (2, True), 3: (3, True)} if soft else {}
    assert shown("later", at(16)) == {1: (11, False), 4: (44, False)} | swept
    assert [refused(lake, at(minutes), spec)[0] for minutes in (4, 9, 12)] == ["CUT_BEFORE_LOAD"] * 3


def test_changes_that_wait_beside_the_next_load_prove_nothing(tmp_path: Path) -> None:
    """Nobody has looked between the two: a part of the load before may have been written over."""
    lake, service = Lake(tmp_path), Service(Lake(tmp_path))
    service.load(ACCOUNTS, {1: 1})
    service.change(ACCOUNTS, [(at(1), "U", 1, 10), (at(2), "U", 1, 20)])
    lake.done(ACCOUNTS)
    service.change(ACCOUNTS, [(at(5), "U", 1, 50)])
    service.load(ACCOUNTS, {1: 100}, loaded=at(10))
    lake.done(ACCOUNTS)
    code, message = refused(lake, at(3))
    assert (code, f"until {at(2).isoformat(timespec='microseconds')}, by generation 1" in message) == (
        "CUT_BEFORE_LOAD", True,
    )  # fmt: skip
    assert cuts_of(lake).rows(cuts_of(lake).make("cut", at(1).isoformat()), "s.accounts") == rows_of({1: 10})


def test_a_heartbeat_says_nothing_of_an_earlier_load(tmp_path: Path) -> None:
    lake, beats = Lake(tmp_path), TableSpec(table="s.beats", keys=("id",), **_SWEPT)
    service = loaded_again(lake)
    service.load(beats, {1: 0})
    service.change(beats, [(at(8), "U", 1, 1), (at(60), "U", 1, 2)])
    lake.done(beats)
    spec = replace(ACCOUNTS, heartbeat="s.beats")
    assert cuts_of(lake, spec).make("now").moment.until > at(59).isoformat()
    assert refused(lake, at(6), spec)[0] == "CUT_BEFORE_LOAD"


def test_a_load_that_waited_for_its_sweep_when_the_next_one_came_is_not_known(tmp_path: Path) -> None:
    """Of rows that it lacks nobody knows whether they were in the table."""
    lake, kept = Lake(tmp_path), replace(ACCOUNTS, sweep_limit=0.1)
    service = Service(lake)
    service.load(ACCOUNTS, {1: 1, 2: 2, 3: 3})
    lake.done(ACCOUNTS)
    service.load(ACCOUNTS, {1: 2}, loaded=at(10))
    service.change(ACCOUNTS, [(at(30), "U", 1, 3), (at(31), "U", 1, 4)])
    lake.done(kept)
    assert lake.ledger(ACCOUNTS).state.held is not None
    service.load(ACCOUNTS, {1: 5}, loaded=at(60))
    service.change(ACCOUNTS, [(at(80), "U", 1, 6)])
    lake.done(ACCOUNTS)
    code, message = refused(lake, at(30))
    assert (code, "generation 2: no batch has noted that it was whole" in message) == ("CUT_BEFORE_LOAD", True)


def test_rows_of_a_load_in_quarantine_leave_it_unknown(tmp_path: Path) -> None:
    """The file of the next load takes the place of theirs, and settles them."""
    lake, spec = Lake(tmp_path), replace(ACCOUNTS, keys=("id", "code"))
    service = Service(lake)
    service.load(spec, {1: 1, 2: 2}, code=pa.array(["a", None]))
    service.change(spec, [(at(1), "I", 3, 3), (at(2), "I", 4, 4)], code=pa.array(["a", "a"]))
    lake.done(spec)
    service.load(spec, {1: 1}, loaded=at(10), code=pa.array(["a"]))
    service.change(spec, [(at(20), "I", 3, 3)], code=pa.array(["a"]))
    lake.done(spec)
    code, message = refused(lake, at(1), spec)
    assert (code, "generation 1: no batch has noted" in message) == ("CUT_BEFORE_LOAD", True)


def test_a_file_that_was_given_up_ends_what_is_known_of_its_load(tmp_path: Path) -> None:
    """Of a newer load it says nothing."""
    lake = Lake(tmp_path)
    service = Service(lake)
    service.load(ACCOUNTS, {1: 1})
    service.change(ACCOUNTS, [(at(1), "U", 1, 10)])
    name = service.change(ACCOUNTS, [(at(2), "U", 1, 20)])
    (lake.landing(ACCOUNTS) / name).write_bytes(b"none")
    stamp(lake.landing(ACCOUNTS) / name, at(2))
    service.change(ACCOUNTS, [(at(3), "U", 1, 30)])
    lake.result(ACCOUNTS)
    lake.done(ACCOUNTS, options_of("errors_dismiss", codes=("FILE_UNREADABLE",), reason="gone", asked_by="x"))
    service.load(ACCOUNTS, {1: 100}, loaded=at(10))
    service.change(ACCOUNTS, [(at(20), "U", 1, 200)])
    lake.done(ACCOUNTS)
    assert refused(lake, at(2.5))[0] == "CUT_BEFORE_LOAD"
    cuts = cuts_of(lake)
    assert cuts.rows(cuts.make("before", at(0.9).isoformat()), "s.accounts") == rows_of({1: 1})
    assert cuts.rows(cuts.make("later", at(16).isoformat()), "s.accounts") == rows_of({1: 100})


def test_a_reload_from_the_files_lets_nothing_be_known_of_earlier_loads(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    loaded_again(lake)
    lake.done(ACCOUNTS, JobOptions(action=Reload(confirmed=True)))
    code, message = refused(lake, at(1))
    assert (code, "generation 1: no batch has noted" in message) == ("CUT_BEFORE_LOAD", True)
    assert cuts_of(lake).make("later", at(16).isoformat()).tables[0].rows == 2


def test_changes_that_retention_has_removed_refuse_a_cut_by_an_earlier_load(tmp_path: Path) -> None:
    """After the next load all of the one before are superseded; before it some."""
    kept, later = replace(ACCOUNTS, changes_retention="1d"), datetime.now(BEGAN.tzinfo) + timedelta(days=3)
    lake = Lake(tmp_path / "after")
    loaded_again(lake, kept)
    lake.done(kept, JobOptions(action=Maintain()), clock=lambda: later)
    code, message = refused(lake, at(1), kept)
    assert (code, "changes_retention has removed some" in message) == ("CUT_BEFORE_LOAD", True)
    lake = Lake(tmp_path / "before")
    service = Service(lake)
    service.load(kept, {1: 1})
    for number in range(1, 4):
        service.change(kept, [(at(number), "U", 1, number)])
        lake.done(kept)
    lake.done(kept, JobOptions(action=Maintain()), clock=lambda: later)
    service.load(kept, {1: 100}, loaded=at(10))
    service.change(kept, [(at(20), "U", 1, 200)])
    lake.done(kept)
    code, message = refused(lake, at(1), kept)
    assert (code, "changes_retention" in message) == ("CUT_CHANGES_MISSING", True)


def test_erased_keys_and_masks_are_so_in_cuts_by_an_earlier_load(tmp_path: Path) -> None:
    """And a rebuild keeps what is known of it."""
    lake = Lake(tmp_path)
    service = loaded_again(lake, name="x")
    cuts = cuts_of(lake)
    cut = cuts.make("first", at(1).isoformat())
    lake.done(ACCOUNTS, JobOptions(action=Erase(key={"id": "1"}, asked_by="x")))
    assert cuts.rows(cut, "s.accounts", "id", "v") == rows_of({2: 2, 3: 3})
    assert cuts.rows(cuts.make("second", at(1).isoformat()), "s.accounts", "id", "v") == rows_of({2: 2, 3: 3})
    masked = replace(ACCOUNTS, mask={"name": "hash"})
    lake.done(masked, JobOptions(action=Rebuild()))
    cuts = cuts_of(lake, masked)
    again = cuts.again(cuts.stored("second"), "again")
    assert {row["name"] == "x" for row in cuts.rows(again, "s.accounts")} == {False}
    service.load(masked, {7: 7}, loaded=at(60), name=pa.array(["y"]))
    service.change(masked, [(at(90), "U", 7, 8)], name=pa.array(["y"]))
    lake.done(masked)
    for name, minutes, rows in (("one", 1, {2: 2, 3: 3}), ("two", 16, {4: 44}), ("three", 80, {7: 7})):
        made = cuts.make(name, at(minutes).isoformat())
        assert cuts.rows(made, "s.accounts", "id", "v") == rows_of(rows), name


def test_columns_are_those_of_the_earlier_load(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    service = loaded_again(lake)
    service.load(ACCOUNTS, {1: 1}, loaded=at(60), note=pa.array(["new"]))
    service.change(ACCOUNTS, [(at(90), "U", 1, 2)], note=pa.array(["newer"]))
    lake.done(ACCOUNTS)
    cuts = cuts_of(lake)
    assert "note" not in cuts.make("then", at(16).isoformat()).tables[0].columns
    assert cuts.rows(cuts.make("now", at(80).isoformat()), "s.accounts") == [{"id": 1, "v": 1, "note": "new"}]


def test_a_cut_made_again_has_the_same_rows_behind_another_load(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    service = loaded_again(lake)
    cuts = cuts_of(lake)
    kept = [cuts.make(f"kept_{number}", at(number).isoformat()) for number in (1, 2, 16)]
    service.load(ACCOUNTS, {5: 5}, loaded=at(60))
    service.change(ACCOUNTS, [(at(90), "U", 5, 6)])
    lake.done(ACCOUNTS)
    for cut in kept:
        again = cuts.again(cut, f"{cut.name}_again")
        assert (again.tables[0].generation, again.tables[0].digest) == (
            cut.tables[0].generation, cut.tables[0].digest,
        )  # fmt: skip


def test_the_ledger_keeps_notes_of_the_newest_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each batch writes them all; a message names some of the loads that are not known."""
    monkeypatch.setattr(load_notes, "MOST_NOTED", 2)
    lake = Lake(tmp_path)
    service = Service(lake)
    for number in range(8):
        service.load(ACCOUNTS, {1: number}, loaded=at(30 * number))
        service.change(ACCOUNTS, [(at(30 * number + 10), "U", 1, number), (at(30 * number + 11), "U", 1, 0)])
        lake.done(ACCOUNTS)
        lake.done(ACCOUNTS)
    assert [one.generation for one in lake.ledger(ACCOUNTS).state.loads] == [7, 8]
    code, message = refused(lake, at(10))
    shown = "generation 6, generation 5, generation 4 and 3 earlier ones: no batch has noted"
    assert (code, shown in message) == ("CUT_BEFORE_LOAD", True), message
    assert cuts_of(lake).rows(cuts_of(lake).make("kept", at(190).isoformat()), "s.accounts") == rows_of({1: 6})


def test_a_ledger_of_an_earlier_release_says_so(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    loaded_again(lake)
    ledger = lake.ledger(ACCOUNTS)
    commit = ledger.last_commit()
    assert commit is not None
    plan = replace(commit.plan, number=commit.number + 1, files=())
    state = replace(commit.state, batch=plan.number, loads=())
    ledger.commit(replace(commit, number=plan.number, plan=plan, files=(), state=state))
    code, message = refused(lake, at(1))
    assert (code, "nothing is known (generation 1: no batch has noted" in message) == ("CUT_BEFORE_LOAD", True)
    assert cuts_of(lake).make("later", at(16).isoformat()).tables[0].rows == 2


def test_a_truncate_of_an_earlier_load_is_in_cuts_behind_it_alone(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    spec = replace(topics_spec("accounts"), truncate="apply")
    connector = topics.Connector(lake)
    connector.land("accounts", connector.snapshot("accounts", {1: 1, 2: 2}))
    for number in range(2):
        connector.land("accounts", connector.transaction(("accounts", 1, number))["accounts"])
    (event,) = connector.transaction(("accounts", 1, 7))["accounts"]
    connector.state["accounts"] = {}
    connector.known[-1] = (connector.known[-1][0], {"accounts": {}})
    connector.land("accounts", [{**event, "op": "t", "after": None}])
    for number in range(2):
        connector.land("accounts", connector.transaction(("accounts", 5, number))["accounts"])
    lake.done(spec)
    connector.land("accounts", connector.snapshot("accounts", {3: 3}))
    for number in range(2):
        connector.land("accounts", connector.transaction(("accounts", 3, number))["accounts"])
    lake.done(spec)
    cuts, shown = cuts_of(lake, spec), []
    for commit, state in connector.known[:4]:
        cut = cuts.make(f"cut_{commit}", lsn_of(f"{commit:020d}"))
        assert cut.tables[0].generation == 1
        assert cuts.rows(cut, "s.accounts") == topics.rows_of(state["accounts"])
        shown.append(cut.tables[0].rows)
    assert shown == [2, 2, 0, 1]
