"""Which columns a row publishes, the statements for each reader, and what the commands refuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.extensions import CatalogSpec, TableKind
from airflow_gddl.contract.features import properties_of, with_properties
from airflow_gddl.contract.features.iceberg import FEATURE
from airflow_gddl.contract.published import (
    Publication,
    PublishedTable,
    Reader,
    RegisteredTable,
    RegistrationState,
    ReplicaSchema,
    ViewName,
    published_problems,
    query,
    relation_of,
    view_sql,
)
from airflow_gddl.contract.row_checks import check_table
from airflow_gddl.contract.spec import TableSpec, TierSpec
from airflow_gddl.metadata import validation
from tests.commands.test_cli import Shop


@pytest.fixture
def shop(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Shop:
    return Shop(tmp_path, capsys)


def spec(**fields: Any) -> TableSpec:
    return TableSpec(**{"table": "s.t", "keys": ("id",), **fields})


def schema(*columns: str, soft: bool = False) -> ReplicaSchema:
    return ReplicaSchema(columns=(*columns, "_gddl"), marks_deletes=soft)


def code(found: ReplicaSchema, row: TableSpec) -> str:
    with pytest.raises(FatalError) as caught:
        Publication.of(row).columns_of(found)
    return caught.value.code


def test_the_default_leaves_technical_columns_out() -> None:
    dms = schema("AR_H_CHANGE_SEQ", "id", "ar_h_user", "Transact_Seq", "dms_timestamp", "v", "_rescued_data")
    assert Publication.of(spec()).columns_of(dms) == ("id", "v")
    debezium = schema("id", "v", "_dbz_sequence", "_dbz_ts", "_dbz_carried")
    assert Publication.of(spec(dialect="debezium")).columns_of(debezium) == ("id", "v")


def test_columns_that_the_row_names_for_ordering_are_technical_unless_they_are_keys() -> None:
    row = spec(
        keys=("id", "day"),
        sequence_by=("Day", "scn"),
        columns_to_update="changed",
        force_update="force",
        options={"timestamp_column": "committed_at"},
    )
    found = schema("id", "day", "SCN", "changed", "force", "committed_at", "v")
    assert Publication.of(row).columns_of(found) == ("id", "day", "v")


def test_named_columns_come_in_their_place_in_the_tables_spelling() -> None:
    found = schema("id", "Scn", "v", "w")
    row = spec(sequence_by=("scn",), published=("W", "*", "SCN"))
    assert Publication.of(row).columns_of(found) == ("w", "id", "v", "Scn")
    assert Publication.of(spec(published=("v", "_gddl"))).columns_of(found) == ("v", "_gddl")
    assert Publication.of(spec(published=())).columns_of(found) == ()


def test_columns_that_the_replica_lacks_are_refused() -> None:
    assert code(schema("id"), spec(published=("id", "gone"))) == "PUBLISHED_COLUMN_MISSING"
    assert code(schema("scn"), spec(keys=(), sequence_by=("scn",))) == "PUBLISHED_COLUMN_MISSING"


@pytest.mark.parametrize(
    ("published", "exclude"), [(("v", "V"), ()), ((" ",), ()), (("*", "*"), ()), (("note",), ("NOTE",))]
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


def test_a_delta_schema_tells_whether_rows_are_marked() -> None:
    inner = [{"name": "op", "type": "string"}, {"name": "deleted", "type": "boolean"}]
    fields = [{"name": "id", "type": "long"}, {"name": "_gddl", "type": {"type": "struct", "fields": inner}}]
    text = json.dumps({"type": "struct", "fields": fields})
    assert ReplicaSchema.of_json(text) == ReplicaSchema(columns=("id", "_gddl"), marks_deletes=True)
    delivered = json.dumps({"type": "struct", "fields": [{"name": "deleted", "type": "boolean"}]})
    assert not ReplicaSchema.of_json(delivered).marks_deletes


TABLE = PublishedTable(path="s3://lake/it's/t", columns=("id", 'a"b', "c`d"), marks_deletes=True)


def test_statements_quote_names_and_paths_as_the_reader_does() -> None:
    view = ViewName.of("it's.t-1", "{schema}")
    assert str(view) == "it_s.t_1"
    schema_, made = view_sql(TABLE, view, "spark")
    assert schema_ == "CREATE SCHEMA IF NOT EXISTS `it_s`"
    assert made == (
        'CREATE OR REPLACE VIEW `it_s`.`t_1` AS\nSELECT\n  `id`,\n  `a"b`,\n  `c``d`\n'
        "FROM delta.`s3a://lake/it's/t`\nWHERE NOT `_gddl`.`deleted`"
    )
    assert "delta.`s3://lake/it's/t`" in view_sql(TABLE, view, "databricks")[1]
    assert "FROM delta_scan('s3://lake/it''s/t')\nWHERE NOT \"_gddl\".\"deleted\"" in view_sql(TABLE, view, "duckdb")[1]


def test_athena_registers_the_replica_beside_the_view() -> None:
    database, table, made = view_sql(TABLE, ViewName.of("s.t", "clean_{schema}"), "athena")
    assert database == "CREATE DATABASE IF NOT EXISTS `clean_s`"
    assert table == (
        "CREATE EXTERNAL TABLE IF NOT EXISTS `clean_s`.`t__replica`\nLOCATION 's3://lake/it\\'s/t'\n"
        "TBLPROPERTIES ('table_type'='DELTA')"
    )
    assert made.startswith('CREATE OR REPLACE VIEW "clean_s"."t" AS\nSELECT\n  "id",\n  "a""b"')
    assert made.endswith('FROM "clean_s"."t__replica"\nWHERE NOT "_gddl"."deleted"')


@pytest.mark.parametrize("reader", ["python", "polars"])
def test_python_texts_compile_whatever_the_names(reader: Reader) -> None:
    hostile = ('"""', "'", "\\", 'a"', "\\n")
    table = PublishedTable(path='/lake/"""/t', columns=hostile, marks_deletes=True)
    compile(query(table, ViewName.of("s.t", "s"), reader), "copied", "exec")


def test_publication_of_defaults_is_what_rows_have_without_any() -> None:
    assert Publication.of(spec()) == Publication()


def test_commands_name_what_can_not_be_rendered(shop: Shop) -> None:
    shop.write(
        "metadata/tables/sales.yaml", "tables:\n- {table: s.a, keys: [id]}\n- {table: s.b, keys: [], published: []}\n"
    )
    answer = shop.gddl("views")
    assert (answer.status, answer.out) == (1, "")
    assert "[REPLICA_MISSING] s.a has no replica yet" in answer.err
    assert "0 views rendered, 1 failed, 1 not published" in answer.err
    assert "[TABLE_NOT_PUBLISHED]" in shop.gddl("query", "--table", "s.b").err
    assert shop.gddl("query", "--table", "s.b").status == 2
    assert "[TABLE_UNKNOWN]" in shop.gddl("query", "--table", "s.c").err


def test_views_that_would_have_one_name_are_refused(shop: Shop) -> None:
    shop.write("metadata/tables/sales.yaml", "tables:\n- {table: a.t-1, keys: [id]}\n- {table: b.T_1, keys: [id]}\n")
    answer = shop.gddl("views", "--database", "clean")
    assert (answer.status, answer.out) == (2, "")
    assert "[VIEW_NAMES_COLLIDE] a.t-1 and b.T_1 would both have the view clean.T_1" in answer.err


def test_an_empty_database_is_refused(shop: Shop) -> None:
    answer = shop.gddl("views", "--database", " ")
    assert (answer.status, answer.out) == (2, "")
    assert "[OPTION_INVALID] --database is empty" in answer.err


def test_the_query_for_python_has_a_line_for_each_column() -> None:
    table = PublishedTable(path="/lake/t", columns=("id", "v"), marks_deletes=True)
    statement = 'SELECT\n  "id",\n  "v"\nFROM replica\nWHERE NOT "_gddl"."deleted"'
    assert f"execute('''{statement}''')" in query(table, ViewName.of("s.t", "s"), "python")


def test_views_are_written_to_files(shop: Shop) -> None:
    deltalake, arrow = pytest.importorskip("deltalake"), pytest.importorskip("pyarrow")
    deltalake.write_deltalake(shop.lake / "sales" / "orders", arrow.table({"id": [1], "transact_seq": ["1"]}))
    out = shop.folder / "sql"
    answer = shop.gddl("views", "--table", "sales.orders", "--out", str(out), "--reader", "databricks")
    assert (answer.status, answer.out) == (0, "")
    written = (out / "sales.orders.sql").read_text()
    assert written == (
        "CREATE SCHEMA IF NOT EXISTS `sales`;\nCREATE OR REPLACE VIEW `sales`.`orders` AS\nSELECT\n  `id`\n"
        f"FROM delta.`{shop.lake}/sales/orders`;\n"
    )
    (shop.folder / "file").write_text("")
    refused = shop.gddl("views", "--table", "sales.orders", "--out", str(shop.folder / "file" / "x"))
    assert (refused.status, "[VIEWS_NOT_WRITTEN]" in refused.err) == (2, True)
    assert "[VIEWS_NOT_WRITTEN]" in shop.gddl("views", "--table", "sales.orders", "--out", "s3://bucket/x").err


@pytest.mark.parametrize(("account", "athena"), [(None, '"shop"."orders"'), ("123456789012", "")])
def test_athena_finds_no_table_by_name_in_the_catalog_of_another_account(account: str | None, athena: str) -> None:
    catalog = CatalogSpec(kind="glue", catalog_id=account)
    state = RegistrationState(tables={"replica": RegisteredTable(name="shop.orders", location="s3://a", digest="")})
    assert relation_of(catalog, state, "athena") == athena, "it reads the table by its path"
    assert relation_of(catalog, state, "spark") == "`shop`.`orders`"
