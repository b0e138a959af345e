"""What `gddl inspect` says of files of Debezium."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_gddl.cli.context import real
from airflow_gddl.cli.main import invoke
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.onboarding.inspection import Finding, debezium_findings
from airflow_gddl.onboarding.landing import Landing
from tests.debezium.flattening import flat
from tests.debezium.probing import event, text
from tests.debezium.topic import parquet

GOOD = flat(event("c", {"id": 1, "v": "a"}))


def without(*names: str) -> dict[str, Any]:
    return {name: value for name, value in GOOD.items() if name not in names}


def findings(root: Path, content: bytes | str, name: str = "t+0+1.json", **options: Any) -> tuple[Finding, ...]:
    path = root / "shop" / "t" / "partition=0" / name
    path.parent.mkdir(parents=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    spec = TableSpec(table="shop.t", keys=("id",), dialect="debezium", options=options)
    there, found = debezium_findings(Landing(str(root), {}), "shop.t", spec)
    assert there
    return found


@pytest.mark.parametrize("content", [
    text(event("c", {"id": 1})), text(None, GOOD), text({"schema": None, "payload": GOOD}), json.dumps([GOOD, GOOD]),
    json.dumps([GOOD, GOOD], indent=1), text(json.dumps(GOOD)), gzip.compress(text(GOOD).encode()),
    parquet(pa.Table.from_pylist([GOOD])), parquet(pa.table({"key": ["k"], "value": [GOOD]})), text(None),
], ids=["envelope", "tombstone first", "with schema", "array", "array on lines", "text", "gzip", "parquet",
        "parquet of records", "tombstone"])  # fmt: skip
def test_good_files_have_no_findings(tmp_path: Path, content: bytes | str) -> None:
    assert findings(tmp_path, content) == ()


@pytest.mark.parametrize(("missing", "setting"), [
    ("__deleted", "delete.tombstone.handling.mode=rewrite"), ("__source_lsn", "source.lsn"),
    ("__source_snapshot", "source.snapshot"), ("__source_ts_ms", "source.ts_ms"),
])  # fmt: skip
@pytest.mark.parametrize("form", ["json", "parquet"])
def test_missing_fields_are_named(tmp_path: Path, missing: str, setting: str, form: str) -> None:
    row = without(missing)
    content = parquet(pa.Table.from_pylist([row])) if form == "parquet" else text(row)
    (found,) = findings(tmp_path, content, f"t+0+1.{form}")
    assert (found.code, found.table, found.level) == ("INSPECT_FLAT_EVENT_INCOMPLETE", "shop.t", "error")
    assert setting in found.setting
    assert found.file == f"partition=0/t+0+1.{form}"


def test_what_the_row_says_counts(tmp_path: Path) -> None:
    row = without("__deleted", "__source_snapshot")
    assert findings(tmp_path, text(row), flat_deletes="drop", snapshots="merge") == ()


def test_rows_that_are_no_events(tmp_path: Path) -> None:
    (found,) = findings(tmp_path, text({"id": 1, "v": "a"}))
    assert (found.code, found.evidence) == ("INSPECT_NO_EVENTS", "fields id, v")
    assert "add.fields" in found.setting


@pytest.mark.parametrize("content", ['{"op": "c", "aft', b"PAR1 and no more", b"\x1f\x8b\x08 and no more"])
def test_files_that_cannot_be_read(tmp_path: Path, content: bytes | str) -> None:
    (found,) = findings(tmp_path, content)
    assert found.code == "INSPECT_FILE_UNREADABLE"


def test_the_command_prints_findings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    metadata = tmp_path / "metadata"
    (metadata / "tables").mkdir(parents=True)
    (metadata / "gddl.yaml").write_text(f"landing: {tmp_path / 'landing'}\nlake: {tmp_path / 'lake'}\n")
    (metadata / "tables" / "shop.yaml").write_text("tables:\n  - {table: shop.t, keys: [id], dialect: debezium}\n")
    folder = tmp_path / "landing" / "shop" / "t"
    folder.mkdir(parents=True)
    (folder / "t+0+1.json").write_text(text(without("__source_lsn", "__source_connector")))
    assert invoke(["inspect", "--metadata", str(metadata), "--table", "shop.t"], real()) == 1
    assert "[INSPECT_FLAT_EVENT_INCOMPLETE]" in capsys.readouterr().out
    (folder / "t+0+1.json").write_text(text(GOOD))
    assert invoke(["inspect", "--metadata", str(metadata)], real()) == 0
