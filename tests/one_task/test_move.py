"""`gddl move`: a table under another name, whole at every instant, and runs that can't go past it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from airflow_gddl.contract.actions import Move
from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.spec import JobOptions, TableSpec
from airflow_gddl.stores import Storage, StoredObject
from spark_jobs.batch.runtime import NoSpark, Runtime, Step, utc_now
from spark_jobs.batch.table_run import TableRun
from spark_jobs.batch.totals import TableOutcome
from spark_jobs.job.table_job import attempt, totals_of
from spark_jobs.ledger.claim import Claim
from tests.harness.lake import Lake

pytestmark = pytest.mark.wide

OLD, NEW = "crm_public.orders", "customers.orders"
MOVE = JobOptions(action=Move(to=NEW))
TABLES = ("replica", "changes", "history", "errors", "tombstones")


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


@pytest.fixture
def orders(tmp_path: Path) -> TableSpec:
    return spec_of(table=OLD, source="crm", source_table="public.orders", landing=f"{tmp_path}/crm", history=True)


def spec_of(**fields: Any) -> TableSpec:
    return TableSpec(keys=("id",), sequence_by=("seq",), **fields)


def moved(spec: TableSpec) -> TableSpec:
    return replace(spec, table=NEW)


def fill(lake: Lake, spec: TableSpec) -> None:
    """With rows in every table: deletes leave tombstones, a null key goes to the quarantine."""
    lake.load(spec)
    assert lake.done(spec).status == "succeeded"
    lake.change(spec, 1, [("U", 0, "changed"), ("D", 1, "load 1"), ("I", 7, "new")])
    lake.change(spec, 2, [("X", 2, "no operation")])
    assert lake.done(spec).quarantined == 1


def content(lake: Lake, spec: TableSpec) -> dict[str, list[str]]:
    found = {}
    for name in TABLES:
        path = getattr(lake.layout(spec), name)
        rows = pa.table(DeltaTable(path).scan()).to_pylist() if DeltaTable.is_deltatable(path) else []
        found[name] = sorted(json.dumps(row, default=str, sort_keys=True) for row in rows)
    return found


def error(lake: Lake, spec: TableSpec, options: JobOptions | None = None) -> tuple[str, str]:
    found = lake.run(spec, options)
    assert isinstance(found, TableOutcome)
    assert found.result.error is not None, found.result
    return found.result.error.code, found.result.error.message


def files(lake: Lake, spec: TableSpec) -> set[str]:
    """What is left under a name."""
    layout = lake.layout(spec)
    folders = [Path(getattr(layout, name)) for name in (*TABLES, "state", "runs", "erased")]
    return {str(p.relative_to(folder)) for folder in folders for p in folder.rglob("*") if p.is_file()}


def test_moved_table_is_complete_and_loads_continue(lake: Lake, orders: TableSpec) -> None:
    fill(lake, orders)
    before, ledger = content(lake, orders), TableRun(job=lake.job([]), spec=orders, runtime=runtime()).ledger().state
    assert all(before[name] for name in TABLES)
    result = lake.done(orders, MOVE)
    assert result.details["to"] == NEW
    assert result.details["files"] > 20
    assert content(lake, moved(orders)) == before
    assert {name.partition("/")[0] for name in files(lake, orders)} == {"claims", "move.json"}
    assert TableRun(job=lake.job([]), spec=moved(orders), runtime=runtime()).ledger().state == ledger
    records = [json.loads(p.read_bytes()) for p in Path(lake.layout(moved(orders)).runs).glob("*.json")]
    assert {record["table"] for record in records} == {NEW}
    assert lake.done(moved(orders)).status == "skipped", "nothing is loaded again"
    lake.change(orders, 3, [("I", 9, "after")])
    assert lake.done(moved(orders)).rows_read == 1
    assert lake.replica(moved(orders)) == {0: "changed", 2: "load 2", 7: "new", 9: "after"}


def test_repeated_move_is_a_no_op(lake: Lake, orders: TableSpec) -> None:
    fill(lake, orders)
    lake.done(orders, MOVE)
    before = content(lake, moved(orders))
    assert lake.done(orders, MOVE).status == "succeeded"
    assert content(lake, moved(orders)) == before


def test_move_there_and_back(lake: Lake, orders: TableSpec) -> None:
    fill(lake, orders)
    before = content(lake, orders)
    lake.done(orders, MOVE)
    lake.done(moved(orders), JobOptions(action=Move(to=OLD)))
    assert content(lake, orders) == before
    assert lake.done(orders).status == "skipped"
    assert error(lake, moved(orders))[0] in ("TARGET_CHANGED", "TABLE_MOVED")


# Killed


class Killed(BaseException):
    pass


def runtime(observe: object = None) -> Runtime:
    given = {} if observe is None else {"observe": observe}
    return Runtime(storage=Storage(), spark=NoSpark(), clock=utc_now, **given)


def steps_of(lake: Lake, spec: TableSpec, die_at: int | None) -> list[str]:
    """Steps of a move, which dies when the one of this number is reported."""
    steps: list[str] = []

    def observe(step: Step) -> None:
        steps.append(step.step)
        if die_at == len(steps) - 1:
            raise Killed

    job = lake.job([spec], MOVE)
    run = TableRun(job=job, spec=spec, runtime=runtime(observe))
    if die_at is None:
        assert isinstance(done := attempt(run, totals_of(job)), TableOutcome)
        assert done.result.error is None, done.result.error
    else:
        with pytest.raises(Killed):
            attempt(run, totals_of(job))
    return steps


def test_move_resumes_after_a_kill_at_each_step(tmp_path: Path) -> None:
    def table(number: int) -> tuple[Lake, TableSpec]:
        root = tmp_path / str(number)
        return Lake(root), spec_of(table=OLD, source="crm", source_table="public.orders",
                                        landing=f"{root}/crm", history=True)  # fmt: skip

    lake, spec = table(99)
    fill(lake, spec)
    steps = steps_of(lake, spec, None)
    assert steps[0] == "noted"
    assert steps[-2:] == ["counts", "done"]
    assert len(steps) == 13
    for number, step in enumerate(steps):
        lake, spec = table(number)
        fill(lake, spec)
        before = content(lake, spec)
        steps_of(lake, spec, number)
        counts = step in ("counts", "done")
        assert content(lake, moved(spec) if counts else spec) == before, step
        if not counts:
            code, message = error(lake, moved(spec))
            assert code in ("TABLE_MOVED", "TARGET_CHANGED"), step
            assert f"gddl move --table {OLD} --to {NEW}" in message, step
        if step == "noted":
            assert lake.done(spec).status == "skipped", "the old name counts until its own note is there"
        else:
            assert error(lake, spec)[0] in ("TABLE_MOVED", "TARGET_CHANGED"), step
        lake.done(spec, MOVE)
        assert content(lake, moved(spec)) == before, step
        assert lake.done(moved(spec)).status == "skipped", step


# Runs under another name


def test_run_with_changed_target_loads_nothing(lake: Lake, orders: TableSpec) -> None:
    fill(lake, orders)
    code, message = error(lake, moved(orders))
    assert code == "TARGET_CHANGED"
    assert f"crm:public.orders is loaded into {OLD}, and the metadata says {NEW}" in message
    assert f"gddl move --table {OLD} --to {NEW}" in message
    assert not Path(lake.layout(moved(orders)).replica).exists()
    assert lake.done(orders).status == "skipped"


def test_renamed_source_is_detected_by_its_folder(lake: Lake, orders: TableSpec) -> None:
    fill(lake, orders)
    assert error(lake, replace(orders, source="crm2", table="crm2_public.orders"))[0] == "TARGET_CHANGED"


def test_target_of_an_older_lake_is_checked(lake: Lake) -> None:
    plain = spec_of(table="public.orders")
    fill(lake, plain)
    assert not (lake.root / "lake" / "_gddl" / "targets").exists(), "nothing new is written for rows of before"
    code, message = error(lake, replace(plain, table=NEW, source_table="public.orders"))
    assert code == "TARGET_CHANGED"
    assert f"gddl move --table public.orders --to {NEW}" in message
    before = content(lake, plain)
    lake.done(plain, MOVE)
    new = replace(plain, table=NEW, source_table="public.orders")
    assert content(lake, new) == before
    assert lake.done(new).status == "skipped"
    code, message = error(lake, plain)
    assert code == "TABLE_MOVED"
    assert f"set the metadata row's target to {NEW}" in message


def test_source_declared_later_adopts_its_tables(lake: Lake) -> None:
    plain = spec_of(table="public.orders")
    fill(lake, plain)
    declared = replace(plain, source="crm", landing=lake.roots.landing)
    assert lake.done(declared).status == "skipped"
    assert error(lake, replace(declared, table=NEW, source_table="public.orders"))[0] == "TARGET_CHANGED"


def test_target_of_another_source_is_refused(lake: Lake, orders: TableSpec) -> None:
    fill(lake, orders)
    other = replace(orders, source="erp", landing=f"{lake.root}/erp")
    lake.load(other)
    code, message = error(lake, other)
    assert code == "TARGET_TAKEN"
    assert f"the lake's table {OLD} is that of crm:public.orders" in message
    assert lake.done(orders).status == "skipped"


def test_target_of_an_existing_table_is_refused(lake: Lake, orders: TableSpec) -> None:
    plain = spec_of(table="public.orders")
    fill(lake, plain)
    lake.load(orders)
    assert error(lake, replace(orders, table="public.orders", source_table=None))[0] == "TARGET_TAKEN"
    assert lake.done(orders).status == "succeeded", "under a name of its own it is another table"


def test_target_may_change_before_the_first_load(lake: Lake, orders: TableSpec) -> None:
    lake.run(orders)
    lake.load(orders)
    assert lake.done(moved(orders)).status == "succeeded"


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b"\xff\xfe", b'{"target": 1}', b"null"])
def test_damaged_records_are_named(lake: Lake, orders: TableSpec, damage: bytes) -> None:
    fill(lake, orders)
    record = lake.root / "lake" / "_gddl" / "sources" / "crm" / "public" / "orders.json"
    record.write_bytes(damage)
    code, message = error(lake, orders)
    assert code == "LEDGER_DAMAGED"
    assert str(record) in message
    record.unlink()
    assert lake.done(orders).status == "skipped"
    assert record.exists() or (lake.root / "lake" / "_gddl" / "folders").exists()
    note = Path(lake.layout(orders).state) / "move.json"
    note.write_bytes(damage)
    assert error(lake, orders)[0] == ("LEDGER_NEWER" if b"target" in damage else "LEDGER_DAMAGED")
    note.unlink()
    assert lake.done(orders).status == "skipped"


# Refused moves


def test_invalid_moves_are_refused(lake: Lake, orders: TableSpec) -> None:
    assert error(lake, orders, MOVE)[0] == "MOVE_NOT_POSSIBLE"
    fill(lake, orders)
    before = content(lake, orders)
    for to in ("", "nodot", "_gddl.x", "a.b__changes", "../a.b", OLD):
        assert error(lake, orders, JobOptions(action=Move(to=to)))[0] == "MOVE_NOT_POSSIBLE", to
    other = replace(orders, table="own.name", source="erp", landing=f"{lake.root}/erp")
    fill(lake, other)
    assert error(lake, orders, JobOptions(action=Move(to="own.name")))[0] == "TARGET_TAKEN"
    assert error(lake, replace(other, table=OLD), MOVE)[0] == "MOVE_NOT_POSSIBLE", "the table of another source"
    assert content(lake, orders) == before
    assert lake.done(orders).status == "skipped"


@contextmanager
def held(layout: Layout) -> Iterator[None]:
    with Claim.acquire(Storage(), layout.state, "another", utc_now):
        yield


def test_busy_table_is_not_moved(lake: Lake, orders: TableSpec) -> None:
    fill(lake, orders)
    for spec in (orders, moved(orders)):
        with held(lake.layout(spec)):
            assert error(lake, orders, MOVE)[0] == "TABLE_BUSY"
    assert lake.done(orders, MOVE).status == "succeeded"


def test_records_of_runs_that_are_archived_meanwhile_stop_it_once(
    lake: Lake, orders: TableSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that has just ended for the table archives its older records without the claim."""
    fill(lake, orders)
    before, runs, read_all = content(lake, orders), Path(lake.layout(orders).runs), Storage.list

    def listed(self: Storage, folder: str, after: str = "", within: str | None = None) -> Iterator[StoredObject]:
        yield from read_all(self, folder, after, within)
        if folder.rstrip("/") == str(runs) and not (runs / "archive").exists():
            record = min(runs.glob("*.json"))
            (runs / "archive").mkdir()
            record.rename(runs / "archive" / f"{record.stem}_{record.stem}.jsonl")

    with monkeypatch.context() as patched:
        patched.setattr(Storage, "list", listed)
        assert error(lake, orders, MOVE)[0] == "MOVE_INCOMPLETE"
    assert lake.done(orders, MOVE).status == "succeeded"
    assert content(lake, moved(orders)) == before
    assert len(list(Path(lake.layout(moved(orders)).runs, "archive").iterdir())) == 1


def test_foreign_files_under_the_new_name_are_kept(lake: Lake, orders: TableSpec) -> None:
    fill(lake, orders)
    strange = Path(lake.layout(moved(orders)).replica) / "mine.parquet"
    strange.parent.mkdir(parents=True)
    strange.write_text("mine")
    assert error(lake, orders, MOVE)[0] == "TARGET_TAKEN"
    assert strange.read_text() == "mine"
    assert lake.done(orders).status == "skipped"


def test_no_empty_folder_is_left(lake: Lake, orders: TableSpec) -> None:
    """Of the old name only what says where the table is now."""
    fill(lake, orders)
    lake.done(orders, MOVE)
    root = Path(lake.roots.lake)
    empty = [path for path in root.rglob("*") if path.is_dir() and not any(path.iterdir())]
    assert [str(path.relative_to(root)) for path in empty] == []
    assert not (root / "crm_public").exists()
