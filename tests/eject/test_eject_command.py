"""`gddl eject` on the command line: files, what a row loses, and rows that a plain job would load wrong."""

from __future__ import annotations

import ast
import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from airflow_gddl.contract import packages
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.spec import Roots, TableSpec
from airflow_gddl.contract.table_spec import (
    Expectation,
    InitialLoad,
    LandingRetention,
    SchemaEvolution,
    SchemaGate,
)
from airflow_gddl.tools.eject import Known, files_of, lost_by, reasons_against
from tests.commands.test_cli import Shop, shop

pytestmark = pytest.mark.core

__all__ = ["shop"]
SPEC = TableSpec(table="shop.orders", keys=("id",), sequence_by=("seq",))
ROOTS = Roots(landing="s3://raw/dms", lake="s3://lake/tables")


NEVER_LOADED = Known()
KNOWN: dict[str, Any] = {"sales.orders": {"details": {"files": ["LOAD1.parquet"], "sequence": ["seq"]}}}


def files(spec: TableSpec = SPEC, known: Known = NEVER_LOADED) -> dict[str, str]:
    return files_of(spec, ROOTS, known, "@hourly")


def test_command_writes_files_once(shop: Shop, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    shop.write(
        "metadata/tables/sales.yaml",
        "tables: [{table: sales.orders, keys: [id], sequence_by: [seq], enabled: false}]\n",
    )
    answer = shop.gddl("eject", "--table", "sales.orders", "--out", str(folder), results=KNOWN)
    assert answer.status == 0, answer
    assert (answer.status, sorted(path.name for path in folder.iterdir())) == (
        0,
        ["README.md", "dag.py", "job.py", "known.json"],
    )
    assert str(shop.folder / "landing/sales/orders") in (folder / "job.py").read_text()
    assert json.loads((folder / "known.json").read_text())["files"] == ["LOAD1.parquet"]
    assert shop.order["options"]["action"]["name"] == "eject"
    (folder / "job.py").write_text("mine")
    again = shop.gddl("eject", "--table", "sales.orders", "--out", str(folder), results=KNOWN)
    assert (again.status, "[FOLDER_TAKEN]" in again.err) == (2, True)
    assert (folder / "job.py").read_text() == "mine"


def test_a_job_that_refuses_writes_nothing(shop: Shop, tmp_path: Path) -> None:
    shop.write("metadata/tables/sales.yaml", "tables: [{table: sales.orders, keys: [id], sequence_by: [seq]}]\n")
    error = {"code": "EJECT_UNSUPPORTED", "message": "a run has not ended", "where": "", "remedy": ""}
    refused = {"sales.orders": {"status": "failed", "error": error}}
    answer = shop.gddl("eject", "--table", "sales.orders", "--out", str(tmp_path / "out"), results=refused)
    assert (answer.status, "[EJECT_UNSUPPORTED]" in answer.err) == (2, True), answer
    assert not (tmp_path / "out").exists()


def test_files_are_python_that_names_nothing_of_this_package() -> None:
    made = files()
    for name in ("job.py", "dag.py"):
        names = [
            alias.name if isinstance(node, ast.Import) else f"{node.module}"
            for node in ast.walk(ast.parse(made[name]))
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        ]
        assert not [one for one in names if one.startswith(("airflow_gddl", "spark_jobs"))]
    assert 'LANDING = "s3a://raw/dms/shop/orders"' in made["job.py"]
    assert "$" not in "".join(made.values())


@pytest.mark.parametrize(
    ("installed", "package"),
    [
        ("4.0.2", "io.delta:delta-spark_4.0_2.13:4.4.0"),
        ("4.2.0", "io.delta:delta-spark_4.2_2.13:4.4.0"),
        (None, "io.delta:delta-spark_4.2_2.13:4.4.0"),
        ("9.0.0", "io.delta:delta-spark_4.2_2.13:4.4.0"),
    ],
)
def test_files_name_the_delta_that_runs_on_the_spark_of_this_python(
    installed: str | None, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packages, "installed_version", lambda _: installed)
    made = files()
    assert all(f"--packages {package} " in made[name] for name in ("job.py", "dag.py"))
    assert f"Spark {package.split('_')[1]}" in made["README.md"]


def test_job_has_what_the_ledger_knows() -> None:
    known = Known(files=["LOAD1.parquet"], keys=["ID"], sequence=["transact_seq"], quarantined=3)
    made = files(replace(SPEC, sequence_by=()), known)
    assert "SEQUENCE = ['transact_seq']" in made["job.py"]
    assert "KEYS = ['ID']" in made["job.py"]
    assert json.loads(made["known.json"]) == {"files": ["LOAD1.parquet"], "erased": {}, "names": []}
    assert "3 rows" in made["README.md"]


def test_readme_says_what_the_row_loses() -> None:
    readme = files(replace(SPEC, history=True, mask={"email": "hash"}))["README.md"]
    assert "`__history`" in readme
    assert "email" in readme
    assert "`__history`" not in files()["README.md"]


UNSUPPORTED: dict[str, dict[str, Any]] = {
    "debezium": {"dialect": "debezium"}, "snapshots": {"mode": "snapshots"}, "no keys": {"keys": ()},
    "shards": {"shards": ("a", "b")}, "parts": {"ignore_null_updates": True}, "listed": {"columns_to_update": "cols"},
    "filter": {"where": "id > 1"}, "soft": {"delete": "soft"}, "masked key": {"mask": {"id": "hash"}},
    "moved keys": {"before_image_prefix": "BI_"}, "csv": {"options": {"csv_header": True}},
    "no order": {"sequence_by": ()}, "order left out": {"exclude_columns": ("SEQ",)},
    "order not named": {"columns": ("v",)}, "order masked": {"mask": {"Seq": "hash"}},
    "forced": {"force_update": "now"},
    "operation renamed": {"rename": {"OP": "operation"}}, "put aside": {"expect": {"good": Expectation(rule="id > 1")}},
    "ignored columns": {"schema_evolution": SchemaEvolution(new_column="ignore")},
    "emptied columns": {"schema_evolution": SchemaEvolution(dropped_column="null")},
    "schema": {"schema": SchemaGate(require=("id",))}, "emptied": {"options": {"missing_folder": "empty"}},
}  # fmt: skip


@pytest.mark.parametrize("fields", UNSUPPORTED.values(), ids=UNSUPPORTED)
def test_rows_that_a_plain_job_would_load_wrong_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(FatalError) as refused:
        files(replace(SPEC, **fields))
    assert refused.value.code == "EJECT_UNSUPPORTED"


OF_THE_JOB = (
    "table", "keys", "source", "target", "source_table", "landing", "sequence_by", "schedule", "trigger", "columns",
    "exclude_columns", "rename", "options",
)  # fmt: skip
"""Fields that the job obeys."""
OF_README = (
    "mask", "schema_evolution", "tie_break", "truncate", "on_bad_row", "sub_microseconds", "tombstone_retention",
    "vacuum_retention", "generations", "sweep_after", "sweep_limit", "settle", "changes_retention",
    "track_history_except",
)  # fmt: skip
"""What no ejected job does, or only where the row has something else that is refused or lost."""
NOTHING = (
    "source_type", "region", "shard_landings", "shard_origins", "size", "priority", "mask_key_id",
    "expressions", "partition_by", "table_properties", "commit", "tags", "description",
    "column_descriptions", "owner", "airflow", "enabled", "absent_columns",
)  # fmt: skip
"""What concerns our runs, our tables, or is in the replica already."""
REFUSED: dict[str, Any] = {
    "shards": ("a", "b"), "mode": "snapshots", "delete": "soft", "before_image_prefix": "BI_",
    "ignore_null_updates": True, "columns_to_update": "cols", "force_update": "now", "where": "id > 1",
    "dialect": "debezium", "schema": SchemaGate(require=("id",)),
}  # fmt: skip
LOST: dict[str, Any] = {
    "history": True, "freshness": "30m", "heartbeat": "s.h", "derive": {"d": "id + 1"},
    "cluster_by": ("id",), "iceberg": True,
    "expect": {"good": Expectation(rule="id > 1", on="warn")}, "catalog": "c", "depends_on": ("s.u",),
    "landing_retention": LandingRetention(after="30d"), "initial_load": InitialLoad(),
}  # fmt: skip


def test_each_field_of_a_row_is_obeyed_refused_or_named_as_lost() -> None:
    every = [*OF_THE_JOB, *OF_README, *NOTHING, *REFUSED, *LOST]
    assert sorted(every) == sorted(one.name for one in fields(TableSpec))
    for name, value in REFUSED.items():
        assert [*reasons_against(replace(SPEC, **{name: value}))], name
    for name, value in LOST.items():
        spec = replace(SPEC, **{name: value})
        assert (len(lost_by(spec)), [*reasons_against(spec)]) == (1, []), name
