"""`gddl onboard --from FILE`: constructs of the vendors' documentation become rows, and the rest is named.

AWS DMS: user guide, table mapping (selection rules, transformation rules, source filters) and S3 endpoint settings.
Debezium: reference of the connectors. sdp-meta: reference of the onboarding file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.tools.onboarding.from_files import read
from airflow_gddl.tools.onboarding.rules import KeyFact, SourceFacts, TableFacts
from tests.commands.test_cli import Answer, Shop, shop
from tests.unit.pages import page

__all__ = ["shop"]


def selection(table: str, action: str = "include", **more: Any) -> dict[str, Any]:
    schema, name = table.split(".")
    locator = {"schema-name": schema, "table-name": name, **more.pop("locator", {})}
    return {"rule-type": "selection", "rule-id": "1", "rule-action": action, "object-locator": locator, **more}


def transformation(table: str, action: str, target: str, column: str = "", **more: Any) -> dict[str, Any]:
    schema, name = table.split(".")
    locator = {"schema-name": schema, "table-name": name, **({"column-name": column} if column else {})}
    rule = {"rule-type": "transformation", "rule-id": "2", "rule-action": action, "rule-target": target}
    return {**rule, "object-locator": locator, **more}


def mapping(*rules: dict[str, Any]) -> dict[str, Any]:
    return {"rules": list(rules)}


def filtered(*conditions: dict[str, Any], column: str = "empid") -> dict[str, Any]:
    return {"filter-type": "source", "column-name": column, "filter-conditions": list(conditions)}


CONNECTOR: dict[str, Any] = {
    "name": "inventory-connector",
    "config": {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.hostname": "db.example",
        "database.user": "postgres",
        "database.password": "never-shown",
        "database.dbname": "postgres",
        "topic.prefix": "fulfillment",
        "table.include.list": "public.inventory,public\\.orders",
        "message.key.columns": "public.orders:id,line;(.*).stock:sku",
    },
}
FLOW: dict[str, Any] = {
    "data_flow_id": "100",
    "data_flow_group": "A1",
    "source_format": "cloudFiles",
    "source_details": {
        "source_database": "APP",
        "source_table": "CUSTOMERS",
        "source_path_dev": "s3://raw/APP/CUSTOMERS/",
    },
    "bronze_database_dev": "bronze",
    "bronze_table": "customers_cdc",
    "bronze_reader_options": {"cloudFiles.format": "csv", "header": "true"},
    "silver_table": "customers",
    "silver_table_comment": "Customers",
    "silver_cdc_apply_changes": {
        "keys": ["id"],
        "sequence_by": "operation_date",
        "scd_type": "2",
        "apply_as_deletes": "operation = 'DELETE'",
        "except_column_list": ["operation", "operation_date", "_rescued_data", "secret"],
    },
    "silver_cluster_by": ["id", "email"],
    "silver_transformation_json_dev": "conf/silver.json",
    "silver_data_quality_expectations_json_dev": "conf/dqe.json",
    "silver_table_properties": {"pipelines.reset.allowed": "false"},
}


def proposed(shop: Shop, *documents: Any, **settings: Any) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Rows as they were written, which have to be valid; and messages of what was not carried over."""
    answer = onboarded(shop, *documents, **settings)
    assert answer.status == 0, answer.err
    checked = shop.gddl("validate")
    assert checked.status == 0, checked.out + checked.err
    rows = yaml.safe_load((shop.folder / "metadata/tables/old.yaml").read_text())["tables"]
    keys = yaml.safe_load((shop.folder / "metadata/keys/old.yaml").read_text())["keys"]
    lines = [one for one in answer.records if one["kind"] == "notice" and one["code"] == "ONBOARD_NOT_CARRIED"]
    return {row.pop("table"): {**row, "keys": keys[name]} for row in rows if (name := row["table"])}, [
        f"{one['table']}: {one['message']}" for one in lines
    ]


def onboarded(shop: Shop, *documents: Any) -> Answer:
    paths = []
    for number, document in enumerate(documents):
        path = shop.write(f"old{number}.json", document if isinstance(document, str) else json.dumps(document))
        paths += ["--from", str(path)]
    return shop.gddl("onboard", "old", *paths, "--write", "--json")


KEY = transformation("%.%", "define-primary-key", "table", **{"primary-key-def": {"name": "k", "columns": ["id"]}})
ACTOR = selection("test.Actor")
TRANSFORMED: dict[str, tuple[dict[str, Any], str, dict[str, Any]]] = {
    "schema": (transformation("test.%", "rename", "schema", value="Test1"), "Test1.Actor", {}),
    "table": (transformation("test.Actor", "rename", "table", value="Actor1"), "test.Actor1", {}),
    "lower": (transformation("test.Actor", "convert-lowercase", "table"), "test.actor", {}),
    "prefix": (transformation("test.%", "add-prefix", "table", value="DMS_"), "test.DMS_Actor", {}),
    "suffix": (transformation("test.%", "remove-suffix", "table", value="or"), "test.Act", {}),
    "key": (
        transformation("%.%", "replace-prefix", "column", "%", **{"value": "new_", "old-value": "i"}),
        "test.Actor",
        {"keys": ["new_d"]},
    ),
    "upper": (transformation("%.%", "convert-uppercase", "column", "%"), "test.Actor", {"keys": ["ID"]}),
    "removed": (transformation("test.Actor", "remove-column", "column", "col%"), "test.Actor", {}),
    "type": (
        transformation("test.Actor", "change-data-type", "column", "n", **{"data-type": {"type": "int8"}}),
        "test.Actor",
        {},
    ),
    "images": (
        transformation(
            "%.Actor",
            "add-before-image-columns",
            "column",
            **{"before-image-def": {"column-prefix": "BI_", "column-suffix": ""}},
        ),
        "test.Actor",
        {"before_image_prefix": "BI_"},
    ),
    "sequence": (
        transformation("%.%", "add-column", "column", value="seq", expression="$AR_H_CHANGE_SEQ"),
        "test.Actor",
        {"sequence_by": "seq"},
    ),
    "time": (
        transformation("%.%", "add-column", "column", value="at", expression="$AR_H_COMMIT_TIMESTAMP"),
        "test.Actor",
        {"options": {"timestamp_column": "at"}},
    ),
}


@pytest.mark.parametrize(("rule", "name", "fields"), TRANSFORMED.values(), ids=TRANSFORMED)
def test_transformations_name_what_lands(rule: dict[str, Any], name: str, fields: dict[str, Any], shop: Shop) -> None:
    rows, left = proposed(shop, mapping(ACTOR, KEY, rule))
    found = rows[name]
    assert {"keys": ["id"], **fields} == {
        field: value[0] if field == "sequence_by" and isinstance(value, list) else value
        for field, value in found.items()
    }
    assert left == []


FILTERS: dict[str, tuple[list[dict[str, Any]], str]] = {
    "one": ([filtered({"filter-operator": "gte", "value": "100"})], "empid >= 100"),
    "any": (
        [
            filtered(
                {"filter-operator": "lte", "value": "10"},
                {"filter-operator": "between", "start-value": "50", "end-value": "75"},
            )
        ],
        "(empid <= 10 or empid between 50 and 75)",
    ),
    "all": (
        [
            filtered({"filter-operator": "noteq", "value": "50"}),
            filtered({"filter-operator": "notnull"}, column="dept"),
        ],
        "empid <> 50 and dept is not null",
    ),
    "text": ([filtered({"filter-operator": "eq", "value": "o'tech"}, column="dept")], "dept = 'o''tech'"),
}


@pytest.mark.parametrize(("filters", "condition"), FILTERS.values(), ids=FILTERS)
def test_filters_stay_with_the_task_and_are_named(filters: list[dict[str, Any]], condition: str, shop: Shop) -> None:
    rows, left = proposed(shop, mapping(selection("test.employee", filters=filters), KEY))
    assert rows == {"test.employee": {"keys": ["id"]}}
    assert left == [
        (
            f"rule 1: the filter {condition}: the task goes on filtering; "
            "without the task, write it as `where` of the metadata row"
        )
    ]
    assert f"where? {condition}" in (shop.folder / "metadata/tables/old.yaml").read_text()


def test_selections_take_explicit_tables_and_leave_out_excluded_ones(shop: Shop) -> None:
    excluded = selection("Test.DMS%", "exclude")
    rows, left = proposed(
        shop,
        mapping(
            selection("Test.DMS_a"),
            selection("NewCust.Customer", "explicit"),
            selection("s.order[_]lines"),
            excluded,
            KEY,
            selection("Test.%"),
            selection("report.v", locator={"table-type": "view"}, **{"load-order": "2"}),
        ),
    )
    assert sorted(rows) == ["NewCust.Customer", "report.v", "s.order_lines"]
    assert [line.partition(":")[0] for line in left] == ["rule 1", "rule 1", "tables", "tables"]
    assert "it selects view" in left[0]
    assert "load-order" in left[1]
    assert "--connection" in left[2]


def test_settings_of_the_endpoint_become_options(shop: Shop) -> None:
    settings = {
        "BucketName": "raw",
        "BucketFolder": "cdc/",
        "DataFormat": "csv",
        "AddColumnName": True,
        "CsvDelimiter": ";",
        "CsvRowDelimiter": "\\r\\n",
        "CsvNullValue": "",
        "UseCsvNoSupValue": True,
        "CsvNoSupValue": "NO",
        "Rfc4180": False,
        "TimestampColumnName": "ts",
        "DatePartitionEnabled": True,
        "DatePartitionSequence": "YYYYMMDDHH",
        "DatePartitionDelimiter": "UNDERSCORE",
        "CdcInsertsOnly": True,
        "IncludeOpForFullLoad": False,
        "PreserveTransactions": True,
    }
    rows, left = proposed(shop, mapping(ACTOR, KEY), {"Endpoints": [{"S3Settings": settings}]})
    assert rows["test.Actor"]["options"] == {
        "csv_header": True,
        "csv_delimiter": ";",
        "csv_row_delimiter": "\r\n",
        "csv_null": "",
        "csv_no_sup": "NO",
        "csv_quotes": False,
        "timestamp_column": "ts",
        "date_partition": "YYYYMMDDHH",
        "date_delimiter": "underscore",
        "missing_op": "insert",
    }
    assert [line.removeprefix("endpoint: ")[:24] for line in left] == [
        "CSV has no types: set Da",
        "CdcInsertsOnly: updates ",
        "its files are below s3:/",
        "PreserveTransactions: fi",
    ]


def test_delimiters_that_are_control_characters_are_written_as_metadata_hold_them(shop: Shop) -> None:
    settings = {"DataFormat": "csv", "CsvDelimiter": "\x01", "CsvRowDelimiter": "\x1e\n"}
    rows, _ = proposed(shop, mapping(ACTOR, KEY), {"Endpoints": [{"S3Settings": settings}]})
    options = rows["test.Actor"]["options"]
    assert (options["csv_delimiter"], options["csv_row_delimiter"]) == (r"\x01", "\\x1e\n")


def test_parquet_needs_no_options_of_csv_and_a_described_task_is_read_whole(shop: Shop) -> None:
    task = {
        "TableMappings": json.dumps(mapping(ACTOR, KEY)),
        "ReplicationTaskSettings": json.dumps({"FullLoadSettings": {"TargetTablePrepMode": "DROP_AND_CREATE"}}),
    }
    rows, left = proposed(
        shop, {"ReplicationTasks": [task]}, {"S3Settings": {"DataFormat": "parquet", "CsvDelimiter": ","}}
    )
    assert rows == {"test.Actor": {"keys": ["id"]}}
    assert [line.partition(",")[0] for line in left] == ["task settings: TargetTablePrepMode is DROP_AND_CREATE"]


def test_tables_without_keys_wait_for_them(shop: Shop) -> None:
    rows, _ = proposed(shop, mapping(ACTOR))
    assert rows == {"test.Actor": {"enabled": False, "keys": []}}


def test_a_connector_of_debezium(shop: Shop) -> None:
    rows, left = proposed(shop, CONNECTOR)
    assert rows["public.orders"] == {"dialect": "debezium", "keys": ["id", "line"]}
    assert rows["public.inventory"] == {"dialect": "debezium", "enabled": False, "keys": []}
    assert [line.partition(":")[0] for line in left] == ["topic.prefix"]
    written = "".join(path.read_text() for path in (shop.folder / "metadata").rglob("old.*"))
    assert "never-shown" not in written + str(left)


def test_flat_events_and_what_a_connector_loses(shop: Shop) -> None:
    config = {
        **CONNECTOR["config"],
        "transforms": "unwrap,mine",
        "transforms.mine.type": "com.example.Mine",
        "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
        "transforms.unwrap.add.fields": "op:OP,source.lsn",
        "transforms.unwrap.add.fields.prefix": "_",
        "transforms.unwrap.delete.tombstone.handling.mode": "drop",
        "unavailable.value.placeholder": "gone",
        "decimal.handling.mode": "double",
        "skipped.operations": "d",
        "column.mask.with.12.chars": "public.orders.email",
    }
    rows, left = proposed(shop, config)
    options = {"unavailable": "gone", "flat_prefix": "_", "flat_deletes": "drop", "flat_fields": {"op": "OP"}}
    assert rows["public.orders"]["options"] == options
    assert sorted(line.partition(":")[0] for line in left) == [
        "column.mask.with.12.chars",
        "decimal.handling.mode",
        "skipped.operations",
        "topic.prefix",
        "transforms.mine",
    ]


def test_an_onboarding_file_of_sdp_meta(shop: Shop) -> None:
    kafka = {
        **FLOW,
        "source_format": "kafka",
        "source_details": {"subscribe": "iot"},
        "silver_table": "iot",
        "silver_database_dev": "s",
    }
    rows, left = proposed(shop, [FLOW, kafka])
    assert rows == {
        "APP.CUSTOMERS": {
            "keys": ["id"],
            "sequence_by": ["operation_date"],
            "history": True,
            "exclude_columns": ["secret"],
            "description": "Customers",
            "cluster_by": ["id", "email"],
            "options": {"op_column": "operation", "csv_header": True},
        }
    }
    assert [line[: line.index(":", line.index(":") + 1)] for line in left] == [
        "APP.CUSTOMERS: silver_data_quality_expectations_json",
        "APP.CUSTOMERS: silver_transformation_json",
        "APP.CUSTOMERS: silver_table_properties (pipelines.reset.allowed)",
        "s.iot: it reads kafka",
    ]


def test_yaml_is_read_alike(shop: Shop) -> None:
    rows, _ = proposed(shop, yaml.safe_dump([FLOW]))
    assert rows["APP.CUSTOMERS"]["keys"] == ["id"]


WRONG: dict[str, str] = {
    "empty": "",
    "text": "hello",
    "cut": '{"rules": [',
    "other": '{"a": 1}',
    "no locator": '{"rules": [{"rule-type": "selection"}]}',
    "rules": '{"rules": {"a": 1}}',
    "deep": "[" * 100_000,
    "mapping": '{"TableMappings": "{"}',
    "dates": '{"S3Settings": {"BucketName": "b", "DatePartitionEnabled": true, "DatePartitionSequence": "Y"}}',
}


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG)
def test_other_documents_are_refused_by_name(text: str) -> None:
    with pytest.raises(MetadataError) as refused:
        read({"old.json": text})
    assert (refused.value.code, "old.json" in str(refused.value)) == ("ONBOARD_REFUSED", True)


def test_without_the_room_onboard_says_what_is_missing(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys  # noqa: PLC0415 - for this test alone

    monkeypatch.setitem(sys.modules, "airflow_gddl.tools.onboarding.from_files", None)
    answer = onboarded(shop, mapping(ACTOR))
    assert (answer.status, "[COMMAND_MISSING]" in answer.err) == (2, True)


def test_what_you_have_edited_stays(shop: Shop) -> None:
    rows, _ = proposed(shop, mapping(ACTOR, KEY))
    path: Path = shop.folder / "metadata/tables/old.yaml"
    path.write_text(path.read_text().replace("test.Actor", "test.Actor, history: true"))
    assert proposed(shop, mapping(ACTOR, KEY))[0] == {"test.Actor": {**rows["test.Actor"], "history": True}}


def test_commands_of_the_page(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A diff first, then the files, which are valid."""
    text = page("onboarding.md").partition("## From what you have\n")[2].partition("\n## ")[0]
    commands = [line.split()[1:] for line in text.splitlines() if line.startswith("gddl ")]
    shop.write("task.json", json.dumps(mapping(selection("crm.orders"), KEY)))
    shop.write("endpoint.json", json.dumps({"S3Settings": {"DataFormat": "parquet", "TimestampColumnName": "ts"}}))
    monkeypatch.chdir(shop.folder)
    assert [shop.gddl(*command).status for command in commands] == [1, 0, 0]
    (row,) = yaml.safe_load((shop.folder / "metadata/tables/shop.yaml").read_text())["tables"]
    assert row == {"table": "crm.orders", "options": {"timestamp_column": "ts"}}


def test_a_database_shows_tables_and_keys_that_files_do_not() -> None:
    """Its names are the source's; those of rows are what lands."""
    lower = transformation("%.%", "convert-lowercase", "column", "%")
    renamed = transformation("SALES.%", "rename", "schema", value="sales")
    text = json.dumps(mapping(selection("SALES.%"), selection("SALES.TMP%", "exclude"), lower, renamed))
    key = KeyFact(columns=("ID",), evidence="primary key")
    tables = [TableFacts(table=name, key=key, rows=7) for name in ("SALES.ORDERS", "SALES.TMP_1", "HR.PEOPLE")]
    facts = read({"task.json": text}).facts(SourceFacts(tables=tuple(tables)))
    assert [(table.table, table.key and table.key.columns, table.rows) for table in facts.tables] == [
        ("sales.ORDERS", ("id",), 7)
    ]
    assert facts.notices == ()


def test_settings_alone_are_of_the_tables_that_are_found(shop: Shop) -> None:
    settings = {"BucketName": "raw", "DataFormat": "parquet", "TimestampColumnName": "ts"}
    nothing = onboarded(shop, settings)
    assert (nothing.status, "ONBOARD_NOTHING_FOUND" in nothing.err + nothing.out) == (2, True)
    told = read({"endpoint.json": json.dumps(settings)})
    known = SourceFacts(tables=(TableFacts(table="shop.orders"), TableFacts(table="shop.people")))
    assert [(one.table, one.fields) for one in told.facts(known).tables] == [
        ("shop.orders", {"options.timestamp_column": "ts"}),
        ("shop.people", {"options.timestamp_column": "ts"}),
    ]
