"""Views of cuts over histories: they show what the cut's tables hold, whatever is loaded later, or are refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_gddl.contract.actions import ConsistentCut, Erase, Rebuild
from airflow_gddl.contract.consistent_cut import Cut, CutTable, lsn_of, require_view
from airflow_gddl.contract.cut_views import view_query, view_statements
from airflow_gddl.contract.published import by_path
from airflow_gddl.contract.spec import JobOptions, TableSpec
from tests.as_of.cuts import Cuts, RefusedError
from tests.as_of.test_by_time import BEGAN, Service, at, cuts_of, spec_of
from tests.as_of.test_of_topics import SPEC as TOPIC
from tests.as_of.test_of_topics import Connector
from tests.conftest import LocalPort
from tests.harness.examples import at_random
from tests.harness.lake import TIER, Lake
from tests.spark.children import killed_child

Row = dict[str, Any]
ORDERS = spec_of("orders", history=True, sweep_after="0s", sweep_limit=1.0)


def in_duckdb(entry: CutTable) -> list[Row]:
    """Rows of a view, by its query as DuckDB gets it; the history comes from Arrow, not from an extension."""
    view = require_view(entry)
    with duckdb.connect() as connection:
        connection.register("history", pa.table(DeltaTable(view.path).scan()))
        return _plain(connection.sql(view_query(view, entry.columns, "history")).to_arrow_table().to_pylist())


def in_spark(entry: CutTable, port: LocalPort) -> list[Row]:
    view = replace(require_view(entry), reader="spark")
    statement = view_query(view, entry.columns, by_path(view.path, "spark"))
    return _plain([row.asDict(recursive=True) for row in port.spark.for_table().sql(statement).collect()])


def _plain(rows: Sequence[Row]) -> list[Row]:
    return sorted(({**row, "_gddl": bool((row.get("_gddl") or {}).get("deleted"))} for row in rows), key=str)


def of_table(cuts: Cuts, cut: Cut, entry: CutTable) -> list[Row]:
    """Rows of a table of a cut, in the columns of a view."""
    return _plain(cuts.rows(cut, entry.table, *entry.columns, "_gddl"))


def equal(cuts: Cuts, views: Cut, tables: Cut) -> None:
    for entry in views.tables:
        assert in_duckdb(entry) == of_table(cuts, tables, entry)


def refused(cuts: Cuts, moment: str) -> str:
    with pytest.raises(RefusedError) as found:
        cuts.make("refused", moment, reader="duckdb")
    assert found.value.code == "CUT_VIEWS_UNSUPPORTED"
    assert "orders can't be shown by a view" in str(found.value)
    return str(found.value)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


@pytest.fixture
def service(lake: Lake) -> Service:
    """Three orders, of which one is changed, one deleted, and one inserted; then all are changed."""
    made = Service(lake)
    made.load(ORDERS, {1: 1, 2: 2, 3: 3})
    made.change(ORDERS, [(at(1), "U", 1, 10), (at(2), "D", 2, None), (at(3), "I", 4, 4)])
    made.change(ORDERS, [(at(8), "U", 1, 11), (at(8), "I", 2, 22), (at(9), "D", 3, None), (at(9), "U", 4, 44)])
    return made


@dataclass
class Source:
    """A table of a source whose changes AWS DMS delivers, with time that goes on.

    Attributes:
        loads: full loads so far; each begins five minutes after all before it.
    """

    lake: Lake
    spec: TableSpec
    rows: dict[int, int] = field(default_factory=dict)
    time: int = 0
    loads: int = 0

    def __post_init__(self) -> None:
        self.service = Service(self.lake)

    def load(self, lacks: int = 0) -> None:
        """A full load; the source has lost a row whose delete no change says."""
        self.rows.pop(lacks, None)
        loaded = at(self.time + 1000) if self.loads else BEGAN
        self.loads += 1
        self.time += 2000 if self.loads > 1 else 0
        self.service.load(self.spec, self.rows, loaded)
        self.lake.done(self.spec)

    def change(self, changes: Sequence[tuple[int, int | None]]) -> None:
        """A file of changes, each of its own second; None: a delete; a value that the row has: nothing changes."""
        written = []
        for key, value in changes:
            self.time += 1
            if value is None and key not in self.rows:
                continue
            op = "D" if value is None else "U" if key in self.rows else "I"
            written.append((at(self.time), op, key, value))
            self.rows = {k: v for k, v in self.rows.items() if k != key} | ({} if value is None else {key: value})
        if written:
            self.service.change(self.spec, written)
            self.lake.done(self.spec)


_FILE = st.lists(st.tuples(st.integers(0, 4), st.one_of(st.none(), st.integers(0, 2))), min_size=1, max_size=5)
_STEPS = st.lists(st.one_of(_FILE, _FILE, st.integers(0, 4)), max_size=5)


@given(before=_STEPS, later=_STEPS, soft=st.booleans(), back=st.integers(0, 4))
@settings(max_examples=at_random(60))
def test_a_view_equals_the_table_whatever_is_loaded_later(
    before: list[Any], later: list[Any], soft: bool, back: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Random changes, deletes, updates that change nothing and full loads, before the cut and behind it."""
    lake = Lake(tmp_path_factory.mktemp("views"))
    source = Source(lake, replace(ORDERS, delete="soft" if soft else "hard"), {1: 1, 2: 2, 3: 3})
    source.load()
    for step in [*before, [(7, 1), (8, 1)]]:
        source.load(step) if isinstance(step, int) else source.change(step)
    cuts = cuts_of(lake, source.spec)
    moment = at(source.time - 1 - min(back, 1)).isoformat()
    tables, views = cuts.make("tables", moment), cuts.make("views", moment, reader="duckdb")
    assert views.tables[0].rows == tables.tables[0].rows
    equal(cuts, views, tables)
    for step in later:
        source.load(step) if isinstance(step, int) else source.change(step)
        equal(cuts, views, tables)
    assert compared(cuts, views) == views.tables[0].digest


def compared(cuts: Cuts, cut: Cut) -> str:
    """The digest of the rows that the view of a cut of one table has now."""
    result = cuts.run(cuts.specs[0], JobOptions(action=ConsistentCut(cut=cut.name, then="compare")))
    assert result.error is None, result.error
    assert isinstance(result.details, dict)
    return str(result.details["digest"])


@pytest.mark.parametrize("delete", ["hard", "soft"])
def test_views_of_a_log_equal_tables_whatever_is_loaded_later(lake: Lake, delete: Any) -> None:
    """By the commit before each transaction; a view and a table of each commit, and of all again behind all."""
    accounts, orders = (
        replace(TOPIC, table=f"s.{name}", history=True, delete=delete) for name in ("accounts", "orders")
    )
    connector = Connector(lake)
    for table, rows in (("accounts", {1: 100, 2: 100}), ("orders", {9: 0})):
        connector.land(table, connector.snapshot(table, rows))
    cuts = Cuts(lake, (accounts, orders), lake.result)
    made: list[tuple[Cut, Cut]] = []
    for number in range(9):
        for _ in range(2):
            gone = [("accounts", 1, None)] if 1 in connector.state["accounts"] and number % 3 == 1 else []
            changes = [("accounts", 1 + number % 2, number), ("orders", number % 4, number // 2), *gone]
            for table, events in connector.transaction(*changes).items():
                connector.land(table, events)
        lake.done(accounts)
        lake.done(orders)
        at_commit = lsn_of(f"{connector.known[-2][0]:020d}")
        made.append((cuts.make(f"v{number}", at_commit, "duckdb"), cuts.make(f"t{number}", at_commit)))
        equal(cuts, *made[-1])
    for views, tables in made:
        equal(cuts, views, tables)
    connector.log += 5
    connector.land("orders", connector.snapshot("orders", {1: 77}))  # which opens a generation
    lake.done(orders)
    for views, tables in made:
        equal(cuts, views, tables)


def test_spark_and_duckdb_read_the_same(engine: LocalPort, tmp_path: Path) -> None:
    lake = Lake(tmp_path, port=engine)
    source = Source(lake, replace(ORDERS, delete="soft"), {1: 1, 2: 2, 3: 3})
    source.load()
    source.change([(1, 10), (2, None), (4, 4)])
    source.change([(4, None), (1, 11), (2, 22)])
    cuts = cuts_of(lake, source.spec)
    moment = at(3).isoformat()
    tables, views = cuts.make("tables", moment), cuts.make("views", moment, reader="duckdb")
    source.load(3)
    source.change([(1, 12)])
    equal(cuts, views, tables)
    (entry,) = views.tables
    assert [(row["id"], row["v"], row["_gddl"]) for row in in_duckdb(entry)] == [
        (1, 10, False), (2, 2, True), (3, 3, False), (4, 4, False),
    ]  # fmt: skip
    if engine.name == "many":
        assert in_spark(entry, engine) == in_duckdb(entry)


def test_columns_keep_the_types_of_the_moment(lake: Lake) -> None:
    """One grows and one is new behind it."""
    service = Service(lake)
    service.load(ORDERS, {1: 1})
    service.change(ORDERS, [(at(1), "U", 1, 2), (at(2), "I", 5, 5)])
    lake.done(ORDERS)
    cuts = cuts_of(lake, ORDERS)
    early = cuts.make("early", at(1).isoformat(), reader="duckdb")
    service.sequence += 1
    table = pa.table({
        "Op": ["U"], "AR_H_CHANGE_SEQ": [f"{service.sequence:035d}"], "id": pa.array([1], pa.int32()),
        "AR_H_COMMIT_TIMESTAMP": pa.array([at(5)], pa.timestamp("us", "UTC")), "v": [2**40], "new": ["x"],
    })  # fmt: skip
    _write(lake, service, table)
    lake.done(ORDERS)
    late = cuts.make("late", at(4).isoformat(), reader="duckdb")
    now = cuts.make("now", at(4).isoformat(), reader="duckdb", schema="now")
    assert {**early.tables[0].columns} == {"id": "int", "v": "int"}
    assert {**late.tables[0].columns} == {"id": "int", "v": "int"}
    assert {**now.tables[0].columns} == {"id": "int", "v": "bigint", "new": "string"}
    for cut in (early, late):
        with duckdb.connect() as connection:
            connection.register("history", pa.table(DeltaTable(require_view(cut.tables[0]).path).scan()))
            found = connection.sql(
                view_query(require_view(cut.tables[0]), cut.tables[0].columns, "history")
            ).to_arrow_table()
        assert found.schema.field("v").type == pa.int32()
    assert in_duckdb(early.tables[0]) == [{"id": 1, "v": 2, "_gddl": False}]
    assert in_duckdb(now.tables[0])[0] == {"id": 1, "v": 2, "new": None, "_gddl": False}


def _write(lake: Lake, service: Service, table: pa.Table) -> None:
    from tests.as_of.test_by_time import stamp  # noqa: PLC0415 - beside its use
    from tests.harness.landing import write  # noqa: PLC0415 - as above

    number = service.files["s.orders"] = service.files.get("s.orders", 0) + 1
    name = f"20240101-{number:09d}.parquet"
    write(lake.landing(ORDERS), name, table)
    stamp(lake.landing(ORDERS) / name, at(6))


@pytest.mark.parametrize("delete", ["hard", "soft"])
def test_names_are_quoted_and_types_are_cast(engine: LocalPort, delete: Any, tmp_path: Path) -> None:
    lake, spec = Lake(tmp_path, port=engine), replace(ORDERS, delete=delete)
    service, moment = Service(lake), pa.array([at(0)], pa.timestamp("us", "UTC"))
    others = {
        'o"d`d': ["x"], "price": pa.array([Decimal("1.25")], pa.decimal128(10, 2)), "ratio": [0.5], "at": moment,
        "day": pa.array([at(0).date()], pa.date32()), "flag": [True], "small": pa.array([7], pa.int8()), "raw": [b"r"],
        "real": pa.array([0.25], pa.float32()), "select": ["word"],
    }  # fmt: skip
    service.load(spec, {1: 1}, **others)
    service.change(spec, [(at(1), "U", 1, 2)], **others)
    service.change(spec, [(at(2), "U", 1, 3)], **others)
    lake.done(spec)
    cuts = cuts_of(lake, spec)
    views, tables = cuts.make("views", at(1).isoformat(), "duckdb"), cuts.make("tables", at(1).isoformat())
    equal(cuts, views, tables)
    assert len(views.tables[0].columns) == 12
    if engine.name == "many":
        (found,) = in_spark(views.tables[0], engine)
        assert (found["v"], found["price"], found["select"], found["day"]) == (2, Decimal("1.25"), "word", at(0).date())


def test_columns_of_the_service_are_left_out(lake: Lake, service: Service) -> None:
    """They are those of the newest change that a version has, and no part of the source's row."""
    lake.done(ORDERS)
    (entry,) = cuts_of(lake, ORDERS).make("cut", at(3).isoformat(), reader="duckdb").tables
    assert list(entry.columns) == ["id", "v"]
    assert (entry.rows, entry.sequence) == (3, f"{2:035d}")


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"history": False}, "it has no history"),
        ({"track_history_except": ("v",)}, "changes of v open no version of its history"),
        ({"sequence_by": ("AR_H_CHANGE_SEQ",)}, "sequence_by orders its changes by columns of its own"),
    ],
)
def test_what_a_view_can_not_show_is_refused_by_name(
    lake: Lake, service: Service, fields: dict[str, Any], reason: str
) -> None:
    spec = replace(ORDERS, **fields)
    lake.done(spec)
    cuts = cuts_of(lake, spec)
    assert reason in refused(cuts, at(3).isoformat())
    assert not list((lake.root / "lake").rglob("_as_of"))
    assert cuts.make("table", at(3).isoformat()).tables[0].rows == 3


def test_a_clock_that_goes_back_for_other_keys_refuses_views_alone(lake: Lake, service: Service) -> None:
    """The table is known by the commit times of each key; a view has one place in the log for all."""
    service.change(ORDERS, [(at(7), "I", 5, 5), (at(20), "I", 6, 6)])
    lake.done(ORDERS)
    cuts = cuts_of(lake, ORDERS)
    assert cuts.make("table", at(7).isoformat()).tables[0].rows == 4
    assert "the order of the source's log is another" in refused(cuts, at(7).isoformat())


def test_a_history_that_lacks_versions_is_found(lake: Lake, service: Service) -> None:
    """As of a writer that is not ours: what the view would show is compared, row by row."""
    lake.done(ORDERS)
    history = DeltaTable(lake.layout(ORDERS).history)
    history.delete("id = 1")
    history.update(updates={"v": "v + 1"}, predicate="id = 4")
    message = refused(cuts_of(lake, ORDERS), at(3).isoformat())
    assert "it lacks 1 rows" in message
    assert "rows have other values in v" in message


def test_nested_columns_have_the_type_of_today_as_in_tables(lake: Lake) -> None:
    service, nested = Service(lake), pa.array([{"a": 1}], pa.struct([("a", pa.int32())]))
    service.load(ORDERS, {1: 1}, n=nested)
    service.change(ORDERS, [(at(1), "I", 2, 2)], n=nested)
    grown = pa.array([{"a": 1, "b": "x"}], pa.struct([("a", pa.int32()), ("b", pa.string())]))
    service.change(ORDERS, [(at(5), "U", 1, 3)], n=grown)
    lake.done(ORDERS)
    cuts = cuts_of(lake, ORDERS)
    views, tables = cuts.make("views", at(2).isoformat(), "duckdb"), cuts.make("tables", at(2).isoformat())
    equal(cuts, views, tables)
    assert [row["n"] for row in in_duckdb(views.tables[0])] == [{"a": 1, "b": None}] * 2


def test_a_table_without_changes_has_a_view(lake: Lake) -> None:
    """Its heartbeat says until when it is complete; its first change comes later."""
    source, beats = Source(lake, replace(ORDERS, heartbeat="s.beats"), {1: 1, 2: 2}), spec_of("beats")
    source.service.load(beats, {1: 0})
    source.service.change(beats, [(at(600), "U", 1, 1)])
    lake.done(beats)
    source.load()
    cuts = cuts_of(lake, source.spec)
    views, tables = cuts.make("views", reader="duckdb"), cuts.make("tables")
    equal(cuts, views, tables)
    source.time = 600
    for changes in ([(1, 9), (3, 3)], [(2, None)]):
        source.change(changes)
        equal(cuts, views, tables)
    source.load(1)
    equal(cuts, views, tables)
    assert [row["v"] for row in in_duckdb(views.tables[0])] == [1, 2]


@pytest.mark.parametrize("delete", ["hard", "soft"])
def test_an_erased_key_vanishes_from_a_view_and_its_document_says_so(lake: Lake, service: Service, delete: Any) -> None:
    spec = replace(ORDERS, delete=delete)
    lake.done(spec)
    cuts = cuts_of(lake, spec)
    cuts.make("cut", at(3).isoformat(), reader="duckdb")
    before = cuts.make("before", at(1).isoformat(), reader="duckdb").tables[0]
    lake.done(spec, JobOptions(action=Erase(key={"id": "4"}, asked_by="x")))
    entry = cuts.stored("cut").tables[0]
    assert [row["id"] for row in in_duckdb(entry)] == ([1, 3] if delete == "hard" else [1, 2, 3])
    assert (entry.rows, entry.erased, entry.digest) == (len(in_duckdb(entry)), 1, "")
    assert cuts.stored("before").tables[0] == before  # the key was inserted later
    equal(cuts, cuts.make("again", at(3).isoformat(), "duckdb"), cuts.make("t", at(3).isoformat()))


def test_each_erased_key_is_counted(lake: Lake, service: Service) -> None:
    """As of the table of the cut, also once the view is not compared any more."""
    lake.done(ORDERS)
    cuts = cuts_of(lake, ORDERS)
    for name, reader in (("view", "duckdb"), ("table", "")):
        cuts.make(name, at(3).isoformat(), reader=reader)
    for key in ("1", "3"):
        lake.done(ORDERS, JobOptions(action=Erase(key={"id": key}, asked_by="x")))
    entries = [cuts.stored(name).tables[0] for name in ("view", "table")]
    assert [(entry.rows, entry.erased) for entry in entries] == [(1, 2), (1, 2)]
    assert [row["id"] for row in in_duckdb(entries[0])] == [4]


def test_rows_that_a_late_file_removes_are_not_counted_as_erased(lake: Lake, service: Service) -> None:
    """What it has changed is still a difference: the digest of the document stays."""
    lake.done(ORDERS)
    cuts = cuts_of(lake, ORDERS)
    cut = cuts.make("cut", at(3).isoformat(), reader="duckdb")
    service.sequence, service.files["s.orders"] = 0, 0
    service.change(ORDERS, [(at(1), "U", 1, 10), (at(2), "D", 2, None), (at(2), "D", 3, None), (at(3), "I", 4, 4)])
    lake.done(ORDERS)
    lake.done(ORDERS, JobOptions(action=Erase(key={"id": "4"}, asked_by="x")))
    (entry,) = cuts.stored("cut").tables
    assert [row["id"] for row in in_duckdb(entry)] == [1]
    assert (entry.rows, entry.erased, entry.erasing) == (2, 1, ())
    assert entry.digest == cut.tables[0].digest != compared(cuts, cut)


@pytest.mark.parametrize("step", ["changes", "history"])
def test_an_erasure_that_was_killed_counts_a_key_once(lake: Lake, service: Service, step: str) -> None:
    lake.done(ORDERS)
    cuts = cuts_of(lake, ORDERS)
    cuts.make("cut", at(3).isoformat(), reader="duckdb")
    erase = JobOptions(action=Erase(key={"id": "4"}, asked_by="x"))
    assert killed_child(lake.job([ORDERS], erase, run_id="dies"), step).status == -9
    (noted,) = cuts.stored("cut").tables
    assert (noted.rows, noted.erased, len(noted.erasing)) == (2, 1, 1)
    lake.done(ORDERS, erase)
    (entry,) = cuts.stored("cut").tables
    assert (entry.rows, entry.erased, entry.erasing, entry.digest) == (2, 1, (), "")


def test_a_key_that_is_erased_before_the_document_knows_the_rows_is_noted(lake: Lake, service: Service) -> None:
    lake.done(ORDERS)
    cuts = cuts_of(lake, ORDERS)
    cut = cuts.make("cut", at(3).isoformat(), reader="duckdb")
    cuts.write(replace(cut, tables=tuple(replace(one, rows=None, digest="") for one in cut.tables)))
    lake.done(ORDERS, JobOptions(action=Erase(key={"id": "4"}, asked_by="x")))
    assert require_view(cuts.stored("cut").tables[0]).is_stale


def test_changes_that_come_late_are_seen_when_it_is_compared(lake: Lake, service: Service) -> None:
    """A file that is written again corrects what it first said."""
    lake.done(ORDERS)
    cuts = cuts_of(lake, ORDERS)
    cut = cuts.make("cut", at(3).isoformat(), reader="duckdb")
    assert compared(cuts, cut) == cut.tables[0].digest
    service.sequence, service.files["s.orders"] = 0, 0
    service.change(ORDERS, [(at(1), "U", 1, 99), (at(2), "D", 2, None), (at(3), "I", 4, 4)])
    lake.done(ORDERS)
    assert [row["v"] for row in in_duckdb(cut.tables[0])] == [99, 3, 4]
    assert compared(cuts, cut) != cut.tables[0].digest


def test_a_later_change_of_the_sign_of_zero_is_no_other_row(lake: Lake) -> None:
    """It opens no version of the history."""
    service, kind = Service(lake), pa.struct([("x", pa.float64())])
    service.load(ORDERS, {1: 1}, f=[0.0], n=pa.array([{"x": 0.0}], kind))
    service.change(ORDERS, [(at(1), "I", 2, 2)], f=[0.5], n=pa.array([None], kind))
    service.change(ORDERS, [(at(3), "I", 3, 3)], f=[0.5], n=pa.array([None], kind))
    lake.done(ORDERS)
    cuts = cuts_of(lake, ORDERS)
    cut = cuts.make("cut", at(1).isoformat(), reader="duckdb")
    service.change(ORDERS, [(at(4), "U", 1, 1)], f=[-0.0], n=pa.array([{"x": -0.0}], kind))
    lake.done(ORDERS)
    assert compared(cuts, cut) == cut.tables[0].digest


def test_a_rebuild_keeps_a_view_equal(lake: Lake, service: Service) -> None:
    lake.done(ORDERS)
    cuts = cuts_of(lake, ORDERS)
    cut = cuts.make("cut", at(3).isoformat(), reader="duckdb")
    before = in_duckdb(cut.tables[0])
    lake.done(ORDERS, JobOptions(action=Rebuild()))
    assert in_duckdb(cut.tables[0]) == before
    assert compared(cuts, cut) == cut.tables[0].digest


def test_large_tables_are_compared_in_tasks_by_ranges_of_keys(engine: LocalPort, tmp_path: Path) -> None:
    lake = Lake(tmp_path, port=engine, tier=replace(TIER, deletion_vectors=engine.name == "many"))
    service = Service(lake)
    service.load(ORDERS, {key: key for key in range(500)})
    service.change(ORDERS, [(at(key), "U", key, -key) for key in range(1, 500)])
    lake.done(ORDERS)
    cuts = cuts_of(lake, ORDERS)
    moment = at(250).isoformat()
    equal(cuts, cuts.make("views", moment, reader="duckdb"), cuts.make("tables", moment))


@pytest.mark.parametrize("reader", ["spark", "databricks", "athena", "duckdb"])
@pytest.mark.parametrize("delete", ["hard", "soft"])
def test_statements_name_the_place_in_the_log_and_replace_nothing(
    lake: Lake, service: Service, reader: str, delete: Any
) -> None:
    spec = replace(ORDERS, delete=delete)
    lake.done(spec)
    cut = cuts_of(lake, spec).make("cut", at(3).isoformat(), reader=reader)
    statements = view_statements(require_view(cut.tables[0]), cut.tables[0].columns)
    assert f"'{2:035d}'" in statements[-1]
    assert statements[-1].startswith("CREATE VIEW")
    assert not [text for text in statements if "REPLACE" in text or "TABLE IF NOT EXISTS" in text]
    assert ("deleted" in statements[-1]) == (delete == "soft")
