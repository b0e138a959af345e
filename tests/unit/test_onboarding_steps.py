"""What `gddl onboard` says to do next: settings of a DMS task that can be pasted, folders, commands."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_gddl.cli.context import real
from airflow_gddl.cli.main import invoke
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.tools.onboarding.commands import next_steps
from airflow_gddl.tools.onboarding.plan import TASK_SETTINGS, endpoint_settings, pasted, table_mapping

ORDERS = TableSpec(table="sales.order_lines", keys=("order_id", "line_no"), before_image_prefix="BI_")
LOG = TableSpec(table="sales.log", keys=())
SEQUENCE = {
    "rule-type": "transformation",
    "rule-id": "3",
    "rule-name": "rule-3",
    "rule-target": "column",
    "object-locator": {"schema-name": "%", "table-name": "%"},
    "rule-action": "add-column",
    "value": "AR_H_CHANGE_SEQ",
    "expression": "$AR_H_CHANGE_SEQ",
    "data-type": {"type": "string", "length": 35},
}


def test_the_table_mapping_selects_these_tables_alone_and_orders_their_changes() -> None:
    mapping = table_mapping([LOG, ORDERS])
    lines = {"schema-name": "sales", "table-name": "order[_]lines"}
    include = {"rule-type": "selection", "rule-action": "include", "filters": []}
    images = {"column-prefix": "BI_", "column-suffix": "", "column-filter": "pk-only"}
    log = {"schema-name": "sales", "table-name": "log"}
    assert mapping["rules"] == [
        {**include, "rule-id": "1", "rule-name": "rule-1", "object-locator": log},
        {**include, "rule-id": "2", "rule-name": "rule-2", "object-locator": lines},
        SEQUENCE,
        {
            "rule-type": "transformation",
            "rule-id": "4",
            "rule-name": "rule-4",
            "rule-target": "column",
            "object-locator": lines,
            "rule-action": "add-before-image-columns",
            "before-image-def": images,
        },
    ]
    assert json.loads(pasted(mapping)) == mapping
    assert len(pasted(mapping).splitlines()) == 6, "a line a rule"


def test_the_endpoint_is_that_of_the_landing_root() -> None:
    settings = endpoint_settings("s3://raw/cdc/shop")
    assert (settings["BucketName"], settings["BucketFolder"]) == ("raw", "cdc/shop")
    assert (settings["DataFormat"], settings["IncludeOpForFullLoad"]) == ("parquet", True)
    assert endpoint_settings("/landing")["BucketName"] == "BUCKET"


def test_steps_after_a_database() -> None:
    assert list(next_steps([LOG], "s3://raw/cdc", "meta", from_database=True)) == [
        "",
        "Next steps:",
        "- AWS DMS: create a task of type full-load-and-cdc. Table mapping:",
        pasted(table_mapping([LOG])),
        "  Task settings:",
        json.dumps(TASK_SETTINGS),
        "  Settings of its target endpoint, which is of type S3:",
        json.dumps(endpoint_settings("s3://raw/cdc")),
        "- Files are expected in:",
        "  s3://raw/cdc/sales/log/",
        "- gddl check --metadata meta        # folders, permissions, connections, versions",
        "- gddl run --metadata meta",
    ]


def test_steps_of_debezium_name_its_connector() -> None:
    lines = list(next_steps([replace(ORDERS, dialect="debezium")], "s3://raw/cdc", "metadata", from_database=True))
    assert lines[2].startswith("- Debezium: create a source connector")
    settings = json.loads(lines[3])
    assert re.fullmatch(settings["table.include.list"], "sales.order_lines")
    topic = re.fullmatch(settings["transforms.route.regex"], "shop.sales.order_lines")
    assert topic is not None
    assert (topic[1], settings["skipped.operations"]) == ("order_lines", "none")
    assert not any("DMS" in line for line in lines)


def test_steps_after_a_landing_folder_name_a_few_folders() -> None:
    many = [TableSpec(table=f"s.t{n}", keys=("id",)) for n in range(7)]
    lines = list(next_steps(many, "/landing", "metadata", from_database=False))
    assert lines[2:4] == ["- Files are expected in:", "  /landing/s/t0/"]
    assert lines[-3:] == [
        "  and 2 more folders, /landing/SCHEMA/TABLE/",
        "- gddl check        # folders, permissions, connections, versions",
        "- gddl run",
    ]
    assert not any("DMS" in line for line in lines)


def test_an_empty_landing_folder_is_answered_with_where_files_lie(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    landing, metadata = tmp_path / "landing", tmp_path / "metadata"
    landing.mkdir()
    metadata.mkdir()
    (metadata / "gddl.yaml").write_text("landing: ../landing\nlake: ../lake\n")
    assert invoke(["onboard", "shop", "--metadata", str(metadata)], real()) == 2
    assert " ".join(capsys.readouterr().err.split()) == (
        f"[ONBOARD_NOTHING_FOUND] no table has files of AWS DMS there ({landing}). Remedy: check landing, --schema and "
        "--table; files lie in <landing>/<schema>/<table>/, named as DMS names them; for files of another service, "
        "read the database: --connection NAME"
    )


def test_a_source_whose_log_jobs_read_needs_a_file_of_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other commands do without one where variables name the roots."""
    monkeypatch.setenv("GDDL_LANDING", str(tmp_path / "landing"))
    monkeypatch.setenv("GDDL_LAKE", str(tmp_path / "lake"))
    command = ["onboard", "crm", "--capture", "--connection", "GDDL_SOURCE_CRM", "--metadata", str(tmp_path)]
    assert invoke(command, real()) == 2
    assert " ".join(capsys.readouterr().err.split()) == (
        f"[SETTINGS_INVALID] gddl.yaml: there is no such file ({tmp_path}). Remedy: write it with `landing` and "
        "`lake`, which variables name now: the source is declared there"
    )
