"""`gddl inspect` on landing folders with each trouble: what is found, where, and that nothing else is."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_gddl.cli.context import real
from airflow_gddl.cli.main import invoke
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.onboarding import commands
from airflow_gddl.onboarding.inspection import Finding, inspect_folder, judge
from airflow_gddl.onboarding.landing import Landing
from airflow_gddl.simulate.simulator import simulate
from airflow_gddl.simulate.spec import SimulateSpec, TableShape
from tests.harness.dms_forms import DmsForm, rewrite

ROWS = pa.table(
    {
        "id": range(80),
        "at": pa.array([datetime(2024, 1, 1, tzinfo=UTC)] * 80, pa.timestamp("us", "UTC")),
        "name": [f"n{i}" for i in range(80)],
    }
)
SPEC = TableSpec(table="shop.t", keys=("id",))
GOOD = DmsForm(op_in_load=True)
CHANGE = {"Op": ["U"], "id": [1], "transact_seq": ["1"]}


def landed(folder: Path, form: DmsForm = GOOD) -> Path:
    spec = SimulateSpec(
        input={"t": ROWS},
        landing=folder,
        schema="shop",
        tables={"t": TableShape(keys=("id",))},
        rounds=2,
        changes=20,
    )
    simulate(spec)
    rewrite(folder, form)
    return folder


def findings(folder: Path, spec: TableSpec | None = SPEC) -> list[Finding]:
    landing = Landing(str(folder), {})
    return [found for table in landing.folders() for found in judge(inspect_folder(landing, table, spec))]


def only(folder: Path, code: str, spec: TableSpec | None = SPEC) -> Finding:
    found = findings(folder, spec)
    assert [one.code for one in found] == [code], found
    return found[0]


def put(folder: Path, name: str, columns: dict[str, Any], **how: Any) -> None:
    path = folder / "shop" / "t" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path, **how)


def metadata_with(folder: Path, row: str) -> Path:
    metadata = folder / "metadata"
    (metadata / "tables").mkdir(parents=True)
    (metadata / "gddl.yaml").write_text("landing: ../landing\nlake: ../lake\n")
    (metadata / "tables" / "shop.yaml").write_text(f"tables:\n- {row}\n")
    return metadata


def test_a_well_configured_service_has_no_findings(tmp_path: Path) -> None:
    assert findings(landed(tmp_path)) == []
    assert findings(landed(tmp_path / "b", replace(GOOD, ar_h=True, before_images="BI_")), None) == []


def test_no_column_states_the_order(tmp_path: Path) -> None:
    put(tmp_path, "20240101-000000000.parquet", {"Op": ["I"], "id": [1]})
    found = only(tmp_path, "INSPECT_NO_SEQUENCE")
    assert (found.level, found.evidence) == ("error", "columns Op, id")
    assert '"$AR_H_CHANGE_SEQ"' in found.setting
    assert "add-column" in found.setting


def test_a_sequence_that_the_row_names_and_the_files_lack(tmp_path: Path) -> None:
    found = only(landed(tmp_path), "INSPECT_NO_SEQUENCE", replace(SPEC, sequence_by=("scn",)))
    assert found.evidence == "sequence_by names scn, which the file lacks"


@pytest.mark.parametrize("named", [(), ("dms_timestamp",)])
def test_the_commit_time_is_used_as_the_order(tmp_path: Path, named: tuple[str, ...]) -> None:
    spec = replace(SPEC, sequence_by=named)
    folder = landed(tmp_path, replace(GOOD, sequence="other"))
    assert only(folder, "INSPECT_ORDER_BY_COMMIT_TIME", spec).evidence.startswith("dms_timestamp, and none of")


def test_a_sequence_of_ones_own_is_fine(tmp_path: Path) -> None:
    folder = landed(tmp_path, replace(GOOD, sequence="other"))
    assert findings(folder, replace(SPEC, sequence_by=("other",))) == []


def test_times_that_come_as_text_are_found(tmp_path: Path) -> None:
    folder = landed(tmp_path, replace(GOOD, times=pa.string()))
    found = only(folder, "INSPECT_TEXT_TIMESTAMPS")
    assert found.evidence.startswith("at holds '20")
    assert "datetime" in found.setting
    assert findings(folder, replace(SPEC, options={"types": {"at": "timestamp"}})) == []


def test_tiny_row_groups_are_found(tmp_path: Path) -> None:
    many = {"Op": ["I"] * 3000, "id": range(3000), "transact_seq": [f"{n:09}" for n in range(3000)]}
    put(tmp_path, "LOAD00000001.parquet", many, row_group_size=100)
    found = only(tmp_path, "INSPECT_SMALL_ROW_GROUPS")
    assert (found.file, found.evidence) == ("LOAD00000001.parquet", "30 row groups of 100 rows; 1 such files")
    assert "RowGroupLength" in found.setting


def test_a_small_file_of_one_row_group_is_not_tiny(tmp_path: Path) -> None:
    put(tmp_path, "LOAD00000001.parquet", {"Op": ["I"], "id": [1], "transact_seq": ["1"]})
    assert findings(tmp_path) == []


def test_a_full_load_without_its_operation(tmp_path: Path) -> None:
    found = only(landed(tmp_path, DmsForm()), "INSPECT_FULL_LOAD_WITHOUT_OP")
    assert (found.level, found.file) == ("warning", "LOAD00000001.parquet")
    assert found.setting == "endpoint: IncludeOpForFullLoad true"


@pytest.mark.parametrize(
    ("lengths", "cut"),
    [
        ((2048, 2048, 10), True),
        ((2048, 10), False),
        ((2048, 2048, 2049), False),
        ((1000, 1000), False),
        ((0, 0), False),
    ],
)
def test_large_objects_that_were_cut(tmp_path: Path, lengths: tuple[int, ...], cut: bool) -> None:
    texts = [letter * length for letter, length in zip("xyz", lengths, strict=False)]
    put(tmp_path, "LOAD00000001.parquet", {"Op": ["I"] * len(texts), "id": range(len(texts)), "blob": texts})
    if not cut:
        assert findings(tmp_path) == []
        return
    found = only(tmp_path, "INSPECT_LOB_TRUNCATED")
    assert found.evidence == "blob: 2 values of exactly 2 KB, none longer"
    assert "LobMaxSize" in found.setting


@pytest.mark.parametrize("padding", [" ", "\0"])
def test_what_fills_a_column_of_fixed_width_was_not_cut(tmp_path: Path, padding: str) -> None:
    texts = [text.ljust(1024, padding) for text in ("a", "b", "c")]
    put(tmp_path, "LOAD00000001.parquet", {"Op": ["I"] * 3, "id": range(3), "name": texts})
    assert findings(tmp_path) == []


def test_one_value_that_comes_with_every_change_of_its_row_was_not_cut(tmp_path: Path) -> None:
    put(tmp_path, "LOAD00000001.parquet", {"Op": ["I"], "id": [1], "text": ["x" * 2048]})
    for day in (1, 2):
        put(tmp_path, f"2024010{day}-000000000.parquet", {**CHANGE, "text": ["x" * 2048]})
    assert findings(tmp_path) == []
    put(tmp_path, "20240103-000000000.parquet", {**CHANGE, "text": ["y" * 2048]})
    assert only(tmp_path, "INSPECT_LOB_TRUNCATED").evidence == "text: 2 values of exactly 2 KB, none longer"


def test_row_groups_of_few_long_rows_are_not_tiny(tmp_path: Path) -> None:
    long = [hashlib.shake_128(bytes([n])).digest(60_000 + n) for n in range(100)]
    put(tmp_path, "LOAD00000001.parquet", {"Op": ["I"] * 100, "id": range(100), "scan": long}, row_group_size=50)
    assert findings(tmp_path) == []


def test_names_of_the_row_are_found_whatever_their_case(tmp_path: Path) -> None:
    put(tmp_path, "LOAD00000001.parquet", {"Op": ["I"], "ID": [1], "NOTE": ["2024-01-01 10:00:00"]})
    spec = replace(SPEC, options={"types": {"note": "timestamp"}})
    assert findings(tmp_path, spec) == []
    put(tmp_path, "20240101-000000000.parquet", {"Op": ["U"], "ID": [2], "transact_seq": ["1"]})
    assert only(tmp_path, "INSPECT_NO_BEFORE_IMAGES", spec).evidence.startswith("update of 2, which no row had")


def test_keys_are_tracked_up_to_a_number_of_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "LOAD00000001.parquet", {"Op": ["I"], "id": [1]})
    for number in range(40):
        put(tmp_path, f"20240101-0000{number:05}.parquet", {"Op": ["U"] * 4, "id": [2] * 4, "transact_seq": ["1"] * 4})
    monkeypatch.setattr("airflow_gddl.onboarding.inspection.MOST_KEYED_ROWS", 120)
    assert findings(tmp_path) == [], "25 footers tell of 100 rows, the files have 161"
    monkeypatch.setattr("airflow_gddl.onboarding.inspection.MOST_KEYED_ROWS", 200)
    assert only(tmp_path, "INSPECT_NO_BEFORE_IMAGES").evidence.startswith("update of 2, which no row had")


def test_times_in_several_units(tmp_path: Path) -> None:
    found = only(landed(tmp_path, replace(GOOD, times=pa.timestamp("ms", "UTC"))), "INSPECT_MIXED_TIMESTAMP_UNITS")
    assert "in us" in found.evidence
    assert "in ms" in found.evidence
    assert "ParquetTimestampInMillisecond" in found.setting


def test_a_column_that_changes_its_unit(tmp_path: Path) -> None:
    for name, unit in (("20240101-000000000.parquet", "us"), ("20240102-000000000.parquet", "ms")):
        put(tmp_path, name, {**CHANGE, "at": pa.array([0], pa.timestamp(unit))})
    found = only(tmp_path, "INSPECT_MIXED_TIMESTAMP_UNITS")
    assert found.evidence == "at in ms, at in us (20240101-000000000.parquet)"


def test_updated_keys_without_before_images(tmp_path: Path) -> None:
    folder = landed(tmp_path)
    put(tmp_path, "20250101-000000000.parquet", {**CHANGE, "id": [9_999]})
    found = only(folder, "INSPECT_NO_BEFORE_IMAGES")
    assert found.evidence.startswith("update of 9999, which no row had before")
    assert "add-before-image-columns" in found.setting
    assert findings(folder, None) == [], "without keys nobody can tell"


def test_updated_keys_with_before_images_are_fine(tmp_path: Path) -> None:
    folder = landed(tmp_path, replace(GOOD, before_images="BI_"))
    put(tmp_path, "20250101-000000000.parquet", {**CHANGE, "id": [9_999], "BI_id": [1]})
    assert findings(folder, replace(SPEC, before_image_prefix="BI_")) == []


def test_a_prefix_that_no_column_has(tmp_path: Path) -> None:
    found = only(landed(tmp_path), "INSPECT_NO_BEFORE_IMAGES", replace(SPEC, before_image_prefix="BI_"))
    assert found.evidence == "before_image_prefix is BI_, and no column begins with it"


def test_csv_and_truncated_files_are_reported(tmp_path: Path) -> None:
    text = tmp_path / "a" / "shop" / "t" / "20240101-000000000.csv"
    text.parent.mkdir(parents=True)
    text.write_text("I,1,2024-01-01 00:00:00.000000,n1\n")
    assert only(tmp_path / "a", "INSPECT_NOT_PARQUET").evidence == "1 file"
    folder = landed(tmp_path / "b")
    (folder / "shop/t/LOAD00000001.parquet").write_bytes(b"PAR1")
    found = {one.code: one for one in findings(folder)}
    assert found["INSPECT_FILE_UNREADABLE"].file == "LOAD00000001.parquet"


def test_the_command_prints_findings_and_says_so_by_its_status(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    landed(tmp_path, DmsForm())
    command = ["inspect", "--landing", str(tmp_path), "--metadata", str(tmp_path / "none")]
    assert invoke([*command, "--json"], real()) == 1
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(one["table"], one["code"]) for one in records] == [("shop.t", "INSPECT_FULL_LOAD_WITHOUT_OP")]
    assert invoke(command, real()) == 1
    assert "set: endpoint: IncludeOpForFullLoad true" in capsys.readouterr().out


def test_the_command_reports_only_findings_and_refuses_missing_folders(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    metadata = metadata_with(tmp_path, "{table: shop.t, keys: [id]}")
    assert invoke(["inspect", "--metadata", str(metadata)], real()) == 2
    assert "INSPECT_NOTHING_FOUND" in capsys.readouterr().err
    landed(tmp_path / "landing")
    assert invoke(["inspect", "--metadata", str(metadata), "--table", "shop.t"], real()) == 0
    assert "1 table, no findings" in capsys.readouterr().out
    assert invoke(["inspect", "--metadata", str(metadata), "--table", "../x.y"], real()) == 2
    assert "TABLE_NAME_INVALID" in capsys.readouterr().err


def test_files_that_the_row_says_another_service_writes_are_not_judged_by_the_rules_of_this_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    metadata = metadata_with(tmp_path, "{table: shop.t, keys: [id], dialect: debezium}")
    event = {"after": [{"id": 1}], "op": ["c"], "ts_ms": [1], "source": [{"lsn": 1}]}
    put(tmp_path / "landing", "20240101-000000000.parquet", event)
    assert invoke(["inspect", "--metadata", str(metadata)], real()) == 0
    assert "1 table, no findings" in capsys.readouterr().out


_ROWS = "I,1,1,Ada,London,ABC\nU,2,1,Bo,{word},{word}\n"


@pytest.mark.parametrize(("options", "text", "named"), [
    ({}, _ROWS.format(word="NOT_SUPPLIED"), None), ({}, _ROWS.format(word="NO_SUP"), "csv_no_sup"),
    ({"csv_no_sup": "NO_SUP"}, _ROWS.format(word="NO_SUP"), None), ({}, _ROWS.format(word="NULL"), None),
    ({}, _ROWS.format(word="ABC"), None), ({}, _ROWS.format(word="12.5"), None),
    ({}, _ROWS.format(word="x").replace("\n", "\r"), "csv_row_delimiter"),
    ({"csv_row_delimiter": "\r"}, _ROWS.format(word="x").replace("\n", "\r"), None),
    ({}, 'I,1,1,Ada,5" disk,x\n', "csv_quotes"), ({"csv_quotes": False}, 'I,1,1,Ada,5" disk,x\n', None),
    ({}, 'I,1,1,Ada,"5"" disk",x\n', None), ({}, 'I,1,1,Ada,"5",x\n', "csv_quotes"),
    ({"csv_quotes": True}, 'I,1,1,Ada,"5",x\n', None), ({}, 'I,1,1,Ada,b,"x\nI,2,2,Bo,c,y"\n', "csv_quotes"),
    ({}, "I,1,1,Ada,,x\n", "csv_null"), ({}, "I,1,1,Ada,,x\nI,2,2,NULL,,x\n", None),
    ({"csv_null": ""}, "I,1,1,Ada,,x\n", None), ({}, "I,1,1,Ada,b,x,new\n", "csv_columns"),
    ({"csv_added": ["v"]}, "I,1,1,Ada,b\nI,1,1,Ada,b,x\n", None),
])  # fmt: skip
def test_settings_that_csv_shows(tmp_path: Path, options: dict[str, Any], text: str, named: str | None) -> None:
    path = tmp_path / "shop" / "t" / "20240101-000000001.csv"
    path.parent.mkdir(parents=True)
    path.write_bytes(text.encode())
    spec = replace(SPEC, options={"csv_columns": ["seq", "id", "name", "city", "v"], **options})
    found = [one for one in findings(tmp_path, spec) if one.code == "INSPECT_CSV_SETTING"]
    assert [one.evidence.partition(":")[0] for one in found] == ([] if named is None else [named])


def test_a_table_of_another_dialect_is_named_as_left_out() -> None:
    spec = TableSpec(table="shop.t", keys=("id",), dialect="pipes")
    places = {"/landing": {"shop.t": spec, "shop.u": replace(spec, table="shop.u", dialect="dms")}}
    assert str(commands._nothing_found(places, frozenset())).count("shop.t (pipes)") == 1
    assert "left out" not in str(commands._nothing_found(places, frozenset({"shop.u"})))
