"""`gddl resync` of keys and ranges: rows read from a real database, under writers, against damaged replicas."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa
from deltalake import DeltaTable

from airflow_gddl.contract.actions import Erase, Rebuild, Release, Reload, ResyncRows, Verify
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import InitialLoad, JobOptions, TableSpec
from tests.databases.test_initial_load import LOGGED, NAME, done, rows_of, run
from tests.harness.asked import options_of
from tests.harness.lake import Lake
from tests.harness.landing import write
from tests.harness.sharded import Sharded
from tests.harness.sharded import rows_of as sharded_rows
from tests.one_task.postgres import emptied, execute, postgres

SPEC = TableSpec(
    table="s.t", keys=("id",), options={"verify_connection": NAME}, settle="0s", sweep_after="0s", sweep_limit=1.0,
)  # fmt: skip


def resync(lake: Lake, engine: sa.Engine, *keys: int, spec: TableSpec = SPEC, **options: object) -> JobResult:
    named = tuple({"id": str(key)} for key in keys)
    return done(lake, engine, spec, options_of(action="resync_rows", keys=named, **options))  # type: ignore[arg-type]  # options by name


@pytest.fixture(scope="module")
def server() -> Iterator[sa.Engine]:
    with postgres() as engine:
        yield engine


@pytest.fixture
def source(server: sa.Engine) -> sa.Engine:
    engine = emptied(server)
    execute(engine, *LOGGED.split(";\n\n"), "INSERT INTO s.t SELECT i, 'v' || i FROM generate_series(1, 50) i")
    return engine


@dataclass
class Service:
    """A CDC service that captures the log into files, and may lose changes.

    Attributes:
        order: columns that order a change, by its number in the log.
    """

    lake: Lake
    engine: sa.Engine
    last: int = 0
    files: int = 0
    order: Callable[[int], dict[str, Any]] = lambda seq: {"AR_H_CHANGE_SEQ": f"{seq:020d}"}

    def write(self, *, delay: int = 0, lost: frozenset[int] = frozenset()) -> None:
        with self.engine.connect() as connection:
            query = sa.text("SELECT op, seq, id, v FROM s.log WHERE seq > :last ORDER BY seq")
            rows = connection.execute(query, {"last": self.last}).all()
        rows = rows[: max(0, len(rows) - delay)]
        if not rows:
            return
        self.files, self.last = self.files + 1, rows[-1].seq
        rows = [row for row in rows if row.seq not in lost]
        table = pa.table({
            "Op": pa.array([r.op for r in rows], pa.string()),
            **{name: [self.order(r.seq)[name] for r in rows] for name in self.order(0)},
            "id": pa.array([r.id for r in rows], pa.int32()), "v": pa.array([r.v for r in rows], pa.string()),
        })  # fmt: skip
        write(Path(self.lake.layout(SPEC).landing), f"20240101-{self.files:09d}.parquet", table)


def unseen(engine: sa.Engine, *statements: str) -> None:
    """Statements whose changes the CDC service loses."""
    execute(engine, "ALTER TABLE s.t DISABLE TRIGGER note", *statements, "ALTER TABLE s.t ENABLE TRIGGER note")


@pytest.fixture
def service(source: sa.Engine, tmp_path: Path) -> Service:
    """A table that is loaded, and of which a change was ingested."""
    made = Service(Lake(tmp_path), source)
    made.write()
    done(made.lake, source, SPEC)
    return made


def test_missing_wrong_and_surplus_rows_of_named_keys_are_repaired(service: Service) -> None:
    lake, source = service.lake, service.engine
    unseen(
        source, "INSERT INTO s.t VALUES (100, 'new')", "UPDATE s.t SET v = 'other' WHERE id IN (7, 8)",
        "DELETE FROM s.t WHERE id = 5",
    )  # fmt: skip
    found = resync(lake, source, 5, 7, 100, 999)
    wanted = rows_of(source) | {8: "v8"}
    assert lake.replica(SPEC) == wanted
    assert {name: found.details["resync"][name] for name in ("rows", "absent")} == {"rows": 2, "absent": 2}
    assert done(lake, source, SPEC, JobOptions(action=Verify())).details["verdict"] == "equal"


def test_keys_are_read_in_chunks(service: Service) -> None:
    lake, source = service.lake, service.engine
    unseen(source, "UPDATE s.t SET v = 'other'", "DELETE FROM s.t WHERE id = 49")
    chunks = replace(SPEC, initial_load=InitialLoad(chunk_rows=10))
    found = resync(lake, source, *range(5, 51), spec=chunks)
    assert found.details["resync"]["files"] == 6, "45 rows by 10, and the deletes"
    assert lake.replica(SPEC) == rows_of(source) | {i: f"v{i}" for i in range(1, 5)}


def test_changes_on_their_way_win_over_what_was_read(service: Service) -> None:
    """Those that the rows contain, and those that came after them, whatever came late."""
    lake, source = service.lake, service.engine
    execute(source, "UPDATE s.t SET v = 'seen' WHERE id = 1", "DELETE FROM s.t WHERE id = 2")
    unseen(source, "UPDATE s.t SET v = 'unseen' WHERE id IN (1, 3)", "DELETE FROM s.t WHERE id = 4")
    resync(lake, source, 1, 2, 3, 4)
    assert lake.replica(SPEC) == rows_of(source)
    execute(source, "UPDATE s.t SET v = 'last' WHERE id = 1", "INSERT INTO s.t VALUES (2, 'again'), (4, 'again')")
    execute(source, "DELETE FROM s.t WHERE id = 3")
    service.write()
    done(lake, source, SPEC)
    assert lake.replica(SPEC) == rows_of(source)


def test_a_change_that_was_lost_and_comes_late_changes_nothing(service: Service) -> None:
    lake, source = service.lake, service.engine
    execute(source, "UPDATE s.t SET v = 'first' WHERE id = 1", "UPDATE s.t SET v = 'second' WHERE id = 1")
    execute(source, "UPDATE s.t SET v = 'other' WHERE id = 2")
    first, second, _ = (service.last + n for n in (1, 2, 3))
    service.write(lost=frozenset({first, second}))
    resync(lake, source, 1)
    assert lake.replica(SPEC) == rows_of(source)
    service.last = first - 1
    service.write(lost=frozenset({second}))
    done(lake, source, SPEC)
    assert lake.replica(SPEC) == rows_of(source)


def test_rows_are_repaired_again_while_no_change_comes(service: Service) -> None:
    """Back to what an earlier repair has read, too."""
    lake, source = service.lake, service.engine
    for statement in (
        "UPDATE s.t SET v = 'a' WHERE id = 1", "UPDATE s.t SET v = 'b' WHERE id = 1",
        "UPDATE s.t SET v = 'a' WHERE id = 1", "DELETE FROM s.t WHERE id = 1", "INSERT INTO s.t VALUES (1, 'a')",
        "DELETE FROM s.t WHERE id = 1",
    ):  # fmt: skip
        unseen(source, statement)
        resync(lake, source, 1)
        assert lake.replica(SPEC) == rows_of(source), statement


def test_differences_that_verify_has_found_are_repaired(service: Service) -> None:
    lake, source = service.lake, service.engine
    unseen(source, "UPDATE s.t SET v = 'other' WHERE id = 7", "DELETE FROM s.t WHERE id = 5")
    unseen(source, "INSERT INTO s.t VALUES (100, 'new')")
    assert resync(lake, source, differences=True).details["resync"]["files"] == 0, "none are remembered"
    run(lake, source, SPEC, JobOptions(action=Verify(settle_seconds=0)))
    found = resync(lake, source, differences=True)
    assert (found.details["resync"]["rows"], found.details["resync"]["absent"]) == (2, 1)
    assert lake.replica(SPEC) == rows_of(source)
    assert done(lake, source, SPEC, JobOptions(action=Verify(settle_seconds=0))).details["source"]["different"] == 0


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.deep) for seed in (1, 2, 3))])
def test_random_repairs_under_a_writer_end_in_the_source(seed: int, service: Service) -> None:
    """A service that loses some changes until a moment, and always lags; what it lost is repaired."""
    lake, source, chance = service.lake, service.engine, random.Random(seed)  # noqa: S311 - repeatable by its seed
    for _ in range(3):
        _write_some(source, chance)
        with source.connect() as connection:
            newest = connection.execute(sa.text("SELECT max(seq) FROM s.log")).scalar() or 0
        gone = frozenset(n for n in range(service.last, newest + 1) if chance.random() < 0.3)
        service.write(lost=gone)
    stop = threading.Event()

    def work() -> None:
        mine = random.Random(seed + 1000)  # noqa: S311 - repeatable by its seed
        while not stop.is_set():
            _write_some(source, mine)
            service.write(delay=mine.randrange(8))

    writer = threading.Thread(target=work)
    writer.start()
    try:
        resync(lake, source, *chance.sample(range(80), 15))
        for low in range(0, 80, 20):
            resync(lake, source, *range(low, low + 20))
    finally:
        stop.set()
        writer.join()
    service.write()
    done(lake, source, SPEC)
    assert lake.replica(SPEC) == rows_of(source)
    assert done(lake, source, SPEC, JobOptions(action=Verify())).details["verdict"] == "equal"


def _write_some(engine: sa.Engine, chance: random.Random) -> None:
    with engine.begin() as connection:
        for _ in range(10):
            statement = chance.choice((
                "INSERT INTO s.t VALUES (:id, :v) ON CONFLICT DO NOTHING", "UPDATE s.t SET v = :v WHERE id = :id",
                "DELETE FROM s.t WHERE id = :id",
            ))  # fmt: skip
            connection.execute(sa.text(statement), {"id": chance.randrange(80), "v": str(chance.random())})


@pytest.mark.parametrize(
    ("spec", "asked", "code", "said"),
    [
        (SPEC, ResyncRows(keys=({"v": "1"},)), "KEY_INVALID", "the key of s.t is id, not v"),
        (SPEC, ResyncRows(keys=({"nothing": "1"},)), "KEY_INVALID", "the key of s.t is id, not nothing"),
        (SPEC, ResyncRows(keys=({"id": "abc"},)), "KEY_INVALID", "not one of its type, int"),
        (SPEC, ResyncRows(keys=({"id": "1.5"},)), "KEY_INVALID", "not one of its type, int"),
        (replace(SPEC, options={}), ResyncRows(keys=({"id": "1"},)), "RESYNC_ROWS_REFUSED", "no connection"),
        (replace(SPEC, table="s.other"), ResyncRows(keys=({"id": "1"},)), "RESYNC_ROWS_REFUSED", "not loaded yet"),
    ],
)
def test_bad_input_is_refused_and_nothing_is_written(
    spec: TableSpec, asked: ResyncRows, code: str, said: str, service: Service
) -> None:
    before = files(service.lake)
    found = run(service.lake, service.engine, spec, JobOptions(action=asked))
    assert found.error is not None
    assert found.error.code == code
    assert said in found.error.message
    assert "Remedy" in found.error.message
    assert files(service.lake) == before


def files(lake: Lake) -> list[str]:
    return sorted(path.name for path in Path(lake.layout(SPEC).landing).iterdir())


def test_a_table_without_changes_has_no_place_for_rows(source: sa.Engine, tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.load(SPEC)
    done(lake, source, SPEC)
    found = run(lake, source, SPEC, JobOptions(action=ResyncRows(keys=({"id": "1"},))))
    assert found.error is not None
    assert found.error.code == "RESYNC_ROWS_REFUSED"
    assert "gddl load --again" in found.error.message


_COMPOSITE = TableSpec(
    table="s.c", keys=("region", "at", "n"), options={"verify_connection": NAME}, settle="0s",
    initial_load=InitialLoad(chunk_rows=7),
)  # fmt: skip


@pytest.fixture
def composite(source: sa.Engine, tmp_path: Path) -> Lake:
    """Keys of text, time and number; a row whose `at` is in summer."""
    execute(
        source, "CREATE TABLE s.c (region text, at timestamptz, n numeric(9, 2), v text, PRIMARY KEY (region, at, n))",
        "INSERT INTO s.c SELECT chr(64 + i % 5) || '''\\u00fc', timestamptz '2024-06-01Z' + i * interval '1 hour', "
        "i / 4.0, 'v' FROM generate_series(1, 40) i",
    )  # fmt: skip
    lake = Lake(tmp_path)
    done(lake, source, _COMPOSITE)
    columns = {
        "Op": ["D"], "AR_H_CHANGE_SEQ": ["00000000000000000001"], "region": ["nowhere"],
        "at": pa.array([datetime(2024, 1, 1, tzinfo=UTC)], pa.timestamp("us", "UTC")),
        "n": pa.array([Decimal("0.25")], pa.decimal128(9, 2)),
    }  # fmt: skip
    write(Path(lake.layout(_COMPOSITE).landing), "20240101-000000001.parquet", pa.table(columns))
    done(lake, source, _COMPOSITE)
    return lake


def composite_rows(lake: Lake) -> list[tuple[Any, ...]]:
    rows = pa.table(DeltaTable(lake.layout(_COMPOSITE).replica).scan()).to_pylist()
    return sorted((row["region"], row["at"], row["n"], row["v"]) for row in rows)


def composite_truth(engine: sa.Engine) -> list[tuple[Any, ...]]:
    with engine.connect() as connection:
        return sorted(tuple(row) for row in connection.execute(sa.text("SELECT region, at, n, v FROM s.c")))


def test_composite_keys_are_named_whole(composite: Lake, source: sa.Engine) -> None:
    execute(source, "UPDATE s.c SET v = 'new' WHERE n = 1", "DELETE FROM s.c WHERE n IN (2, 3.5)")
    region = chr(64 + 4) + "'\\u00fc"
    part = run(composite, source, _COMPOSITE, JobOptions(action=ResyncRows(keys=({"region": region, "n": "1"},))))
    assert part.error is not None
    assert part.error.code == "KEY_INVALID"
    key = {"region": region, "at": "2024-06-01T06:00:00+02:00", "n": "1.0"}
    done(composite, source, _COMPOSITE, JobOptions(action=ResyncRows(keys=(key,))))
    assert [row for row in composite_rows(composite) if row[3] == "new"] == [
        row for row in composite_truth(source) if row[3] == "new"
    ]
    keys = tuple({"region": name, "at": at.isoformat(), "n": str(n)} for name, at, n, _ in composite_rows(composite))
    done(composite, source, _COMPOSITE, JobOptions(action=ResyncRows(keys=keys)))
    assert composite_rows(composite) == composite_truth(source)


_MOMENT = datetime(2024, 1, 1, tzinfo=UTC)
_ORDERS: dict[str, tuple[tuple[str, ...], Callable[[int], dict[str, Any]]]] = {
    "number": (("seq",), lambda seq: {"seq": seq}),
    "decimal": (("seq",), lambda seq: {"seq": Decimal(seq).scaleb(-2)}),
    "two columns": (("epoch", "seq"), lambda seq: {"epoch": seq // 7, "seq": f"{seq % 7}"}),
    "numbers as text": (("seq",), lambda seq: {"seq": str(seq)}),
    "places as text": (("seq",), lambda seq: {"seq": f"{seq // 9:X}/{seq % 9:X}"}),
    "commit time": ((), lambda seq: {"AR_H_COMMIT_TIMESTAMP": _MOMENT + timedelta(seconds=seq)}),
    "commit time as text": ((), lambda seq: {"AR_H_TIMESTAMP": str(_MOMENT + timedelta(seconds=seq))[:19]}),
    "sequence and time": (
        (),
        lambda seq: {"transact_seq": f"{seq:09d}", "dms_timestamp": f"2024-01-01 00:00:{seq:02d}"},
    ),
}
"""Columns of `sequence_by`, and what changes have in their columns, by their number in the log."""


@pytest.mark.parametrize("order", _ORDERS)
def test_rows_have_their_place_in_each_order(order: str, source: sa.Engine, tmp_path: Path) -> None:
    by, columns = _ORDERS[order]
    lake, spec = Lake(tmp_path), replace(SPEC, sequence_by=by, history=True, delete="soft")
    service = Service(lake, source, order=columns)
    service.write()
    done(lake, source, spec)
    execute(source, "UPDATE s.t SET v = 'on its way' WHERE id = 2")
    unseen(source, "UPDATE s.t SET v = 'other' WHERE id < 5", "DELETE FROM s.t WHERE id = 7")
    unseen(source, "INSERT INTO s.t VALUES (100, 'new')")
    resync(lake, source, *range(1, 9), spec=spec)
    resync(lake, source, 100, spec=spec)
    assert live(lake) == rows_of(source)
    execute(source, "UPDATE s.t SET v = 'last' WHERE id IN (1, 2)", "INSERT INTO s.t VALUES (7, 'again')")
    service.write()
    done(lake, source, spec)
    assert live(lake) == rows_of(source)
    assert done(lake, source, spec, JobOptions(action=Verify())).details["verdict"] == "equal"
    before = live(lake)
    done(lake, source, spec, JobOptions(action=Rebuild()))
    assert live(lake) == before
    done(lake, source, spec, JobOptions(action=Reload(confirmed=True)))
    assert live(lake) == before


def live(lake: Lake) -> dict[int, str]:
    rows = pa.table(DeltaTable(lake.layout(SPEC).replica).scan()).to_pylist()
    return {row["id"]: row["v"] for row in rows if not row["_gddl"].get("deleted")}


def test_rows_that_their_own_column_orders(source: sa.Engine, tmp_path: Path) -> None:
    """A row that the source has put back to an older version is late, as a change of it would be."""
    execute(source, "CREATE TABLE s.o (id int PRIMARY KEY, v text, version int)")
    execute(source, "INSERT INTO s.o VALUES (1, 'a', 5), (2, 'b', 1000), (3, 'c', 4), (5, 'e', 2)")
    spec, lake = replace(SPEC, table="s.o", sequence_by=("version",)), Lake(tmp_path)
    stored = pa.table({
        "Op": ["I"] * 4, "id": pa.array([1, 2, 3, 4], pa.int32()), "v": ["wrong", "b", "newer", "gone"],
        "version": pa.array([5, 1000, 9, 7], pa.int32()),
    })  # fmt: skip
    write(Path(lake.layout(spec).landing), "20240101-000000001.parquet", stored)
    done(lake, source, spec)
    resync(lake, source, 1, 4, 5, 99, spec=spec)
    assert lake.replica(spec) == {1: "a", 2: "b", 3: "newer", 5: "e"}
    assert resync(lake, source, 3, spec=spec).late_ignored == 1
    later = pa.table({
        "Op": ["U", "I"], "id": pa.array([1, 4], pa.int32()), "v": ["later", "back"],
        "version": pa.array([6, 8], pa.int32()),
    })  # fmt: skip
    write(Path(lake.layout(spec).landing), "20240101-000000002.parquet", later)
    done(lake, source, spec)
    assert lake.replica(spec) == {1: "later", 2: "b", 3: "newer", 4: "back", 5: "e"}


def test_rows_behind_a_truncate_that_is_held_wait_for_it(service: Service) -> None:
    lake, source = service.lake, service.engine
    held = pa.table({"Op": ["T"], "AR_H_CHANGE_SEQ": [f"{9:020d}"], "id": pa.nulls(1, pa.int32()), "v": pa.nulls(1)})
    write(Path(lake.layout(SPEC).landing), "20240101-000000009.parquet", held)
    unseen(source, "UPDATE s.t SET v = 'other' WHERE id = 1")
    found = resync(lake, source, 1)
    assert [w.count for w in found.warnings if w.code == "RESYNC_WAITS"] == [1]
    done(lake, source, SPEC, JobOptions(action=Release(held="truncate")))
    assert lake.replica(SPEC)[1] == "other"


def test_an_erased_key_does_not_come_back(service: Service) -> None:
    lake, source = service.lake, service.engine
    done(lake, source, SPEC, JobOptions(action=Erase(key={"id": "5"})))
    resync(lake, source, 5, 6)
    resync(lake, source, 4, 5, 6, 7)
    assert lake.replica(SPEC) == {i: v for i, v in rows_of(source).items() if i != 5}


def test_columns_that_are_masked_or_left_out_stay_so(source: sa.Engine, tmp_path: Path) -> None:
    spec = replace(SPEC, mask={"v": "hash"}, partition_by=("id",))
    service = Service(Lake(tmp_path), source)
    service.write()
    done(service.lake, source, spec)
    before = service.lake.replica(spec)
    resync(service.lake, source, 1, spec=spec)
    assert service.lake.replica(spec) == before
    assert all(len(value) == 64 for value in before.values())


_SHARDS = ("crm_eu", "crm_us")


@pytest.fixture
def sharded(source: sa.Engine, tmp_path: Path) -> Sharded:
    """Rows 1 to 50 of each source; the database is that of `crm_eu`."""
    one = Sharded(tmp_path, _SHARDS, fields={"sweep_after": "0s"})
    for shard in _SHARDS:
        one.load(shard, {i: f"v{i}" for i in range(1, 50)})
        one.change(shard, ("I", 50, "v50"))
    assert of_shards(one, source).error is None
    return one


def of_shards(one: Sharded, source: sa.Engine, **options: Any) -> JobResult:
    named = {"source_connection": NAME} if options else {}
    action = {"action": "resync_rows"} if options else {}
    lake = Lake(one.root)
    return run(lake, source, one.spec, options_of(**{**action, **named, **options}))


def rows_of_shards(one: Sharded) -> dict[tuple[str, int], str]:
    return sharded_rows(pa.table(DeltaTable(Lake(one.root).layout(one.spec).replica).scan()).to_pylist())


def test_rows_of_one_source_of_several_are_repaired_alone(sharded: Sharded, source: sa.Engine) -> None:
    unseen(
        source, "UPDATE s.t SET v = 'other' WHERE id > 20", "DELETE FROM s.t WHERE id IN (3, 30)",
        "INSERT INTO s.t VALUES (100, 'new')",
    )  # fmt: skip
    keys = tuple({"_source": "crm_eu", "id": str(i)} for i in (3, 25, 100))
    assert of_shards(sharded, source, keys=keys).error is None
    us = sharded.truth["crm_us"]
    eu = {i: f"v{i}" for i in range(1, 51) if i != 3} | {25: "other", 100: "new"}
    sharded.truth["crm_eu"] = eu
    assert rows_of_shards(sharded) == sharded.expected
    keys = tuple({"_source": "crm_eu", "id": str(i)} for i in (*range(21, 51), 100))
    found = of_shards(sharded, source, keys=keys)
    assert found.error is None
    assert (found.details["resync"]["rows"], found.details["resync"]["absent"]) == (30, 1)
    sharded.truth["crm_eu"] = rows_of(source)
    assert rows_of_shards(sharded) == sharded.expected
    sharded.change("crm_us", ("D", 25, ""), ("U", 26, "us"))
    sharded.change("crm_eu", ("U", 26, "eu"))
    assert of_shards(sharded, source).error is None
    assert rows_of_shards(sharded) == sharded.expected
    assert us[26] == "us"


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"keys": ({"id": "1"},)}, "KEY_INVALID"),
        ({"keys": ({"_source": "crm_asia", "id": "1"},)}, "KEY_INVALID"),
        ({"keys": ({"_source": "crm_eu", "id": "1"}, {"_source": "crm_us", "id": "1"})}, "KEY_INVALID"),
        ({"differences": True}, "SHARDS_UNSUPPORTED"),
        ({"keys": ({"_source": "crm_eu", "id": "1"},), "source_connection": ""}, "RESYNC_ROWS_REFUSED"),
    ],
)
def test_rows_of_several_sources_need_one_and_its_connection(
    options: dict[str, Any], code: str, sharded: Sharded, source: sa.Engine
) -> None:
    unseen(source, "UPDATE s.t SET v = 'other'")
    error = of_shards(sharded, source, **options).error
    assert error is not None
    assert error.code == code
    assert rows_of_shards(sharded) == sharded.expected
