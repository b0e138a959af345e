"""Which columns a row publishes."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.extensions import TableKind
from airflow_gddl.contract.features import properties_of, with_properties
from airflow_gddl.contract.features.iceberg import FEATURE
from airflow_gddl.contract.published import published_columns, published_problems
from airflow_gddl.contract.row_checks import check_table
from airflow_gddl.contract.spec import TableSpec, TierSpec
from airflow_gddl.metadata import validation


def spec(**fields: Any) -> TableSpec:
    return TableSpec(**{"table": "s.t", "keys": ("id",), **fields})


def published(row: TableSpec, *columns: str) -> tuple[str, ...]:
    return published_columns(row, (*columns, "_gddl"))


def code(row: TableSpec, *columns: str) -> str:
    with pytest.raises(FatalError) as caught:
        published(row, *columns)
    return caught.value.code


def test_the_default_leaves_technical_columns_out() -> None:
    dms = ("AR_H_CHANGE_SEQ", "id", "ar_h_user", "Transact_Seq", "dms_timestamp", "v", "_rescued_data")
    assert published(spec(), *dms) == ("id", "v")
    debezium = ("id", "v", "_dbz_sequence", "_dbz_ts", "_dbz_carried")
    assert published(spec(dialect="debezium"), *debezium) == ("id", "v")


def test_columns_that_the_row_names_for_ordering_are_technical_unless_they_are_keys() -> None:
    row = spec(
        keys=("id", "day"),
        sequence_by=("Day", "scn"),
        columns_to_update="changed",
        force_update="force",
        options={"timestamp_column": "committed_at"},
    )
    assert published(row, "id", "day", "SCN", "changed", "force", "committed_at", "v") == ("id", "day", "v")


def test_named_columns_come_in_their_place_in_the_tables_spelling() -> None:
    found = ("id", "Scn", "v", "w")
    row = spec(sequence_by=("scn",), published=("W", "*", "SCN"))
    assert published(row, *found) == ("w", "id", "v", "Scn")
    assert published(spec(published=("v", "_gddl")), *found) == ("v", "_gddl")


def test_columns_that_the_replica_lacks_are_refused() -> None:
    assert code(spec(published=("id", "gone")), "id") == "PUBLISHED_COLUMN_MISSING"
    assert code(spec(keys=(), sequence_by=("scn",)), "scn") == "PUBLISHED_COLUMN_MISSING"


@pytest.mark.parametrize(
    ("published", "exclude"), [((), ()), (("v", "V"), ()), ((" ",), ()), (("*", "*"), ()), (("note",), ("NOTE",))]
)
def test_rows_that_contradict_themselves_are_problems(published: tuple[str, ...], exclude: tuple[str, ...]) -> None:
    (problem,) = published_problems(spec(published=published, exclude_columns=exclude))
    assert (problem.code, problem.path[0]) == ("PUBLISHED_INVALID", "published")


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


@pytest.mark.parametrize("version", [1, 4, 0.5, "3"])
def test_other_versions_of_iceberg_are_refused(version: Any) -> None:
    built = validation.TABLE.build({"table": "s.t", "keys": ["id"], "iceberg": version})
    (problem,) = check_table(built) if isinstance(built, TableSpec) else built
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


def test_an_excluded_key_is_no_problem_of_published() -> None:
    assert list(published_problems(spec(published=("id",), exclude_columns=("id",)))) == []
