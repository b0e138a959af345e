"""Where a table's files and tables are."""

from __future__ import annotations

from dataclasses import astuple

import pytest

from airflow_gddl.contract.features.iceberg import iceberg_folder
from airflow_gddl.contract.layout import Layout, join
from airflow_gddl.contract.spec import Roots, TableSpec


def test_the_paths_of_a_table() -> None:
    layout = Layout.of(Roots(landing="/in/", lake="s3://b/lake"), TableSpec(table="shop.orders", keys=()))
    assert layout == Layout(
        landing="/in/shop/orders",
        replica="s3://b/lake/shop/orders",
        changes="s3://b/lake/shop/orders__changes",
        history="s3://b/lake/shop/orders__history",
        errors="s3://b/lake/shop/orders__errors",
        tombstones="s3://b/lake/_gddl/tombstones/shop/orders",
        state="s3://b/lake/_gddl/ledger/shop/orders",
        runs="s3://b/lake/_gddl/runs/shop/orders",
        erased="s3://b/lake/_gddl/erased/shop/orders",
    )


def test_folder_of_iceberg_s_metadata_is_beside_the_ledger() -> None:
    folder = iceberg_folder("s3://b/lake", TableSpec(table="shop.orders", keys=()))
    assert folder == "s3://b/lake/_gddl/iceberg/shop/orders"


def test_no_two_paths_of_two_tables_are_the_same() -> None:
    roots = Roots(landing="/in", lake="/lake")
    names = ["a.b", "a.b_", "a_.b", "a.tombstones", "ledger.a", "a.b c"]
    paths = [path for name in names for path in astuple(Layout.of(roots, TableSpec(table=name, keys=())))]
    assert len(set(paths)) == len(paths)


@pytest.mark.parametrize(
    ("root", "parts", "expected"),
    [("/a", ("b",), "/a/b"), ("/a/", ("b", "c"), "/a/b/c"), ("s3://x", ("y",), "s3://x/y"), ("/", ("a",), "/a")],
)
def test_join_has_one_slash_between_parts(root: str, parts: tuple[str, ...], expected: str) -> None:
    assert join(root, *parts) == expected
