"""A row whose table has another name than its landing folder: each command says so, until it is corrected."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from airflow_gddl.cli import context
from airflow_gddl.cli.main import invoke
from tests.harness.landing import write

GDDL = "landing: ../landing\nlake: ../lake\n"


def project(root: Path, name: str) -> Path:
    metadata = root / "metadata"
    (metadata / "tables").mkdir(parents=True, exist_ok=True)
    (metadata / "gddl.yaml").write_text(GDDL)
    row = f"{{table: shop.{name}, keys: [id], freshness: 2h, settle: 0s}}"
    (metadata / "tables" / "shop.yaml").write_text(f"source: shop\ntables:\n  - {row}\n")
    return metadata


def status(metadata: Path, capsys: pytest.CaptureFixture[str], *more: str) -> str:
    capsys.readouterr()
    invoke(["status", "--metadata", str(metadata), *more], context.real())
    return capsys.readouterr().out


def test_a_table_without_a_folder_is_never_only_new(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "landing" / "shop" / "planes", "LOAD00000001.parquet", pa.table({"id": [1, 2]}))
    metadata = project(tmp_path, "plane")
    for _ in range(2):
        assert invoke(["run", "--metadata", str(metadata)], context.real()) == 0
        line = json.loads(status(metadata, capsys, "--json"))
        assert (line["state"], line["attention"]) == ("attention", ["FOLDER_MISSING"])
        assert (line["behind_seconds"], line["up_to_date_as_of"]) == (None, None)
        assert "folders there: shop/planes" in status(metadata, capsys)
    metadata = project(tmp_path, "planes")
    assert invoke(["run", "--metadata", str(metadata)], context.real()) == 0
    line = json.loads(status(metadata, capsys, "--json"))
    assert (line["state"], line["attention"], line["rows"]) == ("fresh", [], 2)


def test_an_empty_folder_is_no_proof_either(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "landing" / "shop" / "planes").mkdir(parents=True)
    metadata = project(tmp_path, "planes")
    assert invoke(["run", "--metadata", str(metadata)], context.real()) == 0
    line = json.loads(status(metadata, capsys, "--json"))
    assert (line["state"], line["behind_seconds"]) == ("new", None)
