"""Which tables are taken, in which order, and what a wrong name is answered."""

from __future__ import annotations

import pytest

from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.contract.spec import Priority, TableSpec
from airflow_gddl.runtime.table_directory import in_order, select


def row(table: str, priority: Priority = "normal", *, after: tuple[str, ...] = (), enabled: bool = True) -> TableSpec:
    return TableSpec(table=table, keys=("id",), priority=priority, depends_on=after, enabled=enabled)


def names(tables: tuple[TableSpec, ...]) -> list[str]:
    return [table.table for table in tables]


TABLES = [row("sales.orders"), row("sales.lines"), row("hr.people", enabled=False), row("crm.orders")]


def test_all_enabled_ones_by_default() -> None:
    assert names(select(TABLES, [], [])) == ["crm.orders", "sales.lines", "sales.orders"]


def test_named_ones_once_even_when_disabled() -> None:
    assert names(select(TABLES, ["sales.orders", "hr.people", "sales.orders"], [])) == ["hr.people", "sales.orders"]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("sales.order", "sales.orders"),
        ("SALES.ORDERS", "sales.orders"),
        ("orders", "sales.orders"),
        ("x.orders", "crm.orders or sales.orders"),
        ("quite.different", "`gddl status` lists the tables"),
    ],
)
def test_unknown_names_get_near_ones(name: str, hint: str) -> None:
    with pytest.raises(MetadataError) as caught:
        select(TABLES, [name], [])
    assert caught.value.code == "TABLE_UNKNOWN"
    assert repr(name) in caught.value.what
    assert hint in caught.value.remedy


def test_a_bad_row_is_called_bad() -> None:
    with pytest.raises(MetadataError) as caught:
        select(TABLES, ["a.bad"], ["a.bad"])
    assert caught.value.code == "TABLE_ROW_BAD"


def test_priority_then_name_then_dependencies() -> None:
    tables = [
        row("a.low", "low"),
        row("a.z", "critical", after=("a.low",)),
        row("a.b", "high"),
        row("a.n", after=("not.there",)),
        row("a.m"),
    ]
    assert names(in_order(tables)) == ["a.b", "a.m", "a.n", "a.low", "a.z"]


def test_a_cycle_still_runs_every_table() -> None:
    circle = [row("a.a", after=("a.b",)), row("a.b", after=("a.a",)), row("a.c", after=("a.b",))]
    assert names(in_order(circle)) == ["a.a", "a.b", "a.c"]
