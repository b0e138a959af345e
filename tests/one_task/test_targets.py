"""Another target of a row loads its table again; a target that is another table's is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_gddl.contract.spec import TableSpec
from spark_jobs.batch.totals import TableOutcome
from tests.harness.asked import options_of
from tests.harness.lake import Lake

pytestmark = pytest.mark.wide

OLD, NEW = "crm_public.orders", "customers.orders"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


@pytest.fixture
def orders(tmp_path: Path) -> TableSpec:
    return spec_of(table=OLD, source="crm", source_table="public.orders", landing=f"{tmp_path}/crm", history=True)


def spec_of(**fields: Any) -> TableSpec:
    return TableSpec(keys=("id",), sequence_by=("seq",), **fields)


def fill(lake: Lake, spec: TableSpec) -> dict[int, str]:
    lake.load(spec)
    assert lake.done(spec).status == "succeeded"
    lake.change(spec, 1, [("U", 0, "changed"), ("D", 1, "load 1"), ("I", 7, "new")])
    lake.done(spec)
    return lake.replica(spec)


def warned(lake: Lake, spec: TableSpec) -> dict[str, str]:
    return {warning.code: warning.message for warning in lake.done(spec).warnings}


def error(lake: Lake, spec: TableSpec) -> tuple[str, str]:
    found = lake.run(spec)
    assert isinstance(found, TableOutcome)
    assert found.result.error is not None, found.result
    return found.result.error.code, found.result.error.message


def test_another_target_loads_the_table_again(lake: Lake, orders: TableSpec) -> None:
    rows, new = fill(lake, orders), replace(orders, table=NEW)
    lake.run(new, options_of("plan"))
    message = warned(lake, new)["TARGET_CHANGED"]
    assert f"loaded into {NEW} from the files" in message
    assert f"{OLD} stays as it is" in message
    assert lake.replica(new) == rows
    assert warned(lake, new) == {}, "it is said once"
    lake.change(orders, 2, [("I", 9, "after")])
    assert lake.done(new).rows_read == 1
    assert lake.replica(new) == {**rows, 9: "after"}
    assert lake.replica(orders) == rows
    assert lake.done(orders).rows_read == 1, "and back: what it lacks"
    assert lake.replica(orders) == {**rows, 9: "after"}


def test_renamed_source_is_detected_by_its_folder(lake: Lake, orders: TableSpec) -> None:
    rows, new = fill(lake, orders), replace(orders, source="crm2", table="crm2_public.orders")
    assert OLD in warned(lake, new)["TARGET_CHANGED"]
    assert lake.replica(new) == rows


def test_target_of_a_row_that_had_none(lake: Lake) -> None:
    plain = spec_of(table="public.orders")
    rows, new = fill(lake, plain), replace(plain, table=NEW, source_table="public.orders")
    assert not (lake.root / "lake" / "_gddl" / "targets").exists(), "a row without a target needs no record"
    assert "public.orders" in warned(lake, new)["TARGET_CHANGED"]
    assert lake.replica(new) == rows
    assert warned(lake, new) == {}


def test_source_declared_later_adopts_its_tables(lake: Lake) -> None:
    plain = spec_of(table="public.orders")
    fill(lake, plain)
    declared = replace(plain, source="crm", landing=lake.roots.landing)
    assert lake.done(declared).status == "skipped"
    assert "TARGET_CHANGED" in warned(lake, replace(declared, table=NEW, source_table="public.orders"))


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
    assert warned(lake, replace(orders, table=NEW)) == {}


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
