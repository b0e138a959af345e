"""`from airflow_gddl import Lake`: what notebooks get of a loaded lake, and the examples of its page."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from airflow_gddl import Lake
from airflow_gddl.contract.errors import GddlError, MetadataError
from tests.harness import lake as harness

ROOT = Path(__file__).parents[2]
GOOD = "{table: s.t, keys: [id], sequence_by: [seq], owner: crm, schedule: {assets: [a]}, mask: {v: hash}}"
NEVER = "{table: s.never, keys: [id], delete: soft}"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A metadata folder, and its table `s.t` with three rows, two quarantined ones and a deleted one."""
    tables = tmp_path / "metadata" / "tables"
    tables.mkdir(parents=True)
    (tables.parent / "gddl.yaml").write_text("landing: ../landing\nlake: ../lake\n")
    (tables / "s.yaml").write_text(
        f"tables:\n  - {GOOD}\n  - {NEVER}\n  - {{table: s.bad, keys: [id], delete: never}}\n"
    )
    lake, spec = harness.Lake(tmp_path), harness.spec_of(mask={"v": "hash"})
    lake.load(spec)
    lake.change(spec, 1, [("X", 1, "a"), ("Y", 2, "b"), ("D", 0, None)])
    lake.done(spec)
    monkeypatch.chdir(tmp_path)
    return tables.parent


def test_tables_are_the_valid_rows_with_their_paths(project: Path) -> None:
    rows = Lake(project).tables().to_pylist()
    assert [row["table"] for row in rows] == ["s.never", "s.t"]
    assert {name: rows[1][name] for name in ("keys", "owner", "schedule", "replica", "history")} == {
        "keys": ["id"], "owner": "crm", "schedule": '{"assets": ["a"]}', "replica": f"{project.parent}/lake/s/t",
        "history": None,
    }  # fmt: skip


def test_status_is_that_of_the_command(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = Lake(project).status("s.t", "s.never")
    assert {row["table"]: (row["status"], row["state"]) for row in found.to_pylist()} == {
        "s.t": ("succeeded", "attention"), "s.never": ("never", "new"),
    }  # fmt: skip
    assert list(found.to_pandas().columns) == found.column_names
    Lake(project).status()
    assert "FIELD_VALUE s.bad.delete" in capsys.readouterr().err, "an invalid row is named"


def test_errors_are_rows_of_all_tables_or_of_a_code(project: Path) -> None:
    lake = Lake(project)
    rows = lake.errors().to_pylist()
    assert [(row["table"], row["code"], row["kind"]) for row in rows] == [("s.t", "OP_UNKNOWN", "change")] * 2
    assert isinstance(rows[0]["occurred_at"], datetime)
    assert rows[0]["occurred_at"].tzinfo is not None
    assert '"v":"a"' not in str(rows), "values are masked as in the errors table"
    assert lake.errors("s.t", codes=["KEY_NULL"]).num_rows == lake.errors("s.never").num_rows == 0
    assert lake.errors("s.never").schema == lake.errors().schema


def test_read_gives_published_columns_without_deleted_rows(project: Path) -> None:
    found = Lake(project).read("s.t")
    assert (sorted(found.column("id").to_pylist()), found.column_names) == ([1, 2], ["id", "v"])
    with pytest.raises(GddlError, match="REPLICA_MISSING"):
        Lake(project).read("s.never")


def test_explain_is_the_history_of_a_key(project: Path) -> None:
    found = Lake(project).explain("s.t", id=0)
    assert (found["outcome"], [change["op"] for change in found["changes"]]) == ("deleted", ["R", "D"])
    with pytest.raises(GddlError, match="KEY_NOT_FOUND"):
        Lake(project).explain("s.t", id=99)


def test_errors_are_those_of_the_commands(project: Path) -> None:
    with pytest.raises(MetadataError, match="TABLE_UNKNOWN"):
        Lake(project).status("s.nope")
    with pytest.raises(MetadataError, match="METADATA_MISSING"):
        Lake(project / "nowhere").tables()


def test_metadata_comes_from_the_environment_or_the_working_folder(project: Path) -> None:
    assert Lake(environ={"GDDL_METADATA": str(project)}).tables() == Lake(environ={}).tables()


def test_examples_of_the_page_run(project: Path) -> None:
    page = (ROOT / "docs" / "notebooks.md").read_text()
    examples = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(examples) > 3
    names: dict[str, Any] = {}
    for example in examples:
        text = example.replace("shop.orders", "s.t").replace("order_id=7", "id=1")
        exec(text.replace('"s3://bucket/metadata"', repr(str(project))), names)  # noqa: S102 - of our own page
    assert datetime.now(UTC) > names["errors"]["occurred_at"].max()


def test_the_package_imports_nothing_for_it() -> None:
    program = "import sys, airflow_gddl; names = {'pyarrow', 'typer', 'rich', 'pydantic', 'airflow_gddl.cli'}\n"
    program += "print(sorted(names & set(sys.modules)), 'Lake' in dir(airflow_gddl))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[0].startswith("[] ")
