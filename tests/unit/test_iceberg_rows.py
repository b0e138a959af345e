"""Which rows may ask for Iceberg, and what their tables then need."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from airflow_gddl.contract.extensions import TableKind
from airflow_gddl.contract.features import properties_of, with_properties
from airflow_gddl.contract.features.iceberg import FEATURE
from airflow_gddl.contract.row_checks import check_table
from airflow_gddl.contract.spec import TableSpec, TierSpec


def spec(**fields: Any) -> TableSpec:
    return TableSpec(**{"table": "s.t", "keys": ("id",), **fields})


@pytest.mark.parametrize("key", ["delta.enableDeletionVectors", "DELTA.enableTypeWidening"])
def test_iceberg_is_refused_beside_features_that_it_can_not_follow(key: str) -> None:
    (problem,) = check_table(spec(iceberg=True, table_properties={key: "True"}))
    assert (problem.code, problem.path) == ("ICEBERG_REFUSED", ("table_properties", key))
    (problem,) = check_table(spec(iceberg=True, table_properties={"delta.feature.deletionVectors": "supported"}))
    assert problem.code == "ICEBERG_REFUSED"
    assert check_table(spec(iceberg=True, table_properties={key: "false"})) == ()
    assert check_table(spec(table_properties={key: "true"})) == ()
    assert check_table(spec(iceberg=True, partition_by=("day",))) == ()


@pytest.mark.parametrize(
    ("field", "value", "path"),
    [
        ("table_properties", {"delta.enableTypeWidening": "true"}, ("table_properties", "delta.enableTypeWidening")),
        ("table_properties", {"delta.EnableRowTracking": "false"}, ("table_properties", "delta.EnableRowTracking")),
        ("keys", ("id", "_Row_Id"), ("keys", 1)),
        ("partition_by", ("_last_updated_sequence_number",), ("partition_by", 0)),
    ],
)
def test_version_3_of_iceberg_has_row_ids(field: str, value: Any, path: tuple[Any, ...]) -> None:
    (problem,) = check_table(spec(iceberg=3, **{field: value}))
    assert (problem.code, problem.path) == ("ICEBERG_REFUSED", path)
    assert [one for one in check_table(spec(iceberg=True, **{field: value})) if one.path == path] == (
        [problem] if "Widening" in str(path) else []
    )


def test_version_3_of_iceberg_has_deletion_vectors() -> None:
    asked = spec(iceberg=3, table_properties={"delta.enableDeletionVectors": "true"})
    assert check_table(asked) == ()
    tier = TierSpec(deletion_vectors=True)
    assert [
        FEATURE.tier(spec(iceberg=version), tier).deletion_vectors for version in (True, 2, 3)
    ] == [False, False, True]  # fmt: skip


@pytest.mark.parametrize("version", [1, 4])
def test_other_versions_of_iceberg_are_refused(version: Any) -> None:
    (problem,) = check_table(spec(iceberg=version))
    assert problem.path == ("iceberg",)
    assert problem.remedy == "write true (version 2), 3 or false"


def test_tables_ask_for_row_tracking_alone_where_iceberg_has_version_3() -> None:
    asked = {"delta.enableRowTracking": "true", "gddl.widensTypes": "false"}
    for version, wanted in ((False, {}), (True, {}), (2, {}), (3, asked)):
        for kind in get_args(TableKind):
            found = properties_of(spec(iceberg=version), kind)
            assert found == (wanted if kind in ("replica", "history") else {}), (version, kind)
    row = spec(iceberg=3, table_properties={"user.a": "b"})
    assert with_properties(row).table_properties == {"user.a": "b", **asked}
