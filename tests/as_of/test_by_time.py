"""Cuts of tables whose changes AWS DMS delivers, by their commit times."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_gddl.contract.actions import Erase, Maintain, Rebuild, Reload, Run
from airflow_gddl.contract.consistent_cut import cut_path, time_place
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.spec import JobOptions, TableSpec
from airflow_gddl.stores import Storage
from spark_jobs.plan.planned_batch import BatchPlan
from tests.as_of.cuts import Cuts, RefusedError
from tests.conftest import LocalPort
from tests.harness.asked import options_of
from tests.harness.examples import at_random
from tests.harness.lake import TIER, Lake, read_table
from tests.harness.landing import write
from tests.harness.sharded import Sharded

BEGAN = datetime(2024, 1, 1, 12, tzinfo=UTC)
"""When the full loads were written."""
COMMIT = "AR_H_COMMIT_TIMESTAMP"


def spec_of(name: str, **fields: Any) -> TableSpec:
    return TableSpec(table=f"s.{name}", keys=("id",), settle="0s", **fields)


ACCOUNTS, ORDERS = spec_of("accounts"), spec_of("orders")


def at(number: int) -> datetime:
    """The commit time of a transaction, an hour after the load and later."""
    return BEGAN + timedelta(hours=1, seconds=number)


@dataclass
class Service:
    """Writes what AWS DMS writes for each table: full loads, and change files with commit times."""

    lake: Lake
    sequence: int = 0
    files: dict[str, int] = field(default_factory=dict)

    def load(self, spec: TableSpec, rows: dict[int, int], loaded: datetime = BEGAN, **columns: Any) -> None:
        ids = pa.array(list(rows), pa.int32())
        table = pa.table({"id": ids, "v": pa.array(list(rows.values()), pa.int32()), **columns})
        write(self.lake.landing(spec), "LOAD00000001.parquet", table)
        stamp(self.lake.landing(spec) / "LOAD00000001.parquet", loaded)

    def change(self, spec: TableSpec, changes: Sequence[tuple[datetime, str, int, int | None]], **columns: Any) -> str:
        """A file of (commit time, operation, id, v)."""
        first = self.sequence
        self.sequence += len(changes)
        number = self.files[spec.table] = self.files.get(spec.table, 0) + 1
        table = pa.table({
            "Op": [one[1] for one in changes],
            "AR_H_CHANGE_SEQ": [f"{first + n:035d}" for n in range(len(changes))],
            COMMIT: pa.array([one[0] for one in changes], pa.timestamp("us", "UTC")),
            "id": pa.array([one[2] for one in changes], pa.int32()),
            "v": pa.array([one[3] for one in changes], pa.int32()), **columns,
        })  # fmt: skip
        name = f"20240101-{number:09d}.parquet"
        write(self.lake.landing(spec), name, table)
        stamp(self.lake.landing(spec) / name, changes[-1][0] + timedelta(seconds=1))
        return name


def stamp(path: Path, moment: datetime) -> None:
    os.utime(path, (moment.timestamp(), moment.timestamp()))


def cuts_of(lake: Lake, *specs: TableSpec) -> Cuts:
    return Cuts(lake, specs, lake.result)


def rows_of(state: dict[int, int]) -> list[dict[str, Any]]:
    return sorted(({"id": key, "v": value} for key, value in state.items()), key=str)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def filled(lake: Lake, specs: Sequence[TableSpec] = (ACCOUNTS, ORDERS)) -> Service:
    """Two accounts and no order; then a transfer and an order, and a later transfer; loaded by these rows."""
    service = Service(lake)
    service.load(ACCOUNTS, {1: 100, 2: 100})
    service.load(ORDERS, {0: 0})
    service.change(ACCOUNTS, [(at(1), "U", 1, 90), (at(1), "U", 2, 110), (at(5), "U", 1, 80), (at(5), "U", 2, 120)])
    service.change(ORDERS, [(at(1), "I", 1, 10), (at(6), "I", 2, 10)])
    service.change(ACCOUNTS, [(at(7), "U", 1, 70), (at(7), "U", 2, 130)])
    for spec in specs:
        lake.done(spec)
    return service


@pytest.fixture
def service(lake: Lake) -> Service:
    return filled(lake)


def test_a_cut_has_each_transaction_whole_or_not_at_all(lake: Lake, service: Service) -> None:
    cuts = cuts_of(lake, ACCOUNTS, ORDERS)
    cut = cuts.make("first", at(1).isoformat())
    assert cuts.rows(cut, "s.accounts") == rows_of({1: 90, 2: 110})
    assert cuts.rows(cut, "s.orders") == rows_of({0: 0, 1: 10})
    assert cuts.rows(cuts.make("second", at(5).isoformat()), "s.accounts") == rows_of({1: 80, 2: 120})


def test_the_latest_cut_is_before_the_newest_change_of_the_table_that_is_furthest_behind(
    lake: Lake, service: Service
) -> None:
    """What was committed at the newest time of a table may not have come whole."""
    cut = cuts_of(lake, ACCOUNTS, ORDERS).make("latest")
    assert cut.moment.until == (at(6) - timedelta(microseconds=1)).isoformat()
    accounts, orders = cut.tables
    assert (accounts.rows, orders.rows) == (2, 2)
    assert (accounts.commit_ts, orders.commit_ts) == tuple(at(n).isoformat(timespec="microseconds") for n in (5, 1))
    assert accounts.version == lake.ledger(ACCOUNTS).state.delta_versions["changes"]


def refused(lake: Lake, moment: str, *specs: TableSpec) -> tuple[str, str]:
    """Code and message of a cut that is refused."""
    with pytest.raises((FatalError, RefusedError)) as found:
        cuts_of(lake, *(specs or (ACCOUNTS, ORDERS))).make("refused", moment)
    return found.value.code, str(found.value)  # type: ignore[union-attr] # both have it


def test_a_moment_beyond_what_a_table_is_known_to_have_is_refused_with_the_table(lake: Lake, service: Service) -> None:
    code, message = refused(lake, at(6).isoformat())
    assert code == "CUT_REFUSED"
    assert "s.orders: complete until" in message
    assert "s.accounts" not in message


def test_a_moment_before_the_full_load_is_refused(lake: Lake, service: Service) -> None:
    """By clocks that may differ by five minutes."""
    assert "its full load was read until" in refused(lake, (BEGAN + timedelta(minutes=4)).isoformat())[1]
    cut = cuts_of(lake, ACCOUNTS, ORDERS).make("first", (BEGAN + timedelta(minutes=6)).isoformat())
    assert cuts_of(lake, ACCOUNTS).rows(cut, "s.accounts") == rows_of({1: 100, 2: 100})


def test_a_heartbeat_lets_a_quiet_table_go_on(lake: Lake, service: Service) -> None:
    beating = replace(ORDERS, heartbeat="s.beats")
    beats = spec_of("beats")
    service.load(beats, {1: 0})
    service.change(beats, [(at(600), "U", 1, 1)])
    lake.done(beats)
    cut = cuts_of(lake, beating).make("latest")
    assert cut.moment.until == (at(600) - timedelta(microseconds=1)).isoformat()
    assert "s.orders: complete until" in refused(lake, at(600).isoformat(), beating)[1]


@pytest.mark.parametrize("hours", [-5, 0])
def test_a_heartbeat_counts_once_its_file_landed_long_ago(lake: Lake, service: Service, hours: int) -> None:
    """Whatever the zone of its commit times: files of other tables may land five minutes later than it."""
    beats, now = spec_of("beats"), datetime.now(UTC)
    service.load(beats, {1: 0})
    for minutes in (20, 1):
        moment = now - timedelta(minutes=minutes)
        name = service.change(beats, [(moment + timedelta(hours=hours), "U", 1, minutes)])
        stamp(lake.landing(beats) / name, moment)
    lake.done(beats)
    (facts,) = cuts_of(lake, replace(ORDERS, heartbeat="s.beats")).facts("latest")
    assert facts.complete == (now - timedelta(minutes=20) + timedelta(hours=hours)).isoformat(timespec="microseconds")


@pytest.mark.parametrize("ahead", [timedelta(hours=2), timedelta(days=20_000)])
def test_commit_times_that_are_later_than_their_file_are_refused(
    lake: Lake, service: Service, ahead: timedelta
) -> None:
    """The moments of full loads, which are those of files, would be earlier than they are; or all would be complete."""
    name = service.change(ORDERS, [(at(20) + ahead, "I", 3, 1)])
    stamp(lake.landing(ORDERS) / name, at(21))
    service.change(ORDERS, [(at(30), "I", 4, 1)])
    lake.done(ORDERS)
    code, message = refused(lake, at(2).isoformat(), ORDERS)
    assert (code, name in message) == ("CUT_REFUSED", True)


def test_a_file_that_waits_ends_what_is_complete(lake: Lake, service: Service) -> None:
    service.change(ORDERS, [(at(20), "I", 3, 1)])
    name = service.change(ORDERS, [(at(30), "I", 4, 1)])
    (lake.landing(ORDERS) / name).rename(lake.landing(ORDERS) / "20240101-000000009.parquet")
    lake.done(ORDERS)
    assert cuts_of(lake, ORDERS).facts("latest")[0].complete == at(30).isoformat(timespec="microseconds")
    service.files["s.orders"] = 4
    service.change(ORDERS, [(at(25), "I", 5, 1)])
    code, message = refused(lake, at(22).isoformat(), ORDERS)
    assert (code, "20240101-000000005.parquet" in message) == ("CUT_REFUSED", True)
    assert cuts_of(lake, ORDERS).make("before", at(19).isoformat()).tables[0].rows == 3


def test_a_file_that_must_not_be_read_and_a_root_that_is_gone_are_refused(lake: Lake, service: Service) -> None:
    name = service.change(ORDERS, [(at(20), "I", 3, 1)])
    (lake.landing(ORDERS) / name).rename(lake.root / name)
    (lake.landing(ORDERS) / name).symlink_to(lake.root / name)
    code, message = refused(lake, at(2).isoformat(), ORDERS)
    assert (code, name in message) == ("CUT_REFUSED", True)
    (lake.root / "landing").rename(lake.root / "gone")
    code, message = refused(lake, at(2).isoformat(), ORDERS)
    assert (code, "landing root" in message) == ("CUT_REFUSED", True)


def test_quarantined_rows_end_what_is_complete_until_they_are_settled(lake: Lake, service: Service) -> None:
    service.change(ORDERS, [(at(20), "I", 3, 1), (at(21), "X", 4, 1)])
    service.change(ORDERS, [(at(30), "I", 5, 1)])
    lake.done(ORDERS)
    code, message = refused(lake, at(20).isoformat(), ORDERS)
    assert (code, "quarantine" in message) == ("CUT_REFUSED", True)
    assert cuts_of(lake, ORDERS).make("before", at(5).isoformat()).tables[0].rows == 2


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"force_update": "v"}, "force_update"),
        ({"mode": "snapshots"}, "mode: snapshots"),
        ({"keys": ()}, "no keys"),
    ],
)
def test_tables_whose_transactions_are_not_known_are_refused(lake: Lake, fields: dict[str, Any], why: str) -> None:
    spec = replace(ORDERS, **fields)
    service = Service(lake)
    if spec.mode == "changes":
        service.load(spec, {0: 0})
        service.change(spec, [(at(1), "I", 1, 10)])
        lake.result(spec)
        code, message = refused(lake, "latest", spec)
        assert (code, why in message) == ("CUT_REFUSED", True)
    else:
        assert refused(lake, "latest", spec)[0] == "CUT_REFUSED"


def test_a_table_of_several_sources_is_refused(lake: Lake) -> None:
    spec = Sharded(lake.root, ("eu", "us"), {"sequence_by": ()}).spec
    assert "rows of several sources" in refused(lake, "latest", spec)[1]


@pytest.mark.parametrize("named", [None, "AR_H_TIMESTAMP", "ar_h_timestamp"])
def test_times_of_statements_are_no_commit_times(lake: Lake, named: str | None) -> None:
    spec = replace(ORDERS, options={"timestamp_column": named} if named else {})
    write(lake.landing(spec), "LOAD00000001.parquet", pa.table({"id": pa.array([1], pa.int32())}))
    write(lake.landing(spec), "20240101-000000001.parquet", _of_statement(1))
    lake.done(spec)
    assert "no commit time" in refused(lake, "latest", spec)[1]


def _of_statement(number: int) -> pa.Table:
    """A change that has no commit time, but that of its statement."""
    changes = {
        "Op": ["I"], "AR_H_CHANGE_SEQ": [f"{900 + number:035d}"], "AR_H_TIMESTAMP": [at(number)],
        "id": pa.array([number], pa.int32()),
    }  # fmt: skip
    return pa.table(changes)


def test_a_file_with_times_of_statements_alone_refuses_the_table(lake: Lake, service: Service) -> None:
    write(lake.landing(ORDERS), "20240101-000000002.parquet", _of_statement(7))
    service.files["s.orders"] = 2
    service.sequence = 1000
    service.change(ORDERS, [(at(30), "I", 5, 1)])
    lake.done(ORDERS)
    assert "no commit time" in refused(lake, at(20).isoformat(), ORDERS)[1]


def test_a_table_without_a_file_of_a_full_load_is_refused(lake: Lake) -> None:
    Service(lake).change(ORDERS, [(at(1), "I", 1, 10), (at(2), "I", 2, 10)])
    lake.done(ORDERS)
    assert "no file of a full load" in refused(lake, "latest", ORDERS)[1]


def test_columns_and_types_are_those_of_the_moment(lake: Lake, service: Service) -> None:
    note = pa.array(["new"], pa.string())
    wide = service.change(ORDERS, [(at(20), "I", 3, 1)], note=note)
    table = pa.table({
        "Op": ["I"], "AR_H_CHANGE_SEQ": ["9" * 35], COMMIT: pa.array([at(30)], pa.timestamp("us", "UTC")),
        "id": pa.array([4], pa.int32()), "v": pa.array([2**40], pa.int64()), "note": note,
    })  # fmt: skip
    write(lake.landing(ORDERS), "20240101-000000003.parquet", table)
    assert wide < "20240101-000000003.parquet"
    lake.done(ORDERS)
    cuts = cuts_of(lake, ORDERS)
    for name, second, has_note in (("then", 2, False), ("between", 25, True)):
        cut = cuts.make(name, at(second).isoformat())
        made = read_table(str(lake.root / "lake" / cut.tables[0].folder))
        assert (made.schema.field("v").type, "note" in made.schema.names) == (pa.int32(), has_note)
        assert ("note" in cut.tables[0].columns) == has_note


def test_a_cut_made_again_has_the_same_rows_whatever_came_since(lake: Lake, service: Service) -> None:
    cuts = cuts_of(lake, ACCOUNTS, ORDERS)
    first = cuts.make("first", at(5).isoformat())
    service.change(ACCOUNTS, [(at(50), "U", 1, 0), (at(51), "D", 2, None)])
    lake.done(ACCOUNTS)
    again = cuts.make("again", at(5).isoformat())
    for table in ("s.accounts", "s.orders"):
        assert cuts.rows(again, table) == cuts.rows(first, table)


def test_an_erased_key_leaves_the_tables_of_cuts_and_comes_into_no_new_one(lake: Lake, service: Service) -> None:
    cuts = cuts_of(lake, ACCOUNTS, ORDERS)
    cut = cuts.make("first", at(5).isoformat())
    lake.done(ACCOUNTS, JobOptions(action=Erase(key={"id": "1"}, asked_by="x")))
    assert cuts.rows(cut, "s.accounts") == rows_of({2: 120})
    assert cuts.rows(cuts.make("second", at(5).isoformat()), "s.accounts") == rows_of({2: 120})
    assert cuts.stored("first") == cut


@pytest.mark.parametrize(
    ("then", "now", "key"),
    [
        ({"keys": ("name",)}, {"keys": ("name",), "mask": {"name": "hash"}}, {"name": "n1"}),
        ({"keys": ("name",), "mask": {"name": "hash"}}, {"keys": ("NAME",), "mask": {"Name": "hash"}}, None),
        ({}, {"keys": ("name",)}, {"name": "n1"}),
    ],
)
def test_an_erasure_says_which_cuts_have_the_key_in_another_form(
    lake: Lake, then: dict[str, Any], now: dict[str, Any], key: dict[str, str] | None
) -> None:
    spec, service = replace(ORDERS, **then), Service(lake)
    service.load(spec, {1: 1, 2: 2}, name=pa.array(["n1", "n2"], pa.string()))
    service.change(spec, [(at(1), "I", 3, 3), (at(2), "I", 4, 4)], name=pa.array(["n3", "n4"], pa.string()))
    lake.done(spec)
    cuts = cuts_of(lake, spec)
    cut = cuts.make("cut", at(1).isoformat())
    changed = replace(spec, **now)
    if key is not None:
        lake.done(changed, JobOptions(action=Rebuild()))
    erase = JobOptions(action=Erase(key=key or {"name": "n1"}, asked_by="x"))
    error = lake.result(changed, erase).error
    if key is None:
        assert error is None
        assert len(cuts.rows(cut, "s.orders")) == 2
    else:
        assert error is not None
        assert (error.code, "when cut was made" in error.message) == ("CUT_KEYS_CHANGED", True)
        assert len(cuts.rows(cut, "s.orders")) == 3
        Storage().delete(cut_path(lake.roots.lake, "cut"))
        lake.done(changed, erase)


def test_changes_that_retention_has_removed_refuse_a_cut_that_may_need_them(lake: Lake, service: Service) -> None:
    kept = replace(ACCOUNTS, changes_retention="1d")
    before = cuts_of(lake, kept).make("before", at(1).isoformat())
    later = datetime.now(UTC) + timedelta(days=3)
    lake.done(kept, JobOptions(action=Maintain()), clock=lambda: later)
    code, message = refused(lake, at(1).isoformat(), kept)
    assert (code, "changes_retention" in message) == ("CUT_REFUSED", True)
    assert before.tables[0].rows == 2


def test_changes_that_a_reload_of_fewer_files_has_archived_refuse_a_cut(lake: Lake, service: Service) -> None:
    """The replica needs them no more, for later changes of their key are there."""
    service.change(ORDERS, [(at(10), "U", 1, 20), (at(10), "U", 2, 20), (at(20), "I", 3, 20)])
    lake.done(ORDERS)
    cuts = cuts_of(lake, ORDERS)
    assert cuts.rows(cuts.make("before", at(2).isoformat()), "s.orders") == rows_of({0: 0, 1: 10})
    (lake.landing(ORDERS) / "20240101-000000001.parquet").unlink()
    lake.done(ORDERS, JobOptions(action=Reload(confirmed=True)))
    code, message = refused(lake, at(2).isoformat(), ORDERS)
    assert (code, "1 changes from before the moment are archived" in message) == ("CUT_REFUSED", True)


def test_masked_and_excluded_columns_stay_so(lake: Lake) -> None:
    spec = replace(ORDERS, mask={"name": "hash"}, exclude_columns=("secret",))
    service = Service(lake)
    text = {"name": pa.array(["x"], pa.string()), "secret": pa.array(["y"], pa.string())}
    service.load(spec, {0: 0}, **text)
    service.change(spec, [(at(1), "I", 1, 10)], **text)
    service.change(spec, [(at(2), "I", 2, 10)], **text)
    lake.done(spec)
    cuts = cuts_of(lake, spec)
    rows = cuts.rows(cuts.make("first", at(1).isoformat()), "s.orders")
    assert {row["name"] for row in rows} == {row["name"] for row in lake.rows(lake.layout(spec).replica)}
    assert all(row["name"] != "x" and "secret" not in row for row in rows)


@pytest.mark.parametrize("repair", [Rebuild(), Reload(confirmed=True)])
def test_cuts_that_keep_clear_values_are_named(repair: Rebuild | Reload, lake: Lake) -> None:
    service, spec = Service(lake), ORDERS
    service.load(spec, {0: 0}, name=["x"])
    service.change(spec, [(at(1), "I", 1, 10)], name=["x"])
    service.change(spec, [(at(2), "I", 2, 10)], name=["x"])
    lake.done(spec)
    cuts_of(lake, spec).make("first", at(1).isoformat())
    assert [w for w in lake.done(spec, JobOptions(action=repair)).warnings if w.code == "CUTS_UNMASKED"] == []
    masked = replace(spec, mask={"name": "hash"})
    (warning,) = lake.done(masked, JobOptions(action=repair)).warnings
    assert (warning.code, warning.count, warning.sample) == ("CUTS_UNMASKED", 1, ("first",))
    assert {row["name"] for row in cuts_of(lake, masked).rows(cuts_of(lake, masked).stored("first"), "s.orders")} == {
        "x"
    }


def test_rows_that_were_read_from_the_source_again_are_refused(lake: Lake, service: Service) -> None:
    """They are later than the place that they have."""
    service.change(ORDERS, [(at(20), "U", 1, 11)])
    folder = lake.landing(ORDERS)
    (folder / "20240101-000000002.parquet").rename(folder / "20240101-000000002-gddl-resync.parquet")
    service.change(ORDERS, [(at(30), "I", 3, 1)])
    lake.done(ORDERS)
    code, message = refused(lake, at(25).isoformat(), ORDERS)
    assert (code, "by a resync" in message) == ("CUT_REFUSED", True)
    assert cuts_of(lake, ORDERS).make("before", at(2).isoformat()).tables[0].rows == 2


def test_a_change_without_a_commit_time_is_refused(lake: Lake, service: Service) -> None:
    table = pa.table({
        "Op": ["I"], "AR_H_CHANGE_SEQ": ["8" * 35], COMMIT: pa.array([None], pa.timestamp("us", "UTC")),
        "id": pa.array([4], pa.int32()), "v": pa.array([1], pa.int32()),
    })  # fmt: skip
    write(lake.landing(ORDERS), "20240101-000000003.parquet", table)
    lake.done(ORDERS)
    code, message = refused(lake, at(2).isoformat(), ORDERS)
    assert (code, "1 changes have no place" in message) == ("CUT_REFUSED", True)


@pytest.mark.parametrize("key", [1, 3])
def test_a_clock_that_went_back_refuses_moments_around_it(lake: Lake, service: Service, key: int) -> None:
    """The transaction at 40 has what that at 50 before it has written; another key alone shows nothing."""
    service.change(ORDERS, [(at(50), "U", 1, 90), (at(40), "U", key, 80), (at(60), "I", 7, 1)])
    lake.done(ORDERS)
    cuts = cuts_of(lake, ORDERS)
    if key == 1:
        for time in (40, 45, 49):
            code, message = refused(lake, at(time).isoformat(), ORDERS)
            assert (code, "of 1 keys" in message) == ("CUT_REFUSED", True)
        assert not list((lake.root / "lake/_as_of").rglob("*.parquet"))
    else:
        assert cuts.make("between", at(45).isoformat()).tables[0].rows == 4
    assert cuts.rows(cuts.make("before", at(39).isoformat()), "s.orders") == rows_of({0: 0, 1: 10, 2: 10})
    assert cuts.make("later", at(50).isoformat()).tables[0].rows == (3 if key == 1 else 4)


def test_an_order_of_the_users_own_may_be_another_than_that_of_commits(lake: Lake) -> None:
    spec = replace(ORDERS, sequence_by=("v",))
    service = Service(lake)
    service.load(spec, {0: 0})
    service.change(spec, [(at(1), "I", 1, 20), (at(2), "U", 1, 10), (at(3), "I", 2, 5)])
    lake.done(spec)
    cuts = cuts_of(lake, spec)
    assert cuts.rows(cuts.make("first", at(1).isoformat()), "s.orders") == rows_of({0: 0, 1: 20})


def test_a_change_table_that_another_writer_has_changed_is_refused(lake: Lake, service: Service) -> None:
    DeltaTable(lake.layout(ORDERS).changes).delete("id = 1")
    assert "another writer" in refused(lake, at(2).isoformat(), ORDERS)[1]
    for action in (Rebuild(), Run()):  # which follow the changes that are left
        lake.done(ORDERS, JobOptions(action=action))
        assert "another writer" in refused(lake, at(2).isoformat(), ORDERS)[1]
    lake.done(ORDERS, JobOptions(action=Reload()))
    cuts = cuts_of(lake, ORDERS)
    assert cuts.rows(cuts.make("cut", at(2).isoformat()), "s.orders") == rows_of({0: 0, 1: 10})


def test_an_unfinished_batch_and_a_table_that_is_not_loaded_are_refused(lake: Lake, service: Service) -> None:
    plan = BatchPlan(
        number=lake.ledger(ORDERS).state.batch + 1, mode="incremental", planned_at="2030-01-01T00:00:00.000000Z",
        generation=1, files=(),
    )  # fmt: skip
    lake.ledger(ORDERS).write_plan(plan)
    assert refused(lake, "latest", ORDERS)[0] == "BATCH_UNFINISHED"
    assert "it is not loaded" in refused(lake, "latest", spec_of("never"))[1]


@pytest.mark.parametrize("vectors", [False, True])
def test_a_cut_is_the_same_wherever_it_is_made(engine: LocalPort, vectors: bool, tmp_path: Path) -> None:
    lake = Lake(tmp_path, port=engine, tier=replace(TIER, deletion_vectors=vectors))
    service, spec = Service(lake), replace(ACCOUNTS, history=True, cluster_by=("v",))
    service.load(spec, dict.fromkeys(range(200), 0))
    for number in range(5):
        service.change(spec, [(at(number), "U", key, number) for key in range(number, 200, 7)])
        lake.done(spec)
    cuts = cuts_of(lake, spec)
    cut = cuts.make("third", at(2).isoformat())
    expected = {key: max((n for n in range(3) if (key - n) % 7 == 0 and key >= n), default=0) for key in range(200)}
    assert cuts.rows(cut, "s.accounts") == rows_of(expected)


_CHANGE = st.tuples(st.sampled_from(["accounts", "orders"]), st.integers(0, 3), st.booleans())
_TRANSACTION = st.tuples(st.lists(_CHANGE, min_size=1, max_size=4), st.integers(1, 2), st.booleans())


@given(history=st.lists(_TRANSACTION, min_size=1, max_size=8), soft=st.booleans(), chosen_at=st.integers(0, 20))
@settings(max_examples=at_random(60))
def test_each_cut_of_a_random_history_is_the_state_of_the_source_then(
    history: list[Any], soft: bool, chosen_at: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Transactions over two tables, some of which share a commit time; files end anywhere between transactions."""
    lake = Lake(tmp_path_factory.mktemp("history"))
    specs = {name: spec_of(name, delete="soft" if soft else "hard") for name in ("accounts", "orders")}
    service, state = Service(lake), {name: {9: 0} for name in specs}
    waiting: dict[str, list[Any]] = {name: [] for name in specs}
    states: list[tuple[datetime, dict[str, dict[int, int]]]] = [(BEGAN, {n: dict(s) for n, s in state.items()})]
    for spec in specs.values():
        service.load(spec, {9: 0})
    time, value = 0, 0
    for changes, pause, ends_file in history:
        time += pause - 1
        for name, key, deletes in changes:
            value += 1
            has = key in state[name]
            if deletes and has:
                del state[name][key]
                waiting[name].append((at(time), "D", key, None))
            else:
                state[name][key] = value
                waiting[name].append((at(time), "U" if has else "I", key, value))
        states.append((at(time), {n: dict(s) for n, s in state.items()}))
        if ends_file:
            _land(service, lake, specs, waiting)
    for name in specs:  # behind all: what was committed before it has come
        waiting[name].append((at(time + 1), "I", 9000, 0))
    _land(service, lake, specs, waiting)
    moment = at(min(chosen_at, time))
    cuts = cuts_of(lake, *specs.values())
    cut = cuts.make("cut", moment.isoformat())
    expected = [one for since, one in states if since <= moment][-1]
    for name in specs:
        found = cuts.rows(cut, f"s.{name}", "id", "v", "_gddl")
        live = [{"id": row["id"], "v": row["v"]} for row in found if not row["_gddl"].get("deleted")]
        assert sorted(live, key=str) == rows_of(expected[name])
        entry = cut.of(f"s.{name}")
        assert entry is not None
        assert entry.rows == len(found)


def _land(service: Service, lake: Lake, specs: dict[str, TableSpec], waiting: dict[str, list[Any]]) -> None:
    for name, spec in specs.items():
        if waiting[name]:
            service.change(spec, waiting[name])
            lake.done(spec)
        waiting[name] = []


def _truncated(lake: Lake, *when: datetime | None) -> TableSpec:
    """Two accounts, of which the first changes at 1 and 7; a file for each truncate, in this order."""
    spec, service = replace(ACCOUNTS, truncate="apply"), Service(lake)
    service.load(spec, {1: 100, 2: 100})
    for service.sequence in (1, 7):  # which the service counts on
        service.change(spec, [(at(service.sequence), "I", 2 + service.sequence, 30)])
    lake.done(spec)
    for time in when:
        sequence = 5 if time is None else int((time - at(0)).total_seconds())
        table = pa.table({
            "Op": ["T", "I"], "AR_H_CHANGE_SEQ": [f"{0:034d}{place}" for place in (sequence, 9)],
            COMMIT: pa.array([time, at(9)], pa.timestamp("us", "UTC")),
            "id": pa.array([None, 100 + sequence], pa.int32()), "v": pa.array([None, 1], pa.int32()),
        })  # fmt: skip
        name = f"20240102-{sequence:09d}.parquet"
        write(lake.landing(spec), name, table)
        stamp(lake.landing(spec) / name, at(20))
        lake.done(spec)
    return spec


def test_a_truncate_at_the_moment_is_in_the_cut_and_one_behind_it_is_not(lake: Lake) -> None:
    cuts = cuts_of(lake, _truncated(lake, at(3)))
    moments = {"before": at(3) - timedelta(microseconds=1), "behind": at(3)}
    before, behind = (cuts.make(name, moment.isoformat()) for name, moment in moments.items())
    assert [len(cuts.rows(cut, "s.accounts")) for cut in (before, behind)] == [3, 0]


def test_a_truncate_that_lands_after_a_newer_one_is_in_cuts_between_them(lake: Lake) -> None:
    cuts = cuts_of(lake, _truncated(lake, at(8), at(3)))
    found = [len(cuts.rows(cuts.make(f"c{n}", at(n).isoformat()), "s.accounts")) for n in (2, 3, 7, 8)]
    assert found == [3, 0, 1, 0]


def test_a_truncate_without_a_commit_time_refuses_cuts(lake: Lake) -> None:
    assert "1 changes have no place" in refused(lake, at(5).isoformat(), _truncated(lake, None))[1]


@pytest.mark.parametrize(("late", "end"), [(False, 5), (True, 2)])
def test_a_quarantined_row_ends_what_is_complete_at_its_own_time_and_before_its_file(
    lake: Lake, late: bool, end: int
) -> None:
    service = Service(lake)
    service.load(ACCOUNTS, {1: 100})
    service.change(ACCOUNTS, [(at(1), "U", 1, 90), (at(5), "U", 1, 80)])
    service.change(ACCOUNTS, [(at(2 if late else 6), "X", 1, 0), (at(7), "U", 1, 70)])
    lake.done(ACCOUNTS)
    cuts = cuts_of(lake, ACCOUNTS)
    (facts,) = cuts.facts("latest")
    assert facts.complete == time_place(at(end))
    assert "quarantine" in facts.lacking


def test_a_dismissed_file_of_the_full_load_refuses_cuts(lake: Lake) -> None:
    service = Service(lake)
    service.load(ACCOUNTS, {1: 100})
    cut = lake.landing(ACCOUNTS) / "LOAD00000002.parquet"
    cut.write_bytes(b"PAR1 cut")
    stamp(cut, BEGAN)
    service.change(ACCOUNTS, [(at(1), "U", 1, 90), (at(5), "U", 1, 80)])
    assert lake.result(ACCOUNTS).error is not None
    lake.done(ACCOUNTS, options_of("errors_dismiss", codes=("FILE_UNREADABLE",), reason="lost"))
    lake.done(ACCOUNTS)
    assert "of its full load could not be read, and was dismissed" in refused(lake, at(1).isoformat(), ACCOUNTS)[1]
