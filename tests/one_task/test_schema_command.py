"""`gddl schema`: the columns of a table, in the forms that consumers read."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from airflow_gddl.cli import context
from airflow_gddl.cli.main import invoke
from tests.harness.landing import write
from tests.one_task.commands import gddl

ROW: dict[str, Any] = {
    "table": "s.t", "keys": ["id"], "sequence_by": ["seq"], "freshness": "30m", "owner": "sales",
    "mask": {"mail": "hmac"}, "description": "Orders.",
    "column_descriptions": {"day": "Day of the order."}, "exclude_columns": ["secret"],
    "expect": {"good": {"rule": "price > 0", "on": "warn"}}, "tags": {"domain": "sales"},
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Metadata and a lake with the table loaded."""
    monkeypatch.setenv("GDDL_MASK_KEY", "k" * 32)
    (tmp_path / "metadata" / "tables").mkdir(parents=True)
    roots = {"landing": str(tmp_path / "landing"), "lake": str(tmp_path / "lake"), "runner": "local"}
    (tmp_path / "metadata" / "gddl.yaml").write_text(yaml.safe_dump(roots))
    (tmp_path / "metadata" / "tables" / "s.yaml").write_text(yaml.safe_dump({"source": "s", "tables": [ROW]}))
    rows = {
        "Op": ["I"], "seq": [1], "id": pa.array([1], pa.int32()), "mail": ["a"], "day": pa.array([0], pa.date32()),
        "price": pa.array([1], pa.decimal128(9, 2)), "secret": ["b"], "tags": [["x"]], "at": [{"x": 1.5}],
    }  # fmt: skip
    write(tmp_path / "landing" / "s" / "t", "20240101-000000001.parquet", pa.table(rows))
    gddl(tmp_path, "run")
    return tmp_path


def printed(folder: Path, *arguments: str) -> str:
    out = io.StringIO()
    with redirect_stdout(out):
        ended = invoke(["schema", "--table", "s.t", *arguments, "--metadata", str(folder / "metadata")], context.real())
    assert ended == 0
    return out.getvalue()


def test_schema_prints_names_and_types(folder: Path) -> None:
    lines = [line.split() for line in printed(folder).splitlines()]
    assert lines[:-1] == [
        ["seq", "bigint"], ["id", "int"], ["mail", "string"], ["day", "date"], ["price", "decimal(9,2)"],
        ["tags", "array<string>"], ["at", "struct<x:double>"],
    ]  # fmt: skip
    assert lines[-1][0] == "_gddl"
    (found,), _ = gddl(folder, "schema", "--table", "s.t")
    assert found["columns"]["price"] == "decimal(9,2)"


def test_schema_prints_a_json_schema(folder: Path) -> None:
    found = json.loads(printed(folder, "--format", "json-schema"))
    assert (found["title"], found["required"], found["description"]) == ("s.t", ["id"], "Orders.")
    assert found["properties"]["id"] == {"type": "integer"}
    assert found["properties"]["day"] == {
        "type": ["string", "null"], "format": "date", "description": "Day of the order."
    }  # fmt: skip
    assert found["properties"]["tags"]["items"] == {"type": ["string", "null"]}
    assert found["properties"]["at"]["properties"] == {"x": {"type": ["number", "null"]}}
    assert "secret" not in found["properties"]


def test_table_that_was_not_loaded(folder: Path) -> None:
    (folder / "metadata" / "tables" / "s.yaml").write_text(
        yaml.safe_dump({"source": "s", "tables": [{"table": "s.other", "keys": ["id"]}]})
    )
    _, said = gddl(folder, "schema", "--table", "s.other", status=2)
    assert "REPLICA_MISSING" in said
